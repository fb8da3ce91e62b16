package commit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Latches order the writers of a row. A writer holds the latch of every row it
// touches from before it reads (if it does) until its mutations are in the log
// buffer and in the memtables, but not while they are synced: a hot row is
// limited by the CPU, not by the disk.
//
// Latches are striped: two rows may share one, which only makes them wait.
type Latches struct {
	stripes [Stripes]Latch
}

// Stripes is the number of latches that all rows share.
const Stripes = 1024

// RowHash is a hash of a row of a table.
func RowHash(table uint64, key []byte) uint64 { return xxhash.Sum64(key) ^ table*0x9E3779B97F4A7C15 }

// StripeOf is the latch of the rows with a hash.
func StripeOf(hash uint64) uint32 { return uint32(hash % Stripes) }

// Latch is a mutex that a caller stops waiting for when its context ends.
type Latch struct {
	mutex sync.Mutex
	// waiting counts the callers that wait with a context that can end. One that
	// unlocks leaves an element in freed for them, which holds one.
	waiting atomic.Int32
	freed   atomic.Pointer[chan struct{}] // nil until a caller waits
	// passed counts those that held it, and saw that callers waited.
	passed atomic.Uint64
}

// Lock returns the context's error if that ends first; then the latch is not
// held.
func (l *Latch) Lock(ctx context.Context) error {
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
func (l *Latch) wait(ctx context.Context, ready func(passed uint64) bool) error {
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

// Unlock lets the next caller have the latch.
func (l *Latch) Unlock() {
	if l.waiting.Load() > 0 {
		l.passed.Add(1) // while it is held: a later holder must not be taken for this one
	}
	l.mutex.Unlock()
	l.wake()
}

// free reports whether no caller holds the latch.
func (l *Latch) free() bool {
	if !l.mutex.TryLock() {
		return false
	}
	l.Unlock()
	return true
}

// wake has one of those that wait look again.
func (l *Latch) wake() {
	if l.waiting.Load() > 0 {
		select {
		case *l.freed.Load() <- struct{}{}:
		default: // the one that is there wakes a waiter
		}
	}
}

// Waiting is how many callers wait for the latch with a context that can end.
func (l *Latch) Waiting() int { return int(l.waiting.Load()) }

// Of is the latch of the rows with a hash.
func (l *Latches) Of(hash uint64) *Latch { return &l.stripes[StripeOf(hash)] }

// LockAll locks a set of stripes in ascending order, so that two batches never
// wait for each other, and returns the set without repeats, for UnlockAll. On
// an error, the context's, none is locked.
func (l *Latches) LockAll(ctx context.Context, stripes []uint32) ([]uint32, error) {
	slices.Sort(stripes)
	stripes = slices.Compact(stripes)
	for n, i := range stripes {
		if err := l.stripes[i].Lock(ctx); err != nil {
			l.UnlockAll(stripes[:n])
			return stripes, err
		}
	}
	return stripes, nil
}

// UnlockAll unlocks what LockAll has locked.
func (l *Latches) UnlockAll(stripes []uint32) {
	for _, i := range stripes {
		l.stripes[i].Unlock()
	}
}

// Pass returns nil when every latch that was held when it was called has been let
// go of. It holds none while it waits, and waits for at most one later holder of
// each. An error is the context's.
func (l *Latches) Pass(ctx context.Context) error {
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
