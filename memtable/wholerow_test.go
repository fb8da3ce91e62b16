package memtable_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// checkWhole compares the extent of the current row, if it has one, and the cells it collects
// with the row's cells.
func checkWhole(t fataler, it *memtable.Iterator, cells []row.Cell, random *rand.Rand) {
	t.Helper()
	checkLayers(t, it, cells, random)
	var e row.Extent
	if _, ok := it.Extent(row.Ask{}, &e); !ok {
		return
	}
	p := row.Projection{Versions: random.IntN(3)}
	if random.IntN(2) == 0 {
		p.Columns = [][]byte{[]byte("c1"), []byte("c3")}
	}
	var wanted []row.Cell
	puts, versions := 0, 0
	for i := range cells {
		c := &cells[i]
		if versions++; i > 0 && string(cells[i-1].Column) != string(c.Column) {
			versions = 1
		}
		if c.Kind == row.KindDeleteRow && e.Deleted && e.DeleteSeq == c.Seq ||
			c.Kind == row.KindRowMarker && e.Marked && e.MarkerSeq == c.Seq && e.MarkerVersion == c.Version {
			continue
		}
		if c.Kind != row.KindPut || c.Seq < e.MinSeq || c.Seq > e.MaxSeq || c.Version < e.MinVersion || c.Version > e.MaxVersion ||
			versions > 1 && cells[i-1].Version == c.Version || versions > e.Versions {
			t.Fatalf("row %q: cell %v does not go with extent %+v", it.RowKey(), c, e)
		}
		puts++
		if p.Wants(c.Column) && !p.Cuts(versions) {
			wanted = append(wanted, *c)
		}
	}
	rowLevel := len(cells) - puts
	if e.Cells != puts || (rowLevel > 0) != (e.Deleted || e.Marked) || (rowLevel == 2) != (e.Deleted && e.Marked) {
		t.Fatalf("row %q: extent %+v of %v", it.RowKey(), e, cells)
	}
	dst := row.Collector{Borrow: random.IntN(2) == 0}
	it.Collect(&dst, &p)
	if len(dst.Cells) != len(wanted) {
		t.Fatalf("row %q: collected %d cells, want %d", it.RowKey(), len(dst.Cells), len(wanted))
	}
	for i := range wanted {
		if !sameCell(&dst.Cells[i], &wanted[i]) {
			t.Fatalf("row %q: collected %v, want %v", it.RowKey(), &dst.Cells[i], &wanted[i])
		}
	}
}

// checkLayers compares the two layers of the current row, if it has two, with the row's cells.
func checkLayers(t fataler, it *memtable.Iterator, cells []row.Cell, random *rand.Rand) {
	t.Helper()
	var e row.Extent
	newer, _ := it.Extent(row.Ask{Layers: true, Seq: row.MaxSequence}, &e)
	if newer == nil {
		return
	}
	later := slices.DeleteFunc(slices.Clone(cells), func(c row.Cell) bool { return c.Seq <= e.MaxSeq })
	i := 0
	for ok := newer.FirstCell(); ok; ok = newer.NextCell() {
		if i == len(later) || !sameCell(newer.Cell(), &later[i]) {
			t.Fatalf("row %q: cell %v of the newer layer, want number %d of %v", it.RowKey(), newer.Cell(), i, later)
		}
		i++
	}
	if i != len(later) {
		t.Fatalf("row %q: the newer layer has %d cells, want %d", it.RowKey(), i, len(later))
	}
	if len(cells) > 0 {
		c := &cells[random.IntN(len(cells))]
		at := slices.IndexFunc(later, func(l row.Cell) bool {
			return string(l.Column) > string(c.Column) || string(l.Column) == string(c.Column) && l.Version <= c.Version
		})
		if found := newer.SeekCell(c.Column, c.Version); found != (at >= 0) || found && !sameCell(newer.Cell(), &later[at]) {
			t.Fatalf("row %q: seeking %v found %t %v, want number %d of %v", it.RowKey(), c, found, newer.Cell(), at, later)
		}
	}
	var dst row.Collector
	it.Collect(&dst, &row.Projection{})
	older := slices.DeleteFunc(slices.Clone(cells), func(c row.Cell) bool { return c.Seq > e.MaxSeq || c.Kind.IsRowLevel() })
	if !slices.EqualFunc(dst.Cells, older, func(a, b row.Cell) bool { return sameCell(&a, &b) }) || len(older) != e.Cells {
		t.Fatalf("row %q: the older layer is %v with extent %+v, want %v", it.RowKey(), dst.Cells, e, older)
	}
}

func TestRowsOfOneMutationAreKnownAsAWhole(t *testing.T) {
	for cells := range 140 {
		m := memtable.New(memtable.Options{Seed: 1})
		mut := &row.Mutation{Key: []byte("k"), DeleteRow: true, PutRow: true}
		for i := range cells {
			mut.Cells = append(mut.Cells, row.Cell{
				Column: fmt.Appendf(nil, "c%03d", i), Version: int64(i), Kind: row.KindPut, Type: row.TypeString, Value: fmt.Append(nil, i),
			})
		}
		m.Apply(7, change(t, mut))
		it := m.NewIterator()
		var e row.Extent
		if !it.First() {
			t.Fatal("no row")
		}
		if _, ok := it.Extent(row.Ask{}, &e); ok != (cells <= 128) || ok && e.Cells != cells {
			t.Fatalf("%d cells: %+v", cells, e)
		}
		m.Apply(8, change(t, &row.Mutation{Key: []byte("k"), Cells: []row.Cell{{Column: []byte("x"), Version: 1, Kind: row.KindPut, Type: row.TypeString}}}))
		if _, ok := it.Extent(row.Ask{}, &e); ok {
			t.Fatal("a row of two mutations is known as a whole")
		}
	}
}

func change(t *testing.T, mut *row.Mutation) *row.Change {
	t.Helper()
	if err := mut.Normalize(); err != nil {
		t.Fatal(err)
	}
	return memtable.ChangeOf(mut)
}
