package flagstone

import (
	"bytes"
	"fmt"
	"iter"
	"sort"
	"strconv"
	"strings"
	"unicode"

	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// Row is a row as a read found it: its primary key and the selected visible cells. It shares no
// memory with the store, unless it is the current one of a scan: see Rows.Row.
//
// A row that does not exist is a nil Row, or after GetInto one without a key. All methods may be
// called on it, and find nothing.
type Row struct {
	cells     []row.Cell
	rowKey    []byte // the encoded key
	key       []row.Value
	keyStore  [row.MaxKeyColumns]row.Value
	ownKey    []byte        // of rowKey, and
	collector row.Collector // of cells, unless they belong to a scan's chunk
	fetched   valuefetch.Values
}

// Exists reports whether the row exists.
func (r *Row) Exists() bool { return len(r.Key()) > 0 }

// Key returns the primary key, one value per key column; nil if the row does not exist.
func (r *Row) Key() []row.Value {
	if r == nil {
		return nil
	}
	return r.key
}

// Cells returns the selected cells, columns ascending, within a column versions descending. A row
// that exists may have none. All are puts with a plain value: of the fields only Column, Version, Type
// and Value matter to a caller, and row.PayloadValue(c.Type, c.Value) is the value. The slice must not
// be changed.
func (r *Row) Cells() []row.Cell {
	if r == nil {
		return nil
	}
	return r.cells
}

// Versions returns the selected versions of a column and their values, the newest first. The values
// have the lifetime of the row.
func (r *Row) Versions(column string) iter.Seq2[int64, row.Value] {
	return func(yield func(int64, row.Value) bool) {
		for cells := r.from(column); len(cells) > 0 && string(cells[0].Column) == column; cells = cells[1:] {
			v, err := row.PayloadValue(cells[0].Type, cells[0].Value)
			if err != nil || !yield(cells[0].Version, v) {
				return
			}
		}
	}
}

// Value returns the newest selected value of a column; false if there is none.
func (r *Row) Value(column string) (row.Value, bool) {
	cells := r.from(column)
	if len(cells) == 0 || string(cells[0].Column) != column {
		return row.Value{}, false
	}
	v, err := row.PayloadValue(cells[0].Type, cells[0].Value)
	return v, err == nil
}

// from returns the cells of a column and of all columns behind it.
func (r *Row) from(column string) []row.Cell {
	cells := r.Cells()
	return cells[sort.Search(len(cells), func(i int) bool { return string(cells[i].Column) >= column }):]
}

// value is Value with the zero Value for a column without one.
func (r *Row) value(column string) row.Value { v, _ := r.Value(column); return v }

// Text returns the newest value of a column as a string; empty unless it is a string or binary.
func (r *Row) Text(column string) string { return r.value(column).Text() }

// Bytes is Text without a copy: the bytes have the lifetime of the row, and must not be changed.
func (r *Row) Bytes(column string) []byte { return r.value(column).Bytes() }

// Int64 returns the newest value of a column; 0 unless it is an integer.
func (r *Row) Int64(column string) int64 { return r.value(column).Int64() }

// Float64 returns the newest value of a column; 0 unless it is a double.
func (r *Row) Float64(column string) float64 { return r.value(column).Float64() }

// Bool returns the newest value of a column; false unless it is a boolean.
func (r *Row) Bool(column string) bool { return r.value(column).Bool() }

// Bounds of what String prints, in bytes.
const (
	printedValue = 256
	printedRow   = 16 << 10
)

// String formats the row for people, as in ["alice" 7] age=30 city="Vienna". Where a column has
// several selected versions, each value is followed by its version, as in city="Vienna"@2000. Names
// of columns that are not plain words are quoted. Long values are cut, and so are rows of more than
// 16 KiB.
func (r *Row) String() string {
	if !r.Exists() {
		return "(no row)"
	}
	var b strings.Builder
	fmt.Fprint(&b, r.key)
	same := func(i, j int) bool { return j < len(r.cells) && bytes.Equal(r.cells[i].Column, r.cells[j].Column) }
	for i := range r.cells {
		if b.Len() > printedRow {
			fmt.Fprintf(&b, " ... (%d more cells)", len(r.cells)-i)
			break
		}
		c := &r.cells[i]
		name := string(c.Column)
		if strings.ContainsFunc(name, func(r rune) bool { return r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) }) {
			name = strconv.Quote(name)
		}
		fmt.Fprintf(&b, " %s=", name)
		if n := len(c.Value); n > printedValue {
			v, _ := row.PayloadValue(c.Type, c.Value[:printedValue])
			fmt.Fprintf(&b, "%s... (%d bytes)", v, n)
		} else {
			v, _ := row.PayloadValue(c.Type, c.Value)
			fmt.Fprint(&b, v)
		}
		if same(i, i+1) || i > 0 && same(i-1, i) {
			fmt.Fprintf(&b, "@%d", c.Version)
		}
	}
	return b.String()
}

// Clone returns a copy that shares no memory with r, for rows of a scan that are used after the
// next step. The copy of a row that does not exist is nil.
func (r *Row) Clone() *Row {
	if !r.Exists() {
		return nil
	}
	c := newRow(len(r.cells))
	c.rowKey = row.CopyCells(&c.collector, r.cells, r.rowKey)
	c.cells = c.collector.Cells
	// The key has been decoded before, so there is no error.
	c.key, _ = row.DecodeKeyTo(c.keyStore[:0], c.rowKey, len(r.key))
	return c
}

// newRow makes a row with memory for n cells. A row of at most 20 cells is one allocation.
func newRow(n int) *Row {
	switch {
	case n <= 1:
		return rowWith(func(a *[1]row.Cell) []row.Cell { return a[:0] })
	case n <= 4:
		return rowWith(func(a *[4]row.Cell) []row.Cell { return a[:0] })
	case n <= 10:
		return rowWith(func(a *[10]row.Cell) []row.Cell { return a[:0] })
	case n <= 20:
		return rowWith(func(a *[20]row.Cell) []row.Cell { return a[:0] })
	}
	r := new(Row)
	r.collector.Cells = make([]row.Cell, 0, n)
	return r
}

// rowWith makes a row with an array of cells behind it.
func rowWith[A any](cells func(*A) []row.Cell) *Row {
	r := new(struct {
		Row
		cells A
	})
	r.collector.Cells = cells(&r.cells)
	return &r.Row
}

// reset empties the row for a new key, which it copies, and keeps its memory.
func (r *Row) reset(key []byte, columns int) (err error) {
	r.ownKey = append(r.ownKey[:0], key...)
	r.collector.Reset()
	r.rowKey, r.cells = r.ownKey, nil
	r.key, err = decodeKey(r.keyStore[:0], r.rowKey, columns)
	return err
}

// release empties the row, so that other rows can use its memory.
func (r *Row) release() {
	r.collector.Reset()
	r.rowKey, r.cells, r.key = nil, nil, nil
	r.fetched.Release()
}

// show sets the row to a key and cells in the memory of a chunk. Errors are those of reset.
func (r *Row) show(key []byte, cells []row.Cell, columns int) (err error) {
	r.rowKey, r.cells = key, cells
	if columns == 1 && row.DecodeOnly(&r.keyStore[0], key) {
		r.key = r.keyStore[:1]
		return nil
	}
	r.key, err = decodeKey(r.keyStore[:0], key, columns)
	return err
}

// decodeKey decodes a stored key, which the values share memory with. A key that does not decode is
// damage that no checksum found.
func decodeKey(dst []row.Value, key []byte, columns int) ([]row.Value, error) {
	values, err := row.DecodeKeyTo(dst, key, columns)
	if err != nil {
		err = fmt.Errorf("%w: stored row key %x: %w", ErrCorrupt, key, err)
	}
	return values, err
}

// explain returns the error of a read, for the caller of which most is the limit in bytes.
func (r *Row) explain(err error, sel *mvcc.Selection) error {
	if err != valuefetch.ErrTooLarge {
		return err
	}
	r.fetched.Release() // other rows must not keep this memory
	var bounds []string
	if sel.MaxBytes > 0 {
		bounds = append(bounds, fmt.Sprintf("%d bytes", sel.MaxBytes))
	}
	if sel.MaxExamined > 0 {
		bounds = append(bounds, fmt.Sprintf("%d cells to look at", sel.MaxExamined))
	}
	return fmt.Errorf("%w: more than %s in row %v", ErrRowTooLarge, strings.Join(bounds, " or "), r.key)
}

// detach is Clone for a row that is not used any more: the copy takes over the fetched values.
func (r *Row) detach() *Row {
	values := r.fetched.TakeOut(r.cells)
	c := r.Clone()
	r.fetched.PutInto(c.cells, values)
	return c
}
