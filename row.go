package flagstone

import (
	"fmt"
	"sort"

	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// Row is a row as a read found it: its primary key and the selected visible
// cells, columns ascending, within a column versions descending. It shares no
// memory with the store, unless it is the current one of a scan: see Rows.Row.
//
// A nil Row is a row that does not exist: its methods may be called and find nothing; its field
// Cells must not be read.
type Row struct {
	// Cells hold column, version and value (see row.PayloadValue or
	// Row.Value). A row that exists may have none.
	Cells []row.Cell

	rowKey    []byte // the encoded key
	key       []row.Value
	keyStore  [row.MaxKeyColumns]row.Value
	ownKey    []byte        // of rowKey, and
	collector row.Collector // of Cells, unless
	shown     bool          // they belong to a scan's chunk
	fetched   valuefetch.Values
}

// Key returns the primary key, one value per key column; nil of a nil Row.
func (r *Row) Key() []row.Value {
	if r == nil {
		return nil
	}
	return r.key
}

// Value returns the newest value of a column; false if the column is absent or the Row is nil.
func (r *Row) Value(column string) (row.Value, bool) {
	if r == nil {
		return row.Value{}, false
	}
	i := sort.Search(len(r.Cells), func(i int) bool {
		return string(r.Cells[i].Column) >= column
	})
	if i == len(r.Cells) || string(r.Cells[i].Column) != column {
		return row.Value{}, false
	}
	v, err := row.PayloadValue(r.Cells[i].Type, r.Cells[i].Value)
	return v, err == nil
}

// Clone returns a copy that shares no memory with r, for rows of a scan that are used after the
// next step. The copy of a nil Row is nil.
func (r *Row) Clone() *Row {
	if r == nil {
		return nil
	}
	c, from := newRow(len(r.Cells)), r.collector
	from.Cells = r.Cells // may be fewer than the collector's
	if r.shown {
		c.rowKey = row.CopyCells(&c.collector, r.Cells, r.rowKey)
	} else {
		c.rowKey = from.CloneTo(&c.collector, r.rowKey)
	}
	c.Cells = c.collector.Cells
	// The key has been decoded before, so there is no error.
	c.key, _ = row.DecodeKeyTo(c.keyStore[:0], c.rowKey, len(r.key))
	return c
}

// newRow makes a row with memory for n cells. A row of at most 20 cells is one allocation.
func newRow(n int) *Row {
	switch {
	case n <= 1:
		r := new(struct {
			Row
			cells [1]row.Cell
		})
		r.collector.Cells = r.cells[:0]
		return &r.Row
	case n <= 4:
		r := new(struct {
			Row
			cells [4]row.Cell
		})
		r.collector.Cells = r.cells[:0]
		return &r.Row
	case n <= 10:
		r := new(struct {
			Row
			cells [10]row.Cell
		})
		r.collector.Cells = r.cells[:0]
		return &r.Row
	case n <= 20:
		r := new(struct {
			Row
			cells [20]row.Cell
		})
		r.collector.Cells = r.cells[:0]
		return &r.Row
	}
	r := new(Row)
	r.collector.Cells = make([]row.Cell, 0, n)
	return r
}

// reset empties the row for a new key, which it copies, and keeps its memory. A key that does not
// decode is damage that no checksum found.
func (r *Row) reset(key []byte, columns int) (err error) {
	r.ownKey = append(r.ownKey[:0], key...)
	r.collector.Reset()
	r.rowKey, r.Cells, r.shown = r.ownKey, nil, false
	return r.decodeKey(columns)
}

// release empties the row, so that other rows can use its memory.
func (r *Row) release() {
	r.collector.Reset()
	r.rowKey, r.Cells, r.key, r.shown = nil, nil, nil, false
	r.fetched.Release()
}

// show sets the row to a key and cells in the memory of a chunk. Errors are those of reset.
func (r *Row) show(key []byte, cells []row.Cell, columns int) error {
	r.rowKey, r.Cells, r.shown = key, cells, true
	if columns == 1 && row.DecodeOnly(&r.keyStore[0], key) {
		r.key = r.keyStore[:1]
		return nil
	}
	return r.decodeKey(columns)
}

func (r *Row) decodeKey(columns int) (err error) {
	if r.key, err = row.DecodeKeyTo(r.keyStore[:0], r.rowKey, columns); err != nil {
		return fmt.Errorf("%w: stored row key %x: %w", ErrCorrupt, r.rowKey, err)
	}
	return nil
}

// read collects the cells of the reader's current row, of the first maxColumns columns (0: all).
// It reports whether the row exists; if the reader has an error, false means nothing.
func (r *Row) read(reader *mvcc.RowReader, maxColumns int) bool {
	exists := reader.Collect(&r.collector, maxColumns)
	r.Cells = r.collector.Cells
	return exists
}
