package console

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/ots"
)

func TestJobsRunUntilTheyEnd(t *testing.T) {
	f := NewFeed()
	f.Event(ots.HighPerformance, flagstone.Event{Kind: flagstone.EventFlush, Job: 7, Begun: true, Table: "i/t", Input: 5})
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventCompaction, Job: 7, Begun: true, Reason: "level 0"})
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventLogSegment, Segment: 3})
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventFlush, Job: 8, Begun: true, Table: ".tunnels"})
	if r := f.Recent(); len(r.Running) != 3 || r.Running[1].Table != "" {
		t.Errorf("the table of the tunnels is shown: %+v", r.Running)
	}
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventFlush, Job: 8, Table: ".tunnels"})
	if r := f.Recent(); len(r.Running) != 2 || len(r.Done) != 1 {
		t.Errorf("two run: %+v", r)
	}
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventCompaction, Job: 7, Took: time.Second, Err: errors.New("full")})
	r := f.Recent()
	if len(r.Running) != 1 || r.Running[0].Store != ots.HighPerformance || len(r.Done) != 2 || r.Done[1].Error != "full" || r.Done[1].Took != 1 {
		t.Errorf("one runs: %+v", r)
	}
	for i := range uint64(2 * keptEvents) {
		f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventSplit, Made: []uint64{i}})
		f.Slow(Request{Received: int64(i)})
	}
	r = f.Recent()
	if len(r.Done) != keptEvents || r.Done[keptEvents-1].Made[0] != 2*keptEvents-1 || len(r.Slow) != keptRequests || r.Slow[keptRequests-1].Received != 2*keptEvents-1 {
		t.Errorf("%d events and %d requests are kept", len(r.Done), len(r.Slow))
	}
}

func TestNamesFromClientsAreCut(t *testing.T) {
	f := NewFeed()
	f.Slow(Request{Table: strings.Repeat("x", 4<<20)})
	f.Event(ots.Capacity, flagstone.Event{Kind: flagstone.EventFailure, Err: errors.New(strings.Repeat("\xff", 4<<20))})
	if r := f.Recent(); len(r.Slow[0].Table) != 255 || len(r.Done[0].Error) > 255 {
		t.Errorf("%d and %d bytes are kept", len(r.Slow[0].Table), len(r.Done[0].Error))
	}
}

func TestWatchRecordsUntilItIsEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFeed()
		ctx, cancel := context.WithTimeout(t.Context(), 10*heatStep+time.Second)
		defer cancel()
		f.Watch(ctx, func() map[string][]flagstone.LoadedKey {
			return map[string][]flagstone.LoadedKey{"i/t": {loaded("k", 1, 2)}}
		})
		if p := f.picture("i/t"); len(p.Times) != 10 || p.Writes[9][0] != 2 {
			t.Errorf("%+v", p)
		}
	})
}
