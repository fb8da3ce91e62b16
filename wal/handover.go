package wal

// Handing a group to the operating system, for a log that is not synced.
//
// That takes 25 us for 128 KiB, so AppendNow leaves it to another goroutine: otherwise nine of a
// thousand rows of a kilobyte would wait for it. It takes the buffer out as a group, which is
// then the last one in flight. The first caller to reach the group writes it: HandOver, or a
// caller that would have to wait for the group. HandOver holds mu only to record the result.

const (
	// writeThreshold is how many bytes gather before they are written without a Sync. A larger
	// threshold gains nothing: 64 MiB took 5-13 ms through the page cache in pieces of 128 KiB. A
	// small one keeps the loss small when the process crashes.
	writeThreshold = 128 << 10
	// writeAnyway is how many bytes gather before a caller itself writes a group that was left to
	// HandOver. So it does not wait for a goroutine that has no processor to run on.
	writeAnyway = 8 * writeThreshold
)

// passOn leaves the gathered records to HandOver if they are enough. It does nothing while a group
// is in flight, or if callers wait, which would then wait for one group after another. Callers hold
// mu.
func (w *Writer) passOn(n int) {
	// Wait until the next record, of n bytes like the last one, would not fit into the last block:
	// padding would waste the rest of that block.
	enough := len(w.buf) >= writeThreshold && -len(w.buf)&(blockSize-1) < n+entryHeader
	if enough && len(w.flying) == 0 && w.waiting.Load() == 0 {
		w.leave(w.launch(false))
	}
}

// leave lets HandOver, or the next caller that waits, write a group in flight. Callers hold mu.
func (w *Writer) leave(g *group) {
	w.ready.Store(g)
	if w.opts.Gathered != nil {
		w.opts.Gathered()
	}
}

// HandOver writes the group that was left to it, and costs next to nothing if there is none.
// Only a log that is not synced needs it.
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

// take returns a group for the caller to fly: one that was left to HandOver, or one that found no
// space and that no caller is writing; nil if there is none. Callers hold mu.
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

// fly writes a group in flight. A caller that cannot wait for the device starts it as a
// goroutine.
func (w *Writer) fly(g *group) {
	w.transfer(g)
	w.mu.Lock()
	defer w.mu.Unlock()
	w.land(g)
}

// awaitFlight returns when a group in flight has been written, or the writer's state has changed
// otherwise. If there is no space for a group, it returns the error that says so. Callers hold
// mu; it is released meanwhile.
func (w *Writer) awaitFlight() error {
	if g := w.take(); g != nil {
		_, err := w.see(g, false)
		return err
	}
	w.changed.Wait()
	return w.full
}

// Flush hands everything appended so far to the operating system: it then survives the death of
// the process, but not that of the machine.
func (w *Writer) Flush() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	for lsn := w.last; w.written < lsn; {
		err := w.err
		switch {
		case err != nil:
		case len(w.flying) > 0:
			err = w.awaitFlight()
		default:
			_, err = w.see(w.launch(false), false)
		}
		if err != nil {
			return err
		}
	}
	return nil
}
