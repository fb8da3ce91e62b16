package mvcc

import "github.com/flagstone-db/flagstone/row"

// Iterator walks the cells of one run (a memtable, a table file) or of a merge
// of runs: rows in key order, and within the current row its cells in cell
// order. It has two cursors, one on rows and one on the cells of the current
// row, so that a caller can page through a row of a million columns, or seek
// to a few of them, without touching the rest.
//
// The memtable and the table reader have this shape without knowing this
// package. An Iterator is used by one goroutine at a time.
//
//	for ok := it.SeekRow(start); ok; ok = it.NextRow() {
//		for ok := it.FirstCell(); ok; ok = it.NextCell() {
//			use(it.RowKey(), it.Cell())
//		}
//	}
//	if err := it.Error(); err != nil { ... }
//
// Every positioning method returns false at the end of its range and on an
// error; Error tells which. After an error the iterator stays invalid until it
// is positioned anew by First, Last, SeekRow or SeekRowBefore, which clear it.
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

	// FirstCell positions on the first cell of the current row. Moving to a
	// row leaves the cell cursor unset until FirstCell or SeekCell is called.
	FirstCell() bool
	// SeekCell positions on the first cell of the current row whose column is
	// at least column and, in that column, whose version is at most version.
	// Seeking to (column, row.MaxVersion) finds the column's first cell.
	SeekCell(column []byte, version int64) bool
	// NextCell moves by one cell within the row; false after the last one.
	NextCell() bool
	// Cell is the current cell, valid until either cursor moves.
	Cell() *row.Cell

	// Extent describes the current row as a whole, if the run knows that it is of
	// the kind that an Extent can describe. The cell cursor is unset afterwards.
	Extent(e *row.Extent) bool
	// Stretch describes the current row and rows after it, all below the limit
	// (nil: none), if the run knows them well enough. NextRow will move to them and
	// cannot fail before it has left them. REQUIRES: the row is below the limit.
	Stretch(limit []byte, s *row.Stretch) bool
	// Layers parts the row in two, if the run knows one part as an Extent can
	// describe it, and it is the older one: it describes that, and returns a cursor
	// over the newer part; nil if it cannot. What is older than a delete-row of the
	// described part at or below seq is in neither. The cell cursor is unset
	// afterwards.
	Layers(seq uint64, e *row.Extent) (newer row.Cursor)
	// Collect appends copies of all cells that are not row-level and that the
	// projection wants. REQUIRES: Extent, Stretch or Layers described the row; of
	// layers it collects the described one. It cannot fail.
	Collect(dst *row.Collector, p *row.Projection)
	// CollectRows does this for the current row and those after it, at most so
	// many and, but for the first, as many as dst has a budget for; a nil projection
	// wants no column. It moves to the last of them and returns their number.
	// REQUIRES: Stretch described the rows. It cannot fail.
	CollectRows(dst *row.Chunk, rows int, p *row.Projection) int

	// Error is the error that ended the last movement, nil at a plain end.
	Error() error
	// Close releases what the iterator pins.
	Close() error
}
