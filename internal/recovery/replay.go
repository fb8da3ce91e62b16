// Package recovery replays a log: it applies the records that wal.Recover delivers to the memtables
// of the trees, and derives the rows of change logs again.
package recovery

import (
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/cdc"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// Replay applies recovered records. It skips every mutation that the files of its tree hold, so it
// may begin anywhere below what is missing, and may be repeated. Memory stays in its budget: a
// memtable that fills up is flushed before replay goes on.
type Replay struct {
	Tables map[uint64]Table  // by id, change logs included
	Trees  []*partition.Tree // of all tables
	Memory Memory
	Issued *storeclock.Issued // raised to the times of commits
	// ReadOnly says that nothing is flushed.
	ReadOnly bool
	// Corrupt is matched by errors about records that no writer has written.
	Corrupt error

	LastSeq uint64 // at least every sequence number replayed
	// LastMicros is at least the time of every commit replayed.
	LastMicros int64
	Applied    int // mutations

	// into, if not nil, gets the insertions instead of the memtables.
	into   *[]Insertion
	change *row.Change // the one that is applied
	// shard is that of the latest mutation of a table with a change log, 0 if the log forgot it.
	shard uint64
}

// Table is a table to which mutations are applied.
type Table struct {
	// Trees are its partitions; nil for a change log, whose mutations in the log carry what
	// columns held before.
	Trees *partition.Map
	// Log is the open change log of the table, or the one that it is; nil if there is none.
	Log *Log
}

// Log is an open change log.
type Log struct {
	ID    uint64
	After uint64 // it has a record of each mutation with a larger sequence number
	// Shards say which partition a mutation went to. The partition that holds its key now may have
	// come from that one.
	Shards manifest.Lineage
	Tree   *partition.Tree
}

// lacks reports whether what a mutation adds to the change log, which may be nil, is not in its files.
func (l *Log) lacks(seq uint64) bool {
	return l != nil && seq > max(l.After, l.Tree.FlushedSeq())
}

// Memory is the memory budget of memtables.
type Memory interface {
	Add(bytes int64)
	// Crowded reports whether a memtable should be flushed although none is full.
	Crowded() bool
	// Rotated notes that a memtable of so many bytes waits to be flushed.
	Rotated(bytes int64)
	// Free gives memory back; waiting of the bytes were waiting to be flushed.
	Free(bytes, waiting int64)
}

// Record applies one record: a batch whose first sequence number is the record's position. Errors
// match Corrupt, or are those of a flush.
func (r *Replay) Record(rec wal.Record) error {
	if rec.Stream != row.LogStream {
		return fmt.Errorf("%w: log segment %d, offset %d: unknown stream %d", r.Corrupt, rec.Segment, rec.Offset, rec.Stream)
	}
	batch, err := row.NewBatchReader(rec.Payload)
	if err == nil {
		r.LastMicros = max(r.LastMicros, batch.Time())
		r.Issued.Raise(batch.Time() / 1000)
		_, err = r.batch(&batch, rec.Position, rec.Segment, batch.Time())
	}
	if errors.Is(err, row.ErrBadMutation) {
		err = fmt.Errorf("%w: log segment %d, offset %d: %w", r.Corrupt, rec.Segment, rec.Offset, err)
	}
	return err
}

// Insertions returns what the batch of an entry, whose first sequence number is first, adds to trees, and its
// last sequence number. Changes share memory with the batch. Errors match Corrupt or row.ErrBadMutation.
func (r *Replay) Insertions(batch *row.BatchReader, first uint64, micros int64) (all []Insertion, last uint64, err error) {
	r.into, r.change = &all, new(row.Change)
	last, err = r.batch(batch, first, 0, micros)
	return all, last, err
}

// batch applies the mutations of a batch, the first of which has the sequence number seq, and returns that of
// the last one.
func (r *Replay) batch(batch *row.BatchReader, seq, segment uint64, micros int64) (last uint64, err error) {
	if r.change == nil {
		r.change = new(row.Change)
	}
	for ; ; seq++ {
		more, err := batch.Next(r.change)
		if err != nil || !more {
			return seq - 1, err
		}
		r.LastSeq = max(r.LastSeq, seq)
		if err := r.apply(seq, segment, micros); err != nil {
			return seq, err
		}
	}
}

// Insertion is a mutation of at most Size bytes that goes to a tree.
type Insertion struct {
	Tree   *partition.Tree
	Change *row.Change
	Size   int64
	Seq    uint64
}

// apply inserts the change unless its table is gone or its tree's files hold it. It also inserts
// the record into the table's change log, if there is one. The change may itself be of a change
// log: then it carries what columns held before the mutation seq-1.
func (r *Replay) apply(seq, segment uint64, micros int64) error {
	c := r.change
	table, live := r.Tables[c.Table]
	log := table.Log
	switch {
	case !live, table.Trees == nil && !log.lacks(seq):
		return nil
	case table.Trees == nil:
		carried, err := cdc.Carried(c)
		if err != nil {
			return err
		}
		before, err := r.derive(log, cdc.NewBefore(carried), seq-1, micros)
		if err != nil {
			return err
		}
		before.Seq = seq // of what carries it
		return r.insert(segment, before)
	}
	tree := table.Trees.Find(c.Key)
	plain := Insertion{tree, c, memtable.EstimateSize(c), seq}
	if log != nil {
		r.shard = log.Shards.ShardOf(tree.ID(), c.Key, seq)
	}
	if !log.lacks(seq) {
		return r.insert(segment, plain)
	}
	record, err := r.derive(log, cdc.NewRecord(c), seq, micros)
	if err != nil {
		return err
	}
	return r.insert(segment, plain, record)
}

// derive makes what the latest mutation, seq, adds to a change log. An error matches Corrupt: the
// manifest forgot a shard whose records are not in the log's files.
func (r *Replay) derive(log *Log, e cdc.Entry, seq uint64, micros int64) (Insertion, error) {
	if r.shard == 0 {
		return Insertion{}, fmt.Errorf("%w: change log %d knows no shard of the mutation %d", r.Corrupt, log.ID, seq)
	}
	return Insertion{log.Tree, e.Change(log.ID, r.shard, seq, micros), e.Size(), seq}, nil
}

// makeRoom flushes a memtable if there is no room for a mutation of at most size bytes.
func (r *Replay) makeRoom(tree *partition.Tree, size int64, seq uint64) error {
	if seq <= tree.FlushedSeq() || r.ReadOnly {
		return nil
	}
	trees := []*partition.Tree{tree}
	if !tree.Full(size) {
		if !r.Memory.Crowded() {
			return nil
		}
		trees = partition.Heaviest(r.Trees)
	}
	for _, t := range trees {
		r.Memory.Rotated(t.Rotate(seq))
	}
	freed, _, err := partition.Flush(partition.Group{Trees: trees, UpTo: seq}, func(uint64, []*partition.Tree) (func() error, error) { return func() error { return nil }, nil })
	r.Memory.Free(freed, freed)
	return err
}

// insert applies mutations to those trees whose files do not hold them. It first makes room for
// all: a memtable that is rotated at a sequence number must not hold it.
func (r *Replay) insert(segment uint64, insertions ...Insertion) error {
	if r.into != nil {
		for _, i := range insertions {
			if i.Seq > i.Tree.FlushedSeq() {
				*r.into = append(*r.into, i)
				r.change = new(row.Change)
			}
		}
		return nil
	}
	for _, i := range insertions {
		if err := r.makeRoom(i.Tree, i.Size, i.Seq); err != nil {
			return err
		}
	}
	for _, i := range insertions {
		if i.Seq > i.Tree.FlushedSeq() {
			slot := i.Tree.Reserve(i.Size, segment, segment)
			spare, _ := slot.Apply(i.Seq, i.Change)
			slot.Done()
			r.Memory.Add(i.Size - spare)
			r.Applied++
		}
	}
	return nil
}
