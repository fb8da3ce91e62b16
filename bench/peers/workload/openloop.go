package workload

// This file puts at fixed rates, as clients do that do not wait for each other. A closed loop asks
// for nothing while a put stalls, so it sees one slow put where a client would have seen hundreds.
// Here each put has a moment at which it should begin, and its latency counts from there: what waits
// behind a stall is slow, too.

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// Arrivals is the unit of puts at a fixed rate, which are judged by their latencies.
const Arrivals = "arrivals"

// openLoads are the rates, in percent of what the engine can keep up for ever.
var openLoads = []int{50, 80, 95}

// runOpenPut overwrites random rows as fast as the engine takes them, which gives its capacity, the
// time to settle counted; then at shares of it. The floor is the same loop at the middle rate without an
// engine: what the machine's timers and its scheduler add.
func runOpenPut(e *env) error {
	n, put := e.spec.Threads, overwrite(e.count())
	p := e.begin("closed", "rows")
	if err := p.run(n, 0, 0, seconds(3*e.ReadSeconds), put); err != nil {
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
		if _, err := e.store.Settle(); err != nil {
			return err
		}
	}
	return e.checkWritten()
}

// arrivals does op at a rate, a second. Each of the workers takes every n-th arrival.
func (e *env) arrivals(name string, first uint64, rate float64, op operation) error {
	n := e.spec.Threads
	late, alarms := make([]Histogram, n), make([]alarm, n)
	for i := range alarms {
		if err := alarms[i].make(); err != nil {
			return err
		}
		defer alarms[i].file.Close()
	}
	p := e.begin(name, Arrivals)
	start := time.Now()
	arrival := func(w *worker, i uint64) (int, error) {
		due := start.Add(seconds(float64(i-first) / rate))
		if err := alarms[w.id].sleep(time.Until(due)); err != nil {
			return 0, err
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

// alarm sleeps for microseconds. An idle Go program rounds the sleeps of time.Sleep up to a
// millisecond; a timer that is a file wakes it as a request from the network would.
type alarm struct {
	fd   int
	file *os.File // of fd; its method Fd would make it blocking
}

func (a *alarm) make() (err error) {
	if a.fd, err = unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_NONBLOCK|unix.TFD_CLOEXEC); err != nil {
		return fmt.Errorf("workload: a timer: %w", err)
	}
	a.file = os.NewFile(uintptr(a.fd), "timer")
	return nil
}

func (a *alarm) sleep(d time.Duration) error {
	if d <= 0 {
		return nil
	}
	at := unix.ItimerSpec{Value: unix.NsecToTimespec(int64(d))}
	if err := unix.TimerfdSettime(a.fd, 0, &at, nil); err != nil {
		return fmt.Errorf("workload: a timer: %w", err)
	}
	var expirations [8]byte
	_, err := a.file.Read(expirations[:])
	return err
}
