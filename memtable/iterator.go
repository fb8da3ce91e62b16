package memtable

import (
	"bytes"

	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/row"
)

// maxExpected bounds how many bytes of a row are prefetched: the processor itself goes on with longer ones.
const maxExpected = 2 << 10

// Iterator walks the rows of a memtable in key order and the cells of the current row in cell
// order. One goroutine uses it at a time, beside any number of writers. It sees cells that are
// added behind its cursors, and perhaps rows. It may see some cells of a mutation that is being
// applied, so a reader ignores sequence numbers that were not visible when it began.
//
// Keys, columns and values point into the memtable and stay valid until it is freed, even after
// the iterator has moved. There are no errors.
//
// Call Init on a zero Iterator before use.
type Iterator struct {
	m    *Memtable
	at   link     // current row
	node *rowNode // its node; nil if there is no current row

	// The cell cursor merges two cursors: its cell is the smaller of their current cells. A
	// cursor that is not live has no cell.
	packed     packedCursor
	packedLive bool
	later      laterCells
	onLater    bool // the current cell is that of later
	hasCell    bool
	cells      []row.Cell // of the first mutation, decoded by Extent
	versions   int        // at most so many of them are of one column
}

// NewIterator makes an iterator that is not positioned.
func (m *Memtable) NewIterator() *Iterator { return &Iterator{m: m} }

// Init makes it an unpositioned iterator over m, for callers that reuse iterators as values.
func (it *Iterator) Init(m *Memtable) { *it = Iterator{m: m, cells: it.cells} }

// setRow makes l the current row; the head of the list and nil mean no row.
func (it *Iterator) setRow(l link) bool {
	it.hasCell = false
	if l == 0 || l == it.m.head {
		it.at, it.node = 0, nil
		return false
	}
	it.at, it.node = l, it.m.row(l)
	return true
}

// First positions on the first row.
func (it *Iterator) First() bool {
	it.m.order()
	return it.setRow(link(it.m.row(it.m.head).next(0).Load()))
}

// Last positions on the last row.
func (it *Iterator) Last() bool {
	it.m.order()
	return it.setRow(it.m.findLast())
}

// SeekRow positions on the first row whose key is at least key.
func (it *Iterator) SeekRow(key []byte) bool {
	it.m.order()
	_, l := it.m.findBracket(key)
	return it.setRow(l) && it.expectNext()
}

// SeekRowBefore positions on the last row whose key is below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	it.m.order()
	l, _ := it.m.findBracket(key)
	return it.setRow(l)
}

// Place is the position of a row. It costs less than a positioned iterator.
type Place struct {
	m    *Memtable
	at   link
	node *rowNode
}

// Find returns the place of the row with this key; false if it is not there.
func (m *Memtable) Find(key []byte) (p Place, ok bool) {
	p.m = m
	p.at, p.node = m.findRow(m.hash.of(key), key)
	return p, p.node != nil
}

// InitAt is Init followed by positioning on the row at p, from which there is no way to the rows beside it.
func (it *Iterator) InitAt(p *Place) {
	*it = Iterator{m: p.m, at: p.at, node: p.node, cells: it.cells}
}

// NewestSeq is the sequence number of the row's newest mutation that added cells to the memtable.
// It is set before any cell of that mutation appears.
func (p *Place) NewestSeq() uint64 {
	if head := link(p.node.index.Load()); head != 0 {
		return p.m.cell(head).newest().Load()
	}
	return p.m.packedOf(p.node).seq
}

// NextRow moves to the next row. REQUIRES: positioned on a row.
func (it *Iterator) NextRow() bool {
	return it.setRow(link(it.node.next(0).Load())) && it.expectNext()
}

// expectNext prefetches what the next two movements read, since neighbouring rows lie anywhere in
// memory: the cells of the next row, as many bytes as the current one has, and the node behind it. It
// returns true.
func (it *Iterator) expectNext() bool {
	if next := link(it.node.next(0).Load()); next != 0 {
		n := it.m.row(next)
		size := min(packedHeader+int(it.m.packedOf(it.node).size), maxExpected)
		prefetch.Range(uintptr(it.m.arena.at(n.packed)), size)
		if after := link(n.next(0).Load()); after != 0 {
			prefetch.Range(uintptr(it.m.arena.at(after)), prefetch.Line)
		}
	}
	return true
}

// PrevRow moves to the row before. REQUIRES: positioned on a row.
func (it *Iterator) PrevRow() bool {
	return it.setRow(it.m.findPredecessor(it.at, it.node))
}

// RowKey is the key of the current row. REQUIRES: positioned on a row.
func (it *Iterator) RowKey() []byte { return it.node.key() }

// FirstCell positions on the first cell of the current row.
func (it *Iterator) FirstCell() bool {
	if it.node == nil {
		return false
	}
	it.packed.reset(it.m.packedOf(it.node))
	it.packedLive = it.packed.next()
	it.openLater()
	it.later.FirstCell()
	return it.choose()
}

// SeekCell positions on the first cell of the current row whose column is at least column and, in
// that column, whose version is at most version. Row-level cells have the empty column. Seeking
// forward is cheaper than seeking back.
func (it *Iterator) SeekCell(column []byte, version int64) bool {
	if it.node == nil {
		return false
	}
	if !it.hasCell {
		it.packed.reset(it.m.packedOf(it.node))
	}
	it.packedLive = it.packed.seek(column, version)
	it.openLater()
	it.later.SeekCell(column, version)
	return it.choose()
}

// NextCell moves by one cell within the row; false after the last one.
func (it *Iterator) NextCell() bool {
	if !it.hasCell {
		return false
	}
	if it.onLater {
		it.later.NextCell()
	} else {
		it.packedLive = it.packed.next()
	}
	return it.choose()
}

// Cell is the current cell, valid until either cursor moves.
// REQUIRES: positioned on a cell.
func (it *Iterator) Cell() *row.Cell {
	if it.onLater {
		return &it.later.cell
	}
	return &it.packed.cell
}

// Sample calls fn with about one row key in apart, at most four times as many, in ascending
// order. size is about how many bytes the row has, and those around it that are left out. If versions is above
// 0, only the newest puts of each column count, at most so many, and none that a delete of the row or a trim
// hides. It visits only rows with high towers in the skiplist. The key is valid until the memtable is freed.
func (m *Memtable) Sample(apart int64, versions int, fn func(key []byte, size int64)) {
	level := 0
	for ; level < maxHeight-1 && 4<<(2*level) <= apart; level++ {
	}
	m.order()
	it := m.NewIterator()
	for l := link(m.row(m.head).next(level).Load()); it.setRow(l); l = link(it.node.next(level).Load()) {
		size, column, puts := int64(it.node.keyLen), []byte(nil), 0
		var deleted, hidden uint64 // smaller sequence numbers are hidden, in the row and in the column
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			c := it.Cell()
			if !bytes.Equal(c.Column, column) {
				column, puts, hidden = c.Column, 0, deleted
			}
			switch c.Kind {
			case row.KindDeleteRow:
				deleted = max(deleted, c.Seq)
			case row.KindTrim:
				hidden = max(hidden, c.Seq)
			case row.KindPut:
				if versions > 0 && (c.Seq < hidden || puts == versions) {
					continue
				}
				puts++
			}
			size += int64(len(c.Column) + len(c.Value) + cellHeader)
		}
		fn(it.RowKey(), size<<(2*level))
	}
}

// choose makes the smaller of the two current cells the iterator's cell.
func (it *Iterator) choose() bool {
	switch {
	case it.later.at == 0:
		it.onLater, it.hasCell = false, it.packedLive
	case !it.packedLive:
		it.onLater, it.hasCell = true, true
	default:
		it.onLater = row.CompareCells(&it.later.cell, &it.packed.cell) < 0
		it.hasCell = true
	}
	return it.hasCell
}

// laterCells walks the cells of a row that came after its first mutation: the row's index.
type laterCells struct {
	m    *Memtable
	head link // of the index; 0 if the row has none
	at   link // node of the index, 0 at its end
	cell row.Cell
}

// openLater makes later that of the current row, not positioned.
func (it *Iterator) openLater() {
	it.later.m, it.later.head, it.later.at = it.m, link(it.node.index.Load()), 0
}

func (l *laterCells) to(at link) bool {
	if l.at = at; at == 0 {
		return false
	}
	l.m.cell(at).read(&l.cell)
	return true
}

func (l *laterCells) FirstCell() bool {
	return l.head != 0 && l.to(link(l.m.cell(l.head).next(0).Load()))
}
func (l *laterCells) NextCell() bool  { return l.at != 0 && l.to(link(l.m.cell(l.at).next(0).Load())) }
func (l *laterCells) Cell() *row.Cell { return &l.cell }
func (l *laterCells) Error() error    { return nil }

func (l *laterCells) SeekCell(column []byte, version int64) bool {
	if l.head == 0 {
		return false
	}
	// The newest sequence number and the smallest kind: before every cell of this version.
	at, _ := l.m.seekCell(l.head, &row.Cell{Column: column, Version: version, Seq: row.MaxSequence})
	return l.to(at)
}

// Error returns nil: a memtable has no errors.
func (it *Iterator) Error() error { return nil }

// Close drops the reference to the memtable.
func (it *Iterator) Close() error {
	it.m, it.at, it.node, it.hasCell = nil, 0, nil, false
	clear(it.cells) // they point into the memtable
	return nil
}
