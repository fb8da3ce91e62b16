package wal

// Handing the buffer of a log that is not synced to the operating system.
//
// That takes 25 us for 128 KiB, which is why Append can leave it to others: of a
// thousand rows of a kilobyte nine would have to wait for it.

const (
	// writeThreshold is what gathers before it is written although nobody is going
	// to call Sync. A larger one gains nothing: 64 MiB took 5-13 ms through the page
	// cache in pieces of 128 KiB, and the loss at a crash of the process stays small.
	writeThreshold = 128 << 10
	// writeAnyway is what gathers before Append writes it although somebody else
	// should have: who has no processor to run on is not waited for.
	writeAnyway = 8 * writeThreshold
)

// passOn lets somebody write what has gathered, or writes it. Callers hold mu and
// have seen that nothing is on its way; it may be released meanwhile.
func (w *Writer) passOn() error {
	if w.opts.Gathered != nil && len(w.buf) < writeAnyway {
		w.full.Store(true)
		w.opts.Gathered()
		return nil
	}
	w.lead(false)
	return w.err
}

// HandOver writes what has gathered if it is time to, and costs next to nothing
// if not. Only a log that is not synced, and has a function Gathered, needs it. It
// leaves everything to those who wait in Sync or Rotate for the log to be free:
// while data comes as fast as it is written, they would else wait for long.
func (w *Writer) HandOver() error {
	if !w.full.Load() {
		return nil
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for w.usable() == nil && len(w.flying) == 0 && w.waiting == 0 && len(w.buf) >= writeThreshold {
		w.lead(false)
	}
	return w.err
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
			w.changed.Wait()
		default:
			w.lead(false)
		}
	}
	return nil
}
