package partition

// The replacement of neighbouring trees by others over the same keys: a split, or a merge of
// partitions.

import (
	"cmp"
	"errors"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// ErrReplaced says that a flush or compaction did not end, because its partition is being split or
// merged. Tree.Successors returns the partitions that took its place, nil if that failed; the caller
// goes on with these, or with the same tree.
var ErrReplaced = errors.New("partition: the partition was split or merged meanwhile")

// Alone calls f while no flush or compaction of the trees, which are neighbours in ascending order, runs.
// Those under way end early, with ErrReplaced.
func Alone(trees []*Tree, f func() error) error {
	for _, t := range trees {
		t.yielding.Add(1)
		defer t.yielding.Add(-1)
		t.flushing.Lock()
		defer t.flushing.Unlock()
		t.compacting.Lock()
		defer t.compacting.Unlock()
	}
	return f()
}

// HandOver gives what old trees hold in memory to the new trees that replace them, whose manifest
// entries list the same table files, and makes these the successors of the old ones. No data is
// moved: the trees share the memtables, and each flushes what lies in its range. nextSeq is the
// first sequence number not given out yet. REQUIRES: Alone; the old trees were rotated and get no
// more writes; the caller is about to make the new trees known.
func HandOver(old, made []*Tree, nextSeq uint64) {
	var memories []*memory
	for _, t := range old {
		for _, m := range t.state.Load().waiting() {
			if !slices.Contains(memories, m) { // both halves of an earlier split may have it
				memories = append(memories, m)
				m.holders.Add(int64(len(made)))
			}
			m.holders.Add(-1)
		}
	}
	// The order of memtables of different trees does not matter, since they share no key, and those that are
	// inherited are flushed together. The oldest start comes first: see Unchanged.
	slices.SortStableFunc(memories, func(a, b *memory) int { return cmp.Compare(a.startSeq, b.startSeq) })
	for _, t := range made {
		t.replace(func(empty *state) *state {
			m := empty.mutable()
			m.startSeq, t.began = nextSeq, nextSeq
			return newState(append(slices.Clip(memories), m), empty.version)
		})
	}
	for _, t := range old {
		t.successors.Store(&made)
	}
}

// Successors are the trees that replaced this one, nil if it was not replaced. A reader asks after
// it has pinned the tree: if there are none, it has pinned everything that was visible before.
func (t *Tree) Successors() []*Tree {
	if s := t.successors.Load(); s != nil {
		return *s
	}
	return nil
}

// Renew replaces an empty mutable memtable by one for sequence numbers from nextSeq on, the first one not
// given out yet: Unchanged must not take what is flushed for something in memory. Where memtables wait it does nothing,
// since they end where the next one begins, and a flush may have been asked for that end. REQUIRES: no write is ordered
// meanwhile.
func (t *Tree) Renew(nextSeq uint64) {
	if t.mutable.Load().bytes() == 0 && len(t.state.Load().waiting()) == 0 {
		t.replace(func(old *state) *state {
			return newState([]*memory{t.env.newMemory(nextSeq)}, old.version)
		})
	}
}

// AwaitAlone returns when an Alone that has ended a flush or compaction of the tree is over, or soon.
func (t *Tree) AwaitAlone() {
	t.flushing.Lock()
	defer t.flushing.Unlock()
}

// AwaitCompactions returns when the compactions that run are done.
func (t *Tree) AwaitCompactions() {
	t.compacting.Lock()
	defer t.compacting.Unlock()
}

// Present returns the trees, and instead of those that were replaced their successors, each once: a merge
// gives two trees one successor, which may have been split since.
func Present(trees []*Tree) (present []*Tree) {
	seen := map[*Tree]bool{}
	var add func(trees []*Tree)
	add = func(trees []*Tree) {
		for _, t := range trees {
			next := t.Successors()
			switch {
			case seen[t]:
			case next != nil:
				add(next)
			default:
				present = append(present, t)
			}
			seen[t] = true
		}
	}
	add(trees)
	return present
}

// cancelled returns why a flush or compaction of the tree must end, nil if it may go on.
func (t *Tree) cancelled() error {
	if t.yielding.Load() > 0 {
		return ErrReplaced
	}
	return t.env.Scheduler.Cancelled()
}

// gone returns the error of a flush or compaction that has just locked the tree, if it was replaced.
func (t *Tree) gone() error {
	if t.Successors() != nil {
		return ErrReplaced
	}
	return nil
}

// NoteCut records in the manifest that a user asked for the cut at the tree's start. REQUIRES: the tree is
// not replaced meanwhile.
func (t *Tree) NoteCut() error {
	e := manifest.Edit{Cuts: []uint64{t.id}}
	return commit(&e, Kept{}, newOutput(t.env, false), install{Tree: t})
}

// Complete is a sequence number up to which the table files hold all writes that the tree got
// before the call: row.MaxSequence if nothing is in memory.
func (t *Tree) Complete() uint64 {
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories {
		if m.bytes() > 0 {
			return m.startSeq - 1
		}
	}
	return row.MaxSequence
}

// NoteComplete records in the manifest that the table files hold all writes up to seq, which is at least
// FlushedSeq and at most what Complete returned. REQUIRES: Alone.
func (t *Tree) NoteComplete(seq uint64) error {
	e := manifest.Edit{Flushed: []manifest.Flush{{Partition: t.id, Seq: seq}}}
	return commit(&e, Kept{}, newOutput(t.env, false), install{Tree: t})
}
