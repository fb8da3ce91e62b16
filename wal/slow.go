package wal

// Compressing while the device is slow. Compression saves the device a third to half of a log of text, and takes
// processor time, which busy processes lack (docs/lab/commit.md#slow-device). Where callers wait for room in the log
// much of the time it is tried, and kept for a while if the log grows faster.

import "time"

const (
	tryBytes  = 128 << 20 // of plain log, to see whether callers wait; then compressed, to see whether that is faster
	keepTries = 8         // how many times that stays compressed after a try that was faster
	waitTries = 4         // and plain after one that was not, twice as many after each further one
	mostWaits = 5         // that double
	// gain is the part of the plain log's time that a try must not reach.
	gain = 0.9
)

// slowDevice tells which segments of a log with CompressSlow are compressed. It decides by phases, each of a number of
// bytes of the log. Times are those of Options.Elapsed. The writer's mu guards it.
type slowDevice struct {
	try     int64         // tryBytes
	waiting int           // calls of MakeRoom
	counted time.Duration // waited is known up to here

	// The phase:
	began       time.Duration
	waited      time.Duration // by at least one call
	bytes, size int64         // so far; at its end
	compress    bool
	plain       float64 // time for a byte of the phase before; 0 if this is no try

	failed int // tries since one was faster
}

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
	lost := d.plain > 0 && float64(took) >= gain*d.plain*float64(d.size)
	if d.bytes < d.size && !lost {
		return d.compress
	}
	tried, size := d.plain > 0, d.try
	d.plain = 0
	switch {
	case lost:
		size *= waitTries << d.failed
		d.compress, d.failed = false, min(d.failed+1, mostWaits)
	case tried:
		size *= keepTries
		d.failed = 0
	case d.compress:
		d.compress = false
	case d.waited > took*2/5:
		d.compress, d.plain = true, float64(took)/float64(d.bytes)
	}
	d.began, d.waited, d.bytes, d.size = now, 0, 0, size
	return d.compress
}
