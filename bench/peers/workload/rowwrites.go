package workload

// This file writes rows of the usual shape.

import (
	"fmt"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// loadBatch is how many rows go into a batch when a data set is made.
const loadBatch = 200

// count is how many rows a workload's data set has.
func (e *env) count() int {
	switch e.spec.Shape {
	case KeyValue:
		return e.Keys
	case Beyond:
		return e.Beyond
	default:
		return e.Rows
	}
}

// batches puts rows of [0, count) in batches of size; an operation is a batch.
func batches(size int, count uint64) operation {
	return func(w *worker, i uint64) (int, error) {
		w.fillBatch(i*uint64(size), size, count)
		return len(w.batch), w.session.PutBatch(w.batch)
	}
}

// fillBatch makes rows from, from+1, ... in the worker's batch.
func (w *worker) fillBatch(from uint64, size int, count uint64) {
	n := int(min(uint64(size), count-from))
	if cap(w.batch) < size {
		w.batch = make([]rowstore.Row, size)
		for r := range w.batch {
			// Rows of a batch live at once, so each has memory of its own.
			cells := newMaker(w.maker.columns, w.maker.size, w.spec.order, w.Values)
			w.batch[r] = rowstore.Row{Key: make([]byte, 0, 16), Cells: cells.cells}
			cells.all(0, baseVersion, 0)
		}
	}
	w.batch = w.batch[:n]
	for r := range w.batch {
		row, i := &w.batch[r], from+uint64(r)
		row.Key = appendKey(row.Key[:0], i, w.spec.order)
		for c := range row.Cells {
			w.Values.fill(row.Cells[c].Value, i, c, 0)
		}
	}
}

// runLoad makes a data set. It ends compacted unless the run is about debt: how many files an engine happens to
// leave unmerged would decide what reads cost, by half between two loads.
func runLoad(e *env) error {
	count := uint64(e.count())
	p := e.begin("", "rows")
	if err := p.run(1, 0, (count+loadBatch-1)/loadBatch, time.Hour, batches(loadBatch, count)); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		return err
	}
	if err := e.checkPresent(count); err != nil {
		return err
	}
	if err := p.end(); err != nil || e.Unmerged {
		return err
	}
	return e.store.Compact()
}

// putNew puts row i.
func putNew(w *worker, i uint64) (int, error) {
	return 1, w.session.Put(w.maker.keyOf(i), w.maker.all(i, baseVersion, 0))
}

// writesNew measures writing rows that were not there, and then checks them.
func (e *env) writesNew(n int, count uint64, limit time.Duration, op operation) error {
	p := e.begin("", "rows")
	if err := p.run(n, 0, count, limit, op); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		return err
	}
	if p.figure.Ops > 0 && !p.figure.Stopped {
		if err := e.checkPresent(uint64(p.figure.Ops)); err != nil {
			return err
		}
	}
	return p.end()
}

func runPut(e *env) error {
	return e.writesNew(e.spec.Threads, uint64(e.count()), seconds(e.LimitSeconds), putNew)
}

func runBatch(e *env) error {
	count := uint64(e.count())
	return e.writesNew(1, (count+99)/100, seconds(e.LimitSeconds), batches(100, count))
}

// So many rows are written and synced, if there are as many, which takes a few seconds;
// five times as many by writers who share syncs.
const (
	syncedRows   = 10_000
	syncedShared = 5
)

// runPutSync writes as many rows whatever a sync takes, unless the limit stops it: of a
// time who is faster would have more in memory at the end. Each writer has his share,
// so the slowest decides. Its headline is without settling, which would count
// a flush that has nothing to do with it.
func runPutSync(e *env) error {
	p := e.begin("", "rows")
	count := uint64(min(e.count(), syncedRows*min(e.spec.Threads, syncedShared)))
	if err := p.run(e.spec.Threads, 0, count, seconds(e.LimitSeconds), putNew); err != nil {
		return err
	}
	// The workers' rows interleave; all of them are there up to where the
	// slowest got.
	done := uint64(p.figure.Ops)
	for _, w := range e.workers {
		done = min(done, w.ops*uint64(e.spec.Threads))
	}
	if err := e.checkPresent(done); err != nil {
		return err
	}
	return p.end()
}

// own picks a random row that belongs to this worker alone.
func (w *worker) own(count int) uint64 {
	n := w.spec.Threads
	return uint64(w.random.below(count/n)*n + w.id)
}

func overwrite(count int) operation {
	return func(w *worker, i uint64) (int, error) {
		n, generation := w.own(count), uint32(i+1)
		w.wrote(n, 0, generation)
		return 1, w.session.Put(w.maker.keyOf(n), w.maker.all(n, baseVersion+int64(generation), generation))
	}
}

// writesOver measures writing to rows that are there, and then checks them.
func (e *env) writesOver(n int, count uint64, limit time.Duration, op operation) error {
	p := e.begin("", "rows")
	if err := p.run(n, 0, count, limit, op); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		return err
	}
	if err := e.checkWritten(); err != nil {
		return err
	}
	return p.end()
}

func runOverwrite(e *env) error {
	return e.writesOver(1, uint64(e.count()), seconds(e.LimitSeconds), overwrite(e.count()))
}

func runSustained(e *env) error {
	return e.writesOver(1, 3*uint64(e.count()), seconds(3*e.LimitSeconds), overwrite(e.count()))
}

// updateOne writes a new version of a random column of row n.
func (w *worker) updateOne(n uint64, generation uint32) error {
	column := w.random.below(columnCount)
	w.wrote(n, column, generation)
	return w.session.Update(w.maker.keyOf(n), w.maker.one(column, n, baseVersion+int64(generation), generation))
}

func runUpdate(e *env) error {
	count := e.count()
	return e.writesOver(e.spec.Threads, uint64(count), seconds(e.LimitSeconds), func(w *worker, i uint64) (int, error) {
		return 1, w.updateOne(w.own(count), uint32(i+1))
	})
}

// The kinds of operations of a mixed workload.
const (
	kindRead  = 0
	kindWrite = 1
)

func runMixed(e *env) error { return e.timedMix(mixed(e, 0)) }

// mixed reads and updates rows that are picked by one zipfian distribution; an update goes to the
// worker's own row next to the one picked. Generations begin behind first.
func mixed(e *env, first uint64) operation {
	count, n := e.count(), e.spec.Threads
	z := newSkew(count, true)
	return func(w *worker, i uint64) (int, error) {
		row := uint64(z.next(&w.random))
		if w.random.next()&1 == 0 {
			w.kind = kindRead
			return 1, w.getAll(row, i%sampleEvery == 0)
		}
		w.kind = kindWrite
		row = min(row-row%uint64(n), uint64(count/n-1)*uint64(n)) + uint64(w.id)
		return 1, w.updateOne(row, uint32(first+i+1))
	}
}

// timedMix measures reads and writes side by side for the time. Its headline
// is without settling: how much a fixed time writes differs by engine.
func (e *env) timedMix(op operation) error {
	n := e.spec.Threads
	if _, _, err := e.drive(n, 0, 0, seconds(e.ReadSeconds/3), op); err != nil {
		return err
	}
	first := uint64(1) << 30 // generations go on rising
	p := e.begin("", "operations")
	if err := p.run(n, first, 0, seconds(e.ReadSeconds*1.5), op); err != nil {
		return err
	}
	for kind, name := range []string{kindRead: "read", kindWrite: "write"} {
		h := &p.kinds[kind]
		p.extra(name+"_p50", float64(h.Quantile(0.5))/1e3)
		p.extra(name+"_p99", float64(h.Quantile(0.99))/1e3)
	}
	if err := p.settleAside(); err != nil {
		return err
	}
	if err := e.checkWritten(); err != nil {
		return err
	}
	return p.end()
}

// getAll reads row i whole.
func (w *worker) getAll(i uint64, check bool) error {
	w.key = appendKey(w.key[:0], i, w.spec.order)
	found, err := w.session.Get(w.key, rowstore.Query{}, &w.row)
	switch {
	case err != nil:
		return err
	case !found || len(w.row.Cells) != len(w.maker.columns):
		return fmt.Errorf("workload: row %d: found %t, %d cells", i, found, len(w.row.Cells))
	case check:
		return w.checkCells(&w.row, i, w.maker.columns, 0)
	}
	return nil
}
