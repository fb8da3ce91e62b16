package pressure

import (
	"sync"
	"sync/atomic"
)

// memory accounts for the memtables of all tables against their budget. It takes its lock only
// when a writer has to wait.
type memory struct {
	budget  int64
	total   atomic.Int64 // reserved, in bytes
	waiting atomic.Int64 // of total, in memtables that wait to be flushed

	sleeping atomic.Bool // a writer may be waiting for room
	mu       sync.Mutex
	room     chan struct{} // closed and replaced when memory is freed
}

// reserve takes memory for a write, if there is enough. A write larger than the whole budget is
// admitted when it is alone.
func (m *memory) reserve(bytes int64) bool {
	for {
		total := m.total.Load()
		if total != 0 && total+bytes > m.budget {
			return false
		}
		if m.total.CompareAndSwap(total, total+bytes) {
			return true
		}
	}
}

// sleep returns a channel that is closed when memory may have become free. The caller looks once
// more after it has the channel, and then waits.
func (m *memory) sleep() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeping.Store(true)
	return m.room
}

// Free gives memory back; waiting of the bytes were in memtables that waited to be flushed.
func (m *memory) Free(bytes, waiting int64) {
	m.total.Add(-bytes)
	if waiting != 0 {
		m.waiting.Add(-waiting)
	}
	if m.sleeping.Load() {
		m.Wake()
	}
}

// Wake lets writers that wait look again.
func (m *memory) Wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeping.Store(false)
	close(m.room)
	m.room = make(chan struct{})
}

// pressure is the pressure of memory on writers.
func (m *memory) pressure() float64 {
	if m.waiting.Load() <= 0 {
		return 0 // nothing is being flushed, so slowing writers would not help
	}
	return (float64(m.total.Load())/float64(m.budget) - memoryStart) / (1 - memoryStart)
}

// Crowded reports whether the mutable memtables take more than half of the budget, so that one
// should be flushed; the other half is for memtables being flushed.
func (m *memory) Crowded() bool { return m.total.Load()-m.waiting.Load() > m.budget/2 }

// full reports whether writers have to wait. They never wait while all memtables are mutable:
// then no flush would make room.
func (m *memory) full() bool { return m.total.Load() >= m.budget && m.waiting.Load() > 0 }
