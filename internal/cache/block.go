package cache

import (
	"sync/atomic"
	"unsafe"
)

// MaxParts is how many parts a block may have beside its buffer.
const MaxParts = 8

// Block is one block, pinned for the reader that got it. It lies off the Go heap, in an array of
// its shard that lives as long as the cache: a reader may try to pin a block that was evicted
// meanwhile.
type Block[T any] struct {
	// state holds, from the low end: the number of pins, one of them the shard's while the block
	// is resident; the in-use bit; and the number of hits. The goroutine that clears the bit,
	// after it found no pins left, frees the block. One addition counts a pin and a hit, and the
	// clock hand reads the hits when it passes.
	state atomic.Uint64

	// Value is what FillBlock made of the block. Readers share it and must not change it.
	Value T

	buffer []byte
	// parts are added one by one. They stay while the block is resident or pinned, unless the
	// clock hand found the block unpinned and took them away.
	parts  [MaxParts]atomic.Pointer[byte]
	slot   *slot[T] // while resident
	charge int64    // while resident, without parts
	extra  int64    // of parts
	shard  uint32
	seen   uint32 // the clock hand has counted so many hits
	credit uint8  // of the clock, up to maxCredit
}

const (
	pin       uint64 = 1
	pins      uint64 = 1<<31 - 1
	maxPins          = pins - 1<<20 // more is a count that went below zero
	inUse     uint64 = 1 << 31
	hit       uint64 = 1 << 32
	pinAndHit        = pin + hit
)

// Part is part k, of length n, or nil if the block does not have it. It is valid as long as the
// block is pinned.
func (b *Block[T]) Part(k, n int) []byte {
	p := b.parts[k].Load()
	if p == nil {
		return nil
	}
	return unsafe.Slice(p, n)
}

func (b *Block[T]) hits() uint32 { return uint32(b.state.Load() >> 32) }

// pinned reports whether there is a pin besides the shard's.
func (b *Block[T]) pinned() bool { return b.state.Load()&pins > 1 }

// unpin ends a pin and reports whether the caller must free the block.
func (b *Block[T]) unpin() (last bool) {
	return b.last(b.state.Add(^uint64(0)))
}

// last reports whether the caller, which changed the state to n, must free the block. If the
// state has changed since, the goroutine that changed it decides.
func (b *Block[T]) last(n uint64) bool {
	return n&pins == 0 && n&inUse != 0 && b.state.CompareAndSwap(n, n&^inUse)
}
