package workload

import (
	"fmt"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// smallColumns stand beside the large one.
const smallColumns = 3

// runValues writes rows of three small columns and a large one (about a third of
// a gigabyte at full size), and reads and updates the small ones and all.
func runValues(e *env) error {
	count := max(int(int64(e.count())*600/int64(e.spec.bigSize)), 8)
	small := rowstore.Query{Columns: e.spec.columns()[:smallColumns], MaxVersions: 1}

	err := e.writes("put", "rows", uint64(count), func(w *worker, i uint64) (int, error) {
		return 1, w.session.Put(w.maker.keyOf(i), w.bigRow(i))
	})
	if err != nil {
		return err
	}
	if err := e.reads("get-all", "rows", 1, getBig(count, rowstore.Query{}, smallColumns+1)); err != nil {
		return err
	}
	if err := e.reads("get-small", "rows", 1, getBig(count, small, smallColumns)); err != nil {
		return err
	}
	if err := e.reads("scan-small", "rows", 1, scanOp(small, 0, count)); err != nil {
		return err
	}
	return e.updates("update-small", "updates", 1, func(w *worker, i uint64) (int, error) {
		n := uint64(w.random.below(count))
		return 1, w.session.Update(w.maker.keyOf(n), w.maker.one(int(i%smallColumns), n, baseVersion+int64(i)+1, uint32(i+1)))
	})
}

// bigRow makes row i: small columns, and the large one after them.
func (w *worker) bigRow(i uint64) []rowstore.Cell {
	cells := w.maker.all(i, baseVersion, 0)[:smallColumns+1]
	if w.big == nil {
		w.big = make([]byte, w.spec.bigSize)
	}
	w.Values.fill(w.big, i, smallColumns, 0)
	cells[smallColumns].Value = w.big
	return cells
}

// getBig reads a random row and checks what is asked of it, a sample of them
// byte by byte.
func getBig(count int, q rowstore.Query, want int) operation {
	return func(w *worker, i uint64) (int, error) {
		n := uint64(w.random.below(count))
		found, err := w.session.Get(w.maker.keyOf(n), q, &w.row)
		if err != nil {
			return 0, err
		}
		if !found || len(w.row.Cells) != want {
			return 0, fmt.Errorf("workload: row %d: found %t, %d cells, want %d", n, found, len(w.row.Cells), want)
		}
		if i%sampleEvery != 0 {
			return 1, nil
		}
		return 1, w.checkCells(&w.row, n, w.maker.columns[:want], 0)
	}
}
