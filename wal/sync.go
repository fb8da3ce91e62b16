package wal

// Syncing: group commit by leader and follower.
//
// Records are framed straight into a buffer of the group to come. Sync makes
// its caller wait until its record is durable: if the disk is free, the caller
// becomes the leader, takes the buffer with all that has gathered in it, writes
// it and syncs; those who come meanwhile fill another buffer, and the first of them
// leads next. So a group is as large as the disk is slow, and there is neither a
// goroutine nor a timer. A leader who is not alone first lets everybody run who
// can: those whom the last group woke are then in this one.
//
// Two groups may be on their way to the disk at once: a write of 12 KiB and a
// sync take 106 us one after the other and 55 us each two at a time. They count
// as durable in their order. After a crash the second may be there without the
// first; its frames do not say that the first was durable, so the log ends
// before both. Nobody is woken but those whose group is done, and the one who
// may lead next.

import (
	"context"
	"fmt"
	"runtime"
)

// maxFlying is how many groups are on their way at once. A third brought 47 us for
// each, at 142 us from its own beginning to its end, and 16 callers nothing.
const maxFlying = 2

// Sync returns when the record lsn, and so all before it, are durable, or with
// the error that prevented it. A record that was durable before the writer
// failed still is, and Sync says so. After an error that does not match ErrFailed, for
// which there was no space, the record is still on its way, and the next Sync or
// Append tries again.
func (w *Writer) Sync(lsn LSN) error { return w.SyncContext(context.Background(), lsn) }

// SyncContext is Sync for a caller that does not wait beyond the end of the context:
// it then returns the context's error, and the record is still on its way. If the
// context can end, goroutines call the system: one for each group, not each record.
func (w *Writer) SyncContext(ctx context.Context, lsn LSN) error {
	if LSN(w.durable.Load()) >= lsn {
		return nil
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for LSN(w.durable.Load()) < lsn {
		done, turn, err := w.further(lsn, ctx.Done() != nil)
		if err != nil {
			return err
		}
		if done == nil {
			continue
		}
		select {
		case <-done:
			if err := w.noSpace(); err != nil {
				return err
			}
		case <-turn:
		case <-ctx.Done():
			w.giveUp(done, turn)
			return ctx.Err()
		}
	}
	return nil
}

// noSpace returns why a group cannot be written for want of space, if that is so.
func (w *Writer) noSpace() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.full
}

// giveUp ends a wait for what gather returned. The caller may have been the one to
// lead: then it wakes the other waiters, and one of them leads.
func (w *Writer) giveUp(done, turn <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if turn != nil && (<-chan struct{})(w.gathered) == done {
		w.wakeGathered()
	}
}

// further does what its caller can do for the record lsn to become durable; apart
// leaves calls to the system to goroutines. If there is nothing to do, it returns
// what to wait for before trying again; turn may be nil.
func (w *Writer) further(lsn LSN, apart bool) (done, turn <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if LSN(w.durable.Load()) >= lsn {
		return nil, nil, nil
	}
	if lsn > w.last {
		return nil, nil, fmt.Errorf("wal: sync of record %d, the last one is %d", lsn, w.last)
	}
	if w.err != nil {
		return nil, nil, w.err
	}
	if g := w.take(); g != nil {
		done, err = w.see(g, apart)
		return done, nil, err
	}
	switch g := w.flight(lsn); {
	case g != nil:
		if g.done == nil {
			g.done = make(chan struct{})
		}
		return g.done, nil, nil
	case w.full != nil:
		return nil, nil, w.full
	case w.inviting || !w.mayLead(true):
		done, turn = w.gather()
		return done, turn, nil
	case w.waiting.Load() == 1 || w.invite(lsn):
		done, err = w.see(w.launch(true), apart)
	}
	return done, nil, err
}

// see has a group flown: by the caller, and then err is why there is no space for it;
// or by a goroutine, and then done is closed when that is over. Callers hold mu; it is
// released meanwhile.
func (w *Writer) see(g *group, apart bool) (done <-chan struct{}, err error) {
	if apart {
		if g.done == nil {
			g.done = make(chan struct{})
		}
		done = g.done
		go w.fly(g)
		return done, nil
	}
	w.mu.Unlock()
	w.transfer(g)
	w.mu.Lock()
	w.land(g)
	return nil, w.full
}

// gather returns what is closed when the group to come is done. The first who waits
// for it is the one to lead it: his turn is closed when it may begin. Callers hold mu.
func (w *Writer) gather() (done, turn chan struct{}) {
	if w.gathered == nil {
		w.gathered = make(chan struct{})
	}
	if w.candidate == nil && !w.inviting {
		turn = make(chan struct{})
		w.candidate = turn
	}
	return w.gathered, turn
}

// invite lets those append who can run now, before the caller leads the group with the
// record lsn, and reports whether he still is to lead. The last group has just
// woken its callers; they would find this one gone, and, while its leader is in a call
// to the system, no processor to run on until the runtime takes his away. Callers
// hold mu; it is released meanwhile.
func (w *Writer) invite(lsn LSN) bool {
	w.inviting = true
	w.mu.Unlock()
	runtime.Gosched()
	w.mu.Lock()
	w.inviting = false
	if w.err == nil && LSN(w.durable.Load()) < lsn && w.flight(lsn) == nil && w.mayLead(true) {
		return true
	}
	// Somebody wrote the record, to make room or to rotate. Those who came later
	// rely on the caller.
	if w.gathered != nil {
		close(w.gathered)
		w.gathered, w.candidate = nil, nil
	}
	return false
}

// flight returns the group on its way whose end a record that is not durable has
// to wait for, nil if there is none. Callers hold mu.
func (w *Writer) flight(lsn LSN) *group {
	for _, g := range w.flying {
		if lsn <= g.last {
			return g
		}
	}
	return nil
}

// mayLead reports whether a group may begin to be written: alone, or one that
// is synced beside another that is. Through the page cache they go one by one: the
// kernel reports a write that failed to one of the syncs of a file, maybe not to
// that of the group it belongs to. Callers hold mu.
func (w *Writer) mayLead(sync bool) bool {
	switch len(w.flying) {
	case 0:
		return true
	case maxFlying:
		return false
	}
	g := w.flying[0]
	return sync && g.sync && g.turn == nil && g.file.Alignment() > 1
}
