package partition

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// divided makes the rig's table anew with partitions that begin at letters, and returns their trees.
func (r *rig) divided(letters string) (trees []*Tree) {
	r.t.Helper()
	t := *r.log.State().Table(testTable)
	t.ID, t.Name, t.Partitions = 2, "u", nil
	var start []byte
	for i := range len(letters) + 1 {
		p := &manifest.Partition{ID: uint64(10 + i), Start: start}
		if i < len(letters) {
			start, _ = row.AppendKey(nil, 2, row.String(letters[i:i+1]))
			p.End = start
		}
		t.Partitions = append(t.Partitions, p)
	}
	state, err := r.log.Commit(&manifest.Edit{Created: []*manifest.Table{&t}})
	must(r.t, err)
	for _, p := range state.Table(2).Partitions {
		trees = append(trees, NewTree(r.env, 2, p))
	}
	return trees
}

// putIn writes a row to the tree that has its key.
func (r *rig) putIn(trees []*Tree, pk string, n int, value string) {
	r.t.Helper()
	k := key(pk, n)
	m := &row.Mutation{Table: 2, Key: k, DeleteRow: value == "", Cells: []row.Cell{putCell("c", int64(r.seq), value)}}
	if value == "" {
		m.Cells = nil
	}
	r.apply(NewMap(trees).Find(k), m, 1)
}

func (r *rig) rotateAll(trees []*Tree) {
	for _, t := range trees {
		r.rotate(t)
	}
}

// flushAll flushes what waits, and returns the number of flushes.
func (r *rig) flushAll(trees []*Tree) int {
	r.t.Helper()
	groups := Together(trees, row.MaxSequence)
	for _, g := range groups {
		freed, _, err := Flush(g, settled)
		must(r.t, err)
		if freed == 0 {
			r.t.Errorf("a group of %d trees had nothing to flush", len(g.Trees))
		}
	}
	return len(groups)
}

func files(t *Tree) (numbers []uint64) {
	for _, f := range allFiles(&t.Meta().Levels) {
		numbers = append(numbers, f.Number)
	}
	return numbers
}

func TestSmallMemtablesOfNeighboursShareAFile(t *testing.T) {
	r := newRig(t)
	trees := r.divided("bdfh")
	r.putIn(trees, "a", 1, "1")
	r.putIn(trees, "b", 1, "2")
	r.putIn(trees, "h", 1, "3")
	r.rotateAll(trees)
	r.putIn(trees, "e", 1, "later")
	if n := r.flushAll(trees); n != 1 {
		t.Errorf("%d flushes", n)
	}
	shared := files(trees[0])
	if len(shared) != 1 || len(r.live()) != 1 {
		t.Fatalf("the first tree has files %v; on the disk are %v", shared, r.live())
	}
	for i, has := range []bool{true, true, false, false, true} {
		if got := files(trees[i]); has != slices.Equal(got, shared) || !has && len(got) > 0 {
			t.Errorf("tree %d has files %v", i, got)
		}
	}
	if seq := trees[4].FlushedSeq(); seq != 3 || trees[2].FlushedSeq() != 0 {
		t.Errorf("flushed up to %d and %d", seq, trees[2].FlushedSeq())
	}
	for i, want := range []int{1, 1, 1, 0, 1} {
		for _, backward := range []bool{false, true} {
			if keys, _, err := scan(trees[i], row.MaxSequence, backward); err != nil || len(keys) != want {
				t.Errorf("tree %d has %d rows, %v", i, len(keys), err)
			}
		}
	}
	// The file goes with its last part.
	for _, i := range []int{1, 0, 4} {
		if len(r.obsolete.numbers) > 0 {
			t.Fatalf("before tree %d, files %v are obsolete", i, r.obsolete.numbers)
		}
		for more := true; more; {
			var err error
			_, more, err = trees[i].CompactRange(nil, nil)
			must(t, err)
		}
		if got := files(trees[i]); slices.Equal(got, shared) {
			must(t, dropTree(trees[i], func() error {
				_, err := r.log.Commit(&manifest.Edit{Deleted: []manifest.Deletion{{Partition: trees[i].id, Level: levelOf(trees[i], shared[0]), Number: shared[0]}}})
				return err
			}))
		}
	}
	if !slices.Contains(r.obsolete.numbers, shared[0]) {
		t.Errorf("obsolete are %v, want %d", r.obsolete.numbers, shared[0])
	}
}

func levelOf(t *Tree, number uint64) int {
	for level, files := range t.Meta().Levels {
		if slices.ContainsFunc(files, func(f *manifest.FileMeta) bool { return f.Number == number }) {
			return level
		}
	}
	return -1
}

func TestWhatIsFlushedTogether(t *testing.T) {
	r := newRig(t)
	trees := r.divided("bcdefgh")
	other := r.tree
	r.put(key("x", 1), "c", 1, "v")
	for _, pk := range []string{"a", "b", "c", "e", "f", "g", "h"} {
		r.putIn(trees, pk, 1, "v")
	}
	r.rotate(other)
	r.rotateAll(trees[:3])
	first := r.seq + 1
	r.putIn(trees, "a", 2, "v")
	r.rotateAll(trees)
	all := append([]*Tree{other}, trees...)
	show := func(upTo uint64) (text string) {
		for _, g := range Together(all, upTo) {
			text += fmt.Sprintf("%d:", g.UpTo)
			for _, tree := range g.Trees {
				text += fmt.Sprint(" ", slices.Index(all, tree))
			}
			text += "; "
		}
		return text
	}
	last := r.seq + 1
	for upTo, want := range map[uint64]string{
		first - 1: "",
		first:     fmt.Sprintf("%d: 0; %d: 1 2 3; ", first, first),
		last:      fmt.Sprintf("%d: 0; %d: 1; %d: 2 3; %d: 5 6 7 8; ", first, last, first, last),
	} {
		if got := show(upTo); got != want {
			t.Errorf("up to %d: %s; want %s", upTo, got, want)
		}
	}
	// A tree that was rotated again after the groups were made is not flushed further than they say.
	groups := Together(all, row.MaxSequence)
	r.putIn(trees, "g", 2, "late")
	r.rotateAll(trees)
	for _, g := range groups {
		if _, _, err := Flush(g, settled); err != nil {
			t.Fatal(err)
		}
	}
	if bytes, end := trees[6].waitingUpTo(row.MaxSequence); bytes == 0 || end != r.seq+1 {
		t.Errorf("%d bytes wait, up to %d", bytes, end)
	}
	if n := r.flushAll(all); n != 1 {
		t.Errorf("%d flushes were left", n)
	}
}

// TestAMemtableThatNeededNothingIsFlushed: until then it holds back the log.
func TestAMemtableThatNeededNothingIsFlushed(t *testing.T) {
	r := newRig(t)
	trees := r.divided("b")
	c := new(row.Change)
	must(t, c.Set(&row.Mutation{Table: 2, Key: key("a", 1)}))
	slot := trees[0].Reserve(100, 7, 7)
	r.seq++
	r.rotate(trees[0])
	if spare, waiting := slot.Apply(r.seq, c); spare != 100 || waiting != 100 {
		t.Fatalf("%d bytes spare, %d waiting", spare, waiting)
	}
	slot.Done()
	for _, g := range Together(trees, row.MaxSequence) {
		_, _, err := Flush(g, settled)
		must(t, err)
	}
	if segment := trees[0].OldestSegment(); segment != 0 || trees[0].FlushedSeq() != r.seq {
		t.Errorf("log segment %d is needed; flushed up to %d", segment, trees[0].FlushedSeq())
	}
}

// TestLargeMemtablesAreFlushedAlone, and no more small ones together than make a large one.
func TestLargeMemtablesAreFlushedAlone(t *testing.T) {
	r := newRig(t)
	trees := r.divided("bcdefgh")
	r.env.MemtableSize = 40_000
	for i, size := range []int{100, 11_000, 3_000, 3_000, 3_000, 3_000, 3_000, 100} {
		r.putIn(trees, string(rune('a'+i)), 1, string(make([]byte, size)))
	}
	if heaviest := Heaviest(trees); len(heaviest) != 4 || heaviest[0] != trees[2] {
		t.Errorf("%d trees are the heaviest", len(heaviest))
	}
	r.rotateAll(trees)
	var sizes []int
	for _, g := range Together(trees, row.MaxSequence) {
		sizes = append(sizes, len(g.Trees))
	}
	if !slices.Equal(sizes, []int{1, 1, 4, 2}) {
		t.Errorf("flushed together are %v", sizes)
	}
	if heaviest := Heaviest(trees); heaviest != nil {
		t.Errorf("of empty memtables %d are the heaviest", len(heaviest))
	}
}

// TestAFlushOfManyTreesThatFailsLeavesAllAsItWas: the next one does it.
func TestAFlushOfManyTreesThatFailsLeavesAllAsItWas(t *testing.T) {
	for _, refused := range []error{ErrRefused, ErrStale} {
		r := newRig(t)
		trees := r.divided("bc")
		for _, pk := range []string{"a", "b", "c"} {
			r.putIn(trees, pk, 1, "v")
		}
		r.rotateAll(trees)
		r.commit = func(*manifest.Edit) error { return refused }
		if freed, _, err := Flush(Together(trees, row.MaxSequence)[0], settled); !errors.Is(err, refused) || freed != 0 {
			t.Errorf("freed %d, %v", freed, err)
		}
		if len(r.live()) != 0 {
			t.Errorf("%v: files %v are left", refused, r.live())
		}
		r.commit = nil
		if n := r.flushAll(trees); n != 1 || len(r.live()) != 1 {
			t.Errorf("%d flushes, files %v", n, r.live())
		}
		for _, tree := range trees {
			if keys, _, err := scan(tree, row.MaxSequence, false); err != nil || len(keys) != 1 {
				t.Errorf("%d rows, %v", len(keys), err)
			}
		}
	}
}

// TestADeleteAtTheBoundOfTreesThatAreFlushedTogether: the row whose key is the bound, as a key of one column can be, is the
// second tree's, and what lies below it is too.
func TestADeleteAtTheBoundOfTreesThatAreFlushedTogether(t *testing.T) {
	r := newRig(t)
	trees := r.divided("b")
	bound, err := row.AppendKey(nil, 2, row.String("b"))
	must(t, err)
	second := NewMap(trees).Find(bound)
	if second != trees[1] {
		t.Fatal("the bound is not the second tree's")
	}
	r.apply(second, &row.Mutation{Table: 2, Key: bound, Cells: []row.Cell{putCell("c", 1, "old")}}, 1)
	r.rotateAll(trees)
	r.flushAll(trees)
	r.putIn(trees, "a", 1, "beside it")
	r.apply(second, &row.Mutation{Table: 2, Key: bound, DeleteRow: true}, 1)
	r.rotateAll(trees)
	if n := r.flushAll(trees); n != 1 {
		t.Fatalf("%d flushes", n)
	}
	if got, err := get(second, bound, row.MaxSequence); err != nil || got != "absent" {
		t.Errorf("the deleted row is %q, %v", got, err)
	}
}

// TestTreesThatShareFilesReadAsTheyWereWritten does random writes, deletes, flushes of some of the
// trees, and compactions, and compares each tree with what was written.
func TestTreesThatShareFilesReadAsTheyWereWritten(t *testing.T) {
	for seed := range uint64(40) {
		r, rng := newRig(t), rand.New(rand.NewPCG(seed, 1))
		r.env.MemtableSize = 20_000
		r.env.Compaction.L0Trigger, r.env.Compaction.LevelBase = 2, 2000
		trees := r.divided("ceghk")
		rows := map[string]string{}
		shared := 0
		for step := range 400 {
			switch n := rng.IntN(40); {
			case n == 0:
				r.rotateAll(trees)
			case n == 1:
				from := rng.IntN(len(trees))
				r.rotateAll(trees[from : from+1+rng.IntN(len(trees)-from)])
			case n < 4:
				r.flushAll(trees)
				for i, tree := range trees[1:] {
					if len(files(tree)) > 0 && slices.ContainsFunc(files(tree), func(n uint64) bool { return slices.Contains(files(trees[i]), n) }) {
						shared++
					}
				}
			case n < 7:
				_, err := trees[rng.IntN(len(trees))].Compact(Quiet, nil)
				must(t, err)
			default:
				pk, n, value := string(rune('a'+rng.IntN(13))), rng.IntN(4), ""
				if rng.IntN(4) > 0 {
					value = fmt.Sprint(step)
				}
				at := r.seq
				r.putIn(trees, pk, n, value)
				if k := string(key(pk, n)); value == "" {
					delete(rows, k)
				} else {
					rows[k] = fmt.Sprintf(" c@%d=%s", at, value) + rows[k]
				}
			}
		}
		if shared == 0 {
			t.Errorf("seed %d: no file was shared", seed)
		}
		for _, backward := range []bool{false, true} {
			found := map[string]string{}
			for _, tree := range trees {
				_, part, err := scan(tree, row.MaxSequence, backward)
				must(t, err)
				for k, text := range part {
					text = strings.TrimPrefix(text, "row")
					if found[k] != "" || !tree.Contains([]byte(k)) {
						t.Fatalf("seed %d: row %q is twice, or outside of its tree", seed, k)
					}
					found[k] = text
				}
			}
			if fmt.Sprint(found) != fmt.Sprint(rows) {
				t.Fatalf("seed %d, backward %v:\n got %q\nwant %q", seed, backward, found, rows)
			}
		}
		for k, want := range rows {
			if got, err := get(NewMap(trees).Find([]byte(k)), []byte(k), row.MaxSequence); err != nil || got != "row"+want {
				t.Fatalf("seed %d: row %q is %q, %v; want %q", seed, k, got, err, want)
			}
		}
	}
}

// TestAFlushThatWasAskedForFlushesAlsoWhenAMergeGivesUp: a merge that ends without a replacement has renewed the mutable
// memtable, behind one that waits.
func TestAFlushThatWasAskedForFlushesAlsoWhenAMergeGivesUp(t *testing.T) {
	r := newRig(t)
	r.putRow(key("p", 1), "c", 1, "v")
	end := r.seq + 1
	r.rotate(r.tree)
	r.seq += 5 // writes of other trees
	r.tree.Renew(r.seq + 1)
	if freed, err := r.tree.Flush(end, settled); err != nil || freed == 0 {
		t.Errorf("flushed %d bytes: %v", freed, err)
	}
}

// TestAnIteratorReadsAWriteThatIsAppliedAfterAnother, which was ordered later and is in the next memtable.
func TestAnIteratorReadsAWriteThatIsAppliedAfterAnother(t *testing.T) {
	r := newRig(t)
	first, second := new(row.Change), new(row.Change)
	for n, c := range []*row.Change{first, second} {
		must(t, c.Set(&row.Mutation{Table: testTable, Key: key("p", n), PutRow: true, Cells: []row.Cell{putCell("c", 1, "v")}}))
	}
	early := r.tree.Reserve(memtable.EstimateSize(first), 1, 1)
	r.tree.Rotate(2)
	late := r.tree.Reserve(memtable.EstimateSize(second), 1, 1)
	late.Apply(2, second)
	late.Done()
	it := r.tree.NewIterator()
	defer it.Close()
	early.Apply(1, first)
	early.Done()
	if !it.First() || string(it.RowKey()) != string(key("p", 0)) {
		t.Error("the earlier write is not there")
	}
}
