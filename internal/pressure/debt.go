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
// milliseconds of writes are a few megabytes, which the memory budget has room for. While one writer
// pays, the others pause with it: eight that paid one by one were slowed by an eighth of what they
// owed, and stopped for 0.2 to 0.4 s at each memtable.
type debt struct {
	owed  atomic.Int64  // nanoseconds
	until atomic.Int64  // when the pause ends that a writer pays by now, in nanoseconds on the clock; 0: none does
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

// due reports whether a writer may have to pause: take tells for how long.
func (d *debt) due() bool { return d.owed.Load() >= int64(paySlice) || d.until.Load() != 0 }

// take is how long a writer pauses from now on: 0 if nobody does and the debt is not worth it.
func (d *debt) take(now time.Duration) time.Duration {
	for {
		until := d.until.Load()
		if left := until - int64(now); left > 0 {
			return time.Duration(left)
		}
		owed := d.owed.Load()
		pay := min(owed, int64(payMost))
		if pay < int64(paySlice) {
			d.until.CompareAndSwap(until, 0)
			return 0
		}
		if d.until.CompareAndSwap(until, int64(now)+pay) {
			d.owed.Add(-pay)
			return time.Duration(pay)
		}
	}
}
