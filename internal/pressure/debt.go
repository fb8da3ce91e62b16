package pressure

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

const (
	// paySlice is the least debt for which a writer pays, and payMost the most it pays at once.
	paySlice = 10 * time.Millisecond
	payMost  = 15 * time.Millisecond
	// owedMost is about half of the largest possible debt. Large writes owe more than payMost
	// each time; without a bound, writers would go on paying after the pressure is gone, for a
	// quarter of an hour after 10 GB.
	owedMost = time.Second
	// firstRate is the flush rate in bytes per second until a flush was measured.
	firstRate = 200 << 20
	// steepest bounds p/(1-p).
	steepest = 20
)

// debt is the time that writers owe. Each write at pressure p owes n/rate * p/(1-p), where n is
// its size and rate is that of the latest flushes. So writers that are faster than the flushes
// slow down to the same speed long before they would be stopped. They pay in sleeps of about ten
// milliseconds, so few writes sleep: if a writer of one row each three microseconds must slow
// down to two thirds of that rate, it sleeps once in six thousand rows. With sleeps of three
// milliseconds, 160 of 300,000 rows paid, and were half of the slowest thousandth. Ten
// milliseconds of writes are a few megabytes, which the memory budget has room for.
type debt struct {
	owed  atomic.Int64  // nanoseconds
	rate  atomic.Int64  // of flushes, in bytes per second; 0 until one was measured
	files atomic.Uint64 // the pressure of files, as the bits of a float64
}

// flushed notes how long a flush took.
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

// charge adds the debt of a write at the pressure of memory or of files, whichever is more.
func (d *debt) charge(bytes int64, memory float64) {
	p := max(memory, d.ofFiles())
	if p <= 0 {
		return
	}
	factor := float64(steepest)
	if p < 1 {
		factor = min(p/(1-p), steepest)
	}
	rate := cmp.Or(d.rate.Load(), firstRate)
	if d.owed.Load() < int64(owedMost) {
		d.owed.Add(int64(min(float64(bytes)/float64(rate)*factor*1e9, float64(owedMost))))
	}
}

// take takes what a writer pays now: 0 if the debt is not worth a sleep.
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
