package flagstone

import (
	"fmt"
	"math"
	"strings"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// RowChange gathers the operations on one row, which are applied together. What a later call
// undoes has no effect: a put that a later call deletes does not create the row.
//
// Put copies columns and values, so the caller may use their memory again as soon as it returns.
// Columns put in ascending order are cheapest.
type RowChange struct {
	table  *Table
	change row.Change
	era    *era // of the table, when the change was worked out
	// unlatched: the change is gathered while other writers may change the row. So puts at Now get
	// their version in check: then stamped is set, and copy is change with that version. Otherwise
	// they get now, the time of the first of them; 0 before that.
	unlatched, stamped bool
	copy               *row.Change // nil before it is needed
	now                int64
	// written is what the change's transaction has written; nil if it has none.
	written *memtable.Memtable
	err     error // the first mistake that nothing undoes
	// bad is the first mistake of each column; a delete of the row or of the column undoes it.
	bad      map[string]badCell
	mistakes int // noted so far
}

// badCell is a cell that was refused.
type badCell struct {
	order int // the number of the mistake
	err   error
}

// init begins the change of a row, in memory that may have been used before.
func (c *RowChange) init(t *Table, key []row.Value) {
	c.change.Reset()
	c.bad, c.stamped, c.now = nil, false, 0
	c.table, c.change.Table, c.written = t, t.id, nil
	c.change.Key, c.err = t.encodeKey(c.change.Key, key)
}

// PutRow replaces the row: what it held is deleted, and it exists afterwards even if nothing is
// put into it.
func (c *RowChange) PutRow() {
	c.DeleteRow()
	c.change.PutRow = true
}

// DeleteRow deletes the row with everything in it.
func (c *RowChange) DeleteRow() {
	c.change.DeleteRow, c.change.PutRow = true, false
	c.change.DropCells()
	c.bad = nil
}

// Now, as the version of a put, stands for the time of the write, as Store.NowMillis gives it while
// no other writer can change the row: no earlier write with Now hides it. All rows of a batch have
// one time, and so have all puts of an update to a row. A batch that is applied once more after it
// was written keeps its time.
const Now int64 = math.MinInt64

const _, _ = uint(Now - row.Unstamped), uint(row.Unstamped - Now) // they are the same

// Put sets a column's value at a version: Now, or a time in milliseconds. In a table with a Time
// To Live, an expired version that, taken as seconds, lies within a year of now is
// refused (ErrVersionOutOfRange). Other versions of the column stay, within the table's Max
// Versions. The row exists afterwards.
func (c *RowChange) Put(column string, version int64, v row.Value) {
	if !v.Type().IsAttributeType() {
		if c.err == nil {
			c.err = fmt.Errorf("%w: table %q, column %q: %s is no attribute value", ErrInvalid, c.table.name, column, v.Type())
		}
		return
	}
	if version == Now && !c.unlatched {
		if c.now == 0 {
			c.now = c.table.store.issued.Millis()
		}
		version = c.now
	}
	if n := v.Size(); n >= c.table.packFrom() && n <= row.MaxValueBytes {
		put := func(packed []byte) { c.note(column, c.change.PutPacked(column, version, v.Type(), packed)) }
		if valuefile.PackTo(v.Bytes(), put) {
			return
		}
	}
	c.note(column, c.change.Put(column, version, v))
}

// DeleteVersion deletes exactly one version of a column.
func (c *RowChange) DeleteVersion(column string, version int64) {
	c.note(column, c.change.Add(column, version, row.KindDeleteVersion))
}

// DeleteColumn deletes a column with all its versions. The row still exists afterwards.
func (c *RowChange) DeleteColumn(column string) {
	delete(c.bad, column)
	c.change.DropColumn(column)
	c.note(column, c.change.Add(column, row.MaxVersion, row.KindTrim))
}

// note keeps the first mistake of a column.
func (c *RowChange) note(column string, err error) {
	if err == nil {
		return
	}
	if _, earlier := c.bad[column]; earlier {
		return
	}
	if c.bad == nil {
		c.bad = make(map[string]badCell)
	}
	c.mistakes++
	c.bad[strings.Clone(column)] = badCell{c.mistakes, err}
}

// firstBad is the first mistake that was not undone, nil if there is none.
func (c *RowChange) firstBad() error {
	var first badCell
	for _, b := range c.bad {
		if first.err == nil || b.order < first.order {
			first = b
		}
	}
	return first.err
}

// empty reports whether the change does nothing and has no mistake.
func (c *RowChange) empty() bool { return c.err == nil && len(c.bad) == 0 && c.change.Empty() }

// check returns the first mistake: of a call, beyond the model's limits, a version beyond the
// table's Max Version Offset, or one that is expired because it is in seconds. If there is none,
// the change to write is normalized afterwards: see current.
func (c *RowChange) check(nowMillis int64) error {
	if c.err != nil {
		return c.err
	}
	if len(c.bad) > 0 {
		return fmt.Errorf("%w: table %q: %w", ErrInvalid, c.table.name, c.firstBad())
	}
	err := c.stamp(nowMillis)
	change := c.current()
	if err == nil {
		err = change.Normalize()
	}
	if err != nil {
		return fmt.Errorf("%w: table %q: %w", ErrInvalid, c.table.name, err)
	}
	if c.table.dropped.Load() {
		return fmt.Errorf("%w: %q was dropped", ErrTableNotFound, c.table.name)
	}
	options := &c.table.era.Load().options
	offset := options.MaxVersionOffsetSeconds
	limit := versionLimit(nowMillis, offset)
	if change.Newest() < limit && (options.TTLSeconds == NeverExpires || change.Oldest() > (nowMillis+aboutNow)/1000) {
		return nil
	}
	expired := mvcc.CutoffAt(nowMillis, options.TTLSeconds)
	var m row.Mutation
	if err := change.Mutation(&m); err != nil {
		return err
	}
	for i := range m.Cells {
		cell := &m.Cells[i]
		switch v := cell.Version; {
		case cell.Kind != row.KindPut:
		case v >= limit:
			return fmt.Errorf("%w: table %q, column %q: version %d, now is %d and the offset %d s",
				ErrVersionOutOfRange, c.table.name, cell.Column, v, nowMillis, offset)
		case v/1000 < expired && v >= (nowMillis-aboutNow)/1000 && v <= (nowMillis+aboutNow)/1000:
			return fmt.Errorf("%w: table %q, column %q: version %d is expired, and looks like seconds: versions are in milliseconds (%d000?)",
				ErrVersionOutOfRange, c.table.name, cell.Column, v, v)
		}
	}
	return nil
}

// stamp gives puts at Now their version, in a copy: if this attempt writes nothing, the next one has
// another time.
func (c *RowChange) stamp(now int64) error {
	if c.stamped = c.change.Unstamped(); !c.stamped {
		return nil
	}
	if c.copy == nil {
		c.copy = new(row.Change)
	}
	return c.change.StampTo(c.copy, now)
}

// current is the change that was gathered, with the versions of this attempt.
func (c *RowChange) current() *row.Change {
	if c.stamped {
		return c.copy
	}
	return &c.change
}

// keepStamp makes the versions of this attempt those of every later one, which is the same write.
func (c *RowChange) keepStamp() {
	if c.stamped {
		c.change, *c.copy, c.stamped = *c.copy, c.change, false
	}
}

// large reports whether the change has more memory than should be kept for the next one.
func (c *RowChange) large() bool {
	const keep = 1 << 20
	return c.change.Cap() > keep || c.copy != nil && c.copy.Cap() > keep
}

// aboutNow is how far from the clock, in milliseconds, a version taken as seconds may lie.
const aboutNow = 365 * 24 * 3600 * 1000

// versionLimit is the smallest version that is too high for a put made now.
func versionLimit(nowMillis, offsetSeconds int64) int64 {
	if offsetSeconds > (row.MaxVersion-nowMillis)/1000 {
		return math.MaxInt64
	}
	return nowMillis + offsetSeconds*1000
}

// withTrims returns the change to write: the one gathered, or a copy with the trims that deletes
// of single versions need (rule 6 of the rule-book). The gathered change stays as it is, since a
// batch that fails may be applied again. REQUIRES: check returned nil, and no other writer can
// change the row.
func (c *RowChange) withTrims() (*row.Change, error) {
	change := c.current()
	if change.DeleteRow || !change.DeletesVersions() {
		return change, nil // a DeleteRow hides everything older anyway
	}
	var m row.Mutation
	if err := change.Mutation(&m); err != nil {
		return nil, err
	}
	err := mvcc.AddTrims(&m, func(column []byte) ([]int64, int, error) {
		return c.table.visibleVersions(m.Key, column, c.written)
	})
	if err != nil {
		return nil, err
	}
	trimmed := new(row.Change)
	if err := trimmed.Set(&m); err != nil {
		return nil, fmt.Errorf("%w: table %q: %w", ErrInvalid, c.table.name, err)
	}
	return trimmed, nil
}
