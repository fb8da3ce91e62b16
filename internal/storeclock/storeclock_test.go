package storeclock_test

import (
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/manifest"
)

const (
	start  = int64(1_700_000_000_000)
	aYear  = int64(365 * 24 * 3600 * 1000)
	minute = int64(60_000)
)

var quiet = slog.New(slog.DiscardHandler)

func TestIssuedTimesNeverGoBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		wall := clocktest.NewManual(start)
		issued := storeclock.NewIssued(wall)
		last, raised := int64(0), int64(0)
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 2).Draw(t, "step") {
			case 0:
				wall.SetWall(rapid.Int64Range(start-5, start+5).Draw(t, "wall"))
			case 1:
				raised = rapid.Int64Range(start-5, start+5).Draw(t, "raised")
				issued.Raise(raised)
			default:
				wall.Advance(time.Duration(rapid.IntRange(0, 3000).Draw(t, "micros")) * time.Microsecond)
			}
			micros := issued.Micros()
			millis := issued.Millis()
			if millis < max(last, raised, wall.NowMillis()) || micros/1000 < last || micros/1000 > millis {
				t.Fatalf("%d ms and %d us, after %d, raised to %d, wall clock %d", millis, micros, last, raised, wall.NowMillis())
			}
			if last = millis; issued.Last() != last || issued.LastMicros() < micros || issued.LastMicros()/1000 != last {
				t.Fatalf("the last reading is %d ms or %d us after %d ms, %d us", issued.Last(), issued.LastMicros(), millis, micros)
			}
		}
	})
}

func TestTimesFarAheadAreLoggedOnce(t *testing.T) {
	var log strings.Builder
	logger := slog.New(slog.NewTextHandler(&log, nil))
	wall := clocktest.NewManual(start)
	issued := storeclock.NewIssued(wall)
	for i, c := range []struct {
		wall   int64
		warned int
	}{{start, 0}, {start - 30*minute, 0}, {start - aYear, 1}, {start - aYear, 1}, {start, 1}, {start - aYear, 2}} {
		issued.Millis()
		wall.SetWall(c.wall)
		issued.WarnIfAhead(logger, "/store")
		if got := strings.Count(log.String(), "ahead of the clock"); got != c.warned {
			t.Errorf("step %d: %d warnings, want %d: %s", i, got, c.warned, log.String())
		}
	}
}

// TestATimeIsBelievedOnlyIfItStoodForAnHour moves the wall clock at random, and saves and loads the
// trusted clock at random. The trusted time never lies above what the wall clock has shown at every
// look of some hour.
func TestATimeIsBelievedOnlyIfItStoodForAnHour(t *testing.T) {
	type look struct{ elapsed, ahead int64 } // ahead: the wall clock less the running time
	rapid.Check(t, func(t *rapid.T) {
		wall := clocktest.NewManual(start)
		trusted := storeclock.NewTrusted(wall, manifest.TrustedClock{}, quiet)
		var looks []look
		for range rapid.IntRange(1, 150).Draw(t, "looks") {
			if rapid.IntRange(0, 9).Draw(t, "jump") == 0 {
				wall.SetWall(start + wall.Elapsed().Milliseconds() + rapid.Int64Range(-3, 3).Draw(t, "by")*7*minute)
			}
			wall.Advance(time.Duration(rapid.Int64Range(0, 2*minute).Draw(t, "run")) * time.Millisecond)
			now := trusted.Look()
			elapsed := wall.Elapsed().Milliseconds()
			looks = append(looks, look{elapsed, wall.NowMillis() - elapsed})
			if now.Millis > wall.NowMillis() {
				t.Fatalf("the trusted time is %d, the wall clock %d", now.Millis, wall.NowMillis())
			}
			believed := int64(0) // at the start: running time alone
			least := int64(0)
			for first := range looks {
				for i := first; i < len(looks); i++ {
					if least = min(least, looks[i].ahead); i == first {
						least = looks[i].ahead
					}
					if looks[i].elapsed-looks[first].elapsed >= storeclock.Probation.Milliseconds() {
						believed = max(believed, least)
					}
				}
			}
			if now.Millis-elapsed > believed {
				t.Fatalf("%d ahead of the running time is trusted, %d has stood for an hour: %v", now.Millis-elapsed, believed, looks)
			}
			if rapid.IntRange(0, 9).Draw(t, "restart") == 0 {
				saved := now
				if err := trusted.Save(func(c manifest.TrustedClock) error { saved = c; return nil }); err != nil {
					t.Fatal(err)
				}
				trusted = storeclock.NewTrusted(wall, saved, quiet)
			}
		}
	})
}

func TestAProbationEndsInBeliefAndGoesOnAfterALoad(t *testing.T) {
	wall := clocktest.NewManual(start)
	trusted := storeclock.NewTrusted(wall, manifest.TrustedClock{}, quiet)
	for i := range int64(61) {
		now := trusted.Look()
		if believed := storeclock.Believed(now); believed != (i == 60) {
			t.Fatalf("after %d minutes: believed %v, %+v", i, believed, now)
		}
		if i == 30 {
			trusted = storeclock.NewTrusted(wall, now, quiet)
		}
		wall.Advance(time.Minute)
	}
	wall.SetWall(start) // behind: the trusted time falls to it
	if now := trusted.Look(); now != (manifest.TrustedClock{Millis: start}) {
		t.Errorf("with the clock set back: %+v", now)
	}
}

func TestTimeWithoutALookIsNoProbation(t *testing.T) {
	wall := clocktest.NewManual(start)
	trusted := storeclock.NewTrusted(wall, manifest.TrustedClock{}, quiet)
	wall.Advance(3 * time.Hour)
	if now := trusted.Look(); now.Stood != 2*minute || now.Millis != 180*minute {
		t.Errorf("after three hours without a look: %+v", now)
	}
}

func TestAClockIsSavedWhenItMoved(t *testing.T) {
	wall := clocktest.NewManual(start)
	trusted := storeclock.NewTrusted(wall, manifest.TrustedClock{}, quiet)
	failure := errors.New("no space")
	for _, c := range []struct {
		run     time.Duration
		err     error
		unsaved bool // before it is saved
	}{
		{0, nil, false}, {30 * time.Second, nil, false}, {time.Minute, failure, true},
		{0, nil, true}, {0, nil, false}, {time.Minute, nil, true},
	} {
		wall.Advance(c.run)
		if got := trusted.Unsaved(); got != c.unsaved {
			t.Errorf("after %v: unsaved is %v", c.run, got)
		}
		if err := trusted.Save(func(manifest.TrustedClock) error { return c.err }); !errors.Is(err, c.err) {
			t.Errorf("Save: %v, want %v", err, c.err)
		}
	}
}

func TestAJumpAheadIsLogged(t *testing.T) {
	var log strings.Builder
	wall := clocktest.NewManual(start)
	trusted := storeclock.NewTrusted(wall, manifest.TrustedClock{}, slog.New(slog.NewTextHandler(&log, nil)))
	wall.Advance(time.Minute)
	trusted.Look()
	if log.Len() > 0 {
		t.Errorf("a new store logs %s", log.String())
	}
	wall.SetWall(wall.NowMillis() + aYear)
	trusted.Look()
	trusted.Look()
	if got := strings.Count(log.String(), "the wall clock jumped ahead"); got != 1 {
		t.Errorf("a jump is logged %d times: %s", got, log.String())
	}
}
