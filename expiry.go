package flagstone

import (
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/manifest"
)

// issueClock returns the times that writes are stamped with. It follows the wall clock and never
// goes back, even across restarts: its last reading is recovered from the log and the manifest.
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

// nowMicros is now in microseconds. Within one millisecond a reading may be lower than an earlier
// one.
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

// purgeClock is the trusted time, by which expired data may be dropped for good. It moves with
// running time, measured by the monotonic clock, and does not follow the wall clock ahead. A wall
// clock that is ahead of it is on probation: after an hour of running time, the least that it was
// ahead at every look is believed. If the wall clock is behind, the trusted time falls to it at
// once, and the probation ends. So data is dropped by a time only if the wall clock has shown at
// least that time for an hour.
//
// The manifest holds this state, so a probation goes on when the store is opened again. The time
// while the store was closed was not measured; it is believed after an hour of running time in
// total. A manifest without this state begins with the epoch, and so with a probation.
type purgeClock struct {
	clock  clock.Clock
	logger *slog.Logger

	// saving is held while an edit with a reading is committed, so that the newest reading is
	// committed last.
	saving sync.Mutex

	mu    sync.Mutex
	now   manifest.TrustedClock
	seen  time.Duration // monotonic reading that now belongs to
	ahead int64         // how far the wall clock was ahead at the last look
	moved int64         // milliseconds of jumps, not of running time, that are not saved
	saved manifest.TrustedClock
}

const (
	// probation is how long the store has to run before a wall clock that is ahead is believed.
	probation = time.Hour
	// worthSaving is the least difference for which the clock gets an edit of its own.
	worthSaving = int64(time.Minute / time.Millisecond)
	// mostUnseen is the most that the time between two looks adds to a probation, since the wall
	// clock is not observed between them. A look is due every upkeep.IdlePeriod.
	mostUnseen = int64(2 * upkeep.IdlePeriod / time.Millisecond)
	// worthLogging is how far ahead a clock must be to be logged.
	worthLogging = int64(time.Hour / time.Millisecond)
	// leastBelieved is the year 2000. A trusted time below it consists of running time alone: no
	// reading of the wall clock was believed, unless that clock was wrong.
	leastBelieved = 946_684_800_000
)

func newPurgeClock(c clock.Clock, saved manifest.TrustedClock, logger *slog.Logger) *purgeClock {
	p := &purgeClock{clock: c, logger: logger, seen: c.Elapsed(), saved: saved}
	p.now = manifest.TrustedClock{Millis: max(saved.Millis, 0), Ahead: max(saved.Ahead, 0), Stood: max(saved.Stood, 0)}
	p.ahead = p.now.Ahead
	if jump := c.NowMillis() - p.now.Millis - p.ahead; jump >= worthLogging && p.now != (manifest.TrustedClock{}) {
		logger.Info("the wall clock is ahead of the time that the store has run for: it was closed, or the clock jumped; "+
			"nothing is dropped as expired by the new time until it has stood", "ahead", clock.Span(jump), "probation", probation)
	}
	p.ahead = max(p.ahead, c.NowMillis()-p.now.Millis)
	p.look()
	return p
}

// look brings the trusted time up to date and returns it.
func (p *purgeClock) look() manifest.TrustedClock {
	// The wall clock is read last: a pause in between then makes it look ahead, which drops
	// nothing, rather than set back.
	elapsed := p.clock.Elapsed()
	wall := p.clock.NowMillis()
	p.mu.Lock()
	defer p.mu.Unlock()
	now, passed := &p.now, (elapsed - p.seen).Milliseconds()
	if passed < 0 { // a concurrent look has read the clock later
		return p.now
	}
	p.seen += time.Duration(passed) * time.Millisecond
	now.Millis += passed
	if wall <= now.Millis {
		p.moved += now.Millis - wall
		p.now, p.ahead = manifest.TrustedClock{Millis: wall}, 0
		return p.now
	}
	ahead := wall - now.Millis
	if jump := ahead - p.ahead; jump >= worthLogging {
		p.logger.Warn("the wall clock jumped ahead, or the machine slept; nothing is dropped as expired by the new time until it has stood",
			"by", clock.Span(jump), "probation", probation)
	}
	p.ahead = ahead
	if now.Ahead == 0 {
		now.Ahead, now.Stood = ahead, 0
		return p.now
	}
	now.Ahead = min(now.Ahead, ahead)
	now.Stood += min(passed, mostUnseen)
	if now.Stood >= probation.Milliseconds() {
		p.moved += now.Ahead
		*now = manifest.TrustedClock{Millis: now.Millis + now.Ahead, Ahead: ahead - now.Ahead}
		p.ahead = now.Ahead
	}
	return p.now
}

// commit passes a reading to a function that saves it.
func (p *purgeClock) commit(save func(manifest.TrustedClock) error) error {
	p.saving.Lock()
	defer p.saving.Unlock()
	now := p.look()
	p.mu.Lock()
	moved := p.moved
	p.mu.Unlock()
	if err := save(now); err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.moved -= moved
	p.saved = now
	return nil
}

// unsaved reports whether a crash would lose at least worthSaving of the clock's progress.
func (p *purgeClock) unsaved() bool {
	now := p.look()
	p.mu.Lock()
	defer p.mu.Unlock()
	stood := max(now.Stood-p.saved.Stood, p.saved.Stood-now.Stood)
	return p.moved >= worthSaving || p.saved.Ahead-now.Ahead >= worthSaving || now.Ahead >= worthSaving && stood >= worthSaving
}

// warnOfStamps logs once when versions begin to be stamped far ahead of the wall clock: it was
// wrong or is wrong now.
func (s *Store) warnOfStamps() {
	ahead := s.issued.last.Load() - s.clock.NowMillis()
	if far := ahead >= worthLogging; s.stampsAhead.Swap(far) != far && far {
		s.opts.Logger.Warn("versions are stamped "+clock.Span(ahead)+" ahead of the clock; if it is right now, see 'flagstone clock --into'",
			"dir", s.dir)
	}
}
