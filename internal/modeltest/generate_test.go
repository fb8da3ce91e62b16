package modeltest

// What the random operations are made of. Few keys, columns and versions, so
// that they meet; and the odd ones, where encodings go wrong.

import (
	"bytes"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// schemas are the tables.
var schemas = []struct {
	name string
	key  []flagstone.KeyColumn
}{
	{"alpha", []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}}},
	{"beta", []flagstone.KeyColumn{{Name: "owner", Type: row.TypeString}, {Name: "number", Type: row.TypeInteger}}},
	{"gamma", []flagstone.KeyColumn{
		{Name: "number", Type: row.TypeInteger}, {Name: "hash", Type: row.TypeBinary}, {Name: "name", Type: row.TypeString},
	}},
}

var columnNames = []string{"a", "a\x00", "ab", "b", "c", "price", "\xff\xfe", strings.Repeat("n", 1024)}

// makeKeys picks the keys of all tables.
func (m *machine) makeKeys() {
	m.keys = make([][][]row.Value, len(schemas))
	for slot, schema := range schemas {
		for len(m.keys[slot]) < m.cfg.rows {
			key := make([]row.Value, len(schema.key))
			for i, c := range schema.key {
				key[i] = m.keyValue(c.Type)
			}
			if !slices.ContainsFunc(m.keys[slot], func(k []row.Value) bool { return compareTuples(k, key) == 0 }) {
				m.keys[slot] = append(m.keys[slot], key)
			}
		}
	}
}

func (m *machine) keyValue(typ row.Type) row.Value {
	if typ == row.TypeInteger {
		odd := []int64{0, 1, -1, math.MinInt64, math.MaxInt64, 255, 256, -256}
		if n := m.rng.IntN(3 * len(odd)); n < len(odd) {
			return row.Integer(odd[n])
		}
		return row.Integer(m.rng.Int64N(2000) - 1000)
	}
	odd := []string{"", "a", "a\x00", "a\x00\x00", "a\x01", "aa", "\x00", "\x00\xff", "\xff", "\xff\xff", "b"}
	s := ""
	if n := m.rng.IntN(3 * len(odd)); n < len(odd) {
		s = odd[n]
	} else {
		s = fmt.Sprintf("key%04d", m.rng.IntN(5000))
	}
	if typ == row.TypeBinary {
		return row.Binary([]byte(s))
	}
	return row.String(s)
}

// anyTable picks a table that exists; nil if there is none.
func (m *machine) anyTable() *mtable {
	if m.dwells() && slices.Contains(m.model.tables, m.haunt.table) {
		return m.haunt.table
	}
	start := m.rng.IntN(len(schemas))
	for i := range schemas {
		if t := m.model.tables[(start+i)%len(schemas)]; t != nil {
			return t
		}
	}
	return nil
}

// haunt is a row that most operations go to for a while: what is kept of rows
// between reads is for those that are read again and again, and is to be wrong if
// anything that happens meanwhile is overlooked.
type haunt struct {
	table *mtable
	key   []row.Value
	until int // the operation that ends it
}

// dwells reports whether the next pick is that of the haunt, if there is one, and
// finds another row now and then.
func (m *machine) dwells() bool {
	if m.op < m.haunt.until {
		return m.rng.IntN(3) > 0
	}
	m.haunt = haunt{}
	if t := m.model.tables[m.rng.IntN(len(schemas))]; t != nil && m.rng.IntN(60) == 0 {
		m.haunt = haunt{table: t, key: m.anyKey(t), until: m.op + 10 + m.rng.IntN(40)}
	}
	return false
}

// anyKey picks a key of a table; some are picked much more often.
func (m *machine) anyKey(t *mtable) []row.Value {
	if m.haunt.table == t && m.rng.IntN(3) > 0 {
		return m.haunt.key
	}
	keys := m.keys[m.slot(t)]
	switch n := m.rng.IntN(10); {
	case n < 3:
		return keys[m.rng.IntN(min(4, len(keys)))]
	case n < 5:
		return keys[m.rng.IntN(min(30, len(keys)))]
	}
	return keys[m.rng.IntN(len(keys))]
}

func (m *machine) slot(t *mtable) int {
	for i := range schemas {
		if schemas[i].name == t.name {
			return i
		}
	}
	panic("no such table: " + t.name)
}

func (m *machine) anyRow(t *mtable) *mrow { return t.row(m.anyKey(t)) }

// tableOptions picks options of a table.
func (m *machine) tableOptions() flagstone.TableOptions {
	maxVersions := []int64{1, 1, 2, 2, 3, 5, 10, math.MaxInt64}
	ttl := []int64{flagstone.NeverExpires, flagstone.NeverExpires, 5, 5, 30, 300, 3600, 40 * 86400, math.MaxInt64}
	offset := []int64{1, 5, 60, 3600, 86400, 400 * 86400, math.MaxInt64}
	if m.short {
		ttl, offset = []int64{flagstone.NeverExpires, 5, 5, 10, 30, 300}, []int64{1, 1, 5, 30}
	}
	return flagstone.TableOptions{
		MaxVersions:             maxVersions[m.rng.IntN(len(maxVersions))],
		TTLSeconds:              ttl[m.rng.IntN(len(ttl))],
		MaxVersionOffsetSeconds: offset[m.rng.IntN(len(offset))],
	}
}

// splits picks where the table of a slot is divided into partitions.
func (m *machine) splits(slot int) (splits []row.Value) {
	for range 1 + m.rng.IntN(8) {
		v := m.keyValue(schemas[slot].key[0].Type)
		if m.rng.IntN(2) == 0 {
			v = m.keys[slot][m.rng.IntN(len(m.keys[slot]))][0]
		}
		if !slices.ContainsFunc(splits, v.Equal) {
			splits = append(splits, v)
		}
	}
	return splits
}

// makeChange picks what to do to a row.
func (m *machine) makeChange(t *mtable) *change {
	c := &change{row: m.anyRow(t)}
	switch n := m.rng.IntN(100); {
	case n < 5:
		c.calls = append(c.calls, call{kind: callDeleteRow})
		if n > 0 {
			return c // and nothing else, mostly
		}
	case n < 12:
		c.calls = append(c.calls, call{kind: callPutRow})
		if n < 7 {
			return c
		}
	}
	calls := 1
	switch n := m.rng.IntN(10); {
	case n < 3:
		calls = 2 + m.rng.IntN(3)
	case n == 3:
		calls = 5 + m.rng.IntN(8)
	}
	for range calls {
		c.calls = append(c.calls, m.makeCall(c.row))
	}
	return c
}

func (m *machine) makeCall(r *mrow) call {
	c := call{column: columnNames[m.rng.IntN(len(columnNames))]}
	if m.rng.IntN(1000) == 0 {
		c.column = ""
	}
	switch n := m.rng.IntN(1000); {
	case n < 700:
		c.version, c.value = m.version(r), m.value()
	case n < 750:
		c.kind = callDeleteColumn
	case n < 995:
		c.kind, c.version = callDeleteVersion, m.version(r)
		if name, version, ok := m.presentCell(r); ok && m.rng.IntN(4) > 0 {
			c.column, c.version = name, version
		}
	case n < 998:
		c.kind = callDeleteRow
	default:
		c.kind = callPutRow
	}
	return c
}

// presentCell picks a cell that the row holds, be it visible or not.
func (m *machine) presentCell(r *mrow) (column string, version int64, ok bool) {
	if len(r.now.columns) == 0 {
		return "", 0, false
	}
	c := r.now.columns[m.rng.IntN(len(r.now.columns))]
	if len(c.puts) == 0 {
		return "", 0, false
	}
	// Mostly one that is shown.
	i := m.rng.IntN(len(c.puts))
	if m.rng.IntN(4) > 0 {
		i = min(i, m.rng.IntN(4))
	}
	return c.name, c.puts[i].version, true
}

// version picks a version: near the clock, where it expires soon; from a small
// fixed set; one that is there already; far back; far ahead.
func (m *machine) version(r *mrow) int64 {
	now := m.clock.NowMillis()
	edge := []int64{0, 0, 1, 500, 999}[m.rng.IntN(5)]
	switch n := m.rng.IntN(1000); {
	case n < 350:
		return max(0, (now/1000-m.rng.Int64N(12))*1000+edge)
	case n < 420:
		return max(0, now-m.rng.Int64N(400_000))
	case n < 640:
		return startMillis + m.rng.Int64N(16)*1000 + edge
	case n < 800:
		if _, version, ok := m.presentCell(r); ok {
			return version
		}
		return now
	case n < 880:
		return m.rng.Int64N(5)*1000 + edge
	case n < 997:
		ahead := firstRefused(m.store.NowMillis(), r.table.options.MaxVersionOffsetSeconds)
		switch m.rng.IntN(8) {
		case 0:
			return ahead - 1
		case 1:
			return ahead // refused, except that nothing is ahead of the largest
		}
		reach := []int64{2_000, 20_000, 200_000, 2_000_000}[m.rng.IntN(4)]
		return max(0, min(now, ahead-1)+m.rng.Int64N(1+min(max(ahead-1-now, 0), reach)))
	}
	return []int64{-1, flagstone.Now, math.MaxInt64}[m.rng.IntN(3)]
}

// value makes a value that no other put has, where its type allows.
func (m *machine) value() row.Value {
	m.values++
	if m.cfg.large && m.rng.IntN(700) == 0 {
		return largeValues()[m.rng.IntN(len(largeValues()))]
	}
	switch n := m.rng.IntN(100); {
	case n < 20:
		return row.Integer(int64(m.values))
	case n < 25:
		return row.Double(float64(m.values) / 3)
	case n < 26:
		return row.Double(math.Float64frombits(0x7FF8000000000000 | m.values)) // one of the NaNs
	case n < 29:
		return row.Boolean(m.values%2 == 0)
	case n < 31:
		return row.String("")
	case n < 80:
		return row.String(fmt.Sprint("value ", m.values))
	case n < 97:
		return row.Binary(fmt.Appendf(nil, "%d%s", m.values, bytes.Repeat([]byte{0, 0xFF}, m.rng.IntN(20))))
	}
	size := 300
	if m.rng.IntN(20) == 0 {
		size = 6000 // more than the smallest memtable, block or table file
	}
	return row.String(fmt.Sprint("long ", m.values, strings.Repeat(string(rune('a'+m.values%26)), size)))
}

// readOptions picks what a read asks for, and takes bounds from the row.
func (m *machine) readOptions(r *mrow) (o flagstone.ReadOptions) {
	if m.rng.IntN(5) < 2 {
		return o
	}
	column := func() string { return columnNames[m.rng.IntN(len(columnNames))] }
	if m.rng.IntN(3) == 0 {
		o.Columns = []string{}
		for range m.rng.IntN(5) {
			o.Columns = append(o.Columns, column())
		}
	}
	if m.rng.IntN(4) == 0 {
		o.StartColumn = column()
	}
	if m.rng.IntN(4) == 0 {
		o.EndColumn = column()
	}
	if m.rng.IntN(3) == 0 {
		o.MaxVersions = 1 + m.rng.IntN(3)
	}
	if m.rng.IntN(3) == 0 {
		o.MinVersion = max(0, m.version(r))
	}
	if m.rng.IntN(3) == 0 {
		o.MaxVersion = max(0, m.version(r))
	}
	if o.MaxVersion > 0 && o.MinVersion > o.MaxVersion {
		o.MinVersion, o.MaxVersion = o.MaxVersion, o.MinVersion
	}
	return o
}

// scanBounds picks the bounds of a scan.
func (m *machine) scanBounds(t *mtable, reverse bool) (start, end []row.Value) {
	start, end = m.bound(t), m.bound(t)
	if order := compareTuples(start, end); len(start) > 0 && len(end) > 0 && (order > 0 && !reverse || order < 0 && reverse) {
		return end, start
	}
	return start, end
}

// bound picks a bound: none, a key, the beginning of one, or with Min or Max.
func (m *machine) bound(t *mtable) []row.Value {
	n := m.rng.IntN(10)
	if n < 3 {
		return nil
	}
	key := slices.Clone(m.anyKey(t))
	at := m.rng.IntN(len(key))
	switch n {
	case 3:
		return key[:at]
	case 4:
		key[at] = row.Min()
		return key[:at+1]
	case 5:
		key[at] = row.Max()
		return key[:at+1]
	case 6:
		key[at] = row.Max()
		return key
	case 7:
		key[at] = m.keyValue(key[at].Type()) // perhaps no key that is used
		return key
	}
	return key
}
