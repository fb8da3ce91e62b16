package pressure

import (
	"sync"
	"sync/atomic"
)

// memory accounts for the memtables of all tables against their budget. While no
// writer has to wait, all of it is atomic additions.
type memory struct {
	budget  int64
	total   atomic.Int64 // reserved, in bytes
	waiting atomic.Int64 // of that, in memtables that wait to be flushed

	sleeping atomic.Bool // a writer may be waiting for room
	mu       sync.Mutex
	room     chan struct{} // closed and replaced when memory is freed
}

// reserve takes memory for a write, if there is enough. A write that is larger than
// the whole budget is let in alone.
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

// sleep returns a channel that is closed when it is worth looking again. A caller
// looks once more after it has asked for the channel, and then waits.
func (m *memory) sleep() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeping.Store(true)
	return m.room
}

// free gives memory back; waiting of the bytes were in memtables that waited to be
// flushed.
func (m *memory) free(bytes, waiting int64) {
	m.total.Add(-bytes)
	if waiting != 0 {
		m.waiting.Add(-waiting)
	}
	if m.sleeping.Load() {
		m.wake()
	}
}

// wake lets writers that wait look again.
func (m *memory) wake() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeping.Store(false)
	close(m.room)
	m.room = make(chan struct{})
}

// pressure is that of memory on writers.
func (m *memory) pressure() float64 {
	if m.waiting.Load() <= 0 {
		return 0 // slowing writers down would get nothing flushed
	}
	return (float64(m.total.Load())/float64(m.budget) - memoryStart) / (1 - memoryStart)
}

// crowded reports whether the mutable memtables take more than half of the budget;
// the other half is for those that are being flushed.
func (m *memory) crowded() bool { return m.total.Load()-m.waiting.Load() > m.budget/2 }

// full reports whether writers have to wait. There is always room in a store whose
// memtables are all mutable: nothing would ever make more.
func (m *memory) full() bool { return m.total.Load() >= m.budget && m.waiting.Load() > 0 }
