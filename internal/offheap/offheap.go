// Package offheap hands out memory that the garbage collector neither scans nor counts: for the
// block cache, the arenas of memtables and large read buffers. On the heap, this memory would
// let the heap grow to twice its size between collections; off the heap, a budget in bytes is
// exact.
//
//	Pool ──► chunk, 2 MiB of anonymous memory, aligned to its size
//	           └─► span, 64 KiB to 2 MiB: a power of two (buddies)
//	                 └─► slots of one size class, or one large allocation
//
// Chunks are reused before they are unmapped, since the first touch of a page costs more than
// filling it. Allocations larger than a chunk are mapped on their own.
//
// Memory of a Pool must hold no Go pointers, since the collector does not see them.
package offheap

import (
	"cmp"
	"fmt"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Mode chooses how a pool finds its users' mistakes. Tests set it.
type Mode int

const (
	// Plain only notices a Free of memory that is not allocated.
	Plain Mode = iota
	// Poison overwrites freed memory, and checks at the next allocation that it was not written
	// meanwhile.
	Poison
	// Guard maps every allocation on its own, ending at an inaccessible page. Freed memory
	// becomes inaccessible too, and its addresses are not reused until quarantine others were
	// freed. So a use after Free, or beyond the end, is a fault. Where memory cannot be mapped,
	// Guard is Poison.
	Guard
)

// Options configure a pool.
type Options struct {
	// Idle is how many bytes of free chunks are kept for reuse. Default 64 MiB; negative means
	// none.
	Idle int64
	// Mode is how mistakes are found.
	Mode Mode
}

const (
	defaultIdle = 64 << 20
	// quarantine is how many freed allocations a guarded pool keeps. The kernel bounds the
	// mappings of a process (65,530 on Linux).
	quarantine = 8 << 10
)

// Pool is a source of memory. Its methods are safe for concurrent use.
type Pool struct {
	mode Mode
	idle int64

	slack atomic.Int64

	mu      sync.Mutex
	chunks  map[uintptr]*chunk     // by address / chunkSize
	large   map[uintptr]allocation // by address
	free    [orders]spanList       // free spans by order
	partial [classes]spanList      // spans of a class with free slots
	unused  int64                  // bytes of chunks that are one free span
	mapped  int64
	inUse   int64
	allocs  int64
	freed   [][]byte // in Guard, oldest first: still mapped, inaccessible
}

// allocation is memory that was mapped for one Alloc.
type allocation struct {
	memory []byte // as mapped
	size   int64  // charged
}

// Stats is a pool's present content.
type Stats struct {
	// InUse is the bytes handed out, rounded up to size classes.
	InUse int64
	// Mapped is the bytes that the pool has from the operating system.
	Mapped int64
	// Allocations is how many allocations were not freed.
	Allocations int64
}

// New makes a pool.
func New(opts Options) *Pool {
	p := &Pool{
		mode: opts.Mode, idle: cmp.Or(opts.Idle, defaultIdle),
		chunks: map[uintptr]*chunk{}, large: map[uintptr]allocation{},
	}
	if p.mode == Guard && !canGuard {
		p.mode = Poison
	}
	return p
}

// Size is the capacity of what Alloc(n) returns: n rounded up by at most an eighth, or to 64
// bytes if it is small.
func Size(n int) int {
	if c, ok := classOf(n); ok {
		return classSize(c)
	}
	if n <= chunkSize {
		if size := spanSize(orderOf(n)); size-n <= n/8 {
			return size
		}
	}
	return (n + pageSize - 1) &^ (pageSize - 1)
}

// pageSize is the rounding of large allocations. Pages of the platform may be larger: the kernel
// rounds mappings.
const pageSize = 4 << 10

// Alloc returns n bytes with the capacity Size(n). Their content is undefined. If n is a power
// of two and at least a page, they begin at a page boundary.
func (p *Pool) Alloc(n int) []byte {
	if n < 0 {
		panic("offheap: negative size")
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.allocs++
	if p.mode == Guard {
		return p.allocLarge(n, max(n, 1))
	}
	var b []byte
	if c, ok := classOf(n); ok {
		b = p.allocSlot(c)
	} else if size := Size(n); size <= chunkSize && size == spanSize(orderOf(n)) {
		b = p.allocSpan(orderOf(n), wholeSpan).memory()
	} else {
		return p.allocLarge(n, size)
	}
	p.inUse += int64(cap(b))
	p.checkPoison(b)
	return b[:n]
}

// Free takes back what Alloc returned; only its address matters. A slice without capacity is
// ignored. Freeing anything else, or twice, is a broken invariant and panics.
func (p *Pool) Free(b []byte) {
	if cap(b) == 0 {
		return
	}
	at := address(b)
	p.mu.Lock()
	defer p.mu.Unlock()
	if a, ok := p.large[at]; ok {
		p.freeLarge(at, a)
	} else if c := p.chunks[at/chunkSize]; c != nil {
		p.freeIn(c, at)
	} else {
		panic(fmt.Sprintf("offheap: free of %#x, which is not allocated", at))
	}
	p.allocs--
}

// Stats returns the present content.
func (p *Pool) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	return Stats{InUse: p.inUse, Mapped: p.mapped, Allocations: p.allocs}
}

// Slack is how many bytes the spans of size classes have beyond what is in use. A change of
// sizes leaves them behind until the last slot of a span is free. A user that bounds its memory
// by evicting adds them to what it uses.
func (p *Pool) Slack() int64 { return p.slack.Load() }

// Close gives all free memory back. If some was not freed, it returns an error that says how
// much; that stays mapped, because its users might crash otherwise.
func (p *Pool) Close() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.trim(0)
	for _, m := range p.freed {
		unmapMemory(m)
	}
	p.freed = nil
	if p.allocs > 0 {
		return fmt.Errorf("offheap: %d allocations, of %d bytes, were not freed", p.allocs, p.inUse)
	}
	return nil
}

// allocLarge maps n bytes on their own, and charges size.
func (p *Pool) allocLarge(n, size int) []byte {
	var m, b []byte
	if p.mode == Guard {
		m, b = mapGuarded(size)
	} else {
		m = mapMemory(size)
		b = m
	}
	p.large[address(b)] = allocation{memory: m, size: int64(size)}
	p.mapped += int64(size)
	p.inUse += int64(size)
	return b[:n:size]
}

func (p *Pool) freeLarge(at uintptr, a allocation) {
	delete(p.large, at)
	p.mapped -= a.size
	p.inUse -= a.size
	switch p.mode {
	case Poison:
		poison(a.memory)
	case Guard:
		guardMemory(a.memory)
		p.freed = append(p.freed, a.memory)
		if len(p.freed) <= quarantine {
			return
		}
		a.memory, p.freed = p.freed[0], p.freed[1:]
	}
	unmapMemory(a.memory)
}

const poisonByte = 0xDB

func poison(b []byte) {
	b = b[:cap(b)]
	for i := range b {
		b[i] = poisonByte
	}
}

// checkPoison panics if freed memory was written.
func (p *Pool) checkPoison(b []byte) {
	if p.mode != Poison {
		return
	}
	b = b[:cap(b)]
	for i, x := range b {
		if x != poisonByte {
			panic(fmt.Sprintf("offheap: byte %d of %d was written after its memory was freed", i, len(b)))
		}
	}
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
