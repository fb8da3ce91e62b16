package flagstone

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// Row is a row as a read found it: its primary key and the selected visible
// cells, columns ascending, within a column versions descending. It shares no
// memory with the store.
type Row struct {
	// Cells hold column, version and value (see row.PayloadValue or
	// Row.Value). A row that exists may have none.
	Cells []row.Cell

	key    []row.Value
	rowKey []byte // the encoded key
	arena  []byte // what rowKey and Cells point into
}

// Key returns the primary key, one value per key column.
func (r *Row) Key() []row.Value { return r.key }

// Value returns the newest value of a column; false if the column is absent.
func (r *Row) Value(column string) (row.Value, bool) {
	i := sort.Search(len(r.Cells), func(i int) bool {
		return string(r.Cells[i].Column) >= column
	})
	if i == len(r.Cells) || string(r.Cells[i].Column) != column {
		return row.Value{}, false
	}
	v, err := row.PayloadValue(r.Cells[i].Type, r.Cells[i].Value)
	return v, err == nil
}

// Clone returns a copy that shares no memory with r, for rows of a scan that are
// to outlive the next step.
func (r *Row) Clone() *Row {
	c := &Row{rowKey: bytes.Clone(r.rowKey), Cells: make([]row.Cell, len(r.Cells))}
	for _, v := range r.key {
		c.key = append(c.key, v.Clone())
	}
	for i := range r.Cells {
		c.Cells[i] = r.Cells[i].Clone()
	}
	return c
}

// reset empties the row for a new key and keeps its memory. A key that does
// not decode is damage that no checksum found.
func (r *Row) reset(key []byte, columns int) error {
	r.arena = append(r.arena[:0], key...)
	r.rowKey = r.arena[:len(key):len(key)]
	r.Cells = r.Cells[:0]
	var err error
	if r.key, err = row.DecodeKeyTo(r.key[:0], r.rowKey, columns); err != nil {
		return fmt.Errorf("%w: stored row key %x: %w", ErrCorrupt, key, err)
	}
	return nil
}

// add copies a cell into the row. Cells of one column that follow each other
// share the copy of its name. When the arena grows, earlier cells keep pointing
// into the old one, which stays alive for them.
func (r *Row) add(c *row.Cell) {
	copied := *c
	if n := len(r.Cells); n > 0 && bytes.Equal(r.Cells[n-1].Column, c.Column) {
		copied.Column = r.Cells[n-1].Column
	} else {
		copied.Column = r.copy(c.Column)
	}
	copied.Value = r.copy(c.Value)
	r.Cells = append(r.Cells, copied)
}

func (r *Row) copy(b []byte) []byte {
	from := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[from:len(r.arena):len(r.arena)]
}
