package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
)

// BenchmarkGetRowUncached reads rows of ten columns of which most lie in no
// block cache (4 MiB for 100 MB), but in the page cache.
func BenchmarkGetRowUncached(b *testing.B) {
	eachAccess(b, func(b *testing.B, f *fixture) {
		get := func(opts flagstone.ReadOptions) func(b *testing.B) {
			return func(b *testing.B) {
				b.ReportAllocs()
				rng := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					i := rng.Uint64N(loaded)
					if r, err := f.table.Get(context.Background(), key(i), opts); err != nil || r == nil {
						b.Fatalf("row %d: %v, %v", i, r, err)
					}
				}
			}
		}
		b.Run("all columns", get(flagstone.ReadOptions{}))
		b.Run("one column", get(flagstone.ReadOptions{Columns: columnNames[4:5]}))
	})
}

// BenchmarkScanUncached is BenchmarkGetRowUncached of ranges of so many rows, from
// a random one on. The figure is per range.
func BenchmarkScanUncached(b *testing.B) {
	eachAccess(b, func(b *testing.B, f *fixture) {
		for _, length := range []int{1, 100, 10_000} {
			b.Run(fmt.Sprint("rows=", length), func(b *testing.B) {
				b.ReportAllocs()
				rng := rand.New(rand.NewPCG(3, 4))
				for b.Loop() {
					rows := f.table.Scan(context.Background(), key(rng.Uint64N(loaded)), nil, flagstone.ScanOptions{})
					for n := 0; n < length && rows.Next(); n++ {
					}
					if err := rows.Err(); err != nil {
						b.Fatal(err)
					}
					rows.Close()
				}
			})
		}
	})
}

// eachAccess runs a benchmark on rows that few of the blocks are cached of, read
// through mappings and by calls.
func eachAccess(b *testing.B, run func(b *testing.B, f *fixture)) {
	for _, compression := range []struct {
		name string
		kind flagstone.Compression
	}{{"s2", flagstone.CompressionS2}, {"none", flagstone.CompressionNone}} {
		for _, reads := range []struct {
			name string
			how  flagstone.TableReads
		}{{"mapped", flagstone.TableReadsMapped}, {"direct", flagstone.TableReadsDirect}} {
			b.Run(fmt.Sprintf("%s/%s", compression.name, reads.name), func(b *testing.B) {
				f := open(b, b.TempDir(), flagstone.Options{
					Sync: flagstone.SyncNone, CacheSize: 4 << 20, TableReads: reads.how, Compression: compression.kind,
				})
				defer f.store.Close()
				f.load(b, loaded)
				if err := f.store.Compact(context.Background()); err != nil {
					b.Fatal(err)
				}
				f.warm(b) // a page's first touch is not what is measured
				run(b, f)
			})
		}
	}
}
