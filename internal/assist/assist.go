package assist

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Work is a piece of work to be done once.
type Work interface{ Do() }

// Task is the slot through which an owner offers one piece of work at a time. The zero Task is
// ready. It must not be copied, nor offered again before it is collected.
type Task struct {
	state atomic.Uint32
	work  Work
	wake  chan struct{} // of an owner that waits; made at the first wait
	panic *Panic        // from the work, if it panicked
}

// Panic is what Collect panics with if the work panicked in a helper. So the owner's request
// fails, as if the owner had done the work, and not the process.
type Panic struct {
	Value any
	Stack []byte // of the helper
}

func (p *Panic) Error() string {
	return fmt.Sprintf("in work that a helper did: %v\n%s", p.Value, p.Stack)
}

// States of a Task.
const (
	owned   uint32 = iota // only the owner knows of it
	offered               // the goroutine that changes this state gets the task
	taken                 // a helper works on it
	awaited               // a helper works on it, and the owner waits
	done                  // by a helper
)

// queueLength bounds the tasks that wait for a helper, including those already collected, which
// helpers skip. A longer queue would not help.
const queueLength = 64

// linger is how often an idle helper looks for work before it ends; it yields the processor
// after each look. On a processor of its own this takes some 50 us, about what waking another
// costs the goroutine that wakes it and the one that waits.
const linger = 256

// Helpers are the goroutines that take over work. Methods are safe for concurrent use. A nil
// *Helpers has no helpers.
type Helpers struct {
	limit    int
	run      func()            // the method help as a func value, made once
	offered  func(*Task, Work) // of NewStepped
	returned func(*Task, bool) // of NewStepped

	count atomic.Int32 // tasks in the queue; changed under mu

	mu    sync.Mutex
	queue [queueLength]*Task
	first int // index of the queue's first task
	// helping is how many helper goroutines there are, and free how many of them have no work. A
	// helper ends under the mutex, so no offer is missed.
	helping, free int
	awake         atomic.Bool // helping is above 0
	closed        bool
	ended         sync.Cond
}

// New returns helpers of which at most limit work at once. For computing, a good limit is one
// less than the number of processors: the owner of the work uses one.
func New(limit int) *Helpers {
	h := &Helpers{limit: limit}
	h.run = h.help
	h.ended.L = &h.mu
	return h
}

// NewStepped returns helpers for tests that decide when each piece is done. Each offered task is
// passed to offered; only Help does it, at once or later, until returned says that the owner has
// it back. helped is what Collect returns, and false after Cancel. returned may be nil.
func NewStepped(offered func(*Task, Work), returned func(l *Task, helped bool)) *Helpers {
	h := New(1)
	h.offered, h.returned = offered, returned
	return h
}

// Close ends the helpers and returns when they have ended. Tasks offered and not begun are left
// to their owners.
func (h *Helpers) Close() {
	if h == nil {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	clear(h.queue[:])
	h.count.Store(0)
	for h.helping > 0 {
		h.ended.Wait()
	}
}

// offer queues an offered task; it returns false if that is of no use.
func (h *Helpers) offer(l *Task) bool {
	if h.offered != nil {
		h.offered(l, l.work)
		return true
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	count := int(h.count.Load())
	if h.closed || count == queueLength {
		return false
	}
	h.queue[(h.first+count)%queueLength] = l
	h.count.Store(int32(count + 1))
	if h.free <= count && h.helping < h.limit {
		h.helping++
		h.free++
		h.awake.Store(true)
		go h.run()
	}
	return true
}

// help does offered tasks until there have been none for a while. Between two tasks it yields
// the processor to goroutines that became ready meanwhile.
func (h *Helpers) help() {
	for looks := 0; looks < linger || !h.leave(); looks++ {
		if h.count.Load() > 0 {
			if l := h.take(); l != nil {
				l.Help()
				h.rest()
			}
			looks = 0
		}
		runtime.Gosched()
	}
}

// take takes a task from the queue, if there is one, and counts the helper as working.
func (h *Helpers) take() *Task {
	h.mu.Lock()
	defer h.mu.Unlock()
	count := h.count.Load()
	if count == 0 {
		return nil
	}
	l := h.queue[h.first]
	h.queue[h.first] = nil
	h.first = (h.first + 1) % queueLength
	h.count.Store(count - 1)
	h.free--
	return l
}

// rest counts the helper as free again.
func (h *Helpers) rest() {
	h.mu.Lock()
	h.free++
	h.mu.Unlock()
}

// leave ends a helper, unless a task was offered at the last moment.
func (h *Helpers) leave() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.count.Load() > 0 {
		return false
	}
	h.free--
	h.helping--
	h.awake.Store(h.helping > 0)
	h.ended.Broadcast()
	return true
}

// Help does the work of a task if it is still offered, and reports whether it did. The task may
// hold other work by now, which is done just as well.
func (l *Task) Help() bool {
	if !l.state.CompareAndSwap(offered, taken) {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			l.panic = &Panic{Value: p, Stack: debug.Stack()}
		}
		if l.state.Swap(done) == awaited {
			l.wake <- struct{}{} // never blocks: wake has a buffer of one
		}
	}()
	l.work.Do()
	return true
}

// Underway reports whether a helper is doing the work, so that Collect would wait. The owner may
// do something else first.
func (l *Task) Underway() bool { return l.state.Load() == taken }

// Waiting reports whether the work is offered and no helper has taken it yet.
func (l *Task) Waiting() bool { return l.state.Load() == offered }

// collect gives the task back to the owner. It reports whether a helper did the work.
func (l *Task) collect() (helped bool) {
	// A piece mostly takes less time than sleeping and being woken.
	for looks := 0; looks < linger && l.Underway(); looks++ {
		runtime.Gosched()
	}
	for {
		switch s := l.state.Load(); s {
		case owned:
			return false
		case offered:
			if l.state.CompareAndSwap(offered, owned) {
				l.work = nil
				return false
			}
		case taken:
			if l.wake == nil {
				l.wake = make(chan struct{}, 1)
			}
			if l.state.CompareAndSwap(taken, awaited) {
				<-l.wake
			}
		case done:
			l.work = nil
			l.state.Store(owned)
			return true
		default:
			panic("assist: a task is collected twice")
		}
	}
}
