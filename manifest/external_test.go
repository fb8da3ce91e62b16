package manifest

import (
	"errors"
	"testing"
)

// externalState is the state of a new store whose log is external.
func externalState() *State {
	s := NewState([16]byte{1})
	s.External = &External{}
	return s
}

func TestWhatIsKnownOfAnExternalLogOnlyRises(t *testing.T) {
	first := &External{LogPoint: LogPoint{Index: 5, Seq: 9, Micros: 50, Fence: 2}, Highest: 7}
	s, err := externalState().Apply(&Edit{External: first})
	if err != nil || *s.External != *first || s.LastSeq != 9 {
		t.Fatalf("%+v, sequence number %d, %v", s.External, s.LastSeq, err)
	}
	// An edit that was prepared earlier, and committed later.
	s, err = s.Apply(&Edit{External: &External{LogPoint: LogPoint{Index: 4, Seq: 8, Micros: 40}, Highest: 8}})
	if want := (External{first.LogPoint, 8}); err != nil || *s.External != want {
		t.Fatalf("%+v, %v; want %+v", s.External, err, want)
	}
	again, err := decodeSnapshot(appendSnapshot(nil, s), s.StoreID)
	if err != nil || *again.External != *s.External {
		t.Fatalf("%+v, %v", again, err)
	}
}

func TestAnExternalLogThatCannotBeIsRefused(t *testing.T) {
	for what, x := range map[string]External{
		"a point above the highest": {LogPoint: LogPoint{Index: 2}, Highest: 1},
		"a fence above the point":   {LogPoint: LogPoint{Index: 2, Fence: 3}, Highest: 3},
		"too large an index":        {Highest: maxNumber + 1},
	} {
		if _, err := externalState().Apply(&Edit{External: &x}); !errors.Is(err, ErrInvalidEdit) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewState([16]byte{1}).Apply(&Edit{External: &External{Highest: 1}}); !errors.Is(err, ErrInvalidEdit) {
		t.Errorf("a store with its own log: %v", err)
	}
	bad := externalState()
	bad.External.Seq, bad.External.Index, bad.External.Highest = 3, 1, 1
	if _, err := decodeSnapshot(appendSnapshot(nil, bad), bad.StoreID); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a snapshot whose last sequence number is too small: %v", err)
	}
}
