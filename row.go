package flagstone

import (
	"bytes"
	"fmt"
	"sort"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// Row is a row as a read found it: its primary key and the selected visible
// cells, columns ascending, within a column versions descending. It shares no
// memory with the store.
type Row struct {
	// Cells hold column, version and value (see row.PayloadValue or
	// Row.Value). A row that exists may have none.
	Cells []row.Cell

	key      []row.Value
	rowKey   []byte // the encoded key
	arena    []byte // what rowKey and Cells point into
	keyStore [row.MaxKeyColumns]row.Value
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
	size := len(r.rowKey)
	for i := range r.Cells {
		if c := &r.Cells[i]; i == 0 || !sameName(c, &r.Cells[i-1]) {
			size += len(c.Column)
		}
		size += len(r.Cells[i].Value)
	}
	c := newRow(len(r.Cells))
	c.arena = make([]byte, 0, size)
	c.rowKey = c.copy(r.rowKey)
	// It decoded before.
	c.key, _ = row.DecodeKeyTo(c.keyStore[:0], c.rowKey, len(r.key))
	for i := range r.Cells {
		c.add(&r.Cells[i])
	}
	return c
}

// newRow makes a row with memory for n cells. A row of few cells, and its
// cells, are one allocation.
func newRow(n int) *Row {
	switch {
	case n <= 1:
		r := new(struct {
			Row
			cells [1]row.Cell
		})
		r.Cells = r.cells[:0]
		return &r.Row
	case n <= 4:
		r := new(struct {
			Row
			cells [4]row.Cell
		})
		r.Cells = r.cells[:0]
		return &r.Row
	case n <= 10:
		r := new(struct {
			Row
			cells [10]row.Cell
		})
		r.Cells = r.cells[:0]
		return &r.Row
	case n <= 20:
		r := new(struct {
			Row
			cells [20]row.Cell
		})
		r.Cells = r.cells[:0]
		return &r.Row
	}
	return &Row{Cells: make([]row.Cell, 0, n)}
}

// reset empties the row for a new key, which it copies, and keeps its memory.
func (r *Row) reset(key []byte, columns int) error {
	return r.begin(append(r.arena[:0], key...), columns)
}

// begin empties the row for a new key, which lies at the beginning of arena, the
// row's memory or what it grew to. A key that does not decode is damage that no
// checksum found.
func (r *Row) begin(arena []byte, columns int) error {
	n := len(arena)
	r.arena, r.rowKey = arena, arena[:n:n]
	r.Cells = r.Cells[:0]
	var err error
	if r.key, err = row.DecodeKeyTo(r.keyStore[:0], r.rowKey, columns); err != nil {
		return fmt.Errorf("%w: stored row key %x: %w", ErrCorrupt, r.rowKey, err)
	}
	return nil
}

// read adds the cells of the reader's row, of the first maxColumns columns (0:
// of all).
func (r *Row) read(reader *mvcc.RowReader, maxColumns int) error {
	for columns := 0; reader.NextCell(); {
		c := reader.Cell()
		if n := len(r.Cells); maxColumns > 0 && (n == 0 || !sameName(c, &r.Cells[n-1])) {
			if columns == maxColumns {
				break
			}
			columns++
		}
		r.add(c)
	}
	return reader.Error()
}

// add copies a cell into the row. Cells of one column that follow each other
// share the copy of its name. When the arena grows, earlier cells keep pointing
// into the old one, which stays alive for them.
func (r *Row) add(c *row.Cell) {
	n := len(r.Cells)
	r.Cells = append(r.Cells, *c)
	copied := &r.Cells[n]
	if n > 0 && sameName(c, &r.Cells[n-1]) {
		copied.Column = r.Cells[n-1].Column
	} else {
		copied.Column = r.copy(c.Column)
	}
	copied.Value = r.copy(c.Value)
}

func sameName(a, b *row.Cell) bool { return bytes.Equal(a.Column, b.Column) }

func (r *Row) copy(b []byte) []byte {
	from := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[from:len(r.arena):len(r.arena)]
}
