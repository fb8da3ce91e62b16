package sstable

// Reading the bytes of a table file. fileBytes is the file, which all its readers share, and
// byteReader reads it for one of them: through the mapping, if there is one and the blocks lie
// in the page cache, or else by calls.
//
// Beside its bytes, a call costs as much as some sixty kilobytes more would, which is often
// more than the use of the bytes costs. So a scan should need few calls, and a get should not
// pay for bytes that it does not need. A scan does not know how far it will go: its caller may
// stop after a hundred rows. But the scans of a table are mostly alike. So the file remembers
// how many bytes the last ones went through, and the first call of the next scan reads as
// much. If the scan goes on after that, it reads ahead by windows that double.

import (
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// defaultReadAhead is so large that the cost of a call does not matter.
const defaultReadAhead = 256 << 10

const (
	firstReadAhead = 64 << 10
	// readUnit is the unit to which the size of read buffers is rounded up, so that they are reused.
	readUnit = 16 << 10
)

// fileBytes is a table file as bytes. Its methods are safe for concurrent use.
type fileBytes struct {
	file      vfs.File
	name      string
	align     int64 // of direct reads
	footer    footer
	mapping   *vfs.Mapping // nil: not mapped
	residency residency
	prefetch  missPrefetch
	scanned   scanLength
	starter   vfs.Starter // the file; nil if it begins no reads
}

// corrupt returns the error that says what is wrong with the block or footer at an offset. It
// names no content.
func (f *fileBytes) corrupt(offset int64, what string) error {
	return fmt.Errorf("%w %s: offset %d: %s", ErrCorrupt, f.name, offset, what)
}

// readRange reads n bytes at an offset into *buffer, and returns them. It replaces *buffer
// if that is too small. For a direct file it reads all file system blocks that hold the
// bytes. A file that ends too early is corrupt.
func (f *fileBytes) readRange(buffer *[]byte, offset, n int64) ([]byte, error) {
	from := offset / f.align * f.align
	length := (offset + n - from + f.align - 1) / f.align * f.align
	b := resize(buffer, length)
	got, err := f.file.ReadAt(b, from)
	if int64(got) < offset+n-from {
		if err == nil || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
			return nil, f.corrupt(offset, fmt.Sprintf("file ends %d bytes too early", offset+n-from-int64(got)))
		}
		return nil, fmt.Errorf("sstable: read %s at offset %d: %w", f.name, offset, err)
	}
	return b[offset-from : offset-from+n], nil
}

// startRange begins what readRange would do, and returns where the bytes will be; nil if it does not.
func (f *fileBytes) startRange(buffer *[]byte, offset, n int64) (started vfs.Started, bytes []byte) {
	from := offset / f.align * f.align
	length := (offset + n - from + f.align - 1) / f.align * f.align
	if f.starter == nil || length > vfs.MostStarted {
		return nil, nil
	}
	b := resize(buffer, length)
	started, ok := f.starter.StartRead(b, from)
	if !ok {
		return nil, nil
	}
	return started, b[offset-from : offset-from+n]
}

// resize makes *buffer n bytes long, with any content, aligned for direct files.
func resize(buffer *[]byte, n int64) []byte {
	if int64(cap(*buffer)) < n {
		*buffer = vfs.AlignedBuffer(int(n+readUnit-1) / readUnit * readUnit)
	}
	return (*buffer)[:n]
}

// scanLength estimates how far scans of a file go, in bytes; few go further. It approximates
// the 80th expectile of the scans that read the file by calls, with one number that moves with
// each scan.
type scanLength struct{ bytes atomic.Int64 }

const (
	// A scan that went further than expected adds a share of the difference, and one
	// that went less far subtracts a quarter of that share.
	lengthUp, lengthDown = 4, 16
	// lengthSlack: so much more than expected is read, as a share of it, because scans of
	// equally many rows differ by a block.
	lengthSlack = 8
)

// note records that a scan went through n bytes. If two calls race, one may be lost.
func (s *scanLength) note(n int64) {
	expected := s.bytes.Load()
	if n > expected {
		expected += (n - expected + lengthUp - 1) / lengthUp
	} else {
		expected -= (expected - n) / lengthDown
	}
	s.bytes.Store(expected)
}

// first is how many bytes the first call of a scan should read.
func (s *scanLength) first() int64 {
	n := s.bytes.Load()
	return n + n/lengthSlack
}

// pattern says how a reader goes through a file.
type pattern uint8

const (
	// point reads a block here and there, or backward: no more than the block is read.
	point pattern = iota
	// scan reads forward, and may stop soon.
	scan
	// merge reads everything once, front to back.
	merge
)

// Reads counts the reads of a file that a window did not have: by whether the device served them, as far as that was
// measured, or else the page cache, through a mapping or by a call.
type Reads struct{ Mapped, Called, Far int }

// byteReader reads ranges of a file for one reader, which says how it goes through the file.
type byteReader struct {
	f       *fileBytes
	memory  *offheap.Pool // has the memory of windows, if not nil
	most    int           // read ahead at once, in bytes; not positive: nothing is
	pattern pattern
	run     int   // how many blocks, without the first, were read one after the other
	began   int64 // where the scan began in the file: noScan without one, unknown before it is known
	last    int64 // where the range ends that was read last, here or by a helper
	end     int64 // where read-ahead ends in the file

	scratch *scratch
	held    []byte      // from memory
	window  []byte      // the bytes that were read last, in scratch or held,
	from    int64       // and where they lie in the file
	started vfs.Started // the read of the window while it is under way
	ahead   int         // how many bytes to read ahead next
	reads   int         // how many ranges were read
	counts  Reads
	called  bool // the scan read by calls
	mapped  bool // the last range came through the mapping
}

const (
	noScan  = math.MaxInt64
	unknown = -1
)

// seek begins a new movement through the file.
func (b *byteReader) seek(p pattern) {
	if b.called && b.last > b.began {
		b.f.scanned.note(min(b.last-b.began, defaultReadAhead))
	}
	b.began, b.called = noScan, false
	if b.pattern != merge {
		b.pattern = p
	}
	if b.pattern == scan {
		b.began = unknown
	}
}

// enter says that the reader goes to a block, which is the next one after the last or not.
func (b *byteReader) enter(next bool) {
	b.run++
	if !next {
		b.run, b.ahead = 0, 0
	}
}

// read returns the bytes [from, to) of the file in memory of b, by the way that is faster now.
// They stay until the next call. A call of the file reads on up to upTo. Later changes of the
// file do not change the bytes: the caller verifies them, and uses what it verified.
func (b *byteReader) read(from, to, upTo int64) (stored []byte, err error) {
	f := b.f
	b.reads++
	b.last = to
	if b.began == unknown {
		b.began = from
	}
	if b.scratch == nil {
		b.scratch = takeScratch()
	}
	b.mapped = false
	if b.started != nil {
		b.finish()
	}
	if b.inWindow(from, to) {
		return b.readWindow(from, to, upTo)
	}
	began := f.residency.begin(from)
	if f.mapping != nil && f.residency.resident() {
		stored, err = b.copyMapped(from, to)
	} else {
		stored, err = b.readWindow(from, to, upTo)
	}
	if now, slow := f.residency.end(began, max(to-from, int64(len(b.window)))); slow {
		b.counts.Far++
		if b.run == 0 && b.pattern != merge {
			f.prefetch.missed(from, now)
		}
	} else if b.mapped {
		b.counts.Mapped++
	} else {
		b.counts.Called++
	}
	return stored, err
}

// start begins to read the bytes [from, to), which read will be asked for, and returns false if the device has not to be
// waited for. REQUIRES: nothing was read.
func (b *byteReader) start(from, to int64) bool {
	if b.scratch == nil {
		b.scratch = takeScratch()
	}
	b.started, b.window = b.f.startRange(&b.scratch.stored, from, to-from)
	b.from = from
	return b.started != nil
}

// finish waits for what start began. It is a look at the device, also if the bytes have come meanwhile.
func (b *byteReader) finish() {
	r := &b.f.residency
	began := r.now()
	read := b.started.Wait()
	now := r.now()
	b.started = nil
	if !read {
		b.window = nil // what reads the bytes again counts that
		return
	}
	if now-began > slowAccess {
		b.counts.Far++
	} else {
		b.counts.Called++
	}
	r.missed()
	b.f.prefetch.missed(b.from, now)
}

// peek fills p with the bytes before to, and returns false unless [from, to) is better read
// through the mapping, in parts: there is one, the last blocks were in the page cache, and the
// window does not have the bytes.
func (b *byteReader) peek(p []byte, from, to int64) bool {
	f := b.f
	return f.mapping != nil && f.residency.resident() && !b.inWindow(from, to) &&
		f.mapping.ReadAt(p, to-int64(len(p))) == nil
}

// copyMapped reads the bytes [from, to) through the mapping into the window.
func (b *byteReader) copyMapped(from, to int64) ([]byte, error) {
	b.window, b.mapped = nil, true
	stored := resize(&b.scratch.stored, to-from)
	if err := b.f.mapping.ReadAt(stored, from); err != nil {
		return nil, fmt.Errorf("sstable: block at offset %d: %w", from, err)
	}
	b.window, b.from = stored, from
	return stored, nil
}

// inWindow reports whether the window that was read last holds [from, to).
func (b *byteReader) inWindow(from, to int64) bool {
	return from >= b.from && to <= b.from+int64(len(b.window))
}

// readWindow returns the bytes [from, to) of the file, from the last window or by a new call.
// A call reads up to upTo, or as far as scans mostly go. When blocks are read one after the
// other, it reads ahead, doubling, from the third block on. A merge begins with the second,
// since it reads everything.
func (b *byteReader) readWindow(from, to, upTo int64) ([]byte, error) {
	if b.inWindow(from, to) {
		return b.window[from-b.from : to-b.from], nil
	}
	b.called = true
	n := upTo - from
	if b.began != noScan { // the scan is likely to need as much
		n = max(n, min(b.began+b.f.scanned.first()-from, int64(b.most), b.end-from))
	}
	if b.run >= 2 || b.run >= 1 && b.pattern == merge {
		b.ahead = min(max(2*b.ahead, firstReadAhead), b.most)
		n = max(n, min(int64(b.ahead), b.end-from))
	}
	buffer := b.buffer(n)
	window, err := b.f.readRange(buffer, from, n)
	if err != nil && n > to-from {
		// The unreadable place may lie in a block that was not asked for.
		b.run, b.ahead = 0, 0
		window, err = b.f.readRange(buffer, from, to-from)
	}
	if err != nil {
		b.window = nil
		return nil, err
	}
	b.window, b.from = window, from
	return window[:to-from], nil
}

// buffer returns the memory for a window of n bytes. From b.memory, if set, it takes room for
// a full window, and for the file system blocks that hold its ends.
func (b *byteReader) buffer(n int64) *[]byte {
	if b.memory == nil {
		return &b.scratch.stored
	}
	n = max(n, min(int64(b.most), b.f.footer.dataLength)) + 2*(b.f.align-1)
	if int64(cap(b.held)) < n {
		b.memory.Free(b.held)
		b.held = b.memory.Alloc(1 << bits.Len64(uint64(n-1))) // whole pages
	}
	return &b.held
}

// damaged returns the error for wrong bytes of the block at offset. The next read reads the
// file again.
func (b *byteReader) damaged(offset int64, what string) error {
	b.window = nil
	return b.f.corrupt(offset, what)
}

// free gives the memory back. The reader can go on.
func (b *byteReader) free() {
	if b.started != nil { // until its end the memory is not free
		b.started.Wait()
		b.started = nil
	}
	if b.scratch != nil {
		b.scratch.give()
		b.scratch, b.window = nil, nil
	}
	if b.held != nil {
		b.memory.Free(b.held)
		b.held, b.window = nil, nil
	}
}
