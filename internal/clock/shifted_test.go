package clock

import (
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
)

func TestAShiftedClockIsSetWithoutTimePassing(t *testing.T) {
	m := clocktest.NewManual(1_000_000)
	s := NewShifted(m)
	check := func(what string, millis int64, offset time.Duration) {
		t.Helper()
		if s.NowMillis() != millis || s.Offset() != offset {
			t.Errorf("%s: %d, ahead %v; want %d, %v", what, s.NowMillis(), s.Offset(), millis, offset)
		}
		if s.NowMicros() != 1000*millis {
			t.Errorf("%s: %d microseconds; want %d", what, s.NowMicros(), 1000*millis)
		}
		if s.Elapsed() != m.Elapsed() {
			t.Errorf("%s: the monotonic reading is %v, that of the other clock %v", what, s.Elapsed(), m.Elapsed())
		}
	}
	check("at first", 1_000_000, 0)
	s.Advance(26 * time.Hour)
	check("advanced", 1_000_000+26*3_600_000, 26*time.Hour)
	m.Advance(time.Second)
	check("a second later", 1_001_000+26*3_600_000, 26*time.Hour)
	s.SetWall(500_000)
	check("set back", 500_000, -501*time.Second)
	s.Advance(-time.Second)
	check("a second back", 499_000, -502*time.Second)
	s.Reset()
	check("reset", 1_001_000, 0)
}
