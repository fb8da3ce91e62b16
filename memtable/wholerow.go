package memtable

// Rows that are read as a whole: see row.Extent.

import (
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// wholeCells is the largest number of cells of a row that is read as a whole. In a wider row a
// reader may want to seek to a few cells.
const wholeCells = 128

// Extent describes the row if it has only its first mutation and describe accepts that, or
// else, as a layer, that mutation.
func (it *Iterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	it.hasCell = false
	if it.node == nil {
		return nil, false
	}
	it.openLater()
	if it.later.head != 0 && !ask.Layers || !it.describe(e) {
		return nil, false
	}
	if it.later.head == 0 {
		return nil, true
	}
	return &it.later, true
}

// describe decodes the cells of the row's first mutation and makes e their extent. It accepts at
// most wholeCells cells, all puts, with no column twice at one version.
func (it *Iterator) describe(e *row.Extent) bool {
	p := it.m.packedOf(it.node)
	if p.cells > wholeCells {
		return false
	}
	*e = row.Extent{
		Deleted: p.deleteRow, DeleteSeq: p.seq, Marked: p.marker != noMarker, MarkerSeq: p.seq, MarkerVersion: p.marker,
		Cells: int(p.cells), Versions: 1, MinSeq: p.seq, MaxSeq: p.seq, MinVersion: math.MaxInt64, MaxVersion: math.MinInt64,
	}
	it.cells = slices.Grow(it.cells[:0], e.Cells)[:e.Cells]
	var reader row.CellReader
	versions := 1
	for i := range it.cells {
		if i%segmentCells == 0 {
			reader = row.NewCellReader(p.segment(i / segmentCells))
		}
		c := &it.cells[i]
		mustDecode(&reader, c)
		c.Seq = p.seq
		if c.Kind != row.KindPut {
			return false
		}
		if i == 0 || string(it.cells[i-1].Column) != string(c.Column) {
			versions = 1
		} else if versions++; it.cells[i-1].Version == c.Version {
			return false
		}
		e.Versions = max(e.Versions, versions)
		e.MinVersion, e.MaxVersion = min(e.MinVersion, c.Version), max(e.MaxVersion, c.Version)
	}
	it.versions = e.Versions
	return true
}

// Collect appends the wanted cells of the row's first mutation. REQUIRES: Extent
// described it.
func (it *Iterator) Collect(dst *row.Collector, wanted *row.Projection) {
	all, once := wanted.All(), it.versions == 1
	if dst.Borrow && all && !wanted.Cuts(it.versions) {
		copy(dst.Extend(len(it.cells)), it.cells)
		return
	}
	versions, wants := 0, false // of the column
	for i := range it.cells {
		c := &it.cells[i]
		if versions++; once || i == 0 || string(it.cells[i-1].Column) != string(c.Column) {
			versions, wants = 1, all || wanted.Wants(c.Column)
		}
		if wants && !wanted.Cuts(versions) {
			dst.Add(c)
		}
	}
}
