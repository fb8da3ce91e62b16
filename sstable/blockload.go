package sstable

// How an iterator gets its blocks: from the cache, or from the file, by calls or through
// a mapping, into the cache or into its own memory.

import (
	"encoding/binary"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// fail makes the iterator invalid with an error about the loaded block.
func (it *Iterator) fail(what string) bool {
	from, _ := it.r.index.blockRange(it.number)
	it.err = it.r.corrupt(from, what)
	it.unload()
	it.onRow, it.onCell = false, false
	return false
}

func (it *Iterator) unload() {
	if it.pin != nil {
		it.r.cached.Release(it.pin)
		it.pin = nil
	}
	it.block, it.number, it.projection = nil, -1, nil
	it.valueRow, it.valueRows, it.eager = 0, 0, false
}

// load makes block i, of group g, the loaded one. After an error no block is loaded and
// the iterator is not on a row.
func (it *Iterator) load(g, i int) bool {
	if it.first < 0 {
		it.first = i
	}
	if it.number == i {
		return true
	}
	if it.number >= 0 && i == it.number+1 {
		it.run++
	} else {
		it.run, it.ahead = 0, 0
		it.leaveLine()
	}
	opened := it.valueRows > 0
	it.unload()
	if it.run > 0 && it.line.stream.Helped() {
		it.lookAhead(i, opened)
	}
	if it.line.n == 0 || !it.fromLine(i) {
		it.number = i
		if err := it.fetch(); err != nil {
			it.err = err
			it.number, it.block = -1, nil
			it.onRow, it.onCell = false, false
			return false
		}
	}
	x := &it.r.index
	if it.block.continued != (i > x.firstBlock(g)) || it.block.continues != (i+1 < x.firstBlock(g+1)) {
		return it.fail("block and index differ about where a long row begins or ends")
	}
	return true
}

// fetch sets block, and pin, to those of block number.
func (it *Iterator) fetch() error {
	if c := it.r.cached; c != nil {
		if it.opts.NoCacheFill {
			it.pin = c.Lookup(it.number)
		} else {
			pin, err := c.Get(it.number, (*filler)(it))
			if err != nil {
				return err
			}
			it.pin = pin
		}
		if it.pin != nil {
			it.block = &it.pin.Value
			return nil
		}
	}
	if it.own == nil {
		it.own = new(dataBlock)
	}
	it.block = it.own
	return it.readBlock(nil)
}

// filler is an iterator as the cache sees it. It is a type of its own so that Iterator
// does not export FillBlock.
type filler Iterator

// FillBlock reads the iterator's current block for the cache.
func (f *filler) FillBlock(b *cache.Block[dataBlock]) error { return (*Iterator)(f).readBlock(b) }

// readBlock reads the iterator's current block into b, or into the iterator's own block
// if b is nil. If the block has segments, it decodes only the head.
func (it *Iterator) readBlock(b *cache.Block[dataBlock]) error {
	from, to := it.r.index.blockRange(it.number)
	at := it.headFrom(from, to)
	stored, err := it.access(at, to, to)
	if err != nil {
		return err
	}
	if bad := it.take(b, stored, at); bad != "" {
		return it.damaged(from, bad)
	}
	return nil
}

// headFrom returns where a read of the block [from, to) for its head begins. A call reads
// the whole block, to save the next call; a mapping is touched only at the head. The
// head's length is not verified here, because the checksum of the head covers its place.
func (it *Iterator) headFrom(from, to int64) int64 {
	r := it.r
	if r.footer.version < versionSegments || to-from < headLengthSize || !it.throughMapping(from, to) {
		return from
	}
	var length [headLengthSize]byte
	if r.mapping.ReadAt(length[:], to-headLengthSize) != nil {
		return from // access will report the error
	}
	return max(from, to-headLengthSize-int64(binary.LittleEndian.Uint32(length[:])))
}

// throughMapping reports whether to read [from, to) through the mapping: there is one,
// the last blocks were in the page cache, and the window does not have the bytes.
func (it *Iterator) throughMapping(from, to int64) bool {
	return it.r.mapping != nil && it.r.warmth.warm() && !it.inWindow(from, to)
}

// access returns the bytes [from, to) of the file in memory of the iterator, by the way
// that is faster now. A call reads on up to upTo. Later changes of the file do not change
// the bytes: the caller verifies them, and uses what it verified.
func (it *Iterator) access(from, to, upTo int64) (stored []byte, err error) {
	r := it.r
	it.reads++
	if it.scratch == nil {
		it.scratch = takeScratch()
	}
	it.mapped = false
	if r.mapping == nil || it.inWindow(from, to) {
		return it.readWindow(from, to, upTo)
	}
	began := r.warmth.begin(from)
	if r.warmth.warm() {
		stored, err = it.copyMapped(from, to)
	} else {
		stored, err = it.readWindow(from, to, upTo)
	}
	if now, slow := r.warmth.end(began, max(to-from, int64(len(it.window)))); slow && it.run == 0 && !it.opts.NoCacheFill {
		r.around.missed(from, now)
	}
	return stored, err
}

// copyMapped reads the bytes [from, to) through the mapping into the window.
func (it *Iterator) copyMapped(from, to int64) ([]byte, error) {
	it.window = nil
	if it.mapped = true; it.opts.Believe {
		v := &it.r.verified
		it.began = v.now()
		it.lately = v.lately(it.number, it.began)
	}
	b := resize(&it.scratch.stored, to-from+placeSize)[:to-from]
	if err := it.r.mapping.ReadAt(b, from); err != nil {
		return nil, fmt.Errorf("sstable: block at offset %d: %w", from, err)
	}
	it.window, it.from = b, from
	return b, nil
}

// damaged returns the error for wrong bytes that access returned, of the block at offset.
// The next attempt reads the file again.
func (it *Iterator) damaged(offset int64, what string) error {
	it.window = nil
	return it.r.corrupt(offset, what)
}

// take verifies, decodes and parses a stored head, which ends stored, or a whole block
// without segments. It returns what is wrong, or "".
func (it *Iterator) take(b *cache.Block[dataBlock], stored []byte, from int64) (bad string) {
	head, at := stored, 0
	if it.r.footer.version >= versionSegments {
		if head, at, bad = headOf(stored); bad != "" {
			return bad
		}
	}
	kind, body, bad := checkStored(head, &it.r.footer.uniqueID, from+int64(at))
	if bad != "" {
		return bad
	}
	n, bad := partLength(kind, body)
	if bad != "" {
		return bad
	}
	block, data := it.own, it.buffer
	if b != nil {
		block, data = &b.Value, it.r.cached.Allocate(b, n)
	} else if cap(data) < n {
		data = make([]byte, n)
		it.buffer = data
	}
	data = data[:n]
	if bad := it.scratch.expand(data, kind, body); bad != "" {
		return bad
	}
	if it.r.footer.version < versionSegments {
		return block.parse(data)
	}
	begin, _ := it.r.index.blockRange(it.number)
	return block.parseHead(data, int(from-begin)+at)
}
