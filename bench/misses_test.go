package bench

import (
	"context"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
)

// BenchmarkGetRowUncached reads rows of ten columns of which most lie in no
// block cache (4 MiB for 100 MB), but in the page cache.
func BenchmarkGetRowUncached(b *testing.B) {
	for _, reads := range []struct {
		name string
		how  flagstone.TableReads
	}{{"mapped", flagstone.TableReadsMapped}, {"direct", flagstone.TableReadsDirect}} {
		b.Run(reads.name, func(b *testing.B) {
			f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone, CacheSize: 4 << 20, TableReads: reads.how})
			defer f.store.Close()
			f.load(b, loaded)
			if err := f.store.Compact(context.Background()); err != nil {
				b.Fatal(err)
			}
			rng := rand.New(rand.NewPCG(3, 4))
			for range 50_000 { // a page's first touch is not what is measured
				if _, err := f.table.Get(context.Background(), key(rng.Uint64N(loaded)), flagstone.ReadOptions{}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportAllocs()
			for b.Loop() {
				i := rng.Uint64N(loaded)
				if r, err := f.table.Get(context.Background(), key(i), flagstone.ReadOptions{}); err != nil || r == nil {
					b.Fatalf("row %d: %v, %v", i, r, err)
				}
			}
		})
	}
}
