package commit

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/cespare/xxhash/v2"
)

// Latches order the writers of a row. A write outside of transactions holds the latches of its rows
// while it is worked out and until its mutations are in the log buffer and the memtables. It does
// not hold them during the sync: the CPU limits a hot row, not the disk. A long update reads before
// it takes them, and then checks that nothing has changed.
//
// Latches are striped: two rows may share one, which only makes their writers wait.
type Latches struct {
	stripes [Stripes]Latch
}

// Stripes is the number of latches that all rows share.
const Stripes = 1024

// RowHash is a hash of a row of a table.
func RowHash(table uint64, key []byte) uint64 { return xxhash.Sum64(key) ^ table*0x9E3779B97F4A7C15 }

// StripeOf is the index of the latch of the rows with a hash.
func StripeOf(hash uint64) uint32 { return uint32(hash % Stripes) }

// Latch is a mutex that a caller stops waiting for when its context ends.
type Latch struct {
	mutex sync.Mutex
	// waiting counts the callers that wait with a context that can end. Unlock leaves an element
	// for them in freed, which has room for one.
	waiting atomic.Int32
	freed   atomic.Pointer[chan struct{}] // nil until a caller waits
	// passed counts the holders that unlocked the latch while callers waited.
	passed atomic.Uint64
}

// Lock takes the latch. If the context ends first, it returns its error without the latch.
func (l *Latch) Lock(ctx context.Context) error {
	switch {
	case l.mutex.TryLock():
	case ctx.Done() == nil:
		l.mutex.Lock()
	default:
		l.await()
		defer l.waiting.Add(-1)
		return l.waitUntil(ctx, l.mutex.TryLock)
	}
	return nil
}

// await counts a caller that waits, so that the holder of the latch sees it.
func (l *Latch) await() {
	if l.freed.Load() == nil {
		made := make(chan struct{}, 1)
		l.freed.CompareAndSwap(nil, &made)
	}
	l.waiting.Add(1)
}

// waitUntil returns nil once ready does, which is called whenever the latch was let go
// of, or the context's error. REQUIRES: await was called.
func (l *Latch) waitUntil(ctx context.Context, ready func() bool) error {
	for !ready() {
		select {
		case <-*l.freed.Load():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// Unlock lets the next caller have the latch.
func (l *Latch) Unlock() {
	if l.waiting.Load() > 0 {
		l.passed.Add(1) // before unlocking: a later holder must not be taken for this one
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

// wake lets one of the waiting callers look again.
func (l *Latch) wake() {
	if l.waiting.Load() > 0 {
		select {
		case *l.freed.Load() <- struct{}{}:
		default: // the element already there wakes a waiter
		}
	}
}

// Waiting is the number of callers that wait for the latch of a row with a hash, with a context
// that can end.
func (l *Latches) Waiting(hash uint64) int { return int(l.stripes[StripeOf(hash)].waiting.Load()) }

// LockAll locks a set of stripes in ascending order, so that two batches never deadlock, and
// returns the set without repeats, for UnlockAll. On an error, the context's, none is locked.
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

// Pass returns nil when every latch that was held at the call has been unlocked since. It holds
// no latch while it waits, and does not wait for later holders. An error is the context's.
func (l *Latches) Pass(ctx context.Context) error {
	type held struct {
		latch  *Latch
		passed uint64
	}
	var all []held
	leave := func(h held) {
		h.latch.waiting.Add(-1)
		h.latch.wake() // the signal that was taken may have been for a caller that wants the latch
	}
	for i := range l.stripes {
		s := &l.stripes[i]
		if s.free() {
			continue
		}
		s.await() // before passed is read, so that the holder counts itself
		all = append(all, held{s, s.passed.Load()})
	}
	for n, h := range all {
		err := h.latch.waitUntil(ctx, func() bool { return h.latch.passed.Load() != h.passed || h.latch.free() })
		if err != nil {
			for _, rest := range all[n:] {
				leave(rest)
			}
			return err
		}
		leave(h)
	}
	return nil
}
