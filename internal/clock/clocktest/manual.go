package clocktest

import (
	"slices"
	"sync"
	"time"
)

// Manual is a clock that moves only when a test moves it. It is safe for concurrent use.
type Manual struct {
	mu      sync.Mutex
	wall    int64         // milliseconds since the epoch at elapsed == wallAt
	wallAt  time.Duration // when wall was set
	elapsed time.Duration
	timers  []*manualTimer // by deadline, then by order of creation
}

type manualTimer struct {
	deadline time.Duration
	f        func()
}

// NewManual returns a clock with its wall clock at startMillis and its monotonic reading at
// zero.
func NewManual(startMillis int64) *Manual { return &Manual{wall: startMillis} }

// NowMillis returns the wall clock.
func (m *Manual) NowMillis() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	// Derived from the monotonic reading, so that advances of less than a millisecond add up.
	return m.wall + (m.elapsed - m.wallAt).Milliseconds()
}

// NowMicros returns the wall clock in microseconds.
func (m *Manual) NowMicros() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.wall*1000 + (m.elapsed - m.wallAt).Microseconds()
}

// Elapsed returns the monotonic reading.
func (m *Manual) Elapsed() time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.elapsed
}

// AfterFunc lets the Advance that reaches d from now call f. If d is zero or less, the next
// Advance does, even Advance(0).
func (m *Manual) AfterFunc(d time.Duration, f func()) (stop func() bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	t := &manualTimer{deadline: m.elapsed + max(d, 0), f: f}
	at, _ := slices.BinarySearchFunc(m.timers, t, func(have, want *manualTimer) int {
		if have.deadline <= want.deadline {
			return -1 // a new timer goes behind those of the same deadline
		}
		return 1
	})
	m.timers = slices.Insert(m.timers, at, t)
	return func() bool {
		m.mu.Lock()
		defer m.mu.Unlock()
		i := slices.Index(m.timers, t)
		if i < 0 {
			return false
		}
		m.timers = slices.Delete(m.timers, i, i+1)
		return true
	}
}

// Advance moves both clocks forward by d, which must not be negative. Due timers fire in order,
// each at its own time and in its own goroutine, and Advance waits for each to return, so the
// effects are as reproducible as the calls of Advance. Timers that these calls create fire too
// if they are due by then. A function that waits for a lock that the caller of Advance holds
// never returns.
func (m *Manual) Advance(d time.Duration) {
	if d < 0 {
		panic("clocktest: the monotonic clock cannot go back; use SetWall to step the wall clock")
	}
	m.mu.Lock()
	end := m.elapsed + d
	for len(m.timers) > 0 && m.timers[0].deadline <= end {
		t := m.timers[0]
		m.timers = slices.Delete(m.timers, 0, 1)
		m.elapsed = max(m.elapsed, t.deadline)
		m.mu.Unlock()
		done := make(chan struct{})
		go func() {
			defer close(done)
			t.f()
		}()
		<-done
		m.mu.Lock()
	}
	m.elapsed = max(m.elapsed, end)
	m.mu.Unlock()
}

// SetWall steps the wall clock, forward or back, but not the monotonic reading. No timer fires:
// timers follow the monotonic clock.
func (m *Manual) SetWall(millis int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wall, m.wallAt = millis, m.elapsed
}

// Timers returns how many timers are waiting. A test can check that a stopped component has left
// none.
func (m *Manual) Timers() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.timers)
}
