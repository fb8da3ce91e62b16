package assist

// Stream is a sequence of offers of one goroutine, who learns by it whether offering
// is worth while. It is best kept for as long as the goroutine's other working
// memory, beyond one sequence: what was learned holds for the next. The zero Stream
// offers nothing until it is told to whom, by Use.
type Stream struct {
	helpers *Helpers
	unmet   int // offers in a row to which no helper came
	pause   int // offers to leave out now,
	pauses  int // of which there were so many, by powers of two, in a row
}

const (
	// patience is how many offers in a row may be in vain: until a processor that
	// slept is awake an owner may collect many.
	patience = 32
	// firstPause doubles up to 2^maxPauses times it.
	firstPause = 64
	maxPauses  = 6
)

// Use makes the stream offer to these helpers; nil to nobody.
func (s *Stream) Use(h *Helpers) {
	if h != nil && h.limit < 1 {
		h = nil
	}
	s.helpers = h
}

// Helped reports whether there is anybody to offer to.
func (s *Stream) Helped() bool { return s.helpers != nil }

// Awake reports whether there is a helper at present, so that an offer wakes nobody.
func (s *Stream) Awake() bool {
	return s.helpers != nil && (s.helpers.offered != nil || s.helpers.awake.Load())
}

// Willing reports whether the next offer will be made. It is for those to whom
// preparing one is a cost. If it is false, that counts as an offer that was left
// out.
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

// Offer offers work, which l holds until it is collected. It returns false if that
// would be of no use now; then the work is the owner's, as after Collect, which need
// not be called but may be. REQUIRES: l is not offered.
func (s *Stream) Offer(l *Task, w Work) bool {
	if !s.Willing() {
		return false
	}
	l.work, l.panic = w, nil
	l.state.Store(offered)
	if !s.helpers.offer(l) {
		s.missed()
		// A helper who met an older offer of the loan may have it: it is collected then.
		if l.state.CompareAndSwap(offered, owned) {
			l.work = nil
			return false
		}
	}
	return true
}

// Collect ends an offer. It returns true if a helper has done the work, for which it
// waits if it has begun, and false if the work is to be done by the caller, or not
// at all. If the work panicked, so does Collect, with a Panic; the offer has ended.
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

// Cancel is Collect for work that is not wanted any more. It says nothing about
// whether helpers come.
func (s *Stream) Cancel(l *Task) {
	if l.state.Load() == owned {
		return
	}
	l.collect()
	s.tell(l, false)
}

// tell tells a test that a loan is its owner's again.
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
