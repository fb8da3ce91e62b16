package ots

import (
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// This file holds a model of one table, as simple as possible: it keeps the visible cells, and
// forgets at once what Max Versions or a delete hides.

type model struct {
	maxVersions int
	ttl         int64 // seconds, -1 never
	now         int64 // milliseconds
	rows        map[string]*modelledRow
}

type modelledRow struct {
	marker int64 // the row exists until this version expires
	cells  map[string]map[int64]row.Value
}

func (m *model) expired(version int64) bool {
	return m.ttl >= 0 && version != row.MaxVersion && version/1000+m.ttl < m.now/1000
}

// forget drops expired cells and those that Max Versions hides.
func (m *model) forget() {
	for key, r := range m.rows {
		if m.expired(r.marker) {
			delete(m.rows, key)
			continue
		}
		for _, versions := range r.cells {
			kept := 0
			for _, v := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
				if kept == m.maxVersions || m.expired(v) {
					delete(versions, v)
					continue
				}
				kept++
			}
		}
	}
}

func (m *model) apply(key string, c *RowChange) {
	if c.Type != ChangeUpdate {
		delete(m.rows, key)
	}
	if c.Type == ChangeDelete {
		return
	}
	r := m.rows[key]
	if r == nil {
		r = &modelledRow{marker: -1, cells: map[string]map[int64]row.Value{}}
	}
	if c.Type == ChangePut && len(c.Row.Cells) == 0 {
		r.marker = row.MaxVersion
	}
	for _, cell := range c.Row.Cells {
		if cell.Op == OpDeleteAllVersion {
			delete(r.cells, cell.Name)
		}
	}
	for _, cell := range c.Row.Cells {
		switch cell.Op {
		case OpPut:
			version := m.now
			if cell.HasVersion {
				version = cell.Version
			}
			if r.cells[cell.Name] == nil {
				r.cells[cell.Name] = map[int64]row.Value{}
			}
			r.cells[cell.Name][version] = cell.Value
			r.marker = max(r.marker, version)
		case OpDeleteOneVersion:
			delete(r.cells[cell.Name], cell.Version)
		case OpIncrement:
			sum, version := cell.Value.Int64(), m.now
			for v, value := range r.cells[cell.Name] { // of the newest that is visible
				if v == slices.Max(slices.Collect(maps.Keys(r.cells[cell.Name]))) {
					sum, version = sum+value.Int64(), max(version, v)
				}
			}
			if r.cells[cell.Name] == nil {
				r.cells[cell.Name] = map[int64]row.Value{}
			}
			r.cells[cell.Name][version] = row.Integer(sum)
			r.marker = max(r.marker, version)
		}
	}
	if r.marker >= 0 {
		m.rows[key] = r
	}
	m.forget()
}

// refuses reports whether a condition of a change fails.
func (m *model) refuses(key string, c *RowChange) bool {
	r := m.rows[key]
	if c.Existence != ExistenceIgnore && (r != nil) != (c.Existence == ExistenceExpect) {
		return true
	}
	if c.ColumnCondition == nil {
		return false
	}
	columns := map[string][]row.Value{}
	if r != nil {
		columns["pk"] = []row.Value{row.String(key)}
		for name, versions := range r.cells {
			for _, v := range slices.Backward(slices.Sorted(maps.Keys(versions))) {
				columns[name] = append(columns[name], versions[v])
			}
		}
	}
	return !judgeNaively(c.ColumnCondition, columns)
}

func (m *model) show(key string, sel *Selection) string {
	m.forget()
	r := m.rows[key]
	if r == nil {
		return "none"
	}
	shown := Row{Key: pk(key)}
	for _, name := range slices.Sorted(maps.Keys(r.cells)) {
		if sel.ColumnsToGet != nil && !slices.Contains(sel.ColumnsToGet, name) {
			continue
		}
		if name < *sel.StartColumn || *sel.EndColumn != "" && name >= *sel.EndColumn {
			continue
		}
		taken := int32(0)
		for _, v := range slices.Backward(slices.Sorted(maps.Keys(r.cells[name]))) {
			if sel.TimeRange != nil && (v < *sel.TimeRange.Start || v >= *sel.TimeRange.End) {
				continue
			}
			if sel.MaxVersions != nil && taken == *sel.MaxVersions {
				break
			}
			shown.Cells = append(shown.Cells, cellAt(name, r.cells[name][v], v))
			taken++
		}
	}
	if sel.ColumnsToGet != nil && len(shown.Cells) == 0 && !slices.Contains(sel.ColumnsToGet, "pk") {
		return "none"
	}
	if sel.Filter != nil {
		columns := map[string][]row.Value{"pk": {row.String(key)}}
		for _, c := range shown.Cells {
			columns[c.Name] = append(columns[c.Name], c.Value)
		}
		if !judgeNaively(sel.Filter, columns) {
			return "none"
		}
	}
	return showRow(&shown)
}

// drawFilter makes a small tree over the columns of the model.
func drawFilter(rt *rapid.T) *Filter {
	leaf := func() *Filter {
		f := &Filter{
			Type: FilterSingleColumn, Column: rapid.SampledFrom([]string{"a", "b", "n", "z", "absent"}).Draw(rt, "filter column"),
			Value:           row.Integer(rapid.Int64Range(0, 9).Draw(rt, "filter value")),
			Comparator:      Comparator(rapid.IntRange(1, 6).Draw(rt, "comparator")),
			FilterIfMissing: rapid.Bool().Draw(rt, "filter if missing"), LatestVersionOnly: rapid.Bool().Draw(rt, "latest"),
		}
		if rapid.IntRange(0, 4).Draw(rt, "of the key") == 0 {
			f.Column, f.Value = "pk", row.String("1")
		}
		return f
	}
	switch rapid.IntRange(0, 3).Draw(rt, "tree") {
	case 0:
		return joined(LogicalNot, leaf())
	case 1:
		return joined(rapid.SampledFrom([]LogicalOperator{LogicalAnd, LogicalOr}).Draw(rt, "operator"), leaf(), leaf())
	}
	return leaf()
}

var modelColumns = []string{"a", "b", "c"}

func drawChange(rt *rapid.T, m *model, key string) RowChange {
	version := func() int64 { return m.now - rapid.Int64Range(-3000, 5000).Draw(rt, "age") }
	draw := func(ops ...CellOp) (cells []Cell) {
		for range rapid.IntRange(0, 4).Draw(rt, "cells") {
			name := rapid.SampledFrom(modelColumns).Draw(rt, "column")
			value := rapid.IntRange(0, 9).Draw(rt, "value")
			switch op := rapid.SampledFrom(ops).Draw(rt, "op"); {
			case op == OpDeleteAllVersion:
				cells = append(cells, deleteColumn(name))
			case op == OpDeleteOneVersion:
				cells = append(cells, deleteVersion(name, version()))
			case rapid.Bool().Draw(rt, "explicit"):
				cells = append(cells, cellAt(name, value, version()))
			default:
				cells = append(cells, cell(name, value))
			}
		}
		return cells
	}
	var c RowChange
	switch rapid.IntRange(0, 9).Draw(rt, "change") {
	case 0:
		c = deleteOf(pk(key))
	case 1, 2:
		c = putOf(pk(key), draw(OpPut)...)
	default:
		cells := draw(OpPut, OpPut, OpDeleteAllVersion, OpDeleteOneVersion)
		for _, name := range []string{"n", "a"} {
			taken := slices.ContainsFunc(cells, func(c Cell) bool { return c.Name == name })
			if !taken && rapid.IntRange(0, 2).Draw(rt, "increment") == 0 {
				cells = append(cells, increment(name, rapid.Int64Range(-3, 3).Draw(rt, "by")))
			}
		}
		c = updateOf(pk(key), append(cells, cell("z", 0))...)
	}
	if rapid.IntRange(0, 3).Draw(rt, "condition") == 0 {
		c.ColumnCondition = drawFilter(rt)
	}
	if rapid.IntRange(0, 3).Draw(rt, "expectation") == 0 {
		c.Existence = RowExistence(rapid.IntRange(1, 2).Draw(rt, "existence"))
	}
	return c
}

func drawSelection(rt *rapid.T, m *model) Selection {
	name := func(label string) *string {
		return ptr(rapid.SampledFrom(append([]string{""}, modelColumns...)).Draw(rt, label))
	}
	sel := Selection{StartColumn: name("start"), EndColumn: name("end")}
	if rapid.IntRange(0, 2).Draw(rt, "filter") == 0 {
		sel.Filter = drawFilter(rt)
	}
	if rapid.Bool().Draw(rt, "columns") {
		sel.ColumnsToGet = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "n", "z", "pk"}), 1, 3).Draw(rt, "columns to get")
	}
	if rapid.Bool().Draw(rt, "max versions") {
		sel.MaxVersions = ptr(rapid.Int32Range(1, 3).Draw(rt, "max"))
	}
	if sel.MaxVersions == nil || rapid.Bool().Draw(rt, "time range") {
		from := m.now - rapid.Int64Range(0, 6000).Draw(rt, "from")
		sel.TimeRange = &TimeRange{Start: &from, End: ptr(from + rapid.Int64Range(1, 6000).Draw(rt, "span"))}
	}
	return sel
}

func TestAnyHistoryOfWritesReadsAsTheModelSays(t *testing.T) {
	checkHistories(t, openFixture(t, Limits{}))
}

// This is the same test with memtables so small that rows are spread over table files and
// compacted all the time.
func TestAnyHistoryReadsAsTheModelSaysWhileDataIsFlushedAndMerged(t *testing.T) {
	checkHistories(t, openFixtureOver(t, Limits{}, flagstone.Options{MemtableSize: 512, TableFileSize: 1024}))
}

func checkHistories(t *testing.T, f *fixture) {
	made := false
	rapid.Check(t, func(rt *rapid.T) {
		if made {
			if err := f.DeleteTable(t.Context(), testInstance, "t"); err != nil {
				rt.Fatal(err)
			}
		}
		made = true
		m := &model{
			maxVersions: rapid.IntRange(1, 3).Draw(rt, "table max versions"),
			ttl:         rapid.SampledFrom([]int64{-1, 6, 9}).Draw(rt, "ttl"),
			rows:        map[string]*modelledRow{},
		}
		f.createPlain(int32(m.maxVersions), int32(m.ttl))
		for range rapid.IntRange(1, 25).Draw(rt, "steps") {
			f.clock.Advance(time.Duration(rapid.IntRange(0, 2000).Draw(rt, "advance")) * time.Millisecond)
			m.now = f.clock.NowMillis()
			m.forget()
			key := fmt.Sprint(rapid.IntRange(0, 2).Draw(rt, "row"))
			change := drawChange(rt, m, key)
			if m.maxVersions > 1 && rapid.IntRange(0, 9).Draw(rt, "fewer versions") == 0 {
				m.maxVersions--
				if _, err := f.UpdateTable(t.Context(), testInstance, &UpdateTableRequest{Table: "t", Options: &TableOptions{MaxVersions: ptr(int32(m.maxVersions))}}); err != nil {
					rt.Fatal(err)
				}
				m.forget()
			}
			refused := m.refuses(key, &change)
			switch _, err := f.write(change); {
			case refused != (err != nil && err.Error() == conditionFailed().Error()), err != nil && !refused:
				rt.Fatalf("%+v: refused %v, answered %v", change, refused, err)
			case refused:
			default:
				m.apply(key, &change)
			}
			sel := drawSelection(rt, m)
			for key := range 3 {
				want := m.show(fmt.Sprint(key), &sel)
				if got := f.show(pk(fmt.Sprint(key)), sel); got != want {
					rt.Fatalf("after %+v\nselection %+v\ngot  %s\nwant %s", change, sel, got, want)
				}
			}
		}
	})
}
