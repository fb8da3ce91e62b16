package flagstone

// Back-pressure: memtables within their budget, level 0 within reason. Writers
// are slowed in proportion to what is left undone before they are stopped.

import (
	"context"
	"fmt"
	"sync"
	"time"
)

const (
	// slowdownFiles and stopFiles are the numbers of files on level 0 from
	// which on writers are slowed, by slowdownStep per file, and stopped.
	slowdownFiles = 12
	stopFiles     = 36
	slowdownStep  = time.Millisecond
)

// memory accounts for the memtables of all tables against their budget.
type memory struct {
	budget int64

	mu      sync.Mutex
	total   int64         // reserved, in bytes
	waiting int64         // of that, in memtables that wait to be flushed
	room    chan struct{} // closed and replaced whenever memory is freed
}

func (m *memory) init(budget int64) {
	m.budget = budget
	m.room = make(chan struct{})
}

func (m *memory) add(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total += bytes
}

func (m *memory) rotated(bytes int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.waiting += bytes
}

// free accounts for memtables that are gone; waiting of the bytes had been
// rotated out.
func (m *memory) free(bytes, waiting int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.total -= bytes
	m.waiting -= waiting
	m.wake()
}

// wake lets writers that wait look again. REQUIRES: mu is held.
func (m *memory) wake() {
	close(m.room)
	m.room = make(chan struct{})
}

// crowded reports whether the mutable memtables take more than half of the
// budget; the other half is for those that are being flushed.
func (m *memory) crowded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total-m.waiting > m.budget/2
}

// full reports whether writers have to wait, and a channel that is closed when
// it is worth asking again. A store whose memtables all are mutable has always
// room: nothing would ever make more.
func (m *memory) full() (bool, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total >= m.budget && m.waiting > 0, m.room
}

// throttle holds a writer back while the memtables are over their budget or
// flushes outrun compactions. Errors are the context's, ErrClosed, or the
// reason why flushes do not get on, ErrNoSpace for instance.
func (s *Store) throttle(ctx context.Context) error {
	if err := s.writable(); err != nil {
		return err
	}
	if err := s.logError(); err != nil {
		return err
	}
	slowed := false
	for {
		full, room := s.memory.full()
		files := s.mostFiles()
		if !full && (files < slowdownFiles || slowed && files < stopFiles) {
			return nil
		}
		// An executor that is stepped by hand would never get to run.
		if manual, ok := s.executor.(interface{ Step(i int) bool }); ok {
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
		wake := room
		if !full && files < stopFiles {
			slow := make(chan struct{})
			stop := s.clock.AfterFunc(time.Duration(files-slowdownFiles+1)*slowdownStep, func() { close(slow) })
			defer stop()
			wake, slowed = slow, true
		}
		select {
		case <-wake:
		case <-ctx.Done():
			return ctx.Err()
		case <-s.closing:
			return ErrClosed
		}
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

// mostFiles is the largest number of level-0 files of any tree.
func (s *Store) mostFiles() (most int) {
	s.work.mu.Lock()
	defer s.work.mu.Unlock()
	for _, n := range s.work.files {
		most = max(most, n)
	}
	return most
}
