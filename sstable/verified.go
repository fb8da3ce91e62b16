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

// lately reports whether a part of block i was verified not long before now: 0 is
// the head, or all of the block, and the others are the segments.
func (v *verifications) lately(i, part int, now time.Duration) bool {
	if v.blocks == nil {
		return false
	}
	state := v.blocks[i].Load()
	return state>>part&1 != 0 && v.young(state, now)
}

func (v *verifications) young(state uint64, now time.Duration) bool {
	at := time.Duration(state>>partBits) - 1
	return now-at*time.Millisecond < v.interval
}

// note keeps that a part of block i was verified, by a reading that began at now.
// If two do so at once, one of them may be forgotten.
func (v *verifications) note(i, part int, now time.Duration) {
	if v.blocks == nil {
		return
	}
	state := v.blocks[i].Load()
	if state == 0 || !v.young(state, now) {
		state = (uint64(now/time.Millisecond) + 1) << partBits
	}
	v.blocks[i].Store(state | 1<<part)
}
