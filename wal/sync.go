package wal

// Syncing: group commit by leader and follower.
//
// Records are framed straight into the buffer of the next group. Sync makes its caller wait until
// its record is durable. If the disk is free, the caller becomes the leader: it takes the buffer
// with all that has gathered in it, writes it and syncs. Later callers fill another buffer, and
// the first of them leads next. So the size of a group follows the latency of the disk, and no
// goroutine or timer is needed. If other callers are waiting, a leader first yields the processor
// once, so that the callers that the last group woke can join this one.
//
// Two groups may be in flight at once: a write of 12 KiB and a sync take 106 us one after the
// other and 55 us each two at a time. They count as durable in their order. After a crash the
// second may be there without the first; its frames do not say that the first was durable, so the
// log ends before both. The end of a group wakes only the callers of that group and the next
// leader.

import (
	"cmp"
	"context"
	"fmt"
	"runtime"
)

// maxFlying is how many groups are in flight at once. With three, a group was done every 47 us,
// but each took 142 us from its own beginning to its end, and 16 callers gained nothing.
const maxFlying = 2

// Sync returns when the record lsn, and so all before it, are durable, or with the error that
// prevented it. A record that was durable before the writer failed still is, and Sync says so. An
// error that does not match ErrFailed means that there was no space: the record is still in
// flight, and the next Sync or MakeRoom tries again.
func (w *Writer) Sync(lsn LSN) error { return w.SyncContext(context.Background(), lsn) }

// SyncContext is Sync for a caller that waits no longer than the context: it then returns the
// context's error, and the record is still in flight. If the context can end, goroutines call the
// system: one for each group, not each record.
func (w *Writer) SyncContext(ctx context.Context, lsn LSN) error {
	if LSN(w.durable.Load()) >= lsn {
		return nil
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for LSN(w.durable.Load()) < lsn {
		done, turn, err := w.further(lsn, ctx.Done() != nil)
		if err != nil {
			return w.unlessDurable(lsn, err)
		}
		if done == nil {
			continue
		}
		select {
		case <-done:
			if err := w.stuck(lsn); err != nil {
				return w.unlessDurable(lsn, err)
			}
		case <-turn:
		case <-ctx.Done():
			w.giveUp(done, turn)
			return ctx.Err()
		}
	}
	return nil
}

// unlessDurable returns the error of a Sync, but nil if the record is durable: the error may be of a later group.
func (w *Writer) unlessDurable(lsn LSN, err error) error {
	if LSN(w.durable.Load()) >= lsn {
		return nil
	}
	return err
}

// stuck returns the error if the writer has failed, or the record cannot be written for want of space, else nil.
func (w *Writer) stuck(lsn LSN) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.err == nil && w.underWay(lsn) != nil {
		return nil
	}
	return cmp.Or(w.err, w.full)
}

// underWay returns the record's group in flight, if there is space for it and for those before it. Callers hold mu.
func (w *Writer) underWay(lsn LSN) *group {
	for _, g := range w.flying {
		switch {
		case g.stalled:
			return nil
		case lsn <= g.last:
			return g
		}
	}
	return nil
}

// giveUp ends a wait for the channels of gather. If the caller was the next leader, giveUp wakes
// the other waiters, and one of them leads.
func (w *Writer) giveUp(done, turn <-chan struct{}) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if turn != nil && (<-chan struct{})(w.gathered) == done {
		w.wakeGathered()
	}
}

// further does what its caller can do to make the record lsn durable. With apart, it leaves calls
// to the system to goroutines. If there is nothing to do, it returns the channels to wait for
// before trying again; turn may be nil.
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
	if g := w.underWay(lsn); g != nil && w.full != nil { // one behind it has no space
		return g.wait(), nil, nil
	}
	if g := w.take(); g != nil {
		done, err = w.see(g, apart)
		return done, nil, err
	}
	switch g := w.flight(lsn); {
	case g != nil:
		return g.wait(), nil, nil
	case w.full != nil:
		return nil, nil, w.full
	case w.inviting || !w.mayLead():
		done, turn = w.gather()
		return done, turn, nil
	case w.waiting.Load() == 1 || w.invite(lsn):
		w.eager = w.cur.number + uint64(w.opts.EagerSegments)
		done, err = w.see(w.launch(true), apart)
	}
	return done, nil, err
}

// see writes a group in the caller; err then says that the writer has failed, or that there is no space. With apart, a
// goroutine writes it, and done is closed at the end. Callers hold mu; it is released meanwhile.
func (w *Writer) see(g *group, apart bool) (done <-chan struct{}, err error) {
	if apart {
		done = g.wait()
		go w.fly(g)
		return done, nil
	}
	w.mu.Unlock()
	w.transfer(g)
	w.mu.Lock()
	w.land(g)
	return nil, cmp.Or(w.err, w.full)
}

// wait returns the channel that is closed when the group is done. Callers hold the writer's mu.
func (g *group) wait() <-chan struct{} {
	if g.done == nil {
		g.done = make(chan struct{})
	}
	return g.done
}

// gather returns done, which is closed when the next group is done. The first waiter is to lead
// that group: it also gets turn, which is closed when it may begin. Callers hold mu.
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

// invite lets other goroutines append before the caller leads the group with the record lsn, and
// reports whether the caller still has to lead. The last group has just woken its callers.
// Without a yield they would miss this group: its leader is in a system call, and they get no
// processor until the runtime takes the leader's away. Callers hold mu; it is released meanwhile.
func (w *Writer) invite(lsn LSN) bool {
	w.inviting = true
	w.mu.Unlock()
	runtime.Gosched()
	w.mu.Lock()
	w.inviting = false
	if w.err == nil && LSN(w.durable.Load()) < lsn && w.flight(lsn) == nil && w.mayLead() {
		return true
	}
	// Another caller wrote the record, to make room or to rotate. Later callers rely on this one
	// to lead, so wake them.
	w.wakeGathered()
	return false
}

// flight returns the group in flight that makes the record lsn durable, nil if there is none.
// Callers hold mu.
func (w *Writer) flight(lsn LSN) *group {
	for _, g := range w.flying {
		if lsn <= g.last {
			return g
		}
	}
	return nil
}

// mayLead reports whether a synced group may be written now: alone, or beside another synced one.
// Groups through the page cache go one by one: the kernel reports a failed write to one of the syncs
// of a file, which may not be that of the same group. Callers hold mu.
func (w *Writer) mayLead() bool {
	switch len(w.flying) {
	case 0:
		return true
	case maxFlying:
		return false
	}
	g := w.flying[0]
	return g.sync && g.rotation == nil && g.file.Alignment() > 1
}
