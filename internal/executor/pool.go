package executor

import (
	"context"
	"fmt"
	"sync"
)

// Pool runs jobs on goroutines: at most a fixed number of each class at once, and none while
// there is nothing to do. A job that panics ends the process: a store that goes on after such a
// bug may spread it to disk.
type Pool struct {
	workers sync.WaitGroup

	mu      sync.Mutex
	limits  [Classes]int
	running [Classes]int
	queues  [Classes][]func()
	closed  bool
}

// NewPool returns a pool that runs at most limits[c] jobs of class c at once.
// A limit below one is a programming error.
func NewPool(limits [Classes]int) *Pool {
	for c, n := range limits {
		if n < 1 {
			panic(fmt.Sprintf("executor: limit %d for class %s; it must be at least 1", n, Class(c)))
		}
	}
	return &Pool{limits: limits}
}

// Go implements Executor.
func (p *Pool) Go(class Class, _ string, run func()) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.closed {
		return false
	}
	p.queues[class] = append(p.queues[class], run)
	// Workers take jobs in order: a worker started now runs the oldest waiting job.
	if p.running[class] < p.limits[class] {
		p.running[class]++
		p.workers.Add(1)
		go p.work(class)
	}
	return true
}

// work runs jobs of one class until there are none. It defers nothing, so that a job's panic
// reaches the runtime unchanged.
func (p *Pool) work(class Class) {
	p.mu.Lock()
	for len(p.queues[class]) > 0 {
		next := p.queues[class][0]
		p.queues[class][0] = nil // release what the job captured
		p.queues[class] = p.queues[class][1:]
		p.mu.Unlock()
		next()
		p.mu.Lock()
	}
	p.queues[class] = nil
	p.running[class]--
	p.mu.Unlock()
	p.workers.Done()
}

// Spare implements Executor.
func (p *Pool) Spare(class Class, name string, part func()) bool { return p.Go(class, name, part) }

// Beside implements Executor.
func (p *Pool) Beside(f func() error) (wait func() error) {
	result := make(chan error, 1)
	go func() { result <- f() }()
	return func() error { return <-result }
}

// Await implements Executor.
func (p *Pool) Await(ctx context.Context, event, end <-chan struct{}) error {
	select {
	case <-event:
	case <-end:
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// Close implements Executor. A job must not call it: it would wait for itself.
func (p *Pool) Close() {
	p.mu.Lock()
	p.closed = true
	clear(p.queues[:])
	p.mu.Unlock()
	p.workers.Wait()
}
