package memtable

// Rows that are read as a whole: see row.Extent.

import "github.com/flagstone-db/flagstone/row"

// wholeCells is the largest number of cells of a row that is read as a whole.
// Its cells are decoded twice for that, each time at a fifth of the cost of a
// step of the cell cursor and a judgement; of a wider row a reader may want to
// seek to a few cells.
const wholeCells = 128

// Extent describes the row if it has only its first mutation, of puts in distinct
// columns.
func (it *Iterator) Extent(e *row.Extent) bool {
	it.hasCell = false
	if it.node == nil || it.node.index.Load() != 0 {
		return false
	}
	p := it.m.packedOf(it.node)
	if p.cells > wholeCells {
		return false
	}
	*e = row.Extent{
		Deleted: p.deleteRow, DeleteSeq: p.seq, Marked: p.marker != noMarker, MarkerSeq: p.seq, MarkerVersion: p.marker,
		Cells: int(p.cells), MinSeq: p.seq, MaxSeq: p.seq,
	}
	if p.cells == 0 {
		return true
	}
	var c row.Cell
	var reader row.CellReader
	encoded := p.encoded()
	for i := range int(p.cells) {
		if i%segmentCells == 0 {
			reader = row.NewCellReader(encoded[p.startOf(i/segmentCells):])
		}
		before := c.Column
		mustDecode(&reader, &c)
		if c.Kind != row.KindPut || i > 0 && string(before) == string(c.Column) {
			return false
		}
		if i == 0 {
			e.MinVersion, e.MaxVersion = c.Version, c.Version
		}
		e.MinVersion, e.MaxVersion = min(e.MinVersion, c.Version), max(e.MaxVersion, c.Version)
	}
	return true
}

// Stretch returns false: rows of a memtable are judged one by one.
func (it *Iterator) Stretch([]byte, *row.Stretch) bool { return false }

// Collect appends the wanted cells of the row. REQUIRES: Extent described it.
//
// If all are wanted, one copy of the encoded cells is made, and they are decoded
// there. A second mutation that came since is none of the reader's view.
func (it *Iterator) Collect(dst *row.Collector, wanted *row.Projection) {
	p := it.m.packedOf(it.node)
	if p.cells == 0 {
		return
	}
	encoded, all := p.encoded(), wanted.All()
	if all {
		encoded = dst.Copy(encoded)
	}
	var c row.Cell
	var reader row.CellReader
	for i := range int(p.cells) {
		if i%segmentCells == 0 {
			reader = row.NewCellReader(encoded[p.startOf(i/segmentCells):])
		}
		mustDecode(&reader, &c)
		c.Seq = p.seq
		if all {
			dst.Extend(1)[0] = c
		} else if wanted.Wants(c.Column) {
			dst.Add(&c)
		}
	}
}

// startOf is where segment i begins among the encoded cells.
func (p *packedPart) startOf(i int) int {
	if i == 0 {
		return 0
	}
	return int(p.starts()[i-1])
}
