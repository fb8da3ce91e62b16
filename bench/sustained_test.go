package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/row"
)

// sustainedRows is how many rows of 10x100 B BenchmarkSustained writes, and
// then overwrites, in random order of keys.
const sustainedRows = 300_000

// sustainedShapes are trees that merge at different times, and one beside a table with a row in memory. With the
// defaults, so few rows stay in level 0.
var sustainedShapes = []struct {
	name     string
	idle     bool
	memtable int64
	levels   compaction.Config
}{
	{"default", false, 0, compaction.Config{}},
	{"idle-table", true, 0, compaction.Config{}},
	{"level0=2", false, 8 * mebibyte, compaction.Config{L0Trigger: 2, LevelBase: 64 * mebibyte}},
	{"level0=12", false, 8 * mebibyte, compaction.Config{L0Trigger: 12, LevelBase: 64 * mebibyte}},
}

// BenchmarkSustained is the life of a store under writers that never rest: a
// load and an overwrite of every row, each until nothing is left to do. Run it
// with -benchtime 1x. It reports for each phase rows per second while writing
// and including what is settled afterwards, the tail of the latencies of a put
// in microseconds, and the write amplification of the tables: bytes that flushes
// and merges wrote for each byte that was flushed.
func BenchmarkSustained(b *testing.B) {
	for _, shape := range sustainedShapes {
		b.Run(shape.name, func(b *testing.B) {
			for b.Loop() {
				dir := b.TempDir()
				f := open(b, dir, flagstone.Options{
					Sync: flagstone.SyncNone, MemtableSize: shape.memtable, Seams: seams.Seams{Levels: shape.levels},
				})
				if shape.idle {
					f.beside(b)
				}
				order := rand.New(rand.NewPCG(11, 12)).Perm(sustainedRows)
				sustain(b, f, "load", order)
				order = rand.New(rand.NewPCG(13, 14)).Perm(sustainedRows)
				sustain(b, f, "over", order)
				var size int64
				names, _ := filepath.Glob(filepath.Join(dir, "sst", "*", "*"))
				for _, name := range names {
					if info, err := os.Stat(name); err == nil {
						size += info.Size()
					}
				}
				b.ReportMetric(float64(size)/mebibyte, "MB-tables")
				b.Logf("files by level %v", f.store.Metrics().Tables[0].Files)
				if err := f.store.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

const mebibyte = 1 << 20

// beside puts a row into another table.
func (f *fixture) beside(b *testing.B) {
	table, err := f.store.CreateTable(context.Background(), flagstone.TableSpec{
		Name: "untouched", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeInteger}},
	})
	if err != nil {
		b.Fatal(err)
	}
	other := &fixture{f.store, table, f.vs}
	other.put(b, 0)
}

func sustain(b *testing.B, f *fixture, phase string, order []int) {
	latencies := make([]int64, len(order))
	before := f.store.Metrics()
	began := time.Now()
	last := began
	for n, i := range order {
		f.put(b, uint64(i))
		now := time.Now()
		latencies[n] = int64(now.Sub(last))
		last = now
	}
	wrote := last.Sub(began)
	if err := f.store.Settle(context.Background()); err != nil {
		b.Fatal(err)
	}
	settled := time.Since(began)
	after := f.store.Metrics()
	slices.Sort(latencies)
	at := func(q float64) float64 { return float64(latencies[int(q*float64(len(order)-1))]) / 1e3 }
	flushed, merged := after.FlushedBytes-before.FlushedBytes, after.CompactedOut-before.CompactedOut
	var line strings.Builder
	fmt.Fprintf(&line, "%s: put us p50 %.1f p99 %.1f p99.9 %.1f max %.0f; settle %v; stalled %v; flushed %d MB, compacted %d MB in %d MB out, log %d MB",
		phase, at(.5), at(.99), at(.999), at(1), (settled - wrote).Round(time.Millisecond),
		(after.Stalled - before.Stalled).Round(time.Millisecond),
		flushed/mebibyte, (after.CompactedIn-before.CompactedIn)/mebibyte, merged/mebibyte,
		(after.LogBytes-before.LogBytes)/mebibyte)
	b.Log(line.String())
	b.ReportMetric(float64(flushed+merged)/float64(flushed), phase+"-write-amp")
	b.ReportMetric(float64(len(order))/wrote.Seconds(), phase+"-rows/s")
	b.ReportMetric(float64(len(order))/settled.Seconds(), phase+"-settled-rows/s")
	b.ReportMetric(at(.999), phase+"-p99.9-us")
	b.ReportMetric(at(1)/1e3, phase+"-max-ms")
}
