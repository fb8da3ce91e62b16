package assist

// Stream is one goroutine's sequence of offers, from which it learns whether offering is worth
// while. Keep it as long as the goroutine's other working memory, since what it learned holds
// for the next scan or read too. The zero Stream offers nothing until Use is called.
type Stream struct {
	helpers *Helpers
	unmet   int // offers in a row that no helper took
	pause   int // offers to leave out now
	pauses  int // pauses in a row, up to maxPauses; each doubles the next
}

const (
	// patience is how many offers in a row may be in vain: before a sleeping processor is awake,
	// an owner may collect many tasks.
	patience = 32
	// firstPause is the first pause, in offers; it doubles up to maxPauses times.
	firstPause = 64
	maxPauses  = 6
)

// Use makes the stream offer to these helpers; with nil it offers nothing.
func (s *Stream) Use(h *Helpers) {
	if h != nil && h.limit < 1 {
		h = nil
	}
	s.helpers = h
}

// Helped reports whether the stream has helpers.
func (s *Stream) Helped() bool { return s.helpers != nil }

// Awake reports whether a helper is running, so that an offer need not wake one.
func (s *Stream) Awake() bool {
	return s.helpers != nil && (s.helpers.offered != nil || s.helpers.awake.Load())
}

// Willing reports whether the next offer will be made, for callers to which preparing one is a
// cost. If it is false, that counts as an offer left out.
func (s *Stream) Willing() bool {
	if s.helpers == nil {
		return false
	}
	if s.pause > 0 {
		s.pause--
		return false
	}
	return true
}

// Offer offers work, which l holds until it is collected. It returns false if that is of no use
// now: the owner does the work itself, and may call Collect but need not. REQUIRES: l is not
// offered.
func (s *Stream) Offer(l *Task, w Work) bool {
	if !s.Willing() {
		return false
	}
	l.work, l.panic = w, nil
	l.state.Store(offered)
	if !s.helpers.offer(l) {
		s.missed()
		// A helper that met an older offer of the task may have taken it: then the owner
		// collects it.
		if l.state.CompareAndSwap(offered, owned) {
			l.work = nil
			return false
		}
	}
	return true
}

// Collect ends an offer. It returns true if a helper did the work, and waits for a helper that
// has begun. It returns false if the caller must do the work. If the work panicked, the offer
// has ended and Collect panics with a Panic.
func (s *Stream) Collect(l *Task) (helped bool) {
	if l.state.Load() == owned {
		return false
	}
	if helped = l.collect(); helped {
		s.unmet, s.pauses = 0, 0
	} else {
		s.missed()
	}
	s.tell(l, helped)
	if p := l.panic; p != nil {
		l.panic = nil
		panic(p)
	}
	return helped
}

// Cancel is like Collect, for work that is not needed any more. It does not count for or against
// offering.
func (s *Stream) Cancel(l *Task) {
	if l.state.Load() == owned {
		return
	}
	l.collect()
	s.tell(l, false)
}

// tell tells a test that a task is its owner's again.
func (s *Stream) tell(l *Task, helped bool) {
	if h := s.helpers; h != nil && h.returned != nil {
		h.returned(l, helped)
	}
}

// missed counts an offer in vain.
func (s *Stream) missed() {
	if s.unmet++; s.unmet < patience {
		return
	}
	s.unmet = 0
	s.pause = firstPause << s.pauses
	s.pauses = min(s.pauses+1, maxPauses)
}
