package sstable

// How an iterator gets its blocks: from the cache, from a helper that loaded them ahead, or
// from the file, into the cache or into its own memory.

import (
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/row"
)

// blockReader gives its owner one block of a file at a time, and the values of the rows that
// the owner is at. The owner says how it goes through the file (seek), and asks for blocks
// (load) and values (openValues). What is cached, verified, and read ahead is decided here.
type blockReader struct {
	loadedBlock
	r     *Reader
	opts  IterOptions
	bytes byteReader
	ahead readAhead

	// described is the end of the rows of the block that Extent described last, 0 if it has not. Movements to
	// rows below it open their values.
	described int

	began  time.Duration // when the last access to values began, on the clock of r.verified,
	lately uint64        // and which segments of the block had been verified lately
	stored row.Stored    // how the values that were opened last are stored, in a merge
}

// loadedBlock is a block that a reader holds, and memory for the next one.
type loadedBlock struct {
	// The block's number in the index or -1, its parsed form, and its pin in the cache
	// (nil if the block is the reader's own).
	number int
	block  *dataBlock
	pin    *cache.Block[dataBlock]

	// The values of the rows [valueRow, valueRows), mostly one segment. The first
	// value lies at valuesAt among those of the block.
	values              []byte
	valuesAt            int
	valueRow, valueRows int
	shared              bool // values do not change while the block is loaded

	own     *dataBlock // used without a cache, or if the cache must not be filled
	buffer  []byte     // memory of own
	segment []byte     // memory for values that the cache does not keep
}

// release ends the pin and forgets the block. It keeps memory.
func (l *loadedBlock) release(r *Reader) {
	if l.pin != nil {
		r.cached.Release(l.pin)
		l.pin = nil
	}
	l.block, l.number = nil, -1
	l.values, l.valueRow, l.valueRows = nil, 0, 0
}

// trim frees memory that a rare large block needed.
func (l *loadedBlock) trim() {
	if cap(l.buffer) > MaxBlockSize {
		l.buffer = nil
	}
	if cap(l.segment) > MaxBlockSize {
		l.segment = nil
	}
}

// expectHead prefetches the head of the block, because a search finds out only one after the
// other which lines it needs. It needs few lines of a large head, so at most 2 KiB are
// prefetched.
func (l *loadedBlock) expectHead() {
	const most = 2 << 10
	prefetch.Bytes(l.block.data[:min(len(l.block.data), most)])
}

// expectNext prefetches the next block, if it is in the cache like this one.
func (b *blockReader) expectNext() {
	if b.pin != nil {
		b.r.cached.Expect(b.number + 1)
	}
}

// open makes a closed or zero reader ready, and keeps its memory.
func (b *blockReader) open(r *Reader, opts IterOptions) {
	*b = blockReader{r: r, opts: opts,
		loadedBlock: loadedBlock{number: -1, own: b.own, buffer: b.buffer, segment: b.segment},
		bytes:       byteReader{f: &r.fileBytes, memory: opts.Memory, most: defaultReadAhead, began: noScan, end: r.footer.dataLength},
		ahead:       readAhead{stream: b.ahead.stream},
		stored:      row.Stored{Bytes: b.stored.Bytes[:0], Tried: uint8(r.compressed)},
	}
	if opts.NoCacheFill {
		b.bytes.pattern = merge
	}
	b.ahead.stream.Use(r.helpers)
}

// index says which blocks there are.
func (b *blockReader) index() *index { return &b.r.index }

// seek begins a new movement through the file, which the next load begins.
func (b *blockReader) seek(p pattern) {
	b.described = 0
	b.bytes.seek(p)
}

// load makes block i the loaded one. After an error none is.
func (b *blockReader) load(i int) error {
	if b.number == i {
		return nil
	}
	next := b.number >= 0 && i == b.number+1
	b.described = 0
	if b.bytes.enter(next); !next {
		b.ahead.leave(b)
	}
	opened := b.valueRows > 0
	b.release(b.r)
	if b.bytes.run > 0 && b.ahead.stream.Helped() {
		b.ahead.offer(b, i, opened)
	}
	if b.ahead.n > 0 && b.ahead.take(b, i) {
		return nil
	}
	return b.fetch(i)
}

// start begins to read block i, which load will be asked for, and returns false if the device has not to be waited for.
func (b *blockReader) start(i int) bool {
	return (b.r.cached == nil || !b.r.cached.Holds(i)) && b.bytes.start(b.r.index.blockRange(i))
}

// refuse forgets the loaded block, and returns the error that says what is wrong with it.
func (b *blockReader) refuse(what string) error {
	from, _ := b.r.index.blockRange(b.number)
	b.release(b.r)
	return b.r.corrupt(from, what)
}

// fetch sets block, and pin, to those of block i. After an error no block is loaded.
func (b *blockReader) fetch(i int) (err error) {
	b.number = i
	switch c := b.r.cached; {
	case c == nil:
	case b.bytes.pattern == merge:
		b.pin = c.Lookup(i)
	default:
		b.pin, err = c.Get(i, b)
	}
	if b.pin != nil {
		b.block = &b.pin.Value
		return nil
	}
	if b.own == nil {
		b.own = new(dataBlock)
	}
	if b.block = b.own; err == nil {
		err = b.FillBlock(nil)
	}
	if err != nil {
		b.number, b.block = -1, nil
	}
	return err
}

// FillBlock reads the current block into c, or into the reader's own block if c is nil. If the
// block has segments, it decodes only the head. A call reads the whole block, to save the next
// call; a mapping is touched only at the head. The head's length is not verified here, because
// the checksum of the head covers its place.
func (b *blockReader) FillBlock(c *cache.Block[dataBlock]) error {
	from, to := b.r.index.blockRange(b.number)
	at := from
	var length [headLengthSize]byte
	if b.r.footer.version >= versionSegments && to-from >= headLengthSize && b.bytes.peek(length[:], from, to) {
		at = max(from, to-headLengthSize-int64(headLength(length[:])))
	}
	stored, err := b.bytes.read(at, to, to)
	if err != nil {
		return err
	}
	if bad := b.take(c, stored, at-from); bad != "" {
		return b.bytes.damaged(from, bad)
	}
	return nil
}

// take verifies, decodes and parses a stored head, which ends stored, or a whole block without
// segments. stored begins at offset from in the block. It returns what is wrong, or "".
func (b *blockReader) take(c *cache.Block[dataBlock], stored []byte, from int64) (bad string) {
	begin, _ := b.r.index.blockRange(b.number)
	at := wholeBlock
	if b.r.footer.version >= versionSegments {
		head, behind, bad := headOf(stored)
		if bad != "" {
			return bad
		}
		stored, from = head, from+int64(behind)
		at = int(from)
	}
	s, bad := checkStored(stored, &b.r.footer.uniqueID, begin+from, maxRawBlock)
	if bad != "" {
		return bad
	}
	block, data := b.own, b.buffer
	if c != nil {
		block, data = &c.Value, b.r.cached.Allocate(c, s.raw)
	} else if cap(data) < s.raw {
		data = make([]byte, s.raw)
		b.buffer = data
	}
	data = data[:s.raw]
	if bad := b.bytes.scratch.expand(data, s); bad != "" {
		return bad
	}
	bad = block.parse(data, at)
	block.shift(b.r.seqOffset)
	return bad
}

// close ends the movement, and releases the block and working memory.
func (b *blockReader) close() {
	b.seek(point)
	b.ahead.leave(b)
	b.release(b.r)
	b.bytes.free()
	b.trim()
	b.opts, b.r, b.bytes.f = IterOptions{}, nil, nil // b may be kept for other files while this one goes
}
