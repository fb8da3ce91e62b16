package wal

// Compressing while the device is slow. Compression saves the device a third to half of a log of text, and takes time of
// processors, which a busy process does not have (docs/lab/commit.md#compressed-log). Where writers wait for room in the
// log much of the time it is tried, and kept for a while if segments then fill faster.

import "time"

// Segments of each phase.
const (
	trySegments  = 8  // plain, to see whether writers wait; compressed, to see whether that is faster
	keepSegments = 64 // compressed, since that was faster
	waitSegments = 32 // plain, since compressed segments were slower
)

// slowDevice tells which segments of a log with CompressSlow are compressed. Times are those of Options.Elapsed. The
// writer's mu guards it.
type slowDevice struct {
	waiting int           // calls of MakeRoom
	counted time.Duration // waited is known up to here
	waited  time.Duration // in this phase, by at least one call

	began          time.Duration // the phase
	segments, left int           // of the phase; before its end
	compress       bool          // in the phase
	plain          time.Duration // that a plain segment took before the phase; 0 if this is no try
	pays           bool          // by the last phase that tells
}

// wait counts n more callers that wait for room; n is negative when they have it.
func (d *slowDevice) wait(n int, now time.Duration) {
	if d.waiting > 0 {
		d.waited += now - d.counted
	}
	d.counted = now
	d.waiting += n
}

// next reports whether the segment that begins now is compressed. A try begins if writers waited for two fifths of the
// time: in loads of text on devices held to several rates compression gained from a third on, and lost below a quarter.
func (d *slowDevice) next(now time.Duration) bool {
	if d.left > 0 {
		d.left--
		return d.compress
	}
	d.wait(0, now)
	took, waited := now-d.began, d.waited
	segment := took / time.Duration(max(d.segments, 1))
	switch tried := d.plain; {
	case tried > 0:
		d.pays = segment < tried
		d.compress, d.plain, d.segments = d.pays, 0, waitSegments
		if d.pays {
			d.segments = keepSegments
		}
	case d.compress:
		d.compress, d.segments = false, trySegments
	default:
		slow := waited > took*2/5
		d.pays = d.pays && slow
		d.compress, d.segments = slow, trySegments
		if slow {
			d.plain = segment
		}
	}
	d.began, d.waited, d.left = now, 0, d.segments-1
	return d.compress
}
