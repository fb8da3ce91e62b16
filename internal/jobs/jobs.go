// Package jobs runs the background jobs and timers of a store, at most one job of a kind at a
// time for each tree, and ends them in order. It does not know what the jobs do.
package jobs

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/executor"
)

// Jobs are the background jobs of one store, and other work that closing the store waits for. Its
// methods are safe for concurrent use.
type Jobs struct {
	executor executor.Executor
	clock    clock.Clock
	failed   func(name string, err error) (again bool)

	running sync.WaitGroup // what Begin counts

	mu      sync.Mutex
	stopped bool
	kinds   map[Kind]*state
	ended   chan struct{} // closed and set to nil when a job has ended; made by Busy
	timers  map[*timer]struct{}

	end chan struct{} // closed by Stop
}

// Kind names a job. Two jobs of one kind never run at the same time.
type Kind struct {
	Class executor.Class
	Of    any // what the job works on, such as a tree; nil for the whole store
	Name  string
}

// state is that of a job that is queued or running.
type state struct {
	running bool
	again   bool // submitted again while it ran
}

type timer struct{ stop func() bool }

// RetryAfter is how long a job that failed waits before it runs again: the disk may have space by
// then.
const RetryAfter = 2 * time.Second

// New returns an empty set of jobs. failed is told of every job that failed, and says whether to
// run it again after RetryAfter.
func New(e executor.Executor, c clock.Clock, failed func(name string, err error) (again bool)) *Jobs {
	return &Jobs{executor: e, clock: c, failed: failed, kinds: make(map[Kind]*state), timers: make(map[*timer]struct{}), end: make(chan struct{})}
}

// Submit queues a job, unless one of its kind is queued already. If one of its kind is running,
// that one runs again when it has ended: a second one beside it would only keep a worker waiting.
// After Stop it does nothing.
func (j *Jobs) Submit(kind Kind, job func() error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	switch queued := j.kinds[kind]; {
	case j.stopped:
	case queued == nil:
		j.queue(kind, job)
	case queued.running:
		queued.again = true
	}
}

// queue hands a job to the executor. REQUIRES: mu is held.
func (j *Jobs) queue(kind Kind, job func() error) {
	j.kinds[kind] = &state{}
	j.executor.Go(kind.Class, kind.Name, func() { j.run(kind, job) })
}

func (j *Jobs) run(kind Kind, job func() error) {
	if !j.Begin() {
		return
	}
	defer j.End()
	j.mu.Lock()
	j.kinds[kind].running = true
	j.mu.Unlock()
	if err := job(); err != nil && j.failed(kind.Name, err) {
		j.After(RetryAfter, func() { j.Submit(kind, job) })
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	again := j.kinds[kind].again
	delete(j.kinds, kind)
	if again && !j.stopped {
		j.queue(kind, job)
	}
	if j.ended != nil {
		close(j.ended)
		j.ended = nil
	}
}

// Busy reports whether a job of one of these classes is queued or running, and returns
// a channel that is closed when some job has ended.
func (j *Jobs) Busy(classes ...executor.Class) (busy bool, ended <-chan struct{}) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for kind := range j.kinds {
		busy = busy || slices.Contains(classes, kind.Class)
	}
	if j.ended == nil {
		j.ended = make(chan struct{})
	}
	return busy, j.ended
}

// Counts returns how many jobs run, and how many wait for a worker, by class.
func (j *Jobs) Counts() (running, waiting [executor.Classes]int) {
	j.mu.Lock()
	defer j.mu.Unlock()
	for kind, of := range j.kinds {
		if of.running {
			running[kind.Class]++
		} else {
			waiting[kind.Class]++
		}
	}
	return running, waiting
}

// Await returns when the event happens, Stop is called, or the context ends. Only the
// context's error and executor.ErrIdle are returned: the caller looks at what it waits
// for again. See executor.Executor.
func (j *Jobs) Await(ctx context.Context, event <-chan struct{}) error {
	return j.executor.Await(ctx, event, j.end)
}

// Begin counts work that Wait waits for. It returns false after Stop; otherwise the caller must
// call End.
func (j *Jobs) Begin() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	if !j.stopped {
		j.running.Add(1)
	}
	return !j.stopped
}

// End ends what Begin began.
func (j *Jobs) End() { j.running.Done() }

// After calls f once d has elapsed, unless Stop is called before.
func (j *Jobs) After(d time.Duration, f func()) {
	t := &timer{}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.stopped {
		return
	}
	j.timers[t] = struct{}{}
	t.stop = j.clock.AfterFunc(d, func() {
		j.mu.Lock()
		delete(j.timers, t)
		stopped := j.stopped
		j.mu.Unlock()
		if !stopped {
			f()
		}
	})
}

// Stop lets no further job begin, stops the timers and ends every Await. It must be called once.
func (j *Jobs) Stop() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.stopped = true
	for t := range j.timers {
		t.stop()
	}
	j.timers = nil
	close(j.end)
}

// Wait returns when all work that Begin counted has ended. REQUIRES: Stop was called, or nothing
// was ever submitted.
func (j *Jobs) Wait() { j.running.Wait() }
