package partition

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// spread writes rows of one size, uncompressed, over several runs. It returns the number of rows
// of each partition key, in order.
func spread(r *rig, rng *rand.Rand, partitions, runs int) (names []string, rows []int) {
	const value = 180
	for p := range partitions {
		names = append(names, fmt.Sprintf("p%04d", p))
		rows = append(rows, 1+rng.IntN(8))
	}
	rows[partitions/2] = 120 // one that is far too large for a piece
	for run := range runs {
		for p, name := range names {
			for n := range rows[p] {
				if n%runs == run {
					r.putRow(key(name, n), "c", 1, fmt.Sprintf("%0*d", value, rng.Uint64()))
				}
			}
		}
		r.flush()
	}
	return names, rows
}

// cut shows anchors to a cutter.
func cut(anchors *Anchors, columns int, piece int64, limit int) []row.Value {
	c := NewCutter(columns, nil, nil, piece, limit)
	for key, since := range anchors.All() {
		c.show(key, since)
	}
	return c.Points()
}

func TestCutPointsDivideWithinTheirBound(t *testing.T) {
	for seed := range uint64(6) {
		r := newRig(t)
		r.env.Table.Compression = sstable.CompressNone
		rng := rand.New(rand.NewPCG(seed, 3))
		runs := 1 + int(seed%3)
		names, rows := spread(r, rng, 150, runs)
		before := r.fault.Calls(vfs.OpReadAt)
		anchors, err := r.tree.Anchors(0)
		must(t, err)
		opening := r.fault.Calls(vfs.OpReadAt) - before
		var total, largest int64
		var last []byte
		for key, size := range anchors.All() {
			total += size
			largest = max(largest, size)
			if bytes.Compare(last, key) > 0 || size < 0 {
				t.Fatalf("seed %d: an anchor at %x of %d bytes after %x", seed, key, size, last)
			}
			last = key
		}
		if size := r.tree.ApproximateSize(); total > size || total < size/2 {
			t.Errorf("seed %d: the anchors add up to %d of %d bytes", seed, total, size)
		}
		if n := int64(len(r.tree.Meta().Levels[0])) * 6; opening > n {
			t.Errorf("seed %d: %d reads for the indexes of %d files", seed, opening, runs)
		}
		for _, piece := range []int64{300, 2000, 10_000, 1 << 30} {
			points := cut(anchors, 2, piece, math.MaxInt)
			checkPieces(t, fmt.Sprintf("seed %d, pieces of %d", seed, piece), names, rows, points, piece, total, int64(runs)*largest)
			// Coarse anchors: each run may add one anchor, of a share of a piece or a block.
			coarse, err := r.tree.Anchors(piece / AnchorShare)
			must(t, err)
			files := int64(len(r.tree.Meta().Levels[0]))
			if fine := int64(len(anchors.list)); int64(len(coarse.list)) > min(fine, int64(runs)*AnchorShare*(total/piece+1)+2*files) {
				t.Errorf("seed %d: %d anchors for pieces of %d in %d bytes", seed, len(coarse.list), piece, total)
			}
			slack := int64(runs) * (largest + piece/AnchorShare)
			checkPieces(t, fmt.Sprintf("seed %d, coarse, pieces of %d", seed, piece), names, rows,
				cut(coarse, 2, piece, math.MaxInt), piece, total, slack)
			c := NewCutter(2, nil, nil, piece, math.MaxInt)
			must(t, r.tree.Cut(c))
			if runs == 1 {
				slack = largest
			}
			checkPieces(t, fmt.Sprintf("seed %d, as found, pieces of %d", seed, piece), names, rows, c.Points(), piece, total, slack)
			for _, limit := range []int{0, 1, 5} {
				c = NewCutter(2, nil, nil, piece, limit)
				must(t, r.tree.Cut(c))
				if len(c.Points()) > limit {
					t.Errorf("%d points, limit %d", len(c.Points()), limit)
				}
				limited := cut(anchors, 2, piece, limit)
				if len(limited) != min(limit, len(points)) {
					t.Errorf("%d points, limit %d of %d", len(limited), limit, len(points))
				}
				for i, v := range limited {
					if !v.Equal(points[i]) {
						t.Errorf("with limit %d point %d is %v, not %v", limit, i, v, points[i])
					}
				}
			}
		}
	}
}

// checkPieces compares pieces with what a full scan finds in them: rows of one size, total bytes
// in all. A piece may be too large by slack, which is an anchor of each run, and one partition
// key. Single pieces may be small, since large partition keys are not divided, but there are not
// too many pieces.
func checkPieces(t *testing.T, what string, names []string, rows []int, points []row.Value, piece, total, slack int64) {
	t.Helper()
	all := 0
	for _, n := range rows {
		all += n
	}
	next, in, largest := 0, 0, 0
	end := func() {
		got := total * int64(in) / int64(all)
		if most := piece + slack + total*int64(largest)/int64(all); got > most {
			t.Errorf("%s: piece %d holds %d bytes, more than %d", what, next, got, most)
		}
	}
	for p, name := range names {
		for next < len(points) && points[next].Text() <= name {
			if next > 0 && points[next].Text() <= points[next-1].Text() {
				t.Fatalf("%s: points do not rise: %v, %v", what, points[next-1], points[next])
			}
			end()
			next++
			in, largest = 0, 0
		}
		in += rows[p]
		largest = max(largest, rows[p])
	}
	end()
	if int64(len(points))*piece > total {
		t.Errorf("%s: %d points in %d bytes", what, len(points), total)
	}
	if next != len(points) {
		t.Errorf("%s: %d points lie beyond the last row", what, len(points)-next)
	}
	if piece >= 1<<30 && len(points) > 0 {
		t.Errorf("%s: %d points", what, len(points))
	}
	if piece <= 2000 && len(points) < len(names)/20 {
		t.Errorf("%s: only %d points for %d partition keys", what, len(points), len(names))
	}
}

func TestAnchorsOfMemtablesCountToo(t *testing.T) {
	r := newRig(t)
	for p := range 40 {
		for n := range 25 {
			r.putRow(key(fmt.Sprintf("p%02d", p), n), "c", 1, fmt.Sprintf("%0100d", n))
		}
		if p == 20 {
			r.rotate(r.tree)
		}
	}
	before := r.fault.Calls(vfs.OpAll)
	anchors, err := r.tree.Anchors(0)
	must(t, err)
	if n := r.fault.Calls(vfs.OpAll) - before; n != 0 {
		t.Errorf("%d calls to the disk", n)
	}
	var total int64
	for _, size := range anchors.All() {
		total += size
	}
	if size := r.tree.ApproximateSize(); total > size || total < size*3/4 {
		t.Errorf("the anchors add up to %d of %d bytes", total, size)
	}
	points := cut(anchors, 2, total/10, math.MaxInt)
	if len(points) < 7 || len(points) > 10 {
		t.Errorf("%d points for ten pieces", len(points))
	}
	seen := map[string]bool{}
	for _, v := range points {
		if seen[v.Text()] {
			t.Errorf("point %v twice", v)
		}
		seen[v.Text()] = true
	}
}

// TestCutPointsOfAnything uses anchors whose keys end at any byte.
func TestCutPointsOfAnything(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for range 2000 {
		var anchors Anchors
		for range rng.IntN(20) {
			k := key(fmt.Sprint("p", rng.IntN(5), "\x00\xff"[:rng.IntN(3)]), rng.IntN(100))
			anchors.Add(k[:rng.IntN(len(k)+1)], rng.Int64N(100))
		}
		points := cut(&anchors, 2, 1+rng.Int64N(100), rng.IntN(10))
		for i, v := range points {
			if v.Type() != row.TypeString {
				t.Fatalf("a point of type %v", v.Type())
			}
			if i > 0 && points[i-1].Text() >= v.Text() {
				t.Fatalf("points do not rise: %v, %v", points[i-1], v)
			}
		}
	}
}

func TestAnchorsReturnTheErrorOfAFileThatCannotBeOpened(t *testing.T) {
	r := newRig(t)
	r.putRow(key("p", 1), "c", 1, "value")
	r.flush()
	r.putRow(key("p", 2), "c", 1, "value")
	broken := errors.New("broken")
	breakOpen := func() { r.fault.Add(vfs.Rule{Ops: vfs.OpOpen, Glob: "*.sst", Action: vfs.FailWith(broken)}) }
	breakOpen()
	if _, err := r.tree.Anchors(0); !errors.Is(err, broken) {
		t.Errorf("anchors: %v", err)
	}
	breakOpen()
	if err := r.tree.Cut(NewCutter(2, nil, nil, 100, 5)); !errors.Is(err, broken) {
		t.Errorf("cut: %v", err)
	}
}
