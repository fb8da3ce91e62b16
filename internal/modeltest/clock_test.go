package modeltest

// Clock steps. What a reader's clock hides may come back when the clock is set
// right; what is purged does not. A table's expiry watermark says what may have
// been purged, and this file bounds it: a clock that jumped ahead must stand
// for an hour before anything is purged by it, unless the store is opened while
// it stands there.

import (
	"fmt"
	"math"
	"time"
)

const year = 365 * 24 * time.Hour

// trust is an upper bound, from the outside, of the time that the store may
// purge by. Offsets are wall clock minus monotonic clock.
type trust struct {
	believed time.Duration // largest offset that may be believed
	pending  bool          // a larger one has been seen
	since    time.Duration // when, by the monotonic clock
	// bounds are the largest watermarks that the tables may ever have had,
	// in seconds.
	bounds map[*mtable]int64
}

const (
	trustedStep = time.Hour
	probation   = time.Hour
)

func (m *machine) clockOffset() time.Duration {
	return time.Duration(m.clock.NowMillis())*time.Millisecond - m.clock.Elapsed()
}

// open begins anew: a store that is opened believes the clock as it stands.
func (tr *trust) open(m *machine) {
	tr.believed, tr.pending = m.clockOffset(), false
	tr.observe(m)
}

// observe follows every change of the clock or of a table's time to live.
func (tr *trust) observe(m *machine) {
	offset, elapsed := m.clockOffset(), m.clock.Elapsed()
	switch {
	case offset <= tr.believed+trustedStep:
		tr.believed = max(tr.believed, offset)
	case !tr.pending:
		tr.pending, tr.since = true, elapsed
	case elapsed-tr.since >= probation:
		tr.believed = offset
	}
	if tr.bounds == nil {
		tr.bounds = map[*mtable]int64{}
	}
	for _, t := range m.model.tables {
		if t == nil {
			continue
		}
		bound, ok := tr.bounds[t]
		if !ok {
			bound = math.MinInt64
		}
		if ttl := t.options.TTLSeconds; ttl >= 0 {
			now := int64((tr.believed + elapsed) / time.Second)
			bound = max(bound, now-min(ttl, now))
		}
		tr.bounds[t] = bound
	}
}

// lookedAt notes that the store has surely seen the clock, now that it was put
// right.
func (tr *trust) lookedAt(m *machine) {
	if m.anyTable() != nil && m.clockOffset() <= tr.believed {
		tr.pending = false
	}
}

// check compares the watermark of a table.
func (tr *trust) check(m *machine, t *mtable) {
	watermark := m.tables[t].Info().ExpiryWatermark
	if watermark > tr.bounds[t] {
		m.fail("table %s: the watermark is %d, but nothing above %d may have been purged; clock %d, elapsed %s",
			t.name, watermark, tr.bounds[t], m.clock.NowMillis(), m.clock.Elapsed())
	}
	if watermark > math.MinInt64 {
		m.seen["watermarks"]++
	}
}

// advanceClock lets time pass.
func (m *machine) advanceClock() {
	if m.clock.NowMillis() != m.rightTime() && m.rng.IntN(20) == 0 {
		m.stepClock(m.rightTime())
		return
	}
	var d time.Duration
	switch n := m.rng.IntN(100); {
	case n < 30:
		d = time.Duration(m.rng.IntN(1500)) * time.Millisecond
	case n < 90:
		d = time.Duration(m.rng.IntN(8000)) * time.Millisecond
	case n < 99:
		d = time.Duration(m.rng.IntN(120)) * time.Second
	default:
		d = time.Hour + time.Duration(m.rng.IntN(120))*time.Second
	}
	m.passTime(d)
}

func (m *machine) passTime(d time.Duration) {
	m.doing = func() string { return fmt.Sprintf("advance the clock by %s", d) }
	m.clock.Advance(d)
	m.trust.observe(m)
	m.watchStreams()
}

// setClock steps the wall clock, or puts it right.
func (m *machine) setClock() {
	right := m.rightTime()
	to := right
	switch n := m.rng.IntN(10); {
	case n < 4:
	case n < 6:
		to = right - (24 * time.Hour).Milliseconds()
	case n < 8 && m.wild:
		to = right + (10 * year).Milliseconds()
	default:
		to = m.clock.NowMillis() + int64(m.rng.IntN(60_000)) - 30_000
	}
	m.stepClock(to)
	if to == right && m.rng.IntN(2) == 0 {
		m.passTime(61 * time.Second) // every tree is to look for expired data
		m.exec.RunAll()
		m.trust.lookedAt(m)
	}
}

// rightTime is what the wall clock would show had it never been stepped.
func (m *machine) rightTime() int64 { return startMillis + m.clock.Elapsed().Milliseconds() }

func (m *machine) stepClock(to int64) {
	m.doing = func() string { return fmt.Sprintf("set the clock from %d to %d", m.clock.NowMillis(), to) }
	before := m.store.NowMillis()
	m.clock.SetWall(to)
	m.trust.observe(m)
	m.watchStreams()
	if now := m.store.NowMillis(); now < before || now < to {
		m.fail("NowMillis is %d, after %d, with the clock at %d", now, before, to)
	}
	if got := m.store.WallMillis(); got != to {
		m.fail("WallMillis is %d, want %d", got, to)
	}
}
