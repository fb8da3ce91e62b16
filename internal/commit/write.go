package commit

import (
	"context"
	"fmt"

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

// mutation is the change of one row in a write.
type mutation struct {
	change *row.Change
	size   int64 // upper bound, in memtable bytes
	// place finds the tree of the change. If it is nil, the change is only in the log, for what
	// is derived from the mutation before it.
	place Place
	// derived follows from the mutation; nil if nothing does.
	derived Derived

	tree        *partition.Tree
	slot        partition.Slot
	derivedSlot partition.Slot
	// shard and seq belong to the mutation that derived follows from: this one, or the one before
	// it if place is nil.
	shard, seq uint64
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
	w.mutations = append(w.mutations, mutation{change: c, size: size, place: place, derived: derived})
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
		if err := w.batch.Add(m.change); err != nil {
			return 0, fmt.Errorf("%w: a change of table %d: %w", ErrInvalid, m.change.Table, err)
		}
		size += m.size
		if m.derived != nil {
			size += m.derived.Size()
		}
	}
	return size, nil
}

// find finds the trees of the mutations, of which the first gets the sequence number first.
func (w *Write) find(first uint64) (err error) {
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.place == nil {
			m.shard, m.seq = w.mutations[i-1].shard, w.mutations[i-1].seq
			continue
		}
		if m.tree, err = m.place.Tree(); err != nil {
			return err
		}
		m.shard, m.seq = m.tree.ID(), first+uint64(i)
	}
	return nil
}

// reserve takes places in the memtables. The record of the write lies in the log's segment or a
// later one.
func (w *Write) reserve(segment uint64) {
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.tree != nil {
			m.slot = m.tree.Reserve(m.size, segment)
		}
		if m.derived != nil {
			m.derivedSlot = m.derived.Tree().Reserve(m.derived.Size(), segment)
		}
	}
}

// apply inserts the mutations into the memtables. spare is the memory that they did not need, of
// which waiting is in memtables that were rotated meanwhile.
func (w *Write) apply() (spare, waiting int64) {
	first := w.commit.seq - uint64(len(w.mutations)) + 1
	for i := range w.mutations {
		m := &w.mutations[i]
		if m.tree != nil {
			unused, rotated := m.slot.Apply(first+uint64(i), m.change)
			spare += unused
			waiting += rotated
		}
		if m.derived != nil {
			unused, rotated := m.derivedSlot.Apply(first+uint64(i), m.derived.Change(m.shard, m.seq, w.micros))
			spare += unused
			waiting += rotated
		}
	}
	return spare, waiting
}

// Commit is a write on its way to durability.
type Commit struct {
	pipeline *Pipeline
	// lsn and seq are the last log record and the last sequence number of the write, or, if it
	// writes nothing, of what it depends on.
	lsn     wal.LSN
	seq     uint64
	refusal error // of Pipeline.Refuse
}

// Wait returns when the write is durable (with Options.Sync) and visible to every later read, or
// when that failed. If the context ends first, the error matches ErrOutcomeUnknown: the write may
// still become durable. refusal is that of Pipeline.Refuse, if there is no error.
func (c *Commit) Wait(ctx context.Context) (refusal, err error) {
	if err := c.pipeline.await(ctx, c.lsn, c.seq); err != nil {
		return nil, err
	}
	return c.refusal, nil
}
