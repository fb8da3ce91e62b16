package bench

import (
	"cmp"
	"context"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
)

const (
	splitRows    = 400_000 // of 10x100 B, in the partition that is split, unless FLAGSTONE_SPLIT_ROWS says otherwise
	splitWriters = 2
	splitPace    = 500 * time.Microsecond // between two writes of a writer
	splitPeriod  = 300 * time.Millisecond // between two splits
)

// BenchmarkSplit splits a partition of settled data again and again, while writers overwrite random rows
// at a fixed pace. It reports how long a split takes, the longest pause in which no write is ordered, what the
// split itself writes, and the latencies of writes without splits (before them and after them), and while
// partitions are split.
// Run it with -benchtime of a number of splits, 20x for instance.
func BenchmarkSplit(b *testing.B) {
	rows, _ := strconv.Atoi(os.Getenv("FLAGSTONE_SPLIT_ROWS"))
	rows = cmp.Or(rows, splitRows)
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, uint64(rows))
	if err := f.store.Settle(context.Background()); err != nil {
		b.Fatal(err)
	}
	ctx := context.Background()
	undisturbed := func() []time.Duration {
		return f.overwrite(b, rows, func() { time.Sleep(time.Duration(b.N) * splitPeriod) })
	}
	quiet := undisturbed()
	var took []time.Duration
	var moved int64
	splitting := f.overwrite(b, rows, func() {
		rng := rand.New(rand.NewPCG(1, 2))
		b.ResetTimer()
		for range b.N {
			list := f.table.Partitions()
			largest := slices.MaxFunc(list, func(a, b flagstone.Partition) int { return cmp.Compare(a.Bytes, b.Bytes) })
			points, err := f.table.SplitPoints(ctx, max(largest.Bytes/4, 1), 0)
			if err != nil || len(points) == 0 {
				b.Errorf("%d points, %v", len(points), err)
				return
			}
			before, began := f.store.Metrics(), time.Now()
			if err := f.table.Split(ctx, points[rng.IntN(len(points))][0]); err != nil {
				b.Error(err)
				return
			}
			took = append(took, time.Since(began))
			after := f.store.Metrics()
			moved += after.FlushedBytes + after.CompactedOut - before.FlushedBytes - before.CompactedOut
			time.Sleep(splitPeriod - time.Since(began))
		}
		b.StopTimer()
	})
	if err := f.store.Settle(ctx); err != nil {
		b.Fatal(err)
	}
	quiet = append(quiet, undisturbed()...)
	micros := func(list []time.Duration, q float64) float64 {
		slices.Sort(list)
		return float64(list[int(q*float64(len(list)-1))].Nanoseconds()) / 1e3
	}
	b.ReportMetric(float64(f.table.ApproximateSize())/mebibyte, "MB")
	b.ReportMetric(micros(took, .5)/1e3, "split-p50-ms")
	b.ReportMetric(micros(took, 1)/1e3, "split-max-ms")
	b.ReportMetric(float64(f.store.Metrics().LongestPause.Nanoseconds())/1e3, "pause-max-us")
	b.ReportMetric(float64(moved)/float64(b.N)/1024, "KB-written-meanwhile/split")
	for _, q := range []struct {
		name string
		at   float64
	}{{"p50", .5}, {"p99", .99}, {"p99.9", .999}} {
		b.ReportMetric(micros(quiet, q.at), "quiet-"+q.name+"-us")
		b.ReportMetric(micros(splitting, q.at), "splitting-"+q.name+"-us")
	}
	b.ReportMetric(micros(splitting, .999)/micros(quiet, .999), "p99.9-ratio")
}

// overwrite overwrites random rows at a fixed pace while f runs, and returns how long each write took.
func (f *fixture) overwrite(b *testing.B, rows int, during func()) (all []time.Duration) {
	var over sync.WaitGroup
	stop := make(chan struct{})
	latencies := make([][]time.Duration, splitWriters)
	for w := range latencies {
		over.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(w), 3))
			for next := time.Now(); ; next = next.Add(splitPace) {
				select {
				case <-stop:
					return
				case <-time.After(time.Until(next)):
				}
				began := time.Now()
				f.put(b, rng.Uint64N(uint64(rows)))
				latencies[w] = append(latencies[w], time.Since(began))
			}
		})
	}
	during()
	close(stop)
	over.Wait()
	return slices.Concat(latencies...)
}
