package flagstone

// Background work: what is flushed and compacted when, how writers are held
// back, and how the log and obsolete files are cleared away.

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
	// retryAfter is how long to wait after a flush or a compaction failed for
	// lack of space or another reason that may pass.
	retryAfter = 2 * time.Second
	// idlePeriod is how often trees that nobody writes to are looked at, for
	// data that has expired; and how long nobody has written to those that are
	// merged although nobody reads them.
	idlePeriod = time.Minute
	// logFactor bounds the log, and with it the time that recovery takes: a
	// memtable is flushed, however small, before the log behind it exceeds so
	// many times the memory budget.
	logFactor = 2
	// handOver is how often an unsynced log gives its buffer to the system.
	handOver = 100 * time.Millisecond
	// hangsAfter is how long a call of the log may take before the store says that
	// the device does not answer.
	hangsAfter = time.Second
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
	// Each run begins a segment: short ones gather many that hold next to nothing.
	s.pipeline.order.Lock()
	s.boundLog()
	s.pipeline.order.Unlock()
	if err := s.releaseLog(); err != nil { // not needed yet, and tried again
		s.opts.Logger.Warn("cannot release the log of earlier runs", "error", err)
	}
	s.jobs.After(idlePeriod, s.lookAtIdle)
	if s.opts.Sync == SyncNone {
		s.jobs.After(handOver, s.handOverLog)
	}
}

// logGathered hands over the log's buffer as soon as a goroutine is free; see
// wal.Options. While all processors are busy that may take long; then flushes and
// merges do it as they go, see partition.Env.Stopped.
func (s *Store) logGathered() {
	s.jobs.Submit(jobs.Kind{Class: executor.Log, Name: "hand over the log"}, s.carryLog)
}

// carryLog hands over the log's buffer if it is time to.
func (s *Store) carryLog() {
	if s.log == nil {
		return // still recovering
	}
	_ = s.afterLog(s.log.HandOver()) // the next write finds out
}

// lookAtIdle lets every tree look for expired data, also those that nobody
// writes to, and finds out which these are.
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

// saveClock makes durable what was found out of the clock. Without it, a store
// that runs for minutes at a time would never get through a probation.
func (s *Store) saveClock() {
	if s.pipeline.failed.Load() != nil {
		return
	}
	if _, err := s.commitEdit(new(manifest.Edit)); err != nil {
		s.opts.Logger.Warn("cannot save what was found out of the clock", "error", err)
	}
}

// handOverLog bounds what an unsynced store loses when the process is killed.
func (s *Store) handOverLog() {
	s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "log hand-over"}, func() {
		_ = s.afterLog(s.log.Flush()) // the next write finds out
	})
	s.jobs.After(handOver, s.handOverLog)
}

// watchDevice checks, after a while, whether the syncs of now are done. It costs next to
// nothing while a check is due anyway.
func (s *Store) watchDevice() {
	if !s.upkeep.watching.Load() && s.upkeep.watching.CompareAndSwap(false, true) {
		s.jobs.After(hangsAfter, s.lookAtDevice)
	}
}

// lookAtDevice says so when the device does not answer, and when it does again.
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

// schedulePreparation makes the next log segment ready before it is needed. So
// a disk that is full is noticed while there is still room in the present one:
// writes are refused until there is space, and nothing is lost. Every write asks
// for it until it has begun, so asking again costs next to nothing.
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

// noteFiles notes how far compactions of a tree are behind, if they are.
func (s *Store) noteFiles(tree *partition.Tree) {
	s.gate.NoteTree(tree, func() (depth int, debt float64) {
		levels := &tree.Meta().Levels
		base := compaction.LargestBase(s.env.Compaction)
		return compaction.Depth(levels[0]), float64(compaction.Debt(levels, s.env.Compaction)) / float64(base)
	})
}

// largestMemtable returns the tree whose mutable memtable takes most.
func (s *Store) largestMemtable() (largest *partition.Tree) {
	var most int64 = -1
	for _, t := range s.allTables() {
		for _, tree := range t.partitions().Trees() {
			if mutable, _ := tree.MemoryBytes(); mutable > most {
				largest, most = tree, mutable
			}
		}
	}
	return largest
}

func (s *Store) scheduleFlush(tree *partition.Tree) {
	s.jobs.Submit(jobs.Kind{Class: executor.Flush, Of: tree, Name: "flush"}, func() {
		if err := s.flushTree(tree); err != nil {
			s.backgroundFailed("flush", err, func() { s.scheduleFlush(tree) })
		}
	})
}

// flushTree flushes everything that waits when it begins, releases what the log
// does not need to keep any more, and lets the tree compact itself.
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

// flushUpTo flushes the memtables of a tree that wait now and were rotated out at
// sequence numbers up to upTo. What is rotated out meanwhile has a job of its own:
// writers who keep the disk busy would hold up for ever what comes after.
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

// boundLog lets the memtables be flushed that hold back too much of the log: of
// idle tables, or of writes that take more log than memory, as small ones do. It
// is called whenever the log begins a new segment, also by Open. REQUIRES: order
// is held.
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

// releaseLog lets go of the log segments that hold nothing unflushed. The
// manifest learns of it first: a segment that it counts on and that is missing
// is damage.
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

// oldestNeeded is the oldest log segment that is needed still: newest gives the newest one
// that is on the disk, trees, for one tree after the other, the oldest one that holds
// something of its memtables, or 0.
//
// The newest segment is read before the trees: what is written while they are looked at
// goes to that one or a later one, which the manifest must not name before it is on the disk.
func oldestNeeded(newest func() uint64, trees iter.Seq[uint64]) uint64 {
	oldest := newest()
	for segment := range trees {
		if segment != 0 {
			oldest = min(oldest, segment)
		}
	}
	return oldest
}

// maxCompactions bounds the merges of one tree that run at once.
const maxCompactions = 8

// compactions are the names of the jobs that merge one tree.
var compactions = [maxCompactions]string{
	"compaction", "compaction 2", "compaction 3", "compaction 4", "compaction 5", "compaction 6", "compaction 7", "compaction 8",
}

// scheduleCompaction lets a tree do what is due. Once a merge is chosen, the
// next is looked for by a job beside it.
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

// scheduleRemoval deletes a table or value file, whose name is relative to the
// store's directory, that nothing refers to any more.
func (s *Store) scheduleRemoval(name string) {
	// After a failed write of the manifest nobody knows which files it names
	// on disk. What is not deleted here is an orphan at the next Open.
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

// clearFiles deletes the files that an earlier process left behind: made for
// an edit that was never committed, or obsolete and not yet deleted. A file
// that is missing is damage.
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
