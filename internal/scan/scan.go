// Package scan walks the rows of a scan: over the partitions of a table, within bounds, up to a
// number of cells examined. Where a single run holds the next rows, it reads several at once, a
// chunk, and returns them one by one. Pieces divides a scan between several goroutines.
package scan

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Request says what a walk reads.
type Request struct {
	Ctx        context.Context
	Table      *table.Table
	Over       func() error // returns why what was read must not be returned; nil: it always may be
	View       mvcc.View
	Sel        mvcc.Selection
	Low, High  []byte // Low <= key < High; nil High is unbounded
	Reverse    bool
	Patience   int64 // if above 0, how many cells are examined before the walk pauses at a row that does not exist
	MaxColumns int   // of each row; 0 is no limit
	AtSnapshot bool  // the view may be an old one: a row that it passes may be a newer one, so passed rows do not count
	Sampling   bool  // the rows are only looked at: they do not count as load, and their values are not fetched
}

// Walk is a walk over the rows of a table. The caller sets the Request, then positions the walk with
// Pin or Visit. After Release its memory serves another walk.
type Walk struct {
	Request
	progress

	reader mvcc.RowReader
	chunk  row.Chunk
	key    []byte        // of a row that is not in the chunk
	cells  row.Collector // the same
	bounds [2][]byte
	sought []byte // a key for the load, see tally
	random uint64
}

// progress is how far a walk has come.
type progress struct {
	// Key and Cells are the current row. They lie in memory of the walk, or in blocks that are
	// pinned until the next row is read.
	Key   []byte
	Cells []row.Cell
	// PausedAt is the key at which another walk goes on; nil if this one has not paused.
	PausedAt []byte
	Err      error // that ended the walk

	visits   bool   // there are trees yet to visit
	from     []byte // where the first of them is entered: at this key, in reverse below it; nil is the end
	it       *partition.Iterator
	before   bool  // it is not positioned yet
	next     int   // the first row of the chunk that was not returned
	examined int64 // of rows that were returned, and by readers of trees that are done
	tally
}

// tally is what of the present tree was read and has not been counted as load. Walk.sought is the key of one of
// the rows, each with a chance by its bytes; without rows it is where the walk begins.
type tally struct {
	rows, bytes int
	passed      int  // rows that do not exist
	counted     bool // something was, of this walk
}

// countBytes is how many bytes are counted as load at once. In between, the rest of a capacity unit is kept, so that a
// walk has as many units as its bytes fill, however few rows are read at a time.
const countBytes = 4 * load.UnitBytes

// Sizes of chunks, in bytes. They begin small, since the caller may want few rows, and grow to
// what fits the CPU's first-level cache.
const (
	firstChunk = 1 << 10
	chunkGrows = 4
	maxChunk   = 16 << 10
)

// Release ends a walk and returns the error that ended it. It keeps memory for the next walk, but not
// what large rows took.
func (w *Walk) Release() error {
	w.leaveTree()
	err := w.Err
	w.Request, w.progress = Request{}, progress{}
	const keep = 1 << 20
	if w.chunk.Size()+w.cells.Size() > keep {
		w.chunk, w.cells = row.Chunk{}, row.Collector{}
	}
	w.reader.Reset(nil, mvcc.View{}, mvcc.Selection{})
	w.chunk.Reset()
	w.chunk.Budget = 0
	w.cells.Reset()
	return err
}

// Bound sets the bounds to those of a scan from start, inclusive, to end, exclusive; an empty one is
// unbounded. A reverse walk includes start, above, and excludes end, so both bounds move up to the
// next possible key. Bounds that lie the wrong way round are refused.
func (w *Walk) Bound(start, end []row.Value) error {
	for i, bound := range [][]row.Value{start, end} {
		b, err := w.Table.EncodeBound(w.bounds[i][:0], bound)
		if err != nil {
			return err
		}
		if w.Reverse && len(bound) > 0 {
			b = append(b, 0) // the smallest string above it
		}
		w.bounds[i] = b
	}
	w.Low, w.High = w.bounds[0], w.bounds[1]
	if w.Reverse {
		w.Low, w.High = w.High, w.Low
	}
	if len(w.High) == 0 {
		w.High = nil
	}
	if w.High != nil && bytes.Compare(w.Low, w.High) > 0 {
		return fmt.Errorf("%w: table %q: a scan from %v to %v, reverse %t: the bounds lie the wrong way round",
			commit.ErrInvalid, w.Table.Name, start, end, w.Reverse)
	}
	return nil
}

// Pin makes the walk one over the only tree that has what lies within the bounds, and over written
// above it, which may be nil, as they are now; see table.View. It pins everything that it will read, so
// it needs no snapshot. It returns false if there are several such trees.
func (w *Walk) Pin(written *memtable.Memtable, undurable bool) (pinned bool, err error) {
	for w.it == nil {
		tree := w.Table.Find(w.Low)
		if _, end := tree.Bounds(); end != nil && (w.High == nil || bytes.Compare(end, w.High) < 0) {
			return false, nil
		}
		w.it, w.from = tree.NewIterator(), w.begin()
	}
	w.before = true
	w.it.Above(written)
	if err = w.Table.Gone(); err == nil {
		w.View, err = w.Table.View(nil, undurable)
	}
	return true, err
}

// Visit makes the walk one over all trees that have something within the bounds, each as it is when
// the walk comes to it. Trees may be split and merged meanwhile.
func (w *Walk) Visit() { w.visits, w.from = true, w.begin() }

// begin is where the walk begins: see from.
func (w *Walk) begin() []byte {
	if w.Reverse {
		return w.High
	}
	return w.Low
}

// Next moves to the next row. It is false at the end, at a pause, and on an error.
func (w *Walk) Next() bool {
	if w.next == w.chunk.Len() {
		if exists := w.read(); !exists || w.chunk.Len() == 0 {
			return exists
		}
	}
	w.Key, w.Cells = w.chunk.Row(w.next)
	w.next++
	w.examined += 1 + int64(len(w.Cells))
	if w.MaxColumns > 0 {
		w.Cells = mvcc.FirstColumns(w.Cells, w.MaxColumns)
	}
	return w.Over == nil || !w.fails(w.Over())
}

// read reads the next rows that exist into the chunk, or makes the next one the current row.
func (w *Walk) read() bool {
	w.tallyChunk()
	for w.Err == nil && w.PausedAt == nil && w.advance() {
		w.reader.NextRow()
		if !w.Reverse && w.readChunk() {
			return true
		}
		if exists := w.readOne(); exists || w.Err != nil {
			return w.Err == nil
		}
		if w.Patience > 0 && w.Examined() >= w.Patience {
			if w.advance() {
				w.PausedAt = bytes.Clone(w.it.RowKey())
			}
			return false
		}
	}
	return false
}

// Examined is the number of cells examined so far, visible or not.
func (w *Walk) Examined() int64 {
	if w.it == nil {
		return w.examined
	}
	return w.examined + int64(w.reader.Examined())
}

// readChunk reads the current row and the rows that can be read with it into the chunk.
func (w *Walk) readChunk() bool {
	w.next = 0
	w.chunk.Reset()
	w.chunk.Budget = cmp.Or(w.chunk.Budget, firstChunk)
	if w.reader.CollectRows(&w.chunk) == 0 {
		return false
	}
	w.chunk.Budget = min(w.chunk.Budget*chunkGrows, maxChunk)
	return true
}

// readOne reads the current row alone, and reports whether it exists.
func (w *Walk) readOne() (exists bool) {
	w.key = append(w.key[:0], w.it.RowKey()...)
	w.cells.Reset()
	w.cells.Borrow = true
	exists = w.reader.Collect(&w.cells, w.MaxColumns)
	w.Key, w.Cells = w.key, w.cells.Cells
	if exists {
		w.note(w.Key, 1, w.Cells)
	} else if !w.AtSnapshot {
		w.passed++
	}
	_ = w.fails(w.reader.Error()) || w.Over != nil && w.fails(w.Over())
	return exists
}

// tallyChunk notes the rows of the chunk that were returned, and empties the chunk.
func (w *Walk) tallyChunk() {
	if n := w.next; n > 0 {
		key, _ := w.chunk.Row(w.below(n))
		w.note(key, n, w.chunk.CellsOf(n))
	}
	w.next = 0
	w.chunk.Reset()
}

// note adds rows to the tally, of which key is one, with these cells.
func (w *Walk) note(key []byte, rows int, cells []row.Cell) {
	size := w.it.Measured(key, rows, cells)
	w.rows += rows
	w.bytes += size
	if w.below(w.bytes) < size {
		w.sought = append(w.sought[:0], key...)
	}
	if w.bytes >= countBytes {
		w.count(w.bytes &^ (load.UnitBytes - 1))
	}
}

// count counts the tally as load, but for the bytes beyond so many.
func (w *Walk) count(bytes int) {
	if !w.Sampling {
		w.it.Count(w.sought, w.rows, bytes, w.passed)
	}
	w.tally = tally{bytes: w.bytes - bytes, counted: true}
}

// below returns a random number from 0 to n-1.
func (w *Walk) below(n int) int {
	w.random = w.random*6364136223846793005 + 1442695040888963407
	return int(w.random >> 33 * uint64(n) >> 31)
}

// advance moves to the next physical row in range, visible or not.
func (w *Walk) advance() bool {
	if w.fails(w.Ctx.Err()) {
		return false
	}
	for w.it != nil || w.visits {
		ok := false
		switch {
		case w.it == nil, w.before:
			w.enter()
			if w.fails(w.Table.Gone()) || w.fails(w.Table.Readable(w.it.Tree(), w.View.Seq)) {
				return false // the tree may have been empty when it was pinned
			}
			ok = w.seek()
		case w.Reverse:
			ok = w.it.PrevRow() // row by row: a run describes only rows that follow
		default:
			ok = w.it.NextRow()
		}
		if ok && w.inRange(w.it.RowKey()) {
			return true
		}
		if w.fails(w.it.Error()) {
			return false
		}
		w.leaveTree()
	}
	return false
}

// enter pins the next tree, unless one is pinned.
func (w *Walk) enter() {
	w.before = true
	for w.it == nil { // until it is not one that was replaced just now
		if trees := w.Table.Partitions.Load(); w.Reverse {
			w.it = trees.Below(w.from).NewIterator()
		} else {
			w.it = trees.Find(w.from).NewIterator()
		}
	}
}

// seek positions the iterator on its first row.
func (w *Walk) seek() bool {
	w.before = false
	w.sought = append(w.sought[:0], w.from...)
	w.reader.Reset(w.it, w.View, w.Sel)
	w.reader.Limit = w.High
	switch {
	case !w.Reverse:
		if w.High != nil {
			w.it.Until(w.High)
		}
		return w.it.SeekRow(w.from)
	case w.from == nil:
		return w.it.Last()
	}
	return w.it.SeekRowBefore(w.from)
}

func (w *Walk) inRange(key []byte) bool {
	if w.Reverse {
		return bytes.Compare(key, w.Low) >= 0
	}
	return w.High == nil || bytes.Compare(key, w.High) < 0
}

func (w *Walk) leaveTree() {
	if w.it == nil {
		return
	}
	w.examined += int64(w.reader.Examined())
	if w.tallyChunk(); !w.before && (!w.counted || w.rows+w.bytes+w.passed > 0) { // before it is positioned, nothing was read
		w.count(w.bytes)
	}
	start, end := w.it.Bounds()
	if w.Reverse {
		w.from, w.visits = start, w.visits && bytes.Compare(start, w.Low) > 0
	} else {
		w.from, w.visits = end, w.visits && end != nil && (w.High == nil || bytes.Compare(end, w.High) < 0)
	}
	w.fails(w.it.Close())
	w.it = nil
}

// fails ends the walk if err is not nil.
func (w *Walk) fails(err error) bool {
	if err == nil {
		return false
	}
	w.next = w.chunk.Len()
	w.Err = cmp.Or(w.Err, err)
	return true
}
