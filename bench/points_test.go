package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"math"
	"os"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const (
	pointRows   = 300_000 // unless FLAGSTONE_POINT_ROWS says otherwise
	pointPieces = 100
)

// loadSmall loads rows with keys of 16 bytes and one column of 100 bytes, in random order, and settles the table
// unless the rest of the rows is to stay in memtables and in files that overlap.
func loadSmall(b *testing.B, settle bool) (f *fixture, rows int) {
	rows, _ = strconv.Atoi(os.Getenv("FLAGSTONE_POINT_ROWS"))
	rows = cmp.Or(rows, pointRows)
	f = openKeyed(b, b.TempDir(), row.TypeBinary)
	ctx, batch := context.Background(), f.store.NewBatch()
	for i := range uint64(rows) {
		k := make([]byte, 16)
		binary.BigEndian.PutUint64(k[8:], i*0x9E3779B97F4A7C15)
		batch.Row(f.table, []row.Value{row.Binary(k)}).Put("v", f.store.NowMillis(), row.Binary(f.vs[i%uint64(len(f.vs))]))
		if batch.Len() == 1000 || i == uint64(rows-1) {
			if err := f.store.Apply(ctx, batch); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
	if settle {
		if err := errors.Join(f.store.Flush(ctx), f.store.Settle(ctx)); err != nil {
			b.Fatal(err)
		}
	}
	return f, rows
}

// BenchmarkPoints cuts a table of small rows into 100 pieces. It reports how long that takes, and how far the
// pieces are from the size asked for: at the 95th percentile, in percent. The exact size of a piece is its share of
// the rows, which are all of one size.
func BenchmarkPoints(b *testing.B) {
	for name, settle := range map[string]bool{"settled": true, "just written": false} {
		b.Run(name, func(b *testing.B) {
			f, rows := loadSmall(b, settle)
			defer f.store.Close()
			piece := f.table.ApproximateSize() / pointPieces
			var points [][]row.Value
			var err error
			for b.Loop() {
				if points, err = f.table.SplitPoints(context.Background(), piece, 0); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			var worst time.Duration
			before := f.store.Metrics()
			for range 100 {
				began := time.Now()
				if _, err = f.table.SplitPoints(context.Background(), piece, 0); err != nil {
					b.Fatal(err)
				}
				worst = max(worst, time.Since(began))
			}
			after := f.store.Metrics()
			var wrong []float64
			exact := float64(rows) / float64(f.table.ApproximateSize()) * float64(piece)
			for i := range len(points) {
				var from []row.Value
				if i > 0 {
					from = points[i-1]
				}
				n := 0
				for _, err := range f.table.Scan(context.Background(), from, points[i], flagstone.ScanOptions{}).All() {
					if err != nil {
						b.Fatal(err)
					}
					n++
				}
				wrong = append(wrong, math.Abs(float64(n)-exact)/exact)
			}
			slices.Sort(wrong)
			b.ReportMetric(float64(worst.Microseconds())/1e3, "max-ms")
			b.ReportMetric(float64(len(points)+1), "pieces")
			b.ReportMetric(100*wrong[int(.95*float64(len(wrong)-1))], "p95-error-%")
			b.ReportMetric(float64(after.CacheHits+after.CacheMisses-before.CacheHits-before.CacheMisses), "blocks-read")
		})
	}
}

// BenchmarkScanParallel reads all rows of a settled table by one scan, and by a parallel scan of 1, 2 and 4 workers.
func BenchmarkScanParallel(b *testing.B) {
	f, rows := loadSmall(b, true)
	defer f.store.Close()
	report := func(b *testing.B, count int64) {
		if count != int64(b.N)*int64(rows) {
			b.Fatalf("%d rows in %d scans of %d", count, b.N, rows)
		}
		b.ReportMetric(float64(count)/b.Elapsed().Seconds()/1e6, "Mrows/s")
	}
	b.Run("scan", func(b *testing.B) {
		count := int64(0)
		for range b.N {
			for _, err := range f.table.Scan(context.Background(), nil, nil, flagstone.ScanOptions{}).All() {
				if err != nil {
					b.Fatal(err)
				}
				count++
			}
		}
		report(b, count)
	})
	for _, workers := range []int{1, 2, 4} {
		b.Run("workers="+strconv.Itoa(workers), func(b *testing.B) {
			counts := make([]struct {
				n int64
				_ [120]byte // a cache line of its own
			}, workers)
			for range b.N {
				err := f.table.ScanParallel(context.Background(), flagstone.ParallelScan{Workers: workers}, func(worker int, _ *flagstone.Row) error {
					counts[worker].n++
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
			}
			count := int64(0)
			for i := range counts {
				count += counts[i].n
			}
			report(b, count)
		})
	}
}
