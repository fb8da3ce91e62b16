package wal

// The buffers of groups. With a pool they lie outside the Go heap. Records that gather before
// they are written would otherwise let the heap grow by twice as much, and stay that large.

import "github.com/flagstone-db/flagstone/internal/vfs"

const (
	minBuffer = 64 << 10
	// keptBuffer is the capacity up to which a buffer is kept for later groups. It fits a group
	// that was handed over in time; larger groups are rare.
	keptBuffer = 2 * writeThreshold
)

// newBuffer returns an empty buffer, aligned for direct I/O. Its spare capacity is not cleared.
func (w *Writer) newBuffer(size int) []byte {
	if w.opts.Memory == nil {
		return vfs.AlignedBuffer(size)[:0]
	}
	return w.opts.Memory.Alloc(size)[:0]
}

// freeBuffer returns a buffer to the pool.
func (w *Writer) freeBuffer(b []byte) {
	if w.opts.Memory != nil {
		w.opts.Memory.Free(b)
	}
}

// takeBuffer returns an empty buffer for the next group. Callers hold mu.
func (w *Writer) takeBuffer() []byte {
	if n := len(w.idle); n > 0 {
		b := w.idle[n-1]
		w.idle = w.idle[:n-1]
		return b[:0]
	}
	return w.newBuffer(minBuffer)
}

// giveBuffer takes back the buffer of a group that was written. Callers hold mu.
func (w *Writer) giveBuffer(b []byte) {
	if cap(b) > keptBuffer {
		w.freeBuffer(b)
		return
	}
	w.idle = append(w.idle, b)
}

// freeBuffers gives all memory back. Callers hold mu; no group is in flight, and nothing will be
// appended any more.
func (w *Writer) freeBuffers() {
	for _, b := range append(w.idle, w.buf) {
		w.freeBuffer(b)
	}
	w.idle, w.buf = nil, nil
}

// reserve makes room for n more bytes in the buffer.
func (w *Writer) reserve(n int) {
	if len(w.buf)+n <= cap(w.buf) {
		return
	}
	size := max(2*cap(w.buf), minBuffer)
	for size < len(w.buf)+n {
		size *= 2 // such memory is used again, and comes in huge pages
	}
	larger := w.newBuffer(size)
	larger = append(larger, w.buf...)
	w.freeBuffer(w.buf)
	w.buf = larger
}

// extend makes the buffer n bytes longer and returns the new bytes, which are not cleared.
func (w *Writer) extend(n int) []byte {
	w.reserve(n)
	start := len(w.buf)
	w.buf = w.buf[:start+n]
	return w.buf[start:]
}
