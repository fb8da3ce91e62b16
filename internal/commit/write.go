package commit

import (
	"context"
	"fmt"
	"time"

	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// Write is a set of mutations on its way through the pipeline. One goroutine uses it at a time.
// After Reset it is used again without allocations.
type Write struct {
	mutations []mutation
	batch     row.Batch
	micros    int64  // the time of the commit
	commit    Commit // once the write is ordered or refused
}

// mutation is the change of one row in a write, or what is derived from such a change.
type mutation struct {
	change  *row.Change // in the log; nil if derived is set
	place   Place       // of the change; nil if the change is only in the log
	derived Derived     // from the latest mutation before it that has a place
	size    int64       // upper bound, in memtable bytes

	seq  uint64
	tree *partition.Tree // nil if the change is only in the log
	slot partition.Slot
}

// Place finds the tree of a change while its write is ordered. An error refuses the write.
type Place interface {
	Tree() (*partition.Tree, error)
}

// Derived is a change that follows from a mutation, in another tree. It has the sequence number
// of the mutation and becomes visible with it. It is not in the log: recovery derives it again.
type Derived interface {
	Tree() *partition.Tree
	Size() int64 // upper bound, in memtable bytes
	// Change returns what is applied, once the mutation has its sequence number and its time, in
	// microseconds. shard is the tree of the mutation.
	Change(shard, seq uint64, micros int64) *row.Change
}

// Add adds a mutation of at most size memtable bytes. If place is nil, the change is only in the
// log, and derived, which must not be nil then, belongs to the mutation before it. Otherwise
// derived may be nil. Several mutations of one row are applied one after the other.
func (w *Write) Add(c *row.Change, size int64, place Place, derived Derived) {
	w.mutations = append(w.mutations, mutation{change: c, place: place, size: size})
	if derived != nil {
		w.mutations = append(w.mutations, mutation{derived: derived, size: derived.Size()})
	}
}

// Reset empties the write, so that its memory holds nothing alive.
func (w *Write) Reset() {
	clear(w.mutations)
	w.mutations = w.mutations[:0]
	w.batch.Reset()
	w.commit = Commit{}
}

// Refused makes c, of Pipeline.Refuse, the commit of a write that changes nothing.
func (w *Write) Refused(c Commit) { w.commit = c }

// Commit returns the commit of a write that was ordered or refused. The write may be used again.
func (w *Write) Commit() Commit { return w.commit }

// encode puts the mutations into the log's form and returns the memory that they may take.
func (w *Write) encode() (size int64, err error) {
	for i := range w.mutations {
		m := &w.mutations[i]
		size += m.size
		if m.derived != nil {
			continue
		}
		if err := w.batch.Add(m.change); err != nil {
			return 0, fmt.Errorf("%w: a change of table %d: %w", ErrInvalid, m.change.Table, err)
		}
	}
	return size, nil
}

// place finds the trees of the mutations and gives those in the log the sequence numbers from next
// on, which it returns moved past them. What is derived has that of the mutation before it.
func (w *Write) place(next uint64) (uint64, error) {
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.derived != nil {
			m.tree, m.seq = m.derived.Tree(), next-1
			continue
		}
		if m.place != nil {
			var err error
			if m.tree, err = m.place.Tree(); err != nil {
				return 0, err
			}
		}
		m.seq = next
		next++
	}
	return next, nil
}

// reserve takes places in the memtables. The record of the write lies in one of two of the log's
// segments or between them.
func (w *Write) reserve(oldest, newest uint64) {
	for i := range w.mutations {
		if m := &w.mutations[i]; m.tree != nil {
			m.slot = m.tree.Reserve(m.size, oldest, newest)
		}
	}
}

// apply inserts the mutations into the memtables. spare is the memory that they did not need, of
// which waiting is in memtables that were rotated meanwhile.
func (w *Write) apply() (spare, waiting int64) {
	var from *mutation // of what is derived
	for i := range w.mutations {
		m := &w.mutations[i]
		change := m.change
		switch {
		case m.derived != nil:
			change = m.derived.Change(from.tree.ID(), from.seq, w.micros)
		case m.tree == nil:
			continue
		default:
			from = m
			m.tree.Wrote(change)
		}
		unused, rotated := m.slot.Apply(m.seq, change)
		spare += unused
		waiting += rotated
	}
	return spare, waiting
}

// done lets go of the memtables, when no later write waits for this one.
func (w *Write) done() {
	for i := range w.mutations {
		if m := &w.mutations[i]; m.tree != nil {
			m.slot.Done()
		}
	}
}

// Commit is a write on its way to durability.
type Commit struct {
	pipeline *Pipeline
	// lsn and seq are the last log record and the last sequence number of the write, or, if it
	// writes nothing, of what it depends on.
	lsn     wal.LSN
	seq     uint64
	refusal error         // of Pipeline.Refuse
	pause   time.Duration // that the writer owes
}

// Wait returns when the write is durable (with Options.Sync) and visible to every later read, or
// when that failed. If the context ends first, the error matches ErrOutcomeUnknown: the write may
// still become durable. refusal is that of Pipeline.Refuse, if there is no error. Wait then pauses for
// what the write owes (pressure.Gate.Pause), unless Forgive was called: only one caller for a write is to
// pause.
func (c *Commit) Wait(ctx context.Context) (refusal, err error) {
	if err := c.pipeline.await(ctx, c.lsn, c.seq); err != nil {
		return nil, err
	}
	c.pipeline.gate.Pause(ctx, c.pause)
	return c.refusal, nil
}

// Forgive lets Wait return without a pause.
func (c *Commit) Forgive() { c.pause = 0 }
