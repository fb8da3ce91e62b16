package mvcctest

import (
	"bytes"
	"errors"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// Row is one row of a run.
type Row struct {
	Key   []byte
	Cells []row.Cell // in cell order, at least one
}

// Run is rows in ascending order of their keys.
type Run []Row

// Sort puts cells into cell order.
func Sort(cells []row.Cell) {
	sort.Slice(cells, func(i, j int) bool { return row.CompareCells(&cells[i], &cells[j]) < 0 })
}

// ErrInjected is the error of an Iterator whose steps ran out.
var ErrInjected = errors.New("mvcctest: injected error")

// Iterator walks a Run. It has the shape of mvcc.Iterator. It is as unkind as
// the contract allows: what RowKey and Cell returned is overwritten by the
// next movement, and a movement that needs a position panics without one.
type Iterator struct {
	// FailAfter, if positive, makes that movement and later ones fail.
	FailAfter int
	// Moves counts movements of both cursors, Seeks those of them that were
	// SeekCell.
	Moves, Seeks int
	Collected    int // calls of Collect
	Closed       bool
	Reluctant    bool // see Extent

	run    Run
	at     int
	cellAt int
	key    []byte
	cell   row.Cell
	column []byte
	value  []byte
	older  []row.Cell // of the current row, if Extent or Layers described them
	err    error
}

// NewIterator makes an iterator of the run.
func (r Run) NewIterator() *Iterator { return &Iterator{run: r, at: -1, cellAt: -1} }

func (it *Iterator) fail() bool {
	it.Moves++
	if it.FailAfter > 0 && it.Moves >= it.FailAfter {
		it.err = ErrInjected
		it.at, it.cellAt = -1, -1
		return true
	}
	return false
}

func (it *Iterator) toRow(at int) bool {
	it.err = nil
	it.cellAt, it.older = -1, nil
	for i := range it.key {
		it.key[i] = 0xEE
	}
	if it.fail() {
		return false
	}
	if at < 0 || at >= len(it.run) {
		it.at = -1
		return false
	}
	it.at = at
	it.key = append(it.key[:0], it.run[at].Key...)
	return true
}

func (it *Iterator) toCell(at int) bool {
	for i := range it.column {
		it.column[i] = 0xEE
	}
	for i := range it.value {
		it.value[i] = 0xEE
	}
	it.cell = row.Cell{}
	if it.fail() {
		return false
	}
	cells := it.run[it.at].Cells
	if at >= len(cells) {
		it.cellAt = -1
		return false
	}
	it.cellAt = at
	it.column = append(it.column[:0], cells[at].Column...)
	it.value = append(it.value[:0], cells[at].Value...)
	it.cell = cells[at]
	it.cell.Column, it.cell.Value = it.column, it.value
	return true
}

func (it *Iterator) onRow() {
	if it.at < 0 {
		panic("mvcctest: not positioned on a row")
	}
}

// First is as in mvcc.Iterator, like all that follow.
func (it *Iterator) First() bool { return it.toRow(0) }

// Last positions on the last row.
func (it *Iterator) Last() bool { return it.toRow(len(it.run) - 1) }

// SeekRow positions on the first row at or after key.
func (it *Iterator) SeekRow(key []byte) bool {
	return it.toRow(sort.Search(len(it.run), func(i int) bool { return bytes.Compare(it.run[i].Key, key) >= 0 }))
}

// SeekRowBefore positions on the last row before key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	return it.toRow(sort.Search(len(it.run), func(i int) bool { return bytes.Compare(it.run[i].Key, key) >= 0 }) - 1)
}

// NextRow moves by one row.
func (it *Iterator) NextRow() bool { it.onRow(); return it.toRow(it.at + 1) }

// PrevRow moves back by one row.
func (it *Iterator) PrevRow() bool { it.onRow(); return it.toRow(it.at - 1) }

// RowKey is the key of the row.
func (it *Iterator) RowKey() []byte { it.onRow(); return it.key }

// FirstCell positions on the first cell of the row.
func (it *Iterator) FirstCell() bool { it.onRow(); return it.toCell(0) }

// SeekCell positions on the first cell at or after (column, version).
func (it *Iterator) SeekCell(column []byte, version int64) bool {
	it.onRow()
	it.Seeks++
	cells := it.run[it.at].Cells
	return it.toCell(sort.Search(len(cells), func(i int) bool {
		c := bytes.Compare(cells[i].Column, column)
		return c > 0 || c == 0 && cells[i].Version <= version
	}))
}

// NextCell moves by one cell.
func (it *Iterator) NextCell() bool {
	if it.cellAt < 0 {
		panic("mvcctest: not positioned on a cell")
	}
	return it.toCell(it.cellAt + 1)
}

// Cell is the current cell.
func (it *Iterator) Cell() *row.Cell {
	if it.cellAt < 0 {
		panic("mvcctest: not positioned on a cell")
	}
	return &it.cell
}

// Error is the injected error, if it struck.
func (it *Iterator) Error() error { return it.err }

// Close notes that it was called.
func (it *Iterator) Close() error {
	it.Closed = true
	return nil
}

// Extent describes the row whenever an Extent can, or with Reluctant in about half of all cases. If
// it is asked for more, it describes now many rows, now the row, and now a layer of it.
func (it *Iterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	it.onRow()
	it.cellAt, it.older = -1, it.run[it.at].Cells
	switch {
	case it.Reluctant && it.Moves%2 == 0:
		return nil, false
	case ask.Rows && it.describeMany(ask.Limit, e):
		return nil, true
	case it.describe(e):
		return nil, true
	case ask.Layers:
		return it.describeLayer(e)
	}
	return nil, false
}

// describeLayer parts the row at a sequence number that changes from call to call.
func (it *Iterator) describeLayer(e *row.Extent) (newer row.Cursor, ok bool) {
	it.older = nil
	var later []row.Cell
	var lowest, highest uint64 = row.MaxSequence, 0
	for _, c := range it.run[it.at].Cells {
		lowest, highest = min(lowest, c.Seq), max(highest, c.Seq)
	}
	split := lowest + uint64(it.Moves)%(highest-lowest+1)
	for _, c := range it.run[it.at].Cells {
		if c.Seq <= split {
			it.older = append(it.older, c)
		} else {
			later = append(later, c)
		}
	}
	if it.Moves++; len(later) == 0 || !it.describe(e) {
		return nil, false
	}
	cursor := Run{{Cells: later}}.NewIterator()
	cursor.First()
	if it.FailAfter > 0 {
		cursor.FailAfter = max(1, it.FailAfter-it.Moves)
	}
	return cursor, true
}

func (it *Iterator) describe(e *row.Extent) bool {
	*e = row.Extent{}
	cells := it.older
	if c := &cells[0]; c.Kind == row.KindDeleteRow && c.Version == row.MaxVersion {
		e.Deleted, e.DeleteSeq = true, c.Seq
		cells = cells[1:]
	}
	if len(cells) > 0 && cells[0].Kind == row.KindRowMarker {
		e.Marked, e.MarkerSeq, e.MarkerVersion = true, cells[0].Seq, cells[0].Version
		cells = cells[1:]
	}
	e.Cells = len(cells)
	versions := 0
	for i := range cells {
		c := &cells[i]
		if c.Kind != row.KindPut {
			return false
		}
		if versions++; i == 0 || !bytes.Equal(c.Column, cells[i-1].Column) {
			versions = 1
		} else if c.Version == cells[i-1].Version {
			return false
		}
		e.Versions = max(e.Versions, versions)
		if i == 0 {
			e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = c.Seq, c.Seq, c.Version, c.Version
		}
		e.MinSeq, e.MaxSeq = min(e.MinSeq, c.Seq), max(e.MaxSeq, c.Seq)
		e.MinVersion, e.MaxVersion = min(e.MinVersion, c.Version), max(e.MaxVersion, c.Version)
	}
	return true
}

// describeMany describes as many rows as an Extent can.
func (it *Iterator) describeMany(limit []byte, all *row.Extent) bool {
	*all = row.Extent{Marked: true}
	for at := it.at; at < len(it.run); at++ {
		if limit != nil && bytes.Compare(it.run[at].Key, limit) >= 0 {
			break
		}
		one := Iterator{run: it.run, at: at}
		var e row.Extent
		if _, ok := one.Extent(row.Ask{}, &e); !ok || !e.Marked || e.Deleted && (e.DeleteSeq > e.MarkerSeq || e.Cells > 0 && e.DeleteSeq > e.MinSeq) {
			break
		}
		permanent := e.MarkerVersion == row.MaxVersion
		if e.Cells == 0 {
			e.MinVersion, e.MaxVersion, e.MinSeq, e.MaxSeq = 0, 0, e.MarkerSeq, e.MarkerSeq
		}
		e.MinSeq, e.MaxSeq = min(e.MinSeq, e.MarkerSeq), max(e.MaxSeq, e.MarkerSeq)
		if !permanent {
			e.MinVersion, e.MaxVersion = min(e.MinVersion, e.MarkerVersion), max(e.MaxVersion, e.MarkerVersion)
		}
		if all.Rows == 0 {
			e.Rows, e.Cells = 1, 0
			*all = e
			continue
		} else if permanent != (all.MarkerVersion == row.MaxVersion) {
			break
		}
		all.Rows++
		all.Deleted, all.DeleteSeq = all.Deleted && e.Deleted, min(all.DeleteSeq, e.DeleteSeq)
		all.MarkerSeq, all.MarkerVersion = min(all.MarkerSeq, e.MarkerSeq), max(all.MarkerVersion, e.MarkerVersion)
		all.MinSeq, all.MaxSeq = min(all.MinSeq, e.MinSeq), max(all.MaxSeq, e.MaxSeq)
		all.MinVersion, all.MaxVersion = min(all.MinVersion, e.MinVersion), max(all.MaxVersion, e.MaxVersion)
	}
	return all.Rows > 0
}

// CollectRows takes about as many rows as the budget has bytes.
func (it *Iterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	it.onRow()
	rows = max(min(rows, dst.Budget), 1)
	for i := range rows {
		switch {
		case i > 0 && it.FailAfter > 0 && it.Moves+1 >= it.FailAfter:
			return i // the next movement gets the error
		case i > 0:
			it.toRow(it.at + 1)
		}
		dst.AddKey(it.key[:len(it.key)/2], it.key[len(it.key)/2:])
		if p != nil {
			it.Collect(&dst.Collector, p)
		}
		dst.EndRow(len(dst.Cells))
	}
	return rows
}

// Collect is as in mvcc.Iterator.
func (it *Iterator) Collect(dst *row.Collector, p *row.Projection) {
	var e row.Extent
	if it.older == nil {
		it.older = it.run[it.at].Cells // a further row of a stretch
	}
	if !it.describe(&e) {
		panic("mvcctest: Collect of a row without an extent")
	}
	it.Collected++
	cells := it.older[len(it.older)-e.Cells:]
	versions := 0
	for i := range cells {
		if versions++; i > 0 && !bytes.Equal(cells[i].Column, cells[i-1].Column) {
			versions = 1
		}
		if p.Wants(cells[i].Column) && !p.Cuts(versions) {
			dst.Add(&cells[i])
		}
	}
}

// Marker returns the version of the row marker that a mutation leaves, and whether it leaves one.
func Marker(m *row.Mutation) (version int64, ok bool) {
	for _, c := range m.Cells {
		if c.Kind == row.KindPut {
			version, ok = max(version, c.Version), true
		}
	}
	if !ok && m.PutRow {
		return row.MaxVersion, true
	}
	return version, ok
}
