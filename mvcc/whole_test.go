package mvcc_test

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// readBoth reads a row cell by cell and as a whole. Both must agree.
func readBoth(t testing.TB, source row.Cursor, v mvcc.View, sel mvcc.Selection) answer {
	t.Helper()
	a := readAll(t, mvcctest.NewReader(source, v, sel))
	r := mvcctest.NewReader(source, v, sel)
	r.StartRow()
	c := row.Collector{Borrow: v.Seq%2 == 0}
	b := answer{exists: r.Collect(&c, 0), cells: c.Cells}
	if err := r.Error(); err != nil {
		t.Fatal(err)
	}
	if a.String() != b.String() {
		t.Fatalf("view %+v, selection %+v:\ncell by cell %s\nas a whole   %s", v, sel, a, b)
	}
	if r.Exists() != b.exists || r.NextCell() {
		t.Fatalf("view %+v, selection %+v: after Collect the row exists %t, want %t, or there is a cell left", v, sel, r.Exists(), b.exists)
	}
	return a
}

// smallRow makes cells of a row, mostly one that an Extent can describe. The numbers are
// so small that every order of them occurs.
func smallRow(rng *rand.Rand) (cells []row.Cell) {
	seq := func() uint64 { return 1 + rng.Uint64N(4) }
	if rng.IntN(2) == 0 {
		cells = append(cells, deleteRow(seq()))
	}
	if rng.IntN(8) > 0 {
		version := rng.Int64N(5) * 500
		if rng.IntN(3) == 0 {
			version = row.MaxVersion
		}
		cells = append(cells, marker(version, seq()))
	}
	for _, column := range []string{"a", "b", "c", "d"} {
		for rng.IntN(3) > 0 {
			c := put(column, rng.Int64N(5)*500, seq())
			if rng.IntN(12) == 0 {
				c = row.Cell{Column: c.Column, Version: c.Version, Seq: c.Seq, Kind: row.KindTrim + row.Kind(rng.IntN(2))}
			}
			cells = append(cells, c)
			if rng.IntN(5) > 0 {
				break
			}
		}
	}
	if len(cells) == 0 {
		cells = append(cells, deleteRow(seq()))
	}
	sortCells(cells)
	unique := cells[:1]
	for i := range cells[1:] {
		if row.CompareCells(&cells[i], &cells[i+1]) != 0 {
			unique = append(unique, cells[i+1])
		}
	}
	return unique
}

func smallSelection(rng *rand.Rand) (sel mvcc.Selection) {
	names := []string{"", "a", "b", "bb", "c", "d", "e"}
	switch rng.IntN(4) {
	case 0:
		sel.Start, sel.End = []byte(names[rng.IntN(7)]), []byte(names[rng.IntN(7)])
	case 1:
		for _, name := range names[1:] {
			if rng.IntN(2) == 0 {
				sel.Columns = append(sel.Columns, []byte(name))
			}
		}
		if rng.IntN(3) == 0 {
			sel.Start = []byte(names[rng.IntN(7)])
		}
	case 2:
		sel.MinVersion, sel.MaxVersionExcl = rng.Int64N(4)*500, rng.Int64N(6)*500
		sel.MaxVersions = rng.IntN(3)
		sel.NoCells = rng.IntN(8) == 0
	}
	return sel
}

func TestARowReadAsAWholeIsTheRowReadCellByCell(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	collected, undecided := 0, 0
	for range 60_000 {
		cells := smallRow(rng)
		it := positioned(cells)
		v := mvcc.View{Seq: 2 + rng.Uint64N(6), MaxVersions: rng.IntN(3), Cutoff: mvcc.NoExpiry}
		if rng.IntN(2) == 0 {
			v.Cutoff = rng.Int64N(4)
		}
		sel := smallSelection(rng)
		got := readBoth(t, it, v, sel)
		if _, ok := it.Extent(row.Ask{}, new(row.Extent)); !ok {
			continue // no history leaves such cells, and the oracle may differ on them
		}
		if want := selected(oracle(cells, v), sel); want.exists && got.String() != want.String() || got.exists != want.exists {
			t.Fatalf("cells %s\nview %+v, selection %+v:\ngot  %s\nwant %s", list(cells), v, sel, got, want)
		}
		if it.Collected > 0 {
			collected++
		} else {
			undecided++
		}
	}
	if collected < 5_000 || undecided < 1_000 {
		t.Errorf("%d rows were collected as a whole, %d were not decided: the test tests nothing", collected, undecided)
	}
}

func list(cells []row.Cell) (s string) {
	for i := range cells {
		s += cells[i].String() + " "
	}
	return s
}

func TestARowOfSeveralRunsIsNotReadAsAWhole(t *testing.T) {
	older := []row.Cell{deleteRow(1), marker(1, 1), put("a", 1, 1), put("b", 1, 1)}
	newer := []row.Cell{marker(2, 2), put("b", 2, 2)}
	merge := mvcctest.NewRowMerge([]mvcc.Iterator{positioned(newer), positioned(older)})
	want := fmt.Sprint("exists=true ", list([]row.Cell{put("a", 1, 1), put("b", 2, 2)}))
	if got := readBoth(t, merge, newest, mvcc.Selection{}).String() + " "; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkCollectRowOfTenColumns(b *testing.B) {
	it := mvcctest.Run{{Key: []byte("k"), Cells: tenColumns(5)}}.NewIterator()
	it.First()
	r := mvcctest.NewReader(it, newest, mvcc.Selection{})
	var c row.Collector
	b.ReportAllocs()
	for b.Loop() {
		c.Reset()
		r.StartRow()
		if !r.Collect(&c, 0) || len(c.Cells) != 10 {
			b.Fatal(len(c.Cells))
		}
	}
}

// evenRow makes a row as a single put leaves it.
func evenRow(rng *rand.Rand, permanent bool) []row.Cell {
	seq, version := 1+rng.Uint64N(4), rng.Int64N(5)*500
	cells := []row.Cell{marker(version, seq)}
	if permanent {
		cells[0].Version = row.MaxVersion
	}
	if rng.IntN(2) == 0 {
		cells = append(cells, deleteRow(seq))
	}
	for _, column := range []string{"a", "b", "c"} {
		if rng.IntN(3) > 0 {
			cells = append(cells, put(column, version, seq))
		}
	}
	sortCells(cells)
	return cells
}

// stretchyRuns makes runs of rows, most of which can be judged many at once.
func stretchyRuns(rng *rand.Rand) []mvcctest.Run {
	runs := make([]mvcctest.Run, 1+rng.IntN(3))
	permanent := rng.IntN(2) == 0
	at := 0
	for k := range 40 {
		if rng.IntN(6) == 0 {
			at = rng.IntN(len(runs))
		}
		for i := range runs {
			if i != at && rng.IntN(12) > 0 {
				continue
			}
			cells := evenRow(rng, permanent)
			if rng.IntN(12) == 0 {
				cells = smallRow(rng)
			}
			for j := range cells {
				cells[j].Seq += uint64(4 * (len(runs) - 1 - i)) // newer than in all the runs below
			}
			runs[i] = append(runs[i], mvcctest.Row{Key: fmt.Appendf(nil, "%03d", k), Cells: cells})
		}
	}
	return runs
}

// pair are readers of the same rows. One of them reads rows together.
type pair struct {
	view      mvcc.View
	sel       mvcc.Selection
	together  *mvcc.RowReader
	one       *mvcc.MergeIterator
	oneReader *mvcc.RowReader
}

// compare compares the last n rows of a chunk with those that one reads, of which first is the current one.
func (p *pair) compare(t *testing.T, chunk *row.Chunk, n int, first answer) {
	t.Helper()
	want := first
	for i := range n {
		key, cells := chunk.Row(chunk.Len() - n + i)
		if i > 0 {
			if limit := p.together.Limit; limit != nil && string(key) >= string(limit) {
				t.Fatalf("row %s was read together with those below %s", key, limit)
			}
			if !p.one.NextRow() {
				t.Fatalf("row %s, want the end", key)
			}
			want = readAll(t, p.oneReader)
		}
		if got := (answer{exists: true, cells: cells}); string(key) != string(p.one.RowKey()) || got.String() != want.String() {
			t.Fatalf("view %+v, selection %+v:\ntogether   %s %s\none by one %s %s", p.view, p.sel, key, got, p.one.RowKey(), want)
		}
	}
}

func TestRowsJudgedManyAtOnceAreTheRowsJudgedOneByOne(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	collected, chunked := 0, 0
	var chunk row.Chunk
	for range 1_500 {
		runs := stretchyRuns(rng)
		v := mvcc.View{Seq: 2 + rng.Uint64N(uint64(2+4*len(runs))), MaxVersions: rng.IntN(3), Cutoff: mvcc.NoExpiry}
		if rng.IntN(2) == 0 {
			v.Cutoff = rng.Int64N(4)
		}
		sel := smallSelection(rng)
		many, one := mvcc.NewMergeIterator(iterators(runs)), mvcc.NewMergeIterator(iterators(runs))
		manyReader, oneReader := mvcctest.NewReader(many, v, sel), mvcctest.NewReader(one, v, sel)
		if rng.IntN(2) == 0 {
			manyReader.Limit = fmt.Appendf(nil, "%03d", rng.IntN(41))
		}
		pair := pair{v, sel, manyReader, one, oneReader}
		var c row.Collector
		// checkChunk reads rows together, of which it is given the first, and compares them with those read one
		// by one. It reports whether any were read together.
		checkChunk := func(want answer) bool {
			chunk.Budget = rng.IntN(12)
			n := manyReader.CollectRows(&chunk)
			pair.compare(t, &chunk, n, want)
			chunked += n
			if rng.IntN(4) == 0 {
				chunk.Reset()
			}
			return n > 0
		}
		move := func() (a, b bool) {
			switch key := fmt.Appendf(nil, "%03d", rng.IntN(41)); rng.IntN(12) {
			case 0:
				manyReader.StartRow()
				return many.SeekRow(key), one.SeekRow(key)
			case 1:
				manyReader.StartRow()
				return many.SeekRowBefore(key), one.SeekRowBefore(key)
			case 2, 3:
				manyReader.StartRow()
				return many.PrevRow(), one.PrevRow()
			}
			return many.NextRow(), one.NextRow()
		}
		a, b := many.First(), one.First()
		for range 100 {
			if a != b {
				t.Fatalf("one ends, the other does not: %t, %t", a, b)
			}
			if !a {
				a, b = many.First(), one.First()
				manyReader.StartRow()
				if a != b {
					t.Fatalf("one has rows, the other has none: %t, %t", a, b)
				}
				if !a {
					break
				}
			}
			if string(many.RowKey()) != string(one.RowKey()) {
				t.Fatalf("at row %s, want %s", many.RowKey(), one.RowKey())
			}
			want := readAll(t, oneReader)
			manyReader.NextRow()
			if rng.IntN(3) == 0 && checkChunk(want) {
				a, b = move()
				continue
			}
			if rng.IntN(6) > 0 { // otherwise the row is skipped, or read below
				c.Reset()
				got := answer{exists: manyReader.Collect(&c, 0), cells: c.Cells}
				if err := manyReader.Error(); err != nil {
					t.Fatal(err)
				}
				if got.String() != want.String() {
					t.Fatalf("row %s, view %+v, selection %+v:\nmany at once %s\none by one   %s", many.RowKey(), v, sel, got, want)
				}
				collected += len(c.Cells)
			} else if rng.IntN(2) == 0 {
				if got := manyReader.Exists(); got != want.exists {
					t.Fatalf("row %s exists %t, want %t", many.RowKey(), got, want.exists)
				}
			}
			a, b = move()
		}
	}
	if collected < 10_000 || chunked < 10_000 {
		t.Errorf("%d cells collected, %d rows read together: the test tests little", collected, chunked)
	}
}

// layeredRuns makes runs of one row, newest first. Each run has sequence numbers above
// those of the next.
func layeredRuns(rng *rand.Rand, n int) (runs [][]row.Cell) {
	for i := range n {
		cells := smallRow(rng)
		if rng.IntN(3) > 0 { // an update
			cells = slices.DeleteFunc(cells, func(c row.Cell) bool { return c.Kind == row.KindDeleteRow })
		}
		for j := range cells {
			cells[j].Seq += uint64(4 * (n - 1 - i))
			if c := &cells[j]; c.Kind == row.KindTrim && rng.IntN(4) == 0 {
				c.Version = row.MaxVersion
			}
		}
		sortCells(cells)
		if len(cells) > 0 {
			runs = append(runs, cells)
		}
	}
	return runs
}

func TestARowInLayersIsTheRowReadCellByCell(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	laid, other, failed := 0, 0, 0
	for range 60_000 {
		runs := layeredRuns(rng, 1+rng.IntN(3))
		var all []row.Cell
		var sources []mvcc.Iterator
		var its []*mvcctest.Iterator
		for _, cells := range runs {
			all = append(all, cells...)
			it := positioned(cells)
			its, sources = append(its, it), append(sources, it)
		}
		if len(sources) == 0 {
			continue
		}
		sortCells(all)
		v := mvcc.View{Seq: 2 + rng.Uint64N(uint64(4*len(runs)+2)), MaxVersions: rng.IntN(4), Cutoff: mvcc.NoExpiry}
		if rng.IntN(3) > 0 {
			v.Seq = row.MaxSequence
		}
		if rng.IntN(3) == 0 {
			v.Cutoff = rng.Int64N(4)
		}
		sel := smallSelection(rng)
		if rng.IntN(2) == 0 {
			sel = mvcc.Selection{MaxVersions: rng.IntN(3)}
		}
		want := readBoth(t, mvcctest.NewRowMerge(sources), v, sel)
		var collected int
		for _, it := range its {
			collected += it.Collected
		}
		if collected > 0 && len(sources) > 1 {
			laid++
		} else {
			other++
		}
		// If a run fails, the answer is an error, or is unaffected.
		it := its[rng.IntN(len(its))]
		it.FailAfter = it.Moves + 1 + rng.IntN(20)
		r := mvcctest.NewReader(mvcctest.NewRowMerge(sources), v, sel)
		r.StartRow()
		var c row.Collector
		got := answer{exists: r.Collect(&c, 0), cells: c.Cells}
		if r.Error() != nil {
			failed++
		} else if got.String() != want.String() {
			t.Fatalf("a run failed unnoticed: got %s, want %s", got, want)
		}
	}
	if laid < 5_000 || other < 5_000 || failed < 1_000 {
		t.Errorf("%d rows were read in layers, %d were not, %d reads failed: the test tests little", laid, other, failed)
	}
}

// TestARowCopiedWholeIsTheRowPrunedCellByCell: what Plain accepts is kept by Add, and Add drops
// the older cells of other inputs that Plain leaves out.
func TestARowCopiedWholeIsTheRowPrunedCellByCell(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	alone, covering, spentRows := 0, 0, 0
	for range 200_000 {
		cells := smallRow(rng)
		var older []row.Cell
		if rng.IntN(2) == 0 {
			older = smallRow(rng)
			for i := range cells {
				cells[i].Seq += 8
			}
		}
		var e row.Extent
		if _, ok := positioned(cells).Extent(row.Ask{}, &e); !ok {
			continue
		}
		policy := mvcc.Policy{MaxVersions: rng.IntN(3), ExpiryCutoff: mvcc.NoExpiry, TombstoneHorizon: uint64(rng.IntN(2) * rng.IntN(14))}
		if rng.IntN(2) == 0 {
			policy.ExpiryCutoff = rng.Int64N(4)
		}
		for range rng.IntN(3) {
			policy.Views = append(policy.Views, mvcc.View{Seq: 1 + rng.Uint64N(14), MaxVersions: policy.MaxVersions, Cutoff: policy.ExpiryCutoff})
		}
		slices.SortFunc(policy.Views, func(a, b mvcc.View) int { return cmp.Compare(a.Seq, b.Seq) })
		policy.Views = append(policy.Views, mvcc.View{Seq: row.MaxSequence, MaxVersions: policy.MaxVersions, Cutoff: policy.ExpiryCutoff})
		below := mvcc.Below(rng.IntN(3))
		spent, ok := mvcc.NewPruner(policy).Plain(&e, len(older) == 0, below)
		if !ok {
			continue
		}
		kept := cells
		if spent {
			kept = kept[1:]
			spentRows++
		}
		if len(older) == 0 {
			alone++
		} else {
			covering++
		}
		all := append(slices.Clone(cells), older...)
		sortCells(all)
		if got, want := list(kept), list(prune(t, policy, below, all)); got != want {
			t.Fatalf("%s\nolder %s\npolicy %+v, below %d:\ncopied  %s\npruned %s", list(cells), list(older), policy, below, got, want)
		}
	}
	if alone < 5_000 || covering < 200 || spentRows < 200 {
		t.Errorf("%d rows copied alone, %d over older cells, %d without their delete-row: the test tests little", alone, covering, spentRows)
	}
}

// TestOneRowIsNotReadWithThoseAfterIt: a RowMerge is one row, though its source knows the next.
func TestOneRowIsNotReadWithThoseAfterIt(t *testing.T) {
	var run mvcctest.Run
	for _, key := range []string{"a", "b", "c"} {
		run = append(run, mvcctest.Row{Key: []byte(key), Cells: []row.Cell{marker(5, 1), put("x", 5, 1)}})
	}
	it := run.NewIterator()
	it.First()
	r := mvcctest.NewReader(mvcctest.NewRowMerge([]mvcc.Iterator{it}), newest, mvcc.Selection{})
	chunk := row.Chunk{Budget: 1000}
	if n := r.CollectRows(&chunk); n != 0 {
		t.Errorf("%d rows were read together", n)
	}
}
