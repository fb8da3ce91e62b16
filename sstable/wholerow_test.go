package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/row"
)

// extentOf is what an extent must say about cells. It returns false if none can describe them.
func extentOf(cells []row.Cell) (e row.Extent, ok bool) {
	versions := 0
	for i := range cells {
		c := &cells[i]
		switch {
		case c.Kind == row.KindDeleteRow && i == 0 && c.Version == row.MaxVersion:
			e.Deleted, e.DeleteSeq = true, c.Seq
		case c.Kind == row.KindRowMarker && !e.Marked:
			e.Marked, e.MarkerSeq, e.MarkerVersion = true, c.Seq, c.Version
		case c.Kind != row.KindPut:
			return e, false
		default:
			if versions++; i == 0 || !bytes.Equal(c.Column, cells[i-1].Column) {
				versions = 1
			} else if c.Version == cells[i-1].Version {
				return e, false
			}
			e.Versions = max(e.Versions, versions)
			if e.Cells == 0 {
				e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = c.Seq, c.Seq, c.Version, c.Version
			}
			e.MinSeq, e.MaxSeq = min(e.MinSeq, c.Seq), max(e.MaxSeq, c.Seq)
			e.MinVersion, e.MaxVersion = min(e.MinVersion, c.Version), max(e.MaxVersion, c.Version)
			e.Cells++
		}
	}
	return e, true
}

// checkWhole compares the extent of the current row, and what it collects, with the row's
// cells. It reports whether there was an extent.
func checkWhole(it *Iterator, cells []row.Cell, p *row.Projection, dst *row.Collector) (described bool, err error) {
	var e row.Extent
	if _, ok := it.Extent(row.Ask{}, &e); !ok {
		return false, nil
	}
	it.low, it.high = 1, 0 // Collect may be called for this row without Extent
	want, ok := extentOf(cells)
	if !ok {
		return true, fmt.Errorf("extent of a row that has none")
	}
	wider := e.Versions >= want.Versions && e.MinSeq <= want.MinSeq && e.MaxSeq >= want.MaxSeq && e.MinVersion <= want.MinVersion && e.MaxVersion >= want.MaxVersion
	if e.Cells == 0 {
		wider = true
	}
	e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = want.MinSeq, want.MaxSeq, want.MinVersion, want.MaxVersion
	e.Versions = want.Versions
	if !e.Deleted {
		e.DeleteSeq = 0
	}
	if !e.Marked {
		e.MarkerSeq, e.MarkerVersion = 0, 0
	}
	if !wider || e != want {
		return true, fmt.Errorf("extent %+v, want %+v", e, want)
	}
	used := dst.Extend(len(cells)) // leftovers of an earlier row must not show
	for i := range used {
		used[i] = row.Cell{Kind: row.KindTrim, Type: row.TypeBinary, Seq: 1, Version: 1, Separate: true, Packed: true}
	}
	dst.Reset()
	it.Collect(dst, p)
	var wanted []row.Cell
	versions := 0
	for i := range cells {
		if versions++; i > 0 && !bytes.Equal(cells[i].Column, cells[i-1].Column) {
			versions = 1
		}
		if !cells[i].Kind.IsRowLevel() && p.Wants(cells[i].Column) && !p.Cuts(versions) {
			wanted = append(wanted, cells[i])
		}
	}
	if len(dst.Cells) != len(wanted) {
		return true, fmt.Errorf("collected %d cells, want %d", len(dst.Cells), len(wanted))
	}
	for i := range wanted {
		if !sameCell(&dst.Cells[i], &wanted[i]) {
			return true, fmt.Errorf("collected %s, want %s", dst.Cells[i].String(), wanted[i].String())
		}
	}
	return true, nil
}

// checkMany compares an extent of many rows, from row at of the model on, with the rows.
func checkMany(it *Iterator, model modelTable, at int, rng *rand.Rand) error {
	ask := row.Ask{Rows: true}
	if rng.IntN(2) == 0 && at+1 < len(model) {
		ask.Limit = model[at+1+rng.IntN(min(5, len(model)-at-1))].key
	}
	var s row.Extent
	if _, ok := it.Extent(ask, &s); !ok || s.Rows == 0 {
		return nil
	}
	permanent := s.MarkerVersion == row.MaxVersion
	for _, r := range model[at : at+s.Rows] {
		e, ok := extentOf(r.cells)
		if ask.Limit != nil && bytes.Compare(r.key, ask.Limit) >= 0 {
			return fmt.Errorf("%q is described with rows below %q", r.key, ask.Limit)
		}
		if !e.Marked || (e.MarkerVersion == row.MaxVersion) != permanent || e.MarkerSeq < s.MarkerSeq || e.MarkerSeq > s.MaxSeq ||
			!permanent && (e.MarkerVersion < s.MinVersion || e.MarkerVersion > s.MarkerVersion) {
			return fmt.Errorf("row-level cells of %q do not go with %+v", r.key, s)
		}
		if e.Cells == 0 {
			e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = e.MarkerSeq, e.MarkerSeq, s.MinVersion, s.MinVersion
		}
		if !ok || e.Deleted && e.DeleteSeq > min(e.MinSeq, e.MarkerSeq) || e.MinSeq < s.MinSeq || e.MaxSeq > s.MaxSeq ||
			e.MinVersion < s.MinVersion || e.MaxVersion > s.MaxVersion {
			return fmt.Errorf("%q with extent %+v does not go with %+v", r.key, e, s)
		}
	}
	return nil
}

func randomProjection(rng *rand.Rand, p *row.Projection, columns int) {
	*p = row.Projection{Change: p.Change + 1}
	name := func() []byte { return fmt.Appendf(nil, "c%0*d", 1+rng.IntN(2), rng.IntN(columns)) }
	if rng.IntN(3) > 0 {
		for range rng.IntN(5) {
			p.Columns = append(p.Columns, name())
		}
		slices.SortFunc(p.Columns, bytes.Compare)
		p.Columns = slices.CompactFunc(p.Columns, bytes.Equal)
	}
	if rng.IntN(3) == 0 {
		p.Start = name()
	}
	if rng.IntN(3) == 0 {
		p.End = name()
	}
	p.Versions = rng.IntN(4)
}

func TestWholeRowsAreTheirCells(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	described, rows := 0, 0
	var p row.Projection
	var dst row.Collector
	for range 60 {
		model := randomTable(rng, 60, 30)
		if rng.IntN(2) == 0 {
			// Keep only rows that an extent describes, so that their blocks are plain, either
			// all with the same columns or each with some of them.
			same := randomCells(rng, 12, 8, 10)
			model = slices.DeleteFunc(model, func(r modelRow) bool {
				_, ok := extentOf(r.cells)
				return !ok
			})
			if _, ok := extentOf(same); ok && rng.IntN(2) == 0 {
				for i := range model {
					model[i].cells = same
				}
			}
			if i := rng.IntN(len(model) + 1); i < len(model) && rng.IntN(2) == 0 {
				// Give one row a second version of its last column, or a value of that version
				// that was overwritten, or a delete in it or instead of it.
				cells := slices.Clip(model[i].cells)
				if last := cells[len(cells)-1]; last.Kind == row.KindPut {
					how := rng.IntN(4)
					switch last.Seq--; how {
					case 0:
						last.Version--
					case 1, 2:
						last.Kind, last.Type, last.Value, last.Separate = row.KindDeleteVersion, row.TypeNone, nil, false
					}
					if how == 2 {
						cells = slices.Clip(cells[:len(cells)-1])
					}
					model[i].cells = append(cells, last)
				}
			}
		}
		f := &memFile{}
		model.write(t, f, WriterOptions{BlockSize: 64 << rng.IntN(7), Compression: Compression(rng.IntN(3))})
		r := openShifted(t, f, NewBlockCache(cache.Options{Capacity: 1 << 20}), model.shift(rng))
		it := r.NewIterator(IterOptions{})
		for range 4 {
			randomProjection(rng, &p, 14)
			at := 0
			for ok := it.First(); ok; ok = it.NextRow() {
				if rng.IntN(4) == 0 { // read rows of a block out of order too
					at = rng.IntN(len(model))
					if !it.SeekRowExact(model[at].key) {
						t.Fatal("not found", it.Error())
					}
				}
				if rng.IntN(8) == 0 {
					randomProjection(rng, &p, 14)
				}
				if rng.IntN(8) == 0 {
					dst = row.Collector{}
				}
				dst.Reset()
				if err := checkMany(it, model, at, rng); err != nil {
					t.Fatalf("row %q: %v", model[at].key, err)
				}
				known, err := checkWhole(it, model[at].cells, &p, &dst)
				if err != nil {
					t.Fatalf("row %q of %v, projection %q: %v", model[at].key, model[at].cells, p.Columns, err)
				}
				if rng.IntN(8) == 0 { // go on cell by cell
					if err := checkCells(it, it.FirstCell(), model[at].cells); err != nil {
						t.Fatal(err)
					}
				}
				rows++
				at++
				if known {
					described++
				}
			}
		}
		it.Close()
		r.Close()
	}
	if described < rows/4 || described == rows {
		t.Errorf("%d of %d rows had an extent: the test tests little", described, rows)
	}
}

func BenchmarkCollect(b *testing.B) {
	t, r := benchReader(b, 20_000, CompressS2, 1<<30)
	for _, mode := range []string{"all", "one"} {
		b.Run(mode+" of 10 columns", func(b *testing.B) {
			b.ReportAllocs()
			it := r.NewIterator(IterOptions{})
			var p row.Projection
			if mode == "one" {
				p.Columns = [][]byte{[]byte("column7")}
			}
			var dst row.Collector
			var e row.Extent
			it.First()
			for b.Loop() {
				if !it.NextRow() {
					it.First()
				}
				dst.Reset()
				if _, ok := it.Extent(row.Ask{}, &e); !ok {
					b.Fatal("no extent")
				}
				it.Collect(&dst, &p)
			}
			it.Close()
			_ = t
		})
	}
}

func TestNamedColumnsOfAPlainRowBesideOneWithATombstone(t *testing.T) {
	// Every row has all columns, in order, so the block has no column numbers. But the
	// tombstone of the second row is no put.
	var model modelTable
	for i := range 3 {
		r := modelRow{key: fmt.Appendf(nil, "row%d", i)}
		r.cells = append(r.cells, row.Cell{Kind: row.KindRowMarker, Version: 1000, Seq: 7})
		for _, column := range []string{"a", "b", "c"} {
			c := put(column, 1000, 7, fmt.Appendf(nil, "%s of %d", column, i))
			if i == 1 && column == "b" {
				c = row.Cell{Column: []byte(column), Version: 1000, Seq: 7, Kind: row.KindDeleteVersion}
			}
			r.cells = append(r.cells, c)
		}
		model = append(model, r)
	}
	f := new(memFile)
	model.write(t, f, WriterOptions{})
	it := openFile(t, f, nil).NewIterator(IterOptions{})
	defer it.Close()
	for change, columns := range [][]string{{"a"}, {"b"}, {"c"}, {"a", "c"}, {"b", "c"}, {"a", "b", "c"}} {
		p := row.Projection{Change: uint64(change)}
		for _, c := range columns {
			p.Columns = append(p.Columns, []byte(c))
		}
		for i := range model {
			if !it.SeekRowExact(model[i].key) {
				t.Fatal(it.Error())
			}
			described, err := checkWhole(it, model[i].cells, &p, new(row.Collector))
			if err != nil {
				t.Fatalf("row %d, columns %q: %v", i, columns, err)
			}
			if described != (i != 1) {
				t.Fatalf("row %d: described is %t", i, described)
			}
		}
	}
}
