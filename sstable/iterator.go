package sstable

import (
	"bytes"
	"math/bits"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/row"
)

// IterOptions configure an iterator.
type IterOptions struct {
	// NoCacheFill is for a merge. It keeps blocks that the iterator reads out of the cache, so
	// that a compaction does not evict what readers use. Blocks that are already there are used.
	// Stored then tells how values are stored.
	NoCacheFill bool
	// Believe lets the iterator skip the checksum of values from a mapping that were
	// verified lately: see ReaderOptions.VerifyInterval. What goes to the cache is
	// verified even then.
	Believe bool
	// Memory, if not nil, has the memory for read-ahead. A compaction of many files
	// needs so much that it should be off the Go heap.
	Memory *offheap.Pool
	// End bounds read-ahead: rows at or above it are not wanted. nil: all rows are.
	End []byte
}

// Iterator walks the rows of a file and the cells of the current row. See mvcc.Iterator for
// its methods. The current block is pinned. Keys, columns and values point into it or into
// the iterator, and are valid until the cursor that they belong to moves.
//
// The iterator is a cursor: its block reader gets the blocks. What reads whole rows, or several
// at once, is in wholerow.go and rowchunk.go.
type Iterator struct {
	blocks blockReader
	err    error

	// The row cursor: the row's group, and its number in the block, which rowCells has. A long
	// row is row 0 of every block of its group.
	onRow bool
	group int
	long  bool // the group is a long row
	key   []byte

	// The cell cursor. Row-level cells that are stored as flags have numbers below low,
	// down from low-1.
	onCell bool
	at     int
	cell   row.Cell
	rowCells

	columns wantedColumns
}

// rowCells says where a row and its cells are in their block.
type rowCells struct {
	row   int // its number
	low   int // first of the row's cells in the block
	high  int // end of them
	stamp int // the row's first stamp in the block
	flags uint64
}

// Init makes a closed or zero Iterator ready to read r, and keeps its memory. A caller that
// reads many files saves an allocation for each. REQUIRES: the iterator is closed; an open
// one would lose its pin.
func (it *Iterator) Init(r *Reader, opts IterOptions) {
	it.blocks.open(r, opts)
	it.err, it.key, it.onRow, it.onCell = nil, it.key[:0], false, false
	it.columns.projection = nil
}

// First positions on the first row.
func (it *Iterator) First() bool {
	it.begin(scan)
	return it.enter(0, false)
}

// Last positions on the last row.
func (it *Iterator) Last() bool {
	it.begin(point)
	return it.enter(it.blocks.index().groups-1, true)
}

// SeekRow positions on the first row whose key is at least key.
func (it *Iterator) SeekRow(key []byte) bool {
	g, i, _ := it.find(key, scan)
	switch {
	case it.err != nil:
		return false
	case g < 0 || i == it.blocks.block.rows:
		return it.enter(g+1, false)
	}
	return it.setRow(g, i)
}

// SeekRowExact positions on the row with this key, and returns false if there is none.
func (it *Iterator) SeekRowExact(key []byte) bool {
	g, i, exact := it.find(key, point)
	return exact && it.setRow(g, i)
}

// StartRead begins to read the block that SeekRowExact needs for this key, for a caller that does something else before it
// seeks there. It returns false if the device has not to be waited for. REQUIRES: the iterator was not used since Init.
func (it *Iterator) StartRead(key []byte) bool {
	x := it.blocks.index()
	g := x.search(key)
	return g >= 0 && it.blocks.start(x.firstBlock(g))
}

// SeekRowBefore positions on the last row whose key is below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	g, i, _ := it.find(key, point)
	switch {
	case it.err != nil || g < 0:
		return false
	case i == 0:
		return it.enter(g-1, true)
	}
	return it.setRow(g, i-1)
}

// find loads the only block in which a row with this key can begin, that of group g, and
// returns the first row of the block at or above key, or the number of rows. exact means that
// the row has this key. g is -1, and no block is loaded, if the key is below all rows.
func (it *Iterator) find(key []byte, p pattern) (g, i int, exact bool) {
	it.begin(p)
	if g = it.blocks.index().search(key); g < 0 || !it.load(g, it.blocks.index().firstBlock(g)) {
		return g, 0, false
	}
	it.blocks.expectHead()
	i, exact = it.blocks.block.searchRow(key)
	return g, i, exact
}

// NextRow moves to the next row.
func (it *Iterator) NextRow() bool {
	if !it.onRow {
		return false
	}
	if !it.long && it.row+1 < it.blocks.block.rows {
		return it.setRow(it.group, it.row+1)
	}
	return it.enter(it.group+1, false)
}

// PrevRow moves to the row before.
func (it *Iterator) PrevRow() bool {
	if !it.onRow {
		return false
	}
	if !it.long && it.row > 0 {
		return it.setRow(it.group, it.row-1)
	}
	return it.enter(it.group-1, true)
}

// RowKey is the key of the current row.
func (it *Iterator) RowKey() []byte { return it.key }

// begin forgets the position and the error. The next movements go through the file by a pattern.
func (it *Iterator) begin(p pattern) {
	it.blocks.seek(p)
	it.onRow, it.onCell, it.err = false, false, nil
}

// enter positions on the first or last row of group g, and returns false without such a group.
func (it *Iterator) enter(g int, last bool) bool {
	if g < 0 || g >= it.blocks.index().groups || !it.load(g, it.blocks.index().firstBlock(g)) {
		return it.stop()
	}
	it.blocks.expectHead()
	i := 0
	if last {
		i = it.blocks.block.rows - 1
	}
	return it.setRow(g, i)
}

// load makes block i, of group g, the loaded one. After an error no block is loaded and the
// iterator is not on a row.
func (it *Iterator) load(g, i int) bool {
	it.err = it.blocks.load(i)
	if b, x := it.blocks.block, it.blocks.index(); it.err == nil && it.blocks.r.gaps == nil &&
		(b.continued != (i > x.firstBlock(g)) || b.continues != (i+1 < x.firstBlock(g+1))) {
		it.err = it.blocks.refuse("block and index differ about where a long row begins or ends")
	}
	return it.err == nil || it.stop()
}

// stop leaves the row after an error, and returns false.
func (it *Iterator) stop() bool {
	it.onRow, it.onCell = false, false
	return false
}

// setRow positions on a row of the loaded block.
func (it *Iterator) setRow(g, i int) bool {
	it.key = it.blocks.block.appendKey(it.key[:0], i)
	it.group, it.row, it.onRow, it.onCell = g, i, true, false
	it.long = it.blocks.block.continues
	if i < it.blocks.described && !it.openValues() {
		it.onRow = false
	}
	return it.onRow
}

// openRow sets the bounds of the row's cells in the loaded block.
func (it *Iterator) openRow() {
	b := it.blocks.block
	it.low, it.high = b.cellsBefore(it.row), b.cellsEnd(it.row)
	it.stamp = b.stampsBefore(it.row)
	it.flags = b.rowFlags.at(b.data, it.row)
}

// openValues opens the values of the current row. On an error it returns false, and the
// iterator stays on the row.
func (it *Iterator) openValues() bool {
	if it.row >= it.blocks.valueRow && it.row < it.blocks.valueRows {
		return true
	}
	if err := it.blocks.openValues(it.row); err != nil {
		it.err = err
		return false
	}
	return true
}

// toBlock makes block i of the current row's group the loaded one.
func (it *Iterator) toBlock(i int) bool {
	if it.long && it.blocks.number != i {
		if !it.load(it.group, i) {
			return false
		}
		if !bytes.Equal(it.key, it.blocks.block.prefix()) {
			it.err = it.blocks.refuse("fragment of another row")
			return it.stop()
		}
	}
	it.openRow()
	return it.openValues() || it.stop()
}

// FirstCell positions on the first cell of the current row.
func (it *Iterator) FirstCell() bool {
	if !it.onRow || !it.toBlock(it.blocks.index().firstBlock(it.group)) {
		return false
	}
	it.onCell = true
	return it.setCell(it.low - it.flagged())
}

// flagged returns how many row-level cells of the row are stored as flags, a bit for each.
func (it *Iterator) flagged() int { return bits.OnesCount64(it.flags) }

// NextCell moves to the next cell of the current row.
func (it *Iterator) NextCell() bool {
	if !it.onCell {
		return false
	}
	return it.setCell(it.at + 1)
}

// SeekCell positions on the first cell of the current row that is of a column above column,
// or of this column with a version of at most version.
func (it *Iterator) SeekCell(column []byte, version int64) bool {
	if !it.onRow {
		return false
	}
	if len(column) == 0 { // row-level cells are few, so it walks
		ok := it.FirstCell()
		for ok && len(it.cell.Column) == 0 && it.cell.Version > version {
			ok = it.NextCell()
		}
		return ok
	}
	number := it.blocks.number
	if it.long {
		number = it.blocks.index().searchCell(it.group, column, version)
	}
	if !it.toBlock(number) {
		return false
	}
	it.onCell = true
	return it.setCell(it.blocks.block.searchCell(it.low, it.high, it.stamp, column, version))
}

// setCell positions on cell `at` of the loaded block. The end of the cells stands for the
// first cell of the row's next block.
func (it *Iterator) setCell(at int) bool {
	if at >= it.high {
		if !it.blocks.block.continues {
			it.onCell = false
			return false
		}
		if !it.toBlock(it.blocks.number + 1) {
			return false
		}
		at = it.low
	}
	it.at = at
	if at >= it.low {
		from, to := it.blocks.block.cell(&it.cell, at, it.stamp)
		from, to = from-it.blocks.valuesAt, to-it.blocks.valuesAt
		it.cell.Value = it.blocks.values[from:to:to]
	} else {
		it.flaggedCell(at == it.low-1)
	}
	return true
}

// flaggedCell makes the cell of a row flag: the last one, or the first of two.
func (it *Iterator) flaggedCell(last bool) {
	b := it.blocks.block
	it.cell = row.Cell{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: b.seq.at(b.data, it.stamp)}
	if last && it.flags != rowDeleted {
		it.cell.Kind = row.KindRowMarker
		if it.flags&rowMarked != 0 {
			it.cell.Version = int64(b.version.at(b.data, it.stamp))
		}
	}
}

// Cell is the current cell.
func (it *Iterator) Cell() *row.Cell { return &it.cell }

// Error is the error that ended the last movement.
func (it *Iterator) Error() error { return it.err }

// Reads returns how often the iterator has read the file since Init.
func (it *Iterator) Reads() Reads { return it.blocks.bytes.counts }

// Close releases the pinned block and working memory. It always returns nil, because Error
// has the errors of movements. A caller that handles such an error and goes on to another
// file must not get it again here.
func (it *Iterator) Close() error {
	it.onRow, it.onCell = false, false
	it.blocks.close()
	return nil
}
