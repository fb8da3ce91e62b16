package flagstone

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Flush moves everything that was written so far from memory and log to table files, and makes it
// durable.
func (s *Store) Flush(ctx context.Context) error {
	done, err := s.beginWork()
	if err != nil {
		return err
	}
	defer done()
	return s.flush(ctx)
}

func (s *Store) flush(ctx context.Context) error {
	trees, _ := s.rotateAll()
	for _, tree := range trees {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := s.flushTree(tree); err != nil {
			return s.describe(err)
		}
	}
	return s.describe(s.releaseLog())
}

// rotateAll rotates the memtables of all trees at one sequence number, the first that is in none
// of them, and returns it and the trees. It also schedules their flushes, since the caller may
// stop before it has flushed all.
func (s *Store) rotateAll() (trees []*partition.Tree, endSeq uint64) {
	s.pipeline.order.Lock()
	defer s.pipeline.order.Unlock()
	endSeq = s.pipeline.nextSeq
	for _, t := range s.allTables() {
		for _, tree := range t.partitions().Trees() {
			s.rotate(tree, endSeq)
			trees = append(trees, tree)
		}
	}
	return trees, endSeq
}

// Compact flushes, and compacts every tree down to one level. It takes as long as rewriting the
// store; ctx ends it between two compactions.
func (s *Store) Compact(ctx context.Context) error {
	done, err := s.beginWork()
	if err != nil {
		return err
	}
	defer done()
	if err := s.flush(ctx); err != nil {
		return err
	}
	for _, t := range s.allTables() {
		if err := s.compactTrees(ctx, t.partitions().Trees(), nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// Compact flushes, and compacts the table files that hold keys from start to end down to one
// level; end is excluded. Either may be a prefix of a key's values, with row.Min and row.Max in
// it, or nil, which is unbounded. ctx ends it between two compactions.
func (t *Table) Compact(ctx context.Context, start, end []row.Value) error {
	s := t.store
	done, err := s.beginWork()
	if err != nil {
		return err
	}
	defer done()
	var from, to []byte
	if start != nil {
		if from, err = t.encodeBound(nil, start); err != nil {
			return err
		}
	}
	if end != nil {
		if to, err = t.encodeBound(nil, end); err != nil {
			return err
		}
	}
	if err := t.gone(); err != nil {
		return err
	}
	if err := s.flush(ctx); err != nil {
		return err
	}
	return s.compactTrees(ctx, t.partitions().Between(from, to), from, to)
}

// compactTrees compacts the keys from start to end of trees down to one level.
func (s *Store) compactTrees(ctx context.Context, trees []*partition.Tree, start, end []byte) error {
	for _, tree := range trees {
		err := s.compactTree(ctx, tree, start, end)
		s.noteFiles(tree)
		s.scheduleCompaction(tree) // background compactions of the tree did nothing meanwhile
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) compactTree(ctx context.Context, tree *partition.Tree, start, end []byte) error {
	for more := true; more; {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, again, err := tree.CompactRange(start, end)
		if errors.Is(err, partition.ErrStale) {
			continue
		}
		if err != nil {
			return s.describe(err)
		}
		more = again
	}
	return nil
}

// Checkpoint makes dir a store that holds what this one holds now. dir must be empty or not
// exist. Table and value files are linked if the file system can, else copied; writes go on
// meanwhile.
func (s *Store) Checkpoint(ctx context.Context, dir string) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	done, err := s.beginWork()
	if err != nil {
		return err
	}
	defer done()
	if names, err := s.fs.List(dir); err == nil && len(names) > 0 {
		return fmt.Errorf("%w: checkpoint into %s, which is not empty", ErrInvalid, dir)
	}
	state, release, err := s.pinFlushed(ctx)
	if err != nil {
		return s.describe(err)
	}
	defer release()
	if err := manifest.LinkFiles(ctx, s.fs, s.dir, dir, state); err != nil {
		return s.describe(err)
	}
	copied := *state
	copied.MinLog, copied.NewestLog = 1, manifest.LogEnd{} // a checkpoint has no log
	rand.Read(copied.StoreID[:])
	return s.describe(manifest.CreateFrom(s.fs, dir, &copied))
}

// pinFlushed flushes everything and returns a state that holds exactly what was
// written before one moment, with its files pinned until release.
func (s *Store) pinFlushed(ctx context.Context) (state *manifest.State, release func(), err error) {
	// No table is made, changed or dropped meanwhile.
	if err := s.tables.Lock(ctx); err != nil {
		return nil, nil, err
	}
	defer s.tables.Unlock()
	s.flushGate.Lock()
	defer s.flushGate.Unlock()
	trees, endSeq := s.rotateAll()
	for _, tree := range trees {
		// Memtables rotated after endSeq belong to later writes.
		if err := s.flushUpTo(tree, endSeq); err != nil {
			return nil, nil, err
		}
	}
	for ctx.Err() == nil {
		state = s.state()
		if release, ok := pinVersions(trees, state); ok {
			return state, release, nil
		}
		// A compaction changed a tree in between; try again.
	}
	return nil, nil, ctx.Err()
}

// pinVersions pins the trees; ok says that the pinned files are those of the state.
func pinVersions(trees []*partition.Tree, state *manifest.State) (release func(), ok bool) {
	var pins []*partition.Pin
	release = func() {
		for _, p := range pins {
			p.Release()
		}
	}
	for _, tree := range trees {
		p := tree.Pin()
		pins = append(pins, p)
		_, meta := state.Partition(tree.ID())
		if meta != nil && meta != p.Meta() {
			release()
			return nil, false
		}
	}
	return release, true
}
