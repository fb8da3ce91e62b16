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
	freed   atomic.Pointer[chan struct{}] // nil until somebody waits
}

// lock returns the context's error if that ends first; then the latch is not
// held.
func (l *latch) lock(ctx context.Context) error {
	if l.mutex.TryLock() {
		return nil
	}
	done := ctx.Done()
	if done == nil {
		l.mutex.Lock()
		return nil
	}
	freed := l.freed.Load()
	if freed == nil {
		made := make(chan struct{}, 1)
		l.freed.CompareAndSwap(nil, &made)
		freed = l.freed.Load()
	}
	// Counted before the next attempt: whoever holds the latch then sees it.
	l.waiting.Add(1)
	defer l.waiting.Add(-1)
	for !l.mutex.TryLock() {
		select {
		case <-*freed:
		case <-done:
			return ctx.Err()
		}
	}
	return nil
}

func (l *latch) unlock() {
	l.mutex.Unlock()
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

// pass returns nil when every latch has been free for a moment: whoever held one
// when it was called has let go of it. An error is the context's.
func (l *latches) pass(ctx context.Context) error {
	for i := range l.stripes {
		if err := l.stripes[i].lock(ctx); err != nil {
			return err
		}
		l.stripes[i].unlock()
	}
	return nil
}

// lockEverything stops all writers between two writes. On an error, the
// context's, it has stopped none.
func (l *latches) lockEverything(ctx context.Context) error {
	for i := range l.stripes {
		if err := l.stripes[i].lock(ctx); err != nil {
			for ; i > 0; i-- {
				l.stripes[i-1].unlock()
			}
			return err
		}
	}
	return nil
}

func (l *latches) unlockEverything() {
	for i := range l.stripes {
		l.stripes[i].unlock()
	}
}
