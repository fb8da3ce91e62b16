package cache

import (
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
)

const (
	maxCredit = 3
	// stripCredit is the credit of a block after its parts were taken away: its filling serves
	// all its rows, and costs more to make.
	stripCredit = 2
	// wantedUse: in a full shard, one of so many uses of a block adds a part.
	wantedUse = 8
	// The cache tolerates slack of the pool up to this share of the capacity plus slackFloor
	// bytes, which is one span for each of many size classes.
	slackShare = 16
	slackFloor = 4 << 20
	// fullShare: a shard is full if less than this share of it is unused.
	fullShare = 16

	// blocksBytes is the size of the arrays in which blocks are made. A block begins at a cache
	// line, with its state and the beginning of its value.
	blocksBytes = 128 << 10
)

// shard handles absent blocks, for its share of the budget.
type shard[T any] struct {
	mu       sync.Mutex
	memory   *offheap.Pool
	number   uint32
	shards   int64       // of the cache
	blocks   []*Block[T] // all, in use or free
	arrays   [][]byte    // the memory of blocks
	free     []*Block[T]
	hand     int // the clock's position in blocks
	resident int
	used     int64
	capacity atomic.Int64 // changed under the mutex
	full     atomic.Bool

	filling []*filling[T] // few: at most one per reader
	idle    []*filling[T]

	hits      uint64
	misses    uint64
	evictions uint64
	_         [64]byte // keeps neighbouring shards' locks off this cache line
}

// filling is a block being filled.
type filling[T any] struct {
	slot    *slot[T]
	waiters int        // guarded by the shard's mutex
	done    sync.Mutex // held while filling
	block   *Block[T]  // the result, with a pin for each waiter
	err     error
}

// stride is the distance between blocks in memory.
func stride[T any]() int {
	return (int(unsafe.Sizeof(Block[T]{})) + cacheLine - 1) / cacheLine * cacheLine
}

// takeBlock returns a free block. It has no pins, except of readers that came too late.
func (s *shard[T]) takeBlock() *Block[T] {
	if len(s.free) == 0 {
		size := stride[T]()
		n := max(blocksBytes/size, 1)
		array := s.memory.Alloc(n * size)
		clear(array) // the collector must not take leftovers for pointers
		s.arrays = append(s.arrays, array)
		for i := n - 1; i >= 0; i-- {
			b := (*Block[T])(unsafe.Pointer(&array[i*size]))
			b.shard = s.number
			s.blocks, s.free = append(s.blocks, b), append(s.free, b)
		}
	}
	b := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return b
}

// giveBlock takes back a block that is not in use.
func (s *shard[T]) giveBlock(b *Block[T]) {
	s.memory.Free(b.buffer)
	b.buffer = nil
	s.freeParts(b)
	s.free = append(s.free, b)
}

// freeParts frees the parts of a block without readers.
func (s *shard[T]) freeParts(b *Block[T]) {
	if b.extra == 0 {
		return
	}
	for k := range b.parts {
		if p := b.parts[k].Load(); p != nil {
			s.memory.Free(unsafe.Slice(p, 1))
			b.parts[k].Store(nil)
		}
	}
	b.extra = 0
}

// load returns an absent block pinned.
func (s *shard[T]) load(at *slot[T], f Filler[T]) (*Block[T], error) {
	s.mu.Lock()
	if b := at.block.Load(); b != nil { // filled meanwhile
		b.state.Add(pinAndHit) // in time: eviction needs this lock
		s.mu.Unlock()
		return b, nil
	}
	for _, g := range s.filling {
		if g.slot == at {
			g.waiters++
			s.hits++
			s.mu.Unlock()
			g.done.Lock() // until it is filled
			b, err := g.block, g.err
			g.done.Unlock()
			return b, err
		}
	}
	s.misses++
	b := s.takeBlock()
	var g *filling[T]
	if n := len(s.idle); n > 0 {
		g, s.idle = s.idle[n-1], s.idle[:n-1]
	} else {
		g = new(filling[T])
	}
	g.slot, g.waiters = at, 0
	g.done.Lock()
	s.filling = append(s.filling, g)
	s.mu.Unlock()
	return s.fill(g, b, f)
}

// panicked is the error of the Gets that waited for a filling that panicked.
type panicked struct{}

func (panicked) Error() string { return "cache: filling of a block panicked" }

// fill runs the filler and makes the block resident, or frees it.
func (s *shard[T]) fill(g *filling[T], b *Block[T], f Filler[T]) (result *Block[T], err error) {
	err = panicked{}
	defer func() {
		s.mu.Lock()
		s.filling = slices.DeleteFunc(s.filling, func(other *filling[T]) bool { return other == g })
		if err != nil {
			s.giveBlock(b)
			b = nil
		} else {
			b.state.Add(inUse + pin*uint64(1+g.waiters))
			s.admit(b, g.slot)
		}
		g.block, g.err, result = b, err, b
		if g.waiters == 0 {
			g.block, g.err = nil, nil
			s.idle = append(s.idle, g)
		}
		s.mu.Unlock()
		g.done.Unlock()
	}()
	return nil, f.FillBlock(b)
}

// admit makes a block resident, unless it is too large, and evicts others.
func (s *shard[T]) admit(b *Block[T], at *slot[T]) {
	charge := int64(cap(b.buffer) + stride[T]())
	if charge > s.capacity.Load()/oversizeShare {
		return
	}
	b.charge, b.slot = charge, at
	b.credit, b.seen = 0, b.hits()
	b.state.Add(pin)
	at.ahead.Store(linesOf(b.buffer))
	at.block.Store(b)
	s.resident++
	s.used += charge
	s.evict()
}

// evict moves the hand until the shard is within its capacity. It skips pinned blocks, and gives
// up after counting every block down to zero once: then only pinned ones are left. Slack in the
// pool, which changes of block sizes leave behind, counts as used.
func (s *shard[T]) evict() {
	capacity := s.capacity.Load()
	limit := capacity - max(0, (s.memory.Slack()-slackFloor)/s.shards-capacity/slackShare)
	for steps := (maxCredit + stripCredit + 3) * len(s.blocks); s.used > limit && steps > 0; steps-- {
		s.hand++
		if s.hand >= len(s.blocks) {
			s.hand = 0
		}
		b := s.blocks[s.hand]
		if b.slot == nil {
			continue
		}
		s.look(b)
		switch {
		case b.pinned():
		case b.credit > 0:
			b.credit--
		case b.extra > 0:
			b.credit = stripCredit
			s.strip(b)
		default:
			s.evictions++
			s.remove(b)
		}
	}
	if full := s.used > limit-limit/fullShare; full != s.full.Load() {
		s.full.Store(full)
	}
}

// strip takes a resident block's parts away. It evicts the block for that moment, so that no
// reader has a pin or gets one.
func (s *shard[T]) strip(b *Block[T]) {
	at := b.slot
	at.block.Store(nil)
	s.used -= b.extra
	if !b.unpin() { // a reader came: the block stays evicted
		s.forget(b)
		return
	}
	s.freeParts(b)
	b.state.Add(inUse + pin)
	at.block.Store(b)
}

// look counts the hits of a block since the last look.
func (s *shard[T]) look(b *Block[T]) {
	n := b.hits() - b.seen
	b.seen += n
	b.credit = uint8(min(uint32(b.credit)+min(n, maxCredit), maxCredit))
	s.hits += uint64(n)
}

// remove takes a resident block out of the shard. It empties the slot first: see File.tooLate.
func (s *shard[T]) remove(b *Block[T]) {
	b.slot.block.Store(nil)
	s.used -= b.extra
	s.forget(b)
	if b.unpin() {
		s.giveBlock(b)
	}
}

// forget ends the book-keeping of a block that was taken out of its slot.
func (s *shard[T]) forget(b *Block[T]) {
	s.look(b)
	s.resident--
	s.used -= b.charge
	b.slot, b.charge = nil, 0
}

// released handles a block whose state became n, without pins.
func (s *shard[T]) released(b *Block[T], n uint64) {
	if n&pins != 0 {
		panic("cache: block released more often than pinned")
	}
	if b.last(n) {
		s.mu.Lock()
		s.giveBlock(b)
		s.mu.Unlock()
	}
}

func (s *shard[T]) addStats(total *Stats) {
	s.mu.Lock()
	defer s.mu.Unlock()
	total.Hits += s.hits
	for _, b := range s.blocks {
		if b.slot != nil {
			total.Hits += uint64(b.hits() - b.seen)
		}
	}
	total.Misses += s.misses
	total.Evictions += s.evictions
	total.Blocks += int64(s.resident)
	total.Bytes += s.used
}

func (s *shard[T]) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, array := range s.arrays {
		s.memory.Free(array)
	}
	s.blocks, s.arrays, s.free = nil, nil, nil
}
