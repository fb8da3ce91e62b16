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

// A model of one table, as simple as it can be: it keeps what is visible and
// forgets at once what the table's Max Versions or a delete hides.

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

// forget drops what has expired and what Max Versions hides.
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
		}
	}
	if r.marker >= 0 {
		m.rows[key] = r
	}
	m.forget()
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
	return showRow(&shown)
}

var modelColumns = []string{"a", "b", "c"}

func drawChange(rt *rapid.T, m *model, key string) RowChange {
	version := func() int64 { return m.now - rapid.Int64Range(0, 5000).Draw(rt, "age") }
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
	switch rapid.IntRange(0, 9).Draw(rt, "change") {
	case 0:
		return deleteOf(pk(key))
	case 1, 2:
		return putOf(pk(key), draw(OpPut)...)
	}
	cells := draw(OpPut, OpPut, OpDeleteAllVersion, OpDeleteOneVersion)
	return updateOf(pk(key), append(cells, cell("z", 0))...)
}

func drawSelection(rt *rapid.T, m *model) Selection {
	name := func(label string) *string {
		return ptr(rapid.SampledFrom(append([]string{""}, modelColumns...)).Draw(rt, label))
	}
	sel := Selection{StartColumn: name("start"), EndColumn: name("end")}
	if rapid.Bool().Draw(rt, "columns") {
		sel.ColumnsToGet = rapid.SliceOfN(rapid.SampledFrom([]string{"a", "b", "c", "z", "pk"}), 1, 3).Draw(rt, "columns to get")
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

// The same with memtables so small that rows are spread over table files and
// merged all the time.
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
			if _, err := f.write(change); err != nil {
				rt.Fatalf("%+v: %v", change, err)
			}
			m.apply(key, &change)
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
