package clock_test

import (
	"math"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

func TestSpansAreOfTheLargestUnitThatTheyHaveTwoOf(t *testing.T) {
	for want, d := range map[string]time.Duration{
		"0 seconds": time.Millisecond, "119 seconds": 119 * time.Second, "3 minutes": 179 * time.Second, "60 minutes": time.Hour,
		"36 hours": 36 * time.Hour, "364 days": 364 * 24 * time.Hour, "10 years": 3660 * 24 * time.Hour,
	} {
		if got := clock.Span(d.Milliseconds()); got != want {
			t.Errorf("%v is %q, want %q", d, got, want)
		}
	}
	if got := clock.Span(math.MaxInt64); got != "292471209 years" {
		t.Errorf("the longest is %q", got)
	}
}
