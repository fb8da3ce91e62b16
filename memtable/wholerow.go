package memtable

// Rows that are read as a whole: see row.Extent.

import "github.com/flagstone-db/flagstone/row"

// wholeCells is the largest number of cells of a row that is read as a whole. That decodes the
// cells twice, each time at a fifth of the cost of a step of the cell cursor and a judgement. In
// a wider row a reader may want to seek to a few cells.
const wholeCells = 128

// Extent describes the row if it has only its first mutation and describe accepts that, or
// else, as a layer, that mutation.
func (it *Iterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	it.hasCell = false
	if it.node == nil {
		return nil, false
	}
	head := link(it.node.index.Load())
	if head != 0 && !ask.Layers || !it.describe(e) {
		return nil, false
	}
	if head == 0 {
		return nil, true
	}
	it.later = laterCells{m: it.m, head: head}
	return &it.later, true
}

// laterCells walks the cells of a row that came after its first mutation.
type laterCells struct {
	m    *Memtable
	head link
	at   link
	cell row.Cell
}

func (l *laterCells) to(at link) bool {
	if l.at = at; at == 0 {
		return false
	}
	l.m.cell(at).read(&l.cell)
	return true
}

func (l *laterCells) FirstCell() bool { return l.to(link(l.m.cell(l.head).next(0).Load())) }
func (l *laterCells) NextCell() bool  { return l.at != 0 && l.to(link(l.m.cell(l.at).next(0).Load())) }
func (l *laterCells) Cell() *row.Cell { return &l.cell }
func (l *laterCells) Error() error    { return nil }

func (l *laterCells) SeekCell(column []byte, version int64) bool {
	at, _ := l.m.seekCell(l.head, &row.Cell{Column: column, Version: version, Seq: row.MaxSequence})
	return l.to(at)
}

// describe makes e the extent of the row's first mutation. It accepts at most wholeCells cells,
// all puts, with no column twice at one version.
func (it *Iterator) describe(e *row.Extent) bool {
	p := it.m.packedOf(it.node)
	if p.cells > wholeCells {
		return false
	}
	*e = row.Extent{
		Deleted: p.deleteRow, DeleteSeq: p.seq, Marked: p.marker != noMarker, MarkerSeq: p.seq, MarkerVersion: p.marker,
		Cells: int(p.cells), Versions: 1, MinSeq: p.seq, MaxSeq: p.seq,
	}
	if p.cells == 0 {
		return true
	}
	var c row.Cell
	var reader row.CellReader
	encoded := p.encoded()
	versions := 1
	for i := range int(p.cells) {
		if i%segmentCells == 0 {
			reader = row.NewCellReader(encoded[p.startOf(i/segmentCells):])
		}
		column, version := c.Column, c.Version
		mustDecode(&reader, &c)
		if c.Kind != row.KindPut {
			return false
		}
		if i == 0 {
			e.MinVersion, e.MaxVersion = c.Version, c.Version
		} else if string(column) != string(c.Column) {
			versions = 1
		} else if versions++; version == c.Version {
			return false
		}
		e.Versions = max(e.Versions, versions)
		e.MinVersion, e.MaxVersion = min(e.MinVersion, c.Version), max(e.MaxVersion, c.Version)
	}
	return true
}

// Collect appends the wanted cells of the row's first mutation. REQUIRES: Extent
// described it.
//
// If all are wanted, Collect copies the encoded cells once and decodes the copy. A second
// mutation that arrived since Extent is not visible to the reader.
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
	versions := 0
	for i := range int(p.cells) {
		if i%segmentCells == 0 {
			reader = row.NewCellReader(encoded[p.startOf(i/segmentCells):])
		}
		before := c.Column
		mustDecode(&reader, &c)
		if versions++; i > 0 && string(before) != string(c.Column) {
			versions = 1
		}
		if wanted.Cuts(versions) {
			continue
		}
		c.Seq = p.seq
		if all {
			dst.Extend(1)[0] = c
		} else if wanted.Wants(c.Column) {
			dst.Add(&c)
		}
	}
}

// startOf returns the start of segment i among the encoded cells.
func (p *packedPart) startOf(i int) int {
	if i == 0 {
		return 0
	}
	return int(p.starts()[i-1])
}
