package cache

import (
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

// prefetch asks for the memory of a block, all lines of it at once: taking the pin
// holds back every later load until the block's first line has come. The block may
// be evicted meanwhile; blocks stay where they are as long as the cache.
func (b *Block[T]) prefetch() {
	prefetch.Range(unsafe.Pointer(b), int(unsafe.Offsetof(b.slot)))
}

// Expect says that block i will be asked for soon, if there is one.
func (f *File[T]) Expect(i int) {
	if i < len(f.slots) {
		if b := f.slots[i].block.Load(); b != nil {
			b.prefetch()
		}
	}
}
