package storeclock

import (
	"log/slog"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// Issued returns the times that writes are stamped with. It follows the wall clock and never
// goes back, even across restarts: its last reading is recovered from the log and the manifest.
type Issued struct {
	clock clock.Clock
	last  atomic.Int64
	ahead atomic.Bool // WarnIfAhead found it far ahead of the wall clock
}

// NewIssued makes a clock without a last reading.
func NewIssued(c clock.Clock) *Issued { return &Issued{clock: c} }

// Millis returns the wall clock or the last reading, whichever is later.
func (c *Issued) Millis() int64 {
	c.Raise(c.clock.NowMillis())
	return c.last.Load()
}

// Micros is Millis in microseconds. Within one millisecond a reading may be lower than an earlier
// one.
func (c *Issued) Micros() int64 {
	wall := c.clock.NowMicros()
	c.Raise(wall / 1000)
	return max(wall, c.last.Load()*1000)
}

// Last returns the last reading, in milliseconds.
func (c *Issued) Last() int64 { return c.last.Load() }

// LastMicros returns an upper bound of all readings in microseconds: the last microsecond of the
// last reading.
func (c *Issued) LastMicros() int64 { return c.last.Load()*1000 + 999 }

// Raise makes sure that no reading lies below millis.
func (c *Issued) Raise(millis int64) {
	for {
		last := c.last.Load()
		if millis <= last || c.last.CompareAndSwap(last, millis) {
			return
		}
	}
}

// WarnIfAhead logs once when the readings begin to be far ahead of the wall clock: it was wrong or
// is wrong now. dir is the store's directory.
func (c *Issued) WarnIfAhead(logger *slog.Logger, dir string) {
	ahead := c.last.Load() - c.clock.NowMillis()
	if far := ahead >= worthLogging; c.ahead.Swap(far) != far && far {
		logger.Warn("versions are stamped "+clock.Span(ahead)+" ahead of the clock; if it is right now, see 'flagstone clock --into'",
			"dir", dir)
	}
}
