package flagstone

// Values that are packed before they are logged: callers of the store see them unpacked.

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestAPackedValueIsReadWhereverItIs: in a memtable, as a row's first value or a
// later one, in the log that a crash leaves, in a value file, and in a table file
// of a store that has no value files any more.
func TestAPackedValueIsReadWhereverItIs(t *testing.T) {
	r := newRig(t, Options{
		MemtableSize: 256 << 10, MemoryBudget: 1 << 20, TableFileSize: 32 << 10, WALSegmentSize: 256 << 10,
		Seams: Seams{ValueThreshold: valueSize / 2},
	})
	table := r.table("t", TableOptions{MaxVersions: 1})
	const rows = 30
	write := func(round int) {
		t.Helper()
		for i := range rows {
			put(t, table, "p", i, "large", startMillis, large(i, round))
			put(t, table, "p", i, "small", startMillis, "s")
		}
	}
	write(0)
	checkLarge(t, table, nil, rows, 0)
	write(1)
	checkLarge(t, table, nil, rows, 1)
	if took := r.store.Metrics().MemoryBytes; took > 2*rows*valueSize/2 {
		t.Errorf("memtables have %d bytes for values of %d", took, 2*rows*valueSize)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	checkLarge(t, table, nil, rows, 1)
	if len(valueFiles(r.fs)) > 0 {
		t.Fatal("a value file before there was a flush")
	}
	flushAll(t, r)
	if len(valueFiles(r.fs)) == 0 {
		t.Fatal("no value file after a flush")
	}
	checkLarge(t, table, nil, rows, 1)

	write(2)
	r.crash(vfs.CrashLoseAll, 2)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.opts.Seams.ValueThreshold = -1
	r.open()
	table = r.table("t", TableOptions{})
	files := len(valueFiles(r.fs))
	flushAll(t, r)
	if n := len(valueFiles(r.fs)); n > files {
		t.Errorf("%d value files, %d before", n, files)
	}
	checkLarge(t, table, nil, rows, 2)
	checkStore(t, r)
}

// TestAPackedValueIsUpdatedAndCompared: a read-modify-write sees the value, and
// what is written at its version replaces it.
func TestAPackedValueIsUpdatedAndCompared(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 100}})
	table := r.table("t", TableOptions{MaxVersions: 3})
	long := strings.Repeat("long ", 100)
	put(t, table, "p", 1, "c", startMillis, long)
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		old, err := tx.Get(ReadOptions{})
		if err != nil {
			return err
		}
		v, _ := old.Value("c")
		tx.Put("d", startMillis, row.String(v.Text()+"!"))
		tx.Put("c", startMillis+1, row.String(long+"?"))
		tx.DeleteVersion("c", startMillis)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	got, err := table.Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil || len(got.Cells()) != 2 {
		t.Fatal(got, err)
	}
	c, _ := got.Value("c")
	d, _ := got.Value("d")
	if c.Text() != long+"?" || d.Text() != long+"!" {
		t.Errorf("%q, %q", c.Text(), d.Text())
	}
}

// TestPackedValuesInStreamsAndTransactions: records of a stream and what a
// transaction reads of its own have the values, from memory, after a crash and from
// files.
func TestPackedValuesInStreamsAndTransactions(t *testing.T) {
	r := newRig(t, Options{Seams: Seams{ValueThreshold: 100}})
	table := r.streamed("t", StreamSpec{Before: []string{"c"}})
	long := func(s string) row.Value { return row.String(strings.Repeat(s, 200)) }
	changeRow(t, table, 1, func(tx *RowTx) { // out of order, and one of them twice
		tx.Put("c", startMillis, long("c"))
		tx.Put("a", startMillis, long("unseen"))
		tx.Put("a", startMillis, long("a"))
	})
	changeRow(t, table, 1, func(tx *RowTx) { tx.Put("c", startMillis+1, long("d")) })
	changeRow(t, table, 1, func(tx *RowTx) { // needs a trim: the change is encoded anew
		tx.Put("b", startMillis, long("b"))
		tx.DeleteVersion("c", startMillis+1)
	})
	tx := begin(t, table, "p", TransactionOptions{})
	if err := tx.Update(ctx(), Key("p", 1), func(_ context.Context, r *RowTx) error { r.Put("c", startMillis+2, long("e")); return nil }); err != nil {
		t.Fatal(err)
	}
	within := txShow(t, tx, "p", 1)
	rows := tx.Scan(ctx(), nil, nil, ScanOptions{})
	if !rows.Next() || cells(rows.Row()) != within {
		t.Errorf("a scan in the transaction has %.100q, a get %.100q", cells(rows.Row()), within)
	}
	if err := rows.Close(); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	put := func(column string, version int, v row.Value) string {
		return fmt.Sprintf(" %s@%d:put=%s", column, startMillis+version, v)
	}
	records := []string{
		`update ["p" 1]` + put("a", 0, long("a")) + put("c", 0, long("c")),
		`update ["p" 1]` + put("c", 1, long("d")) + " before" + put("c", 0, long("c")),
		`update ["p" 1]` + put("b", 0, long("b")) + fmt.Sprintf(" c@%d:delete-version before", startMillis+1) + put("c", 1, long("d")),
		`update ["p" 1]` + put("c", 2, long("e")) + " before" + put("c", 0, long("c")),
	}
	check := func(when string) {
		t.Helper()
		table, err := r.store.Table("t")
		if err != nil {
			t.Fatal(err)
		}
		want(t, when, show(t, table, "p", 1), within)
		got, _ := readStream(t, table.Stream(), oldest(t, table.Stream()), StreamLimits{})
		for i := range records {
			if i >= len(got) || showRecord(&got[i]) != records[i] {
				t.Fatalf("%s: record %d of %d differs from %.200q", when, i, len(got), records[i])
			}
		}
	}
	check("in memory")
	r.crash(vfs.CrashLoseAll, 1)
	check("after a crash")
	flushAll(t, r)
	check("in files")
}
