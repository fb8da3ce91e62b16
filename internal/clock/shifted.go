package clock

import (
	"sync/atomic"
	"time"
)

// Shifted is a clock whose wall clock is ahead of, or behind, that of another clock by an
// offset. Monotonic reading and timers are the other clock's: setting the wall clock makes no
// time pass. It is safe for concurrent use.
type Shifted struct {
	Clock
	offset atomic.Int64 // milliseconds
}

// NewShifted returns a clock with offset zero to the clock of.
func NewShifted(of Clock) *Shifted { return &Shifted{Clock: of} }

// NowMillis returns the wall clock.
func (s *Shifted) NowMillis() int64 { return s.Clock.NowMillis() + s.offset.Load() }

// NowMicros returns the wall clock in microseconds.
func (s *Shifted) NowMicros() int64 { return s.Clock.NowMicros() + 1000*s.offset.Load() }

// Offset is by how much the wall clock is ahead.
func (s *Shifted) Offset() time.Duration { return time.Duration(s.offset.Load()) * time.Millisecond }

// Advance moves the wall clock by d, which may be negative.
func (s *Shifted) Advance(d time.Duration) { s.offset.Add(d.Milliseconds()) }

// SetWall sets the wall clock, in milliseconds since the epoch. It goes on from there.
func (s *Shifted) SetWall(millis int64) { s.offset.Store(millis - s.Clock.NowMillis()) }

// Reset sets the offset to zero.
func (s *Shifted) Reset() { s.offset.Store(0) }
