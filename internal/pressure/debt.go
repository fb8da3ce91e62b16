package pressure

import (
	"cmp"
	"math"
	"sync/atomic"
	"time"
)

const (
	// paySlice is the least debt for which a writer pauses. The pressure is looked at again after
	// each payMost of a pause, so a pause does not outlast the pressure.
	paySlice = 10 * time.Millisecond
	payMost  = 15 * time.Millisecond
	// longestPause bounds the pause of a large write at the highest pressure.
	longestPause = time.Second
	// mostBeside is how many pausing writers count. Writers that begin without regard to those before
	// them, as requests of a server do, would otherwise make the pauses of each other ever longer.
	mostBeside = 31
	// firstRate is the flush rate in bytes per second until a flush was measured.
	firstRate = 200 << 20
	// steepest bounds p/(1-p).
	steepest = 20
	// compactionFactor is how many times as long compactions take for a byte, on all its way down, as its flush. It was
	// measured in one load of rows without large values.
	compactionFactor = 4
)

// debt is the time that writers owe. Each write at pressure p owes n/rate * p/(1-p), where n is
// its size and rate is that of the latest flushes, or, for the pressure of files, the part 1/compactionFactor
// of that. So writers that are faster than the flushes or the compactions slow down to the same speed long before
// they would be stopped. Writers that pause do so side by
// side, so each owes that time once for every writer that pauses beside it, and once for itself:
// otherwise eight writers would be slowed by an eighth. Writers of more than a hundredth of the flush
// rate each, or more than a hundred at once, still meet the end of the budget: see longestPause and
// mostBeside.
//
// A write that owes ten milliseconds or more pauses its own writer. Less is gathered until it is
// as much, and then paid by the writer that has added to it last, so few writes pause: if a writer
// of one row each three microseconds must slow down to two thirds of that rate, it pauses once in
// six thousand rows. With pauses of three milliseconds, 160 of 300,000 rows paid, and were half of
// the slowest thousandth. Ten milliseconds of writes are a few megabytes, which the memory budget
// has room for.
type debt struct {
	owed    atomic.Int64  // by small writes together, in nanoseconds; below paySlice
	pausing atomic.Int64  // writers that pause now
	rate    atomic.Int64  // of flushes, in bytes per second; 0 until one was measured
	files   atomic.Uint64 // the pressure of files, as the bits of a float64
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

// charge returns how long the writer of so many bytes pauses, at a pressure of memory and of files.
func (d *debt) charge(bytes int64, memory, files float64) time.Duration {
	factor := max(slowing(memory), compactionFactor*slowing(files))
	if factor <= 0 {
		return 0
	}
	rate := cmp.Or(d.rate.Load(), firstRate)
	owes := float64(bytes) / float64(rate) * factor * float64(1+min(d.pausing.Load(), mostBeside)) * 1e9
	pause := int64(min(owes, float64(longestPause)))
	if pause < int64(paySlice) {
		if d.owed.Add(pause) < int64(paySlice) {
			return 0
		}
		pause = d.owed.Swap(0)
	}
	return time.Duration(pause)
}

// slowing is p/(1-p), at most steepest.
func slowing(p float64) float64 {
	if p >= 1 {
		return steepest
	}
	return min(p/(1-p), steepest)
}
