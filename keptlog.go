package flagstone

// Keeping the log for restores to a moment between two backups, and replaying it behind a checkpoint. docs/backup.md
// says how both are used.

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// KeptLog is a part of the log of a store that keeps it.
type KeptLog struct {
	StoreID [16]byte
	// Dir is the directory of the segments, within that of the store.
	Dir string
	// From and Until bound the segments, of which Until is not one. They are closed, and wal.Read reads them.
	From, Until uint64
	// Micros is a time, in microseconds since the epoch: every commit up to it lies in a segment below Until.
	Micros int64
	// Changes counts the changes that the log does not carry, and Notes are of the last ones.
	Changes uint64
	Notes   []LogNote
}

// LogNote is a change that the log does not carry.
type LogNote struct {
	Number uint64 // Changes, with this one
	Micros int64  // its time; no commit that follows it is earlier
	What   string // for people
	Edit   []byte // makes the change, see ReplayLog; empty if a replay cannot make it
}

// KeepLog makes the store keep the segments of its log that it does not need any more, until LogShipped gives them up,
// also when it is opened again. Beyond limit bytes, and one segment, it gives up the oldest ones, and logs that. A
// limit of 0 ends the keeping. The error matches ErrInvalid if the log belongs to another program.
func (s *Store) KeepLog(ctx context.Context, limit int64) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	if s.log == nil || limit < 0 {
		return fmt.Errorf("%w: keep %d bytes of the log of %s; the limit must not be negative, and the log not that of another program", ErrInvalid, limit, s.dir)
	}
	return s.work(func() error {
		keep := &manifest.LogKeeping{Limit: limit}
		switch {
		case limit == 0:
			keep.Limit = -1
		case s.state().Kept.From == 0:
			keep.From = s.log.Newest()
			err := s.log.Keep(keep.From, limit)
			if err == nil { // a segment that is not durable may begin anew after a power cut, under the same number
				_, err = s.log.Rotate()
			}
			if err != nil {
				return errors.Join(err, s.keep(nil, 0))
			}
		}
		return s.keep(keep, 0)
	})
}

// keep changes what is kept, and notes up to when it was shipped. The log spares segments before the manifest says that
// they are kept.
func (s *Store) keep(k *manifest.LogKeeping, micros int64) (err error) {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	if k != nil {
		if s.state().Kept.From == 0 && k.From > 0 {
			if err := s.log.Keep(k.From, k.Limit); err != nil {
				return err
			}
		}
		_, err = s.commitEdit(&manifest.Edit{Keep: k})
	}
	kept := s.state().Kept
	err = errors.Join(err, s.log.Keep(kept.From, kept.Limit))
	if err == nil {
		s.shipped.Store(max(s.shipped.Load(), micros)) // of two that ship, one may be late
	}
	return err
}

// KeptLog closes the current segment of the log, unless it is empty, and returns what is kept. The error matches
// ErrInvalid if the log is not kept.
func (s *Store) KeptLog(ctx context.Context) (k KeptLog, err error) {
	if err := s.mayChange(ctx); err != nil {
		return k, err
	}
	return k, s.work(func() error {
		if s.state().Kept.From == 0 {
			return fmt.Errorf("%w: %s does not keep its log", ErrInvalid, s.dir)
		}
		_, at, err := s.pipeline.Barrier(ctx, s.issued.Micros()) // later commits may have the same time, and no earlier one
		if err != nil {
			return err
		}
		until, err := s.log.Rotate()
		if err != nil {
			return err
		}
		state, err := s.commitEdit(new(manifest.Edit)) // no commit is earlier also after a restart
		if err != nil {
			return err
		}
		k = KeptLog{
			StoreID: state.StoreID, Dir: manifest.WALDir, From: min(max(state.Kept.From, s.log.Oldest()), until), Until: until,
			Micros: at - 1, Changes: state.Kept.Changes,
		}
		for _, n := range state.Kept.Notes {
			k.Notes = append(k.Notes, LogNote(*n))
		}
		return nil
	})
}

// LogShipped gives up what KeptLog returned.
func (s *Store) LogShipped(ctx context.Context, k KeptLog) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	state := s.state()
	if k.StoreID != state.StoreID || s.log == nil || k.Until > s.log.NewestOnDisk() {
		return fmt.Errorf("%w: no log of the store in %s was shipped", ErrInvalid, s.dir)
	}
	keep := &manifest.LogKeeping{From: k.Until, Noted: k.Changes}
	if k.Until <= state.Kept.From && k.Changes == state.Kept.Changes && len(state.Kept.Notes) == 0 {
		keep = nil // an idle store commits nothing, and its log gives back spares
	}
	return s.work(func() error { return s.keep(keep, k.Micros) })
}

// commitSegment notes in the manifest that a segment has begun, and gives up others that are beyond the limit.
func (s *Store) commitSegment(segment uint64) error {
	s.keeping.Lock()
	defer s.keeping.Unlock()
	first, keep := s.state().Kept.From, s.overLimit()
	state, err := s.commitEdit(&manifest.Edit{NewestLog: manifest.LogEnd{Segment: segment}, Keep: keep})
	if err != nil || keep == nil {
		return err
	}
	lost := s.log.ClosedBytes(first) - s.log.ClosedBytes(state.Kept.From)
	s.lost.Add(lost)
	s.opts.Logger.Error("segments of the log are given up that were not shipped: restores to moments after them need another backup",
		"first", first, "next", state.Kept.From, "bytes", lost, "limit", state.Kept.Limit)
	if err := s.log.Keep(state.Kept.From, state.Kept.Limit); err != nil { // its files go at the next Open
		s.opts.Logger.Warn("cannot remove segments of the log that were given up", "error", err)
	}
	return nil
}

// overLimit returns the first segment that is still kept if the log has outgrown what may be kept, else nil. Callers hold
// keeping.
func (s *Store) overLimit() *manifest.LogKeeping {
	kept := s.state().Kept
	if kept.From == 0 || s.log == nil {
		return nil
	}
	from := s.log.Within(kept.Limit)
	if from <= kept.From {
		return nil
	}
	return &manifest.LogKeeping{From: from}
}

// ReplayLog brings the store in dir, a checkpoint that was not opened since, up to a moment. It first makes the
// changes, which are those of notes, ascending. Then it calls records, which calls apply for each batch of the
// log behind LogOrigin, in order, with the sequence number of its first mutation. What the checkpoint has already is
// skipped. After an error the store is of no use. Errors match ErrCorrupt, or are those of Open or records.
func ReplayLog(ctx context.Context, dir string, changes [][]byte, records func(apply func(first uint64, batch []byte) error) error, opts Options) error {
	opts.Sync, opts.PartitionSplitSize = SyncNone, -1
	full, err := opts.withDefaults()
	if err != nil {
		return err
	}
	if err := repeatChanges(full, dir, changes); err != nil {
		return fmt.Errorf("repeat the changes of tables in %s: %w", dir, err)
	}
	opts.replay = func(r *recovery.Replay) error {
		last := uint64(0)
		return records(func(first uint64, batch []byte) error {
			if err := ctx.Err(); err != nil {
				return err
			}
			if first <= last {
				return nil // two parts of the log overlap
			}
			last = first
			// Segment 1 is that of the store's own log, which begins behind the replay.
			return r.Record(wal.Record{Stream: row.LogStream, Segment: 1, Position: first, Payload: batch})
		})
	}
	s, err := Open(dir, opts)
	if err != nil {
		return err
	}
	return errors.Join(s.Flush(ctx), s.Close())
}

// repeatChanges commits edits to the manifest of a store that is not open.
func repeatChanges(opts Options, dir string, changes [][]byte) (err error) {
	log, _, err := manifest.Open(opts.Seams.FS, dir, opts.Logger)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	for _, b := range changes {
		e, err := manifest.DecodeEdit(b)
		if err == nil {
			_, err = log.Commit(e)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
