package sstable

// How an iterator comes by its blocks: from the cache, or from the file, by
// calls or through a mapping, into the cache or into memory of its own.

import (
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
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

// load makes block number i, of group g, the loaded one. On an error nothing is
// loaded and the iterator is not on a row.
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

// fetch sets block, and pin, for number.
func (it *Iterator) fetch() error {
	if c := it.r.cached; c != nil {
		if it.opts.NoCacheFill {
			if it.pin = c.Lookup(it.number); it.pin != nil && it.pin.Value.believed {
				c.Release(it.pin)
				it.pin = nil
			}
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

// filler is an iterator as the cache sees it, a name of its own so that callers
// of iterators do not.
type filler Iterator

// FillBlock reads the iterator's current block for the cache.
func (f *filler) FillBlock(b *cache.Block[dataBlock]) error { return (*Iterator)(f).readBlock(b) }

// readBlock reads the head of the iterator's current block, or all of it if it has
// no segments, into b, or into its own block if b is nil.
func (it *Iterator) readBlock(b *cache.Block[dataBlock]) error {
	from, to := it.r.index.blockRange(it.number)
	return it.access(partsFrom(0, 0), from, to, to, func(stored []byte, known bool) error { return it.take(b, stored, from, known) })
}

// access calls take with the bytes [from, to) of the file, which are parts of the
// current block, by whichever way to them is the faster now, and says whether all of
// these parts were verified lately. If they are to be read by a call,
// it reads on up to an offset.
func (it *Iterator) access(p parts, from, to, upTo int64, take func(stored []byte, known bool) error) error {
	r := it.r
	it.reads++
	if it.scratch == nil {
		it.scratch = takeScratch()
	}
	if r.mapping == nil || it.inWindow(from, to) {
		return it.accessWindow(from, to, upTo, take)
	}
	began := r.warmth.begin(from)
	var err error
	if r.warmth.warm() {
		err = it.accessMapped(p, from, to, take)
	} else {
		err = it.accessWindow(from, to, upTo, take)
	}
	if now, slow := r.warmth.end(began, max(to-from, int64(len(it.window)))); slow && it.run == 0 && !it.opts.NoCacheFill {
		r.around.missed(from, now)
	}
	return err
}

// accessWindow is access by calls. What they read is verified always.
func (it *Iterator) accessWindow(from, to, upTo int64, take func(stored []byte, known bool) error) error {
	stored, err := it.readWindow(from, to, upTo)
	if err != nil {
		return err
	}
	if err := take(stored, false); err != nil {
		it.window = nil // the next attempt reads the file again
		return err
	}
	return nil
}

// accessMapped is access through the mapping. Merges verify always: their output
// would pass a damage on under a new checksum. So they take from the cache only
// what was verified when it got there.
func (it *Iterator) accessMapped(p parts, from, to int64, take func(stored []byte, known bool) error) error {
	it.window = nil
	v := &it.r.verified
	now := v.now()
	known := !it.opts.NoCacheFill && v.lately(it.number, p, now)
	err := it.r.mapping.Access(from, to-from, func(stored []byte) error { return take(stored, known) })
	if err == nil && !known {
		v.note(it.number, p, now)
	}
	if errors.Is(err, vfs.ErrFault) {
		it.scratch = nil // what it was doing it did not finish
		return fmt.Errorf("sstable: block at offset %d: %w", from, err)
	}
	return err
}

// take verifies a block as stored, or the head of one with segments, unless its
// checksum is known to be right, decodes and parses it.
func (it *Iterator) take(b *cache.Block[dataBlock], stored []byte, from int64, known bool) error {
	head, at, bad := stored, 0, ""
	if it.r.footer.version >= versionSegments {
		head, at, bad = headOf(stored)
	}
	kind, body, n := CompressNone, []byte(nil), 0
	if bad == "" {
		kind, body, bad = it.r.split(head, from+int64(at), known)
	}
	if bad == "" {
		n, bad = partLength(kind, body)
	}
	if bad != "" {
		return it.r.corrupt(from, bad)
	}
	block, data := it.own, it.buffer
	if b != nil {
		block, data = &b.Value, it.r.cached.Allocate(b, n)
	} else if cap(data) < n {
		data = make([]byte, n)
		it.buffer = data
	}
	data = data[:n]
	if bad = it.scratch.expand(data, kind, body); bad == "" {
		if it.r.footer.version >= versionSegments {
			bad = block.parseHead(data, at)
		} else {
			bad = block.parse(data)
		}
	}
	if bad != "" {
		return it.r.corrupt(from, bad)
	}
	block.believed = known
	return nil
}
