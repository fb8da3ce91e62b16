package flagstone

// Back-pressure: memtables within their budget, level 0 within reason. Writers
// are slowed in proportion to what is left undone before they are stopped.

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

const (
	// slowdownFiles and stopFiles are how many files may lie over each other in
	// level 0 before writers are slowed, see pace.go, and stopped.
	slowdownFiles = 16
	stopFiles     = 40
	// lookAgainAfter is how long a writer waits for memory before it looks again.
	lookAgainAfter = time.Millisecond
)

// memory accounts for the memtables of all tables against their budget. While
// nobody has to wait, all of it is atomic additions.
type memory struct {
	budget  int64
	total   atomic.Int64 // reserved, in bytes
	waiting atomic.Int64 // of that, in memtables that wait to be flushed

	sleeping atomic.Bool // somebody may wait for room
	mu       sync.Mutex
	room     chan struct{} // closed and replaced when memory is freed
}

func (m *memory) init(budget int64) {
	m.budget = budget
	m.room = make(chan struct{})
}

// admit takes memory for a write, if there is enough. A write that is larger
// than the whole budget is let in alone.
func (m *memory) admit(bytes int64) bool {
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

// sleep returns a channel that is closed when it is worth looking again. Who
// asks for it looks once more before he waits.
func (m *memory) sleep() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sleeping.Store(true)
	return m.room
}

// add takes memory that nobody can be asked to wait for: of the log's records
// at recovery.
func (m *memory) add(bytes int64) { m.total.Add(bytes) }

func (m *memory) rotated(bytes int64) { m.waiting.Add(bytes) }

// free accounts for memory that is not needed any more; waiting of the bytes
// had been rotated out.
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

// pressure is that of memory on writers, see pace.go.
func (m *memory) pressure() float64 {
	if m.waiting.Load() <= 0 {
		return 0 // nothing would be done meanwhile
	}
	return (float64(m.total.Load())/float64(m.budget) - memoryPaceStart) / (1 - memoryPaceStart)
}

// crowded reports whether the mutable memtables take more than half of the
// budget; the other half is for those that are being flushed.
func (m *memory) crowded() bool { return m.total.Load()-m.waiting.Load() > m.budget/2 }

// full reports whether writers have to wait. A store whose memtables all are
// mutable has always room: nothing would ever make more.
func (m *memory) full() bool { return m.total.Load() >= m.budget && m.waiting.Load() > 0 }

// throttle holds a writer back: for what writers owe, see pace.go, and while the
// memtables are over their budget or level 0 is too deep. Errors are the
// context's or those of mayChange, ErrClosed, or the reason why flushes or compactions do not get on,
// ErrNoSpace for instance.
func (s *Store) throttle(ctx context.Context) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	if err := s.pay(ctx); err != nil {
		return err
	}
	for {
		if err := s.writable(); err != nil {
			return err
		}
		if !s.memory.full() && !s.work.trouble.Load() {
			return nil
		}
		room := s.memory.sleep()
		if err := s.logError(); err != nil {
			return err
		}
		full := s.memory.full()
		files, failure := s.mostFiles()
		if files >= stopFiles && failure != nil {
			return fmt.Errorf("level 0 of a table has %d files and cannot be compacted: %w", files, s.describe(failure))
		}
		// An executor that is stepped by hand would never get to run.
		manual, byHand := s.executor.(interface{ Step(i int) bool })
		if !full && (files < slowdownFiles || !byHand && files < stopFiles) {
			return nil
		}
		if byHand {
			if !manual.Step(0) {
				return s.stuckError()
			}
			continue
		}
		if full {
			if err := s.stuckError(); err != nil {
				return err
			}
		}
		began := s.clock.Elapsed()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
		s.stalled.Add(int64(s.clock.Elapsed() - began))
	}
}

// admit waits until there is memory for a write, and takes it; the write is to
// be enqueued next, or the memory freed. While throttle lets writers wait
// before they take their latches, this one makes the budget hold, however many
// pass there at once. Flushes need no latch, so it is safe to wait under some.
func (s *Store) admit(ctx context.Context, bytes int64) error {
	for {
		if s.memory.admit(bytes) {
			return nil
		}
		room := s.memory.sleep()
		if s.memory.admit(bytes) {
			return nil
		}
		if err := s.writable(); err != nil {
			return err
		}
		if err := s.stuckError(); err != nil {
			return err
		}
		s.flushLargest()
		if manual, ok := s.executor.(interface{ Step(i int) bool }); ok {
			if !manual.Step(0) {
				return fmt.Errorf("%w: a write of %d bytes does not fit the memory budget", ErrInvalid, bytes)
			}
			continue
		}
		// What there is may all be promised to writers that have not enqueued
		// yet, so that there was nothing to flush: look again soon.
		soon := make(chan struct{})
		stop := s.clock.AfterFunc(lookAgainAfter, func() { close(soon) })
		began := s.clock.Elapsed()
		select {
		case <-room:
		case <-soon:
		case <-ctx.Done():
			stop()
			return ctx.Err()
		case <-s.closing:
			stop()
			return ErrClosed
		}
		stop()
		s.stalled.Add(int64(s.clock.Elapsed() - began))
	}
}

// flushLargest lets the largest memtable be flushed if none is waiting to be.
func (s *Store) flushLargest() {
	if s.memory.waiting.Load() > 0 {
		return
	}
	s.pipeline.order.Lock()
	defer s.pipeline.order.Unlock()
	if t := s.largestMemtable(); t != nil && s.writable() == nil {
		s.rotate(t, s.pipeline.nextSeq)
	}
}

// logError returns why no further log can be written, if that is so.
func (s *Store) logError() error {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	if s.work.noLog == nil {
		return nil
	}
	return fmt.Errorf("the log cannot grow: %w", s.describe(s.work.noLog))
}

func (s *Store) stuckError() error {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	if s.work.stuck == nil {
		return nil
	}
	return fmt.Errorf("memtables are full and cannot be flushed: %w", s.describe(s.work.stuck))
}

// mostFiles is the largest number of level-0 files of any tree, and why that
// tree's last compaction failed, if it did.
func (s *Store) mostFiles() (most int, failure error) {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	for tree, n := range s.work.files {
		if n.depth > most {
			most, failure = n.depth, s.work.uncompacted[tree]
		}
	}
	return most, failure
}
