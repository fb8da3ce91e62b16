package flagstone

// Background work: when trees are flushed and compacted, how the log is prepared and released,
// and how obsolete files are deleted.

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// idlePeriod is how often trees without writes are checked for expired data, and how long a
	// tree has no writes before it counts as idle.
	idlePeriod = time.Minute
	// logFactor bounds the log, and with it the time of a recovery: a memtable of any size is
	// flushed before the log behind it exceeds this multiple of the memory budget.
	logFactor = 2
)

// start begins the periodic work of an open store.
func (s *Store) start() {
	s.warnOfStamps()
	if s.opts.ReadOnly {
		return
	}
	s.dropEndedLogs()
	for _, t := range s.allTables() {
		for _, tree := range t.partitions().Trees() {
			s.noteFiles(tree)
			s.scheduleCompaction(tree)
		}
	}
	if err := s.releaseLog(); err != nil { // the next flush tries again
		s.opts.Logger.Warn("cannot release the log of earlier runs", "error", err)
	}
	s.jobs.After(idlePeriod, s.lookAtIdle)
}

// lookAtIdle lets every tree look for expired data, and notes which trees have no writes.
func (s *Store) lookAtIdle() {
	trees := s.trees()
	s.upkeep.noteIdle(trees)
	for _, tree := range trees {
		s.scheduleCompaction(tree)
	}
	s.jobs.After(idlePeriod, s.lookAtIdle)
	s.warnOfStamps()
	if s.purge.unsaved() {
		s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "save the clock"}, s.saveClock)
	}
}

// saveClock makes durable what was found out of the clock. Without it, a store that runs for
// minutes at a time would never complete a probation.
func (s *Store) saveClock() error {
	if s.pipeline.Failed() != nil {
		return nil
	}
	if _, err := s.commitEdit(new(manifest.Edit)); err != nil {
		s.opts.Logger.Warn("cannot save what was found out of the clock", "error", err)
	}
	return nil
}

// noteFiles tells the gate how far the compactions of a tree are behind.
func (s *Store) noteFiles(tree *partition.Tree) {
	s.gate.NoteTree(tree, func() (depth int, debt float64) {
		levels := &tree.Meta().Levels
		base := compaction.LargestBase(s.env.Compaction)
		return compaction.Depth(levels[0]), float64(compaction.Debt(levels, s.env.Compaction)) / float64(base)
	})
}

func (s *Store) scheduleFlush(tree *partition.Tree) {
	s.jobs.Submit(jobs.Kind{Class: executor.Flush, Of: tree, Name: "flush"}, func() error { return s.flushTree(tree) })
}

// flushTree flushes the memtables that wait when it begins, releases the log segments that are no
// longer needed, and lets the tree compact itself.
func (s *Store) flushTree(tree *partition.Tree) error {
	s.flushGate.RLock()
	defer s.flushGate.RUnlock()
	if err := s.flushUpTo(tree, row.MaxSequence); err != nil {
		return err
	}
	s.noteFiles(tree)
	s.watch(tree)
	s.scheduleCompaction(tree)
	return s.releaseLog()
}

// flushUpTo flushes the memtables of a tree that wait now and were rotated at sequence numbers up
// to upTo. A memtable that is rotated meanwhile has a job of its own: otherwise busy writers
// could keep this call from ever returning.
func (s *Store) flushUpTo(tree *partition.Tree, upTo uint64) error {
	for {
		began := s.clock.Elapsed()
		freed, err := tree.Flush(upTo, func(endSeq uint64) (func() error, error) { return s.pipeline.Settle(endSeq, s.executor.Beside) })
		s.gate.Flushed(freed, s.clock.Elapsed()-began)
		s.gate.Free(freed, freed)
		if errors.Is(err, partition.ErrStale) {
			continue
		}
		if err != nil {
			s.gate.NoteFlush(err)
			return err
		}
		if freed > 0 {
			s.gate.NoteFlush(nil)
		}
		return nil
	}
}

// releaseLog releases the log segments that hold nothing unflushed. The manifest is changed
// first: if a segment that it needs is missing, the store is damaged.
func (s *Store) releaseLog() error {
	oldest := oldestNeeded(s.log.NewestOnDisk, func(yield func(oldest uint64) bool) {
		for _, t := range s.catalog().byID {
			for _, tree := range t.partitions().Trees() {
				if !yield(tree.OldestSegment()) {
					return
				}
			}
		}
	})
	if oldest <= s.state().MinLog {
		return nil
	}
	var e manifest.Edit
	e.SetMinLog(oldest)
	if _, err := s.commitEdit(&e); err != nil {
		return err
	}
	return s.log.Release(oldest)
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

// maxCompactions bounds the compactions of one tree that run at once.
const maxCompactions = 8

// compactions are the names of the jobs that compact one tree.
var compactions = [maxCompactions]string{
	"compaction", "compaction 2", "compaction 3", "compaction 4", "compaction 5", "compaction 6", "compaction 7", "compaction 8",
}

// scheduleCompaction schedules the compactions of a tree that are due. Once a job has chosen one,
// another job beside it looks for the next.
func (s *Store) scheduleCompaction(tree *partition.Tree) { s.scheduleNthCompaction(tree, 0) }

func (s *Store) scheduleNthCompaction(tree *partition.Tree, n int) {
	s.jobs.Submit(jobs.Kind{Class: executor.Compaction, Of: tree, Name: compactions[n]}, func() error {
		did, err := tree.Compact(s.upkeep.activity(tree), func() {
			if n+1 < maxCompactions {
				s.scheduleNthCompaction(tree, n+1)
			}
		})
		if errors.Is(err, partition.ErrStale) {
			s.scheduleNthCompaction(tree, n)
			return nil
		}
		if did && err == nil {
			s.noteFiles(tree)
			s.scheduleNthCompaction(tree, n)
		}
		s.gate.NoteCompaction(tree, err)
		return err
	})
}

// jobFailed logs that a job failed, and reports whether it may succeed later.
func (s *Store) jobFailed(job string, err error) (again bool) {
	if errors.Is(err, ErrClosed) || s.closed.Load() {
		return false
	}
	s.opts.Logger.Error(job+" failed", "error", err)
	return s.pipeline.Failed() == nil
}

// scheduleRemoval schedules the deletion of a table or value file to which nothing refers any
// more. name is relative to the store's directory.
func (s *Store) scheduleRemoval(name string) {
	// After a failed write of the manifest it is unknown which files it names on disk. A file
	// that is kept here is an orphan at the next Open.
	if s.pipeline.Failed() != nil {
		return
	}
	s.jobs.Go(executor.Cleanup, "remove obsolete file", func() {
		name := filepath.Join(s.dir, name)
		if err := s.fs.Remove(name); err != nil && !s.closed.Load() {
			s.opts.Logger.Warn("cannot remove obsolete file", "file", name, "error", err)
		}
	})
}

// clearFiles deletes the files that an earlier process left behind: those of an edit that was
// never committed, and obsolete ones. A missing file is an error.
func (s *Store) clearFiles() error {
	inventory, err := manifest.TakeInventory(s.state(), func(dir string) ([]string, error) {
		return s.fs.List(filepath.Join(s.dir, dir))
	})
	if err != nil {
		return err
	}
	if len(inventory.Missing) > 0 {
		return fmt.Errorf("%w: file %s is missing; restore it from a copy of the store",
			ErrCorrupt, filepath.Join(s.dir, inventory.Missing[0]))
	}
	if s.opts.ReadOnly {
		return nil
	}
	s.manifest.RaiseFileNumber(inventory.Highest)
	for _, name := range inventory.Orphans {
		if err := s.fs.Remove(filepath.Join(s.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		s.opts.Logger.Info("orphan removed", "file", name)
	}
	return nil
}
