// Package clock is the engine's only source of time, so that tests can step it.
// No engine package but this one calls time.Now.
package clock

import "time"

// Clock tells the time in the ways that the engine needs.
type Clock interface {
	// NowMillis is the wall clock: milliseconds since the Unix epoch, UTC. It may step in either
	// direction. Versions and expiry follow it; order and durability never do.
	NowMillis() int64
	// NowMicros is the same clock in microseconds. Commits are dated by it.
	NowMicros() int64
	// Elapsed is a monotonic reading since an arbitrary start. It paces work, and bounds how
	// fast the purging of expired data may follow the wall clock.
	Elapsed() time.Duration
	// AfterFunc calls f in its own goroutine once d has elapsed, unless the caller calls stop
	// before. stop reports whether it prevented the call.
	AfterFunc(d time.Duration, f func()) (stop func() bool)
}
