package memtable

// The packed part of a row: its first mutation, in one piece.
//
//	packed    = header segment starts, cells
//	header    = packedPart
//	starts    = 8 bytes for each segment but the first: where it begins,
//	            counted from the first cell
//	cells     = encoded as in a batch, see row.CellList: in segments of
//	            segmentCells, each of which can be read on its own
//
// All its cells have one sequence number. The row-level cells (delete-row, row marker) are in the
// header, not among the cells.
//
// Rows may have thousands of columns with megabytes of value each. A search bisects the segments
// and then reads the heads of at most segmentCells cells; it touches no value.

import (
	"bytes"
	"unsafe"

	"github.com/flagstone-db/flagstone/row"
)

const (
	segmentCells = row.SegmentCells
	startSize    = 8
	packedHeader = int(unsafe.Sizeof(packedPart{}))
)

// noMarker means that a row has no marker; existence versions are 0 or above.
const noMarker int64 = -1

// packedPart is the header of a packed part.
type packedPart struct {
	seq       uint64
	marker    int64 // version of the row marker of this mutation, or noMarker
	size      int64 // bytes of the encoded cells
	cells     uint32
	deleteRow bool
}

func (m *Memtable) packedOf(n *rowNode) *packedPart { return (*packedPart)(m.arena.at(n.packed)) }

func segmentsOf(cells int) int { return (cells + segmentCells - 1) / segmentCells }

// packedSize is the size of the packed part for these cells.
func packedSize(cells *row.CellList) int {
	return packedHeader + len(cells.Starts())*startSize + len(cells.Bytes())
}

// fill writes the part for a change into memory that was allocated for it.
func (p *packedPart) fill(seq uint64, c *row.Change, marker int64) {
	cells := c.Cells()
	p.seq, p.marker = seq, marker
	p.size, p.cells, p.deleteRow = int64(len(cells.Bytes())), uint32(cells.Len()), c.DeleteRow
	if cells.Len() == 0 {
		return
	}
	starts := p.starts()
	for i, start := range cells.Starts() {
		starts[i] = int64(start)
	}
	copy(p.encoded(), cells.Bytes())
}

// starts returns the starts of the segments after the first.
func (p *packedPart) starts() []int64 {
	n := segmentsOf(int(p.cells)) - 1
	if n <= 0 {
		return nil
	}
	return unsafe.Slice((*int64)(unsafe.Add(unsafe.Pointer(p), packedHeader)), n)
}

// encoded returns the cells. REQUIRES: there is one.
func (p *packedPart) encoded() []byte {
	skip := packedHeader + (segmentsOf(int(p.cells))-1)*startSize
	return unsafe.Slice((*byte)(unsafe.Add(unsafe.Pointer(p), skip)), p.size)
}

// segment returns the encoded cells from segment i on.
func (p *packedPart) segment(i int) []byte {
	if i == 0 {
		return p.encoded()
	}
	return p.encoded()[p.starts()[i-1]:]
}

// packedCursor walks the cells of a packed part. Its positions are beforePacked, the two
// row-level cells, then the encoded cells.
type packedCursor struct {
	part   *packedPart
	pos    int
	reader row.CellReader
	cell   row.Cell // the current cell, if next or seek returned true
}

const (
	beforePacked = -1
	atDeleteRow  = 0
	atMarker     = 1
	firstEncoded = 2
)

func (c *packedCursor) reset(p *packedPart) { c.part, c.pos = p, beforePacked }

// next moves to the next cell.
func (c *packedCursor) next() bool {
	p := c.part
	c.pos++
	switch {
	case c.pos == atDeleteRow && p.deleteRow:
		c.cell = row.Cell{Version: row.MaxVersion, Seq: p.seq, Kind: row.KindDeleteRow}
		return true
	case c.pos <= atMarker && p.marker != noMarker:
		c.pos = atMarker
		c.cell = row.Cell{Version: p.marker, Seq: p.seq, Kind: row.KindRowMarker}
		return true
	case c.pos < firstEncoded:
		c.pos = firstEncoded
	}
	i := c.pos - firstEncoded
	if i >= int(p.cells) {
		c.pos = firstEncoded + int(p.cells)
		return false
	}
	if i%segmentCells == 0 {
		c.reader = row.NewCellReader(p.segment(i / segmentCells))
	}
	c.cell.Seq = p.seq
	mustDecode(&c.reader, &c.cell)
	return true
}

// seek moves to the first cell at or after (column, version).
func (c *packedCursor) seek(column []byte, version int64) bool {
	// Start at the cursor if it is before the target and in the same segment; otherwise at the
	// beginning of the segment.
	if segment := c.part.findSegment(column, version); segment > 0 {
		if at := firstEncoded + segment*segmentCells - 1; c.pos <= at || !isBefore(&c.cell, column, version) {
			c.pos = at
		}
	} else if c.pos == beforePacked || c.pos >= firstEncoded+int(c.part.cells) || !isBefore(&c.cell, column, version) {
		c.pos = beforePacked
		if len(column) > 0 {
			c.pos = atMarker
		}
	}
	for c.next() {
		if !isBefore(&c.cell, column, version) {
			return true
		}
	}
	return false
}

// findSegment returns the last segment that begins before (column, version), 0 if none does.
func (p *packedPart) findSegment(column []byte, version int64) int {
	low, high := 0, segmentsOf(int(p.cells))
	var first row.Cell
	for high-low > 1 {
		middle := int(uint(low+high) / 2)
		reader := row.NewCellReader(p.segment(middle))
		mustDecode(&reader, &first)
		if isBefore(&first, column, version) {
			low = middle
		} else {
			high = middle
		}
	}
	return low
}

// isBefore reports whether c sorts before every cell of the column whose
// version is at most version.
func isBefore(c *row.Cell, column []byte, version int64) bool {
	order := bytes.Compare(c.Column, column)
	return order < 0 || order == 0 && c.Version > version
}

func mustDecode(reader *row.CellReader, c *row.Cell) {
	if err := reader.Next(c); err != nil {
		panic("memtable: packed cells do not decode: " + err.Error())
	}
}
