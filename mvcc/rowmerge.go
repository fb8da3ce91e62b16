package mvcc

// Merging the cells of one row that several runs hold.

import (
	"github.com/flagstone-db/flagstone/row"
)

// RowMerge merges the cells of one row that several runs hold. Point reads use it,
// since they need no heap of rows. It implements WholeRows.
//
// Equal cells of two runs yield one. The sources are ordered newest first, but only
// Extent and Describe rely on it: elsewhere sequence numbers decide what is newer.
type RowMerge struct {
	sources []Iterator
	oldest  *row.Extent  // what Describe was given, of the last source
	known   WholeRows    // the source that Extent described
	newer   *RowMerge    // merges the sources before known
	heap    []cellSource // min-heap in cell order, if there are several sources
	// twins is set when a comparison finds equal cells, which happens only if a run
	// was stored twice. sink compares every new parent with its lesser child, so
	// an equal pair is noticed before it gets to the top of the heap. The next step
	// looks for copies to skip.
	twins bool
	err   error
}

type cellSource struct {
	it   Iterator
	cell *row.Cell
}

// Reset makes m merge other sources, which stand on the same row. It copies the slice.
func (m *RowMerge) Reset(sources []Iterator) {
	m.sources = append(m.sources[:0], sources...)
	m.heap, m.oldest, m.known, m.twins, m.err = m.heap[:0], nil, nil, false, nil
	if m.newer != nil && len(m.newer.sources) > 0 {
		m.newer.Reset(nil)
	}
}

// Describe passes on what the last source answered to Extent, which saves asking it
// again. The extent must not change until Reset. REQUIRES: no other source deletes
// the row.
func (m *RowMerge) Describe(e *row.Extent) { m.oldest = e }

// FirstCell positions on the first cell of the row.
func (m *RowMerge) FirstCell() bool {
	if len(m.sources) == 1 {
		return m.sources[0].FirstCell()
	}
	return m.position(Iterator.FirstCell)
}

// SeekCell positions on the first cell at or after (column, version).
func (m *RowMerge) SeekCell(column []byte, version int64) bool {
	if len(m.sources) == 1 {
		return m.sources[0].SeekCell(column, version)
	}
	return m.position(func(it Iterator) bool { return it.SeekCell(column, version) })
}

// NextCell moves by one cell.
func (m *RowMerge) NextCell() bool {
	if len(m.sources) == 1 {
		return m.sources[0].NextCell()
	}
	if m.err != nil {
		return false
	}
	if m.twins && !m.skipTwins() || !m.step(0) {
		return false
	}
	m.sink(0)
	return len(m.heap) > 0
}

// Cell is the current cell.
func (m *RowMerge) Cell() *row.Cell {
	if len(m.sources) == 1 {
		return m.sources[0].Cell()
	}
	return m.heap[0].cell
}

// Error is the error that ended the last movement.
func (m *RowMerge) Error() error {
	switch {
	case len(m.sources) == 1:
		return m.sources[0].Error()
	case m.err == nil && m.newer != nil:
		return m.newer.Error()
	}
	return m.err
}

// Extent describes the row if there is one source, and it knows the row as a whole. Of several
// sources it describes, as a layer, the oldest, or the newest that deletes the row at or below
// ask.Seq, since older ones do not matter then.
func (m *RowMerge) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	ask.Rows = false
	last := len(m.sources) - 1
	switch {
	case last == 0 && m.oldest == nil:
		return m.describe(0, ask, e)
	case last == 0 || ask.Layers && m.oldest != nil:
		m.known, _ = m.sources[last].(WholeRows)
		*e = *m.oldest
		return m.above(last), true
	case !ask.Layers:
		return nil, false
	}
	for i := range m.sources {
		if _, ok := m.describe(i, row.Ask{}, e); ok && (i == last || e.Deleted && e.DeleteSeq <= ask.Seq) {
			return m.above(i), true
		}
	}
	return nil, false
}

// describe asks source i, and notes that it was asked.
func (m *RowMerge) describe(i int, ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	if m.known, ok = m.sources[i].(WholeRows); !ok {
		return nil, false
	}
	return m.known.Extent(ask, e)
}

// above returns a cursor over the sources before source i, nil if there are none.
func (m *RowMerge) above(i int) row.Cursor {
	if i == 0 {
		return nil
	}
	if m.newer == nil {
		m.newer = new(RowMerge)
	}
	m.newer.Reset(m.sources[:i])
	return m.newer
}

// Collect appends the wanted cells of the described source.
func (m *RowMerge) Collect(dst *row.Collector, p *row.Projection) { m.known.Collect(dst, p) }

// position moves each source, and makes a heap of those that have a cell there. It returns false
// if there is none, or if a source failed.
func (m *RowMerge) position(move func(Iterator) bool) bool {
	m.heap = m.heap[:0]
	for _, it := range m.sources {
		if move(it) {
			m.heap = append(m.heap, cellSource{it, it.Cell()})
		} else if m.fail(it.Error()) {
			return false
		}
	}
	return m.heapify()
}

func (m *RowMerge) fail(err error) bool {
	if err == nil {
		return false
	}
	m.err, m.heap = err, m.heap[:0]
	return true
}

func (m *RowMerge) heapify() bool {
	m.err, m.twins = nil, false
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return len(m.heap) > 0
}

// step moves source i of the heap by one cell, and takes it out of the heap at its end. It does
// not restore the heap's order, and returns false if the source failed.
func (m *RowMerge) step(i int) bool {
	s := &m.heap[i]
	if s.it.NextCell() {
		s.cell = s.it.Cell()
		return true
	}
	if m.fail(s.it.Error()) {
		return false
	}
	last := len(m.heap) - 1
	m.heap[i] = m.heap[last]
	m.heap = m.heap[:last]
	return true
}

// skipTwins moves all sources but the first past cells equal to the current one.
func (m *RowMerge) skipTwins() bool {
	for i := len(m.heap) - 1; i > 0; i-- { // downward, because the end of a source moves the last one to its place
		if row.CompareCells(m.heap[0].cell, m.heap[i].cell) == 0 && !m.step(i) {
			return false
		}
	}
	return m.heapify()
}

func (m *RowMerge) sink(i int) {
	h := m.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && m.before(&h[child+1], &h[child]) {
			child++
		}
		if !m.before(&h[child], &h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func (m *RowMerge) before(a, b *cellSource) bool {
	d := row.CompareCells(a.cell, b.cell)
	m.twins = m.twins || d == 0
	return d < 0
}
