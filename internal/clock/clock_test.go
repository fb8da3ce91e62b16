package clock_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
)

func TestSystemClockFollowsTheMachine(t *testing.T) {
	c := clock.System()
	before, wall, after := time.Now().UnixMilli(), c.NowMillis(), time.Now().UnixMilli()
	if wall < before || wall > after {
		t.Errorf("NowMillis = %d; want from %d to %d", wall, before, after)
	}
	if a, b := c.Elapsed(), c.Elapsed(); a < 0 || b < a {
		t.Errorf("Elapsed went from %v to %v", a, b)
	}
	before, wall, after = time.Now().UnixMicro(), c.NowMicros(), time.Now().UnixMicro()
	if wall < before || wall > after {
		t.Errorf("NowMicros = %d; want from %d to %d", wall, before, after)
	}
	fired := make(chan struct{})
	stop := c.AfterFunc(time.Millisecond, func() { close(fired) })
	<-fired
	if stop() {
		t.Error("stopped a timer that had fired")
	}
	stop = c.AfterFunc(time.Hour, func() { t.Error("fired") })
	if !stop() || stop() {
		t.Error("stop must work once")
	}
}

func TestManualAdvanceMovesBothClocks(t *testing.T) {
	m := clocktest.NewManual(1000)
	m.Advance(1500 * time.Microsecond)
	m.Advance(1500 * time.Microsecond)
	if m.NowMillis() != 1003 || m.NowMicros() != 1_003_000 || m.Elapsed() != 3*time.Millisecond {
		t.Errorf("wall %d, elapsed %v; want 1003, 3ms", m.NowMillis(), m.Elapsed())
	}
}

func TestManualSetWallStepsTheWallOnly(t *testing.T) {
	m := clocktest.NewManual(1000)
	m.AfterFunc(time.Second, func() { t.Error("fired by a step of the wall clock") })
	m.Advance(500 * time.Millisecond)
	for _, wall := range []int64{1_000_000_000, -5, 0} {
		m.SetWall(wall)
		if m.NowMillis() != wall || m.Elapsed() != 500*time.Millisecond {
			t.Errorf("wall %d, elapsed %v; want %d, 500ms", m.NowMillis(), m.Elapsed(), wall)
		}
	}
	m.Advance(10 * time.Millisecond)
	if m.NowMillis() != 10 {
		t.Errorf("wall %d; want 10", m.NowMillis())
	}
}

func TestManualTimersFireInOrderEachAtItsTime(t *testing.T) {
	m := clocktest.NewManual(0)
	var got []string
	note := func(name string) func() {
		return func() { got = append(got, fmt.Sprintf("%s@%v", name, m.Elapsed())) }
	}
	m.AfterFunc(3*time.Second, note("c"))
	m.AfterFunc(time.Second, note("a1"))
	m.AfterFunc(time.Second, note("a2"))
	m.AfterFunc(2*time.Second, func() {
		note("b")()
		m.AfterFunc(500*time.Millisecond, note("nested"))
	})
	m.AfterFunc(0, note("now"))
	stop := m.AfterFunc(time.Second, note("stopped"))
	if !stop() || stop() {
		t.Error("stop must work once")
	}
	m.Advance(0)
	m.Advance(2900 * time.Millisecond)
	want := []string{"now@0s", "a1@1s", "a2@1s", "b@2s", "nested@2.5s"}
	if !slices.Equal(got, want) {
		t.Errorf("fired %v; want %v", got, want)
	}
	if m.Timers() != 1 {
		t.Errorf("%d timers wait; want 1", m.Timers())
	}
	m.Advance(100 * time.Millisecond)
	if len(got) != 6 || got[5] != "c@3s" || m.Timers() != 0 {
		t.Errorf("fired %v, %d timers wait", got, m.Timers())
	}
}

func TestManualRefusesToGoBack(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("the monotonic clock went back")
		}
	}()
	clocktest.NewManual(0).Advance(-1)
}

func TestManualFiresEveryTimerOnceWhateverTheSteps(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := clocktest.NewManual(0)
		var fired []time.Duration
		delays := rapid.SliceOf(rapid.Int64Range(0, 1000)).Draw(t, "delays")
		for _, d := range delays {
			m.AfterFunc(time.Duration(d), func() { fired = append(fired, m.Elapsed()) })
		}
		for m.Elapsed() < 1000 {
			m.Advance(time.Duration(rapid.Int64Range(1, 400).Draw(t, "step")))
		}
		slices.Sort(delays)
		if len(fired) != len(delays) {
			t.Fatalf("%d of %d timers fired", len(fired), len(delays))
		}
		for i := range fired {
			if int64(fired[i]) != delays[i] {
				t.Fatalf("fired at %v; want %v", fired, delays)
			}
		}
	})
}

func TestATimetableCatchesUp(t *testing.T) {
	c := clocktest.NewManual(0)
	ctx, cancel := context.WithCancel(context.Background())
	due := clocktest.Timetable(ctx, c, 1000)
	for want := range 4 {
		if n := <-due; n != want {
			t.Errorf("%d came in place of %d", n, want)
		}
		if want == 0 {
			c.Advance(3 * time.Millisecond)
		}
	}
	cancel()
	for n := range due {
		t.Errorf("%d came before its time", n)
	}
}
