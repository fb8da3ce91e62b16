package flagstone

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// recover rebuilds the memtables from the log and begins a new log segment. It skips every
// mutation that the partitions' files hold, so replay may begin anywhere below what is missing,
// and may be repeated after a crash during recovery. Memory stays in its budget: a memtable that
// fills up is flushed before replay goes on.
func (s *Store) recover() error {
	state := s.state()
	s.issued.raise(state.IssuedMillis)
	if err := s.clearFiles(); err != nil {
		return err
	}
	opts := wal.Options{
		FS: s.fs, Dir: s.logDir(),
		SegmentSize: s.opts.WALSegmentSize, Sync: s.opts.Sync == SyncAlways,
		StoreID: state.StoreID, Logger: s.opts.Logger, Memory: s.offheap,
		Newest: newestLog(state), Begun: s.logBegun, Elapsed: s.clock.Elapsed,
	}
	if s.opts.Sync == SyncNone {
		opts.Gathered = s.logGathered
	}
	if err := s.carryOver(&opts, knownSegment(state)); err != nil {
		return err
	}
	r := replay{store: s, lastSeq: state.LastSeq, lastMicros: endOfMilli(s.issued.last.Load())}
	result, err := wal.Recover(opts, knownSegment(state), r.record)
	if err != nil {
		return err
	}
	s.pipeline.nextSeq, s.pipeline.lastMicros = r.lastSeq+1, r.lastMicros
	s.pipeline.queue.Init(r.lastSeq)
	if result.Records > 0 {
		s.opts.Logger.Info("log recovered", "records", result.Records, "bytes", result.Bytes, "applied", r.applied)
	}
	if s.opts.ReadOnly || s.log != nil {
		return nil
	}
	s.log, err = wal.NewWriter(opts, result)
	return err
}

// carryOver checks the log and makes all of it durable, before anything of it is used. The
// process that wrote it may have died with records in the page cache only; after a failed sync
// they may be in pages that no later sync writes. If replay flushed half of such a batch to a
// table file, that half could survive a crash alone. So records that are not known to be on the
// disk are first written to a new segment. If there are none, recover begins the new segment
// last, after all else in it that can fail.
func (s *Store) carryOver(opts *wal.Options, known uint64) error {
	if s.opts.ReadOnly {
		return nil
	}
	found, err := wal.Recover(*opts, known, func(wal.Record) error { return nil })
	if err != nil || found.Durable() {
		return err
	}
	if s.log, err = wal.NewWriter(*opts, found); err != nil {
		return err
	}
	opts.Logger = nil // the first pass has logged everything about the log
	opts.Newest = newestLog(s.state())
	return nil
}

func (s *Store) logDir() string { return filepath.Join(s.dir, manifest.WALDir) }

// knownSegment is the log segment that must exist, 0 if none was ever recorded: a new store may
// have crashed before its first segment.
func knownSegment(state *manifest.State) uint64 {
	if state.MinLog <= 1 {
		return 0
	}
	return state.MinLog
}

// newestLog is what the manifest knows of the end of the log.
func newestLog(state *manifest.State) wal.End {
	end := state.NewestLog
	return wal.End{Segment: end.Segment, Offset: int64(end.Offset), Records: end.Records, Chain: end.Chain}
}

// logBegun names a segment in the manifest, before anything in it is acknowledged.
func (s *Store) logBegun(segment uint64) error {
	var e manifest.Edit
	e.SetNewestLog(manifest.LogEnd{Segment: segment})
	_, err := s.commitEdit(&e)
	return err
}

// closeLog closes the log, and records its end and the clock in the manifest.
func (s *Store) closeLog() error {
	if err := s.log.Close(); err != nil || s.pipeline.failed.Load() != nil {
		return err
	}
	end := s.log.End()
	var e manifest.Edit
	e.SetNewestLog(manifest.LogEnd{
		Segment: end.Segment, Offset: uint64(end.Offset), Records: end.Records, Chain: end.Chain,
	})
	_, err := s.commitEdit(&e)
	return err
}

// replay applies recovered records.
type replay struct {
	store   *Store
	lastSeq uint64
	// lastMicros is at least the time of every commit replayed.
	lastMicros int64
	applied    int // mutations
	change     row.Change
	// shard is the partition of the latest mutation.
	shard uint64
}

// record applies one record: a batch whose first sequence number is the record's position.
func (r *replay) record(rec wal.Record) error {
	if rec.Stream != stream {
		return fmt.Errorf("%w: log segment %d, offset %d: unknown stream %d", ErrCorrupt, rec.Segment, rec.Offset, rec.Stream)
	}
	batch, err := row.NewBatchReader(rec.Payload)
	if err == nil {
		r.lastMicros = max(r.lastMicros, batch.Time())
		r.store.issued.raise(batch.Time() / 1000)
		err = r.batch(&batch, rec)
	}
	if errors.Is(err, row.ErrBadMutation) {
		err = fmt.Errorf("%w: log segment %d, offset %d: %w", ErrCorrupt, rec.Segment, rec.Offset, err)
	}
	return err
}

func (r *replay) batch(batch *row.BatchReader, rec wal.Record) error {
	for seq := rec.Position; ; seq++ {
		more, err := batch.Next(&r.change)
		if err != nil || !more {
			return err
		}
		r.lastSeq = max(r.lastSeq, seq)
		if err := r.apply(seq, rec.Segment, batch.Time()); err != nil {
			return err
		}
	}
}

// apply inserts the change unless its table is gone or its partition's files hold it. It also
// inserts the record into the table's change log, if there is one.
func (r *replay) apply(seq, segment uint64, micros int64) error {
	c := &r.change
	table := r.store.catalog().byID[c.Table]
	if table == nil {
		return nil
	}
	if table.logOf != 0 {
		return r.before(table, seq, segment, micros)
	}
	tree, size := table.partitions().Find(c.Key), memtable.EstimateSize(c)
	r.shard = tree.ID()
	if err := r.makeRoom(tree, size, seq); err != nil {
		return err
	}
	var rec *record
	if log := table.log.Load(); log != nil && seq > log.logAfter {
		rec = newRecord(log, c)
		// Before the change is inserted: a memtable that is rotated at seq must not hold seq.
		if err := r.makeRoom(rec.tree(), rec.size(), seq); err != nil {
			return err
		}
	}
	r.insert(tree, size, seq, segment, func(slot partition.Slot) int64 {
		spare, _ := slot.Apply(seq, c)
		return spare
	})
	if rec != nil {
		r.insertRecord(rec, seq, seq, segment, micros)
	}
	return nil
}

// before inserts what columns held before the mutation seq-1, unless the change log has ended.
func (r *replay) before(log *Table, seq, segment uint64, micros int64) error {
	of := r.store.catalog().byID[log.logOf]
	if of == nil || of.log.Load() != log || seq <= log.logAfter {
		return nil
	}
	bytes, err := beforeBytes(&r.change)
	if err != nil {
		return err
	}
	rec := newLogEntry(log, beforeCells, bytes)
	if err := r.makeRoom(rec.tree(), rec.size(), seq); err != nil {
		return err
	}
	r.insertRecord(rec, seq-1, seq, segment, micros)
	return nil
}

// insertRecord inserts the record of the mutation seq, under the sequence number at.
func (r *replay) insertRecord(rec *record, seq, at, segment uint64, micros int64) {
	r.insert(rec.tree(), rec.size(), at, segment, func(slot partition.Slot) int64 {
		spare, _ := slot.Apply(at, rec.change(r.shard, seq, micros))
		return spare
	})
}

// makeRoom flushes a memtable if there is no room for a mutation of at most size bytes.
func (r *replay) makeRoom(tree *partition.Tree, size int64, seq uint64) error {
	s := r.store
	if seq <= tree.FlushedSeq() || s.opts.ReadOnly {
		return nil
	}
	if !tree.Full(size) {
		if !s.gate.Crowded() {
			return nil
		}
		tree = s.largestMemtable()
	}
	s.gate.Rotated(tree.Rotate(seq))
	freed, err := tree.Flush(row.MaxSequence, func(uint64) (func() error, error) { return func() error { return nil }, nil })
	s.gate.Free(freed, freed)
	return err
}

// insert applies a mutation of at most size bytes to a tree, unless the tree's files hold it.
func (r *replay) insert(tree *partition.Tree, size int64, seq, segment uint64, apply func(partition.Slot) (spare int64)) {
	if seq <= tree.FlushedSeq() {
		return
	}
	r.store.gate.Add(size - apply(tree.Reserve(size, segment)))
	r.applied++
}
