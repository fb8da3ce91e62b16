// Package cache keeps decoded table blocks in memory off the Go heap, within a
// budget of bytes, for all tables of a process.
//
// A file has a handle with one slot for each of its blocks. A hit reads the slot and does one
// atomic addition, without a hash, lock or map. Get returns the block pinned, and fills it first
// if it is absent; concurrent Gets of an absent block fill it once. A pinned block is not freed
// or reused before its last Release.
//
//	            Get/Lookup                 last Release
//	absent ──► filling ──► resident ──► evicted ──► free
//	              │ fill failed                        ▲
//	              └────────────────────────────────────┘
//
// Shards, chosen by a hash of file and block number, handle absent blocks. Each shard has a
// mutex, a share of the budget and a clock. Blocks enter the clock with credit zero and earn one
// for every hit, up to three. So a block that a scan touches once leaves at the hand's first
// visit, and a block in use survives several.
//
// A block may have parts, which readers add as they need them (AddPart). The hand takes the
// parts away three visits before it takes the block. A full shard accepts a part that is cheap
// to make only at every eighth use of a block (Wants): of random uses hardly any would meet its
// part again, and a hot block soon comes to its eighth use. (Bimodal insertion: Qureshi and
// others, Adaptive Insertion Policies for High Performance Caching, ISCA 2007.)
//
// Measured for a look-up and release of 4,096 resident blocks in turn: 46 ns with a striped lock
// and a Go map, 13 ns with slots.
package cache

import (
	"math/bits"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
)

// Options configure a cache.
type Options struct {
	// Capacity is the budget in bytes for resident blocks, with everything they take. Pinned
	// blocks may exceed it.
	Capacity int64
	// Memory is where blocks lie. Default: a pool of the cache's own.
	Memory *offheap.Pool
}

// Stats are counters since the cache was made, and its present content.
type Stats struct {
	Hits      uint64 // Gets that found the block, or joined its filling
	Misses    uint64 // Gets that filled a block
	Evictions uint64
	Blocks    int64 // resident now
	Bytes     int64 // charged for them
	Capacity  int64
}

// Filler loads absent blocks. It is an interface and not a function so that a hit needs no
// closure.
type Filler[T any] interface {
	// FillBlock takes a buffer with File.Allocate, fills it, and sets b.Value. b.Value first
	// holds what an earlier FillBlock, of any file, left there. Every waiting Get returns its
	// error, and then nothing is kept.
	FillBlock(b *Block[T]) error
}

// Cache is a block cache. T is the decoded form of a block. It lies off the Go heap, so it must
// hold no pointers to the heap; it is meant to hold slices of the block's own buffer. Methods
// are safe for concurrent use.
type Cache[T any] struct {
	shards   []shard[T]
	mask     uint64
	capacity int64
	memory   *offheap.Pool
	ids      atomic.Uint64
	open     atomic.Int64 // files
}

const (
	maxShards        = 256
	minShardCapacity = 2 << 20
	// oversizeShare: a block larger than this share of its shard is returned but not kept, since
	// keeping it would empty the shard.
	oversizeShare = 4
)

// New makes a cache. It chooses the number of shards by the number of processors and the capacity.
func New[T any](opts Options) *Cache[T] {
	// Two shards per processor still show in tail latencies (measured for pebble); four do not.
	shards := 4 * runtime.GOMAXPROCS(0)
	for shards > 1 && opts.Capacity/int64(shards) < minShardCapacity {
		shards /= 2
	}
	return withShards[T](opts, shards)
}

// withShards makes a cache whose number of shards is rounded up to a power of two.
func withShards[T any](opts Options, shards int) *Cache[T] {
	opts.Capacity = max(opts.Capacity, 0)
	if opts.Memory == nil {
		opts.Memory = offheap.New(offheap.Options{})
	}
	n := 1 << bits.Len(uint(min(shards, maxShards)-1))
	c := &Cache[T]{shards: make([]shard[T], n), mask: uint64(n - 1), capacity: opts.Capacity, memory: opts.Memory}
	for i := range c.shards {
		c.shards[i].memory = c.memory
		c.shards[i].number, c.shards[i].shards = uint32(i), int64(n)
		c.shards[i].capacity.Store(opts.Capacity / int64(n))
	}
	return c
}

// Stats sums the counters of all shards.
func (c *Cache[T]) Stats() Stats {
	total := Stats{Capacity: c.capacity}
	for i := range c.shards {
		c.shards[i].addStats(&total)
	}
	return total
}

// Reserve takes bytes off the budget, for memory that the cache's owner uses elsewhere.
func (c *Cache[T]) Reserve(bytes int64) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		s.capacity.Add(-bytes / int64(len(c.shards)))
		s.evict()
		s.mu.Unlock()
	}
}

// Close frees the memory of the cache. REQUIRES: every File is closed and every block released.
// While a file is open, because a reader was not closed, it does nothing, since that reader
// would see other memory.
func (c *Cache[T]) Close() {
	if c.open.Load() > 0 {
		return
	}
	for i := range c.shards {
		c.shards[i].close()
	}
}

// File is the cache as one file sees it. Its methods but Close are safe for
// concurrent use.
type File[T any] struct {
	cache *Cache[T]
	id    uint64
	slots []slot[T]
	bytes []byte // of slots
}

// slot is where a resident block is found.
type slot[T any] struct {
	block atomic.Pointer[Block[T]]
	ahead atomic.Uintptr // linesOf the buffer of the last block that was here
}

// OpenFile returns a handle for a file of so many blocks. It takes 16 bytes for each block until
// Close.
func (c *Cache[T]) OpenFile(blocks int) *File[T] {
	f := &File[T]{cache: c, id: c.ids.Add(1)}
	c.open.Add(1)
	if blocks > 0 {
		f.bytes = c.memory.Alloc(blocks * int(unsafe.Sizeof(slot[T]{})))
		clear(f.bytes)
		f.slots = unsafe.Slice((*slot[T])(unsafe.Pointer(unsafe.SliceData(f.bytes))), blocks)
	}
	return f
}

func (f *File[T]) shard(i int) *shard[T] {
	h := (f.id*0x9E3779B97F4A7C15 ^ uint64(i)) * 0xD6E8FEB86659FD93
	return &f.cache.shards[(h>>32)&f.cache.mask]
}

// Get returns block i pinned; the caller must Release it. If the block is absent, fill fills it;
// concurrent Gets wait and share the result. Errors are those of fill.
func (f *File[T]) Get(i int, fill Filler[T]) (*Block[T], error) {
	s := &f.slots[i]
	if b := s.block.Load(); b != nil {
		prefetchLines(s.ahead.Load())
		b.prefetch()
		if s.pin(b, pinAndHit) {
			return b, nil
		}
		f.tooLate(b)
	}
	return f.shard(i).load(s, fill)
}

// Lookup returns block i pinned if it is resident, and nil otherwise. It is for readers that
// bypass the cache: it counts neither in the statistics nor as a use of the block, whose file a
// compaction may be about to replace.
func (f *File[T]) Lookup(i int) *Block[T] {
	s := &f.slots[i]
	b := s.block.Load()
	if b == nil {
		return nil
	}
	if s.pin(b, pin) {
		return b
	}
	f.tooLate(b)
	return nil
}

// Holds reports whether block i is resident.
func (f *File[T]) Holds(i int) bool { return f.slots[i].block.Load() != nil }

// pin pins a block that was in the slot a moment ago, and reports whether it is still there. If
// it is, it was not evicted before the pin, since eviction empties the slot first.
func (s *slot[T]) pin(b *Block[T], n uint64) bool {
	b.state.Add(n)
	return s.block.Load() == b
}

// tooLate ends the pin of a block that was not in its slot any more. The block may be free by
// now, or another slot's.
func (f *File[T]) tooLate(b *Block[T]) {
	if s := &f.cache.shards[b.shard]; b.unpin() {
		s.mu.Lock()
		s.giveBlock(b)
		s.mu.Unlock()
	}
}

// Release ends one pin. The caller must not touch the block afterwards.
func (f *File[T]) Release(b *Block[T]) {
	if n := b.state.Add(^uint64(0)); n&pins-1 >= maxPins { // no pins left, or too many ends
		f.cache.shards[b.shard].released(b, n)
	}
}

// Allocate gives FillBlock, for a block of this file, the block's buffer. Its content is
// undefined.
func (f *File[T]) Allocate(b *Block[T], n int) []byte {
	if b.buffer != nil {
		f.cache.memory.Free(b.buffer)
	}
	b.buffer = f.cache.memory.Alloc(n)
	return b.buffer
}

// Wants reports whether to add a part of n bytes, which a reader needs, to a block. cheap says
// that the part can be made again without the device.
func (f *File[T]) Wants(b *Block[T], n int, cheap bool) bool {
	s := &f.cache.shards[b.shard]
	return int64(n) <= s.capacity.Load()/oversizeShare && (!cheap || b.hits()%wantedUse == 0 || !s.full.Load())
}

// Full reports whether an addition to the block displaces something else.
func (f *File[T]) Full(b *Block[T]) bool { return f.cache.shards[b.shard].full.Load() }

// NewPart returns memory for a part. The caller passes it to AddPart or FreePart.
func (f *File[T]) NewPart(n int) []byte { return f.cache.memory.Alloc(n) }

// FreePart takes back memory of NewPart.
func (f *File[T]) FreePart(part []byte) { f.cache.memory.Free(part) }

// AddPart makes part, of at least one byte, part k of a pinned block and returns it. If the
// block already has part k, it frees part and returns the block's.
func (f *File[T]) AddPart(b *Block[T], k int, part []byte) []byte {
	s := &f.cache.shards[b.shard]
	s.mu.Lock()
	defer s.mu.Unlock()
	if old := b.Part(k, len(part)); old != nil {
		s.memory.Free(part)
		return old
	}
	b.parts[k].Store(unsafe.SliceData(part))
	b.extra += int64(cap(part))
	if b.slot != nil {
		s.used += int64(cap(part))
		s.evict()
	}
	return part
}

// Evict forgets block i. A pinned block lives on until its last Release.
func (f *File[T]) Evict(i int) {
	s := f.shard(i)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := f.slots[i].block.Load(); b != nil {
		s.remove(b)
	}
}

// Close forgets all blocks of the file. REQUIRES: nothing but Release is called
// afterwards.
func (f *File[T]) Close() {
	for i := range f.slots {
		f.Evict(i) // even from a slot that looks empty: see shard.strip
	}
	f.cache.memory.Free(f.bytes)
	f.slots, f.bytes = nil, nil
	f.cache.open.Add(-1)
}
