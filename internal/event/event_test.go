package event_test

import (
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/event"
)

func TestAJobHasABeginningAndAnEnd(t *testing.T) {
	clock := clocktest.NewManual(0)
	var told []event.Event
	s := &event.Source{Clock: clock, To: func(e event.Event) { told = append(told, e) }}
	first := s.Begin(event.Event{Kind: event.Flush, Table: 7})
	clock.Advance(time.Second)
	second := s.Begin(event.Event{Kind: event.Compaction})
	clock.Advance(time.Second)
	first.Written = 9
	first.End(nil)
	s.Note(event.Event{Kind: event.Split})
	failed := errors.New("no")
	second.End(failed)
	want := []struct {
		kind    event.Kind
		job     uint64
		begun   bool
		written int64
		took    time.Duration
		err     error
	}{
		{kind: event.Flush, job: 1, begun: true},
		{kind: event.Compaction, job: 2, begun: true},
		{kind: event.Flush, job: 1, written: 9, took: 2 * time.Second},
		{kind: event.Split},
		{kind: event.Compaction, job: 2, took: time.Second, err: failed},
	}
	if len(told) != len(want) {
		t.Fatalf("%d events: %+v", len(told), told)
	}
	for i, w := range want {
		e := told[i]
		if e.Kind != w.kind || e.Job != w.job || e.Begun != w.begun || e.Written != w.written || e.Took != w.took || e.Err != w.err {
			t.Errorf("event %d: %+v, want %+v", i, e, w)
		}
	}
	if !slices.Equal([]uint64{told[0].Table, told[2].Table}, []uint64{7, 7}) {
		t.Error("the end is not of the table of the beginning")
	}
}

func TestWithoutAListenerNothingIsTold(t *testing.T) {
	for _, s := range []*event.Source{nil, {}} {
		s.Note(event.Event{})
		s.Begin(event.Event{}).End(nil)
	}
}
