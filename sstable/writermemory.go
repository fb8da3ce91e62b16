package sstable

// The working memory of writers. A flush makes several files of a few megabytes, and each
// writer needs about as much memory as the one before.

import "sync"

// writerMemory is the memory that a writer needs beside its results.
type writerMemory struct {
	block, next *blockBuilder
	index       indexBuilder
	raw, stored []byte
	parts       []uint64
	hashes      []uint64
}

// writerMemories keeps memory between writers. It holds only scratch memory, so it does not
// matter which piece a writer gets.
var writerMemories = sync.Pool{New: func() any {
	return &writerMemory{block: new(blockBuilder), next: new(blockBuilder)}
}}

// giveMemory passes the memory on to other writers. REQUIRES: the file is complete.
func (w *Writer) giveMemory() {
	const keep = 1 << 20 // do not keep memory of rare large blocks
	if w.block.memory()+w.next.memory()+cap(w.raw)+cap(w.stored)+8*cap(w.hashes)+40*cap(w.index.arrays[idxBlockEnd]) > keep {
		return
	}
	w.block.reset()
	w.next.reset()
	w.index.reset()
	writerMemories.Put(&writerMemory{
		block: w.block, next: w.next, index: w.index, raw: w.raw, stored: w.stored, parts: w.parts, hashes: w.hashes,
	})
	w.block, w.next, w.index = nil, nil, indexBuilder{}
	w.raw, w.stored, w.parts, w.hashes = nil, nil, nil, nil
}

// memory returns about how many bytes the builder keeps.
func (b *blockBuilder) memory() int {
	return cap(b.keys) + cap(b.values) + cap(b.stored) + cap(b.names) + 48*cap(b.cells) + 56*cap(b.rows) + 16*cap(b.nameEnds)
}
