package flagstone

// The bookkeeping of background jobs: one of a kind at a time for each tree,
// none after Close has begun; and of what else Close has to wait for.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/partition"
)

// work keeps track of the background jobs of a store.
type work struct {
	mu      sync.Mutex
	rest    sync.Cond // signalled when running falls to zero
	stopped bool
	running int
	jobs    map[jobKey]*jobState
	// ended is closed, and made anew by who waits, when a job has ended.
	ended  chan struct{}
	timers map[*timer]struct{}
	// trouble says that noLog is set or files not empty: writers have to look
	// closer.
	trouble atomic.Bool
	// preparing is set from the request for the next log segment until its
	// preparation begins.
	preparing atomic.Bool
	// watching is set while a check is due whether the device answers; hangs is
	// what the last check found.
	watching, hangs atomic.Bool
	// noLog is why there is no room for further log, nil if there is.
	noLog error
	// stuck is why the last flush failed, nil after one that succeeded.
	stuck error
	// files says how far the compactions of trees are behind, where they are, and
	// uncompacted why the last one failed, where it did.
	files       map[*partition.Tree]behind
	uncompacted map[*partition.Tree]error
	// watched holds the trees that somebody writes to; the others are quiet.
	watched map[*partition.Tree]*watch
	// seen is what had been written to each tree when idle ones were last looked
	// for, and idle holds those that nothing had been written to since the time
	// before, nor flushed since.
	seen map[*partition.Tree]int64
	idle map[*partition.Tree]bool
}

// behind is how far the compactions of a tree are behind.
type behind struct {
	depth    int     // files over each other in level 0
	pressure float64 // see pace.go
}

// jobKey names a job, of which one runs at a time.
type jobKey struct {
	class executor.Class
	tree  *partition.Tree // nil for work of the whole store
	name  string
}

// jobState is a job that is queued or runs.
type jobState struct {
	runs  bool
	again bool // it was asked for since it began to run
}

type timer struct{ stop func() bool }

func (w *work) init() {
	w.rest.L = &w.mu
	w.jobs = make(map[jobKey]*jobState)
	w.timers = make(map[*timer]struct{})
	w.files = make(map[*partition.Tree]behind)
	w.uncompacted = make(map[*partition.Tree]error)
	w.watched = make(map[*partition.Tree]*watch)
}

// isQuiet reports whether nobody has written much to the tree lately.
func (w *work) isQuiet(tree *partition.Tree) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.watched[tree] == nil
}

// noteIdle finds, of these trees, those that nothing was written to since it was
// called before.
func (w *work) noteIdle(trees []*partition.Tree) {
	w.mu.Lock()
	defer w.mu.Unlock()
	seen := make(map[*partition.Tree]int64, len(trees))
	w.idle = make(map[*partition.Tree]bool)
	for _, tree := range trees {
		seen[tree] = tree.Written()
		if before, ok := w.seen[tree]; ok && before == seen[tree] {
			w.idle[tree] = true
		}
	}
	w.seen = seen
}

// activity says how much is written to the tree.
func (w *work) activity(tree *partition.Tree) partition.Activity {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.watched[tree] != nil:
		return partition.Busy
	case w.idle[tree]:
		return partition.Idle
	}
	return partition.Quiet
}

// noteTrouble brings trouble up to date. REQUIRES: mu is held.
func (w *work) noteTrouble() { w.trouble.Store(w.noLog != nil || len(w.files) > 0) }

// submit queues a job unless it is queued already. One that is running runs once
// more: a second one beside it would only keep a worker waiting.
func (s *Store) submit(class executor.Class, tree *partition.Tree, name string, job func()) {
	w, key := &s.work, jobKey{class, tree, name}
	w.mu.Lock()
	defer w.mu.Unlock()
	switch state := w.jobs[key]; {
	case w.stopped:
	case state == nil:
		w.jobs[key] = &jobState{}
		s.executor.Go(class, name, func() { s.runJob(key, job) })
	case state.runs:
		state.again = true
	}
}

func (s *Store) runJob(key jobKey, job func()) {
	w := &s.work
	if !w.begin() {
		return
	}
	defer w.end()
	w.mu.Lock()
	w.jobs[key].runs = true
	w.mu.Unlock()
	job()
	w.mu.Lock()
	defer w.mu.Unlock()
	again := w.jobs[key].again
	delete(w.jobs, key)
	if again && !w.stopped {
		w.jobs[key] = &jobState{}
		s.executor.Go(key.class, key.name, func() { s.runJob(key, job) })
	}
	if w.ended != nil {
		close(w.ended)
		w.ended = nil
	}
}

// Settle returns when every memtable that waits to be flushed is flushed and no
// compaction is due any more, with the reason if that cannot be reached for
// now. The memtables being written stay as they are: see Flush. While others
// write it may wait for long.
func (s *Store) Settle(ctx context.Context) error {
	// What waits until nobody writes is done once all is flushed: a merge that
	// begins before would have to be done again.
	for {
		if err := s.waitForJobs(ctx, executor.Flush); err != nil {
			return err
		}
		trees := s.trees()
		for _, tree := range trees {
			s.rest(tree)
		}
		if err := s.waitForJobs(ctx, executor.Flush, executor.Compaction); err != nil {
			return err
		}
		if !slices.ContainsFunc(trees, func(t *partition.Tree) bool { return !s.work.isQuiet(t) }) {
			return nil
		}
	}
}

// trees returns the partitions of all tables.
func (s *Store) trees() (trees []*partition.Tree) {
	for _, t := range s.allTables() {
		trees = append(trees, t.partitions().Trees()...)
	}
	return trees
}

// waitForJobs returns when no job of these classes is queued or runs, with the
// reason if one of them could not be done.
func (s *Store) waitForJobs(ctx context.Context, classes ...executor.Class) error {
	for {
		if err := s.writable(); err != nil {
			return err
		}
		busy, ended, failure := s.work.unsettled(classes)
		if !busy {
			return s.describe(failure)
		}
		if manual, ok := s.executor.(interface{ Step(i int) bool }); ok {
			if !manual.Step(0) {
				return fmt.Errorf("%w: no job to step to", ErrClosed)
			}
			continue
		}
		select {
		case <-ended:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
	}
}

// unsettled reports whether a job of these classes is queued or runs, and a
// channel that is closed when some job has ended. If none does, failure is why a
// flush or a compaction could not be done.
func (w *work) unsettled(classes []executor.Class) (busy bool, ended <-chan struct{}, failure error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for key := range w.jobs {
		busy = busy || slices.Contains(classes, key.class)
	}
	if w.ended == nil {
		w.ended = make(chan struct{})
	}
	failure = w.stuck
	for _, err := range w.uncompacted {
		failure = errors.Join(failure, err)
	}
	return busy, w.ended, failure
}

// begin counts work that Close has to wait for: a job, or what a caller asked
// for that changes trees or the catalogue. False once Close has begun. After
// true, end must be called.
func (w *work) begin() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.stopped {
		return false
	}
	w.running++
	return true
}

func (w *work) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.running--; w.running == 0 {
		w.rest.Broadcast()
	}
}

// beginWork begins what a caller asked for that changes files, unless the store
// takes no writes. Close waits for it. done must be called in the end.
func (s *Store) beginWork() (done func(), err error) {
	if err := s.writable(); err != nil {
		return nil, err
	}
	if !s.work.begin() {
		return nil, ErrClosed
	}
	return s.work.end, nil
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
		w.rest.Wait()
	}
}
