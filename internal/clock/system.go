package clock

import "time"

// System returns the clock of the machine. Its Elapsed counts from this call.
func System() Clock { return system{start: time.Now()} }

type system struct{ start time.Time }

func (system) NowMillis() int64 { return time.Now().UnixMilli() }

func (system) NowMicros() int64 { return time.Now().UnixMicro() }

// Elapsed uses the monotonic reading in time.Time, which does not follow steps of the wall
// clock.
func (s system) Elapsed() time.Duration { return time.Since(s.start) }

func (system) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	return time.AfterFunc(d, f).Stop
}
