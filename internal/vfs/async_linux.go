package vfs

import (
	"math"
	"os"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// AsyncReads are reads past the page cache that wait for the device without a thread. A thread that
// waits in a call keeps its place among the GOMAXPROCS that run Go code, until the runtime's
// monitor takes that away: 20 us at the earliest, where a device takes 80 for a block.
//
//	reader                        kernel               run
//	takes a slot, io_submit  ->   reads           ->   waits in io_getevents, and wakes the reader
//	waits for the slot
//
// While nothing is in flight, run waits for a reader: in io_getevents it would keep one of the GOMAXPROCS, until the
// monitor takes that away. If the monitor has slept before, that is after 10 to 20 ms.
//
// This is Linux AIO (io_submit(2)). io_uring completes a read in a task that has to be woken first, which costs
// as much as the read. A read alone waits in a call: then there are idle processors, and the runtime would have
// to wake one.
//
// While other goroutines of the program keep all processors busy, run and a goroutine that is woken wait for
// their turn. Few readers suffer from that, since they all wait. So when few reads get done, the next ones wait
// in calls for a while.
//
// The kernel's objects are made when the first two reads meet. Where the kernel refuses them, all reads
// wait in calls.
type AsyncReads struct {
	clock    clock.Clock
	inFlight atomic.Int32 // reads from the device that are waited for, those in calls included
	meanCost atomic.Int64 // of reads without a thread, in nanoseconds; at most longCost
	inCalls  atomic.Int32 // how many of the next reads wait in calls
	procs    int32        // GOMAXPROCS, or so many that no reader yields
	start    sync.Once
	context  uintptr       // of io_setup
	usable   atomic.Bool   // there is a context
	pending  atomic.Int32  // reads without a thread that run has to wait for
	begun    chan struct{} // has an element when pending rises above 0; closed by Close
	ended    chan struct{} // run has

	rarely atomic.Bool // see admission.others

	slots [asyncSlots]asyncSlot
	free  chan *asyncSlot // without a read
}

// asyncSlots bounds the reads in flight. Devices gain little from more.
const asyncSlots = 64

// The cost of a read is its wait, divided by the reads in flight: the inverse of their rate. When its mean, in
// which the newest read weighs 1/costReads, rises above longCost, callsAfterLong reads wait in calls. So a device
// of less than 2,000 reads a second is read by calls, and one that stops for 10 ms now and then is not.
const (
	longCost       = 500 * time.Microsecond
	costReads      = 256
	callsAfterLong = 1024
)

// With minToYield reads in flight for each of GOMAXPROCS, a reader yields some times before it waits. With at most
// maxToYield it goes on while that takes more than longYields: then other goroutines keep the processors busy, and a
// reader that waits is woken late. More reads than these keep them busy by themselves. Where processors are idle no
// reader goes on: the runtime looks after sockets when a processor has nothing to run, and else every 10 ms.
// GOMAXPROCS is at most maxProcs, as a yield takes a lock of the runtime.
const (
	minToYield = 2
	maxToYield = 4
	yields     = 8
	longYields = yields * time.Microsecond
	mostRounds = 100 // of yields
	maxProcs   = 8
)

// asyncSlot is one read in flight.
type asyncSlot struct {
	request aioRequest
	pointer *aioRequest // to request: io_submit takes an array of pointers
	buffer  []byte      // what the kernel writes into: here, it cannot be on a stack, which moves
	done    chan int64  // bytes read, or a negative error number
	of      *AsyncReads
	want    int64 // how many bytes the caller of StartRead wants
}

// What follows is in linux/aio_abi.h.
type aioRequest struct {
	data   uint64
	_, _   uint32 // for the kernel; flags of a read
	_      uint16 // the operation: 0 is pread
	_      int16  // priority
	fd     uint32
	buf    uint64
	nbytes uint64
	offset int64
	_      uint64
	_, _   uint32 // flags, and an eventfd to signal
}

type aioEvent struct {
	data, _   uint64
	result, _ int64
}

// NewAsyncReads returns reads of which none is in flight.
func NewAsyncReads() *AsyncReads { return &AsyncReads{clock: clock.System()} }

// Close waits for the reads in flight, and ends the goroutine. Later reads wait in calls. If there were reads
// without a thread, it takes some 30 ms, in io_destroy(2).
func (a *AsyncReads) Close() error {
	a.start.Do(func() {})
	if !a.usable.Load() {
		return nil
	}
	for range asyncSlots {
		<-a.free // and no later read finds one
	}
	a.usable.Store(false)
	close(a.begun)
	if _, _, e := unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0); e != 0 {
		return os.NewSyscallError("io_destroy", e)
	}
	<-a.ended
	return nil
}

// begin makes the kernel's objects.
func (a *AsyncReads) begin() {
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, asyncSlots, uintptr(unsafe.Pointer(&a.context)), 0); e != 0 {
		return
	}
	// Where io_getevents is refused, as a filter of system calls may do, no read must wait for it.
	var now unix.Timespec
	refused := unix.EINTR
	for refused == unix.EINTR { // a signal to the thread, which the runtime sends now and then
		_, _, refused = unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, 0, 0, 0, uintptr(unsafe.Pointer(&now)), 0)
	}
	if refused != 0 {
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0)
		return
	}
	a.free = make(chan *asyncSlot, asyncSlots)
	for i := range a.slots {
		s := &a.slots[i]
		s.of, s.done = a, make(chan int64, 1)
		s.pointer = &s.request
		s.request = aioRequest{data: uint64(i)}
		a.free <- s
	}
	a.begun, a.ended = make(chan struct{}, 1), make(chan struct{})
	if a.procs = int32(runtime.GOMAXPROCS(0)); a.procs > maxProcs {
		a.procs = math.MaxInt32 / maxToYield
	}
	a.usable.Store(true)
	go a.run()
}

// run wakes readers. It waits in a call, in a thread of its own, which the kernel wakes at once; the runtime's poller
// would have to be woken, and to wake a goroutine.
func (a *AsyncReads) run() {
	defer close(a.ended)
	var events [asyncSlots]aioEvent
	for range a.begun {
		for a.pending.Load() > 0 {
			n, _, e := unix.Syscall6(unix.SYS_IO_GETEVENTS, a.context, 1, asyncSlots, uintptr(unsafe.Pointer(&events)), 0, 0)
			switch {
			case e == unix.EINTR:
				continue
			case e != 0:
				return // Close destroyed the context
			}
			for _, done := range events[:n] {
				a.slots[done.data].done <- done.result
			}
			a.pending.Add(-int32(n))
			// The readers run first: for 20 us, the call would keep the processor that they wait for.
			runtime.Gosched()
		}
	}
}

// enter counts a read, and reports whether it should wait without a thread. Of nil, it should not.
func (a *AsyncReads) enter() bool {
	if a == nil {
		return false
	}
	alone := a.inFlight.Add(1) == 1
	if a.inCalls.Load() > 0 {
		a.inCalls.Add(-1)
		return false
	}
	return !alone
}

func (a *AsyncReads) leave() {
	if a != nil {
		a.inFlight.Add(-1)
	}
}

// read reads from a file that was opened for direct reads, and returns how many bytes; -1 if nothing can be
// in flight now, or the read failed.
func (a *AsyncReads) read(fd uintptr, p []byte, off int64) int {
	begun := a.clock.Elapsed()
	s := a.submit(fd, p, off, 0)
	if s == nil {
		return -1
	}
	n := a.await(s.done)
	a.waited(a.clock.Elapsed() - begun)
	s.release()
	return int(n)
}

// submit begins a read, for which the caller awaits and releases the slot. It returns nil if no more than spare slots are
// free, or nothing can be in flight now.
func (a *AsyncReads) submit(fd uintptr, p []byte, off int64, spare int) *asyncSlot {
	a.start.Do(a.begin)
	if !a.usable.Load() || len(a.free) <= spare {
		return nil
	}
	var s *asyncSlot
	select {
	case s = <-a.free:
	default:
		return nil
	}
	s.buffer = p
	r := &s.request
	r.fd, r.offset, r.buf, r.nbytes = uint32(fd), off, uint64(uintptr(unsafe.Pointer(&p[0]))), uint64(len(p))
	if a.pending.Add(1) == 1 {
		select {
		case a.begun <- struct{}{}:
		default: // run has yet to look at pending
		}
	}
	if n, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, a.context, 1, uintptr(unsafe.Pointer(&s.pointer))); e != 0 || n != 1 {
		a.pending.Add(-1) // run may wait for it until the next read
		s.release()
		return nil
	}
	return s
}

// release makes room for another read.
func (s *asyncSlot) release() {
	s.buffer = nil
	s.of.free <- s
}

// Wait is that of Started.
func (s *asyncSlot) Wait() bool {
	a := s.of
	a.inFlight.Add(1)
	n := a.await(s.done)
	a.inFlight.Add(-1)
	whole := n == s.want
	s.release()
	return whole
}

// await waits for a read.
func (a *AsyncReads) await(done <-chan int64) int64 {
	for range mostRounds {
		if a.inFlight.Load() < minToYield*a.procs {
			break
		}
		began := a.clock.Elapsed()
		for range yields {
			select {
			case n := <-done:
				return n
			default:
			}
			runtime.Gosched()
		}
		if a.clock.Elapsed()-began < longYields || a.inFlight.Load() > maxToYield*a.procs {
			break
		}
	}
	return <-done
}

// waited notes how long a read took that waited without a thread.
func (a *AsyncReads) waited(d time.Duration) {
	mean := time.Duration(a.meanCost.Load())
	cost := d / time.Duration(a.inFlight.Load())
	mean += (cost - mean) / costReads // reads that end at once may lose one of their costs
	a.meanCost.Store(int64(min(mean, longCost)))
	if mean > longCost {
		a.inCalls.Store(callsAfterLong)
	}
}
