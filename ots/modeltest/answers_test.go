package modeltest

// This file answers reads from the model.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// plain converts a value to int64 or string.
func plain(v row.Value) any {
	if v.Type() == row.TypeInteger {
		return v.Int64()
	}
	return v.Text()
}

// cell is one cell of an answer.
type cell struct {
	name    string
	version int64
	value   any
}

// everything returns what conditions see of a row: the key columns and all columns with a cell.
// A missing row has none.
func (r *line) everything(key id) map[string][]any {
	if r == nil {
		return nil
	}
	seen := map[string][]any{"p": {key.p}, "k": {key.k}}
	for name, col := range r.columns {
		for _, version := range newest(col.shown) {
			seen[name] = append(seen[name], col.shown[version])
		}
	}
	return seen
}

// selected returns the cells of an existing row that a read selects.
func (r *line) selected(sel *ots.Selection) []cell {
	var cells []cell
	for _, name := range slices.Sorted(maps.Keys(r.columns)) {
		switch {
		case len(sel.ColumnsToGet) > 0 && !slices.Contains(sel.ColumnsToGet, name),
			sel.StartColumn != nil && name < *sel.StartColumn,
			sel.EndColumn != nil && *sel.EndColumn != "" && name >= *sel.EndColumn:
			continue
		}
		taken := 0
		for _, version := range newest(r.columns[name].shown) {
			if t := sel.TimeRange; t != nil && t.Specific != nil && version != *t.Specific ||
				t != nil && t.Specific == nil && (version < *t.Start || version >= *t.End) {
				continue
			}
			if sel.MaxVersions != nil && taken == int(*sel.MaxVersions) {
				break
			}
			cells = append(cells, cell{name, version, r.columns[name].shown[version]})
			taken++
		}
	}
	return cells
}

// answer is a row as a read returns it; "none" if it returns none.
func (l lines) answer(s *settings, key id, sel *ots.Selection) string {
	r := l.find(s, key)
	if r == nil {
		return "none"
	}
	cells := r.selected(sel)
	namesKey := slices.Contains(sel.ColumnsToGet, "p") || slices.Contains(sel.ColumnsToGet, "k")
	if len(sel.ColumnsToGet) > 0 && !namesKey && len(cells) == 0 {
		return "none"
	}
	switch {
	case sel.Filter == nil:
	case sel.Filter.Type == ots.FilterPagination:
		cells = page(cells, int(sel.Filter.Offset), int(sel.Filter.Limit))
	default:
		seen := map[string][]any{"p": {key.p}, "k": {key.k}}
		for _, c := range cells {
			seen[c.name] = append(seen[c.name], c.value)
		}
		if !passes(sel.Filter, seen) {
			return "none"
		}
	}
	return text(key, cells)
}

// page keeps the cells of limit columns after the first offset ones.
func page(cells []cell, offset, limit int) (kept []cell) {
	var names []string
	for _, c := range cells {
		if !slices.Contains(names, c.name) {
			names = append(names, c.name)
		}
		if n := slices.Index(names, c.name); n >= offset && n < offset+limit {
			kept = append(kept, c)
		}
	}
	return kept
}

// passes evaluates a filter on the visible versions of columns, newest first.
func passes(f *ots.Filter, seen map[string][]any) bool {
	if f.Type == ots.FilterComposite {
		first := passes(f.Subs[0], seen)
		switch f.Operator {
		case ots.LogicalNot:
			return !first
		case ots.LogicalAnd:
			return first && passes(f.Subs[1], seen)
		}
		return first || passes(f.Subs[1], seen)
	}
	values := seen[f.Column]
	if len(values) == 0 {
		return !f.FilterIfMissing
	}
	if f.LatestVersionOnly {
		values = values[:1]
	}
	return slices.ContainsFunc(values, func(v any) bool { return holds(v, f.Comparator, plain(f.Value)) })
}

func holds(v any, how ots.Comparator, with any) bool {
	order := 0
	switch v := v.(type) {
	case int64:
		w, ok := with.(int64)
		if !ok {
			return false
		}
		order = cmp.Compare(v, w)
	case string:
		w, ok := with.(string)
		if !ok {
			return false
		}
		order = strings.Compare(v, w)
	}
	switch how {
	case ots.CompareEqual:
		return order == 0
	case ots.CompareNotEqual:
		return order != 0
	case ots.CompareGreater:
		return order > 0
	case ots.CompareGreaterEqual:
		return order >= 0
	case ots.CompareLess:
		return order < 0
	}
	return order <= 0
}

// text formats a row of the model.
func text(key id, cells []cell) string {
	var b strings.Builder
	fmt.Fprintf(&b, "(%s %d)", key.p, key.k)
	for _, c := range cells {
		if s, ok := c.value.(string); ok && len(s) > 20 {
			c.value = fmt.Sprintf("%s... of %d bytes", s[:8], len(s))
		}
		fmt.Fprintf(&b, " %s@%d=%v", c.name, c.version, c.value)
	}
	return b.String()
}

// shown formats a row of the service's answer.
func shown(r *ots.Row) string {
	if r == nil {
		return "none"
	}
	cells := make([]cell, len(r.Cells))
	for i, c := range r.Cells {
		cells[i] = cell{c.Name, c.Version, plain(c.Value)}
	}
	return text(keyOf(r.Key), cells)
}

func keyOf(key []ots.KeyValue) id { return id{key[0].Value.Text(), key[1].Value.Int64()} }

// rangeAnswer is a page as the model returns it: its rows, and the next key.
func (l lines) rangeAnswer(s *settings, from, to id, backward bool, limit int, sel *ots.Selection) string {
	keys := slices.SortedFunc(maps.Keys(l), compareIDs)
	if backward {
		slices.Reverse(keys)
	}
	var out []string
	for _, key := range keys {
		a, b := compareIDs(key, from), compareIDs(key, to)
		if backward {
			a, b = -a, -b
		}
		if a < 0 || b >= 0 || l.find(s, key) == nil {
			continue
		}
		if limit > 0 && len(out) == limit {
			return strings.Join(append(out, "next "+text(key, nil)), "\n")
		}
		if found := l.answer(s, key, sel); found != "none" {
			out = append(out, found)
		}
	}
	return strings.Join(out, "\n")
}

func compareIDs(a, b id) int { return cmp.Or(strings.Compare(a.p, b.p), cmp.Compare(a.k, b.k)) }
