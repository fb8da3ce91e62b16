package sstable

import (
	"sync/atomic"
	"time"
)

// DefaultVerifyInterval is how long a verification of a block that was read
// through a mapping is believed: what changed in memory since is not noticed
// before. The checksum of a block took a quarter of the time of a get that found
// it in the page cache alone.
const DefaultVerifyInterval = time.Minute

// verifications says of each block of a file which of its parts were verified
// lately.
type verifications struct {
	elapsed  func() time.Duration // nil: nothing is believed
	interval time.Duration
	// blocks has of each block a bit for each part, in the low partBits; above,
	// plus one, the milliseconds on the clock when the first of these was verified.
	// The others are younger, so no part is believed for too long.
	blocks []atomic.Uint64
}

const partBits = 1 + maxSegments

// open makes room for so many blocks.
func (v *verifications) open(elapsed func() time.Duration, interval time.Duration, blocks int) {
	if elapsed == nil || interval < 0 {
		return
	}
	if interval == 0 {
		interval = DefaultVerifyInterval
	}
	*v = verifications{elapsed: elapsed, interval: interval, blocks: make([]atomic.Uint64, blocks)}
}

// now is the time on the clock, for the calls below.
func (v *verifications) now() time.Duration {
	if v.blocks == nil {
		return 0
	}
	return v.elapsed()
}

// parts is a set of the parts of a block: 0 is the head, or all of a block without
// segments, and the others are the segments.
type parts uint64

// partsFrom is the set of the parts from first to last.
func partsFrom(first, last int) parts { return 1<<(last+1) - 1<<first }

// lately reports whether all these parts of block i were verified not long before
// now.
func (v *verifications) lately(i int, p parts, now time.Duration) bool {
	if v.blocks == nil {
		return false
	}
	state := v.blocks[i].Load()
	return parts(state)&p == p && v.young(state, now)
}

func (v *verifications) young(state uint64, now time.Duration) bool {
	at := time.Duration(state>>partBits) - 1
	return now-at*time.Millisecond < v.interval
}

// note keeps that parts of block i were verified, by a reading that began at now.
// If two do so at once, one of them may be forgotten.
func (v *verifications) note(i int, p parts, now time.Duration) {
	if v.blocks == nil {
		return
	}
	state := v.blocks[i].Load()
	if state == 0 || !v.young(state, now) {
		state = (uint64(now/time.Millisecond) + 1) << partBits
	}
	v.blocks[i].Store(state | uint64(p))
}
