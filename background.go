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
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// retryAfter is how long to wait before a failed flush or compaction is tried again: the disk
	// may have space by then.
	retryAfter = 2 * time.Second
	// idlePeriod is how often trees without writes are checked for expired data, and how long a
	// tree has no writes before it counts as idle.
	idlePeriod = storeclock.LookPeriod
	// logFactor bounds the log, and with it the time of a recovery: a memtable of any size is
	// flushed before the log behind it exceeds this multiple of the memory budget.
	logFactor = 2
	// handOver is how often a log without sync hands its buffer to the system.
	handOver = 100 * time.Millisecond
	// hangsAfter is how long a call of the log may take before the store logs that the device
	// does not answer.
	hangsAfter = time.Second
)

// start begins the periodic work of an open store.
func (s *Store) start() {
	s.issued.WarnIfAhead(s.opts.Logger, s.dir)
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
	// Each run of the store begins a segment: many short runs leave many nearly empty ones.
	s.pipeline.order.Lock()
	s.boundLog()
	s.pipeline.order.Unlock()
	if err := s.releaseLog(); err != nil { // the next flush tries again
		s.opts.Logger.Warn("cannot release the log of earlier runs", "error", err)
	}
	s.jobs.After(idlePeriod, s.lookAtIdle)
	if s.opts.Sync == SyncNone {
		s.jobs.After(handOver, s.handOverLog)
	}
}

// logGathered hands over the log's buffer as soon as a goroutine is free; see wal.Options. While
// all processors are busy that may take long; then flushes and compactions hand it over as they
// go, see partition.Env.Stopped.
func (s *Store) logGathered() {
	s.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "hand over the log"}, s.carryLog)
}

// carryLog hands over the log's buffer if enough has gathered.
func (s *Store) carryLog() {
	if s.log == nil {
		return // still recovering
	}
	_ = s.afterLog(s.log.HandOver()) // the next write finds out
}

// lookAtIdle lets every tree look for expired data, and notes which trees have no writes.
func (s *Store) lookAtIdle() {
	trees := s.trees()
	s.upkeep.noteIdle(trees)
	for _, tree := range trees {
		s.scheduleCompaction(tree)
	}
	s.jobs.After(idlePeriod, s.lookAtIdle)
	s.issued.WarnIfAhead(s.opts.Logger, s.dir)
	if s.trusted.Unsaved() {
		s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "save the clock"}, s.saveClock)
	}
}

// saveClock makes durable what was found out of the clock. Without it, a store that runs for
// minutes at a time would never complete a probation.
func (s *Store) saveClock() {
	if s.pipeline.failed.Load() != nil {
		return
	}
	if _, err := s.commitEdit(new(manifest.Edit)); err != nil {
		s.opts.Logger.Warn("cannot save what was found out of the clock", "error", err)
	}
}

// handOverLog bounds what a store without sync loses when the process is killed.
func (s *Store) handOverLog() {
	s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "log hand-over"}, func() {
		_ = s.afterLog(s.log.Flush()) // the next write finds out
	})
	s.jobs.After(handOver, s.handOverLog)
}

// watchDevice schedules a check that the present syncs return. While a check is already due it
// costs one atomic load.
func (s *Store) watchDevice() {
	if !s.upkeep.watching.Load() && s.upkeep.watching.CompareAndSwap(false, true) {
		s.jobs.After(hangsAfter, s.lookAtDevice)
	}
}

// lookAtDevice logs when the device stops answering, and when it answers again.
func (s *Store) lookAtDevice() {
	s.upkeep.watching.Store(false)
	waiting := s.log.Waiting()
	hangs := waiting >= hangsAfter
	if s.upkeep.hangs.Swap(hangs) != hangs {
		if hangs {
			s.opts.Logger.Warn("the device does not answer: a write or sync of the log is under way", "for", waiting)
		} else {
			s.opts.Logger.Warn("the device answers again")
		}
	}
	if waiting > 0 {
		s.watchDevice()
	}
}

// schedulePreparation prepares the next log segment before it is needed. So a full disk is
// noticed while the present segment still has room: writes are refused until there is space, and
// nothing is lost. Every write calls it until the preparation has begun, so a repeated call costs
// one atomic operation.
func (s *Store) schedulePreparation() {
	if !s.upkeep.preparing.CompareAndSwap(false, true) {
		return
	}
	s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "prepare log segment"}, func() {
		s.upkeep.preparing.Store(false)
		err := s.log.PrepareNext()
		s.gate.NoteLog(s.describe(err))
		if err != nil {
			s.backgroundFailed("preparing the next log segment", err, s.schedulePreparation)
		}
	})
}

// noteFiles tells the gate how far the compactions of a tree are behind.
func (s *Store) noteFiles(tree *partition.Tree) {
	s.gate.NoteTree(tree, func() (depth int, debt float64) {
		levels := &tree.Meta().Levels
		base := compaction.LargestBase(s.env.Compaction)
		return compaction.Depth(levels[0]), float64(compaction.Debt(levels, s.env.Compaction)) / float64(base)
	})
}

// largestMemtable returns the tree with the largest mutable memtable.
func (s *Store) largestMemtable() *partition.Tree { return partition.Largest(s.trees()) }

func (s *Store) scheduleFlush(tree *partition.Tree) {
	s.jobs.Submit(jobs.Kind{Class: executor.Flush, Of: tree, Name: "flush"}, func() {
		if err := s.flushTree(tree); err != nil {
			s.backgroundFailed("flush", err, func() { s.scheduleFlush(tree) })
		}
	})
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
		freed, err := tree.Flush(upTo, s.settle)
		s.gate.Flushed(freed, s.clock.Elapsed()-began)
		s.gate.Free(freed, freed)
		if errors.Is(err, partition.ErrStale) {
			continue
		}
		if err != nil {
			s.gate.NoteFlush(s.describe(err))
			return err
		}
		if freed > 0 {
			s.gate.NoteFlush(nil)
		}
		return nil
	}
}

// boundLog rotates the memtables that hold back too much of the log: those of idle tables, or of
// writes that take more log than memory, as small ones do. It is called whenever the log begins a
// new segment, and by Open. REQUIRES: order is held.
func (s *Store) boundLog() {
	current := s.log.Segment()
	s.pipeline.bounded = current
	for _, t := range s.allTables() {
		for _, tree := range t.partitions().Trees() {
			segment := tree.MutableSegment()
			if segment != 0 && int64(current-segment)*s.opts.WALSegmentSize > logFactor*s.opts.MemoryBudget {
				s.rotate(tree, s.pipeline.nextSeq)
			}
		}
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
	again := func() { s.scheduleNthCompaction(tree, n) }
	s.jobs.Submit(jobs.Kind{Class: executor.Compaction, Of: tree, Name: compactions[n]}, func() {
		did, err := tree.Compact(s.upkeep.activity(tree), func() {
			if n+1 < maxCompactions {
				s.scheduleNthCompaction(tree, n+1)
			}
		})
		switch {
		case errors.Is(err, partition.ErrStale):
			again()
			return
		case err != nil:
			s.backgroundFailed("compaction", err, again)
		case did:
			s.noteFiles(tree)
			again()
		}
		s.gate.NoteCompaction(tree, s.describe(err))
	})
}

// backgroundFailed logs a failure and, if it may pass, tries again later.
func (s *Store) backgroundFailed(what string, err error, again func()) {
	if errors.Is(err, ErrClosed) || s.closed.Load() {
		return
	}
	s.opts.Logger.Error(what+" failed", "error", err)
	if s.pipeline.failed.Load() == nil {
		s.jobs.After(retryAfter, again)
	}
}

// scheduleRemoval schedules the deletion of a table or value file to which nothing refers any
// more. name is relative to the store's directory.
func (s *Store) scheduleRemoval(name string) {
	// After a failed write of the manifest it is unknown which files it names on disk. A file
	// that is kept here is an orphan at the next Open.
	if s.pipeline.failed.Load() != nil {
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
