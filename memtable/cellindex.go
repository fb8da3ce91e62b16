package memtable

// The index of a row: a skiplist of the cells of its second and later mutations, in cell order
// (row.CompareCells).
//
//	cell node = version seq valueLen columnLen head height (cellHeader bytes)
//	            tower: height links
//	            column value
//	head      = 1 byte, see row.Cell.Head
//
// The head of the list is a node without a cell; its fields have other uses:
//   - version is the live marker of the row: the best marker that the row holds, packed or
//     in its index, at or after its newest delete-row (or noMarker). Only the writer of the
//     row reads it. A row without an index has the live marker of its packed part.
//   - seq is that of the row's newest mutation, set before the first cell of it is inserted.
//
// The head begins short, because most rows see few updates. When a cell needs a taller tower, a
// taller copy replaces the head. A reader that still descends from the old head finds all cells
// that were there when it began.
//
// One goroutine writes a row at a time, so links are published by plain atomic
// stores, from the bottom up.

import (
	"bytes"
	"cmp"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/row"
)

const (
	cellHeader      = int(unsafe.Sizeof(cellNode{}))
	firstHeadHeight = 4
)

// cellNode is the fixed part of a cell node; tower, column and value follow.
type cellNode struct {
	version   int64
	seq       uint64
	valueLen  uint32
	columnLen uint16
	head      uint8
	height    uint8
}

func (m *Memtable) cell(l link) *cellNode { return (*cellNode)(m.arena.at(l)) }

func (n *cellNode) next(level int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(n), cellHeader+level*linkSize))
}

// newest is the sequence number in the head of a list.
func (n *cellNode) newest() *atomic.Uint64 { return (*atomic.Uint64)(unsafe.Pointer(&n.seq)) }

// payload returns the column followed by the value.
func (n *cellNode) payload() []byte {
	size := int(n.columnLen) + int(n.valueLen)
	if size == 0 {
		return nil // the address may be past the end of the slab
	}
	at := unsafe.Add(unsafe.Pointer(n), cellHeader+int(n.height)*linkSize)
	return unsafe.Slice((*byte)(at), size)
}

// read fills c with the cell of n, sharing its memory.
func (n *cellNode) read(c *row.Cell) {
	payload := n.payload()
	c.Column = payload[:n.columnLen:n.columnLen]
	c.Value = payload[n.columnLen:len(payload):len(payload)]
	c.Version, c.Seq = n.version, n.seq
	c.SetHead(n.head)
}

// compare orders the cell of n against (column, version, seq, kind).
func (n *cellNode) compare(c *row.Cell) int {
	if order := bytes.Compare(n.payload()[:n.columnLen], c.Column); order != 0 {
		return order
	}
	switch {
	case n.version != c.Version:
		return cmp.Compare(c.Version, n.version)
	case n.seq != c.Seq:
		return cmp.Compare(c.Seq, n.seq)
	}
	return int(n.head&0x0F) - int(c.Head()&0x0F)
}

// seekCell returns the first cell of the index at or after target, nil if
// there is none, and the number of cells it compared.
func (m *Memtable) seekCell(head link, target *row.Cell) (found link, compared int) {
	n := m.cell(head)
	for level := int(n.height) - 1; level >= 0; level-- {
		for {
			next := link(n.next(level).Load())
			if next == 0 || next == found {
				break
			}
			nextNode := m.cell(next)
			compared++
			if nextNode.compare(target) >= 0 {
				found = next
				break
			}
			n = nextNode
		}
	}
	return found, compared
}

// liveMarker returns the live marker of a row.
func (m *Memtable) liveMarker(n *rowNode) int64 {
	if head := link(n.index.Load()); head != 0 {
		return m.cell(head).version
	}
	return m.packedOf(n).marker
}

// indexWriter inserts the cells of one mutation, in cell order, into the index of a row. It
// searches each cell from the place of the cell before it, upward and then down, so neighbouring
// cells cost a few comparisons.
type indexWriter struct {
	m        *Memtable
	row      *rowNode
	head     *cellNode
	height   int
	placed   bool
	prev     [maxHeight]link // last cell before the place, at each level
	compared int             // cells compared so far
	inserted int             // cells inserted so far
	used     int64           // bytes taken so far, with towers of nominalHeight
	random   uint64          // seeds the heights of their towers
}

// init begins a mutation with sequence number seq.
func (w *indexWriter) init(m *Memtable, n *rowNode, seq uint64) {
	w.m, w.row, w.placed = m, n, false
	head := link(n.index.Load())
	if head != 0 {
		m.cell(head).newest().Store(seq)
	} else {
		head = w.newHead(firstHeadHeight, m.packedOf(n).marker, seq)
		w.used += 3 * int64(cellHeader+maxHeight*linkSize) // with the two that may replace it
		n.index.Store(uint32(head))
	}
	w.head = m.cell(head)
	w.height = int(w.head.height)
	for level := range w.height {
		w.prev[level] = head
	}
}

func (w *indexWriter) newHead(height int, liveMarker int64, newest uint64) link {
	l, p := w.m.arena.alloc(&w.m.data, cellHeader+height*linkSize)
	n := (*cellNode)(p)
	n.height, n.version = uint8(height), liveMarker
	n.newest().Store(newest)
	for level := range height {
		n.next(level).Store(0)
	}
	return l
}

// raise replaces the head by one of at least twice the height.
func (w *indexWriter) raise(height int) {
	height = min(max(height, 2*w.height), maxHeight)
	old := link(w.row.index.Load())
	head := w.newHead(height, w.head.version, w.head.newest().Load())
	node := w.m.cell(head)
	for level := range w.height {
		node.next(level).Store(w.head.next(level).Load())
		if w.prev[level] == old {
			w.prev[level] = head
		}
	}
	for level := w.height; level < height; level++ {
		w.prev[level] = head
	}
	w.height, w.head = height, node
	w.row.index.Store(uint32(head))
}

// insert adds a cell. REQUIRES: it sorts after the cells inserted before it.
func (w *indexWriter) insert(c *row.Cell) {
	height := towerHeight(mix64(w.random + uint64(w.inserted)))
	w.inserted++
	if height > w.height {
		w.raise(height)
	}
	w.advance(c)
	size := cellHeader + height*linkSize + len(c.Column) + len(c.Value)
	l, p := w.m.arena.alloc(&w.m.data, size)
	w.used += wordSize + roundUp(size+(nominalHeight-height)*linkSize)
	n := (*cellNode)(p)
	n.version, n.seq = c.Version, c.Seq
	n.valueLen, n.columnLen = uint32(len(c.Value)), uint16(len(c.Column))
	n.head, n.height = c.Head(), uint8(height)
	payload := n.payload()
	copy(payload[copy(payload, c.Column):], c.Value)
	for level := range height {
		before := w.m.cell(w.prev[level]).next(level)
		n.next(level).Store(before.Load())
		before.Store(uint32(l))
		w.prev[level] = l
	}
}

// advance moves the place to c.
func (w *indexWriter) advance(c *row.Cell) {
	level, after := w.height, link(0)
	if w.placed {
		level, after = w.climb(c)
	}
	w.placed = true
	w.descend(c, level, after)
}

// descend moves the place to c in the levels below level; after is the last cell seen that is at
// or after c. REQUIRES: the place is not behind c.
func (w *indexWriter) descend(c *row.Cell, level int, after link) {
	if level == 0 {
		return
	}
	prev := w.prev[level-1]
	for level--; level >= 0; level-- {
		n := w.m.cell(prev)
		for {
			next := link(n.next(level).Load())
			if next == 0 || next == after {
				break
			}
			nextNode := w.m.cell(next)
			w.compared++
			if nextNode.compare(c) >= 0 {
				after = next
				break
			}
			prev, n = next, nextNode
		}
		w.prev[level] = prev
	}
}

// climb returns the lowest level whose next cell is not before c, and that cell. The place is
// right from that level upward.
func (w *indexWriter) climb(c *row.Cell) (level int, after link) {
	var before link
	for ; level < w.height; level++ {
		next := link(w.m.cell(w.prev[level]).next(level).Load())
		if next == 0 {
			return level, 0
		}
		if next == before {
			continue
		}
		w.compared++
		if w.m.cell(next).compare(c) >= 0 {
			return level, next
		}
		before = next
	}
	return level, 0
}
