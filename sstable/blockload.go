package sstable

// How an iterator comes by its blocks: from the cache, or from the file, with
// read-ahead, into the cache or into memory of its own.

import "github.com/flagstone-db/flagstone/internal/cache"

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
}

// load makes block number i, of group g, the loaded one. On an error nothing is
// loaded and the iterator is not on a row.
func (it *Iterator) load(g, i int) bool {
	if it.number == i {
		return true
	}
	if it.number >= 0 && i == it.number+1 {
		it.run++
	} else {
		it.run, it.ahead = 0, 0
	}
	it.unload()
	it.number = i
	if err := it.fetch(); err != nil {
		it.err = err
		it.number, it.block = -1, nil
		it.onRow, it.onCell = false, false
		return false
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
	from, to := it.r.index.blockRange(it.number)
	kind, body, n, err := it.readStored(from, to)
	if err != nil {
		return err
	}
	if cap(it.buffer) < n {
		it.buffer = make([]byte, n)
	}
	if it.own == nil {
		it.own = new(dataBlock)
	}
	it.block = it.own
	return it.decode(it.block, it.buffer[:n], kind, body, from)
}

// filler is an iterator as the cache sees it, a name of its own so that callers
// of iterators do not.
type filler Iterator

// FillBlock reads the iterator's current block for the cache.
func (f *filler) FillBlock(b *cache.Block[dataBlock]) error {
	it := (*Iterator)(f)
	from, to := it.r.index.blockRange(it.number)
	kind, body, n, err := it.readStored(from, to)
	if err != nil {
		return err
	}
	return it.decode(&b.Value, it.r.cached.Allocate(b, n), kind, body, from)
}

// readStored reads and verifies the stored block at [from, to) of the file. It
// returns its type, its bytes, which are valid until the next call, and its raw
// length.
func (it *Iterator) readStored(from, to int64) (kind Compression, body []byte, n int, err error) {
	stored, err := it.readWindow(from, to)
	if err != nil {
		return 0, nil, 0, err
	}
	kind, body, bad := checkStored(stored, &it.r.footer.uniqueID, from)
	n = len(body)
	if bad == "" && kind != CompressNone {
		n, bad = rawLength(body, maxRawBlock)
	}
	if bad != "" {
		it.window = nil // the next attempt reads the file again
		return 0, nil, 0, it.r.corrupt(from, bad)
	}
	return kind, body, n, nil
}

// decode fills data and parses it into block.
func (it *Iterator) decode(block *dataBlock, data []byte, kind Compression, body []byte, from int64) error {
	bad := ""
	if kind == CompressNone {
		copy(data, body)
	} else {
		bad = it.scratch.decompress(data, kind, body)
	}
	if bad == "" {
		bad = block.parse(data)
	}
	if bad != "" {
		return it.r.corrupt(from, bad)
	}
	return nil
}

// readWindow returns the bytes [from, to) of the file, from the window read
// last or by reading. It reads ahead when blocks are wanted one after the
// other: from the third on, doubling; at once if the cache is not to be filled,
// since only a scan of everything does that.
func (it *Iterator) readWindow(from, to int64) ([]byte, error) {
	if from >= it.from && to <= it.from+int64(len(it.window)) {
		return it.window[from-it.from : to-it.from], nil
	}
	n := to - from
	if it.run >= 2 || it.run >= 1 && it.opts.NoCacheFill {
		it.ahead = min(max(2*it.ahead, firstReadAhead), it.opts.ReadAhead)
		n = max(n, min(int64(it.ahead), it.r.footer.dataLength-from))
	}
	if it.scratch == nil {
		it.scratch = takeScratch()
	}
	window, err := it.r.readRange(&it.scratch.stored, from, n)
	if err != nil && n > to-from {
		// The place that cannot be read may lie in a block that nobody asked for.
		it.run, it.ahead = 0, 0
		window, err = it.r.readRange(&it.scratch.stored, from, to-from)
	}
	if err != nil {
		it.window = nil
		return nil, err
	}
	it.window, it.from = window, from
	return window[:to-from], nil
}
