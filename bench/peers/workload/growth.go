package workload

// This file measures how cost grows with the data: one store that is loaded, overwritten, updated
// and read, within a memory that stays the same while the data of the next run is several times
// larger. Nothing is compacted by hand: reads meet what the writes left. An engine may merge for the
// reads while these run, so they are measured twice: right behind the writes, and once it merges
// no more.

import (
	"math"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// GrowthName is the name of the workload.
const GrowthName = "growth"

func growth() []Spec {
	return []Spec{{Name: GrowthName, About: "load, overwrite twice, update one column, get, range, mixed, within a fixed memory",
		Shape: Growth, Threads: 8, order: spread, run: runGrowth}}
}

// runGrowth has the phases in their order. Each write phase ends when the store has nothing left to
// do. A figure of writing has the device's bytes in it, so write amplification follows from it.
func runGrowth(e *env) error {
	n, count := e.spec.Threads, e.count()
	first := uint64(0) // generations go on rising
	write := func(name string, limit time.Duration, op operation) error {
		p := e.begin(name, "rows")
		lines := newTimelines(n)
		err := p.run(n, first, uint64(count), limit, lines.count(op))
		if err == nil {
			err = p.settle()
		}
		if err != nil {
			return err
		}
		p.figure.Timeline = lines.sum()
		first += 1 << 28
		return p.end()
	}
	update := func(w *worker, i uint64) (int, error) { return 1, w.updateOne(w.own(count), uint32(i+1)) }
	for _, phase := range []struct {
		name string
		op   operation
	}{{"load", putNew}, {"overwrite1", overwrite(count)}, {"overwrite2", overwrite(count)}, {"update1", update}} {
		limit := seconds(e.LimitSeconds)
		if phase.name == "load" {
			limit = math.MaxInt64 // what follows needs all of the rows
		}
		if err := write(phase.name, limit, phase.op); err != nil {
			return err
		}
	}
	if err := e.checkWritten(); err != nil {
		return err
	}
	anywhere := func(w *worker, _ uint64) (int, error) {
		return w.scan(w.maker.keyOf(uint64(w.random.below(count))), rowstore.Query{}, 0, 100, nil)
	}
	gets := getAllOp(count)
	measure := func(name string, n int, op operation) error {
		defer e.processors(n)()
		if _, _, err := e.drive(n, 0, 0, seconds(e.ReadSeconds/3), op); err != nil {
			return err
		}
		p := e.begin(name, "rows")
		lines := newTimelines(n)
		if err := p.run(n, 1<<27, 0, seconds(e.ReadSeconds), lines.count(op)); err != nil {
			return err
		}
		p.figure.Timeline = lines.sum()
		return p.end()
	}
	reads := func(suffix string) error {
		for _, r := range []struct {
			name string
			n    int
			op   operation
		}{{"get-g1", 1, gets}, {"get-g8", n, gets}, {"range100", 1, anywhere}} {
			if err := measure(r.name+suffix, r.n, r.op); err != nil {
				return err
			}
		}
		return nil
	}
	if err := reads(""); err != nil {
		return err
	}
	if err := e.readUntilMerged(gets); err != nil {
		return err
	}
	if err := reads("-merged"); err != nil {
		return err
	}
	if err := measure("mixed", n, mixed(e, first)); err != nil {
		return err
	}
	return e.checkWritten()
}

// readUntilMerged gets rows until a third of a read phase passes in which less than a hundredth of the
// store is written: until the engine has merged what these reads made it merge. The figure says if the time was too
// short for that.
func (e *env) readUntilMerged(gets operation) error {
	n := e.spec.Threads
	defer e.processors(n)()
	p := e.begin("get-until-merged", "rows")
	lines := newTimelines(n)
	p.figure.Stopped = true
	for begun := time.Now(); p.figure.Stopped && time.Since(begun) < seconds(e.LimitSeconds); {
		before := usageNow().written
		if err := p.run(n, 1<<27, 0, seconds(e.ReadSeconds/3), lines.count(gets)); err != nil {
			return err
		}
		taken, _ := e.space()
		p.figure.Stopped = p.after.written-before > taken/100
	}
	p.figure.Timeline = lines.sum()
	return p.end()
}

// timelines count what each worker does in each second.
type timelines struct {
	start time.Time
	done  [][]int64
}

func newTimelines(workers int) *timelines {
	return &timelines{start: time.Now(), done: make([][]int64, workers)}
}

// count is op, counted.
func (t *timelines) count(op operation) operation {
	return func(w *worker, i uint64) (int, error) {
		units, err := op(w, i)
		second, mine := int(time.Since(t.start)/time.Second), &t.done[w.id]
		for len(*mine) <= second {
			*mine = append(*mine, 0)
		}
		(*mine)[second] += int64(units)
		return units, err
	}
}

// sum is what all of them did in each second.
func (t *timelines) sum() (all []int64) {
	for _, done := range t.done {
		all = append(all, make([]int64, max(len(done)-len(all), 0))...)
		for second, units := range done {
			all[second] += units
		}
	}
	return all
}
