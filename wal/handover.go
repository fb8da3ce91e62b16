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
	// writeAnyway is how many bytes gather before a caller writes the group left to
	// others itself: it does not wait for a goroutine that has no processor to run on.
	writeAnyway = 8 * writeThreshold
)

// passOn lets somebody write what has gathered, unless something is on its way, or
// writes it if there is nobody. Callers hold mu; it may be released meanwhile.
func (w *Writer) passOn() error {
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
	w.fly(g)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.err
}

// take returns a group for the caller to fly: one that was left to others, or that
// found no space, and that is not being written; nil if there is none. Callers hold mu.
func (w *Writer) take() *group {
	if g := w.ready.Swap(nil); g != nil {
		return g
	}
	if w.full == nil || w.err != nil {
		return nil
	}
	for _, g := range w.flying {
		if g.stalled {
			g.stalled = false
			return g
		}
	}
	return nil
}

// carry writes the group that take returns, and reports whether there was one.
// Callers hold mu; it is released meanwhile.
func (w *Writer) carry() bool {
	g := w.take()
	if g == nil {
		return false
	}
	_, _ = w.see(g, false) // kept in w.full
	return true
}

// fly writes a group on its way. It is what a caller that cannot wait for the device
// leaves to a goroutine.
func (w *Writer) fly(g *group) {
	w.transfer(g)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.land(g)
}

// awaitFlight returns when a group on its way has been written, or something else
// has changed; or, when there is no space for one, the error that says so. Callers
// hold mu; it is released meanwhile.
func (w *Writer) awaitFlight() error {
	if !w.carry() {
		w.changed.Wait()
	}
	return w.full
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
			if err := w.awaitFlight(); err != nil {
				return err
			}
		default:
			w.lead(false)
		}
	}
	return nil
}
