package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkReadWideRow reads from a row of 1,000,000 columns of 100 bytes, cached:
// one column, and pages of 1,000, of which the last figure is per column.
func BenchmarkReadWideRow(b *testing.B) {
	const wide = 1_000_000
	ctx := context.Background()
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	name := func(i int) string { return fmt.Sprintf("column%08d", i) }
	key := []row.Value{row.Integer(1)}
	for from := 0; from < wide; from += 1000 {
		now := f.store.NowMillis()
		err := f.table.Update(ctx, key, func(_ context.Context, tx *flagstone.RowTx) error {
			for i := from; i < from+1000; i++ {
				tx.Put(name(i), now, row.Binary(f.vs[i%len(f.vs)]))
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	f.flush(b)
	page := func(r *flagstone.Row, from string) string {
		ok, err := f.table.GetInto(ctx, key, flagstone.ReadOptions{StartColumn: from, MaxColumns: 1000}, r)
		if err != nil || !ok {
			b.Fatal(ok, err)
		}
		if len(r.Cells()) < 1000 {
			return ""
		}
		return string(append(r.Cells()[len(r.Cells())-1].Column, 0))
	}
	var r flagstone.Row
	for from := page(&r, ""); from != ""; {
		from = page(&r, from)
	}
	b.Run("one column", func(b *testing.B) {
		rng := rand.New(rand.NewPCG(1, 2))
		columns := make([]string, 1)
		b.ReportAllocs()
		for b.Loop() {
			columns[0] = name(rng.IntN(wide))
			if ok, err := f.table.GetInto(ctx, key, flagstone.ReadOptions{Columns: columns}, &r); err != nil || !ok || len(r.Cells()) != 1 {
				b.Fatal(ok, err, len(r.Cells()))
			}
		}
	})
	b.Run("pages", func(b *testing.B) {
		from, columns := "", 0
		b.ReportAllocs()
		for b.Loop() {
			from = page(&r, from)
			columns += len(r.Cells())
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(columns), "ns/column")
	})
}
