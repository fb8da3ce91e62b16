package sstable

import (
	"sync/atomic"
	"time"
)

// verifications says of each block of a mapped file which of its segments were
// verified lately. Scans believe that for a while, if ReaderOptions.VerifyInterval
// lets them: the checksum of values of a kilobyte takes a tenth to a quarter of what
// a scan does with them. It is a matter of values alone: heads, which say what rows
// and columns there are, are verified whenever they are read.
type verifications struct {
	elapsed  func() time.Duration
	interval time.Duration
	// blocks has of each block a bit for each segment, in the low maxSegments bits, and
	// above, plus one, the milliseconds on the clock when the first of these was
	// verified. The others are younger, so none is believed for too long. nil: nothing
	// is believed.
	blocks []atomic.Uint64
}

// open makes room for so many blocks.
func (v *verifications) open(elapsed func() time.Duration, interval time.Duration, blocks int) {
	if elapsed != nil && interval > 0 {
		*v = verifications{elapsed: elapsed, interval: interval, blocks: make([]atomic.Uint64, blocks)}
	}
}

// now is the time on the clock, for the calls below. It is to be asked before the
// bytes are read.
func (v *verifications) now() time.Duration {
	if v.blocks == nil {
		return 0
	}
	return v.elapsed()
}

// lately returns which segments of block i were verified less than the interval before
// now, a bit for each. It is to be asked before the bytes are read: what is noted
// afterwards says nothing of them.
func (v *verifications) lately(i int, now time.Duration) (segments uint64) {
	if v.blocks == nil {
		return 0
	}
	if state := v.blocks[i].Load(); now-verifiedAt(state) < v.interval {
		segments = state & (1<<maxSegments - 1)
	}
	return segments
}

// note keeps that segment k of block i was verified, by an access that began at now.
// If two do so at once, one of them may be forgotten.
func (v *verifications) note(i, k int, now time.Duration) {
	if v.blocks == nil {
		return
	}
	state := v.blocks[i].Load()
	at := verifiedAt(state)
	if state == 0 || now-at >= v.interval {
		state, at = 0, now
	}
	segments := state&(1<<maxSegments-1) | 1<<k
	v.blocks[i].Store(uint64(min(at, now)/time.Millisecond+1)<<maxSegments | segments)
}

func verifiedAt(state uint64) time.Duration {
	return time.Duration(state>>maxSegments-1) * time.Millisecond
}
