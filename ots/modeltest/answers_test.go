package modeltest

// What the model answers to reads.

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// plain turns a value into int64 or string.
func plain(v row.Value) any {
	if v.Type() == row.TypeInteger {
		return v.Int64()
	}
	return v.Text()
}

// A cell of an answer.
type cell struct {
	name    string
	version int64
	value   any
}

// everything is what conditions see of a row: all columns that have a cell, and
// those of the key. Of a missing row they see nothing.
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

// selected returns the cells of a row that exists which a read wants.
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

// answer is a row as a read shows it; "none" if it does not.
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

// passes judges what is seen of a row, versions of a column from the newest on.
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

// text shows a row.
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

// shown shows a row as the service answered it.
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

// rangeAnswer is a page as the model shows it: its rows, and the key after it.
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
