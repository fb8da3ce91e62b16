//go:build !race

package cache

import (
	"sync/atomic"
	"unsafe"
)

// prefetch asks for the memory of a block, all lines of it at once: taking the pin
// holds back every later load until the block's first line has come. What is read
// may be in the middle of a change, of a block that was evicted; nobody looks at it,
// and blocks stay where they are as long as the cache.
func (b *Block[T]) prefetch() {
	for at := uintptr(cacheLine); at < unsafe.Offsetof(b.slot); at += cacheLine {
		atomic.LoadUint64((*uint64)(unsafe.Add(unsafe.Pointer(b), at)))
	}
}
