package executortest

import (
	"context"
	"slices"
	"sync"

	"github.com/flagstone-db/flagstone/internal/executor"
)

// Manual queues jobs and runs one only when a test says so, on the stack of the test. If one
// goroutine calls everything, a run is a function of the choices that the test makes.
type Manual struct {
	running sync.WaitGroup

	mu     sync.Mutex
	queue  []job // of all classes, the oldest first
	closed bool
}

// JobInfo describes a queued job.
type JobInfo struct {
	Class executor.Class
	Name  string
}

// job is a queued job.
type job struct {
	JobInfo
	run func()
}

// NewManual returns an executor with an empty queue.
func NewManual() *Manual { return &Manual{} }

// Go implements executor.Executor.
func (m *Manual) Go(class executor.Class, name string, run func()) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return false
	}
	m.queue = append(m.queue, job{JobInfo{class, name}, run})
	return true
}

// Pending lists the queued jobs, the oldest first.
func (m *Manual) Pending() []JobInfo {
	m.mu.Lock()
	defer m.mu.Unlock()
	infos := make([]JobInfo, len(m.queue))
	for i, j := range m.queue {
		infos[i] = j.JobInfo
	}
	return infos
}

// Step runs job i of Pending and returns when it has ended; it returns false if there is no such
// job. A test that picks i at random explores the orders in which the jobs could have run, also
// within a class, where several run at once and may end in any order. A job may queue further
// jobs.
func (m *Manual) Step(i int) bool {
	m.mu.Lock()
	if i < 0 || i >= len(m.queue) {
		m.mu.Unlock()
		return false
	}
	next := m.queue[i]
	m.queue = slices.Delete(m.queue, i, i+1)
	m.running.Add(1)
	m.mu.Unlock()
	defer m.running.Done()
	next.run()
	return true
}

// Spare implements executor.Executor: no goroutine is spare.
func (m *Manual) Spare(executor.Class, string, func()) bool { return false }

// Beside implements executor.Executor. f runs as late as possible: that order is the most likely to show a
// caller that forgets to wait.
func (m *Manual) Beside(f func() error) (wait func() error) { return f }

// Await implements executor.Executor: it runs the job that was queued first.
func (m *Manual) Await(ctx context.Context, _, _ <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if !m.Step(0) {
		return executor.ErrIdle
	}
	return nil
}

// RunAll runs jobs in the order they were queued until none is left, including those that the
// jobs themselves queue. It returns how many ran, and does not return while jobs go on queueing
// jobs.
func (m *Manual) RunAll() int {
	n := 0
	for m.Step(0) {
		n++
	}
	return n
}

// Close implements executor.Executor. A job must not call it: it would wait for itself.
func (m *Manual) Close() {
	m.mu.Lock()
	m.closed = true
	m.queue = nil
	m.mu.Unlock()
	m.running.Wait()
}
