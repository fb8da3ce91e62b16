package sstable

// The page cache of the operating system, as far as the reader of a file can tell and help:
// residency measures whether blocks lie there, missPrefetch asks for what does not.

import (
	"sync/atomic"
	"time"
)

// residency tells whether a file's blocks lie in the page cache, by how long the last accesses
// took. If they do, a mapping is faster: it saves a call and a copy, 0.7 of 1.8 us for a
// block of 5 KiB that is in no processor cache. If they do not, calls are faster: one call
// reads a whole block, and for a scan a whole window. Through a mapping, each page of a block
// costs a fault and a device access, or the kernel reads more than was wanted; and a fault
// blocks one of the few processors of the Go scheduler.
//
// One access in four is measured, which costs 0.1 us, and every one after a slow one. That sends the next
// ones to calls, until missStreak of them were fast. A full cache takes few values that the page cache has, also
// of files that are not mapped (blockReader.keeps).
type residency struct {
	elapsed func() time.Duration // nil: nothing is measured
	misses  atomic.Int32         // how many fast accesses it takes until blocks count as resident
}

const (
	missStreak = 32
	// slowAccess is far above what a block takes from the page cache, and below what
	// any device takes. One nanosecond is added for every bytesPerNano bytes.
	slowAccess   = 25 * time.Microsecond
	bytesPerNano = 2
)

// resident reports whether blocks probably lie in the page cache.
func (p *residency) resident() bool { return p.misses.Load() == 0 }

// missed notes that blocks had to be read from the device.
func (p *residency) missed() { p.misses.Store(missStreak) }

// now is the time now, 0 if nothing is measured.
func (p *residency) now() time.Duration {
	if p.elapsed == nil {
		return 0
	}
	return p.elapsed()
}

// begin begins an access to a block. It returns 0 if the access is not measured.
func (p *residency) begin(offset int64) time.Duration {
	if p.elapsed == nil || offset>>12&3 != 0 && p.resident() {
		return 0
	}
	return p.elapsed()
}

// end ends an access to n bytes. If the access was measured, it returns the time now and
// whether the access was slow.
func (p *residency) end(began time.Duration, n int64) (now time.Duration, slow bool) {
	if began == 0 {
		return 0, false
	}
	now = p.elapsed()
	if now-began > slowAccess+time.Duration(n/bytesPerNano) {
		p.missed()
		return now, true
	}
	if misses := p.misses.Load(); misses > 0 {
		p.misses.CompareAndSwap(misses, misses-1)
	}
	return now, false
}

// missPrefetch asks the kernel for the chunk of a file around a block that was not in the page
// cache. In the long run all of a small table will be in memory, and a part of a large one. But
// bringing it there block by block takes a device access for each. The reader asks after its own
// block was read, so it waits for nothing else, and the kernel reads the chunk in the background.
//
// Requests are limited: to the share of the file's chunks that the page cache is asked to keep, the same
// ones each time; the smaller that is, to the fewer misses, down to one in askRarely; and to one per chunk
// in a while, so that little is read in vain if memory turns out to be short and misses go on. Merges make
// none, nor do readers that go forward from block to block: they have windows. The zero value requests
// nothing.
type missPrefetch struct {
	read   func(offset, n int64) // begins to read, and does not wait
	size   int64                 // of the readable part, from the beginning of the file
	chunks []atomic.Uint64       // time of each request, in ns on the clock plus one; 0: never
	misses atomic.Uint32         // of chunks that may be requested
	keep   *atomic.Uint32        // see ReaderOptions
	seed   uint64                // of the file
}

const (
	// chunkBytes: random gets were as fast with chunks of 512 KiB, 1 and 2 MiB, and a
	// smaller request holds up other reads less.
	chunkBytes = 256 << 10
	// askRarely: chunks that fill the page cache at once drive out what was read once so far and will be read often.
	// Behind an update of one column, with 4 and 16, eight readers read 1.19 and 1.05 blocks of the device for a get
	// (docs/lab/device.md#dense-files).
	askRarely = 16
	// askAgain is the least time between two requests for the same chunk.
	askAgain = 10 * time.Minute
	// KeepAll stands for all blocks: see ReaderOptions.Keep.
	KeepAll = 1 << 16
)

func (m *missPrefetch) open(size int64, read func(offset, n int64)) {
	*m = missPrefetch{read: read, size: size, chunks: make([]atomic.Uint64, (size+chunkBytes-1)/chunkBytes)}
}

// missed notes that the bytes at an offset were not in the page cache just now.
func (m *missPrefetch) missed(offset int64, now time.Duration) {
	i := offset / chunkBytes
	if i >= int64(len(m.chunks)) {
		return
	}
	keep := uint32(KeepAll)
	if m.keep != nil {
		keep = m.keep.Load()
	}
	const golden = 0x9e3779b97f4a7c15 // multiples of the golden ratio spread evenly
	if uint32((m.seed+uint64(i))*golden>>48) >= keep {
		return
	}
	c := &m.chunks[i]
	asked := c.Load()
	if asked != 0 && now-time.Duration(asked-1) < askAgain {
		return
	}
	if every := 1 + askRarely*(KeepAll-keep)/KeepAll; m.misses.Add(1)%every > 0 || !c.CompareAndSwap(asked, uint64(now)+1) {
		return
	}
	from := i * chunkBytes
	m.read(from, min(chunkBytes, m.size-from))
}
