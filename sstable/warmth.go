package sstable

import (
	"sync/atomic"
	"time"
)

// warmth says whether a file's blocks lie in the page cache, judged by how long
// the last ones took. While they do, a mapping is the faster way to them: it
// saves a call and a copy, 0.7 of 1.8 us for a block of 5 KiB that is in no
// processor cache. When they do not, it is the slower one: a block takes a fault
// and a device access for each of its pages, or more than was asked for, and a
// fault holds up the processor, of the Go scheduler's few, that it happens on.
// One call reads a block at once, and a scan's by the window.
//
// One access in four is measured, which costs 0.1 us, and all while they go to calls.
// A slow one sends the next ones to calls, until so many were fast.
type warmth struct {
	elapsed func() time.Duration // nil: nothing is measured
	cold    atomic.Int32
}

const (
	coldStreak = 32
	// slowAccess is far above what a block takes from the page cache, and below
	// what any device takes; a nanosecond is added for each so many bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
)

func (w *warmth) warm() bool { return w.cold.Load() == 0 }

// begin begins an access to a block. It returns 0 if it is not to be measured.
func (w *warmth) begin(offset int64) time.Duration {
	if w.elapsed == nil || offset>>12&3 != 0 && w.warm() {
		return 0
	}
	return w.elapsed()
}

// end ends an access to n bytes. It returns what time it is and whether the access
// was slow, if it was measured.
func (w *warmth) end(began time.Duration, n int64) (now time.Duration, slow bool) {
	if began == 0 {
		return 0, false
	}
	now = w.elapsed()
	if now-began > slowAccess+time.Duration(n/bytesPerNano) {
		w.cold.Store(coldStreak)
		return now, true
	}
	if cold := w.cold.Load(); cold > 0 {
		w.cold.CompareAndSwap(cold, cold-1)
	}
	return now, false
}
