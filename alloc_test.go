package flagstone

// Allocations of writes: none, once their memory is in the pools.

import (
	"context"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func TestAWriteAllocatesNothing(t *testing.T) {
	store, err := Open(t.TempDir(), Options{Sync: SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "id", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	var columns []string
	for i := range 10 {
		columns = append(columns, fmt.Sprintf("column%d", i))
	}
	value := make([]byte, 100)
	n := int64(0)
	version := int64(startMillis)
	put := func(c *RowChange) {
		c.PutRow()
		for i, column := range columns {
			if i%2 == 0 {
				c.Put(column, version, row.Binary(value))
			} else {
				c.Put(column, version, row.Integer(n))
			}
		}
	}
	batch := store.NewBatch()
	apply := func() error {
		batch.Reset()
		for range 10 {
			n++
			put(batch.Row(table, []row.Value{row.Integer(n % 10_000)}))
		}
		return store.Apply(ctx(), batch)
	}
	for name, write := range map[string]func() error{
		"Update": func() error {
			return table.Update(ctx(), []row.Value{row.Integer(n)}, func(_ context.Context, tx *RowTx) error {
				put(&tx.RowChange)
				return nil
			})
		},
		"Put": func() error {
			return table.Put(ctx(), []row.Value{row.Integer(n)}, "c", startMillis, row.Binary(value))
		},
		"Delete": func() error { return table.Delete(ctx(), []row.Value{row.Integer(n)}) },
		"Apply":  apply,
		"Apply, with versions of now": func() error {
			version = Now
			defer func() { version = startMillis }()
			return apply()
		},
	} {
		allocs := testing.AllocsPerRun(2000, func() {
			n++
			if err := write(); err != nil {
				t.Fatal(err)
			}
		})
		// The memtable and the log's buffer allocate less than once for each write.
		if allocs != 0 && !poolsForget {
			t.Errorf("%s allocates %v times", name, allocs)
		}
	}
}

// TestABatchIsUsedAgain checks that a batch shows nothing of an earlier use.
func TestABatchIsUsedAgain(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	b := r.store.NewBatch()
	for round := range 4 {
		b.Reset()
		for i := range 3 + round%2 {
			c := b.Row(table, Key("p", i))
			c.Put("c", startMillis, row.String(fmt.Sprint(round)))
			if again := b.Row(table, Key("p", i)); again != c {
				t.Error("another change for the same row")
			}
		}
		if b.Len() != 3+round%2 {
			t.Errorf("%d rows", b.Len())
		}
		for range 2 { // the second time changes nothing
			if err := r.store.Apply(ctx(), b); err != nil {
				t.Fatal(err)
			}
		}
		want := fmt.Sprintf("c@%d=%d ", startMillis, round)
		if got := show(t, table, "p", 2); got != want {
			t.Errorf("round %d: %s, want %s", round, got, want)
		}
	}
	if err := b.Row(table, Key(1)); err.of.Err == nil {
		t.Error("a wrong key was taken")
	}
	b.Reset()
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Errorf("an empty batch: %v", err)
	}
}
