package rowstore

import (
	"errors"
	"testing"
	"time"
)

func TestWhatComesAfterTheLastBusyQuestionIsLate(t *testing.T) {
	const interval, busyFor = 2 * time.Millisecond, 20 * time.Millisecond
	start := time.Now()
	asking, err := AwaitQuiet(interval, 5, func() (bool, error) {
		for begun := threadCPU(); threadCPU()-begun < time.Millisecond; { // a dear question
		}
		return time.Since(start) < busyFor, nil
	})
	elapsed := time.Since(start)
	if err != nil {
		t.Fatal(err)
	}
	if charged := elapsed - asking.Late; charged < 0 || charged > busyFor {
		t.Errorf("%v are charged of %v; the engine was busy for %v", charged, elapsed, busyFor)
	}
	if asking.Late < 5*time.Millisecond || asking.CPU < 5*time.Millisecond || asking.CPU > elapsed {
		t.Errorf("%+v of %v", asking, elapsed)
	}
	failed := errors.New("no answer")
	if _, err := AwaitQuiet(interval, 5, func() (bool, error) { return true, failed }); !errors.Is(err, failed) {
		t.Errorf("a question that fails: %v", err)
	}
}
