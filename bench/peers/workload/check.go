package workload

// This file checks answers.

import (
	"bytes"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// sampleEvery: one in so many answers is compared byte by byte; of the others
// the number of cells, and in scans the order of keys.
const sampleEvery = 32

// checkCells compares a whole row: the newest version of the columns in want.
func (w *worker) checkCells(row *rowstore.Row, i uint64, want [][]byte, first int) error {
	if len(row.Cells) != len(want) {
		return fmt.Errorf("workload: row %d has %d cells, want %d", i, len(row.Cells), len(want))
	}
	for c, cell := range row.Cells {
		if !bytes.Equal(cell.Column, want[c]) {
			return fmt.Errorf("workload: row %d: column %q, want %q", i, cell.Column, want[c])
		}
		if err := w.Values.checkValue(cell.Value, w.buf, i, first+c); err != nil {
			return err
		}
	}
	return nil
}

// wrote notes what a cell was last written with, for a sample of the rows.
func (w *worker) wrote(i uint64, column int, generation uint32) {
	if i%101 == 0 {
		w.expect[i*columnCount+uint64(column)] = generation
	}
}

// checkWritten reads back the sampled rows that workers wrote and compares
// generations.
func (e *env) checkWritten() error {
	for _, w := range e.workers {
		for at, want := range w.expect {
			i, column := at/columnCount, int(at%columnCount)
			w.key = appendKey(w.key[:0], i, e.spec.order)
			found, err := w.session.Get(w.key, rowstore.Query{Columns: w.maker.columns[column : column+1], MaxVersions: 1}, &w.row)
			if err != nil {
				return err
			}
			if !found {
				return fmt.Errorf("workload: row %d column %d is lost", i, column)
			}
			if err := w.checkCells(&w.row, i, w.maker.columns[column:column+1], column); err != nil {
				return err
			}
			if got := generationOf(w.row.Cells[0].Value); got != want {
				return fmt.Errorf("workload: row %d column %d holds generation %d, want %d", i, column, got, want)
			}
		}
	}
	return nil
}

// checkPresent reads back a sample of the first count rows and compares
// them whole.
func (e *env) checkPresent(count uint64) error {
	w := e.workers[0]
	for i := uint64(0); i < count; i += max(count/1000, 1) {
		w.key = appendKey(w.key[:0], i, e.spec.order)
		found, err := w.session.Get(w.key, rowstore.Query{}, &w.row)
		if err != nil {
			return err
		}
		if !found {
			return fmt.Errorf("workload: row %d is lost", i)
		}
		if err := w.checkCells(&w.row, i, w.maker.columns, 0); err != nil {
			return err
		}
	}
	return nil
}

// sortedNumbers are the keys of rows 0 to n-1 as numbers, in key order.
func sortedNumbers(n int, o order) []uint64 {
	keys := make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(i)
		if o == spread {
			keys[i] = mix(uint64(i) + 1)
		}
	}
	slices.Sort(keys)
	return keys
}

// visitState is what a scan's visitor checks by. The visitor is made once per
// worker, so that a scan costs the workload no allocation.
type visitState struct {
	visit   func(*rowstore.Row) bool
	columns [][]byte // wanted of each row
	first   int      // number of the first of them
	exact   []uint64 // the keys to come, if this scan is compared wholly
	last    []byte
	rows    int
	err     error
}

// scan reads rows and checks their order and number of cells, all of them if
// exact is given, else a sample byte by byte.
func (w *worker) scan(start []byte, q rowstore.Query, first, limit int, exact []uint64) (rows int, err error) {
	v := &w.visits
	if v.visit == nil {
		v.visit = w.visitRow
	}
	v.columns, v.first, v.exact, v.last, v.rows, v.err = q.Columns, first, exact, v.last[:0], 0, nil
	if q.Columns == nil {
		v.columns = w.maker.columns
	}
	if err := w.session.Scan(start, nil, q, limit, v.visit); err != nil {
		return 0, err
	}
	return v.rows, v.err
}

func (w *worker) visitRow(row *rowstore.Row) bool {
	v := &w.visits
	v.err = w.checkVisit(row)
	v.rows++
	return v.err == nil
}

func (w *worker) checkVisit(row *rowstore.Row) error {
	v := &w.visits
	if len(row.Cells) != len(v.columns) {
		return fmt.Errorf("workload: a row of a scan has %d cells, want %d", len(row.Cells), len(v.columns))
	}
	if bytes.Compare(row.Key, v.last) <= 0 {
		return fmt.Errorf("workload: key %q of a scan after %q", row.Key, v.last)
	}
	v.last = append(v.last[:0], row.Key...)
	if v.exact == nil && v.rows%sampleEvery != 0 {
		return nil
	}
	i, err := number(row.Key, w.spec.order)
	if err != nil {
		return err
	}
	if v.exact != nil {
		if v.rows >= len(v.exact) {
			return fmt.Errorf("workload: a scan found row %d beyond its end", i)
		}
		want := v.exact[v.rows]
		if w.spec.order == spread {
			want = unmix(want) - 1
		}
		if i != want {
			return fmt.Errorf("workload: a scan found row %d, want %d", i, want)
		}
	}
	return w.checkCells(row, i, v.columns, v.first)
}
