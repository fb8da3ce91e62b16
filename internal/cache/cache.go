// Package cache keeps decoded table blocks in memory, within a budget of
// bytes, for all tables of a process.
//
// A block is named by (file id, offset). Get returns it pinned, filling it
// first if it is absent; concurrent Gets of one absent block fill it once. A
// pinned block is never freed or reused before its last Release.
//
//	            Get/Lookup                 last Release
//	absent ──► filling ──► resident ──► evicted ──► recycled
//	              │ fill failed                        ▲
//	              └────────────────────────────────────┘
//
// The cache is divided into shards by a hash of the name; each has a mutex, a
// map, a share of the budget and a clock. Eviction is a clock whose blocks
// enter with count zero and count hits up to three: a block that is touched
// once, by a scan, leaves at the hand's first visit, one in use survives
// several. A hit moves nothing in memory but the block's own counters.
//
// Buffers are recycled rather than left to the garbage collector: touching
// fresh memory for every miss costs more than reading the block from the page
// cache. buffers.go is the only place that knows where buffers come from, so
// that they can move off the Go heap.
package cache

import (
	"runtime"
	"sync"
	"sync/atomic"
)

// Options configure a cache.
type Options struct {
	// Capacity is the budget in bytes for resident blocks. Pinned blocks may
	// exceed it; recycled buffers add at most one sixteenth.
	Capacity int64
	// Shards is the number of shards, rounded up to a power of two. Zero
	// chooses by the number of processors and the capacity.
	Shards int
	// Poison overwrites buffers as they are recycled, so that tests notice
	// the use of a block after its release.
	Poison bool
}

// Stats are counters since the cache was made, and its present content.
type Stats struct {
	Hits      uint64 // Gets that found the block, or joined its filling
	Misses    uint64 // Gets that filled
	Evictions uint64
	Blocks    int64 // resident now
	Bytes     int64 // charged for them
	Capacity  int64
}

// Filler loads absent blocks. It is an interface rather than a function so
// that a hit costs no closure.
type Filler interface {
	// FillBlock takes a buffer with b.Allocate, fills it, and sets b.Decoded.
	// It may reuse the object that it finds in b.Decoded, which an earlier
	// FillBlock, of any file, left there. An error is returned to every
	// waiting Get, and nothing is kept.
	FillBlock(b *Block) error
}

// Forgetter is what Block.Decoded should implement if it refers to the block's
// buffer. Forget drops these references: the object may lie idle for long, and
// the buffer go to another block or to the garbage collector.
type Forgetter interface{ Forget() }

// Cache is a block cache. Its methods are safe for concurrent use.
type Cache struct {
	shards   []shard
	mask     uint64
	capacity int64
	ids      atomic.Uint64
}

const (
	maxShards        = 256
	minShardCapacity = 2 << 20
	// oversize: a block larger than this share of its shard is handed out but
	// not kept, since keeping it would empty the shard.
	oversizeShare = 4
)

// New makes a cache.
func New(opts Options) *Cache {
	if opts.Capacity < 0 {
		opts.Capacity = 0
	}
	want := opts.Shards
	if want <= 0 {
		// Two shards per processor still show up in tail latencies
		// elsewhere (pebble); four do not.
		want = 4 * runtime.GOMAXPROCS(0)
		for want > 1 && opts.Capacity/int64(want) < minShardCapacity {
			want /= 2
		}
	}
	n := 1
	for n < want && n < maxShards {
		n *= 2
	}
	c := &Cache{shards: make([]shard, n), mask: uint64(n - 1), capacity: opts.Capacity}
	for i := range c.shards {
		s := &c.shards[i]
		s.blocks = make(map[name]*Block)
		s.capacity = opts.Capacity / int64(n)
		s.free.limit = s.capacity / 16
		s.free.poison = opts.Poison
	}
	return c
}

// NewID returns a file id that this cache has not given before.
func (c *Cache) NewID() uint64 { return c.ids.Add(1) }

// Stats sums the counters of all shards.
func (c *Cache) Stats() Stats {
	total := Stats{Capacity: c.capacity}
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		total.Hits += s.hits
		total.Misses += s.misses
		total.Evictions += s.evictions
		total.Blocks += int64(s.resident)
		total.Bytes += s.used
		s.mu.Unlock()
	}
	return total
}

type name struct {
	file   uint64
	offset int64
}

func (c *Cache) shard(n name) *shard {
	// Fibonacci hashing of both halves; block offsets are far from uniform in
	// their low bits.
	h := (n.file*0x9E3779B97F4A7C15 ^ uint64(n.offset)) * 0xD6E8FEB86659FD93
	return &c.shards[(h>>32)&c.mask]
}

// Get returns the block pinned; the caller must Release it. An absent block is
// filled by f; Gets that come meanwhile wait for that filling and share its
// result. Errors are those of f.
func (c *Cache) Get(file uint64, offset int64, f Filler) (*Block, error) {
	n := name{file, offset}
	s := c.shard(n)
	s.mu.Lock()
	if b := s.blocks[n]; b != nil {
		s.hits++
		return s.join(b)
	}
	s.misses++
	b := s.free.takeBlock()
	b.name, b.shard, b.filling, b.err = n, s, true, nil
	b.refs.Store(2) // the shard's and the caller's
	b.filled.Lock()
	s.blocks[n] = b
	s.mu.Unlock()
	if err := s.fill(b, f); err != nil {
		b.Release()
		return nil, err
	}
	return b, nil
}

// Lookup returns the block pinned if it is resident, and nil otherwise. It is
// for those who read past the cache: it counts neither in the statistics nor as
// a use of the block, whose file a merge may be about to replace.
func (c *Cache) Lookup(file uint64, offset int64) *Block {
	n := name{file, offset}
	s := c.shard(n)
	s.mu.Lock()
	b := s.blocks[n]
	if b != nil && !b.filling {
		b.refs.Add(1)
	} else {
		b = nil
	}
	s.mu.Unlock()
	return b
}

// Evict forgets a block. A pinned one lives on until its last Release.
func (c *Cache) Evict(file uint64, offset int64) {
	n := name{file, offset}
	s := c.shard(n)
	s.mu.Lock()
	defer s.mu.Unlock()
	if b := s.blocks[n]; b != nil && !b.filling {
		s.remove(b)
	}
}

// Block is one block, pinned for whoever got it.
type Block struct {
	// Decoded is what FillBlock made of the block. Readers share it and must
	// not change it.
	Decoded any

	name       name
	shard      *shard
	buffer     []byte
	refs       atomic.Int32
	hits       uint8 // clock count; guarded by shard.mu
	filling    bool  // guarded by shard.mu
	charge     int64
	filled     sync.Mutex // held while filling
	err        error      // of the filling; read after filled was locked
	next, prev *Block     // the clock's ring
}

// overhead is charged for a block beside its buffer: this struct, the map
// entry and the decoded form.
const overhead = 768

// Allocate gives FillBlock the block's buffer. Its content is undefined.
func (b *Block) Allocate(n int) []byte {
	b.buffer = b.shard.takeBuffer(n)
	return b.buffer
}

// Release ends one pin. The caller must not touch the block afterwards.
func (b *Block) Release() {
	if left := b.refs.Add(-1); left == 0 {
		s := b.shard
		s.mu.Lock()
		s.free.give(b)
		s.mu.Unlock()
	} else if left < 0 {
		panic("cache: block released more often than pinned")
	}
}
