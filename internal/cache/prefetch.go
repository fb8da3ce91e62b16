package cache

import (
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

// Who finds a block in its slot asks for all memory that he is about to look at: the
// block, and the beginning of its buffer. Taking the pin holds back every later load
// until the block's first line has come, and the block's lines say where the buffer
// lies: he would wait for one after the other. It does not matter whether the block
// was evicted meanwhile and its buffer freed.

const (
	cacheLine = prefetch.Line
	// aheadLines is how much of a buffer is asked for at most: of something large few
	// lines are looked at.
	aheadLines = 16
)

// prefetch asks for the memory of a block.
func (b *Block[T]) prefetch() {
	prefetch.Range(uintptr(unsafe.Pointer(b)), int(unsafe.Offsetof(b.slot)))
}

// linesOf says where the beginning of a buffer lies, and in the bits that its first
// line leaves, in how many lines.
func linesOf(buffer []byte) uintptr {
	at := uintptr(unsafe.Pointer(unsafe.SliceData(buffer)))
	line := at &^ (cacheLine - 1)
	return line | min((at-line+uintptr(len(buffer))+cacheLine-1)/cacheLine, aheadLines)
}

// prefetchLines asks for what linesOf said: an address that is no Go pointer, and may
// be of memory that is gone.
func prefetchLines(lines uintptr) {
	at := lines &^ (cacheLine - 1)
	prefetch.Range(at, int(lines-at)*cacheLine)
}

// Expect says that block i will be asked for soon, if there is one.
func (f *File[T]) Expect(i int) {
	if i < len(f.slots) {
		s := &f.slots[i]
		if b := s.block.Load(); b != nil {
			prefetchLines(s.ahead.Load())
			b.prefetch()
		}
	}
}
