package mvcc

import "github.com/flagstone-db/flagstone/row"

// Iterator walks the cells of one run (a memtable, a table file) or of a merge
// of runs: rows in key order, and the cells of each row in cell order. It has a
// row cursor and a cell cursor, so that a caller can page through a row of a
// million columns, or seek to a few of them, without touching the rest.
//
// The memtable and the table reader implement it without importing this package.
// An Iterator is used by one goroutine at a time.
//
//	for ok := it.SeekRow(start); ok; ok = it.NextRow() {
//		for ok := it.FirstCell(); ok; ok = it.NextCell() {
//			use(it.RowKey(), it.Cell())
//		}
//	}
//	if err := it.Error(); err != nil { ... }
//
// Every positioning method returns false at the end of its range and on an error;
// Error tells which. After an error the iterator is invalid until First, Last, SeekRow
// or SeekRowBefore positions it anew; these clear the error.
type Iterator interface {
	// First and Last position on the first and last row.
	First() bool
	Last() bool
	// SeekRow positions on the first row whose key is at least key.
	SeekRow(key []byte) bool
	// SeekRowBefore positions on the last row whose key is below key.
	SeekRowBefore(key []byte) bool
	// NextRow and PrevRow move by one row. REQUIRES: positioned on a row.
	NextRow() bool
	PrevRow() bool
	// RowKey is the key of the current row, valid until the row cursor moves.
	RowKey() []byte

	// FirstCell positions on the first cell of the current row. A row movement
	// leaves the cell cursor unset until FirstCell or SeekCell is called.
	FirstCell() bool
	// SeekCell positions on the first cell of the current row whose column is
	// at least column and, in that column, whose version is at most version.
	// Seeking to (column, row.MaxVersion) finds the column's first cell.
	SeekCell(column []byte, version int64) bool
	// NextCell moves by one cell within the row, and returns false after the last one.
	NextCell() bool
	// Cell is the current cell, valid until either cursor moves.
	Cell() *row.Cell

	// Error is the error that ended the last movement; nil at a plain end.
	Error() error
	// Close releases what the iterator pins.
	Close() error
}

// WholeRows is what a run may implement beside Iterator: it hands over rows whole instead of
// cell by cell, which costs a fraction of it.
type WholeRows interface {
	// Extent describes the current row as a whole, or more or less than that if ask allows it. It
	// returns false if the run does not know the row well enough. newer is nil, or has the cells
	// that a layer leaves out. The cell cursor is unset afterwards. REQUIRES: the row is below
	// ask.Limit.
	Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool)
	// Collect appends copies of the attribute cells that the projection wants, of what Extent
	// described. It cannot fail. If Extent described several rows, NextRow moves through them,
	// cannot fail before it leaves them, and Collect may be called for each.
	Collect(dst *row.Collector, p *row.Projection)
}

// ManyRows is what a run implements whose Extents describe several rows.
type ManyRows interface {
	WholeRows
	// CollectRows does what Collect does for the current row and those after it, with their keys:
	// at most rows of them, while dst has a budget, but always the first. It returns their number
	// and moves to the last one. A nil projection wants no column. It cannot fail. REQUIRES:
	// Extent described the rows.
	CollectRows(dst *row.Chunk, rows int, p *row.Projection) int
}
