package ots

// This file evaluates filters on the cells of a scan, before a row is converted for the answer.
// So a row that does not pass costs little more than a row that is skipped.

import (
	"bytes"
	"cmp"
	"math"
	"slices"
	"sort"
	"strconv"
	"sync/atomic"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// predicate is a checked filter.
type predicate struct {
	filter    *Filter
	subs      []predicate
	part      *expression   // of the value transfer rule
	keyColumn int           // index of the key column that a leaf compares; -1: an attribute
	spent     *atomic.Int64 // steps of the request; set on roots only
}

// bind resolves the names of key columns. A filter may compare a key column like an attribute
// with one version.
func (p *predicate) bind(key []flagstone.KeyColumn) {
	p.keyColumn = slices.IndexFunc(key, func(k flagstone.KeyColumn) bool { return k.Name == p.filter.Column })
	for i := range p.subs {
		p.subs[i].bind(key)
	}
}

// attributes appends the attribute columns of a bound filter to columns, and reports whether
// the newest version of each is enough to judge a row.
func (p *predicate) attributes(columns []string) (_ []string, newest bool) {
	newest = true
	if p.filter.Type == FilterSingleColumn && p.keyColumn < 0 {
		columns, newest = append(columns, p.filter.Column), p.filter.LatestVersionOnly
	}
	for i := range p.subs {
		var n bool
		columns, n = p.subs[i].attributes(columns)
		newest = newest && n
	}
	return columns, newest
}

// passes judges a row by its selected cells. In a row that does not exist every column is
// absent. Errors include those of effort.spend.
func (p *predicate) passes(r *flagstone.Row, w *effort) (bool, error) {
	if p.filter.Type == FilterSingleColumn {
		return p.compares(r, w)
	}
	for i := range p.subs {
		ok, err := p.subs[i].passes(r, w)
		switch {
		case err != nil:
			return false, err
		case p.filter.Operator == LogicalNot:
			return !ok, nil
		case ok == (p.filter.Operator == LogicalOr): // decided
			return ok, nil
		}
	}
	return p.filter.Operator == LogicalAnd, nil
}

// compares judges a row by one column.
func (p *predicate) compares(r *flagstone.Row, w *effort) (bool, error) {
	f := p.filter
	var cells []row.Cell
	present := r.Exists()
	if present && p.keyColumn < 0 {
		cells = columnOf(r.Cells(), f.Column)
		present = len(cells) > 0
	}
	switch {
	case f.Comparator == CompareExists || f.Comparator == CompareNotExists:
		return present == (f.Comparator == CompareExists), nil
	case !present:
		return !f.FilterIfMissing, nil
	case p.keyColumn >= 0:
		return p.holds(r.Key()[p.keyColumn], w)
	}
	// Finding the cells took one step each.
	if err := w.spend(int64(len(cells))); err != nil {
		return false, err
	}
	if f.LatestVersionOnly {
		cells = cells[:1]
	}
	for i := range cells {
		v, err := row.PayloadValue(cells[i].Type, cells[i].Value)
		if err != nil {
			return false, err
		}
		if ok, err := p.holds(v, w); ok || err != nil {
			return ok, err
		}
	}
	return false, nil
}

// columnOf returns the cells of one column, newest first.
func columnOf(cells []row.Cell, column string) []row.Cell {
	from := sort.Search(len(cells), func(i int) bool { return string(cells[i].Column) >= column })
	to := from
	for to < len(cells) && string(cells[to].Column) == column {
		to++
	}
	return cells[from:to]
}

// holds compares one value. Values of different types never match, whatever the comparator.
func (p *predicate) holds(v row.Value, w *effort) (bool, error) {
	if p.part != nil {
		var ok bool
		var err error
		if v, ok, err = p.transfer(v, w); !ok || err != nil {
			return false, err
		}
	}
	if v.Type() != p.filter.Value.Type() {
		return false, nil
	}
	if err := w.spend(1 + int64(min(len(v.Bytes()), len(p.filter.Value.Bytes()))/compareBytes)); err != nil {
		return false, err
	}
	return p.ordered(v), nil
}

// ordered compares a value of the filter's type.
func (p *predicate) ordered(v row.Value) bool {
	order := compareValues(v, p.filter.Value)
	switch p.filter.Comparator {
	case CompareEqual:
		return order == 0
	case CompareNotEqual:
		return order != 0
	case CompareGreater:
		return order > 0
	case CompareGreaterEqual:
		return order >= 0
	case CompareLess:
		return order < 0
	}
	return order <= 0 // CompareLessEqual: checkComparison refused all others
}

// transfer extracts the part of a string that the rule selects.
func (p *predicate) transfer(v row.Value, w *effort) (_ row.Value, ok bool, err error) {
	if v.Type() != row.TypeString {
		return v, false, nil
	}
	groups, err := p.part.find(v.Bytes(), w)
	if groups == nil || err != nil {
		return v, false, err
	}
	from, to := groups[0], groups[1]
	if len(groups) > 2 {
		if from, to = groups[2], groups[3]; from < 0 {
			return v, false, nil // the group took no part in the match
		}
	}
	part := v.Bytes()[from:to]
	switch p.filter.Transfer.Cast {
	case row.TypeInteger:
		n, err := strconv.ParseInt(string(part), 10, 64)
		return row.Integer(n), err == nil, nil
	case row.TypeDouble:
		f, err := strconv.ParseFloat(string(part), 64)
		return row.Double(f), err == nil && !math.IsNaN(f) && !math.IsInf(f, 0), nil
	}
	return row.StringBytes(part), true, nil
}

// compareValues orders two values of one type.
func compareValues(a, b row.Value) int {
	switch a.Type() {
	case row.TypeInteger:
		return cmp.Compare(a.Int64(), b.Int64())
	case row.TypeDouble:
		return cmp.Compare(a.Float64(), b.Float64())
	case row.TypeBoolean:
		switch {
		case a.Bool() == b.Bool():
			return 0
		case b.Bool():
			return -1
		}
		return 1
	}
	return bytes.Compare(a.Bytes(), b.Bytes())
}

// page returns the cells that a pagination keeps: all selected versions of its columns.
func (f *Filter) page(cells []row.Cell) []row.Cell {
	from := skipColumns(cells, int(f.Offset))
	rest := cells[from:]
	return rest[:skipColumns(rest, int(f.Limit))]
}

// skipColumns returns the index of the first cell after n columns.
func skipColumns(cells []row.Cell, n int) int {
	for i := range cells {
		if i == 0 || !bytes.Equal(cells[i].Column, cells[i-1].Column) {
			if n--; n < 0 {
				return i
			}
		}
	}
	return len(cells)
}
