package flagstone

import (
	"context"
	"errors"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/wal"
)

// recover rebuilds the memtables from the log and begins a new log segment. A crash during
// recovery does no harm: see recovery.Replay.
func (s *Store) recover(ctx context.Context) error {
	state := s.state()
	s.issued.Raise(state.IssuedMillis)
	inventory, err := manifest.CheckFiles(s.fs, s.dir, state)
	if err == nil && !s.opts.ReadOnly {
		err = errors.Join(s.manifest.ClearFiles(inventory), s.mover.Clear())
	}
	if err != nil {
		return err
	}
	if s.external != nil {
		s.external.Follow(external.Parts{
			Env: externalEnv{rebalanceEnv{s}}, Pipeline: s.pipeline, Upkeep: s.upkeep, Rebalancer: s.rebalancer, Issued: s.issued,
			Propose: s.opts.External.Propose,
		}, state)
		return nil
	}
	opts := wal.Options{
		FS: s.fs, Dir: filepath.Join(s.dir, manifest.WALDir),
		SegmentSize: s.opts.WALSegmentSize, Sync: s.opts.Sync == SyncAlways, Compress: wal.Compression(s.opts.LogCompression),
		StoreID: state.StoreID, Logger: s.opts.Logger, Memory: s.offheap,
		Newest: wal.End(state.NewestLog), Begun: s.logBegun, Elapsed: s.clock.Elapsed, Keep: state.Kept.From, EagerSegments: s.opts.eagerSegments,
	}
	if s.opts.Sync == SyncNone {
		opts.Gathered = s.pipeline.HandOverSoon
	}
	if err := s.carryOver(ctx, &opts, state.KnownSegment()); err != nil {
		return err
	}
	r := recovery.Replay{
		Tables: s.tables.current.Load().replayed(), Trees: s.tables.trees(false), Memory: s.gate, Issued: s.issued, ReadOnly: s.opts.ReadOnly,
		Corrupt: ErrCorrupt, LastSeq: state.LastSeq, LastMicros: s.issued.LastMicros(),
	}
	result, err := wal.Recover(opts, state.KnownSegment(), s.watched(ctx, r.Record))
	if err != nil {
		return err
	}
	if s.opts.replay != nil {
		if err := s.opts.replay(&r); err != nil {
			return err
		}
	}
	s.pipeline.Recovered(r.LastSeq, r.LastMicros)
	if result.Records > 0 {
		s.opts.Logger.Info("log recovered", "records", result.Records, "bytes", result.Bytes, "applied", r.Applied)
	}
	if s.opts.ReadOnly {
		return nil
	}
	if s.log == nil {
		if s.log, err = wal.NewWriter(opts, result); err != nil {
			return err
		}
	}
	if kept, oldest := state.Kept.From, s.log.Oldest(); kept != 0 && kept < oldest {
		s.opts.Logger.Error("segments of the log that were kept are missing: restores to moments after them need another backup", "first", kept, "next", oldest)
	}
	s.pipeline.Start(s.log)
	return nil
}

// watched is a callback of wal.Recover that ends with the context, and logs the progress of a long
// recovery.
func (s *Store) watched(ctx context.Context, take func(wal.Record) error) func(wal.Record) error {
	const (
		every = 5 * time.Second
		look  = 64 // records between two readings of the clock
	)
	records, next := 0, s.clock.Elapsed()+every
	return func(rec wal.Record) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		if records++; records%look == 0 && s.clock.Elapsed() >= next {
			next = s.clock.Elapsed() + every
			s.opts.Logger.Info("recovering the log", "records", records, "segment", rec.Segment, "newest", s.state().NewestLog.Segment)
		}
		return take(rec)
	}
}

// replayed describes the tables to which a replay applies mutations. A change log that has ended
// takes none.
func (c *catalog) replayed() map[uint64]recovery.Table {
	tables := map[uint64]recovery.Table{}
	for _, t := range c.byID {
		if t.core.LogOf != 0 {
			continue
		}
		table := recovery.Table{Trees: t.core.Partitions.Load()}
		if log := t.core.Log.Load(); log != nil {
			table.Log = &recovery.Log{ID: log.ID, After: log.LogAfter, Shards: log.Meta().Log.Shards, Tree: log.LogTree()}
			tables[log.ID] = recovery.Table{Log: table.Log}
		}
		tables[t.core.ID] = table
	}
	return tables
}

// carryOver checks the log and makes all of it durable, before anything of it is used. The
// process that wrote it may have died with records in the page cache only; after a failed sync
// they may be in pages that no later sync writes. If replay flushed half of such a batch to a
// table file, that half could survive a crash alone. So records that are not known to be on the
// disk are first written to a new segment. If there are none, recover begins the new segment
// last, after all else in it that can fail.
func (s *Store) carryOver(ctx context.Context, opts *wal.Options, known uint64) error {
	if s.opts.ReadOnly {
		return nil
	}
	found, err := wal.Recover(*opts, known, s.watched(ctx, func(wal.Record) error { return nil }))
	if err != nil || found.Durable() {
		return err
	}
	if s.log, err = wal.NewWriter(*opts, found); err != nil {
		return err
	}
	opts.Logger = nil // the first pass has logged everything about the log
	opts.Newest = wal.End(s.state().NewestLog)
	return nil
}

// logBegun names a segment in the manifest, before anything in it is acknowledged.
func (s *Store) logBegun(segment uint64) error {
	err := s.commitSegment(segment)
	if err == nil {
		s.events.Note(event.Event{Kind: event.LogSegment, Segment: segment})
	}
	return err
}

// closeLog closes the log, and records its end and the clock in the manifest. Of an external log it records what
// was applied.
func (s *Store) closeLog() error {
	var e manifest.Edit
	if s.log != nil {
		if err := s.log.Close(); err != nil {
			return err
		}
		e.NewestLog = manifest.LogEnd(s.log.End())
	}
	if s.pipeline.Failed() != nil {
		return nil
	}
	_, err := s.commitEdit(&e)
	return err
}
