package flagstone

import (
	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/row"
)

// RowChange gathers the operations on one row, which are applied together. What a later call
// undoes has no effect: a put that a later call deletes does not create the row.
//
// Put copies columns and values, so the caller may use their memory again as soon as it returns.
// Columns put in ascending order are cheapest.
type RowChange struct {
	of change.Change
}

// PutRow replaces the row: what it held is deleted, and it exists afterwards even if nothing is
// put into it.
func (c *RowChange) PutRow() { c.of.PutRow() }

// DeleteRow deletes the row with everything in it.
func (c *RowChange) DeleteRow() { c.of.DeleteRow() }

// Now, as the version of a put, stands for the time of the write, as Store.NowMillis gives it while
// no other writer can change the row: no earlier write with Now hides it. All rows of a batch have
// one time, and so have all puts of an update to a row. A batch that is applied once more after it
// was written keeps its time.
const Now int64 = row.Unstamped

// Put sets a column's value at a version: Now, or a time in milliseconds. In a table with a Time
// To Live, an expired version that, taken as seconds, lies within a year of now is
// refused (ErrVersionOutOfRange). Other versions of the column stay, within the table's Max
// Versions. The row exists afterwards.
func (c *RowChange) Put(column string, version int64, v row.Value) { c.of.Put(column, version, v) }

// DeleteVersion deletes exactly one version of a column.
func (c *RowChange) DeleteVersion(column string, version int64) { c.of.DeleteVersion(column, version) }

// DeleteColumn deletes a column with all its versions. The row still exists afterwards.
func (c *RowChange) DeleteColumn(column string) { c.of.DeleteColumn(column) }
