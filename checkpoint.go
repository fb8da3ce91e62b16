package flagstone

import (
	"context"
	"crypto/rand"
	"fmt"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Sync makes everything that was written so far durable in the log, which with SyncAlways it is already. With SyncNone it
// bounds what is lost if the machine dies. After an error the next call tries again, unless it matches ErrPoisoned. It
// does nothing if the log belongs to another program.
func (s *Store) Sync(ctx context.Context) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	return s.work(func() error { return s.pipeline.SyncContext(ctx) })
}

// Flush moves everything that was written so far from memory and log to table files, and makes it
// durable.
func (s *Store) Flush(ctx context.Context) error {
	return s.work(func() error { return s.upkeep.Flush(ctx) })
}

// Flush is Store.Flush for what was written to the table. Afterwards the log may still have some of it, as long as
// other tables need the log.
func (t *Table) Flush(ctx context.Context) error {
	if err := t.core.Gone(); err != nil {
		return err
	}
	return t.store.work(func() error { return t.store.upkeep.Flush(ctx, t.core.Trees()...) })
}

// Compact flushes, and compacts every tree down to one level. It takes as long as rewriting the
// store; ctx ends it between two compactions.
func (s *Store) Compact(ctx context.Context) error {
	return s.compact(ctx, func() []*partition.Tree { return s.tables.trees(false) }, nil, nil)
}

// compact flushes, and compacts trees from a key, inclusive, to another one, exclusive.
func (s *Store) compact(ctx context.Context, trees func() []*partition.Tree, from, to []byte) error {
	return s.work(func() error {
		if err := s.upkeep.Flush(ctx); err != nil {
			return err
		}
		return s.upkeep.Compact(ctx, trees(), from, to)
	})
}

// Compact flushes, and compacts the table files that hold keys from start to end down to one
// level; end is excluded. Either may be a prefix of a key's values, with row.Min and row.Max in
// it, or nil, which is unbounded. ctx ends it between two compactions.
func (t *Table) Compact(ctx context.Context, start, end []row.Value) (err error) {
	var from, to []byte
	if start != nil {
		from, err = t.core.EncodeBound(nil, start)
	}
	if end != nil && err == nil {
		to, err = t.core.EncodeBound(nil, end)
	}
	if err == nil {
		err = t.core.Gone()
	}
	if err != nil {
		return err
	}
	return t.store.compact(ctx, func() []*partition.Tree { return t.core.Partitions.Load().Between(from, to) }, from, to)
}

// Checkpoint makes dir a store that holds what this one holds now. dir must be empty or not
// exist. Table and value files are linked if the file system can, else copied; writes go on
// meanwhile. After an error dir may have files: delete them before another try.
func (s *Store) Checkpoint(ctx context.Context, dir string) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	return s.work(func() error { return s.checkpoint(ctx, dir) })
}

func (s *Store) checkpoint(ctx context.Context, dir string) error {
	if dir == "" {
		return fmt.Errorf("%w: checkpoint without a directory", ErrInvalid)
	}
	if names, err := s.fs.List(dir); err == nil && len(names) > 0 {
		return fmt.Errorf("%w: checkpoint into %s, which is not empty", ErrInvalid, dir)
	}
	var before manifest.LogPoint
	var segment uint64 // what is written from here on lies in it, or in a later one
	if s.external != nil {
		before = s.pipeline.At()
	} else if s.log != nil {
		segment = s.log.Newest()
	}
	state, release, err := s.pinFlushed(ctx)
	if err != nil {
		return err
	}
	defer release()
	if err := manifest.LinkFiles(ctx, s.fs, s.dir, dir, state); err != nil {
		return err
	}
	copied := *state
	copied.MinLog, copied.NewestLog = 1, manifest.LogEnd{} // a checkpoint has no log
	copied.Kept, copied.Origin = manifest.KeptLog{}, manifest.LogOrigin{StoreID: state.StoreID}
	if state.Kept.From != 0 {
		copied.Origin.Segment, copied.Origin.Changes = segment, state.Kept.Changes
	}
	if s.external != nil { // all that was applied before is in its files
		copied.External = &manifest.External{LogPoint: before, Highest: max(state.External.Highest, before.Index)}
		copied.LastSeq = max(copied.LastSeq, before.Seq)
	}
	rand.Read(copied.StoreID[:])
	return manifest.Create(s.fs, dir, &copied)
}

// pinFlushed flushes everything and returns a state that holds exactly what was written before one moment,
// with its files pinned until release.
func (s *Store) pinFlushed(ctx context.Context) (state *manifest.State, release func(), err error) {
	// No table is made, changed or dropped meanwhile.
	if err := s.tables.Lock(ctx); err != nil {
		return nil, nil, err
	}
	defer s.tables.Unlock()
	return s.upkeep.PinFlushed(ctx, s.state)
}
