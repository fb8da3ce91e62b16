package sstable

import (
	"bytes"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/row"
)

// IterOptions configure an iterator.
type IterOptions struct {
	// NoCacheFill keeps blocks that the iterator reads out of the cache, so that a
	// compaction does not evict what readers use. Blocks that are already there are used.
	NoCacheFill bool
	// Believe lets the iterator skip the checksum of values from a mapping that were
	// verified lately: see ReaderOptions.VerifyInterval. What goes to the cache is
	// verified even then.
	Believe bool
	// KeepStored makes Stored tell how values are stored.
	KeepStored bool
	// ReadAhead is the most bytes that are read at once when blocks are read one after
	// the other; 0 means defaultReadAhead, and a negative value no read-ahead.
	ReadAhead int
	// Memory, if not nil, has the memory for read-ahead. A compaction of many files
	// needs so much that it should be off the Go heap.
	Memory *offheap.Pool
	// End bounds read-ahead: rows at or above it are not wanted. nil: all rows are.
	End []byte
}

// defaultReadAhead is so large that the cost of a call does not matter.
const defaultReadAhead = 256 << 10

const firstReadAhead = 64 << 10

// Iterator walks the rows of a file and the cells of the current row. See mvcc.Iterator for
// its methods. The current block is pinned. Keys, columns and values point into it or into
// the iterator, and are valid until the cursor that they belong to moves.
type Iterator struct {
	r    *Reader
	opts IterOptions
	err  error

	loaded // the current block
	line   line

	// The row cursor: the row's group and its number in the block. A long row is row 0
	// of every block of its group.
	onRow bool
	group int
	long  bool // the group is a long row
	row   int
	key   []byte

	// The cell cursor. Row-level cells that are stored as flags have numbers below low,
	// down from low-1.
	onCell bool
	at     int
	low    int // first of the row's cells in the block
	high   int // end of them
	stamp  int // the row's first stamp in the block
	flags  uint64
	cell   row.Cell

	stored row.Stored // how ReadRow found the values stored, if opts.KeepStored
	eager  bool       // Stretch promised values, so they are opened on each row movement

	// The columns of the block that the last projection wants.
	projection             *row.Projection
	change                 uint64
	columns                []int // in ascending order, if it names columns
	firstColumn, endColumn int

	// Reading.
	scratch *scratch
	held    []byte        // memory from opts.Memory
	window  []byte        // stored bytes that were read last, in scratch or held,
	from    int64         // and where they lie in the file
	run     int           // blocks loaded one after the other
	ahead   int           // how many bytes to read ahead next,
	readEnd int64         // and where that ends in the file
	reads   int           // how many accesses to the file
	mapped  bool          // the last access was through the mapping. If opts.Believe:
	began   time.Duration // when it began, on the clock of the reader's verifications,
	lately  uint64        // and which segments of the block had been verified lately
	first   int           // first block of a forward scan: -1 before it is loaded, noScan without a scan
	called  bool          // the scan read by calls
}

// loaded is a block that an iterator holds, and memory for the next one.
type loaded struct {
	// The block's number in the index or -1, its parsed form, and its pin in the cache
	// (nil if the block is the iterator's own).
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

// trim frees memory that a rare large block needed.
func (l *loaded) trim() {
	if cap(l.buffer) > maxBlockSize {
		l.buffer = nil
	}
	if cap(l.segment) > maxBlockSize {
		l.segment = nil
	}
}

// NewIterator makes an iterator that is not positioned yet.
func (r *Reader) NewIterator(opts IterOptions) *Iterator {
	it := new(Iterator)
	it.Init(r, opts)
	return it
}

// Init makes a closed or zero Iterator ready to read r, and keeps its memory. A caller that
// reads many files saves an allocation for each. REQUIRES: the iterator is closed; an open
// one would lose its pin.
func (it *Iterator) Init(r *Reader, opts IterOptions) {
	if opts.ReadAhead == 0 {
		opts.ReadAhead = defaultReadAhead
	}
	*it = Iterator{r: r, opts: opts, key: it.key[:0], columns: it.columns[:0],
		loaded:  loaded{number: -1, own: it.own, buffer: it.buffer, segment: it.segment},
		line:    line{stream: it.line.stream},
		stored:  row.Stored{Bytes: it.stored.Bytes[:0], Tried: uint8(r.compressed)},
		readEnd: r.footer.dataLength, first: noScan,
	}
	it.line.stream.Use(r.helpers)
}

// First positions on the first row.
func (it *Iterator) First() bool {
	it.begin()
	it.beginScan()
	return it.enter(0, false)
}

// Last positions on the last row.
func (it *Iterator) Last() bool {
	it.begin()
	return it.enter(it.r.index.groups-1, true)
}

// SeekRow positions on the first row whose key is at least key.
func (it *Iterator) SeekRow(key []byte) bool {
	it.begin()
	it.beginScan()
	g := it.r.index.search(key)
	if g < 0 {
		return it.enter(0, false)
	}
	if !it.load(g, it.r.index.firstBlock(g)) {
		return false
	}
	it.expectHead()
	if i, _ := it.block.searchRow(key); i < it.block.rows {
		return it.setRow(g, i)
	}
	return it.enter(g+1, false)
}

// SeekRowExact positions on the row with this key, and returns false if there is none.
func (it *Iterator) SeekRowExact(key []byte) bool {
	it.begin()
	g := it.r.index.search(key)
	if g < 0 || !it.load(g, it.r.index.firstBlock(g)) {
		return false
	}
	it.expectHead()
	i, exact := it.block.searchRow(key)
	return exact && it.setRow(g, i)
}

// SeekRowBefore positions on the last row whose key is below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	it.begin()
	g := it.r.index.search(key)
	if g < 0 || !it.load(g, it.r.index.firstBlock(g)) {
		return false
	}
	if i, _ := it.block.searchRow(key); i > 0 {
		return it.setRow(g, i-1)
	}
	return it.enter(g-1, true)
}

// NextRow moves to the next row.
func (it *Iterator) NextRow() bool {
	if !it.onRow {
		return false
	}
	it.onCell = false
	if !it.long && it.row+1 < it.block.rows {
		return it.setRow(it.group, it.row+1)
	}
	return it.enter(it.group+1, false)
}

// PrevRow moves to the row before.
func (it *Iterator) PrevRow() bool {
	if !it.onRow {
		return false
	}
	it.onCell = false
	if !it.long && it.row > 0 {
		return it.setRow(it.group, it.row-1)
	}
	return it.enter(it.group-1, true)
}

// RowKey is the key of the current row.
func (it *Iterator) RowKey() []byte { return it.key }

// begin forgets the position and the error.
func (it *Iterator) begin() {
	it.endScan()
	it.onRow, it.onCell, it.err = false, false, nil
}

// enter positions on the first or last row of group g, and returns false without such a group.
func (it *Iterator) enter(g int, last bool) bool {
	if g < 0 || g >= it.r.index.groups || !it.load(g, it.r.index.firstBlock(g)) {
		it.onRow = false
		return false
	}
	it.expectHead()
	i := 0
	if last {
		i = it.block.rows - 1
	}
	return it.setRow(g, i)
}

// setRow positions on a row of the loaded block.
func (it *Iterator) setRow(g, i int) bool {
	it.key = it.block.appendKey(it.key[:0], i)
	it.group, it.row, it.onRow, it.onCell = g, i, true, false
	it.long = it.block.continues
	if it.eager && !it.openValues() {
		it.onRow = false
	}
	return it.onRow
}

// openRow sets the bounds of the row's cells in the loaded block.
func (it *Iterator) openRow() {
	b := it.block
	it.low, it.high = b.cellsBefore(it.row), b.cellsEnd(it.row)
	it.stamp = b.stampsBefore(it.row)
	it.flags = b.rowFlags.at(b.data, it.row)
}

// toBlock makes block i of the current row's group the loaded one.
func (it *Iterator) toBlock(i int) bool {
	if it.long && it.number != i {
		if !it.load(it.group, i) {
			it.onRow, it.onCell = false, false
			return false
		}
		if !bytes.Equal(it.key, it.block.prefix()) {
			return it.fail("fragment of another row")
		}
	}
	it.openRow()
	if !it.openValues() {
		it.onRow, it.onCell = false, false
		return false
	}
	return true
}

// FirstCell positions on the first cell of the current row.
func (it *Iterator) FirstCell() bool {
	if !it.onRow || !it.toBlock(it.r.index.firstBlock(it.group)) {
		return false
	}
	it.onCell = true
	return it.setCell(it.low - it.flagged())
}

// ReadRow appends all cells of the current row to dst, in cell order. It returns false if
// the row lies in several blocks or has more than limit cells, or on an error. The cell
// cursor is unset afterwards.
func (it *Iterator) ReadRow(dst []row.Cell, limit int) ([]row.Cell, bool) {
	it.onCell = false
	if !it.onRow || it.long {
		return dst, false
	}
	it.openRow()
	flagged := it.flagged()
	if it.high-it.low+flagged > limit || !it.openValues() {
		return dst, false
	}
	for ; flagged > 0; flagged-- {
		it.flaggedCell(flagged == 1)
		dst = append(dst, it.cell)
	}
	n := len(dst)
	dst = slices.Grow(dst, it.high-it.low)[:n+it.high-it.low]
	for i := it.low; i < it.high; i++ {
		it.cellAt(&dst[n+i-it.low], i)
	}
	return dst, true
}

// Stored tells how the values of the row that ReadRow read last are stored. They were
// verified. It returns the zero value if they share a segment with those of another row,
// or come from the cache.
func (it *Iterator) Stored() row.Stored {
	if len(it.stored.Bytes) == 0 || it.valueRows-it.valueRow != 1 {
		return row.Stored{}
	}
	return it.stored
}

// flagged returns how many row-level cells of the row are stored as flags.
func (it *Iterator) flagged() int {
	switch it.flags {
	case 0:
		return 0
	case rowDeleted | rowMarked, rowDeleted | rowMarkedForever:
		return 2
	}
	return 1
}

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
	number := it.number
	if it.long {
		number = it.r.index.searchCell(it.group, column, version)
	}
	if !it.toBlock(number) {
		return false
	}
	it.onCell = true
	return it.setCell(it.block.searchCell(it.low, it.high, it.stamp, column, version))
}

// setCell positions on cell `at` of the loaded block. The end of the cells stands for the
// first cell of the row's next block.
func (it *Iterator) setCell(at int) bool {
	if at >= it.high {
		if !it.block.continues {
			it.onCell = false
			return false
		}
		if !it.toBlock(it.number + 1) {
			return false
		}
		at = it.low
	}
	it.at = at
	if at >= it.low {
		it.cellAt(&it.cell, at)
	} else {
		it.flaggedCell(at == it.low-1)
	}
	return true
}

// cellAt fills c with cell i of the row. REQUIRES: the row's values are open.
func (it *Iterator) cellAt(c *row.Cell, i int) {
	from, to := it.block.cell(c, i, it.stamp)
	from, to = from-it.valuesAt, to-it.valuesAt
	c.Value = it.values[from:to:to]
}

// flaggedCell makes the cell of a row flag: the last one, or the first of two.
func (it *Iterator) flaggedCell(last bool) {
	b := it.block
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

// expectHead prefetches the head of the loaded block, because a search finds out only one
// after the other which lines it needs. It needs few lines of a large head, so at most 2 KiB
// are prefetched.
func (it *Iterator) expectHead() {
	const most = 2 << 10
	prefetch.Bytes(it.block.data[:min(len(it.block.data), most)])
}

// Close releases the pinned block and working memory. It always returns nil, because Error
// has the errors of movements. A caller that handles such an error and goes on to another
// file must not get it again here.
func (it *Iterator) Close() error {
	it.endScan()
	it.onRow, it.onCell = false, false
	it.leaveLine()
	it.unload()
	if it.scratch != nil {
		it.scratch.give()
		it.scratch, it.window = nil, nil
	}
	if it.held != nil {
		it.opts.Memory.Free(it.held)
		it.held, it.window = nil, nil
	}
	it.loaded.trim()
	it.opts.End = nil
	it.r = nil // the iterator may be kept for other files while this one goes
	return nil
}
