package workload

// This file reads rows of the usual shape.

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

func getAllOp(count int) operation {
	return func(w *worker, i uint64) (int, error) {
		return 1, w.getAll(uint64(w.random.below(count)), i%sampleEvery == 0)
	}
}

func runGetAll(e *env) error {
	return e.reads("", "rows", e.spec.Threads, getAllOp(e.count()))
}

// queries are the queries for each single column.
func queries(columns [][]byte) []rowstore.Query {
	out := make([]rowstore.Query, len(columns))
	for c := range columns {
		out[c] = rowstore.Query{Columns: columns[c : c+1], MaxVersions: 1}
	}
	return out
}

func runGetOne(e *env) error {
	count, qs := e.count(), queries(e.spec.columns())
	return e.reads("", "rows", e.spec.Threads, func(w *worker, i uint64) (int, error) {
		n, c := uint64(w.random.below(count)), w.random.below(len(qs))
		found, err := w.session.Get(w.maker.keyOf(n), qs[c], &w.row)
		if err == nil && (!found || len(w.row.Cells) != 1) {
			err = fmt.Errorf("workload: row %d: found %t, %d cells", n, found, len(w.row.Cells))
		}
		if err == nil && i%sampleEvery == 0 {
			err = w.checkCells(&w.row, n, qs[c].Columns, c)
		}
		return 1, err
	})
}

// runGetMissing asks for keys that lie among the others.
func runGetMissing(e *env) error {
	count := e.count()
	return e.reads("", "rows", e.spec.Threads, func(w *worker, _ uint64) (int, error) {
		n := uint64(count + w.random.below(count))
		found, err := w.session.Get(w.maker.keyOf(n), rowstore.Query{}, &w.row)
		if err == nil && found {
			err = fmt.Errorf("workload: found row %d, which nobody wrote", n)
		}
		return 1, err
	})
}

// runGetCold reads a twenty-fifth of the rows, so that most reads meet pages
// that nobody has fetched; the page cache was dropped before the store was
// opened.
func runGetCold(e *env) error {
	count := e.count()
	p := e.begin("", "rows")
	err := p.run(e.spec.Threads, 0, uint64(count/25), seconds(e.LimitSeconds), getAllOp(count))
	if err != nil {
		return err
	}
	return p.end()
}

// rangeOp reads limit rows from a random key on; an operation counts its rows.
// Every sixteenth range is compared wholly.
func rangeOp(e *env, q rowstore.Query, first, limit int) operation {
	sorted := sortedNumbers(e.count(), e.spec.order)
	return func(w *worker, i uint64) (int, error) {
		at := w.random.below(len(sorted))
		want := sorted[at:min(at+limit, len(sorted))]
		n := want[0]
		if e.spec.order == spread {
			n = unmix(n) - 1
		}
		exact := want
		if i%16 != 0 {
			exact = nil
		}
		rows, err := w.scan(w.maker.keyOf(n), q, first, limit, exact)
		if err == nil && rows != len(want) {
			err = fmt.Errorf("workload: a range found %d rows, want %d", rows, len(want))
		}
		return rows, err
	}
}

func runRangeAll(e *env) error {
	return e.reads("", "rows", e.spec.Threads, rangeOp(e, rowstore.Query{}, 0, 100))
}

// oneColumn is the column that ranges and scans of one column ask for.
const oneColumn = 4

func runRangeOne(e *env) error {
	return e.reads("", "rows", e.spec.Threads, rangeOp(e, queries(e.spec.columns())[oneColumn], oneColumn, 100))
}

// scanOp reads all rows; an operation is a scan and counts its rows.
func scanOp(q rowstore.Query, first, want int) operation {
	return func(w *worker, _ uint64) (int, error) {
		rows, err := w.scan(nil, q, first, 0, nil)
		if err == nil && rows != want {
			err = fmt.Errorf("workload: a scan found %d rows, want %d", rows, want)
		}
		return rows, err
	}
}

func runScanAll(e *env) error {
	return e.reads("", "rows", 1, scanOp(rowstore.Query{}, 0, e.count()))
}

func runScanOne(e *env) error {
	return e.reads("", "rows", 1, scanOp(queries(e.spec.columns())[oneColumn], oneColumn, e.count()))
}

// runSplitPoints asks for pieces of a sixtieth of the rows' bytes (8 MiB of the
// full size).
func runSplitPoints(e *env) error {
	count := e.count()
	piece := int64(count) * columnCount * valueSize / 60
	sorted := sortedNumbers(count, e.spec.order)
	var points [][]byte
	err := e.splitPoints(piece, &points)
	if err != nil {
		return err
	}
	largest, err := largestPiece(points, sorted)
	if err != nil {
		return err
	}
	p := e.begin("", "calls")
	err = p.run(1, 0, 0, seconds(e.ReadSeconds), func(*worker, uint64) (int, error) {
		return 1, e.splitPoints(piece, &points)
	})
	if err != nil {
		return err
	}
	p.extra("points", float64(len(points)))
	p.extra("largest_over_mean", float64(largest)*float64(len(points)+1)/float64(count))
	return p.end()
}

func (e *env) splitPoints(piece int64, into *[][]byte) (err error) {
	*into, err = e.store.SplitPoints(piece)
	return err
}

// largestPiece returns how many rows the largest piece between points has; it
// fails on points that are no keys, not ascending, or miss the purpose.
func largestPiece(points [][]byte, sorted []uint64) (int, error) {
	if len(points) == 0 || !slices.IsSortedFunc(points, bytes.Compare) {
		return 0, fmt.Errorf("workload: %d split points, or not ascending", len(points))
	}
	largest, last := 0, 0
	for _, point := range points {
		// A point may be a prefix of a key.
		var full [16]byte
		copy(full[:], "0000000000000000")
		copy(full[:], point)
		n, err := number(full[:], ascending)
		if err != nil {
			return 0, err
		}
		at, _ := slices.BinarySearch(sorted, n)
		largest, last = max(largest, at-last), at
	}
	largest = max(largest, len(sorted)-last)
	if mean := len(sorted) / (len(points) + 1); largest > 4*mean+100 {
		return 0, fmt.Errorf("workload: of %d pieces the largest has %d rows, the mean is %d", len(points)+1, largest, mean)
	}
	return largest, nil
}
