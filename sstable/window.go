package sstable

// How much of a file a call reads. What a call costs beside its bytes is what some
// sixty kilobytes more would cost, and often more than what is done with them: so a scan
// should need few of them, and a get should not pay for bytes that it does not need.
//
// A scan cannot say how far it will go: who wants a hundred rows stops when he has
// them. But scans of one table are mostly alike. So a file keeps how many bytes the
// last ones went through, and the first call of the next one reads as much. A scan
// that goes on beyond reads ahead by windows that double.

import (
	"math/bits"
	"sync/atomic"
)

// reach is how far scans of a file go, in bytes: few go further. It is the 80th
// expectile of those that read the file by calls, as far as it can be had from one
// number that moves with each.
type reach struct{ bytes atomic.Int64 }

const (
	// Of the difference to what is expected a scan that went further adds a part, and
	// one that did not takes a quarter of that part away.
	reachUp, reachDown = 4, 16
	// reachSlack: so much more than expected is read, as a share of it. Scans of as
	// many rows differ by a block.
	reachSlack = 8
)

// note takes in that a scan went through n bytes. Of two that do so at once one may
// be forgotten.
func (r *reach) note(n int64) {
	expected := r.bytes.Load()
	if n > expected {
		expected += (n - expected + reachUp - 1) / reachUp
	} else {
		expected -= (expected - n) / reachDown
	}
	r.bytes.Store(expected)
}

// window is how many bytes the calls of a scan should have read after the first.
func (r *reach) window() int64 {
	n := r.bytes.Load()
	return n + n/reachSlack
}

// beginScan begins a scan with the next block that is loaded: forward, and not of one
// who reads everything anyway.
func (it *Iterator) beginScan() {
	if !it.opts.NoCacheFill {
		it.first = -1
	}
}

// endScan lets the file learn from the scan that ends, if there is one, and if it
// needed calls: others say nothing of it.
func (it *Iterator) endScan() {
	if it.called && it.number >= it.first {
		from, _ := it.r.index.blockRange(it.first)
		_, to := it.r.index.blockRange(it.number)
		it.r.reach.note(min(to-from, DefaultReadAhead))
	}
	it.first, it.called = noScan, false
}

// noScan is the first block of an iterator that does not scan.
const noScan = int(^uint(0) >> 1)

// expected is how many bytes from an offset on the scan is likely to need.
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

// readWindow returns the bytes [from, to) of the file, from the window read
// last or by reading up to an offset behind them, or as far as scans mostly go. It
// reads ahead when blocks are wanted one after the
// other: from the third on, doubling; at once if the cache is not to be filled,
// since only a scan of everything does that.
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
		// The place that cannot be read may lie in a block that nobody asked for.
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

// buffers returns the memory for a window of n bytes: of opts.Memory, if there is
// any, which then has room for it, and for the blocks that hold its ends.
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
