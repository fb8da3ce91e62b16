package sstable

// What lies around a block that was not in the page cache. A file is mapped when the
// tables are small beside the memory, so all of it will be in memory if it is read
// for long; and to bring it there block by block takes a device access for each. So
// the first miss in a chunk of a mapped file asks the kernel for the chunk. It is asked
// after the block was read, which waits for nothing else, and the kernel reads the
// chunk while others, or the same reader, go on.
//
// That is bounded: a chunk is asked for once in a while, so where memory turns out to be
// short after all, and misses go on, little is read in vain; and by merges and by
// readers who go from block to block, which have windows, never.

import (
	"sync/atomic"
	"time"
)

const (
	// aroundBytes is the size of a chunk. Gets at random were as fast with chunks of
	// 512 KiB, 1 and 2 MiB. The less is asked for, the less are other reads held up.
	aroundBytes = 256 << 10
	// aroundAgain is the least time between two requests for a chunk.
	aroundAgain = 10 * time.Minute
)

// around asks for what lies around misses. The zero value asks for nothing.
type around struct {
	read   func(offset, n int64) // begins to read and does not wait
	size   int64                 // of what may be read, from the beginning of the file
	chunks []atomic.Uint64       // when each was asked for, in ns on the clock plus one; 0: never
}

func (a *around) open(size int64, read func(offset, n int64)) {
	*a = around{read: read, size: size, chunks: make([]atomic.Uint64, (size+aroundBytes-1)/aroundBytes)}
}

// missed takes in that what lies at an offset was not in the page cache just now.
func (a *around) missed(offset int64, now time.Duration) {
	i := offset / aroundBytes
	if i >= int64(len(a.chunks)) {
		return
	}
	c := &a.chunks[i]
	asked := c.Load()
	if asked != 0 && now-time.Duration(asked-1) < aroundAgain || !c.CompareAndSwap(asked, uint64(now)+1) {
		return
	}
	from := i * aroundBytes
	a.read(from, min(aroundBytes, a.size-from))
}
