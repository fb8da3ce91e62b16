package flagstone

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// pieceBound is the part of its size by which a piece may be wrong, beside blocks and partition keys.
const pieceBound = 1. / 8

// TestSplitPointsKeepTheirBound compares pieces with what a scan finds in them. The exact size of a piece is what the
// keys, columns and values of its rows take, in the same proportion to all rows as the table has. Nothing is
// compressed, so the proportion is the same everywhere.
func TestSplitPointsKeepTheirBound(t *testing.T) {
	for _, c := range []struct {
		what     string
		zipf     bool // partition keys of one to some thousand rows
		uneven   bool // rows of 80 to 3,000 bytes, the large ones at the end of the table
		flushes  int  // that lie over each other
		splits   int  // after which nothing is trimmed
		compact  bool
		inMemory bool // the last part stays in the memtable
	}{
		{what: "settled", flushes: 1, compact: true},
		{what: "settled, skewed", zipf: true, uneven: true, flushes: 1, compact: true},
		{what: "runs over each other", flushes: 6, inMemory: true},
		{what: "runs over each other, skewed", zipf: true, uneven: true, flushes: 6, inMemory: true},
		{what: "shared files", flushes: 3, splits: 7, inMemory: true},
		{what: "shared files, settled, skewed", zipf: true, uneven: true, flushes: 1, compact: true, splits: 7},
		{what: "shared memtables, skewed", zipf: true, uneven: true, splits: 7, inMemory: true},
		{what: "memtables", inMemory: true},
	} {
		t.Run(c.what, func(t *testing.T) {
			r, fault := faultRig(t, Options{Compression: CompressionNone, MemtableSize: 64 << 20, TableFileSize: 1 << 20})
			table := r.table("t", TableOptions{})
			rng := rand.New(rand.NewPCG(1, 2))
			zipf := rand.NewZipf(rng, 1.1, 4, 4999)
			const rows = 14_000
			for i := range rows {
				p, size := rng.IntN(5000), 300
				if c.zipf {
					p = int(zipf.Uint64()) * 1009 % 5000
				}
				if c.uneven {
					size = 80 + rng.IntN(120)
					if p > 4000 {
						size = 1000 + rng.IntN(2000)
					}
				}
				b := make([]byte, size)
				for j := range b {
					b[j] = byte(rng.Uint32())
				}
				if err := table.Put(ctx(), Key(fmt.Sprintf("p%04d", p), i), "c", startMillis, row.Binary(b)); err != nil {
					t.Fatal(err)
				}
				if last := i >= rows*9/10 && c.inMemory; c.flushes > 0 && !last && i%(rows/c.flushes) == rows/c.flushes/2 || i == rows-1 && !c.inMemory {
					if err := r.store.upkeep.Flush(ctx(), table.core.Trees()...); err != nil {
						t.Fatal(err)
					}
				}
			}
			if c.compact {
				if err := r.store.Compact(ctx()); err != nil {
					t.Fatal(err)
				}
			}
			for i := range c.splits {
				if err := table.Split(ctx(), row.String(fmt.Sprintf("p%04d", 571*(i+1)))); err != nil {
					t.Fatal(err)
				}
			}
			checkPieces(t, r, fault, table, 1+c.flushes, c.inMemory)
		})
	}
}

// weight is about what a row takes in a block.
func weight(r *Row) (n int64) {
	for i := range r.cells {
		n += int64(len(r.cells[i].Value))
	}
	return n + int64(len(r.rowKey)) + 24
}

// checkPieces asks for pieces of several sizes. Of each run a block may be counted on the wrong side of an end.
func checkPieces(t *testing.T, r *rig, fault *vfs.Fault, table *Table, runs int, inMemory bool) {
	type key struct {
		name  string
		bytes int64
	}
	var keys []key
	var all int64
	for found, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
		if err != nil {
			t.Fatal(err)
		}
		name := found.Key()[0].Text()
		if n := len(keys); n == 0 || keys[n-1].name != name {
			keys = append(keys, key{name: name})
		}
		keys[len(keys)-1].bytes += weight(found)
		all += weight(found)
	}
	before, reads := r.store.Metrics(), fault.Calls(vfs.OpReadAt)
	var wrong, apart []float64 // of pieces of all sizes, parts of the size
	for _, share := range []int64{3, 10, 30} {
		piece := table.ApproximateSize() / share
		cutter, err := table.cut(ctx(), nil, nil, piece, math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		points, sizes := cutter.Points(), cutter.Sizes()
		var total int64
		for _, n := range sizes {
			total += n
		}
		scale := float64(total) / float64(all)
		if size := float64(table.ApproximateSize()); math.Abs(float64(total)-size) > size/10 {
			t.Errorf("the pieces add up to %d of %.0f bytes", total, size)
		}
		next := 0
		for i, estimate := range sizes {
			var exact, largest float64
			for ; next < len(keys) && (i == len(points) || keys[next].name < points[i].Text()); next++ {
				exact += scale * float64(keys[next].bytes)
				largest = max(largest, scale*float64(keys[next].bytes))
			}
			behind := 0. // the key that would have made the piece too large
			if next < len(keys) {
				behind = scale * float64(keys[next].bytes)
			}
			slack := pieceBound*float64(piece) + float64(2*runs*sstable.DefaultBlockSize)
			if inMemory {
				slack += float64(piece) / 4 // far from what a sample of the memtables is wrong by at the 95th percentile
			}
			if exact > max(float64(piece), largest)+slack || i < len(points) && exact+behind < float64(piece)-slack {
				t.Errorf("pieces of %d: piece %d has %.0f bytes, its largest key %.0f, the key behind it %.0f", piece, i, exact, largest, behind)
			}
			wrong = append(wrong, math.Abs(float64(estimate)-exact)/float64(piece))
			if i < len(points) && largest < float64(piece)/20 && behind < float64(piece)/20 {
				apart = append(apart, math.Abs(exact-float64(piece))/float64(piece))
			}
		}
	}
	t.Logf("%d estimates wrong by %.3f at the 95th percentile, %d sizes by %.3f", len(wrong), percentile(wrong, .95), len(apart), percentile(apart, .95))
	if percentile(wrong, .95) > .15 || percentile(apart, .95) > .15 {
		t.Errorf("estimates are wrong by %.3f, sizes by %.3f", percentile(wrong, .95), percentile(apart, .95))
	}
	after := r.store.Metrics()
	if n := fault.Calls(vfs.OpReadAt) - reads; n != 0 || after.CacheHits != before.CacheHits || after.CacheMisses != before.CacheMisses {
		t.Errorf("%d reads, %d hits and %d misses of the cache", n, after.CacheHits-before.CacheHits, after.CacheMisses-before.CacheMisses)
	}
}

func percentile[T cmp.Ordered](list []T, q float64) (v T) {
	if len(list) == 0 {
		return v
	}
	list = slices.Sorted(slices.Values(list))
	return list[int(q*float64(len(list)-1))]
}
