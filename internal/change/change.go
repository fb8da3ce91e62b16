// Package change is a row's change on its way into a write: what a caller gathers, its checks, the
// trims it needs, and what columns held before.
package change

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// ErrVersionOutOfRange: a cell's version lies at or above the time of the write plus the table's
// Max Version Offset, or is expired because it is in seconds instead of milliseconds.
var ErrVersionOutOfRange = errors.New("flagstone: cell version out of range")

// Change gathers the operations on one row, which are applied together; flagstone.RowChange
// describes them. It is used again after Init.
type Change struct {
	Table *table.Table
	Err   error      // the first mistake that nothing undoes
	Era   *table.Era // of the table, when the change was worked out
	// Unlatched: the change is gathered while other writers may change the row. So puts at Now get
	// their version in check: then stamped is set, and copy is the change with that version.
	// Otherwise they get Now, the time of the first of them; 0 before that.
	Unlatched bool
	Now       int64
	// Written is what the change's transaction has written; nil if it has none.
	Written *memtable.Memtable

	row     row.Change
	stamped bool
	copy    *row.Change // nil before it is needed
	// partitions are those that the table had when the change began, and home is the row's among them.
	partitions *partition.Map
	home       *partition.Tree
	// bad is the first mistake of each column; a delete of the row or of the column undoes it.
	bad      map[string]badCell
	mistakes int // noted so far
	// trims are those that FindTrims found, if found is set.
	trims []row.Cell
	found bool
}

// badCell is a cell that was refused.
type badCell struct {
	order int // the number of the mistake
	err   error
}

// Init begins the change of a row, in memory that may have been used before. Err says what is wrong
// with the key.
func (c *Change) Init(t *table.Table, key []row.Value) {
	c.row.Reset()
	c.bad, c.stamped, c.Now, c.found = nil, false, 0, false
	c.Table, c.row.Table, c.Written = t, t.ID, nil
	if c.row.Key, c.Err = t.EncodeKey(c.row.Key, key); c.Err == nil {
		c.partitions = t.Partitions.Load()
		c.home = c.partitions.Find(c.row.Key)
		c.home.Expect()
	}
}

// Expect prefetches the memory of the row's partition, once what Init has asked for has come.
func (c *Change) Expect() { c.home.ExpectMemory() }

// Release lets go of the table. The memory of the change may be used again.
func (c *Change) Release() {
	c.Table, c.Era, c.Err, c.home, c.partitions = nil, nil, nil, nil, nil
}

// Key is the encoded key of the row.
func (c *Change) Key() []byte { return c.row.Key }

// DeletesVersions reports whether the change deletes single versions, and so needs trims.
func (c *Change) DeletesVersions() bool { return c.row.DeletesVersions() }

// Cap is the memory of the change, in bytes.
func (c *Change) Cap() int { return c.row.Cap() }

// Bytes is the length of the key and the cells of the change, in bytes.
func (c *Change) Bytes() int64 { return int64(len(c.row.Key) + len(c.row.Cells().Bytes())) }

// Hash is the row's hash for latches.
func (c *Change) Hash() uint64 { return commit.RowHash(c.Table.ID, c.row.Key) }

// PutRow replaces the row: what it held is deleted, and it exists afterwards even if nothing is
// put into it.
func (c *Change) PutRow() {
	c.DeleteRow()
	c.row.PutRow = true
}

// DeleteRow deletes the row with everything in it.
func (c *Change) DeleteRow() {
	c.row.DeleteRow, c.row.PutRow = true, false
	c.row.DropCells()
	c.bad = nil
}

// Put sets a column's value at a version: row.Unstamped is the time of the write.
func (c *Change) Put(column string, version int64, v row.Value) {
	if !v.Type().IsAttributeType() {
		if c.Err == nil {
			c.Err = fmt.Errorf("%w: table %q, column %q: %s is no attribute value", commit.ErrInvalid, c.Table.Name, column, v.Type())
		}
		return
	}
	if version == row.Unstamped && !c.Unlatched {
		if c.Now == 0 {
			c.Now = c.Table.Issued.Millis()
		}
		version = c.Now
	}
	if n := v.Size(); n >= c.Table.PackFrom && n <= row.MaxValueBytes {
		put := func(packed []byte) { c.note(column, c.row.PutPacked(column, version, v.Type(), packed)) }
		if valuefile.PackTo(v.Bytes(), put) {
			return
		}
	}
	c.note(column, c.row.Put(column, version, v))
}

// DeleteVersion deletes exactly one version of a column.
func (c *Change) DeleteVersion(column string, version int64) {
	c.note(column, c.row.Add(column, version, row.KindDeleteVersion))
}

// DeleteColumn deletes a column with all its versions. The row still exists afterwards.
func (c *Change) DeleteColumn(column string) {
	delete(c.bad, column)
	c.row.DropColumn(column)
	c.note(column, c.row.Add(column, row.MaxVersion, row.KindTrim))
}

// note keeps the first mistake of a column.
func (c *Change) note(column string, err error) {
	if _, earlier := c.bad[column]; err == nil || earlier {
		return
	}
	if c.bad == nil {
		c.bad = make(map[string]badCell)
	}
	c.mistakes++
	c.bad[strings.Clone(column)] = badCell{c.mistakes, err}
}

// Empty reports whether the change does nothing and has no mistake.
func (c *Change) Empty() bool { return c.Err == nil && len(c.bad) == 0 && c.row.Empty() }

// check returns the first mistake: of a call, beyond the model's limits, a version beyond the
// table's Max Version Offset, or one that is expired because it is in seconds. If there is none,
// the change to write is normalized afterwards: see current.
func (c *Change) check(nowMillis int64) error {
	if c.Err != nil {
		return c.Err
	}
	if len(c.bad) > 0 {
		first := slices.MinFunc(slices.Collect(maps.Values(c.bad)), func(a, b badCell) int { return a.order - b.order })
		return fmt.Errorf("%w: table %q: %w", commit.ErrInvalid, c.Table.Name, first.err)
	}
	err := c.stamp(nowMillis)
	change := c.current()
	if err == nil {
		err = change.Normalize()
	}
	if err != nil {
		return fmt.Errorf("%w: table %q: %w", commit.ErrInvalid, c.Table.Name, err)
	}
	if err := c.Table.Gone(); err != nil {
		return err
	}
	options := &c.Table.Era.Load().Options
	limit := VersionLimit(nowMillis, options.MaxVersionOffsetSeconds)
	if change.Newest() < limit && (options.TTLSeconds == manifest.NeverExpires || change.Oldest() > (nowMillis+aboutNow)/1000) {
		return nil
	}
	var m row.Mutation
	if err := change.Mutation(&m); err != nil {
		return err
	}
	for i := range m.Cells {
		cell := &m.Cells[i]
		if cell.Kind != row.KindPut {
			continue
		}
		if err := CheckVersion(c.Table, string(cell.Column), cell.Version, nowMillis); err != nil {
			return err
		}
	}
	return nil
}

// CheckVersion returns why a put of a column at a version is refused at a time; nil if it is not.
func CheckVersion(t *table.Table, column string, v, nowMillis int64) error {
	options := &t.Era.Load().Options
	switch expired := mvcc.CutoffAt(nowMillis, options.TTLSeconds); {
	case v >= VersionLimit(nowMillis, options.MaxVersionOffsetSeconds):
		return fmt.Errorf("%w: table %q, column %q: version %d, now is %d and the offset %d s",
			ErrVersionOutOfRange, t.Name, column, v, nowMillis, options.MaxVersionOffsetSeconds)
	case v/1000 < expired && v >= (nowMillis-aboutNow)/1000 && v <= (nowMillis+aboutNow)/1000:
		return fmt.Errorf("%w: table %q, column %q: version %d is expired, and looks like seconds: versions are in milliseconds (%d000?)",
			ErrVersionOutOfRange, t.Name, column, v, v)
	}
	return nil
}

// stamp gives puts at Now their version, in a copy: if this attempt writes nothing, the next one has
// another time.
func (c *Change) stamp(now int64) error {
	if c.stamped = c.row.Unstamped(); !c.stamped {
		return nil
	}
	if c.copy == nil {
		c.copy = new(row.Change)
	}
	return c.row.StampTo(c.copy, now)
}

// current is the change that was gathered, with the versions of this attempt.
func (c *Change) current() *row.Change {
	if c.stamped {
		return c.copy
	}
	return &c.row
}

// keepStamp makes the versions of this attempt those of every later one, which is the same write.
func (c *Change) keepStamp() {
	if c.stamped {
		c.row, *c.copy, c.stamped = *c.copy, c.row, false
	}
}

// Larger reports whether the change has more than keep bytes of memory.
func (c *Change) Larger(keep int) bool {
	return c.row.Cap() > keep || c.copy != nil && c.copy.Cap() > keep
}

// aboutNow is how far from the clock, in milliseconds, a version taken as seconds may lie.
const aboutNow = 365 * 24 * 3600 * 1000

// VersionLimit is the smallest version that is too high for a put made now.
func VersionLimit(nowMillis, offsetSeconds int64) int64 {
	if offsetSeconds > (row.MaxVersion-nowMillis)/1000 {
		return math.MaxInt64
	}
	return nowMillis + offsetSeconds*1000
}

// FindTrims looks for the trims that the deletes of single versions need (rule 6 of the rule-book),
// before the change is prepared. It looks at most cells of the row, 0 for all, or returns
// table.ErrManyCells. REQUIRES: if another writer changes the row before the change is written, the
// change is not written.
func (c *Change) FindTrims(most int) error {
	c.trims = nil
	if c.Err != nil || len(c.bad) > 0 || c.row.DeleteRow || !c.row.DeletesVersions() {
		return nil // a DeleteRow hides everything older anyway
	}
	var m row.Mutation
	if err := c.row.Mutation(&m); err != nil {
		return err
	}
	// A put at Now gets its version later, and may take the place of a delete then. Its trim hides nothing that is visible.
	m.Cells = slices.DeleteFunc(m.Cells, func(cell row.Cell) bool { return cell.Version == row.Unstamped })
	if m.Normalize() != nil {
		return nil // Prepare says what is wrong
	}
	var left *int
	if most > 0 {
		left = &most
	}
	n := len(m.Cells)
	err := mvcc.AddTrims(&m, func(column []byte) ([]int64, int, error) {
		return c.Table.Versions(m.Key, column, c.Written, left)
	})
	c.trims, c.found = m.Cells[n:], err == nil
	for i := range c.trims {
		c.trims[i].Column = bytes.Clone(c.trims[i].Column)
	}
	return err
}

// withTrims returns the change to write: the one gathered, or a copy with the trims that deletes
// of single versions need. The gathered change stays as it is, since a batch that fails may be
// applied again. REQUIRES: check returned nil, and no other writer can change the row.
func (c *Change) withTrims() (*row.Change, error) {
	change := c.current()
	if change.DeleteRow || !change.DeletesVersions() {
		return change, nil
	}
	if !c.found {
		if err := c.FindTrims(0); err != nil {
			return nil, err
		}
	}
	c.found = false // another attempt may find others
	var m row.Mutation
	if err := change.Mutation(&m); err != nil {
		return nil, err
	}
	m.Cells = append(m.Cells, c.trims...)
	trimmed := new(row.Change)
	if err := trimmed.Set(&m); err != nil {
		return nil, fmt.Errorf("%w: table %q: %w", commit.ErrInvalid, c.Table.Name, err)
	}
	return trimmed, nil
}
