package bench

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkWriteParallel writes rows in random order, with a column of 100 bytes, into a table with 16 partitions: with
// batches of 200 rows that 8 goroutines apply, and from one goroutine with Table.WriteParallel.
func BenchmarkWriteParallel(b *testing.B) {
	ctx := context.Background()
	var splits []row.Value
	for i := int64(1); i < 16; i++ {
		splits = append(splits, row.Integer(math.MinInt64+i<<60))
	}
	for _, mode := range []flagstone.SyncMode{flagstone.SyncAlways, flagstone.SyncNone} {
		name := map[flagstone.SyncMode]string{flagstone.SyncAlways: "durable", flagstone.SyncNone: "none"}[mode]
		begin := func(b *testing.B) *fixture {
			store, err := flagstone.Open(b.TempDir(), flagstone.Options{Sync: mode})
			if err != nil {
				b.Fatal(err)
			}
			table, err := store.CreateTable(ctx, flagstone.TableSpec{
				Name: "rows", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeInteger}}, SplitAt: splits,
			})
			if err != nil {
				b.Fatal(err)
			}
			b.Cleanup(func() { store.Close() })
			return &fixture{store, table, values(rand.New(rand.NewPCG(1, 2)))}
		}
		b.Run(name+"/by-hand", func(b *testing.B) {
			f := begin(b)
			const writers, rows = 8, 200
			b.ResetTimer()
			var all sync.WaitGroup
			for g := range writers {
				all.Go(func() {
					batch := f.store.NewBatch()
					for i := g; i < b.N; i += writers {
						batch.Row(f.table, key(uint64(i))).Put("v", flagstone.Now, row.Binary(f.vs[i%len(f.vs)]))
						if batch.Len() == rows || i+writers >= b.N {
							if err := f.store.Apply(ctx, batch); err != nil {
								b.Error(err)
								return
							}
							batch.Reset()
						}
					}
				})
			}
			all.Wait()
		})
		b.Run(name+"/writer", func(b *testing.B) {
			f := begin(b)
			b.ResetTimer()
			w, err := f.table.WriteParallel(ctx, flagstone.ParallelWrite{})
			for i := 0; i < b.N && err == nil; i++ {
				err = w.Write(key(uint64(i)), func(c *flagstone.RowChange) { c.Put("v", flagstone.Now, row.Binary(f.vs[i%len(f.vs)])) })
			}
			if err = errors.Join(err, w.Close()); err != nil {
				b.Fatal(err)
			}
		})
	}
}
