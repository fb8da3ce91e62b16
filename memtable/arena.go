package memtable

// The arena: memory in slabs without pointers, freed only as a whole. Slabs come from a pool
// outside the Go heap: the collector does not wait for twice their size, huge pages save a random
// insert some of its TLB misses, and the slabs of a flushed memtable serve the next one without a
// page fault.
//
//	link (32 bits) = slab number (15 bits) | word in the slab (17 bits)
//
// A word is 8 bytes, so a link reaches the first 1 MiB of each of 32,768 slabs. Ordinary slabs
// are no larger. An allocation that is large for its region gets a slab of its own, of any size;
// it begins at the start of that slab, which is the only place a link must reach. Such slabs share
// blocks of memory.
//
// Link 0 is nil: there is no slab 0.
//
// Allocations of one kind share a region, which fills one slab after the other. Slabs start
// small, because a store has thousands of almost empty memtables, and grow with the region.

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
)

const (
	wordSize     = 8
	slabWordBits = 17
	maxSlabSize  = wordSize << slabWordBits
	maxSlabs     = 1 << (32 - slabWordBits)
	firstBases   = 8 // entries of the first directory
	// oversizedShare is the limit: an allocation above this fraction of a slab gets a slab of its
	// own, unless it takes at most ordinary bytes and half of the slab. It bounds the waste at the
	// end of a slab.
	oversizedShare = 8
	ordinary       = 2 << 10
	// growShare is how large a region is at least when it gets a slab, in sizes of that slab. It
	// bounds what the slabs of a thousand small memtables take beyond the data in them.
	growShare = 4
	// blockSize is the size of a block, which has oversized slabs of a region from blockFrom bytes on. A
	// block is of huge pages: the first touch of a MiB takes 0.04 ms there, and 0.5 ms in memory mapped
	// for one slab. Only the touched part of a fresh block takes memory, to the next 2 MiB. The rest of
	// a block that the next slab does not fit is lost.
	blockSize, blockFrom = 8 << 20, 8 << 20
)

// link is the address of an allocation in the arena; 0 is nil.
type link uint32

type arena struct {
	// bases is the directory: an array of the slabs' addresses, by number. A full one is replaced
	// with a copy of twice the size. Both pointer and entry are written before any link into the
	// slab is published, so that the holder of a link may read them. They are atomic only for the
	// race detector: a link outside the Go heap is published unseen.
	bases unsafe.Pointer

	pool *offheap.Pool // nil: the Go heap

	mu       sync.Mutex   // guards growth, also that of the row hash
	slabs    uint32       // made so far; the first has number 1
	entries  uint32       // of the directory
	taken    [][]byte     // from the pool
	block    []uint64     // the rest of the last block
	reserved atomic.Int64 // bytes of all that was taken
}

// region is a sequence of slabs; the last one is being filled.
type region struct {
	current   atomic.Pointer[slab]
	oversized atomic.Int64 // bytes in slabs of their own
	firstSize int
}

// slab is the slab of a region that is being filled.
type slab struct {
	base   unsafe.Pointer
	first  link
	size   int64
	before int64        // bytes of the slabs before this one
	used   atomic.Int64 // grows beyond size when an allocation did not fit
}

// at returns the memory that l addresses.
func (a *arena) at(l link) unsafe.Pointer {
	base := atomic.LoadPointer(entryOf(atomic.LoadPointer(&a.bases), uint32(l>>slabWordBits)))
	return unsafe.Add(base, uintptr(l&(1<<slabWordBits-1))*wordSize)
}

// entryOf is an entry of a directory.
func entryOf(bases unsafe.Pointer, number uint32) *unsafe.Pointer {
	return (*unsafe.Pointer)(unsafe.Add(bases, uintptr(number)*unsafe.Sizeof(bases)))
}

// alloc takes n bytes, aligned to a word, from r. Their content is undefined.
func (a *arena) alloc(r *region, n int) (link, unsafe.Pointer) {
	size := roundUp(n)
	for {
		s := r.current.Load()
		limit := int64(r.firstSize)
		if s != nil {
			limit = s.size
		}
		if size > largest(limit) && r.isOversized(s, size) {
			return a.allocOversized(r, size)
		}
		if s != nil {
			if end := s.used.Add(size); end <= s.size {
				start := end - size
				return s.first + link(start/wordSize), unsafe.Add(s.base, start)
			}
		}
		a.grow(r, s)
	}
}

// isOversized reports whether size is too large for the slabs of r; s is the one being filled.
// The next slab counts too: otherwise a region of large rows would never begin to fill one.
func (r *region) isOversized(s *slab, size int64) bool {
	limit, have := int64(r.firstSize), r.oversized.Load()
	if s != nil {
		limit, have = s.size, have+s.before+s.size
	}
	return size > largest(max(limit, min(have/growShare, maxSlabSize)))
}

// largest is the size of the largest allocations that share a slab of a size. Small slabs take
// ordinary rows too: a memtable of a few rows would otherwise make a slab for each.
func largest(slab int64) int64 { return max(slab/oversizedShare, min(slab/2, ordinary)) }

// allocOversized allocates size bytes in a slab of their own.
func (a *arena) allocOversized(r *region, size int64) (link, unsafe.Pointer) {
	a.mu.Lock()
	defer a.mu.Unlock()
	words := size / wordSize
	var memory []uint64
	switch {
	case a.pool == nil || r.used() < blockFrom || size > blockSize/4:
		memory = a.take(size)
	case int64(len(a.block)) < words:
		a.block = a.take(blockSize)
		fallthrough
	default:
		memory, a.block = a.block[:words], a.block[words:]
	}
	r.oversized.Add(size)
	return a.addSlab(memory)
}

// grow replaces full, the current slab of r, unless another writer did so meanwhile.
func (a *arena) grow(r *region, full *slab) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if r.current.Load() != full {
		return
	}
	next := &slab{size: int64(r.firstSize)}
	if full != nil {
		next.before = full.before + full.size
	}
	for have := next.before + r.oversized.Load(); next.size < maxSlabSize && next.size <= have/(2*growShare); {
		next.size *= 2
	}
	next.first, next.base = a.addSlab(a.take(next.size))
	r.current.Store(next)
}

// addSlab adds memory to the directory. REQUIRES: mu is held.
func (a *arena) addSlab(memory []uint64) (link, unsafe.Pointer) {
	number := a.slabs + 1
	if number == maxSlabs {
		panic("memtable: arena full; a memtable must be flushed long before it holds 4 GiB")
	}
	base := unsafe.Pointer(unsafe.SliceData(memory))
	a.slabs = number
	if number >= a.entries {
		bases := make([]unsafe.Pointer, max(2*a.entries, firstBases))
		copy(bases, unsafe.Slice((*unsafe.Pointer)(a.bases), a.entries))
		a.entries = uint32(len(bases))
		atomic.StorePointer(&a.bases, unsafe.Pointer(unsafe.SliceData(bases)))
	}
	atomic.StorePointer(entryOf(a.bases, number), base)
	return link(number << slabWordBits), base
}

// take allocates size bytes, aligned to a word. free returns them. REQUIRES: mu is held.
func (a *arena) take(size int64) []uint64 {
	a.reserved.Add(size)
	if a.pool == nil {
		return make([]uint64, size/wordSize)
	}
	b := a.pool.Alloc(int(size))
	a.taken = append(a.taken, b)
	return unsafe.Slice((*uint64)(unsafe.Pointer(unsafe.SliceData(b))), size/wordSize)
}

// free returns all memory to the pool.
func (a *arena) free() {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, b := range a.taken {
		a.pool.Free(b)
	}
	a.taken = nil
}

// used returns the bytes that r has handed out, including the waste at the end of full slabs.
func (r *region) used() int64 {
	used := r.oversized.Load()
	if s := r.current.Load(); s != nil {
		used += s.before + min(s.used.Load(), s.size)
	}
	return used
}

func roundUp(n int) int64 { return int64(n+wordSize-1) &^ (wordSize - 1) }
