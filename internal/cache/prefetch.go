package cache

import (
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

// On a hit, the reader prefetches every line it is about to touch: the block, and the beginning
// of its buffer. Otherwise it would wait for one after the other: the pin holds back every later
// load until the block's first line has come, and the block's lines say where the buffer is. It
// does not matter if the block was evicted meanwhile and its buffer freed.

const (
	cacheLine = prefetch.Line
	// aheadLines bounds the lines of a buffer that are prefetched: readers look at few lines of
	// a large one.
	aheadLines = 16
)

// prefetch prefetches the block.
func (b *Block[T]) prefetch() {
	prefetch.Range(uintptr(unsafe.Pointer(b)), int(unsafe.Offsetof(b.slot)))
}

// linesOf returns the address of a buffer's first cache line, with the number of lines in the
// low bits that this address leaves free.
func linesOf(buffer []byte) uintptr {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))
	line := at &^ (cacheLine - 1)
	return line | min((at-line+uintptr(len(buffer))+cacheLine-1)/cacheLine, aheadLines)
}

// prefetchLines prefetches the result of linesOf. The address is no Go pointer, and its memory
// may be gone.
func prefetchLines(lines uintptr) {
	at := lines &^ (cacheLine - 1)
	prefetch.Range(at, int(lines-at)*cacheLine)
}

// Expect prefetches block i, if it is resident, for a Get that comes soon.
func (f *File[T]) Expect(i int) {
	if i < len(f.slots) {
		s := &f.slots[i]
		if b := s.block.Load(); b != nil {
			prefetchLines(s.ahead.Load())
			b.prefetch()
		}
	}
}
