package workload

// This file puts at fixed rates, as clients do that do not wait for each other. A closed loop asks
// for nothing while a put stalls, so it sees one slow put where a client would have seen hundreds.
// Here each put has a moment at which it should begin, and its latency counts from there: what waits
// behind a stall is slow, too.

import (
	"fmt"
	"runtime"
	"time"
)

// Arrivals is the unit of puts at a fixed rate, which are judged by their latencies.
const Arrivals = "arrivals"

// openLoads are the rates, in percent of what the engine can keep up for ever.
var openLoads = []int{50, 80, 95}

// runOpenPut overwrites rows at random, three times as many as there are, as fast as the engine takes them: that
// gives its capacity, merges and the time to settle counted. A burst of two seconds would not meet the merges.
// Then it overwrites at shares of it. The floor is the same loop at the middle rate without an engine: what the
// machine and its scheduler add.
func runOpenPut(e *env) error {
	n, put := e.spec.Threads, overwrite(e.count())
	p := e.begin("closed", "rows")
	if err := p.run(n, 0, 3*uint64(e.count()), seconds(3*e.LimitSeconds), put); err != nil {
		return err
	}
	if err := p.settle(); err != nil {
		return err
	}
	if err := p.end(); err != nil {
		return err
	}
	capacity, first := p.figure.RateSettled, uint64(1)<<28 // generations go on rising
	nothing := func(*worker, uint64) (int, error) { return 1, nil }
	if err := e.arrivals("floor", first, capacity*float64(openLoads[1])/100, nothing); err != nil {
		return err
	}
	for _, load := range openLoads {
		first += 1 << 28
		if err := e.arrivals(fmt.Sprint(load), first, capacity*float64(load)/100, put); err != nil {
			return err
		}
		if err := e.settled(); err != nil {
			return err
		}
	}
	return e.checkWritten()
}

// arrivals does op at a rate, a second. Each of the workers takes every n-th arrival.
func (e *env) arrivals(name string, first uint64, rate float64, op operation) error {
	n := e.spec.Threads
	late := make([]Histogram, n)
	p := e.begin(name, Arrivals)
	start := time.Now()
	arrival := func(w *worker, i uint64) (int, error) {
		due := start.Add(seconds(float64(i-first) / rate))
		for time.Now().Before(due) {
			// To sleep so often costs as much as the puts do. The engine's goroutines go first.
			runtime.Gosched()
		}
		units, err := op(w, i)
		late[w.id].Add(time.Since(due))
		return units, err
	}
	length := 3 * e.ReadSeconds
	// An engine that cannot keep up is stopped, and has the latencies of what it did.
	if err := p.run(n, first, uint64(rate*length), seconds(length+e.LimitSeconds), arrival); err != nil {
		return err
	}
	for i := range late[1:] {
		late[0].Merge(&late[i+1])
	}
	p.figure.quantiles(&late[0])
	p.extra("p9999", float64(late[0].Quantile(0.9999))/1e3)
	p.extra("rate", rate)
	return p.end()
}
