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

// verifications says of each block of a file when it was verified last.
type verifications struct {
	elapsed  func() time.Duration // nil: nothing is believed
	interval time.Duration
	// blocks has, of each block, the milliseconds on the clock plus one, or 0.
	blocks []atomic.Uint64
}

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

// lately reports whether block i was verified not long before now.
func (v *verifications) lately(i int, now time.Duration) bool {
	if v.blocks == nil {
		return false
	}
	at := v.blocks[i].Load()
	return at != 0 && now-time.Duration(at-1)*time.Millisecond < v.interval
}

// note keeps that block i was verified, by a reading that began at now.
func (v *verifications) note(i int, now time.Duration) {
	if v.blocks != nil {
		v.blocks[i].Store(uint64(now/time.Millisecond) + 1)
	}
}
