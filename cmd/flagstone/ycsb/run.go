package ycsb

// This file runs one workload: workers that begin the next operation when the last one is over (a closed loop), or that
// follow a timetable (an open loop). A closed loop asks for nothing while an operation stalls, so it sees one slow
// operation where clients that do not wait for each other would have seen hundreds. In an open loop each operation has a
// moment at which it should begin, and its latency counts from there.

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// run is a workload under way.
type run struct {
	*Bench
	load    Workload
	began   time.Time
	first   int64        // number of the first new row
	due     atomic.Int64 // number of the next operation of the timetable
	workers []*worker
}

// worker is one of the goroutines of a run.
type worker struct {
	*run
	id       int
	rng      *rand.Rand
	row      [1]Row
	ended    atomic.Int64                   // operations
	added    atomic.Int64                   // new rows
	hists    [kinds]*hdrhistogram.Histogram // latencies of each kind of operation, in nanoseconds
	read     int64                          // rows that scans read
	late     *hdrhistogram.Histogram        // how late its timers woke it, in nanoseconds; nil in a closed loop
	timeline []int64                        // operations that ended in each second
}

// newHistogram has latencies of up to an hour, with two digits.
func newHistogram() *hdrhistogram.Histogram { return hdrhistogram.New(1, int64(time.Hour), 2) }

func (b *Bench) newRun(load Workload) *run {
	r := &run{Bench: b, load: load, first: b.next, workers: make([]*worker, b.o.Workers)}
	for id := range r.workers {
		w := &worker{run: r, id: id, rng: b.random(id)}
		if b.o.Rate > 0 {
			w.late = newHistogram()
		}
		w.row[0].Values = b.values(b.o.Columns)
		for k := range w.hists {
			if load.percent[k] > 0 {
				w.hists[k] = newHistogram()
			}
		}
		r.workers[id] = w
	}
	return r
}

// done is how many operations have ended.
func (r *run) done() (n int64) {
	for _, w := range r.workers {
		n += w.ended.Load()
	}
	return n
}

// work does operations until the time is over or ctx ends.
func (w *worker) work(ctx context.Context) error {
	for {
		began := time.Since(w.began)
		if w.o.Rate > 0 { // any worker that is free does what is due next
			began = time.Duration(float64(w.due.Add(1)-1) / w.o.Rate * float64(time.Second))
			if began < w.o.Duration {
				w.wait(ctx, began)
			}
		}
		if began >= w.o.Duration || time.Since(w.began) >= w.o.Duration || ctx.Err() != nil {
			return ctx.Err()
		}
		kind := w.kind()
		if err := w.do(ctx, kind); err != nil {
			return err
		}
		now := time.Since(w.began)
		if err := w.hists[kind].RecordValue(int64(min(now-began, time.Hour))); err != nil {
			return err
		}
		for int(now/time.Second) >= len(w.timeline) {
			w.timeline = append(w.timeline, 0)
		}
		w.timeline[len(w.timeline)-1]++
		w.ended.Add(1)
	}
}

// wait waits for a moment of the timetable, if that is not over.
func (w *worker) wait(ctx context.Context, due time.Duration) {
	left := due - time.Since(w.began)
	if left <= 0 {
		return
	}
	timer := time.NewTimer(left)
	defer timer.Stop()
	select {
	case <-timer.C:
		_ = w.late.RecordValue(int64(time.Since(w.began) - due)) // below an hour
	case <-ctx.Done():
	}
}

// kind draws the kind of the next operation.
func (w *worker) kind() Kind {
	n := w.rng.IntN(100)
	for k, percent := range w.load.percent {
		if n -= percent; n < 0 {
			return Kind(k)
		}
	}
	panic("ycsb: workload " + w.load.Name + " does not add up to 100 percent")
}

// do does one operation.
func (w *worker) do(ctx context.Context, kind Kind) error {
	r := &w.row[0]
	if kind == Insert {
		r.Key = keyOf(w.newRow())
		fill(w.rng, r.Values)
		if err := w.table.Put(ctx, w.row[:]); err != nil {
			return err
		}
		w.added.Add(1)
		return nil
	}
	n := w.pick()
	r.Key = keyOf(n)
	if kind == Get || kind == Modify {
		found, err := w.table.Get(ctx, r.Key)
		if err == nil && !found {
			err = fmt.Errorf("row %d, whose key is %s, was written and is missing", n, r.Key)
		}
		if err != nil || kind == Get {
			return err
		}
	}
	switch kind {
	case Put:
		fill(w.rng, r.Values)
		return w.table.Put(ctx, w.row[:])
	case Scan:
		rows, err := w.table.Scan(ctx, r.Key, w.load.shortest+w.rng.IntN(w.load.longest-w.load.shortest+1))
		if err == nil && rows == 0 {
			err = fmt.Errorf("a scan from row %d on, whose key is %s, read nothing", n, r.Key)
		}
		w.read += int64(rows)
		return err
	}
	column := w.rng.IntN(len(r.Values))
	fill(w.rng, r.Values[column:column+1])
	return w.table.Update(ctx, r.Key, column, r.Values[column])
}

// newRow is the number of the worker's next new row: workers take turns.
func (w *worker) newRow() int64 {
	return w.first + w.added.Load()*int64(w.o.Workers) + int64(w.id)
}

// pick returns the number of a row that exists.
func (w *worker) pick() int64 {
	loaded := w.o.Rows
	switch w.load.chosen {
	case skewed:
		return int64(mix(uint64(w.ranks.Rank(w.rng.Float64()))) % uint64(loaded))
	case latest:
		// Of new rows those count to which every worker has come.
		least := int64(math.MaxInt64)
		for _, other := range w.workers {
			least = min(least, other.added.Load())
		}
		rank, added := int64(w.ranks.Rank(w.rng.Float64())), least*int64(w.o.Workers)
		if rank < added {
			return w.first + added - 1 - rank
		}
		return max(loaded-1-(rank-added), 0)
	}
	return w.rng.Int64N(loaded)
}
