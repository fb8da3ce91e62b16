package instances

import (
	"context"
	"fmt"
	"testing"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkTypes compares the two instance types: the cost of reading blocks that are not
// cached, and the space they take (B/row).
func BenchmarkTypes(b *testing.B) {
	h, err := Open(b.TempDir(), Options{Store: flagstone.Options{CacheSize: 64 << 10, Sync: flagstone.SyncNone}})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	if err := h.Create(ctx, "archive", ots.Capacity); err != nil {
		b.Fatal(err)
	}
	const rows = 200_000
	for _, kind := range []ots.InstanceType{ots.HighPerformance, ots.Capacity} {
		table, err := purchasesOf(h.rooms[kind].store, rows)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(fmt.Sprint("scan/", kind), func(b *testing.B) {
			for range b.N {
				n := 0
				scan := table.Scan(ctx, nil, nil, flagstone.ScanOptions{})
				for scan.Next() {
					n++
				}
				if err := scan.Close(); err != nil || n != rows {
					b.Fatal(n, err)
				}
			}
			b.ReportMetric(float64(table.ApproximateSize())/rows, "B/row")
		})
		b.Run(fmt.Sprint("get/", kind), func(b *testing.B) {
			for i := range b.N {
				if r, err := table.Get(ctx, flagstone.Key(i*7919%rows), flagstone.ReadOptions{}); r == nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// purchasesOf makes a table on disk, whose rows have a text and a number.
func purchasesOf(store *flagstone.Store, rows int) (*flagstone.Table, error) {
	table, err := store.CreateTable(ctx, flagstone.TableSpec{Name: "bench/t", Key: []flagstone.KeyColumn{{Name: "k", Type: row.TypeInteger}}})
	if err != nil {
		return nil, err
	}
	for i := range rows {
		err := table.Update(ctx, flagstone.Key(i), func(_ context.Context, tx *flagstone.RowTx) error {
			tx.Put("text", 1, row.String(fmt.Sprintf("purchase %d of card %d at the till of canteen %d", i*7919, i*31%997, i%13)))
			tx.Put("amount", 1, row.Integer(int64(i*7919%100_000)))
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	if err := store.Flush(ctx); err != nil {
		return nil, err
	}
	return table, store.Settle(ctx)
}
