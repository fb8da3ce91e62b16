package wal

// Handing the buffer of a log that is not synced to the operating system.
//
// That takes 25 us for 128 KiB, which is why Append can leave it to others: of a
// thousand rows of a kilobyte nine would have to wait for it. Append itself takes
// the buffer out as a group, which is then the last one on its way, and whoever
// comes first writes it: HandOver, or somebody who would have to wait for it. So
// HandOver holds mu only to say that it is done.

const (
	// writeThreshold is what gathers before it is written although nobody is going
	// to call Sync. A larger one gains nothing: 64 MiB took 5-13 ms through the page
	// cache in pieces of 128 KiB, and the loss at a crash of the process stays small.
	writeThreshold = 128 << 10
	// writeAnyway is what gathers before Append writes what somebody else should
	// have written: who has no processor to run on is not waited for.
	writeAnyway = 8 * writeThreshold
)

// passOn lets somebody write what has gathered, unless something is on its way, or
// writes it if there is nobody. Callers hold mu; it may be released meanwhile.
func (w *Writer) passOn() error {
	if len(w.buf) >= writeAnyway {
		w.carry()
	}
	switch {
	case w.err != nil || len(w.flying) > 0 || len(w.buf) < writeThreshold:
	case w.opts.Gathered == nil:
		w.lead(false)
	case w.waiting.Load() == 0: // they would have to wait for one group after the other
		g := w.detach(false)
		w.flying = append(w.flying, g)
		w.ready.Store(g)
		w.opts.Gathered()
	}
	return w.err
}

// HandOver writes what has gathered if it is time to, and costs next to nothing
// if not. Only a log that is not synced, and has a function Gathered, needs it.
func (w *Writer) HandOver() error {
	g := w.ready.Swap(nil)
	if g == nil {
		return nil
	}
	w.transfer(g)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.land(g)
	return w.err
}

// carry writes the group that was left to others and that nobody writes yet, and
// reports whether there was one. Callers hold mu; it is released meanwhile.
func (w *Writer) carry() bool {
	g := w.ready.Swap(nil)
	if g == nil {
		return false
	}
	w.mu.Unlock()
	w.transfer(g)
	w.mu.Lock()
	w.land(g)
	return true
}

// awaitFlight returns when a group on its way has been written, or something else
// has changed. Callers hold mu; it is released meanwhile.
func (w *Writer) awaitFlight() {
	if !w.carry() {
		w.changed.Wait()
	}
}

// Flush hands everything appended so far to the operating system: it then
// survives the death of the process, but not that of the machine.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lsn := w.last; w.written < lsn; {
		switch {
		case w.err != nil:
			return w.err
		case len(w.flying) > 0:
			w.awaitFlight()
		default:
			w.lead(false)
		}
	}
	return nil
}
