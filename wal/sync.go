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
	"fmt"
	"runtime"
)

// maxFlying is how many groups are on their way at once. A third brought 47 us for
// each, at 142 us from its own beginning to its end, and 16 callers nothing.
const maxFlying = 2

// Sync returns when the record lsn, and so all before it, are durable, or with
// the error that prevented it. A record that was durable before the writer
// failed still is, and Sync says so.
func (w *Writer) Sync(lsn LSN) error {
	if LSN(w.durable.Load()) >= lsn {
		return nil
	}
	w.waiting.Add(1)
	defer w.waiting.Add(-1)
	for LSN(w.durable.Load()) < lsn {
		done, turn, err := w.further(lsn)
		if err != nil {
			return err
		}
		if done != nil {
			select {
			case <-done:
			case <-turn:
			}
		}
	}
	return nil
}

// further does what its caller can do for the record lsn to become durable. If that
// is nothing, it returns what to wait for before trying again; turn may be nil.
func (w *Writer) further(lsn LSN) (done, turn <-chan struct{}, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch g := w.flight(lsn); {
	case LSN(w.durable.Load()) >= lsn:
	case lsn > w.last:
		return nil, nil, fmt.Errorf("wal: sync of record %d, the last one is %d", lsn, w.last)
	case w.err != nil:
		return nil, nil, w.err
	case w.carry():
	case g != nil:
		if g.done == nil {
			g.done = make(chan struct{})
		}
		return g.done, nil, nil
	case w.inviting || !w.mayLead(true):
		done, turn = w.gather()
		return done, turn, nil
	case w.waiting.Load() == 1 || w.invite(lsn):
		w.lead(true)
	}
	return nil, nil, nil
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
