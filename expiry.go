package flagstone

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// issueClock hands out the times that writes are stamped with. It follows the
// wall clock and never goes back, also across restarts: its last reading is
// recovered from the log and the manifest.
type issueClock struct {
	clock clock.Clock
	last  atomic.Int64
}

// now returns the wall clock or the last reading, whichever is later.
func (c *issueClock) now() int64 {
	wall := c.clock.NowMillis()
	for {
		last := c.last.Load()
		if wall <= last {
			return last
		}
		if c.last.CompareAndSwap(last, wall) {
			return wall
		}
	}
}

// nowMicros is now in microseconds. Who reads the same millisecond twice may see
// it go back by less than one.
func (c *issueClock) nowMicros() int64 {
	wall := c.clock.NowMicros()
	c.raise(wall / 1000)
	if last := c.last.Load(); wall/1000 < last {
		return last * 1000
	}
	return wall
}

// endOfMilli is the last microsecond of a millisecond.
func endOfMilli(millis int64) int64 { return millis*1000 + 999 }

// raise makes sure that no reading lies below millis.
func (c *issueClock) raise(millis int64) {
	for {
		last := c.last.Load()
		if millis <= last || c.last.CompareAndSwap(last, millis) {
			return
		}
	}
}

// purgeClock is the time by which expired data may be dropped for good. It
// follows the wall clock, but a wall clock that jumps ahead by more than
// trustedStep has to stand by its new reading for probation, of monotonic
// time, before anything is purged by it: a clock that is set wrong and then
// put right hides rows for a while, and destroys nothing.
type purgeClock struct {
	clock  clock.Clock
	logger *slog.Logger

	mu       sync.Mutex
	trusted  time.Duration // wall minus monotonic, as far as it is believed
	untested time.Duration // a larger one that is on probation
	since    time.Duration // monotonic reading at which probation began
	pending  bool
}

const (
	trustedStep = time.Hour
	probation   = time.Hour
)

// newPurgeClock makes a purge clock. issued is the last time that the store
// handed out in an earlier run, 0 if there was none: if the wall clock is far
// beyond it, that may be because the store was closed for so long, or because
// the clock is wrong, so it has to stand its probation.
func newPurgeClock(c clock.Clock, issued int64, logger *slog.Logger) *purgeClock {
	p := &purgeClock{clock: c, logger: logger}
	p.trusted = p.offset()
	if issued > 0 {
		p.trusted = min(p.trusted, time.Duration(issued)*time.Millisecond-c.Elapsed())
	}
	return p
}

func (p *purgeClock) offset() time.Duration {
	return time.Duration(p.clock.NowMillis())*time.Millisecond - p.clock.Elapsed()
}

// now returns the time to purge by, in milliseconds since the epoch.
func (p *purgeClock) now() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	elapsed, offset := p.clock.Elapsed(), p.offset()
	switch {
	case offset <= p.trusted+trustedStep:
		p.trusted, p.pending = offset, false
	case !p.pending || offset < p.untested-trustedStep || offset > p.untested+trustedStep:
		p.untested, p.since, p.pending = offset, elapsed, true
		p.logger.Warn("wall clock jumped ahead; nothing is purged by the new time until it has stood for a while",
			"jump", offset-p.trusted, "probation", probation)
	case elapsed-p.since >= probation:
		p.trusted, p.pending = offset, false
	}
	return int64((p.trusted + elapsed) / time.Millisecond)
}
