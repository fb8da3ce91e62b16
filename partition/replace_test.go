package partition

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// replaceAt replaces the rig's tree by two that meet at a partition key, as the owner of a tree does it.
func (r *rig) replaceAt(n int) []*Tree {
	r.t.Helper()
	at, _ := row.PartitionPrefix(numbered(n), 2)
	var made []*Tree
	old := []*Tree{r.tree}
	must(r.t, Alone(old, func() error {
		state := r.log.State()
		_, meta := state.Partition(r.tree.id)
		made = nil
		parts := meta.Divide(at, state.NextPartition, state.NextPartition+1)
		state, err := r.log.Commit(&manifest.Edit{Replaced: []*manifest.Replacement{{Table: testTable, Old: []uint64{r.tree.id}, New: parts}}})
		must(r.t, err)
		for _, p := range parts {
			_, meta := state.Partition(p.ID)
			made = append(made, NewTree(r.env, testTable, meta))
		}
		r.rotate(r.tree)
		HandOver(old, made, r.seq+1)
		r.tree.Close()
		return nil
	}))
	return made
}

func TestTreesThatShareAMemtableGiveItsMemoryBackOnce(t *testing.T) {
	for _, order := range [][2]int{{0, 1}, {1, 0}} {
		r := newRig(t)
		for i := range 20 {
			r.putRow(numbered(i), "c", 1, "v")
		}
		mutable, _ := r.tree.MemoryBytes()
		made := r.replaceAt(10)
		_, low := made[0].MemoryBytes()
		_, high := made[1].MemoryBytes()
		if low+high != mutable {
			t.Errorf("two trees have %d and %d bytes of %d", low, high, mutable)
		}
		var freed [2]int64
		for i, n := range order {
			var err error
			freed[i], err = made[n].Flush(row.MaxSequence, settled)
			must(t, err)
		}
		if freed != [2]int64{0, mutable} {
			t.Errorf("the flushes gave back %v bytes of %d", freed, mutable)
		}
		for i, tree := range made {
			keys, _, err := scan(tree, row.MaxSequence, false)
			must(t, err)
			if len(keys) != 10 || tree.OldestSegment() != 0 {
				t.Errorf("tree %d has %d rows, segment %d", i, len(keys), tree.OldestSegment())
			}
			tree.Close()
		}
	}
}

func TestADroppedTreeGivesBackWhatNoOtherTreeShares(t *testing.T) {
	r := newRig(t)
	r.putRow(numbered(1), "c", 1, "v")
	mutable, _ := r.tree.MemoryBytes()
	made := r.replaceAt(1)
	for i, want := range []int64{0, mutable} {
		freed, err := made[i].Drop(func() error { return nil })
		must(t, err)
		if freed != want {
			t.Errorf("drop %d gave back %d bytes, want %d", i, freed, want)
		}
	}
}

func TestAReplacedTreeIsNotRead(t *testing.T) {
	r := newRig(t)
	r.putRow(numbered(1), "c", 1, "v")
	before := r.tree.NewGetter()
	made := r.replaceAt(5)
	old := r.tree
	var g Getter
	if old.NewGetter() != nil || old.NewIterator() != nil || g.Pin(old) || old.Unchanged(numbered(1), row.MaxSequence) {
		t.Error("a tree that was replaced was pinned")
	}
	if _, err := old.Flush(row.MaxSequence, settled); !errors.Is(err, ErrReplaced) {
		t.Errorf("flush: %v", err)
	}
	if _, err := old.Compact(Idle, nil); !errors.Is(err, ErrReplaced) {
		t.Errorf("compaction: %v", err)
	}
	if _, _, err := old.CompactRange(nil, nil); !errors.Is(err, ErrReplaced) {
		t.Errorf("compaction of a range: %v", err)
	}
	if got := Present([]*Tree{old, made[1]}); len(got) != 2 || got[0] != made[0] || got[1] != made[1] {
		t.Errorf("present are %v", got)
	}
	// What was pinned before stays as it was.
	view := mvcc.View{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}
	if exists, err := before.Get(numbered(1), view, &mvcc.Selection{}, new(row.Collector), 0); err != nil || !exists {
		t.Errorf("an earlier pin finds %t, %v", exists, err)
	}
	before.Close()
	for _, tree := range made {
		tree.Close()
	}
}

// TestATreeThatInheritedFlushesAlone: the memtable that two trees share still has rows of the first when the
// second flushes it together with newer ones.
func TestATreeThatInheritedFlushesAlone(t *testing.T) {
	r := newRig(t)
	for i := range 20 {
		r.putRow(numbered(i), "c", 1, "v")
	}
	made := r.replaceAt(10)
	for i, tree := range made {
		r.apply(tree, &row.Mutation{Table: testTable, Key: numbered(19 * i), Cells: []row.Cell{putCell("c", 2, "w")}}, 1)
		r.rotate(tree)
	}
	for _, g := range Together(made, row.MaxSequence) {
		if len(g.Trees) != 1 {
			t.Errorf("%d trees are flushed together", len(g.Trees))
		}
	}
	for _, tree := range made {
		tree.Close()
	}
}

// numbered is a row with a partition key of its own.
func numbered(n int) []byte { return key(fmt.Sprintf("p%02d", n), 0) }
