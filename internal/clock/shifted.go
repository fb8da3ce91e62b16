package clock

import (
	"sync/atomic"
	"time"
)

// Shifted is a clock whose wall runs ahead of, or behind, that of another by
// what it is set to. Its monotonic reading and timers are the other's: whoever
// sets the wall makes no time pass. It is safe for concurrent use.
type Shifted struct {
	Clock
	offset atomic.Int64 // milliseconds
}

// NewShifted returns a clock that shows what of does, until it is set.
func NewShifted(of Clock) *Shifted { return &Shifted{Clock: of} }

// NowMillis returns the wall clock.
func (s *Shifted) NowMillis() int64 { return s.Clock.NowMillis() + s.offset.Load() }

// NowMicros returns the wall clock in microseconds.
func (s *Shifted) NowMicros() int64 { return s.Clock.NowMicros() + 1000*s.offset.Load() }

// Offset is by how much the wall runs ahead.
func (s *Shifted) Offset() time.Duration { return time.Duration(s.offset.Load()) * time.Millisecond }

// Advance moves the wall by d, which may be negative.
func (s *Shifted) Advance(d time.Duration) { s.offset.Add(d.Milliseconds()) }

// SetWall makes the wall show a time now, in milliseconds since the epoch; it
// goes on from there.
func (s *Shifted) SetWall(millis int64) { s.offset.Store(millis - s.Clock.NowMillis()) }

// Reset makes the wall show what the other clock does.
func (s *Shifted) Reset() { s.offset.Store(0) }
