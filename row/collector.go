package row

// The types with which a run hands over whole rows, instead of cell by cell.

import (
	"bytes"
	"slices"
	"unsafe"
)

// Cursor walks the cells of a row, or of a part of it, in cell order. See
// mvcc.Iterator for its methods.
type Cursor interface {
	FirstCell() bool
	SeekCell(column []byte, version int64) bool
	NextCell() bool
	Cell() *Cell
	Error() error
}

// Extent describes a row of a run, or a part of it, without a look at each of its cells: it was
// written without deletes of single columns or versions, and none of its cells was overwritten.
// Nearly all rows are like that, and the rules (see package mvcc) then decide once for the whole
// row.
type Extent struct {
	// Rows, if not 0, says that the extent describes so many rows, the current one and those after
	// it. Each has a marker, and no delete-row that hides one of its cells or its marker. Then
	// MarkerSeq is the smallest and MarkerVersion the largest of their markers, the bounds below
	// hold for markers too, except the versions of permanent ones, and Cells says nothing. Deleted
	// means that each has a delete-row; DeleteSeq is the smallest or less.
	Rows int
	// The row has a delete-row.
	Deleted   bool
	DeleteSeq uint64
	// The row has a marker. These two are its only row-level cells.
	Marked        bool
	MarkerSeq     uint64
	MarkerVersion int64
	// All other cells are puts below MaxVersion, no two of one column and version. No column has
	// more than Versions of them; Min and Max bound their sequence numbers and versions. All
	// bounds may be wider than needed.
	Cells, Versions        int
	MinSeq, MaxSeq         uint64
	MinVersion, MaxVersion int64
}

// Ask says what more than the current row as a whole an Extent may describe.
type Ask struct {
	// Rows allows several rows, all below Limit; nil is no limit.
	Rows  bool
	Limit []byte
	// Layers allows to describe only an older part of the row, and to return a cursor over the
	// newer part, whose sequence numbers are all larger. Cells older than a delete-row of the older
	// part at or below Seq may be in neither part.
	Layers bool
	Seq    uint64
}

// AddRowLevel adds the row-level cells to a collector, in cell order.
func (e *Extent) AddRowLevel(dst *Collector) {
	if e.Deleted {
		dst.Extend(1)[0] = Cell{Kind: KindDeleteRow, Version: MaxVersion, Seq: e.DeleteSeq}
	}
	if e.Marked {
		dst.Extend(1)[0] = Cell{Kind: KindRowMarker, Version: e.MarkerVersion, Seq: e.MarkerSeq}
	}
}

// Projection selects columns and versions: the zero Projection selects everything.
type Projection struct {
	Columns    [][]byte // in ascending order; empty: all
	Start, End []byte   // bounds of the names, End excluded; empty: unbounded
	Versions   int      // how many of the newest of each column; 0: all
	// Change differs each time that the projection at this address changes, so that a run can
	// cache which of its columns are selected.
	Change uint64
}

// All reports whether all columns are selected.
func (p *Projection) All() bool { return len(p.Columns)|len(p.Start)|len(p.End) == 0 }

// Cuts reports whether the projection leaves out some of a column's versions.
func (p *Projection) Cuts(versions int) bool { return p.Versions != 0 && versions > p.Versions }

// Wants reports whether the column is selected.
func (p *Projection) Wants(name []byte) bool {
	if len(p.Start) > 0 && bytes.Compare(name, p.Start) < 0 || len(p.End) > 0 && bytes.Compare(name, p.End) >= 0 {
		return false
	}
	switch len(p.Columns) {
	case 0:
		return true
	case 1:
		return bytes.Equal(p.Columns[0], name)
	}
	_, found := slices.BinarySearchFunc(p.Columns, name, bytes.Compare)
	return found
}

// Collector gathers cells in its own memory, which it reuses after Reset.
type Collector struct {
	Cells []Cell
	// Borrow makes Copy return its argument. REQUIRES: that memory does not change as long as the
	// cells are needed.
	Borrow bool

	bytes []byte // the memory that the cells point into, unless they came before it grew
}

// Reset removes all cells.
func (c *Collector) Reset() {
	c.Cells, c.bytes, c.Borrow = c.Cells[:0], c.bytes[:0], false
}

// Add copies a cell. Cells of one column that follow each other share the copy
// of its name.
func (c *Collector) Add(cell *Cell) {
	n := len(c.Cells)
	c.Cells = append(c.Cells, *cell)
	added := &c.Cells[n]
	if n > 0 && bytes.Equal(cell.Column, c.Cells[n-1].Column) {
		added.Column = c.Cells[n-1].Column
	} else {
		added.Column = c.Copy(cell.Column)
	}
	added.Value = c.Copy(cell.Value)
}

// Copy returns a copy of b, or b itself: see Borrow.
func (c *Collector) Copy(b []byte) []byte {
	if c.Borrow {
		return b
	}
	to := c.Bytes(len(b))
	copy(to, b)
	return to
}

// Bytes returns n bytes of memory for cells to point into. Their content is undefined. When the
// memory grows, earlier cells keep pointing into the old memory, which stays alive for them.
func (c *Collector) Bytes(n int) []byte {
	from := len(c.bytes)
	if cap(c.bytes)-from < n {
		c.bytes, from = make([]byte, 0, max(2*cap(c.bytes), n)), 0
	}
	c.bytes = c.bytes[:from+n]
	return c.bytes[from : from+n : from+n]
}

// Extend adds n cells and returns them. Their content is undefined.
func (c *Collector) Extend(n int) []Cell {
	from := len(c.Cells)
	if cap(c.Cells)-from < n {
		grown := make([]Cell, from, max(2*cap(c.Cells), from+n))
		copy(grown, c.Cells)
		c.Cells = grown
	}
	c.Cells = c.Cells[:from+n]
	return c.Cells[from:]
}

// CopyCells copies key and the cells to dst, which must be empty, so that they share no memory with
// the originals. It takes one allocation if dst has room for the cells. It returns the copy of the
// key, which is in the same allocation; dst does not reuse that part.
func CopyCells(dst *Collector, cells []Cell, key []byte) []byte {
	size := len(key)
	for i := range cells {
		size += len(cells[i].Column) + len(cells[i].Value)
	}
	dst.bytes = make([]byte, 0, size)
	key = dst.Copy(key)
	dst.bytes = dst.bytes[len(key):]
	for i := range cells {
		dst.Add(&cells[i])
	}
	return key
}

// Size returns the memory that the collector keeps, in bytes.
func (c *Collector) Size() int { return cap(c.bytes) + cap(c.Cells)*int(unsafe.Sizeof(Cell{})) }
