package upkeep

// Flushing, and releasing the log behind what was flushed.

import (
	"cmp"
	"context"
	"errors"
	"iter"
	"slices"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// FlushDue schedules the flush of what waits in the trees of a table. One job flushes all of them,
// since they can share files.
func (u *Upkeep) FlushDue(tree *partition.Tree) {
	table := tree.Table()
	u.Jobs.Submit(jobs.Kind{Class: executor.Flush, Of: table, Name: "flush"}, func() error {
		trees := slices.DeleteFunc(u.Env.Trees(), func(t *partition.Tree) bool { return t.Table() != table })
		if err := u.flushAll(context.Background(), trees, row.MaxSequence); err != nil {
			return err
		}
		return u.releaseLog()
	})
}

// flushAll flushes the memtables of trees that wait and end at most at upTo.
func (u *Upkeep) flushAll(ctx context.Context, trees []*partition.Tree, upTo uint64) error {
	for {
		trees = partition.Present(trees)
		err := error(nil)
		for _, group := range partition.Together(trees, upTo) {
			if err = cmp.Or(ctx.Err(), err); err == nil {
				err = u.flush(group)
			}
		}
		// A tree that was replaced meanwhile may have looked empty.
		replaced := slices.ContainsFunc(trees, func(t *partition.Tree) bool { return t.Successors() != nil })
		if err == nil && !replaced || err != nil && !errors.Is(err, partition.ErrReplaced) {
			return err
		}
	}
}

// flush flushes a group that waits, and lets its trees compact themselves. The caller then releases
// the log. It is ErrReplaced if trees of the group were replaced.
func (u *Upkeep) flush(group partition.Group) error {
	u.flushing.RLock()
	defer u.flushing.RUnlock()
	if err := u.flushGroup(group); err != nil {
		return err
	}
	for _, tree := range group.Trees {
		u.NoteFiles(tree)
		u.watch(tree)
		u.CompactionDue(tree)
		u.Env.Flushed(tree)
	}
	return nil
}

// flushGroup flushes what waits now. What is rotated meanwhile has a job of its own: otherwise busy
// writers could keep this call from ever returning.
func (u *Upkeep) flushGroup(group partition.Group) error {
	settle := func(endSeq uint64, flushed []*partition.Tree) (durable func() error, err error) {
		holders := func(segment uint64) (flush, others bool) {
			holds := func(t *partition.Tree) bool { return t.Holds(endSeq, segment) }
			rest := slices.DeleteFunc(u.Env.LogTrees(), func(t *partition.Tree) bool { return slices.Contains(flushed, t) })
			return slices.ContainsFunc(flushed, holds), slices.ContainsFunc(rest, holds)
		}
		return u.Pipeline.Settle(endSeq, holders, u.Executor.Beside)
	}
	for {
		began := u.Clock.Elapsed()
		freed, did, err := partition.Flush(group, settle)
		u.Gate.Flushed(freed, u.Clock.Elapsed()-began)
		u.Gate.Free(freed, freed)
		if errors.Is(err, partition.ErrStale) {
			continue
		}
		if did || err != nil && !errors.Is(err, partition.ErrReplaced) {
			u.Gate.NoteFlush(err)
		}
		return err
	}
}

// Flush moves everything that was written so far to trees, or to all trees if none is given, from memory
// and log to table files, and makes it durable.
func (u *Upkeep) Flush(ctx context.Context, trees ...*partition.Tree) error {
	trees, endSeq := u.Pipeline.Rotate(trees...)
	if err := u.flushAll(ctx, trees, endSeq); err != nil {
		return err
	}
	return u.releaseLog()
}

// AtOneMoment flushes everything that was written before one moment and calls f with the trees,
// while no table file holds anything that was written later. REQUIRES: no table is made, changed
// or dropped meanwhile.
func (u *Upkeep) AtOneMoment(f func(trees []*partition.Tree) error) error {
	u.flushing.Lock()
	defer u.flushing.Unlock()
	trees, endSeq := u.Pipeline.Rotate()
	for _, group := range partition.Together(trees, endSeq) { // what is rotated after endSeq belongs to later writes
		if err := u.flushGroup(group); err != nil {
			return err
		}
	}
	return f(trees)
}

// PinFlushed returns a state of the store that holds exactly what was written before one moment, all of it in
// files, which are pinned until release. REQUIRES: no table is made, changed or dropped meanwhile.
func (u *Upkeep) PinFlushed(ctx context.Context, state func() *manifest.State) (pinned *manifest.State, release func(), err error) {
	err = u.AtOneMoment(func(trees []*partition.Tree) error {
		for ctx.Err() == nil {
			ok := false
			pinned = state()
			if release, ok = pinVersions(trees, pinned); ok {
				return nil
			}
			// A compaction changed a tree in between; try again.
		}
		return ctx.Err()
	})
	return pinned, release, err
}

// pinVersions pins the trees; ok says that the pinned files are those of the state.
func pinVersions(trees []*partition.Tree, state *manifest.State) (release func(), ok bool) {
	var pins []func()
	release = func() {
		for _, unpin := range pins {
			unpin()
		}
	}
	for _, tree := range trees {
		pinned, unpin := tree.Pin()
		pins = append(pins, unpin)
		_, meta := state.Partition(tree.ID())
		if meta != nil && meta != pinned {
			release()
			return nil, false
		}
	}
	return release, true
}

// FlushUpTo flushes what memtables hold of the entries of an external log up to an index, and what came with it.
// REQUIRES: these entries were applied.
func (u *Upkeep) FlushUpTo(ctx context.Context, index uint64) error {
	u.Pipeline.Mark() // what comes meanwhile is behind it
	trees := slices.DeleteFunc(u.Env.Trees(), func(t *partition.Tree) bool {
		mark := t.OldestSegment()
		return mark == 0 || u.Pipeline.MarkIndex(mark) >= index
	})
	if len(trees) > 0 {
		return u.Flush(ctx, trees...)
	}
	return u.releaseLog()
}

// releaseLog releases the log segments that hold nothing unflushed, or records up to which entry of an
// external log nothing is needed any more. The manifest is changed
// first: if a segment that it needs is missing, the store is damaged.
func (u *Upkeep) releaseLog() error {
	newest := u.Pipeline.Mark
	if u.log != nil {
		newest = u.Pipeline.NewestSegment
	}
	oldest := oldestNeeded(newest, func(yield func(oldest uint64) bool) {
		for _, tree := range u.Env.LogTrees() {
			if !yield(tree.OldestSegment()) {
				return
			}
		}
	})
	if u.log == nil {
		durable := u.Pipeline.Release(oldest)
		if durable.Index <= u.Env.DurableIndex() {
			return nil
		}
		return u.Env.Commit(&manifest.Edit{External: &manifest.External{LogPoint: durable}})
	}
	if oldest <= u.Env.MinLog() {
		return nil
	}
	if err := u.Env.Commit(&manifest.Edit{MinLog: oldest}); err != nil {
		return err
	}
	return u.log.Release(oldest)
}

// oldestNeeded is the oldest log segment that is still needed. newest returns the newest one that
// has a file; trees yields, for each tree, the oldest one that holds something of its memtables, or
// 0.
//
// newest is called between two writes, before the trees are read: what is written after that goes to that
// segment or a later one, and the manifest must not name a segment before it has a file.
func oldestNeeded(newest func() uint64, trees iter.Seq[uint64]) uint64 {
	oldest := newest()
	for segment := range trees {
		if segment != 0 {
			oldest = min(oldest, segment)
		}
	}
	return oldest
}
