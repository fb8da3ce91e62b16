package storeclock

import (
	"log/slog"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/manifest"
)

// Trusted is the clock by which expired data may be dropped for good. It moves with running time,
// measured by the monotonic clock, and does not follow the wall clock ahead. A wall clock that is
// ahead of it is on probation: after an hour of running time, the least that it was ahead at every
// look is believed. If the wall clock is behind, the trusted time falls to it at once, and the
// probation ends. So data is dropped by a time only if the wall clock has shown at least that time
// for an hour.
//
// The manifest holds this state, so a probation goes on when the store is opened again. The time
// while the store was closed was not measured; it is believed after an hour of running time in
// total. A manifest without this state begins with the epoch, and so with a probation.
type Trusted struct {
	clock  clock.Clock
	logger *slog.Logger

	saving sync.Mutex // held by Save

	mu    sync.Mutex
	now   manifest.TrustedClock
	seen  time.Duration // monotonic reading that now belongs to
	ahead int64         // how far the wall clock was ahead at the last look
	moved int64         // milliseconds of jumps, not of running time, that are not saved
	saved manifest.TrustedClock
}

const (
	// Probation is how long the store has to run before a wall clock that is ahead is believed.
	Probation = time.Hour
	// LookPeriod is how often the caller must call Look: see mostUnseen.
	LookPeriod = time.Minute
	// worthSaving is the least difference for which the clock gets an edit of its own.
	worthSaving = int64(time.Minute / time.Millisecond)
	// mostUnseen is the most that the time between two looks adds to a probation, since the wall
	// clock is not observed between them.
	mostUnseen = int64(2 * LookPeriod / time.Millisecond)
	// worthLogging is how far ahead a clock must be to be logged.
	worthLogging = int64(time.Hour / time.Millisecond)
	// leastBelieved is the year 2000. A trusted time below it consists of running time alone: no
	// reading of the wall clock was believed, unless that clock was wrong.
	leastBelieved = 946_684_800_000
)

// NewTrusted continues from the state that Save saved last; the zero state is a new store's.
func NewTrusted(c clock.Clock, saved manifest.TrustedClock, logger *slog.Logger) *Trusted {
	t := &Trusted{clock: c, logger: logger, seen: c.Elapsed(), saved: saved}
	t.now = manifest.TrustedClock{Millis: max(saved.Millis, 0), Ahead: max(saved.Ahead, 0), Stood: max(saved.Stood, 0)}
	t.ahead = t.now.Ahead
	if jump := c.NowMillis() - t.now.Millis - t.ahead; jump >= worthLogging && t.now != (manifest.TrustedClock{}) {
		logger.Info("the wall clock is ahead of the time that the store has run for: it was closed, or the clock jumped; "+
			"nothing is dropped as expired by the new time until it has stood", "ahead", clock.Span(jump), "probation", Probation)
	}
	t.ahead = max(t.ahead, c.NowMillis()-t.now.Millis)
	t.Look()
	return t
}

// Look brings the trusted time up to date and returns it.
func (t *Trusted) Look() manifest.TrustedClock {
	// The wall clock is read last: a pause in between then makes it look ahead, which drops
	// nothing, rather than set back.
	elapsed := t.clock.Elapsed()
	wall := t.clock.NowMillis()
	t.mu.Lock()
	defer t.mu.Unlock()
	now, passed := &t.now, (elapsed - t.seen).Milliseconds()
	if passed < 0 { // a concurrent look has read the clock later
		return t.now
	}
	t.seen += time.Duration(passed) * time.Millisecond
	now.Millis += passed
	if wall <= now.Millis {
		t.moved += now.Millis - wall
		t.now, t.ahead = manifest.TrustedClock{Millis: wall}, 0
		return t.now
	}
	ahead := wall - now.Millis
	if jump := ahead - t.ahead; jump >= worthLogging {
		t.logger.Warn("the wall clock jumped ahead, or the machine slept; nothing is dropped as expired by the new time until it has stood",
			"by", clock.Span(jump), "probation", Probation)
	}
	t.ahead = ahead
	if now.Ahead == 0 {
		now.Ahead, now.Stood = ahead, 0
		return t.now
	}
	now.Ahead = min(now.Ahead, ahead)
	now.Stood += min(passed, mostUnseen)
	if now.Stood >= Probation.Milliseconds() {
		t.moved += now.Ahead
		*now = manifest.TrustedClock{Millis: now.Millis + now.Ahead, Ahead: ahead - now.Ahead}
		t.ahead = now.Ahead
	}
	return t.now
}

// Save passes a reading to a function that makes it durable. Concurrent calls save one after the
// other, so the newest reading is saved last.
func (t *Trusted) Save(save func(manifest.TrustedClock) error) error {
	t.saving.Lock()
	defer t.saving.Unlock()
	now := t.Look()
	t.mu.Lock()
	moved := t.moved
	t.mu.Unlock()
	if err := save(now); err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.moved -= moved
	t.saved = now
	return nil
}

// Unsaved reports whether a crash would lose at least worthSaving of the clock's progress.
func (t *Trusted) Unsaved() bool {
	now := t.Look()
	t.mu.Lock()
	defer t.mu.Unlock()
	stood := max(now.Stood-t.saved.Stood, t.saved.Stood-now.Stood)
	return t.moved >= worthSaving || t.saved.Ahead-now.Ahead >= worthSaving || now.Ahead >= worthSaving && stood >= worthSaving
}

// Believed reports whether a trusted time is based on a reading of the wall clock.
func Believed(now manifest.TrustedClock) bool { return now.Millis >= leastBelieved }
