package partition

import (
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// TestReadsLoseToEachRunButTheDeepest has a file of two rows in each of some levels, and gets both rows, and
// scans. Whoever reads one row finds it in each file.
func TestReadsLoseToEachRunButTheDeepest(t *testing.T) {
	const seek, step = lostToSeek, lostToStep
	// The first get reads the head of a block and its values, and the second finds them in the block cache.
	const first, again = lostToFilter + lostToRow + 2*lostToRead, lostToFilter + lostToRow
	for _, c := range []struct {
		levels []int // of the files, the oldest first
		scan   compaction.Losses
		gets   compaction.Losses
	}{
		{},
		{levels: []int{0}},
		{levels: []int{6}},
		{levels: []int{6, 0}, scan: compaction.Losses{seek + 2*step}, gets: compaction.Losses{first + again}},
		{levels: []int{0, 0, 0}, scan: compaction.Losses{2*seek + 2*step}, gets: compaction.Losses{2*first + 2*again}},
		{levels: []int{6, 5}, scan: compaction.Losses{5: seek + 2*step}, gets: compaction.Losses{5: first + again}},
		{
			levels: []int{6, 5, 4, 0, 0},
			scan:   compaction.Losses{0: 2*seek + 2*step, 4: seek, 5: seek},
			gets:   compaction.Losses{0: 2*first + 2*again, 4: first + again, 5: first + again},
		},
	} {
		r := newRig(t)
		keys := [][]byte{key("p", 1), key("p", 2)}
		for range c.levels {
			for _, k := range keys {
				r.put(k, "c", 1, "v")
			}
			r.flush()
		}
		tree := r.inLevels(c.levels)
		for _, k := range keys {
			if _, err := get(tree, k, row.MaxSequence); err != nil {
				t.Fatal(err)
			}
		}
		if lost := tree.Lost(); lost != c.gets {
			t.Errorf("levels %v: gets lost %v ns, want %v", c.levels, lost, c.gets)
		}
		tree.regain(0, 1)
		tree.regain(4, 1)
		tree.regain(5, 1)
		it := tree.NewIterator()
		for ok := it.SeekRow(nil); ok; {
			ok = it.NextRow()
		}
		must(t, it.Close())
		if lost := tree.Lost(); lost != c.scan {
			t.Errorf("levels %v: a scan lost %v ns, want %v", c.levels, lost, c.scan)
		}
	}
}

// inLevels returns the tree with its files, the oldest first, in other levels. The rig has this one from now on.
func (r *rig) inLevels(levels []int) *Tree {
	meta := *r.tree.Meta()
	files := meta.Levels[0]
	meta.Levels = compaction.Levels{}
	for i, level := range levels {
		meta.Levels[level] = append(meta.Levels[level], files[i])
	}
	old := r.tree
	r.tree = NewTree(r.env, testTable, &meta)
	old.Close()
	return r.tree
}

// TestReadsHaveTheirTreeMerged reads rows that lie in two deep levels, while nobody writes, until all are in one.
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
	for ; depth() > 1; gets++ {
		if gets == 1_000_000 {
			t.Fatalf("%d runs after %d gets that lost %v", depth(), gets, r.tree.Lost())
		}
		k := key("p", gets*31%rows)
		if text, err := get(r.tree, k, row.MaxSequence); err != nil || text == "absent" {
			t.Fatal(text, err)
		}
		if _, err := r.tree.Compact(Quiet, nil); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("merged by %d gets", gets)
	before := r.tree.Lost()
	if _, err := get(r.tree, key("p", 1), row.MaxSequence); err != nil || r.tree.Lost() != before {
		t.Errorf("a get of a tree of one run lost %v ns, %v", r.tree.Lost(), err)
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
