package bench

// Reads that name their columns beside reads of all columns: of a table with one column, and of ten small
// ones. A read that asks for less should not cost more.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// rowShape is a table of rows of so many columns, all with values of one size.
type rowShape struct{ rows, columns, value int }

// fill opens a store with rows of the shape: in memtables, in one level of files, or ("mixed") in files
// with a twentieth of the rows in level 0 and another twentieth in a memtable.
func (s rowShape) fill(b *testing.B, where string) *fixture {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20})
	b.Cleanup(func() { f.store.Close() })
	value := make([]byte, s.value)
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range value {
		value[i] = byte(rng.Uint32())
	}
	put := func(from, to int) {
		for i := from; i < to; i++ {
			now := f.store.NowMillis()
			err := f.table.Update(context.Background(), key(uint64(i)), func(_ context.Context, tx *flagstone.RowTx) error {
				tx.PutRow()
				for c := range s.columns {
					tx.Put(columnNames[c], now, row.Binary(value))
				}
				return nil
			})
			if err != nil {
				b.Fatal(err)
			}
		}
	}
	late := s.rows / 20
	switch where {
	case "memtable":
		put(0, s.rows)
	case "files":
		put(0, s.rows)
		f.warm(b)
		if err := f.store.Compact(context.Background()); err != nil {
			b.Fatal(err)
		}
		f.warm(b)
	case "mixed":
		put(0, s.rows-2*late)
		f.warm(b)
		if err := f.store.Compact(context.Background()); err != nil {
			b.Fatal(err)
		}
		put(s.rows-2*late, s.rows-late)
		f.warm(b)
		put(s.rows-late, s.rows)
	}
	return f
}

// A range is 100 rows from a random one on, whose values are looked at.
func BenchmarkNamedColumn(b *testing.B) {
	ctx := context.Background()
	for _, s := range []rowShape{{100_000, 1, 100}, {50_000, 1, 1024}, {50_000, 10, 10}, {50_000, 10, 100}} {
		for _, where := range []string{"files", "memtable", "mixed"} {
			b.Run(fmt.Sprintf("columns=%d/value=%d/%s", s.columns, s.value, where), func(b *testing.B) {
				f := s.fill(b, where)
				for _, names := range [][]string{nil, columnNames[s.columns/2 : s.columns/2+1]} {
					read := flagstone.ReadOptions{Columns: names}
					b.Run(fmt.Sprintf("range/named=%d", len(names)), func(b *testing.B) {
						rng := rand.New(rand.NewPCG(7, 8))
						b.ReportAllocs()
						sum := 0
						for b.Loop() {
							rows := f.table.Scan(ctx, key(rng.Uint64N(uint64(s.rows))), nil, flagstone.ScanOptions{ReadOptions: read})
							for n := 0; n < 100 && rows.Next(); n++ {
								sum += len(rows.Row().Cells()[0].Value)
							}
							if err := rows.Err(); err != nil {
								b.Fatal(err)
							}
							rows.Close()
						}
					})
					b.Run(fmt.Sprintf("get/named=%d", len(names)), func(b *testing.B) {
						rng := rand.New(rand.NewPCG(7, 8))
						b.ReportAllocs()
						var r flagstone.Row
						for b.Loop() {
							if ok, err := f.table.GetInto(ctx, key(rng.Uint64N(uint64(s.rows))), read, &r); err != nil || !ok {
								b.Fatal(ok, err)
							}
						}
					})
				}
			})
		}
	}
}
