package modeltest

// This file models the rows of one table, and the effects of changes.

import (
	"maps"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/ots"
)

// id is the primary key of a row: the partition key and one more column.
type id struct {
	p string
	k int64
}

// forever is the marker of a row that was put without attributes.
const forever = math.MaxInt64

// line is one row: the time until which it exists, and its columns. It stays in the model after
// expiry, since a longer Time To Live may bring it back.
type line struct {
	marker  int64 // the row exists until this version expires
	columns map[string]*column
}

// column has visible versions, and surplus or expired ones. The latter may still be on disk;
// only a change of options shows whether they are.
type column struct {
	shown map[int64]any // int64 or string, by version
	lost  map[int64]any
}

// settings are the options of the table, and the clock.
type settings struct {
	versions int
	ttl      int64 // seconds, -1 never
	offset   int64 // seconds
	now      int64 // milliseconds
	// floor is the expiry watermark in seconds: no older version is visible, whatever the time
	// to live. The model cannot know how compactions raise it, so it reads it after a change of
	// options; from then on, only the time to live hides more.
	floor int64
}

func (s *settings) expired(version int64) bool {
	if version == forever {
		return false
	}
	return version/1000 < s.floor || s.ttl >= 0 && version/1000+s.ttl < s.now/1000
}

// lines are the rows of a table, or of a partition key in a transaction.
type lines map[id]*line

// clone copies the rows of one partition key.
func (l lines) clone(p string) lines {
	c := lines{}
	for key, from := range l {
		if key.p != p {
			continue
		}
		to := &line{marker: from.marker, columns: map[string]*column{}}
		for name, col := range from.columns {
			to.columns[name] = &column{maps.Clone(col.shown), maps.Clone(col.lost)}
		}
		c[key] = to
	}
	return c
}

// replace replaces the rows of one partition key.
func (l lines) replace(p string, by lines) {
	maps.DeleteFunc(l, func(key id, _ *line) bool { return key.p == p })
	maps.Copy(l, by)
}

// find returns a row if it exists, after dropping expired and surplus versions.
func (l lines) find(s *settings, key id) *line {
	r := l[key]
	if r == nil {
		return nil
	}
	for _, col := range r.columns {
		col.settle(s)
	}
	if s.expired(r.marker) {
		return nil
	}
	return r
}

// newest sorts versions from newest to oldest.
func newest(cells map[int64]any) []int64 {
	versions := slices.Sorted(maps.Keys(cells))
	slices.Reverse(versions)
	return versions
}

func (c *column) settle(s *settings) {
	kept := 0
	for _, version := range newest(c.shown) {
		if kept < s.versions && !s.expired(version) {
			kept++
			continue
		}
		c.lost[version] = c.shown[version]
		delete(c.shown, version)
	}
}

// errorOf is the error code of a change, "" for none. It covers the errors that depend on the
// row and the time; the tests make no malformed changes.
func (l lines) errorOf(s *settings, key id, c *ots.RowChange) string {
	for _, cell := range c.Row.Cells {
		if cell.Op == ots.OpPut && cell.HasVersion && !s.inWindow(cell.Version) {
			return ots.CodeParameterInvalid
		}
	}
	r := l.find(s, key)
	switch {
	case c.Existence == ots.ExistenceExpect && r == nil, c.Existence == ots.ExistenceExpectNot && r != nil:
		return ots.CodeConditionCheckFail
	case c.ColumnCondition != nil && !passes(c.ColumnCondition, r.everything(key)):
		return ots.CodeConditionCheckFail
	}
	for _, cell := range c.Row.Cells {
		if cell.Op != ots.OpIncrement || r == nil || r.columns[cell.Name] == nil || len(r.columns[cell.Name].shown) == 0 {
			continue
		}
		last := newest(r.columns[cell.Name].shown)[0]
		n, integer := r.columns[cell.Name].shown[last].(int64)
		by := cell.Value.Int64()
		if !integer || by > 0 && n > math.MaxInt64-by || by < 0 && n < math.MinInt64-by {
			return ots.CodeParameterInvalid
		}
	}
	return ""
}

// beyond reports whether a valid change increments a column whose newest version lies further
// ahead than the offset, made smaller since, allows: the sum would replace it at a version that
// is not allowed.
func (l lines) beyond(s *settings, key id, c *ots.RowChange) bool {
	r := l.find(s, key)
	return r != nil && slices.ContainsFunc(c.Row.Cells, func(cell ots.Cell) bool {
		col := r.columns[cell.Name]
		return cell.Op == ots.OpIncrement && col != nil && len(col.shown) > 0 && newest(col.shown)[0] >= s.now+s.offset*1000
	})
}

// inWindow reports whether a client may write a version now.
func (s *settings) inWindow(version int64) bool {
	second, now := version/1000, s.now/1000
	return second >= now-s.offset && second >= s.floor && (s.ttl < 0 || second >= now-s.ttl) && second < now+s.offset
}

// sum is the result of an increment.
type sum struct{ value, version int64 }

// apply applies a valid change, and returns the sums of the columns that it increments, by
// name.
func (l lines) apply(s *settings, key id, c *ots.RowChange) map[string]sum {
	if c.Type != ots.ChangeUpdate {
		delete(l, key)
	}
	if c.Type == ots.ChangeDelete {
		return nil
	}
	r := l.find(s, key)
	existed := r != nil
	if r = l[key]; r == nil {
		r = &line{marker: -1, columns: map[string]*column{}}
	}
	if c.Type == ots.ChangePut && len(c.Row.Cells) == 0 {
		r.marker = forever
	}
	sums := map[string]sum{}
	put := false
	for _, name := range columnsOf(c) {
		col := r.columns[name]
		if col == nil {
			col = &column{map[int64]any{}, map[int64]any{}}
			r.columns[name] = col
		}
		last, made := col.change(s, name, c, existed)
		if made != nil {
			sums[name] = *made
		}
		if last >= 0 {
			put = true
			r.marker = max(r.marker, last)
		}
		col.settle(s)
	}
	if existed || put || c.Type == ots.ChangePut || l[key] != nil {
		l[key] = r
	}
	return sums
}

func columnsOf(c *ots.RowChange) []string {
	var names []string
	for _, cell := range c.Row.Cells {
		names = append(names, cell.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// change applies a change to one column. It returns the largest version put, -1 if none, and
// the sum of an increment.
func (c *column) change(s *settings, name string, change *ots.RowChange, existed bool) (last int64, made *sum) {
	last = -1
	for _, cell := range change.Row.Cells {
		if cell.Name == name && cell.Op == ots.OpDeleteAllVersion {
			clear(c.shown)
			clear(c.lost)
		}
	}
	// Deleting a version of a full column also deletes the surplus ones.
	full, oldest := len(c.shown) >= s.versions, int64(-1)
	if full {
		oldest = slices.Min(slices.Collect(maps.Keys(c.shown)))
	}
	before := maps.Clone(c.shown)
	puts := map[int64]any{} // the last operation on a version wins; nil deletes it
	for _, cell := range change.Row.Cells {
		if cell.Name != name {
			continue
		}
		version := s.now
		if cell.HasVersion {
			version = cell.Version
		}
		switch cell.Op {
		case ots.OpPut:
			puts[version] = plain(cell.Value)
		case ots.OpDeleteOneVersion:
			puts[version] = nil
		case ots.OpIncrement:
			n := cell.Value.Int64()
			if existed && len(c.shown) > 0 {
				top := newest(c.shown)[0]
				n += c.shown[top].(int64)
				version = max(version, top)
			}
			puts[version], made = n, &sum{n, version}
		}
	}
	for version, value := range puts {
		delete(c.lost, version)
		if value != nil {
			c.shown[version] = value
			last = max(last, version)
			continue
		}
		delete(c.shown, version)
		if _, held := before[version]; full && (held || version < oldest) {
			clear(c.lost)
		}
	}
	return last, made
}
