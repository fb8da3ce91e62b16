package vfs

import (
	"errors"
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
//	reader                        kernel                     the first one that comes
//	takes a slot, io_submit  ->   reads, and appends an  ->  Reap: a later reader, a merge
//	waits for the slot            event to the ring          that yields, or run
//
// This is Linux AIO (io_submit(2)), whose events lie in memory that both sides see. io_uring completes a
// read in a task that has to be woken first, which costs as much as the read. A read alone waits in a
// call: then there are idle processors, and the runtime would have to wake one.
//
// While other goroutines of the program keep all processors busy, run is woken at most every 10 ms, by the
// runtime's monitor, and a goroutine that is woken waits for its turn. Few readers suffer from that, since
// they all wait, and none reaps. So when few reads get done, the next ones wait in calls for a while.
//
// The kernel's objects are made when the first two reads meet. Where the kernel refuses them, all reads
// wait in calls.
type AsyncReads struct {
	clock    clock.Clock
	inFlight atomic.Int32 // reads from the device, those in calls included
	meanCost atomic.Int64 // of reads without a thread, in nanoseconds; at most longCost
	inCalls  atomic.Int32 // how many of the next reads wait in calls
	procs    int32        // GOMAXPROCS, or so many that no reader yields
	start    sync.Once
	ring     atomic.Pointer[aioRing] // nil: not begun, or refused
	context  uintptr                 // of io_setup
	event    *os.File                // an eventfd, which the kernel signals for each read
	ended    chan struct{}           // run has

	slots [asyncSlots]asyncSlot
	free  chan uint64 // slots without a read

	reaping sync.Mutex
	events  []aioEvent // of the ring
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
// reader goes on: it would get more reads done, but the runtime looks after sockets when a processor has nothing to
// run, and else every 10 ms. GOMAXPROCS is at most maxProcs, as a yield takes a lock of the runtime.
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
}

// What follows is in linux/aio_abi.h, but for aioRing, which is in fs/aio.c and has been the same since
// Linux 2.6.
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
	flags  uint32
	event  uint32
}

type aioEvent struct {
	data, _   uint64
	result, _ int64
}

// aioRing is the head of a ring of events. The kernel moves its tail, Reap its head.
type aioRing struct {
	_, entries, head, tail, magic, _, incompatible, length uint32
}

const (
	aioMagic       = 0xa10a10a1
	aioSignalEvent = 1 // flag: signal the eventfd
)

// NewAsyncReads returns reads of which none is in flight.
func NewAsyncReads() *AsyncReads { return &AsyncReads{clock: clock.System()} }

// Close waits for the reads in flight, and ends the goroutine. Later reads wait in calls. If there were reads
// without a thread, it takes some 30 ms, in io_destroy(2). REQUIRES: Reap is not called any more.
func (a *AsyncReads) Close() error {
	a.start.Do(func() {})
	if a.ring.Load() == nil {
		return nil
	}
	for range asyncSlots {
		<-a.free // and no later read finds one
	}
	err := a.event.Close()
	<-a.ended
	a.ring.Store(nil)
	a.events = nil // they are not in Go's memory
	if _, _, e := unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0); e != 0 {
		err = errors.Join(err, os.NewSyscallError("io_destroy", e))
	}
	return err
}

// begin makes the kernel's objects.
func (a *AsyncReads) begin() {
	fd, err := unix.Eventfd(0, unix.EFD_NONBLOCK|unix.EFD_CLOEXEC)
	if err != nil {
		return
	}
	event := os.NewFile(uintptr(fd), "eventfd")
	if event.SetReadDeadline(time.Time{}) != nil { // the runtime's poller did not take it
		event.Close()
		return
	}
	if _, _, e := unix.Syscall(unix.SYS_IO_SETUP, asyncSlots, uintptr(unsafe.Pointer(&a.context)), 0); e != 0 {
		event.Close()
		return
	}
	// The context is the address of the ring, which is not Go's memory.
	ring := (*aioRing)(*(*unsafe.Pointer)(unsafe.Pointer(&a.context)))
	if ring.magic != aioMagic || ring.incompatible != 0 {
		event.Close()
		_, _, _ = unix.Syscall(unix.SYS_IO_DESTROY, a.context, 0, 0)
		return
	}
	a.events = unsafe.Slice((*aioEvent)(unsafe.Add(unsafe.Pointer(ring), ring.length)), ring.entries)
	a.free = make(chan uint64, asyncSlots)
	for i := range a.slots {
		s := &a.slots[i]
		s.done = make(chan int64, 1)
		s.pointer = &s.request
		s.request = aioRequest{data: uint64(i), flags: aioSignalEvent, event: uint32(fd)}
		a.free <- uint64(i)
	}
	a.event, a.ended = event, make(chan struct{})
	if a.procs = int32(runtime.GOMAXPROCS(0)); a.procs > maxProcs {
		a.procs = math.MaxInt32 / maxToYield
	}
	a.ring.Store(ring)
	go a.run()
}

// run reaps what no reader and no merge does, because all processors are idle.
func (a *AsyncReads) run() {
	defer close(a.ended)
	var count [8]byte
	for {
		if _, err := a.event.Read(count[:]); err != nil {
			return // it was closed
		}
		a.reap(true)
	}
}

// Reap wakes the readers whose reads are done. It costs a few loads if there are none. Reap of nil does
// nothing.
func (a *AsyncReads) Reap() { a.reap(false) }

func (a *AsyncReads) reap(wait bool) {
	if a == nil {
		return
	}
	ring := a.ring.Load()
	if ring == nil || atomic.LoadUint32(&ring.head) == atomic.LoadUint32(&ring.tail) {
		return
	}
	if wait {
		a.reaping.Lock()
	} else if !a.reaping.TryLock() {
		return
	}
	defer a.reaping.Unlock()
	for ring.head != atomic.LoadUint32(&ring.tail) {
		e := a.events[ring.head]
		atomic.StoreUint32(&ring.head, (ring.head+1)%ring.entries)
		a.slots[e.data].done <- e.result
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
	a.start.Do(a.begin)
	if a.ring.Load() == nil {
		return -1
	}
	var i uint64
	select {
	case i = <-a.free:
	default:
		return -1
	}
	s := &a.slots[i]
	s.buffer = p
	defer func() {
		s.buffer = nil
		a.free <- i
	}()
	r := &s.request
	r.fd, r.offset, r.buf, r.nbytes = uint32(fd), off, uint64(uintptr(unsafe.Pointer(&p[0]))), uint64(len(p))
	begun := a.clock.Elapsed()
	if n, _, e := unix.Syscall(unix.SYS_IO_SUBMIT, a.context, 1, uintptr(unsafe.Pointer(&s.pointer))); e != 0 || n != 1 {
		return -1
	}
	n := a.await(s.done)
	a.waited(a.clock.Elapsed() - begun)
	return int(n)
}

// await waits for a read.
func (a *AsyncReads) await(done <-chan int64) int64 {
	a.Reap()
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
			a.Reap()
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
