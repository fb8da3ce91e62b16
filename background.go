package flagstone

// Background work: what is flushed and compacted when, how writers are held
// back, and how the log and obsolete files are cleared away.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

const (
	// retryAfter is how long to wait after a flush or a compaction failed for
	// lack of space or another reason that may pass.
	retryAfter = 2 * time.Second
	// idlePeriod is how often trees that nobody writes to are looked at, for
	// data that has expired.
	idlePeriod = time.Minute
	// handOver is how often an unsynced log gives its buffer to the system.
	handOver = 100 * time.Millisecond
	// slowdownFiles and stopFiles are the numbers of files on level 0 from
	// which on writers are slowed, by slowdownStep per file, and stopped.
	slowdownFiles = 12
	stopFiles     = 36
	slowdownStep  = time.Millisecond
)

// memory accounts for the memtables of all tables against their budget.
type memory struct {
	budget int64

	mu      sync.Mutex
	total   int64         // reserved, in bytes
	waiting int64         // of that, in memtables that wait to be flushed
	room    chan struct{} // closed and replaced whenever memory is freed
}

func (m *memory) init(budget int64) {
	m.budget = budget
	m.room = make(chan struct{})
}

func (m *memory) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += bytes
}

func (m *memory) rotated(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting += bytes
}

// free accounts for memtables that are gone; waiting of the bytes had been
// rotated out.
func (m *memory) free(bytes, waiting int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total -= bytes
	m.waiting -= waiting
	m.wake()
}

// wake lets writers that wait look again. REQUIRES: mu is held.
func (m *memory) wake() {
	close(m.room)
	m.room = make(chan struct{})
}

// crowded reports whether the mutable memtables take more than half of the
// budget; the other half is for those that are being flushed.
func (m *memory) crowded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total-m.waiting > m.budget/2
}

// full reports whether writers have to wait, and a channel that is closed when
// it is worth asking again. A store whose memtables all are mutable has always
// room: nothing would ever make more.
func (m *memory) full() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total >= m.budget && m.waiting > 0, m.room
}

// work keeps track of the background jobs of a store.
type work struct {
	mu      sync.Mutex
	idle    sync.Cond // signalled when running falls to zero
	stopped bool
	running int
	queued  map[queuedJob]bool
	timers  map[*timer]struct{}
	// noLog is why there is no room for further log, nil if there is.
	noLog error
	// stuck is why the last flush failed, nil after one that succeeded.
	stuck error
	// files is the largest number of level-0 files of any tree, by tree.
	files map[*partition.Tree]int
}

type queuedJob struct {
	class executor.Class
	tree  *partition.Tree // nil for work of the whole store
}

type timer struct{ stop func() bool }

func (w *work) init() {
	w.idle.L = &w.mu
	w.queued = make(map[queuedJob]bool)
	w.timers = make(map[*timer]struct{})
	w.files = make(map[*partition.Tree]int)
}

// submit queues a job unless the same one is waiting to start already.
func (s *Store) submit(class executor.Class, tree *partition.Tree, name string, job func()) {
	w, key := &s.work, queuedJob{class, tree}
	w.mu.Lock()
	if w.stopped || w.queued[key] {
		w.mu.Unlock()
		return
	}
	w.queued[key] = true
	w.mu.Unlock()
	s.executor.Go(class, name, func() {
		w.mu.Lock()
		delete(w.queued, key)
		if w.stopped {
			w.mu.Unlock()
			return
		}
		w.running++
		w.mu.Unlock()
		defer func() {
			w.mu.Lock()
			if w.running--; w.running == 0 {
				w.idle.Broadcast()
			}
			w.mu.Unlock()
		}()
		job()
	})
}

// after calls f once d has elapsed, unless the store is closed before.
func (s *Store) after(d time.Duration, f func()) {
	w, t := &s.work, &timer{}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return
	}
	w.timers[t] = struct{}{}
	t.stop = s.clock.AfterFunc(d, func() {
		w.mu.Lock()
		delete(w.timers, t)
		stopped := w.stopped
		w.mu.Unlock()
		if !stopped {
			f()
		}
	})
}

// stop lets no job begin any more.
func (w *work) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.stopped = true
	for t := range w.timers {
		t.stop()
	}
	w.timers = nil
}

// wait returns when no job is running. REQUIRES: stopped, or nothing was ever
// submitted.
func (w *work) wait() {
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.running > 0 {
		w.idle.Wait()
	}
}

// start begins the periodic work of an open store.
func (s *Store) start() {
	if s.opts.ReadOnly {
		return
	}
	for _, t := range s.Tables() {
		for _, tree := range t.partitions().Trees() {
			s.noteFiles(tree)
			s.scheduleCompaction(tree)
		}
	}
	s.after(idlePeriod, s.lookAtIdle)
	if s.opts.Sync == SyncNone {
		s.after(handOver, s.handOverLog)
	}
}

// lookAtIdle lets every tree look for expired data, also those that nobody
// writes to.
func (s *Store) lookAtIdle() {
	for _, t := range s.Tables() {
		for _, tree := range t.partitions().Trees() {
			s.scheduleCompaction(tree)
		}
	}
	s.after(idlePeriod, s.lookAtIdle)
}

// handOverLog bounds what an unsynced store loses when the process is killed.
func (s *Store) handOverLog() {
	s.submit(executor.Cleanup, nil, "log hand-over", func() {
		if err := s.log.Flush(); err != nil {
			s.poison(err)
		}
	})
	s.after(handOver, s.handOverLog)
}

// throttle holds a writer back while the memtables are over their budget or
// flushes outrun compactions. Errors are the context's, ErrClosed, or the
// reason why flushes do not get on, ErrNoSpace for instance.
func (s *Store) throttle(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.logError(); err != nil {
		return err
	}
	slowed := false
	for {
		full, room := s.memory.full()
		files := s.mostFiles()
		if !full && (files < slowdownFiles || slowed && files < stopFiles) {
			return nil
		}
		// An executor that is stepped by hand would never get to run.
		if manual, ok := s.executor.(interface{ Step(i int) bool }); ok {
			if !manual.Step(0) {
				return s.stuckError()
			}
			continue
		}
		if full {
			if err := s.stuckError(); err != nil {
				return err
			}
		}
		wake := room
		if !full && files < stopFiles {
			slow := make(chan struct{})
			stop := s.clock.AfterFunc(time.Duration(files-slowdownFiles+1)*slowdownStep, func() { close(slow) })
			defer stop()
			wake, slowed = slow, true
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
	}
}

// schedulePreparation makes the next log segment ready before it is needed. So
// a disk that is full is noticed while there is still room in the present one:
// writes are refused until there is space, and nothing is lost.
func (s *Store) schedulePreparation() {
	s.submit(executor.Flush, nil, "prepare log segment", func() {
		err := s.log.PrepareNext()
		s.work.mu.Lock()
		s.work.noLog = err
		s.work.mu.Unlock()
		if err != nil {
			s.backgroundFailed("preparing the next log segment", err, s.schedulePreparation)
		}
	})
}

// logError returns why no further log can be written, if that is so.
func (s *Store) logError() error {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	if s.work.noLog == nil {
		return nil
	}
	return fmt.Errorf("the log cannot grow: %w", s.describe(s.work.noLog))
}

func (s *Store) stuckError() error {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	if s.work.stuck == nil {
		return nil
	}
	return fmt.Errorf("memtables are full and cannot be flushed: %w", s.describe(s.work.stuck))
}

// mostFiles is the largest number of level-0 files of any tree.
func (s *Store) mostFiles() (most int) {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	for _, n := range s.work.files {
		most = max(most, n)
	}
	return most
}

// noteFiles keeps count of a tree's level-0 files while they are many.
func (s *Store) noteFiles(tree *partition.Tree) {
	n := len(tree.Meta().Levels[0])
	s.work.mu.Lock()
	if n < slowdownFiles {
		delete(s.work.files, tree)
	} else {
		s.work.files[tree] = n
	}
	s.work.mu.Unlock()
	s.memory.mu.Lock()
	s.memory.wake()
	s.memory.mu.Unlock()
}

// largestMemtable returns the tree whose mutable memtable takes most.
func (s *Store) largestMemtable() (largest *partition.Tree) {
	var most int64 = -1
	for _, t := range s.catalog().byID {
		for _, tree := range t.partitions().Trees() {
			if mutable, _ := tree.MemoryBytes(); mutable > most {
				largest, most = tree, mutable
			}
		}
	}
	return largest
}

func (s *Store) scheduleFlush(tree *partition.Tree) {
	s.submit(executor.Flush, tree, "flush", func() {
		if err := s.flushTree(tree); err != nil {
			s.backgroundFailed("flush", err, func() { s.scheduleFlush(tree) })
		}
	})
}

// flushTree flushes everything that waits, releases what the log does not need
// to keep any more, and lets the tree compact itself.
func (s *Store) flushTree(tree *partition.Tree) error {
	s.flushGate.RLock()
	defer s.flushGate.RUnlock()
	for {
		freed, err := tree.Flush(s.settle)
		s.memory.free(freed, freed)
		if errors.Is(err, partition.ErrStale) {
			continue
		}
		if err != nil {
			s.setStuck(err)
			return err
		}
		if freed == 0 {
			break
		}
		s.setStuck(nil)
	}
	s.noteFiles(tree)
	s.scheduleCompaction(tree)
	return s.releaseLog()
}

func (s *Store) setStuck(err error) {
	s.work.mu.Lock()
	s.work.stuck = err
	s.work.mu.Unlock()
	if err != nil { // writers that wait are to see it
		s.memory.mu.Lock()
		s.memory.wake()
		s.memory.mu.Unlock()
	}
}

// releaseLog lets go of the log segments that hold nothing unflushed. The
// manifest learns of it first: a segment that it counts on and that is missing
// is damage.
func (s *Store) releaseLog() error {
	// The present segment is read before the trees: what is written while they
	// are looked at goes to that segment or a later one.
	oldest := s.log.Segment()
	for _, t := range s.catalog().byID {
		for _, tree := range t.partitions().Trees() {
			if segment := tree.OldestSegment(); segment != 0 {
				oldest = min(oldest, segment)
			}
		}
	}
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

func (s *Store) scheduleCompaction(tree *partition.Tree) {
	s.submit(executor.Compaction, tree, "compaction", func() {
		did, err := tree.Compact()
		switch {
		case errors.Is(err, partition.ErrStale):
			s.scheduleCompaction(tree)
		case err != nil:
			s.backgroundFailed("compaction", err, func() { s.scheduleCompaction(tree) })
		case did:
			s.noteFiles(tree)
			s.scheduleCompaction(tree)
		}
	})
}

// backgroundFailed logs a failure and, if it may pass, tries again later.
func (s *Store) backgroundFailed(what string, err error, again func()) {
	if errors.Is(err, ErrClosed) || s.closed.Load() {
		return
	}
	s.opts.Logger.Error(what+" failed", "error", err)
	if s.pipeline.failed.Load() == nil {
		s.after(retryAfter, again)
	}
}

// scheduleRemoval deletes a table file that nothing refers to any more.
func (s *Store) scheduleRemoval(number uint64) {
	s.work.mu.Lock()
	stopped := s.work.stopped
	s.work.mu.Unlock()
	// After a failed write of the manifest nobody knows which files it names
	// on disk. What is not deleted here is an orphan at the next Open.
	if stopped || s.pipeline.failed.Load() != nil {
		return
	}
	s.executor.Go(executor.Cleanup, "remove table file", func() {
		name := filepath.Join(s.dir, manifest.TableName(number))
		if err := s.fs.Remove(name); err != nil && !s.closed.Load() {
			s.opts.Logger.Warn("cannot remove obsolete table file", "file", name, "error", err)
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
		return fmt.Errorf("%w: table file %s is missing; restore it from a copy of the store",
			ErrCorrupt, filepath.Join(s.dir, manifest.TableName(inventory.Missing[0])))
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
