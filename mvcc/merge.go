package mvcc

// Merging runs. A row that only one run holds, which is the common case, passes
// through without a comparison of cells.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// MergeIterator merges runs, forward and backward. It implements Iterator.
type MergeIterator struct {
	runs []run
	// heap holds the run with the nearest row in the direction of travel first, runs at
	// their end last. The runs that hold the current row are at its top: places lists
	// their positions in the heap, parents before children. The heap is out of order only
	// during a row movement.
	heap     []place
	places   []int
	prefix   []byte // that the keys mostly have in common
	holders  []int  // the runs at these places, newest first
	backward bool
	stretch  int // how many of the next rows are known to be of the first run alone
	cells    RowMerge
	key      []byte // scratch for changes of direction
	err      error

	short  int          // how many short stretches there were, one after the other
	pause  int          // see maxPause
	ahead  int          // how many runs were read ahead
	moved  bool         // the merge stands on the row after the current one, whose key is in key
	chunks []*row.Chunk // that no run uses
	extent row.Extent   // scratch
}

var _ interface {
	Iterator
	ManyRows
} = (*MergeIterator)(nil)

type run struct {
	it  Iterator
	key []byte // of its current row, valid until its row cursor moves
	end bool
	// chunk has rows that were read ahead, and the run is on row next of them, the iterator on the
	// last one. nil: none were.
	chunk *row.Chunk
	next  int
	// replaces says that each row of the chunk deletes what older runs have of it.
	replaces bool
}

// place is a run in the heap.
type place struct {
	head uint64 // of its key, see head
	run  int
}

// NewMergeIterator merges runs, newest first, and owns them: Close closes them. An
// error of any run ends the iteration and becomes its error, since a missing run
// would look like missing data.
func NewMergeIterator(runs []Iterator) *MergeIterator {
	m := new(MergeIterator)
	m.Reset(runs, nil)
	return m
}

// Reset makes a closed or zero iterator merge other runs, and keeps its memory. It
// copies the slice. Comparisons of keys are faster if prefix is what nearly all of them
// have in common; it must not change until the iterator is closed.
func (m *MergeIterator) Reset(runs []Iterator, prefix []byte) {
	m.runs, m.heap, m.places, m.prefix = m.runs[:0], m.heap[:0], m.places[:0], prefix
	for i, it := range runs {
		m.runs, m.heap = append(m.runs, run{it: it}), append(m.heap, place{run: i})
	}
	m.backward, m.err, m.stretch, m.short, m.pause, m.moved = false, nil, 0, 0, 0, false
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
	if m.moved {
		m.moved = false
		return m.err == nil && len(m.places) > 0
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
func (m *MergeIterator) RowKey() []byte {
	if m.moved {
		return m.key
	}
	return m.runs[m.heap[0].run].key
}

// Newest returns the newest run that holds the current row, nil if it does not hand over whole
// rows. alone means that no other run holds the row.
func (m *MergeIterator) Newest() (run WholeRows, alone bool) {
	run, _ = m.runs[m.holders[0]].it.(WholeRows)
	return run, len(m.places) == 1
}

// FirstCell positions on the first cell of the row.
func (m *MergeIterator) FirstCell() bool { return m.unreadRow() && m.cells.FirstCell() }

// SeekCell positions on the first cell of the row at or after (column, version).
func (m *MergeIterator) SeekCell(column []byte, version int64) bool {
	return m.unreadRow() && m.cells.SeekCell(column, version)
}

// NextCell moves by one cell.
func (m *MergeIterator) NextCell() bool { return m.cells.NextCell() }

// Cell is the current cell.
func (m *MergeIterator) Cell() *row.Cell { return m.cells.Cell() }

// Extent is as in RowMerge. It describes several rows only if one run holds them: they lie below
// the rows at which all other runs stand. NextRow compares no keys until it leaves them.
func (m *MergeIterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	if !m.unreadRow() {
		return nil, false
	}
	if ask.Rows && len(m.places) > 1 {
		m.short++
	}
	ask.Rows = ask.Rows && !m.backward && len(m.places) == 1 && m.stretch == 0
	for i := 1; ask.Rows && i < len(m.heap) && i <= 2; i++ {
		if r := &m.runs[m.heap[i].run]; !r.end && (ask.Limit == nil || bytes.Compare(r.key, ask.Limit) < 0) {
			ask.Limit = r.key
		}
	}
	if !ask.Rows {
		return m.cells.Extent(ask, e)
	}
	if newer, ok = m.cells.describe(0, ask, e); ok && e.Rows > 0 {
		m.stretch = e.Rows - 1
		if m.short++; e.Rows >= shortStretch {
			m.short = 0
		}
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
		r := &m.runs[i]
		if err = errors.Join(err, r.it.Close()); r.chunk != nil {
			m.drop(r)
		}
	}
	clear(m.runs)
	m.runs, m.heap, m.places, m.prefix = m.runs[:0], m.heap[:0], m.places[:0], nil
	return err
}

func (m *MergeIterator) position(backward bool, move func(Iterator) bool) bool {
	m.backward, m.err, m.stretch, m.short, m.moved = backward, nil, 0, 0, false
	for i := range m.runs {
		r := &m.runs[i]
		if r.chunk != nil {
			m.drop(r)
		}
		if !m.settle(r, move(r.it)) {
			return false
		}
		m.heap[i] = place{m.head(r), i}
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
	if err := r.it.Error(); err != nil {
		m.err, m.places = err, m.places[:0]
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
		r := &m.runs[m.heap[0].run]
		return m.settle(r, r.it.NextRow())
	}
	return m.stepAll() && m.gather()
}

// stepAll moves the runs of the current row by one row. It returns false if one failed.
func (m *MergeIterator) stepAll() bool {
	// Children go before parents: sinking needs an ordered heap below the place.
	for i := len(m.places) - 1; i >= 0; i-- {
		r := &m.runs[m.heap[m.places[i]].run]
		if r.chunk != nil && r.next+1 < r.chunk.Len() {
			r.next++
			r.key, _ = r.chunk.Row(r.next)
		} else if !m.step(r) {
			return false
		}
		m.heap[m.places[i]].head = m.head(r)
		m.sink(m.places[i])
	}
	return true
}

// step moves the iterator of a run by one row. It returns false if the run failed.
func (m *MergeIterator) step(r *run) bool {
	if r.chunk != nil {
		m.drop(r)
	}
	if m.backward {
		return m.settle(r, r.it.PrevRow())
	}
	return m.settle(r, r.it.NextRow())
}

// gather makes the row at the top of the heap the current one.
func (m *MergeIterator) gather() bool {
	m.cells.Reset(nil)
	if !m.findHolders() {
		return false
	}
	for _, i := range m.holders {
		m.cells.sources = append(m.cells.sources, m.runs[i].it)
	}
	return true
}

// findHolders finds the runs that hold the row at the top of the heap. It returns false if
// there is no such row.
func (m *MergeIterator) findHolders() bool {
	m.places, m.holders = m.places[:0], m.holders[:0]
	if len(m.heap) == 0 || m.runs[m.heap[0].run].end {
		return false
	}
	m.places = append(m.places, 0)
	for i := 0; i < len(m.places); i++ {
		for child := 2*m.places[i] + 1; child <= 2*m.places[i]+2; child++ {
			if m.holds(child) {
				m.places = append(m.places, child)
			}
		}
	}
	for _, at := range m.places {
		m.holders = append(m.holders, m.heap[at].run)
	}
	if len(m.holders) > 1 {
		slices.Sort(m.holders) // newest first
	}
	return true
}

// holds reports whether place i of the heap is a run that holds the row of the first one.
func (m *MergeIterator) holds(i int) bool {
	if i >= len(m.heap) || m.heap[i].head != m.heap[0].head {
		return false
	}
	r := &m.runs[m.heap[i].run]
	return !r.end && bytes.Equal(r.key, m.runs[m.heap[0].run].key)
}

// head returns a number that orders a run by its key in most cases: a run with a smaller one comes
// before. It is made of the eight bytes after the prefix.
func (m *MergeIterator) head(r *run) (h uint64) {
	n := len(m.prefix)
	switch {
	case r.end:
		return math.MaxUint64
	case len(r.key) >= n+8 && string(r.key[:n]) == string(m.prefix):
		h = binary.BigEndian.Uint64(r.key[n:])
	default:
		var padded [8]byte
		switch c := bytes.Compare(r.key[:min(n, len(r.key))], m.prefix); {
		case c > 0:
			h = math.MaxUint64
		case c == 0:
			copy(padded[:], r.key[n:])
			h = binary.BigEndian.Uint64(padded[:])
		}
	}
	if m.backward {
		return ^h
	}
	return h
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

func (m *MergeIterator) before(a, b place) bool {
	if a.head != b.head {
		return a.head < b.head
	}
	x, y := &m.runs[a.run], &m.runs[b.run]
	if x.end || y.end {
		return !x.end
	}
	if m.backward {
		return bytes.Compare(x.key, y.key) > 0
	}
	return bytes.Compare(x.key, y.key) < 0
}
