package bench

import (
	"context"
	"testing"

	"github.com/flagstone-db/flagstone"
)

// backgroundRows is how many rows of 10x100 B the benchmarks of flush and
// compaction work on: 64 MB of values.
const backgroundRows = 64_000

// BenchmarkFlush writes a memtable of 64,000 rows of 10x100 B in random order of
// keys to table files; MB/s are of values, on one core.
func BenchmarkFlush(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(backgroundRows * columns * valueSize)
	b.StopTimer()
	for range b.N {
		f := open(b, b.TempDir(), flagstone.Options{
			Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20,
		})
		for i := range uint64(backgroundRows) {
			f.put(b, i)
		}
		b.StartTimer()
		if err := f.store.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
		b.StopTimer()
		if err := f.store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompact merges two flushes of 64,000 rows of 10x100 B each: of the
// same rows ("overwritten"), or of different ones that lie between each other
// ("interleaved"). MB/s are of the values read.
func BenchmarkCompact(b *testing.B) {
	for _, c := range []struct {
		name   string
		second uint64 // first row of the second flush
	}{{"overwritten", 0}, {"interleaved", backgroundRows}} {
		b.Run(c.name, func(b *testing.B) {
			b.ReportAllocs()
			b.SetBytes(2 * backgroundRows * columns * valueSize)
			b.StopTimer()
			for range b.N {
				f := open(b, b.TempDir(), flagstone.Options{
					Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20,
				})
				for _, from := range []uint64{0, c.second} {
					for i := range uint64(backgroundRows) {
						f.put(b, from+i)
					}
					if err := f.store.Flush(context.Background()); err != nil {
						b.Fatal(err)
					}
				}
				b.StartTimer()
				if err := f.store.Compact(context.Background()); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				if err := f.store.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkSplitPoints asks for 40 pieces of 100,000 rows of 10x100 B, flushed,
// of the same merged into one run, and beside a memtable of 20,000 further rows.
func BenchmarkSplitPoints(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	run := func(b *testing.B) {
		piece := f.table.ApproximateSize() / 40
		b.ReportAllocs()
		for b.Loop() {
			points, err := f.table.SplitPoints(context.Background(), piece, 0)
			if err != nil || len(points) < 30 {
				b.Fatalf("%d points, %v", len(points), err)
			}
		}
	}
	b.Run("flushed", run)
	if err := f.store.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	b.Run("merged", run)
	for i := range uint64(20_000) {
		f.put(b, loaded+i)
	}
	b.Run("beside a memtable", run)
}
