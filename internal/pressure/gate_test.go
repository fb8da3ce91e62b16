package pressure

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
)

// store is the Env of a gate. While a writer waits, it runs what the test has queued.
type store struct {
	refusal error
	flushes int
	queued  []func()
}

func (s *store) Writable() error { return s.refusal }
func (s *store) FlushLargest()   { s.flushes++ }
func (s *store) Await(ctx context.Context, _ <-chan struct{}) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(s.queued) == 0 {
		return executor.ErrIdle
	}
	next := s.queued[0]
	s.queued = s.queued[1:]
	next()
	return nil
}

// await queues what happens while a writer waits.
func (s *store) await(f ...func()) { s.queued = append(s.queued, f...) }

func newGate(budget int64) (*Gate, *store, *clocktest.Manual) {
	s, c := new(store), clocktest.NewManual(0)
	return NewGate(s, c, budget), s, c
}

// note says how far the compactions of a tree are behind.
func note(g *Gate, tree any, depth int, debt float64) {
	g.NoteTree(tree, func() (int, float64) { return depth, debt })
}

func TestAWriterPassesWhileTheStoreKeepsUp(t *testing.T) {
	g, s, _ := newGate(100)
	note(g, "tree", SlowdownDepth-1, debtStart)
	if err := g.Pass(t.Context()); err != nil || g.Pressure() != 0 {
		t.Errorf("%v at pressure %v", err, g.Pressure())
	}
	s.refusal = errors.New("closed")
	if err := g.Pass(t.Context()); err != s.refusal {
		t.Errorf("%v, want the store's refusal", err)
	}
}

func TestAStallLastsFromTheFirstWriterToTheLast(t *testing.T) {
	g, s, c := newGate(100)
	var told []event.Event
	g.Events = &event.Source{Clock: c, To: func(e event.Event) { told = append(told, e) }}
	g.Add(100)
	g.Rotated(100)
	s.await(func() {
		c.Advance(time.Second)
		s.await(func() { c.Advance(time.Second); g.Free(60, 60) })
		if err := g.Reserve(t.Context(), 50); err != nil { // of another writer
			t.Error(err)
		}
		if len(told) != 1 || !told[0].Begun {
			t.Errorf("while a writer waits: %+v", told)
		}
	})
	if err := g.Pass(t.Context()); err != nil {
		t.Error(err)
	}
	if err := g.Pass(t.Context()); err != nil { // does not wait
		t.Error(err)
	}
	if len(told) != 2 || told[1].Begun || told[1].Kind != event.Stall || told[1].Job != told[0].Job || told[1].Took != 2*time.Second {
		t.Errorf("%+v", told)
	}
}

func TestAWriterWaitsUntilMemtablesAreFlushed(t *testing.T) {
	g, s, c := newGate(100)
	g.Add(100)
	if err := g.Pass(t.Context()); err != nil {
		t.Errorf("with nothing to flush: %v", err)
	}
	g.Rotated(60)
	freed := false
	s.await(func() { c.Advance(time.Second) }, func() { g.Free(60, 60); freed = true })
	if err := g.Pass(t.Context()); err != nil || !freed {
		t.Errorf("%v; flushed: %v", err, freed)
	}
	if g.Stalled() != time.Second {
		t.Errorf("writers have waited %v, want a second", g.Stalled())
	}
	if total, waiting := g.Bytes(); total != 40 || waiting != 0 {
		t.Errorf("%d bytes, %d waiting", total, waiting)
	}
}

func TestAWriterIsToldWhyItWouldWaitInVain(t *testing.T) {
	cause := errors.New("disk full")
	for name, c := range map[string]struct {
		prepare func(g *Gate)
		says    string
	}{
		"memtables that cannot be flushed": {func(g *Gate) { g.Add(100); g.Rotated(100); g.NoteFlush(cause) }, "cannot be flushed"},
		"a log that cannot grow":           {func(g *Gate) { g.NoteLog(cause) }, "log cannot grow"},
		"a level 0 that cannot be merged": {func(g *Gate) {
			note(g, "a", SlowdownDepth, 0)
			note(g, "b", stopDepth, 0)
			g.NoteCompaction("b", cause)
		}, "cannot be compacted"},
	} {
		g, _, _ := newGate(100)
		c.prepare(g)
		if err := g.Pass(t.Context()); !errors.Is(err, cause) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", name, err)
		}
		g.NoteFlush(nil)
		g.NoteLog(nil)
		g.Free(100, 100)
		note(g, "b", 0, 0)
		if err := g.Pass(t.Context()); err != nil {
			t.Errorf("%s, and it has passed: %v", name, err)
		}
		if err := g.Failure(); err != nil {
			t.Errorf("%s: the failure is kept: %v", name, err)
		}
	}
}

func TestAWriterWaitsForADeepLevel0(t *testing.T) {
	g, s, _ := newGate(100)
	note(g, "tree", stopDepth, 0)
	merged := false
	s.await(func() { note(g, "tree", 1, 0); merged = true })
	if err := g.Pass(t.Context()); err != nil || !merged {
		t.Errorf("%v; merged: %v", err, merged)
	}
	note(g, "tree", stopDepth-1, 0)
	if err := g.Pass(t.Context()); err != nil || g.Pressure() == 0 {
		t.Errorf("below the limit: %v at pressure %v", err, g.Pressure())
	}
	note(g, "tree", stopDepth, 0)
	cancelled, cancel := context.WithCancel(t.Context())
	cancel()
	if err := g.Pass(cancelled); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestTheBudgetHolds(t *testing.T) {
	g, s, _ := newGate(100)
	if err := g.Reserve(t.Context(), 500); err != nil {
		t.Fatalf("a write larger than the budget, alone: %v", err)
	}
	g.Free(420, 0)
	if err := g.Reserve(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if !g.Crowded() {
		t.Error("a budget that is used up is not crowded")
	}
	s.await(func() {}, func() { g.Rotated(80); g.Free(80, 80) })
	if err := g.Reserve(t.Context(), 50); err != nil {
		t.Fatal(err)
	}
	if s.flushes != 2 {
		t.Errorf("the largest memtable was to be flushed %d times, want each time that none waits: 2", s.flushes)
	}
	if total, _ := g.Bytes(); total != 70 {
		t.Errorf("%d bytes are reserved, want 70", total)
	}
	if err := g.Reserve(t.Context(), 50); !errors.Is(err, executor.ErrIdle) {
		t.Errorf("with nothing left to flush: %v", err)
	}
	cause := errors.New("disk full")
	g.NoteFlush(cause)
	if err := g.Reserve(t.Context(), 50); !errors.Is(err, cause) {
		t.Errorf("flushes fail: %v", err)
	}
}

// TestAPauseEndsWithThePressure lets a large write owe a second, and ends its pause.
func TestAPauseEndsWithThePressure(t *testing.T) {
	owing := func() (*Gate, *store, *clocktest.Manual, time.Duration) {
		g, s, c := newGate(1 << 30)
		g.Flushed(100<<20, time.Second)
		note(g, "tree", stopDepth-1, 0)
		owed := g.Owe(100 << 20)
		if owed != longestPause {
			t.Fatalf("a write of 100 MiB owes %v, want %v", owed, longestPause)
		}
		return g, s, c, owed
	}
	sleep := func(c *clocktest.Manual) func() { return func() { c.Advance(payMost) } }

	g, s, c, owed := owing()
	for range 100 {
		s.await(sleep(c))
	}
	g.Pause(t.Context(), owed)
	if took, want := g.Stalled(), (owed + payMost - 1).Truncate(payMost); took != want || g.debt.pausing.Load() != 0 {
		t.Errorf("paused for %v, want %v; %d still pause", took, want, g.debt.pausing.Load())
	}
	g, s, c, owed = owing()
	s.await(sleep(c), func() { c.Advance(payMost); note(g, "tree", 0, 0) }, func() { t.Error("paused without pressure") })
	g.Pause(t.Context(), owed)
	if took := g.Stalled(); took != 2*payMost {
		t.Errorf("paused for %v, want until the pressure had gone: %v", took, 2*payMost)
	}
	g, s, _, owed = owing()
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	s.await(func() { t.Error("paused beyond the context") })
	g.Pause(ended, owed)
}

func TestWritersPayInProportionToWhatIsLeftUndone(t *testing.T) {
	owed := func(depth int, debt float64) time.Duration {
		g, _, _ := newGate(1 << 30)
		g.Flushed(100<<20, time.Second)
		note(g, "tree", depth, debt)
		pause := g.Owe(1 << 20) // 10 ms at the rate of flushes
		return (pause + time.Duration(g.debt.owed.Load())).Round(10 * time.Microsecond)
	}
	half := (SlowdownDepth + stopDepth) / 2
	for _, c := range []struct {
		depth int
		debt  float64
		want  time.Duration
	}{
		{0, 0, 0}, {SlowdownDepth - 1, debtStart, 0},
		{half - 1, 0, compactionFactor * 10 * time.Millisecond}, {0, (debtStart + debtStop) / 2, compactionFactor * 10 * time.Millisecond},
		{stopDepth, 0, compactionFactor * 200 * time.Millisecond}, {0, 100, compactionFactor * 200 * time.Millisecond},
	} {
		if got := owed(c.depth, c.debt); got != c.want {
			t.Errorf("at depth %d and debt %v a write owes %v, want %v", c.depth, c.debt, got, c.want)
		}
	}
}

// awaited is a store whose Await lets something happen, and then expects the event.
type awaited struct {
	store
	happens []func()
}

func (a *awaited) Await(_ context.Context, event <-chan struct{}) error {
	a.happens[0]()
	a.happens = a.happens[1:]
	select {
	case <-event:
		return nil
	default:
		return errors.New("the writer sleeps on")
	}
}

// TestAnAppliedWriteWakesAWriterThatFoundNothingToFlush: all memory is reserved by a write that is
// not applied, so the first request for a flush may have found no memtable.
func TestAnAppliedWriteWakesAWriterThatFoundNothingToFlush(t *testing.T) {
	a := new(awaited)
	g := NewGate(a, clocktest.NewManual(0), 100)
	if err := g.Reserve(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	a.happens = []func(){func() { g.Free(0, 0) }, func() { g.Free(100, 0) }}
	if err := g.Reserve(t.Context(), 10); err != nil || a.flushes != 2 {
		t.Errorf("%v after %d requests for a flush, want 2", err, a.flushes)
	}
}
