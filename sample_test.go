package flagstone

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// sampledTable makes a table of two key columns on a simulated disk.
func sampledTable(t *testing.T) (*Store, *Table) {
	t.Helper()
	store, err := Open("/store", Options{Compression: CompressionNone, Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(context.Background(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		Options: TableOptions{MaxVersionOffsetSeconds: 1 << 40},
	})
	if err != nil {
		t.Fatal(err)
	}
	return store, table
}

// TestASampleIsSpreadOverTheBytesOfATable: one partition key in four has half of
// the bytes, in memory and on disk, in a table of few blocks and in one of many.
func TestASampleIsSpreadOverTheBytesOfATable(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		what        string
		flushes     bool
		rows, wants int
	}{
		{"all in memory", false, 4000, 200},
		{"few blocks", true, 1000, 200},
		{"many blocks", true, 8000, 50},
	} {
		store, table := sampledTable(t)
		for i := range c.rows {
			p := "heavy"
			if i%2 == 1 {
				p = fmt.Sprintf("light-%d", i%6)
			}
			err := table.Update(ctx, Key(p, i), func(_ context.Context, tx *RowTx) error {
				tx.Put("c", startMillis+int64(i), row.String(strings.Repeat("x", 400)))
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			if c.flushes && i == c.rows/2 {
				if err := store.Flush(ctx); err != nil {
					t.Fatal(err)
				}
			}
		}
		if c.flushes {
			if err := store.Flush(ctx); err != nil {
				t.Fatal(err)
			}
		}
		sample, err := table.Sample(ctx, c.wants)
		if err != nil {
			t.Fatal(err)
		}
		var heavy, total int64
		last := ""
		for _, s := range sample {
			total += s.Bytes
			if s.Key[0].Text() == "heavy" {
				heavy += s.Bytes
			}
			if s.Version != startMillis+s.Key[1].Int64() {
				t.Errorf("%s: row %v has version %d", c.what, s.Key, s.Version)
			}
			key := fmt.Sprintf("%s %020d", s.Key[0].Text(), s.Key[1].Int64())
			if key < last {
				t.Errorf("%s: %s comes after %s", c.what, key, last)
			}
			last = key
		}
		part := float64(heavy) / float64(total)
		t.Logf("%s: %d rows, %.2f of %d bytes", c.what, len(sample), part, total)
		if len(sample) < c.wants*9/10 || part < 0.42 || part > 0.58 {
			t.Errorf("%s: %d rows, of which the heavy key has %.2f", c.what, len(sample), part)
		}
		if size := table.ApproximateSize(); total < size/2 || total > size*2 {
			t.Errorf("%s: the sample stands for %d bytes, the table has %d", c.what, total, size)
		}
	}
}

func TestASampleOfLittleOrNothing(t *testing.T) {
	ctx := context.Background()
	_, table := sampledTable(t)
	if sample, err := table.Sample(ctx, 10); err != nil || len(sample) != 0 {
		t.Errorf("of an empty table: %v, %v", sample, err)
	}
	for i := range 7 {
		if err := table.Update(ctx, Key("p", i), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil }); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Delete(ctx, Key("p", 3)); err != nil {
		t.Fatal(err)
	}
	sample, err := table.Sample(ctx, 100)
	if err != nil || len(sample) != 6 || sample[3].Key[1].Int64() != 4 || sample[0].Version != 0 {
		t.Errorf("of six rows: %v, %v", sample, err)
	}
	if _, err := table.Sample(ctx, 0); !errors.Is(err, ErrInvalid) {
		t.Errorf("of no rows: %v", err)
	}
}
