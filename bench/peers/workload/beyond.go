package workload

// This file measures data beyond memory: a data set four times as large as what
// the process may use, page cache included.

import (
	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

func beyond() []Spec {
	return []Spec{{
		Name: "beyond", About: "get and range where the data is four times the memory", Shape: Beyond, Set: setBeyond,
		Threads: 2, order: spread, cold: true, run: runBeyond,
	}}
}

func runBeyond(e *env) error {
	count := e.count()
	if err := e.limited("get", getAllOp(count)); err != nil {
		return err
	}
	return e.limited("range100", rangeOp(e, rowstore.Query{}, 0, 100))
}

// limited measures reads while memory is short. Where the machine gave us no
// cgroup to bound it by, the page cache is emptied instead, every thousand
// operations of the first worker, which is the harsher of the two for engines
// that rely on it.
func (e *env) limited(name string, op operation) error {
	wrapped := op
	if e.Cgroup == "" {
		wrapped = func(w *worker, i uint64) (int, error) {
			if w.id == 0 && w.ops%1000 == 999 {
				if err := rowstore.DropPageCache(e.Dir); err != nil {
					return 0, err
				}
			}
			return op(w, i)
		}
	}
	n := e.spec.Threads
	defer e.processors(2 * n)()
	if _, _, err := e.drive(n, 0, 0, seconds(e.ReadSeconds), wrapped); err != nil {
		return err
	}
	p := e.begin(name, "rows")
	if err := p.run(n, 0, 0, seconds(2*e.ReadSeconds), wrapped); err != nil {
		return err
	}
	taken, _ := e.space()
	p.extra("space_over_memory", float64(taken)/float64(max(e.MemoryLimit, 1)))
	return p.end()
}
