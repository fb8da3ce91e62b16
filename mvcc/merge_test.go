package mvcc_test

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sort"
	"testing"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

// runKeys are keys in order, many of which differ only after eight bytes, or in their length.
var runKeys = []string{
	"\x00", "\x00\x00", "\x00\x00\x00\x00\x00\x00\x00\x00\x01", "a", "a\x00", "abcdefgh", "abcdefgh\x00", "abcdefghi",
	"abcdefgi", "\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff", "\xff\xff\xff\xff\xff\xff\xff\xff\xff",
}

// randomRuns makes runs over few keys, and their merge. Some cells are in two runs.
func randomRuns(rng *rand.Rand) (runs []mvcctest.Run, merged mvcctest.Run) {
	all := map[string][]row.Cell{}
	seq := uint64(1)
	for range 1 + rng.IntN(6) {
		run := mvcctest.Run{}
		for _, key := range runKeys {
			if rng.IntN(3) > 0 {
				continue
			}
			var cells []row.Cell
			for range 1 + rng.IntN(4) {
				seq++
				cells = append(cells, row.Cell{
					Column: []byte{'a' + byte(rng.IntN(3))}, Version: rng.Int64N(4), Seq: seq, Kind: row.KindDeleteVersion,
				})
			}
			for _, c := range all[key] {
				if rng.IntN(8) == 0 {
					cells = append(cells, c)
				}
			}
			cells = sortedSet(cells)
			all[key] = sortedSet(append(all[key], cells...))
			run = append(run, mvcctest.Row{Key: []byte(key), Cells: cells})
		}
		runs = append(runs, run)
	}
	for key, cells := range all {
		merged = append(merged, mvcctest.Row{Key: []byte(key), Cells: cells})
	}
	sort.Slice(merged, func(i, j int) bool { return bytes.Compare(merged[i].Key, merged[j].Key) < 0 })
	return runs, merged
}

func sortedSet(cells []row.Cell) (set []row.Cell) {
	sortCells(cells)
	for i := range cells {
		if i == 0 || row.CompareCells(&cells[i-1], &cells[i]) != 0 {
			set = append(set, cells[i])
		}
	}
	return set
}

func iterators(runs []mvcctest.Run) (its []mvcc.Iterator) {
	for _, run := range runs {
		its = append(its, run.NewIterator())
	}
	return its
}

func TestMergeIteratorMovesLikeOneRun(t *testing.T) {
	seed := envUint(t, "FLAGSTONE_SEED", rand.Uint64())
	t.Logf("FLAGSTONE_SEED=%d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 300 {
		runs, merged := randomRuns(rng)
		got, want := mvcc.Iterator(mvcc.NewMergeIterator(iterators(runs))), mvcc.Iterator(merged.NewIterator())
		onRow, onCell := false, false
		for range 60 {
			var op string
			var a, b bool
			key := []byte(runKeys[rng.IntN(len(runKeys))])[rng.IntN(2):]
			column, version := []byte{'a' + byte(rng.IntN(4))}, rng.Int64N(5)
			rowMove := false
			switch p := rng.IntN(16); {
			case p == 0:
				op, a, b, rowMove = "First", got.First(), want.First(), true
			case p == 1:
				op, a, b, rowMove = "Last", got.Last(), want.Last(), true
			case p == 2:
				op, a, b, rowMove = fmt.Sprintf("SeekRow %q", key), got.SeekRow(key), want.SeekRow(key), true
			case p == 3:
				op, a, b, rowMove = fmt.Sprintf("SeekRowBefore %q", key), got.SeekRowBefore(key), want.SeekRowBefore(key), true
			case p < 7 && onRow:
				op, a, b, rowMove = "NextRow", got.NextRow(), want.NextRow(), true
			case p < 9 && onRow:
				op, a, b, rowMove = "PrevRow", got.PrevRow(), want.PrevRow(), true
			case p < 11 && onRow:
				op, a, b = "FirstCell", got.FirstCell(), want.FirstCell()
			case p < 12 && onRow:
				op = fmt.Sprintf("SeekCell %s@%d", column, version)
				a, b = got.SeekCell(column, version), want.SeekCell(column, version)
			case onCell:
				op, a, b = "NextCell", got.NextCell(), want.NextCell()
			default:
				continue
			}
			if a != b {
				t.Fatalf("%s: got %t, want %t", op, a, b)
			}
			if rowMove {
				onRow, onCell = a, false
			} else {
				onCell = a
			}
			if onRow && !bytes.Equal(got.RowKey(), want.RowKey()) {
				t.Fatalf("%s: at row %q, want %q", op, got.RowKey(), want.RowKey())
			}
			if onCell && row.CompareCells(got.Cell(), want.Cell()) != 0 {
				t.Fatalf("%s: at cell %s, want %s", op, got.Cell(), want.Cell())
			}
			if err := got.Error(); err != nil {
				t.Fatalf("%s: %v", op, err)
			}
		}
	}
}

func TestMergeIteratorNeverTakesAnErrorForTheEnd(t *testing.T) {
	rng := rand.New(rand.NewPCG(7, 7))
	walk := func(it mvcc.Iterator, backward bool) (seen []string, err error) {
		first, next := it.First, it.NextRow
		if backward {
			first, next = it.Last, it.PrevRow
		}
		for ok := first(); ok; ok = next() {
			for ok := it.FirstCell(); ok; ok = it.NextCell() {
				seen = append(seen, string(it.RowKey())+it.Cell().String())
			}
			if err := it.Error(); err != nil {
				return seen, err
			}
		}
		return seen, it.Error()
	}
	for range 60 {
		runs, merged := randomRuns(rng)
		for _, backward := range []bool{false, true} {
			want, _ := walk(merged.NewIterator(), backward)
			for failAfter := 1; ; failAfter += 1 + rng.IntN(3) {
				its := iterators(runs)
				bad := its[rng.IntN(len(its))].(*mvcctest.Iterator)
				bad.FailAfter = failAfter
				it := mvcc.NewMergeIterator(its)
				got, err := walk(it, backward)
				if len(got) > len(want) || fmt.Sprint(got) != fmt.Sprint(want[:len(got)]) {
					t.Fatalf("got %v, no prefix of %v", got, want)
				}
				if bad.Moves < failAfter {
					if err != nil || len(got) != len(want) {
						t.Fatalf("error %v after %d of %d cells without a failure", err, len(got), len(want))
					}
					break
				}
				if !errors.Is(err, mvcctest.ErrInjected) {
					t.Fatalf("error lost: %v after %d of %d cells", err, len(got), len(want))
				}
				bad.FailAfter = 0
				if it.First() != (len(merged) > 0) || it.Error() != nil {
					t.Fatalf("not usable after the error: %v", it.Error())
				}
				it.Close()
			}
		}
	}
}

func TestAMergeStaysFailedUntilItIsPositionedAnew(t *testing.T) {
	for _, backward := range []bool{false, true} {
		bad := rowsOf("a", "b", "c").NewIterator()
		it := mvcc.NewMergeIterator([]mvcc.Iterator{bad, rowsOf("a", "b").NewIterator()})
		it.First()
		bad.FailAfter = bad.Moves + 1
		if it.FirstCell() || !errors.Is(it.Error(), mvcctest.ErrInjected) {
			t.Fatal("no error")
		}
		move := it.NextRow
		if backward {
			move = it.PrevRow
		}
		if move() || !errors.Is(it.Error(), mvcctest.ErrInjected) {
			t.Fatalf("moved on from an error: %v", it.Error())
		}
		bad.FailAfter = 0
		if !it.SeekRow([]byte("b")) || it.Error() != nil || !it.FirstCell() || !it.NextRow() {
			t.Fatalf("not usable again: %v", it.Error())
		}
	}
}

func rowsOf(keys ...string) (run mvcctest.Run) {
	for _, k := range keys {
		run = append(run, mvcctest.Row{Key: []byte(k), Cells: []row.Cell{marker(1, 1)}})
	}
	return run
}

func TestMergeIteratorClosesItsRuns(t *testing.T) {
	runs, _ := randomRuns(rand.New(rand.NewPCG(1, 1)))
	its := iterators(runs)
	if err := mvcc.NewMergeIterator(its).Close(); err != nil {
		t.Fatal(err)
	}
	for i, it := range its {
		if !it.(*mvcctest.Iterator).Closed {
			t.Errorf("run %d is open", i)
		}
	}
}

func TestAMergeOfNothingIsEmpty(t *testing.T) {
	it := mvcc.NewMergeIterator(nil)
	if it.First() || it.Last() || it.SeekRow([]byte("a")) || it.SeekRowBefore([]byte("a")) || it.Error() != nil {
		t.Fatal("positioned on a row")
	}
	r := mvcctest.NewReader(mvcctest.NewRowMerge(nil), mvcc.View{Seq: row.MaxSequence}, mvcc.Selection{})
	if r.StartRow(); r.Exists() || r.NextCell() || r.Error() != nil {
		t.Fatal("a row of no runs exists")
	}
}
