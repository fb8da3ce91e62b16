package bench

import (
	"context"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// BenchmarkTransaction begins a transaction, puts two rows in it, reads one of
// them, and commits it.
func BenchmarkTransaction(b *testing.B) {
	ctx := context.Background()
	for _, sync := range []struct {
		name string
		mode flagstone.SyncMode
	}{{"unsynced", flagstone.SyncNone}, {"synced", flagstone.SyncAlways}} {
		b.Run(sync.name, func(b *testing.B) {
			f := open(b, b.TempDir(), flagstone.Options{Sync: sync.mode})
			defer f.store.Close()
			table, err := f.store.CreateTable(ctx, flagstone.TableSpec{Name: "transactions", Key: []flagstone.KeyColumn{
				{Name: "p", Type: row.TypeString}, {Name: "k", Type: row.TypeInteger}}})
			if err != nil {
				b.Fatal(err)
			}
			put := func(_ context.Context, r *flagstone.RowTx) error {
				for _, name := range columnNames {
					r.Put(name, 1, row.Binary(f.vs[0]))
				}
				return nil
			}
			b.ReportAllocs()
			n := 0
			for b.Loop() {
				n++
				p := fmt.Sprint(n % 1000)
				tx, err := table.Begin(ctx, row.String(p), flagstone.TransactionOptions{})
				if err == nil {
					err = tx.Update(ctx, flagstone.Key(p, 2*n), put)
				}
				if err == nil {
					err = tx.Update(ctx, flagstone.Key(p, 2*n+1), put)
				}
				if err == nil {
					_, err = tx.Get(ctx, flagstone.Key(p, 2*n), flagstone.ReadOptions{})
				}
				if err == nil {
					err = tx.Commit(ctx)
				}
				if err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
