package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// partitionRows is how many rows of 10x100 B are spread over the partitions: more than the budget
// of the memtables holds.
const partitionRows = 300_000

// BenchmarkPartitions compares 1,000 partitions, 50 in each of 20 tables, with one partition that
// has the same rows. Run it with -benchtime 15x: rates are the best, and ratios the median of those
// of runs side by side, of which each is first every other time. It reports, for both, how many thousand rows per
// second 8 goroutines put, until all is flushed and compacted too, and get, the MB of memtables at
// their most, the MB off the Go heap then, the number of table files after the puts and after
// everything is flushed, and the milliseconds of opening; then MB of an open store without any
// row, on the Go heap and off it, and the table files of partitions that have 10 KB each. The
// names of figures end in one and many.
func BenchmarkPartitions(b *testing.B) {
	best := map[string]float64{}
	rates := map[string][]float64{} // of all runs
	shapes := []struct {
		name               string
		tables, partitions int
	}{{"one", 1, 1}, {"many", 20, 50}}
	for b.Loop() {
		slices.Reverse(shapes) // neither comes first each time
		for _, s := range shapes {
			report := func(what string, v float64) {
				what += "-" + s.name
				if strings.Contains(what, "/s-") {
					rates[what] = append(rates[what], v)
					v = max(v, best[what])
					best[what] = v
				}
				b.ReportMetric(v, what)
			}
			spread(b, s.tables, s.partitions, report)
			idle(b, s.tables, s.partitions, report)
		}
	}
	for _, what := range []string{"kput/s", "ksettled/s", "kget/s"} {
		ratios := slices.Clone(rates[what+"-many"])
		for i := range ratios {
			ratios[i] /= rates[what+"-one"][i]
		}
		slices.Sort(ratios)
		b.ReportMetric(ratios[len(ratios)/2], strings.TrimSuffix(what, "/s")[1:]+"-ratio")
	}
}

// partitioned is a store of tables with partitions.
type partitioned struct {
	*fixture
	dir    string
	tables []*flagstone.Table
}

func openPartitioned(b *testing.B, dir string, tables, partitions int) *partitioned {
	b.Helper()
	store, err := flagstone.Open(dir, flagstone.Options{Sync: flagstone.SyncNone})
	if err != nil {
		b.Fatal(err)
	}
	p := &partitioned{&fixture{store: store, vs: values(rand.New(rand.NewPCG(1, 2)))}, dir, nil}
	for i := range tables {
		name := fmt.Sprint("rows", i)
		table, err := store.Table(name)
		if err != nil {
			spec := flagstone.TableSpec{Name: name, Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeInteger}}}
			for n := 1; n < partitions; n++ {
				spec.SplitAt = append(spec.SplitAt, row.Integer(int64(uint64(n)*(math.MaxUint64/uint64(partitions))+1<<63)))
			}
			if table, err = store.CreateTable(context.Background(), spec); err != nil {
				b.Fatal(err)
			}
		}
		p.tables = append(p.tables, table)
	}
	return p
}

// at returns the fixture of the table that has row i.
func (p *partitioned) at(i uint64) *fixture {
	f := *p.fixture
	f.table = p.tables[i%uint64(len(p.tables))]
	return &f
}

// each calls do for the rows 0 to n-1, from 8 goroutines, and returns thousands of rows per second.
func each(n int, do func(i uint64)) float64 {
	var next atomic.Int64
	var goroutines sync.WaitGroup
	began := time.Now()
	for range 8 {
		goroutines.Go(func() {
			for i := next.Add(1) - 1; i < int64(n); i = next.Add(1) - 1 {
				do(uint64(i))
			}
		})
	}
	goroutines.Wait()
	return float64(n) / time.Since(began).Seconds() / 1000
}

// files is how many table files the store has.
func (p *partitioned) files() float64 {
	names, _ := filepath.Glob(filepath.Join(p.dir, "sst", "*", "*.sst"))
	return float64(len(names))
}

func (p *partitioned) settle(b *testing.B) {
	ctx := context.Background()
	if err := p.store.Flush(ctx); err != nil {
		b.Fatal(err)
	}
	if err := p.store.Settle(ctx); err != nil {
		b.Fatal(err)
	}
}

// spread puts rows into partitions, gets them, and opens the store again.
func spread(b *testing.B, tables, partitions int, report func(what string, v float64)) {
	p := openPartitioned(b, b.TempDir(), tables, partitions)
	var memtables, offheap atomic.Int64
	began := time.Now()
	report("kput/s", each(partitionRows, func(i uint64) {
		if p.at(i).put(b, i); i%100_000 == 99_999 { // to look at a thousand partitions takes a millisecond or more
			m := p.store.Metrics()
			memtables.Store(max(memtables.Load(), m.MemoryBytes))
			offheap.Store(max(offheap.Load(), m.OffHeapBytes))
		}
	}))
	report("files-put", p.files())
	p.settle(b)
	report("ksettled/s", partitionRows/time.Since(began).Seconds()/1000)
	report("MB-memtables", float64(memtables.Load())/mebibyte)
	report("MB-offheap", float64(offheap.Load())/mebibyte)
	report("files", p.files())
	report("kget/s", each(partitionRows, func(i uint64) {
		var b8 [8]byte
		binary.LittleEndian.PutUint64(b8[:], i*0x9E3779B97F4A7C15)
		i = binary.BigEndian.Uint64(b8[:]) % partitionRows
		r, err := p.at(i).table.Get(context.Background(), key(i), flagstone.ReadOptions{})
		if err != nil || r == nil {
			b.Error(r, err)
		}
	}))
	if err := p.store.Close(); err != nil {
		b.Fatal(err)
	}
	began = time.Now()
	p = openPartitioned(b, p.dir, tables, partitions)
	report("ms-open", float64(time.Since(began).Microseconds())/1000)
	if err := p.store.Close(); err != nil {
		b.Fatal(err)
	}
	os.RemoveAll(p.dir)
}

// idle looks at a store without rows, and then with ten rows for each of a thousand partitions.
func idle(b *testing.B, tables, partitions int, report func(what string, v float64)) {
	heap := func() float64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return float64(m.HeapAlloc) / mebibyte
	}
	before := heap()
	p := openPartitioned(b, b.TempDir(), tables, partitions)
	report("MB-heap-empty", heap()-before)
	report("MB-offheap-empty", float64(p.store.Metrics().OffHeapBytes)/mebibyte)
	each(10_000, func(i uint64) { p.at(i).put(b, i) })
	report("MB-offheap-10KB", float64(p.store.Metrics().OffHeapBytes)/mebibyte)
	began := time.Now()
	p.settle(b)
	report("ms-flush-10KB", float64(time.Since(began).Microseconds())/1000)
	report("files-10KB", p.files())
	if err := p.store.Close(); err != nil {
		b.Fatal(err)
	}
}
