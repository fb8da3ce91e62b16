package sstable

import (
	"sync/atomic"
	"time"
)

// verifications notes which segments of each block of a mapped file were verified lately.
// Scans trust that for a while, if ReaderOptions.VerifyInterval allows it: the checksum of
// values of a kilobyte takes a tenth to a quarter of what a scan does with them. Only
// values are trusted. Heads, which say what rows and columns there are, are verified
// on every read.
type verifications struct {
	elapsed  func() time.Duration
	interval time.Duration
	// blocks has one word per block. The low maxSegments bits have a bit for each
	// segment. The bits above have, plus one, the time in milliseconds when the first of
	// these was verified. The others were verified later, so none is trusted for too
	// long. nil: nothing is trusted.
	blocks []atomic.Uint64
}

// begin begins an access to block i, before its bytes are read. It returns the time on the clock,
// for note, and a bit for each segment that was verified less than the interval before. A
// verification after that says nothing about the bytes of this access.
func (v *verifications) begin(i int) (now time.Duration, lately uint64) {
	if v.blocks == nil {
		return 0, 0
	}
	now = v.elapsed()
	if state := v.blocks[i].Load(); now-verifiedAt(state) < v.interval {
		lately = state & (1<<maxSegments - 1)
	}
	return now, lately
}

// note notes that segment k of block i was verified, by an access that began at now. If two
// calls race, one of them may be lost.
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
