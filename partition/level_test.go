package partition

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sort"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// bottomLevel is the deepest level.
const bottomLevel = manifest.NumLevels - 1

// writeFile makes a table file of rows with one cell each.
func (r *rig) writeFile(keys [][]byte) *manifest.FileMeta {
	r.t.Helper()
	out := newOutput(r.env, false)
	w, err := out.NewTable()
	must(r.t, err)
	for _, k := range keys {
		r.seq++
		must(r.t, w.StartRow(k))
		c := putCell("c", 1, fmt.Sprintf("%x", k))
		c.Seq = r.seq
		must(r.t, w.AddCell(&c))
	}
	must(r.t, w.Finish())
	must(r.t, out.verified())
	return out.metas[0]
}

func TestALevelIsWalkedAsOneRun(t *testing.T) {
	for seed := range uint64(8) {
		r := newRig(t)
		rng := rand.New(rand.NewPCG(seed, 2))
		var keys [][]byte
		var files []*tablefiles.File
		n := 0
		for range rng.IntN(6) {
			from := len(keys)
			for range 1 + rng.IntN(30) {
				n += 1 + rng.IntN(3)
				keys = append(keys, key("a", n))
			}
			files = append(files, r.env.Files.Ref(r.writeFile(keys[from:])))
		}
		l := newLevelIterator(files, sstable.IterOptions{})
		at := -1 // position in keys; -1 and len(keys) are none
		for step := range 400 {
			var ok bool
			what := ""
			probe := key("a", rng.IntN(n+4))
			lower := sort.Search(len(keys), func(i int) bool { return bytes.Compare(keys[i], probe) >= 0 })
			switch k := rng.IntN(8); {
			case k == 0:
				what, ok, at = "First", l.First(), 0
			case k == 1:
				what, ok, at = "Last", l.Last(), len(keys)-1
			case k == 2:
				what, ok, at = "SeekRow", l.SeekRow(probe), lower
			case k == 3:
				what, ok, at = "SeekRowBefore", l.SeekRowBefore(probe), lower-1
			case at < 0 || at >= len(keys):
				continue // NextRow and PrevRow need a position
			case k < 6:
				what, ok, at = "NextRow", l.NextRow(), at+1
			default:
				what, ok, at = "PrevRow", l.PrevRow(), at-1
			}
			if want := at >= 0 && at < len(keys); ok != want || l.Error() != nil {
				t.Fatalf("seed %d, step %d: %s is %v, want %v (%v)", seed, step, what, ok, want, l.Error())
			}
			if !ok {
				continue
			}
			if !bytes.Equal(l.RowKey(), keys[at]) {
				t.Fatalf("seed %d, step %d: %s went to %x, want %x", seed, step, what, l.RowKey(), keys[at])
			}
			if !l.FirstCell() || l.NextCell() || !l.SeekCell([]byte("c"), 5) {
				t.Fatalf("seed %d, step %d: the row has not one cell", seed, step)
			}
			if v, _ := row.PayloadValue(l.Cell().Type, l.Cell().Value); v.Text() != fmt.Sprintf("%x", keys[at]) {
				t.Fatalf("seed %d, step %d: row %x has the cell of %s", seed, step, keys[at], v.Text())
			}
			if l.SeekCell([]byte("d"), 1) || l.Error() != nil {
				t.Fatalf("seed %d, step %d: found a column that is not there, or %v", seed, step, l.Error())
			}
		}
		must(t, l.Close())
		for _, f := range files {
			f.Unref()
		}
		if open := r.disk.OpenFiles(); len(open) > 3 { // the manifest is open twice, and its copy
			t.Errorf("seed %d: open files: %v", seed, open)
		}
	}
}

func TestASeekIntoALevelOpensOneFile(t *testing.T) {
	r := newRig(t)
	var files []*tablefiles.File
	for f := range 50 {
		files = append(files, r.env.Files.Ref(r.writeFile([][]byte{key("a", 10*f), key("a", 10*f+5)})))
	}
	l := newLevelIterator(files, sstable.IterOptions{})
	defer l.Close()
	before := r.fault.Calls(vfs.OpOpen)
	if !l.SeekRow(key("a", 244)) || !bytes.Equal(l.RowKey(), key("a", 245)) {
		t.Fatal("wrong row")
	}
	if n := r.fault.Calls(vfs.OpOpen) - before; n != 1 {
		t.Errorf("%d files were opened", n)
	}
}

func TestAnErrorInALevelIsNotItsEnd(t *testing.T) {
	r := newRig(t)
	var files []*tablefiles.File
	for f := range 5 {
		files = append(files, r.env.Files.Ref(r.writeFile([][]byte{key("a", 10*f), key("a", 10*f+5)})))
	}
	walk := func(backward bool) (n int, err error) {
		l := newLevelIterator(files, sstable.IterOptions{})
		defer l.Close()
		start, move := l.First, l.NextRow
		if backward {
			start, move = l.Last, l.PrevRow
		}
		for ok := start(); ok; ok = move() {
			n++
		}
		return n, l.Error()
	}
	for nth := int64(1); nth <= 5; nth++ {
		for i, f := range files { // opened again
			f.Unref()
			files[i] = r.env.Files.Ref(f.Meta)
		}
		r.fault.Clear()
		r.fault.Add(vfs.Rule{Ops: vfs.OpOpen, Nth: nth, Action: vfs.FailWith(syscall.EMFILE)})
		if n, err := walk(nth%2 == 0); int64(n) != 2*(nth-1) || !errors.Is(err, syscall.EMFILE) {
			t.Errorf("open %d fails: %d rows, %v", nth, n, err)
		}
		// The next attempt finds the file again: the failure leaves no trace.
		if n, err := walk(nth%2 == 1); n != 10 || err != nil {
			t.Errorf("after a failure that passed: %d rows, %v", n, err)
		}
	}
}

// split makes two trees that share the files of one, clipped by their bounds.
func (r *rig) split(at []byte) (left, right *Tree) {
	r.t.Helper()
	trees := r.divide(at)
	return trees[0], trees[1]
}

// divide makes trees that share the files of one, which is divided at these keys.
func (r *rig) divide(at ...[]byte) (trees []*Tree) {
	r.t.Helper()
	old := r.tree.Meta()
	var parts []*manifest.Partition
	var start []byte
	for i, end := range append(at, nil) {
		parts = append(parts, &manifest.Partition{ID: uint64(2 + i), Start: start, End: end})
		start = end
	}
	for _, p := range parts {
		p.Epoch, p.FlushedSeq = old.Epoch+1, old.FlushedSeq
		for level, files := range old.Levels {
			for _, f := range files {
				if p.Overlaps(f.Smallest, f.Largest) {
					p.Levels[level] = append(p.Levels[level], f)
				}
			}
		}
	}
	var e manifest.Edit
	e.Replaced = []*manifest.Replacement{{Table: testTable, Old: []uint64{old.ID}, New: parts}}
	state, err := r.log.Commit(&e)
	must(r.t, err)
	for _, p := range state.Table(testTable).Partitions {
		trees = append(trees, NewTree(r.env, testTable, p))
	}
	r.tree.Close()
	return trees
}

// TestRowsBeyondAPartitionAreNotReadAhead: rows of a block that are read together end at the
// partition's end.
func TestRowsBeyondAPartitionAreNotReadAhead(t *testing.T) {
	r := newRig(t)
	for i := range 100 {
		r.putRow(key(fmt.Sprintf("p%02d", i), 0), "c", 1, "v")
	}
	r.flush()
	cut, err := row.AppendKey(nil, 2, row.String("p52"))
	must(t, err)
	left, right := r.split(cut)
	for i, tree := range []*Tree{left, right} {
		if keys, _, err := scan(tree, row.MaxSequence, false); err != nil || len(keys) != 52-4*i {
			t.Errorf("partition %d has %d rows, %v", i, len(keys), err)
		}
		tree.Close()
	}
}

// TestFilesThatReachBeyondAPartitionAreClipped shares files between two partitions, as a split
// does, and reads, compacts and closes both.
func TestFilesThatReachBeyondAPartitionAreClipped(t *testing.T) {
	r := newRig(t)
	for round := range 3 {
		for i := range 100 {
			r.put(key(fmt.Sprintf("p%02d", i), round), "c", 1, "v")
		}
		r.flush()
	}
	cut, err := row.AppendKey(nil, 2, row.String("p50"))
	must(t, err)
	left, right := r.split(cut)
	check := func() {
		t.Helper()
		for i, tree := range []*Tree{left, right} {
			for _, backward := range []bool{false, true} {
				keys, _, err := scan(tree, row.MaxSequence, backward)
				if err != nil || len(keys) != 150 {
					t.Fatalf("partition %d has %d rows, %v", i, len(keys), err)
				}
				for _, k := range keys {
					if inside := bytes.Compare([]byte(k), cut) < 0; inside != (i == 0) {
						t.Fatalf("partition %d shows row %x", i, k)
					}
				}
			}
		}
		checkEdges(t, left, right)
	}
	check()
	shared := r.live()
	did, _, err := left.CompactRange(nil, nil)
	if !did || err != nil {
		t.Fatal(did, err)
	}
	check()
	for _, f := range left.Meta().Levels[bottomLevel] {
		if bytes.Compare(f.Largest, cut) >= 0 {
			t.Errorf("the left partition wrote a file that reaches to %x", f.Largest)
		}
	}
	if len(r.obsolete.numbers) > 0 {
		t.Errorf("files that the right partition needs were let go: %v", r.obsolete.numbers)
	}
	// Closing and reopening the right one deletes nothing that the manifest names.
	right.Close()
	if len(r.obsolete.numbers) > 0 {
		t.Fatalf("files that the manifest names were let go: %v", r.obsolete.numbers)
	}
	_, meta := r.log.State().Partition(3)
	right = NewTree(r.env, testTable, meta)
	check()
	did, _, err = right.CompactRange(nil, nil)
	if !did || err != nil {
		t.Fatal(did, err)
	}
	check()
	slices.Sort(r.obsolete.numbers)
	if len(r.obsolete.numbers) != len(shared) || len(slices.Compact(r.obsolete.numbers)) != len(shared) {
		t.Errorf("let go: %v, want each of %v once", r.obsolete.numbers, shared)
	}
}

// checkEdges seeks around the bounds of two neighbours.
func checkEdges(t *testing.T, left, right *Tree) {
	t.Helper()
	l, r := left.NewIterator(), right.NewIterator()
	defer l.Close()
	defer r.Close()
	at := func(what string, it *Iterator, ok bool, want []byte) {
		t.Helper()
		switch {
		case it.Error() != nil:
			t.Errorf("%s: %v", what, it.Error())
		case ok != (want != nil):
			t.Errorf("%s: %v", what, ok)
		case ok && !bytes.Equal(it.RowKey(), want):
			t.Errorf("%s: %x, want %x", what, it.RowKey(), want)
		}
	}
	first, last := key("p00", 0), key("p99", 2)
	end, begin := key("p49", 2), key("p50", 0)
	at("left First", l, l.First(), first)
	at("left Last", l, l.Last(), end)
	at("right First", r, r.First(), begin)
	at("right Last", r, r.Last(), last)
	at("left SeekRow beyond", l, l.SeekRow(begin), nil)
	at("left SeekRowBefore beyond", l, l.SeekRowBefore(key("p70", 0)), end)
	at("right SeekRow before", r, r.SeekRow(key("p10", 0)), begin)
	at("right SeekRowBefore before", r, r.SeekRowBefore(begin), nil)
	at("right SeekRowBefore far before", r, r.SeekRowBefore(first), nil)
	at("left SeekRow of its last", l, l.SeekRow(end), end)
	at("left NextRow at its end", l, l.NextRow(), nil)
	at("right SeekRow of its first", r, r.SeekRow(begin), begin)
	at("right PrevRow at its begin", r, r.PrevRow(), nil)
	m := NewMap([]*Tree{left, right})
	for k, want := range map[string]*Tree{
		string(first): left, string(end): left, string(begin): right, string(last): right, "": left, "\xff": right,
	} {
		if m.Find([]byte(k)) != want || k != "" && !want.Contains([]byte(k)) {
			t.Errorf("row %x is found in the wrong partition", k)
		}
	}
	for _, c := range []struct {
		from, to []byte
		want     int
	}{
		{nil, nil, 2}, {nil, begin, 2}, {nil, right.start, 1}, {begin, nil, 1}, {first, end, 1}, {end, last, 2},
	} {
		if got := m.Between(c.from, c.to); len(got) != c.want {
			t.Errorf("%d partitions between %x and %x, want %d", len(got), c.from, c.to, c.want)
		}
	}
}
