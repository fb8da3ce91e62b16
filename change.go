package flagstone

import (
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/row"
)

// RowChange gathers what is to be done to one row, all of it at once: what a
// later call undoes was never done. So a put that a later call deletes does not
// bring the row into being.
type RowChange struct {
	table    *Table
	mutation row.Mutation
	err      error // the first mistake
}

func (c *RowChange) init(t *Table, key []row.Value) {
	encoded, err := t.encodeKey(nil, key)
	*c = RowChange{table: t, err: err}
	c.mutation.Table, c.mutation.Key = t.id, encoded
}

// PutRow replaces the row: what it held before is deleted, and it exists
// afterwards, also if nothing is put into it.
func (c *RowChange) PutRow() {
	c.DeleteRow()
	c.mutation.PutRow = true
}

// DeleteRow deletes the row with everything in it.
func (c *RowChange) DeleteRow() {
	c.mutation.DeleteRow, c.mutation.PutRow = true, false
	c.mutation.Cells = c.mutation.Cells[:0]
}

// Put sets a column's value at a version, in milliseconds (Store.NowMillis is
// the usual one). Other versions of the column stay, as far as the table's Max
// Versions lets them. The row exists afterwards. The bytes of a string or binary
// are not copied here; they must stay as they are until the write has returned.
func (c *RowChange) Put(column string, version int64, v row.Value) {
	if !v.Type().IsAttributeType() {
		c.fail(fmt.Errorf("%w: table %q, column %q: %s is no attribute value", ErrInvalid, c.table.name, column, v.Type()))
		return
	}
	value := v.Bytes()
	if value == nil {
		value = v.AppendPayload(nil)
	}
	c.add(column, row.Cell{Version: version, Kind: row.KindPut, Type: v.Type(), Value: value})
}

// DeleteVersion deletes exactly one version of a column.
func (c *RowChange) DeleteVersion(column string, version int64) {
	c.add(column, row.Cell{Version: version, Kind: row.KindDeleteVersion})
}

// DeleteColumn deletes a column with all its versions. The row goes on
// existing.
func (c *RowChange) DeleteColumn(column string) {
	kept := c.mutation.Cells[:0]
	for _, cell := range c.mutation.Cells {
		if string(cell.Column) != column {
			kept = append(kept, cell)
		}
	}
	c.mutation.Cells = kept
	c.add(column, row.Cell{Version: row.MaxVersion, Kind: row.KindTrim})
}

func (c *RowChange) add(column string, cell row.Cell) {
	cell.Column = []byte(column)
	c.mutation.Cells = append(c.mutation.Cells, cell)
}

func (c *RowChange) fail(err error) {
	if c.err == nil {
		c.err = err
	}
}

// empty reports whether nothing is to be done.
func (c *RowChange) empty() bool {
	return !c.mutation.DeleteRow && len(c.mutation.Cells) == 0
}

// check returns the first mistake: of the calls made, of the model's limits,
// or a version beyond the table's Max Version Offset.
func (c *RowChange) check(nowMillis int64) error {
	if c.err != nil {
		return c.err
	}
	if err := c.mutation.Normalize(); err != nil {
		return fmt.Errorf("%w: table %q: %w", ErrInvalid, c.table.name, err)
	}
	meta := c.table.meta()
	if meta == nil {
		return fmt.Errorf("%w: %q was dropped", ErrTableNotFound, c.table.name)
	}
	limit := versionLimit(nowMillis, meta.Options.MaxVersionOffsetSeconds)
	for i := range c.mutation.Cells {
		if cell := &c.mutation.Cells[i]; cell.Kind == row.KindPut && cell.Version >= limit {
			return fmt.Errorf("%w: table %q, column %q: version %d, now is %d and the offset %d s",
				ErrVersionOutOfRange, c.table.name, cell.Column, cell.Version, nowMillis, meta.Options.MaxVersionOffsetSeconds)
		}
	}
	return nil
}

// versionLimit is the first version that a put made now may not have.
func versionLimit(nowMillis, offsetSeconds int64) int64 {
	if offsetSeconds > (row.MaxVersion-nowMillis)/1000 {
		return math.MaxInt64
	}
	return nowMillis + offsetSeconds*1000
}
