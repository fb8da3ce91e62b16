package modeltest

// The model. A store is a list of tables, a table a list of rows in key order,
// a row the list of all mutations that were made of it. What a row looks like
// is found by carrying them out one after the other.
//
// Mutations are numbered in the order in which they were made; the engine
// numbers them the same way (its sequence numbers), so that "what the store
// held after mutation n" means the same on both sides.

import (
	"bytes"
	"cmp"
	"slices"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// model is the whole of what the store should hold.
type model struct {
	last   uint64 // number of the newest mutation
	events uint64 // counts the points in time at which knowledge may change
	tables []*mtable
}

// mtable is a table.
type mtable struct {
	name    string
	id      uint64
	key     []flagstone.KeyColumn
	options flagstone.TableOptions
	rows    []*mrow // in key order
	dropped bool
	stream  *mstream    // nil if it has none
	splits  []row.Value // where it is divided into partitions; then it has no stream
}

// mrow is a row that was ever written to.
type mrow struct {
	table *mtable
	key   []row.Value
	base  rowState    // before the first mutation of history
	now   rowState    // after the last one
	since []*mutation // ascending
	older []*mutation // a few that base contains, for failure messages
}

// mutation is all that one request does to one row.
type mutation struct {
	at        uint64
	deleteRow bool
	putRow    bool // the row exists afterwards, whatever is put
	columns   []columnChange
}

// columnChange is what a mutation does to one column. Deletes act on what was
// there before; puts come after them.
type columnChange struct {
	name    string
	deleted bool    // the whole column
	trim    int64   // all versions up to here are gone; noTrim if none
	removed []int64 // single versions
	puts    []*put
}

const noTrim = -1

// put is one value in one cell.
type put struct {
	version int64
	value   row.Value
	fates   []fateChange // see uncertain_test.go
}

// rowState is a row after some of its mutations.
type rowState struct {
	exists  bool
	forever bool  // it was put without any cell: it does not expire
	until   int64 // newest version put since it was last deleted
	columns []*column
}

// column holds the puts that nothing deleted or overwrote, newest version
// first.
type column struct {
	name string
	puts []*put
}

// apply carries out one mutation.
func (s *rowState) apply(mu *mutation) {
	if mu.deleteRow {
		*s = rowState{}
	}
	wrote := false
	for i := range mu.columns {
		c := &mu.columns[i]
		s.column(c.name).apply(c)
		for _, p := range c.puts {
			s.until = max(s.until, p.version)
			wrote = true
		}
	}
	if mu.putRow && !wrote {
		s.forever = true
	}
	s.exists = s.exists || wrote || mu.putRow
}

// column finds a column, or makes it.
func (s *rowState) column(name string) *column {
	i, found := slices.BinarySearchFunc(s.columns, name, func(c *column, name string) int {
		return cmp.Compare(c.name, name)
	})
	if !found {
		s.columns = slices.Insert(s.columns, i, &column{name: name})
	}
	return s.columns[i]
}

func (c *column) apply(change *columnChange) {
	c.puts = slices.DeleteFunc(c.puts, func(p *put) bool {
		return change.deleted || p.version <= change.trim || slices.Contains(change.removed, p.version)
	})
	for _, p := range change.puts {
		i, found := slices.BinarySearchFunc(c.puts, p.version, func(have *put, version int64) int {
			return cmp.Compare(version, have.version) // descending
		})
		if found {
			c.puts[i] = p
		} else {
			c.puts = slices.Insert(c.puts, i, p)
		}
	}
}

func (s *rowState) clone() rowState {
	c := *s
	c.columns = make([]*column, len(s.columns))
	for i, col := range s.columns {
		c.columns[i] = &column{col.name, slices.Clone(col.puts)}
	}
	return c
}

// stateAt is the row after all mutations up to a number. The caller must not
// change it.
func (r *mrow) stateAt(at uint64) *rowState {
	if n := len(r.since); n == 0 || r.since[n-1].at <= at {
		return &r.now
	}
	s := r.base.clone()
	for _, mu := range r.since {
		if mu.at > at {
			break
		}
		s.apply(mu)
	}
	return &s
}

// forget lets go of the mutations up to a number that nobody will ask about.
func (r *mrow) forget(horizon uint64) {
	n := 0
	for n < len(r.since) && r.since[n].at <= horizon {
		r.base.apply(r.since[n])
		n++
	}
	r.older = append(r.older, r.since[:n]...)
	if len(r.older) > 100 {
		r.older = slices.Clone(r.older[len(r.older)-100:])
	}
	r.since = slices.Clone(r.since[n:])
}

// view is a moment of a table, as a reader sees it.
type view struct {
	at        uint64 // mutations up to this number
	event     uint64 // knowledge up to this point
	limit     int64  // Max Versions
	millis    int64  // the clock
	ttl       int64  // seconds; negative: nothing expires
	watermark int64  // seconds; older versions may have been dropped for good
	// known is what reads at this very moment found out about puts whose fate
	// is uncertain: true for one that is there. Nil for the present, whose
	// knowledge is kept in the puts.
	known map[*put]bool
}

// expired: a cell lives for ttl whole seconds after the second of its version.
func (v *view) expired(version int64) bool {
	second := version / 1000
	return second < v.watermark || v.ttl >= 0 && v.millis/1000-second > v.ttl
}

// exists reports whether the view shows the row at all.
func (s *rowState) visible(v *view) bool {
	return s.exists && (s.forever || !v.expired(s.until))
}

// answer is what a view may show of a row.
type answer struct {
	exists  bool
	columns []columnAnswer
}

// columnAnswer is what a view may show of a column: the newest puts, up to the
// limit, of those that are there. All that are sure are there; of the others,
// any may be missing.
type columnAnswer struct {
	name  string
	limit int64
	puts  []*put // newest first, no more than can matter
	sure  []bool
}

// answer answers from first principles.
func (r *mrow) answer(v view) answer {
	s := r.stateAt(v.at)
	if !s.visible(&v) {
		return answer{}
	}
	a := answer{exists: true}
	for _, c := range s.columns {
		if ca := c.answer(&v); len(ca.puts) > 0 {
			a.columns = append(a.columns, ca)
		}
	}
	return a
}

func (c *column) answer(v *view) columnAnswer {
	a := columnAnswer{name: c.name, limit: v.limit}
	var sure int64
	for _, p := range c.puts {
		if sure == v.limit || v.expired(p.version) {
			break // all that follow are older
		}
		f := v.fateOf(p)
		if f == gone {
			continue
		}
		a.puts, a.sure = append(a.puts, p), append(a.sure, f == certain)
		if f == certain {
			sure++
		}
	}
	return a
}

// exact reports whether there is only one right answer.
func (a *answer) exact() bool {
	for i := range a.columns {
		if slices.Contains(a.columns[i].sure, false) {
			return false
		}
	}
	return true
}

// cell is a cell as a read should return it.
type cell struct {
	column  string
	version int64
	value   row.Value
}

// cells are those of an exact answer that a read with options asks for, in the
// order of the answer.
func (a *answer) cells(o *flagstone.ReadOptions) []cell {
	var cells []cell
	for _, c := range a.columns {
		if o.Columns != nil && !slices.Contains(o.Columns, c.name) || c.name < o.StartColumn ||
			o.EndColumn != "" && c.name >= o.EndColumn {
			continue
		}
		n := 0
		for _, p := range c.puts {
			if p.version < o.MinVersion || o.MaxVersion > 0 && p.version >= o.MaxVersion {
				continue
			}
			if n++; o.MaxVersions > 0 && n > o.MaxVersions {
				break
			}
			cells = append(cells, cell{c.name, p.version, p.value})
		}
	}
	return cells
}

// row finds a row of the table, or makes it.
func (t *mtable) row(key []row.Value) *mrow {
	i, found := t.find(key)
	if !found {
		t.rows = slices.Insert(t.rows, i, &mrow{table: t, key: key})
	}
	return t.rows[i]
}

// find returns the index of the first row at or above the key.
func (t *mtable) find(key []row.Value) (index int, found bool) {
	return slices.BinarySearchFunc(t.rows, key, func(r *mrow, key []row.Value) int {
		return compareTuples(r.key, key)
	})
}

// compareTuples orders keys, and bounds, which may be shorter, or hold row.Min
// and row.Max: column by column; what is shorter comes before what it begins.
func compareTuples(a, b []row.Value) int {
	for i := 0; i < len(a) && i < len(b); i++ {
		if c := compareValues(a[i], b[i]); c != 0 {
			return c
		}
	}
	return cmp.Compare(len(a), len(b))
}

func compareValues(a, b row.Value) int {
	rank := func(v row.Value) int {
		switch v.Type() {
		case row.TypeMin:
			return 0
		case row.TypeMax:
			return 2
		}
		return 1
	}
	switch {
	case rank(a) != rank(b) || rank(a) != 1:
		return cmp.Compare(rank(a), rank(b))
	case a.Type() == row.TypeInteger:
		return cmp.Compare(a.Int64(), b.Int64())
	}
	return bytes.Compare(a.Bytes(), b.Bytes())
}
