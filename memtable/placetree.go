package memtable

// The place tree of a row with many cells in its index: a B+-tree over these cells. Only the
// writer of the row uses it, to find the place of the next cell.
//
//	head of the index → root → ... → leaf: keys, links of cells, heights of towers
//
// A descent of the skiplist compares some four cells a level, each a cache miss in the lower
// levels of a wide row. A node of the tree holds eight bytes of each column name, next to each
// other, and loads all their lines at once. So finding a place costs little more than the misses
// of its leaf and of the cell before it. A search reads only the cells whose eight bytes are
// equal.
//
// Each node chooses the eight bytes: those behind the common prefix of all columns between its
// fences, and so of all cells that a descent brings here. Fences are the separators to both
// sides. They are cells, and cells are neither removed nor moved, so a separator stays valid.
// Nodes on the edge of the tree, which have one fence or none, skip nothing.
//
// Readers use the skiplist. The tree is never locked or published.

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"unsafe"

	"github.com/flagstone-db/flagstone/row"
)

const (
	placeFanout   = 32
	maxPlaceDepth = 8 // of half full nodes: 16^8 cells
	noEntry       = placeFanout + 1
	// placeTreeCells is the smallest number of cells for which a tree is made.
	placeTreeCells = 64
	// placeTreeHeight is the tower height at which that is checked: one cell in 256.
	placeTreeHeight = firstHeadHeight + 1
	// placeBytes is what Apply counts for a cell's entry. It is about 20 with nodes filled at
	// random; the rest is for the cells that were there before the tree.
	placeBytes = 24
)

// placeNode is a leaf, or the common part of inner nodes. Entry i of an inner node leads to the
// cells at or after cells[i]; the first entry has no lower bound.
type placeNode struct {
	count   uint8
	last    uint8              // where the last entry was added, or noEntry
	skip    uint16             // bytes of column names before those in keys
	heights [placeFanout]uint8 // of the towers; only in leaves
	keys    [placeFanout]uint64
	cells   [placeFanout]link
}

type placeInner struct {
	placeNode
	children [placeFanout]link
}

func (m *Memtable) placeNode(l link) *placeNode { return (*placeNode)(m.arena.at(l)) }
func (n *placeNode) inner() *placeInner         { return (*placeInner)(unsafe.Pointer(n)) }

// The head of an index keeps the root of the tree in the place of a value's length, and the
// number of levels in the place of a column's length.

func (n *cellNode) places() link { return link(n.valueLen) }

func (n *cellNode) setPlaces(root link, depth int) {
	n.valueLen, n.columnLen = uint32(root), uint16(depth)
}

// placePath is the result of a descent: a node of each level, leaves first, and the entry in it.
type placePath struct {
	// seated means that the last cell of the mutation is at the path's entry of its leaf.
	seated bool
	steps  [maxPlaceDepth]placeStep
}

type placeStep struct {
	node *placeNode
	at   int
}

// columnKey returns the eight bytes of a column name after skip, as a number in the same order.
func columnKey(column []byte, skip int) uint64 {
	if len(column) >= skip+8 {
		return binary.BigEndian.Uint64(column[skip:])
	}
	var key uint64
	for i, b := range column[min(skip, len(column)):] {
		key |= uint64(b) << (56 - 8*i)
	}
	return key
}

func (m *Memtable) columnOf(l link) []byte {
	n := m.cell(l)
	return n.payload()[:n.columnLen]
}

// makePlaces makes the tree, if the index has enough cells.
func (w *indexWriter) makePlaces() {
	first := link(w.head.next(0).Load())
	n := 0
	for l := first; l != 0 && n < placeTreeCells; l = link(w.m.cell(l).next(0).Load()) {
		n++
	}
	if n < placeTreeCells {
		return
	}
	root, _ := w.newPlaceNode(0)
	w.head.setPlaces(root, 1)
	var c row.Cell
	for l := first; l != 0; l = link(w.m.cell(l).next(0).Load()) {
		node := w.m.cell(l)
		node.read(&c)
		w.lastPlace()
		w.enter(l, &c, int(node.height))
	}
	w.path.seated = false
}

// lastPlace moves the path behind all cells.
func (w *indexWriter) lastPlace() {
	n := w.m.placeNode(w.head.places())
	for level := int(w.head.columnLen) - 1; level > 0; level-- {
		at := int(n.count) - 1
		w.path.steps[level] = placeStep{n, at}
		n = w.m.placeNode(n.inner().children[at])
	}
	w.path.steps[0] = placeStep{n, int(n.count)}
}

func (w *indexWriter) newPlaceNode(level int) (link, *placeNode) {
	size := unsafe.Sizeof(placeNode{})
	if level > 0 {
		size = unsafe.Sizeof(placeInner{})
	}
	l, p := w.m.arena.alloc(&w.m.data, int(size))
	n := (*placeNode)(p)
	n.count, n.last, n.skip = 0, noEntry, 0
	return l, n
}

// placeBefore moves the path to c, and sets prev to the last cells before c, in as many levels as
// a tower of that height needs.
func (w *indexWriter) placeBefore(c *row.Cell, height int) {
	if w.path.seated && w.follows(c) {
		w.path.steps[0].at++
	} else {
		w.seekPlace(c)
	}
	n, at := w.path.steps[0].node, w.path.steps[0].at-1
	w.prev[0] = link(w.row.index.Load())
	if at >= 0 { // else c is before all other cells, see split
		w.prev[0] = n.cells[at]
	}
	if height == 1 {
		return
	}
	// Few cells have a tower of four or more, and the previous one is far away.
	parent := w.path.steps[1]
	if height > 3 {
		at, parent.at = -1, 0
	}
	for level := 1; level < height; {
		switch {
		case at >= 0 && int(n.heights[at]) > level:
			w.prev[level] = n.cells[at]
			level++
		case at >= 0:
			at--
		case parent.at > 0 && w.head.columnLen > 1:
			parent.at--
			n = w.m.placeNode(parent.node.inner().children[parent.at])
			at = int(n.count) - 1
		default:
			w.descend(c, w.height, 0)
			return
		}
	}
}

// follows reports whether c belongs right behind the path's cell.
func (w *indexWriter) follows(c *row.Cell) bool {
	n, at := w.path.steps[0].node, w.path.steps[0].at
	before := n.cells[at]
	if at+1 == int(n.count) {
		return w.m.cell(before).next(0).Load() == 0
	}
	skip := int(n.skip)
	if column := w.m.columnOf(before); len(c.Column) < skip || !bytes.Equal(c.Column[:skip], column[:skip]) {
		return false
	}
	return columnKey(c.Column, skip) < n.keys[at+1]
}

// seekPlace moves the path to the place of c.
func (w *indexWriter) seekPlace(c *row.Cell) {
	n := w.m.placeNode(w.head.places())
	for level := int(w.head.columnLen) - 1; level > 0; level-- {
		at := w.entriesBefore(n, 1, c) - 1
		w.path.steps[level] = placeStep{n, at}
		n = w.m.placeNode(n.inner().children[at])
	}
	w.path.steps[0] = placeStep{n, w.entriesBefore(n, 0, c)}
}

// entriesBefore returns the number of entries of n before c. The entries below from are known to
// be before c.
func (w *indexWriter) entriesBefore(n *placeNode, from int, c *row.Cell) int {
	key := columnKey(c.Column, int(n.skip))
	count := int(n.count)
	// Without branches the loads do not wait for each other.
	before := uint64(from)
	for _, k := range n.keys[from:count] {
		_, less := bits.Sub64(k, key, 0)
		before += less
	}
	at := int(before)
	// Most cells are newer than all others of their column: the first comparison decides.
	if at == count || n.keys[at] != key || w.isAtOrAfter(n.cells[at], c) {
		return at
	}
	low, high := at+1, count
	for low < high {
		middle := int(uint(low+high) / 2)
		if n.keys[middle] > key || w.isAtOrAfter(n.cells[middle], c) {
			high = middle
		} else {
			low = middle + 1
		}
	}
	return low
}

func (w *indexWriter) isAtOrAfter(l link, c *row.Cell) bool {
	w.compared++
	return w.m.cell(l).compare(c) >= 0
}

// enter adds a cell at the path.
func (w *indexWriter) enter(l link, c *row.Cell, height int) {
	w.path.seated = true
	n, at := w.addEntry(0, l, c.Column)
	n.heights[at] = uint8(height)
}

// addEntry makes room for an entry at the path's place in a level, and fills in the fields that
// leaves and inner nodes share. A split makes the path invalid.
func (w *indexWriter) addEntry(level int, cell link, column []byte) (*placeNode, int) {
	n, at := w.path.steps[level].node, w.path.steps[level].at
	if n.count == placeFanout {
		w.path.seated = false
		n, at = w.split(level, cell)
	}
	count := int(n.count)
	copy(n.keys[at+1:count+1], n.keys[at:count])
	copy(n.cells[at+1:count+1], n.cells[at:count])
	if level == 0 {
		copy(n.heights[at+1:count+1], n.heights[at:count])
	} else {
		children := &n.inner().children
		copy(children[at+1:count+1], children[at:count])
	}
	n.keys[at], n.cells[at] = columnKey(column, int(n.skip)), cell
	n.count, n.last = uint8(count+1), uint8(at)
	return n, at
}

// split divides the full node of the path in a level, where cell will be entered, and returns the
// place for it. It divides in the middle, except when cells come in order. If the entry just
// before or just behind the place was added last, it divides at the place: that leaves full nodes
// behind.
//
// Cells in falling order, such as the versions of a column, all go to the end of the lower node.
// So it divides at the place only if that leaves the lower node less than half full. It also
// clears the last entry of the node, so that only a node that takes the cell has one.
//
// Only the first leaf gets a cell before all its others: every other leaf begins with the cell
// that separates it from the leaf before.
func (w *indexWriter) split(level int, cell link) (*placeNode, int) {
	n, at := w.path.steps[level].node, w.path.steps[level].at
	lower, upper := w.fences(level)
	cut := placeFanout / 2
	if last := int(n.last); at == last+1 || at == last && at < placeFanout/2 {
		cut = at
	}
	n.last = noEntry
	l, right := w.newPlaceNode(level)
	right.skip = n.skip
	right.count = uint8(copy(right.keys[:], n.keys[cut:]))
	copy(right.cells[:], n.cells[cut:])
	if level == 0 {
		copy(right.heights[:], n.heights[cut:])
	} else {
		copy(right.inner().children[:], n.inner().children[cut:])
	}
	n.count = uint8(cut)
	into, place, separator := n, at, cell
	if cut < placeFanout {
		separator = right.cells[0]
	}
	if at > cut || cut == placeFanout {
		into, place = right, at-cut
	}
	w.narrow(n, level, lower, separator)
	w.narrow(right, level, separator, upper)
	w.addSibling(level, l, separator)
	return into, place
}

// addSibling enters a node behind the path's node in its level.
func (w *indexWriter) addSibling(level int, l, separator link) {
	depth := int(w.head.columnLen)
	if level+1 == depth {
		old := w.head.places()
		root, n := w.newPlaceNode(depth)
		n.count, n.keys[0], n.cells[0] = 1, 0, 0
		n.inner().children[0] = old
		w.head.setPlaces(root, depth+1)
		w.path.steps[depth] = placeStep{node: n}
	}
	w.path.steps[level+1].at++
	parent, at := w.addEntry(level+1, separator, w.m.columnOf(separator))
	parent.inner().children[at] = l
}

// fences returns the separators to both sides of the path's node in a level, nil where there is
// none.
func (w *indexWriter) fences(level int) (lower, upper link) {
	for level++; level < int(w.head.columnLen); level++ {
		n, at := w.path.steps[level].node, w.path.steps[level].at
		if lower == 0 && at > 0 {
			lower = n.cells[at]
		}
		if upper == 0 && at+1 < int(n.count) {
			upper = n.cells[at+1]
		}
	}
	return lower, upper
}

// narrow makes a node skip the common prefix of its fences, if half of the bytes are the same in
// all of its keys.
func (w *indexWriter) narrow(n *placeNode, level int, lower, upper link) {
	first, count := min(level, 1), int(n.count) // the first key of an inner node is not used
	if lower == 0 || upper == 0 || count <= first || bits.LeadingZeros64(n.keys[first]^n.keys[count-1]) < 32 {
		return
	}
	skip := commonPrefix(w.m.columnOf(lower), w.m.columnOf(upper))
	if skip <= int(n.skip) {
		return
	}
	n.skip = uint16(skip)
	for i := first; i < count; i++ {
		n.keys[i] = columnKey(w.m.columnOf(n.cells[i]), skip)
	}
}

func commonPrefix(a, b []byte) int {
	n := 0
	for n < len(a) && n < len(b) && a[n] == b[n] {
		n++
	}
	return n
}
