package mvcc

// Merging runs. A row that only one run holds, which is the common case, passes
// through without a comparison of cells.

import (
	"bytes"
	"errors"
	"slices"

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

// MergeIterator merges runs, forward and backward. It implements Iterator.
type MergeIterator struct {
	runs []run
	// heap holds indexes of runs: the run with the nearest row in the direction of
	// travel first, runs at their end last. The runs that hold the current row are at
	// its top: places lists their positions in the heap, parents before children.
	// The heap is out of order only during a row movement.
	heap     []int
	places   []int
	holders  []int // the runs at these places, newest first
	backward bool
	stretch  int // how many of the next rows are known to be of the first run alone
	cells    RowMerge
	key      []byte // scratch for changes of direction
	err      error
}

var _ interface {
	Iterator
	ManyRows
} = (*MergeIterator)(nil)

type run struct {
	it  Iterator
	key []byte // of its current row, valid until its row cursor moves
	end bool
}

// NewMergeIterator merges runs, newest first, and owns them: Close closes them. An
// error of any run ends the iteration and becomes its error, since a missing run
// would look like missing data.
func NewMergeIterator(runs []Iterator) *MergeIterator {
	m := new(MergeIterator)
	m.Reset(runs)
	return m
}

// Reset makes a closed or zero iterator merge other runs, and keeps its memory. It
// copies the slice.
func (m *MergeIterator) Reset(runs []Iterator) {
	m.runs, m.heap, m.places = m.runs[:0], m.heap[:0], m.places[:0]
	for i, it := range runs {
		m.runs, m.heap = append(m.runs, run{it: it}), append(m.heap, i)
	}
	m.backward, m.err, m.stretch = false, nil, 0
	m.cells.Reset(nil)
}

// First positions on the first row.
func (m *MergeIterator) First() bool {
	return m.position(false, Iterator.First)
}

// Last positions on the last row.
func (m *MergeIterator) Last() bool {
	return m.position(true, Iterator.Last)
}

// SeekRow positions on the first row at or after key.
func (m *MergeIterator) SeekRow(key []byte) bool {
	return m.position(false, func(it Iterator) bool { return it.SeekRow(key) })
}

// SeekRowBefore positions on the last row before key.
func (m *MergeIterator) SeekRowBefore(key []byte) bool {
	return m.position(true, func(it Iterator) bool { return it.SeekRowBefore(key) })
}

// NextRow moves to the next row.
func (m *MergeIterator) NextRow() bool {
	if m.backward && len(m.places) > 0 && m.Error() == nil {
		// The other runs stand before this row. The smallest key after the row is its
		// key with a zero byte appended.
		m.key = append(append(m.key[:0], m.RowKey()...), 0)
		return m.SeekRow(m.key)
	}
	return m.advance()
}

// PrevRow moves to the row before.
func (m *MergeIterator) PrevRow() bool {
	if !m.backward && len(m.places) > 0 && m.Error() == nil {
		m.key = append(m.key[:0], m.RowKey()...)
		return m.SeekRowBefore(m.key)
	}
	return m.advance()
}

// RowKey is the key of the current row.
func (m *MergeIterator) RowKey() []byte { return m.runs[m.heap[0]].key }

// Newest returns the newest run that holds the current row, nil if it does not hand over whole
// rows. alone means that no other run holds the row.
func (m *MergeIterator) Newest() (run WholeRows, alone bool) {
	run, _ = m.runs[m.holders[0]].it.(WholeRows)
	return run, len(m.places) == 1
}

// FirstCell positions on the first cell of the row.
func (m *MergeIterator) FirstCell() bool { return m.cells.FirstCell() }

// SeekCell positions on the first cell of the row at or after (column, version).
func (m *MergeIterator) SeekCell(column []byte, version int64) bool {
	return m.cells.SeekCell(column, version)
}

// NextCell moves by one cell.
func (m *MergeIterator) NextCell() bool { return m.cells.NextCell() }

// Cell is the current cell.
func (m *MergeIterator) Cell() *row.Cell { return m.cells.Cell() }

// Extent is as in RowMerge. It describes several rows only if one run holds them: they lie below
// the rows at which all other runs stand. NextRow compares no keys until it leaves them.
func (m *MergeIterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	ask.Rows = ask.Rows && !m.backward && len(m.places) == 1 && m.stretch == 0
	for i := 1; ask.Rows && i < len(m.heap) && i <= 2; i++ {
		if r := &m.runs[m.heap[i]]; !r.end && (ask.Limit == nil || bytes.Compare(r.key, ask.Limit) < 0) {
			ask.Limit = r.key
		}
	}
	if !ask.Rows {
		return m.cells.Extent(ask, e)
	}
	if newer, ok = m.cells.describe(0, ask, e); ok && e.Rows > 0 {
		m.stretch = e.Rows - 1
	}
	return newer, ok
}

// Collect appends the wanted cells. REQUIRES: Extent described the row.
func (m *MergeIterator) Collect(dst *row.Collector, p *row.Projection) { m.cells.Collect(dst, p) }

// Error is the error that ended the last movement of either cursor.
func (m *MergeIterator) Error() error {
	if m.err != nil || len(m.places) == 0 {
		return m.err
	}
	return m.cells.Error()
}

// Close closes the runs.
func (m *MergeIterator) Close() (err error) {
	for i := range m.runs {
		err = errors.Join(err, m.runs[i].it.Close())
	}
	clear(m.runs)
	m.runs, m.heap, m.places = m.runs[:0], m.heap[:0], m.places[:0]
	return err
}

func (m *MergeIterator) position(backward bool, move func(Iterator) bool) bool {
	m.backward, m.err, m.stretch = backward, nil, 0
	for i := range m.runs {
		m.heap[i] = i
		if !m.settle(&m.runs[i], move(m.runs[i].it)) {
			return false
		}
	}
	for i := len(m.heap)/2 - 1; i >= 0; i-- {
		m.sink(i)
	}
	return m.gather()
}

// settle notes where a run stands after a movement. It returns false if the run failed.
func (m *MergeIterator) settle(r *run, ok bool) bool {
	r.end = !ok
	if ok {
		r.key = r.it.RowKey()
		return true
	}
	r.key = nil
	if m.err = r.it.Error(); m.err != nil {
		m.places = m.places[:0]
		return false
	}
	return true
}

// advance moves the runs of the current row on. After an error of either cursor it
// does nothing, because a run that failed has no position.
func (m *MergeIterator) advance() bool {
	if m.Error() != nil {
		m.stretch = 0
		return false
	}
	if m.stretch > 0 {
		m.stretch--
		r := &m.runs[m.heap[0]]
		return m.settle(r, r.it.NextRow())
	}
	// Children go before parents: sinking needs an ordered heap below the place.
	for i := len(m.places) - 1; i >= 0; i-- {
		r := &m.runs[m.heap[m.places[i]]]
		var ok bool
		if m.backward {
			ok = r.it.PrevRow()
		} else {
			ok = r.it.NextRow()
		}
		if !m.settle(r, ok) {
			return false
		}
		m.sink(m.places[i])
	}
	return m.gather()
}

// gather finds the runs that hold the row at the top of the heap.
func (m *MergeIterator) gather() bool {
	m.places = m.places[:0]
	m.cells.Reset(nil)
	if len(m.heap) == 0 || m.runs[m.heap[0]].end {
		return false
	}
	key := m.runs[m.heap[0]].key
	m.places = append(m.places, 0)
	for i := 0; i < len(m.places); i++ {
		for child := 2*m.places[i] + 1; child <= 2*m.places[i]+2 && child < len(m.heap); child++ {
			if r := &m.runs[m.heap[child]]; !r.end && bytes.Equal(r.key, key) {
				m.places = append(m.places, child)
			}
		}
	}
	m.holders = m.holders[:0]
	for _, at := range m.places {
		m.holders = append(m.holders, m.heap[at])
	}
	if len(m.holders) > 1 {
		slices.Sort(m.holders) // newest first
	}
	for _, i := range m.holders {
		m.cells.sources = append(m.cells.sources, m.runs[i].it)
	}
	return true
}

func (m *MergeIterator) sink(i int) {
	h := m.heap
	for {
		child := 2*i + 1
		if child >= len(h) {
			return
		}
		if child+1 < len(h) && m.before(h[child+1], h[child]) {
			child++
		}
		if !m.before(h[child], h[i]) {
			return
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}

func (m *MergeIterator) before(a, b int) bool {
	x, y := &m.runs[a], &m.runs[b]
	if x.end || y.end {
		return !x.end
	}
	if m.backward {
		return bytes.Compare(x.key, y.key) > 0
	}
	return bytes.Compare(x.key, y.key) < 0
}
