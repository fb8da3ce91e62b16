package wal

// Compressing while the device is slow. Compression saves the device a third to half of a log of text, and takes
// processor time, which busy processes lack (docs/lab/commit.md#slow-device). Where callers wait for room in the log
// much of the time it is tried, and kept for a while if the log grows faster.

import "time"

const (
	tryBytes  = 128 << 20 // of the log, in which callers wait much or not, and which compressed takes longer or not
	keepTries = 8         // how many times tryBytes stay compressed after a try that was faster
	mostFails = 6         // after so many tries that were slower, the next one no longer waits twice as long
	// gain is the part of the plain log's time that a try must not reach.
	gain = 0.9
)

// slowDevice tells which segments of a log with CompressSlow are compressed. It decides by phases, each of a number of
// bytes of the log. Times are those of Options.Elapsed. The writer's mu guards it.
type slowDevice struct {
	try     int64         // tryBytes
	waiting int           // calls of MakeRoom
	counted time.Duration // waited is known up to here

	phase       phase
	began       time.Duration
	waited      time.Duration // in the phase, by at least one call
	bytes, size int64         // of the phase so far; at its end

	plain  float64 // time for a byte of the last plain phase
	failed int     // tries since one was faster
}

type phase int

const (
	looking   phase = iota // plain: do callers wait?
	beginning              // compressed: the device still has to write what was plain
	trying                 // compressed: is it faster?
	keeping                // compressed, since it was
)

// wait counts n more callers that wait for room; n is negative when they have it.
func (d *slowDevice) wait(n int, now time.Duration) {
	if d.waiting > 0 {
		d.waited += now - d.counted
	}
	d.counted = now
	d.waiting += n
}

// next reports whether the segment that begins now is compressed, after a segment of n bytes. A try begins if callers
// waited for two fifths of a plain phase, which leaves out nearly all loads that a try would slow down.
func (d *slowDevice) next(now time.Duration, n int64) bool {
	d.bytes += n
	d.wait(0, now)
	took := now - d.began
	lost := d.phase == trying && float64(took) >= gain*d.plain*float64(d.size)
	switch {
	case lost:
		d.begin(looking, d.try<<d.failed, now)
		d.failed = min(d.failed+1, mostFails)
	case d.bytes < d.size:
	case d.phase == looking && d.waited > took*2/5:
		d.plain = float64(took) / float64(d.bytes)
		d.begin(beginning, d.try/2, now)
	case d.phase == beginning:
		d.begin(trying, d.try, now)
	case d.phase == trying:
		d.begin(keeping, keepTries*d.try, now)
		d.failed = 0
	default: // callers did not wait, or enough was kept
		d.begin(looking, d.try, now)
	}
	return d.phase != looking
}

func (d *slowDevice) begin(p phase, size int64, now time.Duration) {
	d.phase, d.began, d.waited, d.bytes, d.size = p, now, 0, 0, size
}
