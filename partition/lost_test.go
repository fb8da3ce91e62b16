package partition

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// TestReadsLoseToEachRunButTheDeepest gets the rows 1 and 2 of some files, and scans all rows.
func TestReadsLoseToEachRunButTheDeepest(t *testing.T) {
	const look, seek, step = lostToFilter, lostToSeek, lostToStep
	// The first get reads the head of a block and its values, and the second finds them in the block cache.
	const both = 2*lostToRow + 2*lostToMapped
	type file struct {
		level int
		rows  []int
	}
	type losses [manifest.NumLevels]int64
	rows := []int{1, 2}
	for _, c := range []struct {
		files      []file // the oldest first
		gets, scan losses
	}{
		{},
		{files: []file{{0, rows}}},
		{files: []file{{6, rows}}},
		{files: []file{{6, rows}, {0, rows}}, gets: losses{2*look + both}, scan: losses{seek + 2*step}},
		{files: []file{{0, rows}, {0, rows}, {0, rows}}, gets: losses{4*look + 2*both}, scan: losses{2*seek + 2*step}},
		{files: []file{{6, rows}, {5, rows}}, gets: losses{5: both}, scan: losses{5: seek + 2*step}},
		{
			files: []file{{6, rows}, {5, rows}, {4, rows}, {0, rows}, {0, rows}},
			gets:  losses{0: 4*look + 2*both, 4: both, 5: both},
			scan:  losses{0: 2*seek + 2*step, 4: seek, 5: seek},
		},
		// A row that only one file holds would be read there as well if all were merged.
		{files: []file{{6, []int{0, 3}}, {5, rows}}, scan: losses{5: seek + 4*step}},
		{files: []file{{6, []int{0, 3}}, {0, rows}}, gets: losses{2 * look}, scan: losses{seek + 4*step}},
		{
			files: []file{{6, rows}, {5, []int{0, 3}}, {4, rows}},
			gets:  losses{4: both}, scan: losses{4: seek + 4*step, 5: seek},
		},
	} {
		r := newRig(t)
		var levels []int
		for _, f := range c.files {
			for _, n := range f.rows {
				r.put(key("p", n), "c", 1, "v")
			}
			r.flush()
			levels = append(levels, f.level)
		}
		r.inLevels(levels)
		lost := func() losses {
			all := losses{r.tree.lost.total()}
			for level, files := range r.tree.state.Load().version.byLevel {
				for _, f := range files {
					all[level] += f.Lost.Load()
				}
			}
			return all
		}
		for _, n := range rows {
			if _, err := get(r.tree, key("p", n), row.MaxSequence); err != nil {
				t.Fatal(err)
			}
		}
		before := lost()
		if before != c.gets {
			t.Errorf("files %v: gets lost %v ns, want %v", c.files, before, c.gets)
		}
		it := r.tree.NewIterator()
		for ok := it.SeekRow(nil); ok; {
			ok = it.NextRow()
		}
		must(t, it.Close())
		after := lost()
		for level := range after {
			after[level] -= before[level]
		}
		if after != c.scan {
			t.Errorf("files %v: a scan lost %v ns, want %v", c.files, after, c.scan)
		}
	}
}

// inLevels returns the tree with its files, the oldest first, in other levels. The rig has this one from now on.
func (r *rig) inLevels(levels []int) {
	meta := *r.tree.Meta()
	files := meta.Levels[0]
	meta.Levels = compaction.Levels{}
	for i, level := range levels {
		meta.Levels[level] = append(meta.Levels[level], files[i])
	}
	old := r.tree
	r.tree = NewTree(r.env, testTable, &meta)
	old.Close()
}

// overlap reports whether any two of the files do.
func overlap(files []*manifest.FileMeta) bool {
	files = slices.SortedFunc(slices.Values(files), func(a, b *manifest.FileMeta) int { return bytes.Compare(a.Smallest, b.Smallest) })
	for i, f := range files {
		if i > 0 && bytes.Compare(f.Smallest, files[i-1].Largest) <= 0 {
			return true
		}
	}
	return false
}

// TestReadsHaveTheirTreeMerged reads rows that lie in two deep levels, without writes, until no two overlap.
func TestReadsHaveTheirTreeMerged(t *testing.T) {
	r := newRig(t)
	r.env.Compaction.LevelBase = 1 << 10
	const rows = 400
	for round := range 6 {
		for n := range rows {
			if round == 0 || n%7 == round {
				r.put(key("p", n), "c", 1, fmt.Sprintf("%064d", round))
			}
		}
		r.flush()
		for did := true; did; {
			var err error
			did, err = r.tree.Compact(Busy, nil)
			must(t, err)
		}
	}
	depth := func() int { return len(r.tree.state.Load().version.runs) }
	if depth() < 3 {
		t.Fatalf("%d runs", depth())
	}
	gets := 0
	read := func(activity Activity) {
		k := key("p", gets*31%rows)
		if text, err := get(r.tree, k, row.MaxSequence); err != nil || text == "absent" {
			t.Fatal(text, err)
		}
		_, err := r.tree.Compact(activity, nil)
		must(t, err)
		gets++
	}
	for before := depth(); gets < 2*rows; {
		if read(Busy); depth() < before {
			t.Fatal("merged for reads while writes are frequent")
		}
	}
	for twice := true; twice; { // a file that overlaps nothing below may stay where it is
		if read(Quiet); gets == 1_000_000 {
			t.Fatalf("%d runs after %d gets", depth(), gets)
		}
		twice = overlap(slices.Concat(r.tree.Levels()[:]...))
	}
	t.Logf("merged by %d gets", gets)
}

// TestAMergeThatFailedIsPaidAnew: reads lose as much again before it is tried again.
func TestAMergeThatFailedIsPaidAnew(t *testing.T) {
	r := newRig(t)
	for range 2 {
		r.put(key("p", 1), "c", 1, "v")
		r.flush()
	}
	r.inLevels([]int{6, 5})
	failed := errors.New("no room")
	r.commit = func(*manifest.Edit) error { return failed }
	upper := r.tree.state.Load().version.byLevel[5][0]
	for range 2 {
		if did, err := r.tree.Compact(Quiet, nil); did || err != nil {
			t.Fatal("a merge that reads have not paid: ", err)
		}
		r.tree.loseTo(upper, int(100*upper.Meta.Size))
		if _, err := r.tree.Compact(Quiet, nil); !errors.Is(err, failed) {
			t.Fatal("reads have paid for a merge: ", err)
		}
	}
}

// TestTheReadsAloneDecideWhenATreeIsNoticed does the same gets once with one Getter and once with
// many, as a pool returns them: they pin the tree in different stripes.
func TestTheReadsAloneDecideWhenATreeIsNoticed(t *testing.T) {
	const keys, gets = 3, 40_000
	noticed := func(getters int) (at []int) {
		r := newRig(t)
		for range 2 {
			for n := range keys {
				r.put(key("p", n), "c", 1, "v")
			}
			r.flush()
		}
		several := make([]Getter, getters)
		dst := new(row.Collector)
		for i := range gets {
			g, before := &several[i%getters], r.noticed
			g.Pin(r.tree)
			dst.Reset()
			view := mvcc.View{Seq: row.MaxSequence, Cutoff: mvcc.NoExpiry}
			exists, err := g.Get(key("p", i%7%keys), view, &mvcc.Selection{}, dst, 0)
			if g.Unpin(); err != nil || !exists {
				t.Fatal(exists, err)
			}
			if r.noticed > before {
				at = append(at, i)
			}
		}
		return at
	}
	one, many := noticed(1), noticed(5)
	if len(one) < 2 || !slices.Equal(one, many) {
		t.Errorf("noticed at the gets %v with one getter, %v with several", one, many)
	}
}
