package sstable

// The working memory of writers. A flush makes several files of a few megabytes, and each
// writer needs about as much memory as the one before.

import "sync"

// writerMemory is the memory that a writer needs beside its results.
type writerMemory struct {
	block  *blockBuilder
	next   *blockBuilder // spare, swapped with block when its last row moves to the next block
	index  indexBuilder
	hashes []uint64
	raw    []byte   // scratch: a raw head
	stored []byte   // scratch: a stored block
	parts  []uint64 // scratch: where the segments of stored end
}

// writerMemories keeps memory between writers. It holds only scratch memory, so it does not
// matter which piece a writer gets.
var writerMemories = sync.Pool{New: func() any {
	return &writerMemory{block: new(blockBuilder), next: new(blockBuilder)}
}}

// give passes the memory on to other writers. REQUIRES: the file is complete.
func (m *writerMemory) give() {
	const keep = 1 << 20 // do not keep memory of rare large blocks
	if m.block.memory()+m.next.memory()+cap(m.raw)+cap(m.stored)+8*cap(m.hashes)+40*cap(m.index.arrays[idxBlockEnd]) > keep {
		return
	}
	m.block.reset()
	m.next.reset()
	m.index.reset()
	m.hashes = m.hashes[:0]
	writerMemories.Put(m)
}

// memory returns about how many bytes the builder keeps.
func (b *blockBuilder) memory() int {
	return cap(b.keys) + cap(b.values) + cap(b.stored) + cap(b.names) + 48*cap(b.cells) + 56*cap(b.rows) + 16*cap(b.nameEnds)
}
