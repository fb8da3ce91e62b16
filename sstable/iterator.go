package sstable

import (
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/row"
)

// IterOptions configure an iterator.
type IterOptions struct {
	// NoCacheFill reads blocks past the cache, many at a time: for merges,
	// which read everything once and forward.
	NoCacheFill bool

	verify bool // ignore what the cache holds
}

// aheadSize is how much an iterator that does not fill the cache reads at once.
const aheadSize = 256 << 10

// Iterator walks the rows of one file and the cells of the current row; it has
// the shape of mvcc.Iterator, which tells what its methods do. Keys and cells
// point into the current block, or into the iterator, and are valid until it
// moves. It pins one block at a time; close it.
type Iterator struct {
	reader *Reader
	opts   IterOptions

	block  int        // number of the current block
	data   *dataBlock // nil: no current block
	pinned *cache.Block
	load   blockLoad

	own   dataBlock // blocks that do not come from the cache
	raw   []byte    // what own is the parsed form of
	ahead []byte    // stored bytes of the blocks from offset aheadAt on
	from  int64

	group int // number of the current group
	row   int // number of the row in the block
	key   []byte

	// The cell cursor: position in the row's cells in this block, of which the
	// first `implied` are those that row flags stand for.
	at      int
	implied int
	first   int // the row's first stamp in this block
	base    int // number of the row's first cell in this block
	end     int // of at
	cell    row.Cell
	err     error
}

// NewIterator returns an iterator that is not positioned.
func (r *Reader) NewIterator(opts IterOptions) *Iterator {
	return &Iterator{reader: r, opts: opts, block: -1}
}

// useBlock makes block i current; false on an error.
func (it *Iterator) useBlock(i int) bool {
	if it.data != nil && it.block == i {
		return true
	}
	it.unpin()
	it.block = i
	r := it.reader
	if r.cache != nil && !it.opts.NoCacheFill {
		it.load = blockLoad{r, i}
		offset, _ := r.index.blockRange(i)
		b, err := r.cache.Get(r.cacheID, offset, &it.load)
		if err != nil {
			it.err = err
			return false
		}
		it.pinned, it.data = b, b.Decoded.(*dataBlock)
	} else if err := it.readBlock(i); err != nil {
		it.err = err
		return false
	}
	x := &r.index
	long := x.firstBlock(it.group+1)-x.firstBlock(it.group) > 1
	if it.data.continued != (i > x.firstBlock(it.group)) || it.data.continues != (i+1 < x.firstBlock(it.group+1)) ||
		long && it.data.rows != 1 {
		offset, _ := x.blockRange(i)
		it.unpin()
		it.err = r.corrupt(offset, "the block is not the part of a row that the index says")
		return false
	}
	return true
}

// readBlock reads a block past the cache.
func (it *Iterator) readBlock(i int) error {
	r := it.reader
	from, to := r.index.blockRange(i)
	if r.cache != nil && !it.opts.verify {
		if b := r.cache.Lookup(r.cacheID, from); b != nil {
			it.pinned, it.data = b, b.Decoded.(*dataBlock)
			return nil
		}
	}
	if from < it.from || to > it.from+int64(len(it.ahead)) {
		n := min(max(to-from, aheadSize), r.footer.dataLength-from)
		if int64(cap(it.ahead)) < n {
			it.ahead = make([]byte, n)
		}
		it.ahead, it.from = it.ahead[:n], from
		if err := r.readAt(it.ahead, from); err != nil {
			it.ahead = it.ahead[:0]
			return err
		}
	}
	s := takeScratch()
	defer s.give()
	stored := it.ahead[from-it.from : to-it.from]
	if err := r.decodeBlock(&it.own, stored, from, s, it.allocate); err != nil {
		return err
	}
	it.data = &it.own
	return nil
}

func (it *Iterator) allocate(n int) []byte {
	if cap(it.raw) < n {
		it.raw = make([]byte, n+n/4)
	}
	return it.raw[:n]
}

func (it *Iterator) unpin() {
	it.data = nil
	if it.pinned != nil {
		it.pinned.Release()
		it.pinned = nil
	}
}

// useGroup makes the first block of a group current; false at either end of
// the file and on an error.
func (it *Iterator) useGroup(g int) bool {
	if g < 0 || g >= it.reader.index.groups {
		it.unpin()
		return false
	}
	it.group = g
	return it.useBlock(it.reader.index.firstBlock(g))
}

// setRow makes a row of the current block current.
func (it *Iterator) setRow(i int) bool {
	it.row = i
	it.key = it.data.appendKey(it.key[:0], i)
	it.at, it.end = 0, 0
	return true
}

// First positions on the first row.
func (it *Iterator) First() bool {
	it.err = nil
	return it.useGroup(0) && it.setRow(0)
}

// Last positions on the last row.
func (it *Iterator) Last() bool {
	it.err = nil
	return it.lastOf(it.reader.index.groups - 1)
}

func (it *Iterator) lastOf(g int) bool { return it.useGroup(g) && it.setRow(it.data.rows-1) }

// SeekRow positions on the first row whose key is at least key.
func (it *Iterator) SeekRow(key []byte) bool {
	it.err = nil
	g := max(it.reader.index.search(key), 0)
	if !it.useGroup(g) {
		return false
	}
	if i, _ := it.data.searchRow(key); i < it.data.rows {
		return it.setRow(i)
	}
	return it.useGroup(g+1) && it.setRow(0)
}

// SeekRowExact positions on the row with this key; false, without an error, if
// the file does not hold it.
func (it *Iterator) SeekRowExact(key []byte) bool {
	it.err = nil
	if !it.useGroup(it.reader.index.search(key)) {
		return false
	}
	i, exact := it.data.searchRow(key)
	return exact && it.setRow(i)
}

// SeekRowBefore positions on the last row whose key is below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	it.err = nil
	g := it.reader.index.search(key)
	if !it.useGroup(g) {
		return false
	}
	if i, _ := it.data.searchRow(key); i > 0 {
		return it.setRow(i - 1)
	}
	return it.lastOf(g - 1)
}

// NextRow moves to the next row.
func (it *Iterator) NextRow() bool {
	if it.data == nil {
		return false
	}
	if it.row+1 < it.data.rows {
		return it.setRow(it.row + 1)
	}
	return it.useGroup(it.group+1) && it.setRow(0)
}

// PrevRow moves to the previous row.
func (it *Iterator) PrevRow() bool {
	if it.data == nil {
		return false
	}
	if it.row > 0 {
		return it.setRow(it.row - 1)
	}
	return it.lastOf(it.group - 1)
}

// RowKey is the key of the current row.
func (it *Iterator) RowKey() []byte { return it.key }

// enterBlock prepares the cell cursor for what the current block holds of the
// current row.
func (it *Iterator) enterBlock() {
	b := it.data
	it.first = b.stampsBefore(it.row)
	it.base = b.cellsBefore(it.row)
	it.implied = 0
	flags := b.rowFlags.at(b.data, it.row)
	if flags&rowDeleted != 0 {
		it.implied++
	}
	if flags&(rowMarked|rowMarkedForever) != 0 {
		it.implied++
	}
	it.end = it.implied + b.cellsEnd(it.row) - it.base
}

// setCell makes the cell at a position current, going on to the row's next
// blocks if it is at the end of this one.
func (it *Iterator) setCell(at int) bool {
	for at >= it.end {
		if !it.data.continues {
			return false
		}
		if !it.useBlock(it.block + 1) {
			return false
		}
		it.row = 0
		it.enterBlock()
		at = 0
	}
	it.at = at
	if at >= it.implied {
		it.data.cell(&it.cell, it.base+at-it.implied, it.first)
		return true
	}
	it.impliedCell(at)
	return true
}

// impliedCell makes the cell that row flags stand for current.
func (it *Iterator) impliedCell(at int) {
	b := it.data
	flags := b.rowFlags.at(b.data, it.row)
	it.cell = row.Cell{Version: row.MaxVersion, Seq: b.seq.at(b.data, it.first)}
	if at == 0 && flags&rowDeleted != 0 {
		it.cell.Kind = row.KindDeleteRow
		return
	}
	it.cell.Kind = row.KindRowMarker
	if flags&rowMarked != 0 {
		it.cell.Version = int64(b.version.at(b.data, it.first))
	}
}

// FirstCell positions on the first cell of the current row.
func (it *Iterator) FirstCell() bool {
	if !it.toBlock(it.reader.index.firstBlock(it.group)) {
		return false
	}
	return it.setCell(0)
}

// toBlock makes a block of the current row current, for the cell cursor.
func (it *Iterator) toBlock(i int) bool {
	if it.err != nil || !it.useBlock(i) {
		return false
	}
	it.enterBlock()
	return true
}

// SeekCell positions on the first cell of the current row at or after (column,
// version).
func (it *Iterator) SeekCell(column []byte, version int64) bool {
	x := &it.reader.index
	target := x.firstBlock(it.group)
	if x.firstBlock(it.group+1)-target > 1 {
		target = x.searchCell(it.group, column, version)
	}
	if !it.toBlock(target) {
		return false
	}
	if len(column) == 0 {
		for i := range it.implied {
			if it.impliedCell(i); it.cell.Version <= version {
				it.at = i
				return true
			}
		}
	}
	b := it.data
	i := b.searchCell(it.base, b.cellsEnd(it.row), it.first, column, version)
	return it.setCell(it.implied + i - it.base)
}

// NextCell moves by one cell within the row.
func (it *Iterator) NextCell() bool {
	if it.err != nil || it.data == nil {
		return false
	}
	return it.setCell(it.at + 1)
}

// Cell is the current cell.
func (it *Iterator) Cell() *row.Cell { return &it.cell }

// Error is the error that ended the last movement.
func (it *Iterator) Error() error { return it.err }

// Close unpins the current block.
func (it *Iterator) Close() error {
	it.unpin()
	return nil
}
