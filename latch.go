package flagstone

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// latches order the writers of a row. A writer holds the latch of every row it
// touches from before it reads (if it does) until its mutations are in the log
// buffer and in the memtables, but not while they are synced: a hot row is
// limited by the CPU, not by the disk.
//
// Latches are striped: two rows may share one, which only makes them wait.
type latches struct {
	stripes [latchStripes]latch
}

const latchStripes = 1024

// rowHash is a hash of a row of a table.
func rowHash(table uint64, key []byte) uint64 { return xxhash.Sum64(key) ^ table*0x9E3779B97F4A7C15 }

// stripeOf is the latch of the rows with a hash.
func stripeOf(hash uint64) uint32 { return uint32(hash % latchStripes) }

// latch is a mutex that a caller stops waiting for when its context ends.
type latch struct {
	mutex sync.Mutex
	// waiting counts the callers that wait with a context that can end. One that
	// unlocks leaves an element in freed for them, which holds one.
	waiting atomic.Int32
	freed   atomic.Pointer[chan struct{}] // nil until a caller waits
	// passed counts those that held it, and saw that callers waited.
	passed atomic.Uint64
}

// lock returns the context's error if that ends first; then the latch is not
// held.
func (l *latch) lock(ctx context.Context) error {
	switch {
	case l.mutex.TryLock():
	case ctx.Done() == nil:
		l.mutex.Lock()
	default:
		return l.wait(ctx, func(uint64) bool { return l.mutex.TryLock() })
	}
	return nil
}

// wait returns nil once ready does, which is asked whenever the latch was let go
// of, or the context's error. ready gets what passed was in the beginning.
func (l *latch) wait(ctx context.Context, ready func(passed uint64) bool) error {
	freed := l.freed.Load()
	if freed == nil {
		made := make(chan struct{}, 1)
		l.freed.CompareAndSwap(nil, &made)
		freed = l.freed.Load()
	}
	// Counted before the next attempt, so the holder of the latch sees it.
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	for passed := l.passed.Load(); !ready(passed); {
		select {
		case <-*freed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

func (l *latch) unlock() {
	if l.waiting.Load() > 0 {
		l.passed.Add(1) // while it is held: a later holder must not be taken for this one
	}
	l.mutex.Unlock()
	l.wake()
}

// free reports whether no caller holds the latch.
func (l *latch) free() bool {
	if !l.mutex.TryLock() {
		return false
	}
	l.unlock()
	return true
}

// wake has one of those that wait look again.
func (l *latch) wake() {
	if l.waiting.Load() > 0 {
		select {
		case *l.freed.Load() <- struct{}{}:
		default: // the one that is there wakes a waiter
		}
	}
}

// lockAll locks a set of stripes in ascending order, so that two batches never
// wait for each other, and returns the set without repeats, for unlockAll. On
// an error, the context's, none is locked.
func (l *latches) lockAll(ctx context.Context, stripes []uint32) ([]uint32, error) {
	slices.Sort(stripes)
	stripes = slices.Compact(stripes)
	for n, i := range stripes {
		if err := l.stripes[i].lock(ctx); err != nil {
			l.unlockAll(stripes[:n])
			return stripes, err
		}
	}
	return stripes, nil
}

func (l *latches) unlockAll(stripes []uint32) {
	for _, i := range stripes {
		l.stripes[i].unlock()
	}
}

// pass returns nil when every latch that was held when it was called has been let
// go of. It holds none while it waits, and waits for at most one later holder of
// each. An error is the context's.
func (l *latches) pass(ctx context.Context) error {
	for i := range l.stripes {
		s := &l.stripes[i]
		if s.free() {
			continue
		}
		err := s.wait(ctx, func(passed uint64) bool { return s.passed.Load() != passed || s.free() })
		s.wake() // what woke it was meant for those that want the latch
		if err != nil {
			return err
		}
	}
	return nil
}
