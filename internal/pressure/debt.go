package pressure

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// paySlice is what has to be owed before a writer pays, and payMost what it pays at
	// once.
	paySlice = 10 * time.Millisecond
	payMost  = 15 * time.Millisecond
	// owedMost is about half of what can be owed at most. Large writes owe more than
	// payMost each time; without a bound, writers would go on paying for them when the
	// pressure is gone, for a quarter of an hour after 10 GB.
	owedMost = time.Second
	// firstRate is the rate in bytes per second until a flush was measured.
	firstRate = 200 << 20
	// steepest bounds p/(1-p).
	steepest = 20
)

// debt is the time that writers owe. Each write at pressure p owes n/rate * p/(1-p),
// where n is its size and rate is what flushes achieved lately: writers that are faster
// than the flushes settle where they are as fast, long before they would be stopped.
// They pay in sleeps of about ten milliseconds, which few writes notice: a writer of a
// row each three microseconds that has to be slowed to two thirds of that pays once in
// six thousand rows. With sleeps of three milliseconds, 160 of 300,000 rows paid, and were
// half of the slowest thousandth. What is written in ten milliseconds is a few
// megabytes, which the memory budget has room for.
type debt struct {
	owed  atomic.Int64  // nanoseconds
	rate  atomic.Int64  // of flushes, in bytes per second; 0 until one was measured
	files atomic.Uint64 // the pressure of files, as the bits of a float64
}

// flushed notes how long the flush of so many bytes took.
func (d *debt) flushed(bytes int64, took time.Duration) {
	if bytes < 1<<20 || took <= 0 {
		return // too little to tell
	}
	rate := int64(float64(bytes) / took.Seconds())
	if before := d.rate.Load(); before > 0 {
		rate = (3*before + rate) / 4
	}
	d.rate.Store(max(rate, 1<<20))
}

// ofFiles is the pressure of files.
func (d *debt) ofFiles() float64 { return math.Float64frombits(d.files.Load()) }

// charge makes writers owe for a write at the pressure of memory, or of files if that is
// more.
func (d *debt) charge(bytes int64, memory float64) {
	p := max(memory, d.ofFiles())
	if p <= 0 {
		return
	}
	factor := float64(steepest)
	if p < 1 {
		factor = min(p/(1-p), steepest)
	}
	rate := d.rate.Load()
	if rate == 0 {
		rate = firstRate
	}
	if d.owed.Load() < int64(owedMost) {
		d.owed.Add(int64(min(float64(bytes)/float64(rate)*factor*1e9, float64(owedMost))))
	}
}

// take takes what is to be paid now: 0 if that is not worth a sleep.
func (d *debt) take() time.Duration {
	for {
		owed := d.owed.Load()
		if owed < int64(paySlice) {
			return 0
		}
		pay := min(owed, int64(payMost))
		if d.owed.CompareAndSwap(owed, owed-pay) {
			return time.Duration(pay)
		}
	}
}
