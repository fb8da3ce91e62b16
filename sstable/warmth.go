package sstable

import (
	"sync/atomic"
	"time"
)

// warmth tells whether a file's blocks lie in the page cache, by how long the last accesses
// took. If they do, a mapping is faster: it saves a call and a copy, 0.7 of 1.8 us for a
// block of 5 KiB that is in no processor cache. If they do not, calls are faster: one call
// reads a whole block, and for a scan a whole window. Through a mapping, each page of a block
// costs a fault and a device access, or the kernel reads more than was wanted; and a fault
// blocks one of the few processors of the Go scheduler.
//
// One access in four is measured, which costs 0.1 us, and every one while calls are used. A
// slow access sends the next ones to calls, until coldStreak of them were fast.
type warmth struct {
	elapsed func() time.Duration // nil: nothing is measured
	cold    atomic.Int32
}

const (
	coldStreak = 32
	// slowAccess is far above what a block takes from the page cache, and below what
	// any device takes. One nanosecond is added for every bytesPerNano bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
)

func (w *warmth) warm() bool { return w.cold.Load() == 0 }

// begin begins an access to a block. It returns 0 if the access is not measured.
func (w *warmth) begin(offset int64) time.Duration {
	if w.elapsed == nil || offset>>12&3 != 0 && w.warm() {
		return 0
	}
	return w.elapsed()
}

// end ends an access to n bytes. If the access was measured, it returns the time now and
// whether the access was slow.
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
