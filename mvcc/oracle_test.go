package mvcc_test

// The naive oracle: it reads the rules of the package comment literally, over the set of
// all cells ever written. It prunes nothing, assumes no order, and shares no code with
// the package.

import (
	"bytes"
	"fmt"
	"sort"
	"strings"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// answer is what a view shows of a row.
type answer struct {
	exists bool
	cells  []row.Cell // shown puts in cell order
}

func (a answer) String() string {
	if !a.exists && len(a.cells) == 0 {
		return "absent"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "exists=%t", a.exists)
	for i := range a.cells {
		fmt.Fprintf(&b, " %s", a.cells[i].String())
	}
	return b.String()
}

func oracle(cells []row.Cell, v mvcc.View) answer {
	var a answer
	expired := func(version int64) bool { return version != row.MaxVersion && version/1000 < v.Cutoff }
	hidden := func(c row.Cell) bool {
		for _, t := range cells {
			if t.Seq > v.Seq || t.Seq <= c.Seq {
				continue
			}
			same := bytes.Equal(t.Column, c.Column)
			switch {
			case t.Kind == row.KindDeleteRow:
				return true
			case t.Kind == row.KindTrim && same && c.Version <= t.Version:
				return true
			case (t.Kind == row.KindDeleteVersion || t.Kind == row.KindPut) && same && c.Version == t.Version:
				return true
			}
		}
		return false
	}
	for _, c := range cells {
		if c.Seq > v.Seq || expired(c.Version) {
			continue
		}
		switch c.Kind {
		case row.KindRowMarker:
			dead := false
			for _, t := range cells {
				dead = dead || t.Kind == row.KindDeleteRow && t.Seq <= v.Seq && t.Seq > c.Seq
			}
			a.exists = a.exists || !dead
		case row.KindPut:
			if !hidden(c) {
				a.cells = append(a.cells, c)
			}
		}
	}
	sortCells(a.cells)
	if v.MaxVersions > 0 {
		a.cells = newestOf(a.cells, v.MaxVersions)
	}
	return a
}

func sortCells(cells []row.Cell) {
	sort.Slice(cells, func(i, j int) bool { return row.CompareCells(&cells[i], &cells[j]) < 0 })
}

// newestOf keeps the first n cells of each column; cells are sorted.
func newestOf(cells []row.Cell, n int) []row.Cell {
	var kept []row.Cell
	count := map[string]int{}
	for _, c := range cells {
		if count[string(c.Column)]++; count[string(c.Column)] <= n {
			kept = append(kept, c)
		}
	}
	return kept
}

// selected applies a selection to an answer.
func selected(a answer, sel mvcc.Selection) answer {
	var kept []row.Cell
	for _, c := range a.cells {
		name := string(c.Column)
		wanted := len(sel.Columns) == 0
		for _, w := range sel.Columns {
			wanted = wanted || string(w) == name
		}
		switch {
		case sel.NoCells, !wanted,
			len(sel.Start) > 0 && name < string(sel.Start),
			len(sel.End) > 0 && name >= string(sel.End),
			c.Version < sel.MinVersion,
			sel.MaxVersionExcl > 0 && c.Version >= sel.MaxVersionExcl:
			continue
		}
		kept = append(kept, c)
	}
	if sel.MaxVersions > 0 {
		kept = newestOf(kept, sel.MaxVersions)
	}
	return answer{a.exists, kept}
}
