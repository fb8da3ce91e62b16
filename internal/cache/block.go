package cache

import (
	"sync/atomic"
	"unsafe"
)

// MaxParts is how many parts a block may have beside its buffer.
const MaxParts = 8

// Block is one block, pinned for whoever got it. It lies off the Go heap, in an
// array of its shard that lives as long as the cache: a pin may be tried on a
// block that was evicted meanwhile.
type Block[T any] struct {
	// state is, from the low end: the number of pins, one of them the shard's
	// while the block is resident; a bit that says whether the block is in use,
	// which whoever finds no pins left takes away, and so is the one to free it;
	// the number of hits. One addition counts a pin and a hit, and the clock
	// reads the hits when it comes by.
	state atomic.Uint64

	// Value is what FillBlock made of the block. Readers share it and must
	// not change it.
	Value T

	buffer []byte
	// parts were added one by one, for as long as the block is resident or pinned,
	// unless a clock that found the block unpinned took them away.
	parts  [MaxParts]atomic.Pointer[byte]
	slot   *slot[T] // while resident
	charge int64    // while resident, without parts
	extra  int64    // of parts
	shard  uint32
	seen   uint32 // hits that the clock has seen
	credit uint8  // of the clock
}

const (
	pin       uint64 = 1
	pins      uint64 = 1<<31 - 1
	maxPins          = pins - 1<<20 // more is a count that went below zero
	inUse     uint64 = 1 << 31
	hit       uint64 = 1 << 32
	pinAndHit        = pin + hit
)

// Part is part k, whose length is n, or nil if the block does not have it. It is
// valid as long as the block is pinned.
func (b *Block[T]) Part(k, n int) []byte {
	p := b.parts[k].Load()
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, n)
}

func (b *Block[T]) hits() uint32 { return uint32(b.state.Load() >> 32) }

// pinned reports whether anybody but the shard has a pin.
func (b *Block[T]) pinned() bool { return b.state.Load()&pins > 1 }

// unpin gives back a pin and reports whether the block is the caller's to free.
func (b *Block[T]) unpin() (last bool) {
	n := b.state.Add(^uint64(0))
	return b.last(n)
}

// last reports whether the block, whose state became n, is the caller's to
// free. The state may have changed since: then whoever changed it is asked
// again.
func (b *Block[T]) last(n uint64) bool {
	return n&pins == 0 && n&inUse != 0 && b.state.CompareAndSwap(n, n&^inUse)
}
