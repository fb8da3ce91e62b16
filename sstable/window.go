package sstable

// How much of a file a call reads. Beside its bytes, a call costs as much as some sixty
// kilobytes more would, which is often more than the use of the bytes costs. So a scan should
// need few calls, and a get should not pay for bytes that it does not need.
//
// A scan does not know how far it will go: its caller may stop after a hundred rows. But the
// scans of a table are mostly alike. So the file remembers how many bytes the last ones
// went through, and the first call of the next scan reads as much. If the scan goes on after
// that, it reads ahead by windows that double.

import (
	"math/bits"
	"sync/atomic"
)

// reach estimates how far scans of a file go, in bytes; few go further. It approximates the
// 80th expectile of the scans that read the file by calls, with one number that moves with
// each scan.
type reach struct{ bytes atomic.Int64 }

const (
	// A scan that went further than expected adds a share of the difference, and one
	// that went less far subtracts a quarter of that share.
	reachUp, reachDown = 4, 16
	// reachSlack: so much more than expected is read, as a share of it, because scans of
	// equally many rows differ by a block.
	reachSlack = 8
)

// note records that a scan went through n bytes. If two calls race, one may be lost.
func (r *reach) note(n int64) {
	expected := r.bytes.Load()
	if n > expected {
		expected += (n - expected + reachUp - 1) / reachUp
	} else {
		expected -= (expected - n) / reachDown
	}
	r.bytes.Store(expected)
}

// window is how many bytes the first call of a scan should read.
func (r *reach) window() int64 {
	n := r.bytes.Load()
	return n + n/reachSlack
}

// beginScan begins a forward scan at the next block that is loaded. NoCacheFill means that
// everything is read anyway, which is no scan.
func (it *Iterator) beginScan() {
	if !it.opts.NoCacheFill {
		it.first = -1
	}
}

// endScan records how far the scan went, if there is one and it needed calls. Other scans
// say nothing about calls.
func (it *Iterator) endScan() {
	if it.called && it.number >= it.first {
		from, _ := it.r.index.blockRange(it.first)
		_, to := it.r.index.blockRange(it.number)
		it.r.reach.note(min(to-from, defaultReadAhead))
	}
	it.first, it.called = noScan, false
}

// noScan is the first block of an iterator that does not scan.
const noScan = int(^uint(0) >> 1)

// expected returns how many bytes from an offset on the scan is likely to need.
func (it *Iterator) expected(from int64) int64 {
	if it.first == noScan {
		return 0
	}
	began, _ := it.r.index.blockRange(it.first)
	n := began + it.r.reach.window() - from
	return min(n, int64(it.opts.ReadAhead), it.readEnd-from)
}

// inWindow reports whether the window that was read last holds [from, to).
func (it *Iterator) inWindow(from, to int64) bool {
	return from >= it.from && to <= it.from+int64(len(it.window))
}

// readWindow returns the bytes [from, to) of the file, from the last window or by a new read.
// A read goes up to upTo, or as far as scans mostly go. When blocks are read one after the
// other, it reads ahead, doubling, from the third block on. If the cache must not be filled
// it begins with the second, since only reads of everything do that.
func (it *Iterator) readWindow(from, to, upTo int64) ([]byte, error) {
	if it.inWindow(from, to) {
		return it.window[from-it.from : to-it.from], nil
	}
	it.called = true
	n := max(upTo-from, it.expected(from))
	if it.run >= 2 || it.run >= 1 && it.opts.NoCacheFill {
		it.ahead = min(max(2*it.ahead, firstReadAhead), it.opts.ReadAhead)
		n = max(n, min(int64(it.ahead), it.readEnd-from))
	}
	buffer := it.buffers(n)
	window, err := it.r.readRange(buffer, from, n)
	if err != nil && n > to-from {
		// The unreadable place may lie in a block that was not asked for.
		it.run, it.ahead = 0, 0
		window, err = it.r.readRange(buffer, from, to-from)
	}
	if err != nil {
		it.window = nil
		return nil, err
	}
	it.window, it.from = window, from
	return window[:to-from], nil
}

// buffers returns the memory for a window of n bytes. From opts.Memory, if set, it takes
// room for a full window, and for the file system blocks that hold its ends.
func (it *Iterator) buffers(n int64) *[]byte {
	if it.opts.Memory == nil {
		return &it.scratch.stored
	}
	n = max(n, min(int64(it.opts.ReadAhead), it.r.footer.dataLength)) + 2*(it.r.align-1)
	if int64(cap(it.held)) < n {
		it.opts.Memory.Free(it.held)
		it.held = it.opts.Memory.Alloc(1 << bits.Len64(uint64(n-1))) // whole pages
	}
	return &it.held
}
