package modeltest

// This file holds the steps that read.

import (
	"context"
	"math"
	"strings"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// selection makes a random selection.
func (m *machine) selection() ots.Selection {
	var sel ots.Selection
	names := append([]string{"", absent, "p"}, columns...)
	if m.chance(3) {
		for range 1 + m.random.IntN(3) {
			sel.ColumnsToGet = append(sel.ColumnsToGet, pick(m, append(names[1:], "k")...))
		}
	}
	if m.chance(5) {
		sel.StartColumn = ptr(pick(m, names...))
	}
	if m.chance(5) {
		sel.EndColumn = ptr(pick(m, names...))
	}
	switch m.random.IntN(4) {
	case 0:
		from := m.version()
		sel.TimeRange = &ots.TimeRange{Start: &from, End: ptr(from + 1 + int64(m.random.IntN(8000)))}
	case 1:
		sel.TimeRange = &ots.TimeRange{Specific: ptr(m.version())}
	}
	if sel.TimeRange == nil || sel.TimeRange.Specific == nil && m.chance(2) {
		sel.MaxVersions = ptr(int32(1 + m.random.IntN(4)))
	}
	switch m.random.IntN(8) {
	case 0:
		sel.Filter = &ots.Filter{Type: ots.FilterPagination, Offset: int32(m.random.IntN(3)), Limit: int32(1 + m.random.IntN(3))}
	case 1, 2:
		sel.Filter = m.filter(2)
	}
	return sel
}

// filter makes a random tree of comparisons.
func (m *machine) filter(depth int) *ots.Filter {
	if depth > 0 && m.chance(3) {
		f := &ots.Filter{Type: ots.FilterComposite, Operator: pick(m, ots.LogicalNot, ots.LogicalAnd, ots.LogicalOr)}
		f.Subs = append(f.Subs, m.filter(depth-1))
		if f.Operator != ots.LogicalNot {
			f.Subs = append(f.Subs, m.filter(depth-1))
		}
		return f
	}
	f := &ots.Filter{
		Type: ots.FilterSingleColumn, Column: pick(m, append([]string{"p", "k", absent}, columns...)...),
		Comparator:      ots.Comparator(1 + m.random.IntN(6)),
		Value:           row.Integer(int64(m.random.IntN(10))),
		FilterIfMissing: m.chance(2), LatestVersionOnly: m.chance(2),
	}
	if m.chance(4) {
		f.Value = row.String(pick(m, "", "a", "x", "y"))
	}
	return f
}

// getRow reads a row and compares the answer.
func (m *machine) getRow(tx *string, rows lines, key id, sel ots.Selection) {
	m.t.Helper()
	sel.TransactionID = tx
	r, err := m.GetRow(context.Background(), instance, &ots.GetRowRequest{Table: tableName, Row: ots.Row{Key: key.encode()}, Selection: sel})
	m.expect("get", err, "")
	if got, want := shown(r.Row), rows.answer(&m.settings, key, &sel); got != want {
		m.fail("row %v, transaction %v, selection %+v:\n got  %s\n want %s", key, tx != nil, sel, got, want)
	}
}

func (m *machine) get() {
	key := m.key()
	tx, rows := m.target(key.p)
	m.getRow(tx, rows, key, m.selection())
}

func (m *machine) batchGet() {
	sel := m.selection()
	var keys []id
	req := &ots.BatchGetRowRequest{Tables: []ots.TableGets{{Table: tableName, Selection: sel}}}
	for range 1 + m.random.IntN(6) {
		keys = append(keys, m.key())
		req.Tables[0].Rows = append(req.Tables[0].Rows, ots.Row{Key: keys[len(keys)-1].encode()})
	}
	r, err := m.BatchGetRow(context.Background(), instance, req)
	m.expect("batch of reads", err, "")
	for i, key := range keys {
		result := r.Tables[0].Rows[i]
		if got, want := shown(result.Row), m.rows.answer(&m.settings, key, &sel); result.Err != nil || got != want {
			m.fail("row %v of a batch, selection %+v:\n got  %s, %v\n want %s", key, sel, got, result.Err, want)
		}
	}
}

// getRange reads a range within one partition key or across several.
func (m *machine) getRange() {
	bound := func(p string) (id, []ots.KeyValue) {
		key := id{p, pick(m, numbers...)}
		encoded := key.encode()
		switch m.random.IntN(3) { // no row has these numbers
		case 0:
			key.k, encoded[1].Value = math.MinInt64, row.Min()
		case 1:
			key.k, encoded[1].Value = math.MaxInt64, row.Max()
		}
		return key, encoded
	}
	p := pick(m, partitions...)
	from, low := bound(p)
	to, high := bound(p)
	tx, rows := m.target(p)
	if m.chance(3) {
		tx, rows = nil, m.rows
		to, high = bound(pick(m, partitions...))
	}
	backward := compareIDs(from, to) > 0
	if from == to {
		return
	}
	req := &ots.GetRangeRequest{
		Table: tableName, Backward: backward, Start: ots.Row{Key: low}, End: ots.Row{Key: high}, Selection: m.selection(),
	}
	req.TransactionID = tx
	limit := 0
	if m.chance(2) {
		limit = 1 + m.random.IntN(4)
		req.Limit = ptr(int32(limit))
	}
	r, err := m.GetRange(context.Background(), instance, req)
	m.expect("range", err, "")
	var got []string
	for i := range r.Rows {
		got = append(got, shown(&r.Rows[i]))
	}
	if r.Next != nil {
		got = append(got, "next "+text(keyOf(r.Next), nil))
	}
	if got, want := strings.Join(got, "\n"), rows.rangeAnswer(&m.settings, from, to, backward, limit, &req.Selection); got != want {
		m.fail("range from %v to %v, limit %d, transaction %v, selection %+v:\ngot\n%s\nwant\n%s", from, to, limit, tx != nil, req.Selection, got, want)
	}
}
