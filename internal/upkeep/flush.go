package upkeep

// Flushing, and releasing the log behind what was flushed.

import (
	"context"
	"errors"
	"iter"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// FlushDue schedules the flush of a tree.
func (u *Upkeep) FlushDue(tree *partition.Tree) {
	u.Jobs.Submit(jobs.Kind{Class: executor.Flush, Of: tree, Name: "flush"}, func() error {
		if err := u.flushTree(tree); err != nil {
			return err
		}
		return u.releaseLog()
	})
}

// flushTree flushes the memtables that wait when it begins, and lets the tree compact itself. The
// caller then releases the log.
func (u *Upkeep) flushTree(tree *partition.Tree) error {
	u.flushing.RLock()
	defer u.flushing.RUnlock()
	return u.flushed(tree)
}

// flushed is flushTree, and goes on to the trees that replaced the tree. REQUIRES: flushing is held.
func (u *Upkeep) flushed(tree *partition.Tree) error {
	err := u.flushUpTo(tree, row.MaxSequence)
	if errors.Is(err, partition.ErrReplaced) {
		for _, next := range tree.Successors() {
			if err := u.flushed(next); err != nil {
				return err
			}
		}
		return nil
	}
	if err != nil {
		return err
	}
	u.NoteFiles(tree)
	u.watch(tree)
	u.CompactionDue(tree)
	return nil
}

// flushUpTo flushes the memtables of a tree that wait now and were rotated at sequence numbers up
// to upTo. A memtable that is rotated meanwhile has a job of its own: otherwise busy writers
// could keep this call from ever returning. It is ErrReplaced if the tree has successors.
func (u *Upkeep) flushUpTo(tree *partition.Tree, upTo uint64) error {
	settle := func(endSeq uint64) (durable func() error, err error) {
		return u.Pipeline.Settle(endSeq, u.Executor.Beside)
	}
	for {
		began := u.Clock.Elapsed()
		freed, did, err := tree.Flush(upTo, settle)
		u.Gate.Flushed(freed, u.Clock.Elapsed()-began)
		u.Gate.Free(freed, freed)
		if stale(tree, err) {
			continue
		}
		if replaced := errors.Is(err, partition.ErrReplaced); did || err != nil && !replaced {
			u.Gate.NoteFlush(err)
		}
		return err
	}
}

// Flush moves everything that was written so far to trees, or to all trees if none is given, from memory
// and log to table files, and makes it durable.
func (u *Upkeep) Flush(ctx context.Context, trees ...*partition.Tree) error {
	trees, _ = u.Pipeline.Rotate(trees...)
	for _, tree := range trees {
		if err := ctx.Err(); err != nil {
			return err
		}
		if err := u.flushTree(tree); err != nil {
			return err
		}
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
	for _, tree := range trees {
		// Memtables rotated after endSeq belong to later writes.
		if err := u.flushUpTo(tree, endSeq); err != nil {
			return err
		}
	}
	return f(trees)
}

// releaseLog releases the log segments that hold nothing unflushed. The manifest is changed
// first: if a segment that it needs is missing, the store is damaged.
func (u *Upkeep) releaseLog() error {
	oldest := oldestNeeded(u.log.NewestOnDisk, func(yield func(oldest uint64) bool) {
		for _, tree := range u.Env.LogTrees() {
			if !yield(tree.OldestSegment()) {
				return
			}
		}
	})
	if oldest <= u.Env.MinLog() {
		return nil
	}
	if err := u.Env.Commit(&manifest.Edit{MinLog: oldest}); err != nil {
		return err
	}
	return u.log.Release(oldest)
}

// oldestNeeded is the oldest log segment that is still needed. newest returns the newest one on
// the disk; trees yields, for each tree, the oldest one that holds something of its memtables, or
// 0.
//
// newest is called before the trees are read: what is written meanwhile goes to that segment or a
// later one, and the manifest must not name a segment before it is on the disk.
func oldestNeeded(newest func() uint64, trees iter.Seq[uint64]) uint64 {
	oldest := newest()
	for segment := range trees {
		if segment != 0 {
			oldest = min(oldest, segment)
		}
	}
	return oldest
}
