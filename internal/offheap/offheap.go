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
// filling it. Allocations larger than a chunk are mapped on their own, and reused if they are whole
// chunks.
//
// Memory of a Pool must hold no Go pointers, since the collector does not see them.
package offheap

import (
	"cmp"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"
)

// Options configure a pool.
type Options struct {
	// Idle is how many free bytes in whole chunks are kept for reuse. Default 64 MiB; negative means
	// none.
	Idle int64
	// Source, if not nil, has the memory of each allocation. Package offheaptest has one that
	// finds mistakes of the pool's users.
	Source Source
}

// Source maps memory. The pool calls one method at a time.
type Source interface {
	// Map returns n bytes, n above 0. If n is a power of two and at least a page, they begin at a
	// page boundary.
	Map(n int) []byte
	// Unmap takes back what Map returned.
	Unmap(m []byte)
}

// system is the operating system.
type system struct{}

const defaultIdle = 64 << 20

// Pool is a source of memory. Its methods are safe for concurrent use.
type Pool struct {
	source Source
	alone  bool // every allocation is mapped on its own
	idle   int64

	slack atomic.Int64

	mu      sync.Mutex
	chunks  map[uintptr]*chunk // by address / chunkSize
	large   map[uintptr]large  // mapped for one Alloc each, by address
	kept    []large            // free ones of whole chunks, the oldest first
	free    [orders]spanList   // free spans by order
	partial [classes]spanList  // spans of a class with free slots
	mapped  int64
	inUse   int64
	allocs  int64
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
	return &Pool{
		source: cmp.Or[Source](opts.Source, system{}), alone: opts.Source != nil,
		idle:   cmp.Or(opts.Idle, defaultIdle),
		chunks: map[uintptr]*chunk{}, large: map[uintptr]large{},
	}
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
	if p.alone {
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
	if l, ok := p.large[at]; ok {
		delete(p.large, at)
		p.inUse -= l.size()
		p.kept = append(p.kept, l)
		if l.size()%chunkSize == 0 && l.size() <= p.idle && !p.alone {
			p.trim(max(p.idle, 0))
		} else {
			p.unmapKept(len(p.kept) - 1)
		}
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
	if p.allocs > 0 {
		return fmt.Errorf("offheap: %d allocations, of %d bytes, were not freed", p.allocs, p.inUse)
	}
	return nil
}

// large is memory for an allocation that shares its mapping with no other.
type large struct {
	memory []byte
	mapped []byte // to be unmapped
}

func (l *large) size() int64 { return int64(cap(l.memory)) }

// allocLarge returns size bytes of their own, for an allocation of n bytes.
func (p *Pool) allocLarge(n, size int) []byte {
	var l large
	if i := slices.IndexFunc(p.kept, func(l large) bool { return cap(l.memory) == size }); i >= 0 {
		l = p.kept[i]
		p.kept = slices.Delete(p.kept, i, i+1)
	} else {
		if size >= chunkSize && !p.alone {
			l.memory, l.mapped = p.mapHuge(size)
		} else {
			l.memory = p.source.Map(size)
			l.mapped = l.memory
		}
		p.mapped += int64(size)
	}
	p.large[address(l.memory)] = l
	p.inUse += int64(size)
	return l.memory[:n:size]
}

// unmapKept unmaps a free large allocation.
func (p *Pool) unmapKept(i int) {
	p.mapped -= p.kept[i].size()
	p.source.Unmap(p.kept[i].mapped)
	p.kept = slices.Delete(p.kept, i, i+1)
}

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }
