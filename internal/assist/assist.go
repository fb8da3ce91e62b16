package assist

import (
	"fmt"
	"runtime"
	"runtime/debug"
	"sync"
	"sync/atomic"
)

// Work is something to be done once.
type Work interface{ Do() }

// Task is the place of one piece of work at a time. The zero Task is ready. It
// must not be copied, nor offered again before it is collected.
type Task struct {
	state atomic.Uint32
	work  Work
	wake  chan struct{} // of an owner who waits; made when the first does
	panic *Panic        // that ended the work
}

// Panic is what Collect panics with if the work did so when a helper did it: it is
// the owner's request that fails then, as if he had done it, and not the process.
type Panic struct {
	Value any
	Stack []byte // of the helper
}

func (p *Panic) Error() string { return fmt.Sprintf("in lent work: %v\n%s", p.Value, p.Stack) }

// States of a Task.
const (
	owned   uint32 = iota // nobody but the owner knows of it
	offered               // whoever changes this has it
	taken                 // a helper is at it,
	awaited               // and the owner waits
	done                  // by a helper
)

// queueLength bounds the offers that wait for a helper, those included that were
// collected meanwhile and are passed over. More wait for nothing.
const queueLength = 64

// linger is how often a helper looks for work before it ends, letting others have
// the processor each time. With a processor of its own that takes some 50 us: about
// what it costs to wake another, for the one who wakes and the one who waits.
const linger = 256

// Helpers are the goroutines that take over work. Methods are safe for concurrent
// use. Nil is none.
type Helpers struct {
	limit    int
	run      func()            // the method help, as a value that is made once
	offered  func(*Task, Work) // of NewStepped
	returned func(*Task, bool) // likewise

	count atomic.Int32 // in the queue; changed under the mutex

	mu    sync.Mutex
	queue [queueLength]*Task
	first int // in the queue
	// helping is how many goroutines there are, and free how many of them are not at
	// work. One that ends does so under the mutex, so no offer is missed.
	helping, free int
	awake         atomic.Bool // helping is above 0
	closed        bool
	ended         sync.Cond
}

// New returns helpers of which at most so many are at work at once. For what
// computes, one less than there are processors is a good limit: the owner of the
// work has one.
func New(limit int) *Helpers {
	h := &Helpers{limit: limit}
	h.run = h.help
	h.ended.L = &h.mu
	return h
}

// NewManual returns helpers for tests that have one goroutine: what they do is done
// before Offer returns, if judge says so for this piece, and never otherwise.
func NewManual(judge func() bool) *Helpers {
	return NewStepped(func(l *Task, _ Work) {
		if judge() {
			l.Help()
		}
	}, nil)
}

// NewStepped returns helpers for tests that decide when which piece is done: every
// loan that is offered is shown to offered, and helped by Help alone, at once or as
// much later as the test likes, until returned is told that its owner has it back, with
// what Collect returns; false if it was cancelled. returned may be nil.
func NewStepped(offered func(*Task, Work), returned func(l *Task, helped bool)) *Helpers {
	h := New(1)
	h.offered, h.returned = offered, returned
	return h
}

// Close makes the helpers end, and returns when they have. What was offered and not
// begun is left to its owners.
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

// offer queues a loan that is offered; false if that is of no use.
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

// help does what is offered until nothing has been for a while. Between two pieces
// it lets others have the processor: whoever became ready to run meanwhile has not
// asked for a helper.
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

// take takes a loan from the queue, if there is one, to go to work.
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

// rest ends what take began.
func (h *Helpers) rest() {
	h.mu.Lock()
	h.free++
	h.mu.Unlock()
}

// leave ends a helper, unless something was offered at the last moment.
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

// Help does the work of a loan if it is still offered, and reports whether it did.
// It may be offered for something else by now: that is as good.
func (l *Task) Help() bool {
	if !l.state.CompareAndSwap(offered, taken) {
		return false
	}
	defer func() {
		if p := recover(); p != nil {
			l.panic = &Panic{Value: p, Stack: debug.Stack()}
		}
		if l.state.Swap(done) == awaited {
			l.wake <- struct{}{} // has room
		}
	}()
	l.work.Do()
	return true
}

// Underway reports whether a helper is at the work, so that Collect would wait. Who
// has something else to do may do that first.
func (l *Task) Underway() bool { return l.state.Load() == taken }

// Waiting reports whether the work is offered and no helper has come yet.
func (l *Task) Waiting() bool { return l.state.Load() == offered }

// collect makes the loan the owner's. It reports whether a helper did the work.
func (l *Task) collect() (helped bool) {
	// A piece takes less than to sleep and be woken, mostly.
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
