package mvcc_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// interleavedRuns makes runs of rows of which each is in a run of its own choice. A part of them are in
// older runs, too, and a part of those are updates that leave something of the older ones.
func interleavedRuns(rng *rand.Rand) []mvcctest.Run {
	runs := make([]mvcctest.Run, 2+rng.IntN(5))
	twice, updated, odd := rng.IntN(3)*rng.IntN(40), rng.IntN(2)*10, rng.IntN(2)*10
	for k := range 150 {
		newest := rng.IntN(len(runs))
		for i := newest; i < len(runs); i++ {
			if i > newest && rng.IntN(100) >= twice {
				continue
			}
			cells := evenRow(rng, true)
			if seq := cells[len(cells)-1].Seq; rng.IntN(100) >= updated {
				if cells[0].Kind != row.KindDeleteRow {
					cells = append([]row.Cell{deleteRow(seq)}, cells...)
				}
				for j := range cells {
					cells[j].Seq = seq
				}
			}
			if rng.IntN(100) < odd {
				cells = smallRow(rng)
			}
			for j := range cells {
				cells[j].Seq += uint64(4 * (len(runs) - 1 - i)) // newer than in all the runs below
			}
			sortCells(cells)
			runs[i] = append(runs[i], mvcctest.Row{Key: fmt.Appendf(nil, "key-%03d", k), Cells: cells})
		}
	}
	return runs
}

// runOf returns the newest run that holds the row.
func runOf(runs []mvcctest.Run, key []byte) int {
	for i, run := range runs {
		for _, r := range run {
			if string(r.Key) == string(key) {
				return i
			}
		}
	}
	return -1
}

func TestRowsOfInterleavedRunsAreTheRowsReadOneByOne(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	switches, turns := 0, 0
	var chunk row.Chunk
	for range 300 {
		runs := interleavedRuns(rng)
		v := mvcc.View{Seq: 1 << 20, MaxVersions: rng.IntN(3), Cutoff: mvcc.NoExpiry}
		if rng.IntN(3) == 0 {
			v.Seq = 2 + rng.Uint64N(uint64(2+4*len(runs)))
		}
		var sel mvcc.Selection
		if rng.IntN(2) == 0 {
			sel = smallSelection(rng)
		}
		many, one := new(mvcc.MergeIterator), mvcc.NewMergeIterator(iterators(runs))
		many.Reset(iterators(runs), []byte("key-0000000000")[:rng.IntN(14)])
		manyReader, oneReader := mvcctest.NewReader(many, v, sel), mvcctest.NewReader(one, v, sel)
		if rng.IntN(3) == 0 {
			manyReader.Limit = fmt.Appendf(nil, "key-%03d", rng.IntN(150))
		}
		pair := pair{v, sel, manyReader, one, oneReader}
		alone := rng.IntN(2) * 10 // of 20 rows
		a, b := many.First(), one.First()
		for steps := 0; a && b && steps < 400; steps++ {
			want := readAll(t, oneReader)
			if rng.IntN(8) == 0 {
				manyReader.StartRow()
			} else {
				manyReader.NextRow()
			}
			chunk.Reset()
			chunk.Budget = rng.IntN(60)
			n := 0
			below := manyReader.Limit == nil || string(many.RowKey()) < string(manyReader.Limit)
			if below && rng.IntN(20) >= alone {
				n = manyReader.CollectRows(&chunk)
			}
			pair.compare(t, &chunk, n, want)
			for i := 1; i < n; i++ {
				before, _ := chunk.Row(i - 1)
				if key, _ := chunk.Row(i); runOf(runs, before) != runOf(runs, key) {
					switches++
				}
			}
			if string(many.RowKey()) != string(one.RowKey()) {
				t.Fatalf("at row %s, want %s", many.RowKey(), one.RowKey())
			}
			if n == 0 && below {
				var c row.Collector
				if got := (answer{exists: manyReader.Collect(&c, 0), cells: c.Cells}); got.String() != want.String() {
					t.Fatalf("row %s, view %+v, selection %+v:\nafter chunks %s\none by one   %s", many.RowKey(), v, sel, got, want)
				}
			}
			switch key := fmt.Appendf(nil, "key-%03d", rng.IntN(151)); rng.IntN(60) {
			case 0:
				turns++
				manyReader.StartRow()
				a, b = many.PrevRow(), one.PrevRow()
			case 1:
				turns++
				manyReader.StartRow()
				a, b = many.SeekRow(key), one.SeekRow(key)
			case 2:
				turns++
				manyReader.StartRow()
				a, b = many.SeekRowBefore(key), one.SeekRowBefore(key)
			default:
				a, b = many.NextRow(), one.NextRow()
			}
		}
		if a != b || many.Error() != nil {
			t.Fatalf("one ends, the other does not: %t, %t, %v", a, b, many.Error())
		}
	}
	if switches < 2_000 || turns < 500 {
		t.Errorf("%d changes of the run within chunks, %d turns: the test tests little", switches, turns)
	}
}

// TestARowDeletedAfterTheViewHidesNothing: the newer run deletes the row, but the view does not see that.
func TestARowDeletedAfterTheViewHidesNothing(t *testing.T) {
	runs := make([]mvcctest.Run, 2)
	for k := range 60 {
		r := mvcctest.Row{Key: fmt.Appendf(nil, "%02d", k), Cells: []row.Cell{deleteRow(60), marker(row.MaxVersion, 50), put("a", 1, 50)}}
		if k < 30 {
			r.Cells[0].Seq = 50
			runs[k%2] = append(runs[k%2], r)
			continue
		}
		runs[0] = append(runs[0], r)
		runs[1] = append(runs[1], mvcctest.Row{Key: r.Key, Cells: []row.Cell{marker(row.MaxVersion, 1), put("b", 1, 1)}})
	}
	it := mvcc.NewMergeIterator(iterators(runs))
	r := mvcctest.NewReader(it, mvcc.View{Seq: 55, MaxVersions: 1, Cutoff: mvcc.NoExpiry}, mvcc.Selection{})
	chunk, ahead := row.Chunk{Budget: 40}, 0
	for ok := it.First(); ok; ok = it.NextRow() {
		chunk.Reset()
		if r.NextRow(); r.CollectRows(&chunk) == 0 {
			chunk.AddKey(it.RowKey(), nil)
			r.Collect(&chunk.Collector, 0)
			chunk.EndRow(len(chunk.Cells))
		} else {
			ahead++
		}
		for i := range chunk.Len() {
			key, cells := chunk.Row(i)
			if want := 1 + min(1, int(key[0]-'0')/3); len(cells) != want {
				t.Fatalf("row %s has %d cells, want %d", key, len(cells), want)
			}
		}
	}
	if ahead == 0 {
		t.Error("no row was read ahead: the test tests nothing")
	}
}

// TestAFailedRunEndsInterleavedRowsWithItsError fails each of three runs after so many movements: the rows
// before are right, and the error is not lost.
func TestAFailedRunEndsInterleavedRowsWithItsError(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	var chunk row.Chunk
	for failAfter := 1; failAfter < 240; failAfter++ {
		runs := interleavedRuns(rng)
		for bad := range runs {
			its := iterators(runs)
			its[bad].(*mvcctest.Iterator).FailAfter = failAfter
			many, one := mvcc.NewMergeIterator(its), mvcc.NewMergeIterator(iterators(runs))
			manyReader := mvcctest.NewReader(many, newest, mvcc.Selection{})
			oneReader := mvcctest.NewReader(one, newest, mvcc.Selection{})
			b, last := one.First(), ""
			for a := many.First(); a; a = many.NextRow() {
				manyReader.NextRow()
				chunk.Reset()
				chunk.Budget = 20
				n := manyReader.CollectRows(&chunk)
				for i := range n {
					key, cells := chunk.Row(i)
					if string(key) <= last {
						t.Fatalf("run %d fails after %d movements: row %s follows %s", bad, failAfter, key, last)
					}
					last = string(key)
					for ; b && string(one.RowKey()) < string(key); b = one.NextRow() {
						if want := readAll(t, oneReader); want.exists {
							t.Fatalf("run %d fails after %d movements: row %s is missing", bad, failAfter, one.RowKey())
						}
					}
					want := readAll(t, oneReader)
					if got := (answer{exists: true, cells: cells}); got.String() != want.String() {
						t.Fatalf("run %d fails after %d movements: row %s is %s, want %s", bad, failAfter, key, got, want)
					}
					b = one.NextRow()
				}
				if n == 0 {
					var c row.Collector
					manyReader.Collect(&c, 0)
					b = one.NextRow()
				}
				if n == 0 && manyReader.Error() != nil {
					break
				}
			}
			if err := errors.Join(many.Error(), manyReader.Error()); b && !errors.Is(err, mvcctest.ErrInjected) {
				t.Fatalf("run %d fails after %d movements: %v, and rows are left", bad, failAfter, err)
			}
		}
	}
}
