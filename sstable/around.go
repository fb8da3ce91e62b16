package sstable

// Reading what lies around a block that was not in the page cache. A file is mapped if
// the tables are small beside the memory, so in the long run all of it will be in memory.
// But bringing it there block by block takes a device access for each. So on the first
// miss in a chunk of a mapped file, the reader asks the kernel for the whole chunk. It
// asks after its own block was read, so it waits for nothing else, and the kernel reads
// the chunk in the background.
//
// Requests are limited: one per chunk in a while, so that little is read in vain if memory
// turns out to be short and misses go on. Compactions, and readers that go from block to
// block, make none: they have windows.

import (
	"sync/atomic"
	"time"
)

const (
	// aroundBytes is the size of a chunk. Random gets were as fast with chunks of 512
	// KiB, 1 and 2 MiB, and a smaller request holds up other reads less.
	aroundBytes = 256 << 10
	// aroundAgain is the least time between two requests for the same chunk.
	aroundAgain = 10 * time.Minute
)

// around requests the chunks around misses. The zero value requests nothing.
type around struct {
	read   func(offset, n int64) // begins to read, and does not wait
	size   int64                 // of the readable part, from the beginning of the file
	chunks []atomic.Uint64       // time of each request, in ns on the clock plus one; 0: never
}

func (a *around) open(size int64, read func(offset, n int64)) {
	*a = around{read: read, size: size, chunks: make([]atomic.Uint64, (size+aroundBytes-1)/aroundBytes)}
}

// missed notes that the bytes at an offset were not in the page cache just now.
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
