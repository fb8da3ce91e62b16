package row

import (
	"encoding/binary"
	"fmt"
	"math"
	"strings"
)

// Change is a mutation in encoded form, as the log and memtables take it. It encodes cells as
// they are added, so it keeps no memory of the caller. A reused Change allocates nothing, as long
// as its cells are added in order (columns ascending, versions of a column descending); otherwise
// Normalize sorts them.
//
// Key, Table, DeleteRow and PutRow mean the same as in Mutation; the owner sets them.
type Change struct {
	Table     uint64
	Key       []byte
	DeleteRow bool
	PutRow    bool

	cells    CellList
	unsorted bool  // the cells are not in order, or some override others
	newest   int64 // largest version of a put, -1 if there is none
	oldest   int64 // smallest version of a put, MaxVersion if there is none
	deletes  bool  // there may be a delete of a version
	packed   bool  // there may be a packed value
	// unstamped: there may be a put at the version Unstamped.
	unstamped bool
	// dropped maps each dropped column to a length of the list: the column's cells before that
	// are removed when the list is sorted.
	dropped map[string]int

	// The last cell, to compare the next one with.
	column  span
	version int64
	kind    Kind

	scratch []Cell // for sorting
	spare   []byte
}

// span is a part of the encoded cells.
type span struct{ from, to int }

// Reset empties the change and keeps its memory.
func (c *Change) Reset() {
	c.Table, c.Key, c.DeleteRow, c.PutRow = 0, c.Key[:0], false, false
	c.DropCells()
}

// DropCells removes all cells.
func (c *Change) DropCells() {
	c.cells.reset()
	c.unsorted, c.newest, c.oldest, c.deletes = false, -1, MaxVersion, false
	c.dropped, c.unstamped, c.packed = nil, false, false
}

// Cap returns about the size of the memory that the change keeps, in bytes.
func (c *Change) Cap() int { return cap(c.cells.data) + cap(c.spare) }

// Cells returns the cells, in order once the change is normalized.
func (c *Change) Cells() *CellList { return &c.cells }

// Empty reports whether the change does nothing.
func (c *Change) Empty() bool { return !c.DeleteRow && !c.PutRow && c.cells.count == 0 }

// Newest returns the largest version of a put, -1 if there is none.
func (c *Change) Newest() int64 { return c.newest }

// Oldest returns the smallest version of a put, MaxVersion if there is none.
func (c *Change) Oldest() int64 { return c.oldest }

// DeletesVersions reports whether a cell may be a delete of one version.
func (c *Change) DeletesVersions() bool { return c.deletes }

// Packs reports whether a cell may have a packed value.
func (c *Change) Packs() bool { return c.packed }

// Marker returns the version of the row marker that the mutation leaves, and whether it leaves
// one: a row exists as long as its newest put could be visible, or for ever if it was put without
// attributes.
func (c *Change) Marker() (version int64, ok bool) {
	switch {
	case c.newest >= 0:
		return c.newest, true
	case c.PutRow:
		return MaxVersion, true
	}
	return 0, false
}

// Unstamped, as the version of a put, stands for a version that Change.StampTo decides.
const Unstamped int64 = math.MinInt64

// stampable returns a version to check in the place of one that may be Unstamped.
func (c *Change) stampable(version int64) int64 {
	if version == Unstamped {
		c.unstamped = true
		return 0
	}
	return version
}

// Unstamped reports whether puts may have the version Unstamped.
func (c *Change) Unstamped() bool { return c.unstamped }

// StampTo makes dst the change with another version for puts at Unstamped. dst shares the key, and
// uses its own memory again.
func (c *Change) StampTo(dst *Change, version int64) error {
	m := Mutation{Cells: c.scratch[:0]}
	if err := c.Mutation(&m); err != nil {
		return err
	}
	for i := range m.Cells {
		if m.Cells[i].Version == Unstamped {
			m.Cells[i].Version = version
		}
	}
	dst.Table, dst.Key, dst.DeleteRow, dst.PutRow = c.Table, c.Key, c.DeleteRow, c.PutRow
	dst.encode(m.Cells)
	clear(m.Cells)
	c.scratch = m.Cells[:0]
	return nil
}

// Put adds a cell with a value, whose version may be Unstamped. It copies the column and the
// value. Errors are ErrBadMutation, and leave the change unchanged.
func (c *Change) Put(column string, version int64, v Value) error {
	switch {
	case !v.typ.IsAttributeType():
		return fmt.Errorf("%w: column %q: %s is no attribute value", ErrBadMutation, column, v.typ)
	case len(v.data) > MaxValueBytes:
		return tooLarge(column, len(v.data))
	}
	if err := checkCell(column, c.stampable(version), KindPut); err != nil {
		return err
	}
	start(c, column, version, KindPut, headOf(KindPut, v.typ, false))
	b := binary.AppendUvarint(c.cells.data, uint64(v.Size()))
	c.cells.data = v.AppendPayload(b)
	return nil
}

// PutPacked is Put of a string or binary that the caller has in packed form: see Cell.Packed.
func (c *Change) PutPacked(column string, version int64, typ Type, packed []byte) error {
	cell := Cell{Column: []byte(column), Version: c.stampable(version), Kind: KindPut, Type: typ, Packed: true, Value: packed}
	if err := cell.check(); err != nil {
		return err
	}
	start(c, column, version, KindPut, cell.Head())
	c.cells.value(packed)
	return nil
}

// Add adds a cell without a value: a trim or a delete of one version. Errors are ErrBadMutation,
// and leave the change unchanged.
func (c *Change) Add(column string, version int64, kind Kind) error {
	if kind == KindPut {
		return fmt.Errorf("%w: column %q: a put without a value", ErrBadMutation, column)
	}
	if err := checkCell(column, version, kind); err != nil {
		return err
	}
	start(c, column, version, kind, headOf(kind, TypeNone, false))
	return nil
}

// DropColumn removes the cells that a column has so far.
func (c *Change) DropColumn(column string) {
	n := c.cells.count
	if n == 0 || !c.unsorted && string(c.lastColumn()) < column {
		return
	}
	if c.dropped == nil {
		c.dropped = make(map[string]int)
	}
	c.dropped[strings.Clone(column)] = n
	c.unsorted = true
}

func (c *Change) lastColumn() []byte { return c.cells.data[c.column.from:c.column.to] }

// start appends a cell up to its value.
func start[S string | []byte](c *Change, column S, version int64, kind Kind, head byte) {
	l := &c.cells
	if l.count > 0 && !c.unsorted {
		switch last := c.lastColumn(); {
		case string(last) < string(column):
		case string(last) > string(column) || c.version < version,
			c.version == version && (c.kind != KindTrim || kind == KindTrim):
			c.unsorted = true
		}
	}
	c.column, c.version, c.kind = begin(l, column, version, head), version, kind
	c.note(kind, version)
	c.packed = c.packed || Kind(head&0x0F) == kindPacked
}

// note notes what a cell means for the change as a whole.
func (c *Change) note(kind Kind, version int64) {
	switch kind {
	case KindPut:
		c.newest, c.oldest = max(c.newest, version), min(c.oldest, version)
	case KindDeleteVersion:
		c.deletes = true
	}
}

// Normalize sorts the cells, keeps the last of several puts and deletes of one (column, version),
// and checks what Put and Add did not. Errors are ErrBadMutation.
func (c *Change) Normalize() error {
	if len(c.Key) == 0 || len(c.Key) > MaxKeyBytes {
		return fmt.Errorf("%w: row key of %d bytes, want 1 to %d", ErrBadMutation, len(c.Key), MaxKeyBytes)
	}
	if !c.unsorted {
		return nil
	}
	m := Mutation{Key: c.Key, Cells: c.scratch[:0]}
	if err := c.Mutation(&m); err != nil {
		return err
	}
	if err := m.Normalize(); err != nil {
		return err
	}
	c.encode(m.Cells)
	clear(m.Cells)
	c.scratch = m.Cells[:0]
	return nil
}

// encode replaces the cells. The new ones may point into the memory of the old ones.
func (c *Change) encode(cells []Cell) {
	old := c.cells.data
	c.cells.data = c.spare
	c.DropCells()
	for i := range cells {
		cell := &cells[i]
		start(c, cell.Column, cell.Version, cell.Kind, cell.Head())
		if cell.Kind == KindPut {
			c.cells.value(cell.Value)
		}
	}
	c.spare = old[:0]
}

// Set sets the change to a mutation, which it normalizes. Errors are ErrBadMutation.
func (c *Change) Set(m *Mutation) error {
	if err := m.Normalize(); err != nil {
		return err
	}
	c.Table, c.Key, c.DeleteRow, c.PutRow = m.Table, m.Key, m.DeleteRow, m.PutRow
	c.encode(m.Cells)
	return nil
}

// Mutation decodes the change into m, reusing its Cells slice; key, columns and
// values share memory with the change.
func (c *Change) Mutation(m *Mutation) error {
	m.Table, m.Key, m.DeleteRow, m.PutRow = c.Table, c.Key, c.DeleteRow, c.PutRow
	m.Cells = m.Cells[:0]
	r := c.cells.Reader()
	for i := range c.cells.count {
		var cell Cell
		if err := r.Next(&cell); err != nil {
			return err
		}
		if len(c.dropped) == 0 || i >= c.dropped[string(cell.Column)] {
			m.Cells = append(m.Cells, cell)
		}
	}
	return nil
}
