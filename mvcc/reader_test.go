package mvcc_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

func put(column string, version int64, seq uint64) row.Cell {
	return row.Cell{
		Column: []byte(column), Version: version, Seq: seq, Kind: row.KindPut,
		Type: row.TypeInteger, Value: row.Integer(version).AppendPayload(nil),
	}
}

func marker(version int64, seq uint64) row.Cell {
	return row.Cell{Version: version, Seq: seq, Kind: row.KindRowMarker}
}

func deleteRow(seq uint64) row.Cell {
	return row.Cell{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow}
}

func positioned(cells []row.Cell) *mvcctest.Iterator {
	sortCells(cells)
	it := mvcctest.Run{{Key: []byte("k"), Cells: cells}}.NewIterator()
	it.First()
	return it
}

var newest = mvcc.View{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}

// hotRow is a row that was put n times, with two columns, in one memtable.
func hotRow(n int) (cells []row.Cell) {
	for i := 1; i <= n; i++ {
		seq, version := uint64(i), int64(i)
		cells = append(cells, deleteRow(seq), marker(version, seq), put("a", version, seq), put("b", version, seq))
	}
	return cells
}

func TestAHotRowIsReadInAFewSteps(t *testing.T) {
	it := positioned(hotRow(10_000))
	r := mvcctest.NewReader(it, newest, mvcc.Selection{})
	a := readAll(t, r)
	if !a.exists || len(a.cells) != 2 || a.cells[0].Version != 10_000 || a.cells[1].Version != 10_000 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 40 {
		t.Errorf("examined %d cells", r.Examined())
	}
}

func TestASurplusOfVersionsIsSkipped(t *testing.T) {
	cells := []row.Cell{marker(10_000, 1)}
	for v := int64(1); v <= 10_000; v++ {
		cells = append(cells, put("a", v, 1), put("c", v, 1))
	}
	cells = append(cells, put("b", 1, 1))
	r := mvcctest.NewReader(positioned(cells), mvcc.View{Seq: 1, MaxVersions: 3, Cutoff: mvcc.NoExpiry}, mvcc.Selection{})
	if a := readAll(t, r); len(a.cells) != 7 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 40 {
		t.Errorf("examined %d cells", r.Examined())
	}
	// Expired versions end a column in the same way.
	r = mvcctest.NewReader(positioned(cells), mvcc.View{Seq: 1, Cutoff: 10}, mvcc.Selection{})
	if a := readAll(t, r); !a.exists || len(a.cells) != 2 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 40 {
		t.Errorf("examined %d cells", r.Examined())
	}
}

func TestAProjectionTouchesOnlyWhatIsAskedFor(t *testing.T) {
	cells := []row.Cell{marker(1, 1)}
	for i := range 100_000 {
		cells = append(cells, put(fmt.Sprintf("c%06d", i), 1, 1))
	}
	it := positioned(cells)
	sel := mvcc.Selection{Columns: [][]byte{[]byte("a"), []byte("c000500"), []byte("c000502"), []byte("c099999"), []byte("d")}}
	r := mvcctest.NewReader(it, newest, sel)
	if a := readAll(t, r); len(a.cells) != 3 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 30 {
		t.Errorf("examined %d cells", r.Examined())
	}
	r.Reset(it, newest, mvcc.Selection{Start: []byte("c050000"), End: []byte("c050003")})
	if a := readAll(t, r); len(a.cells) != 3 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 30 {
		t.Errorf("examined %d cells", r.Examined())
	}
}

func TestTheDeadCellsOfADeletedRowAreNotWalked(t *testing.T) {
	cells := []row.Cell{marker(1, 1), deleteRow(2)}
	for i := range 10_000 {
		cells = append(cells, put(fmt.Sprintf("c%06d", i), 1, 1))
	}
	r := mvcctest.NewReader(positioned(cells), newest, mvcc.Selection{})
	if a := readAll(t, r); a.exists || len(a.cells) != 0 {
		t.Fatalf("got %v", a)
	}
	if r.Examined() > 10 {
		t.Errorf("examined %d cells", r.Examined())
	}
}

func TestAReaderNeverTakesAnErrorForAnAnswer(t *testing.T) {
	cells := hotRow(3)
	want := readAll(t, mvcctest.NewReader(positioned(cells), newest, mvcc.Selection{}))
	for failAfter := 2; ; failAfter++ {
		it := positioned(cells)
		it.FailAfter = failAfter
		r := mvcctest.NewReader(it, newest, mvcc.Selection{})
		r.StartRow()
		exists, n := r.Exists(), 0
		for r.NextCell() {
			n++
		}
		if it.Moves < failAfter {
			if r.Error() != nil || !exists || n != len(want.cells) {
				t.Fatalf("got %t, %d cells, error %v", exists, n, r.Error())
			}
			return
		}
		if !errors.Is(r.Error(), mvcctest.ErrInjected) {
			t.Fatalf("failure at movement %d is lost: exists %t, %d cells", failAfter, exists, n)
		}
	}
}

func TestReadingAllocatesNothingPerRow(t *testing.T) {
	it := positioned(hotRow(20))
	r := mvcctest.NewReader(it, newest, mvcc.Selection{Columns: [][]byte{[]byte("a"), []byte("b")}})
	if n := testing.AllocsPerRun(100, func() {
		r.StartRow()
		for r.NextCell() {
		}
	}); n != 0 {
		t.Errorf("%v allocations per row", n)
	}
}

func TestCutoffAt(t *testing.T) {
	const maxInt, minInt = int64(^uint64(0) >> 1), -int64(^uint64(0)>>1) - 1
	for _, c := range []struct{ now, ttl, want int64 }{
		{1469030400_000, 86400, 1468944000},
		{1469030400_999, 86400, 1468944000},
		{1469030400_000, -1, mvcc.NoExpiry},
		{0, 0, 0},
		{-1, 0, -1},
		{-1000, 0, -1},
		{-1001, 0, -2},
		{0, maxInt, -maxInt},
		{minInt, maxInt, mvcc.NoExpiry},
		{maxInt, 0, maxInt / 1000},
	} {
		if got := mvcc.CutoffAt(c.now, c.ttl); got != c.want {
			t.Errorf("CutoffAt(%d, %d) = %d, want %d", c.now, c.ttl, got, c.want)
		}
	}
}

func TestExpiryAtTheEdgesOfTheRange(t *testing.T) {
	const year = 365 * 86400 * 1000
	cells := []row.Cell{marker(row.MaxVersion, 1), put("a", row.MaxVersion-1, 1), put("b", 0, 1), put("c", year, 1)}
	for _, c := range []struct {
		cutoff int64
		want   int
	}{{mvcc.NoExpiry, 3}, {-5, 3}, {0, 3}, {1, 2}, {year/1000 + 1, 1}, {row.MaxVersion / 1000, 1}, {row.MaxVersion/1000 + 1, 0}, {row.MaxVersion, 0}} {
		r := mvcctest.NewReader(positioned(cells), mvcc.View{Seq: 1, Cutoff: c.cutoff}, mvcc.Selection{})
		if a := readAll(t, r); !a.exists || len(a.cells) != c.want {
			t.Errorf("cutoff %d: %v, want %d cells", c.cutoff, a, c.want)
		}
	}
}
