package rowstore

import (
	"errors"
	"testing"
	"time"
)

func TestWhatComesAfterTheLastBusyQuestionIsLate(t *testing.T) {
	const interval, busyFor = 2 * time.Millisecond, 20 * time.Millisecond
	start := time.Now()
	asking, err := AwaitQuiet(interval, 5, 0, func() (Activity, error) {
		for begun := threadCPU(); threadCPU()-begun < time.Millisecond; { // a dear question
		}
		if time.Since(start) < busyFor {
			return Working, nil
		}
		return Due, nil // for ever
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
	questions := 0
	asking, err = AwaitQuiet(interval, 1, time.Hour, func() (Activity, error) {
		questions++
		return []Activity{Working, Due, Due, Quiet}[questions-1], nil
	})
	if err != nil || questions != 4 || asking.Late < 3*interval {
		t.Errorf("%d questions while something was due, %+v, %v", questions, asking, err)
	}
	failed := errors.New("no answer")
	if _, err := AwaitQuiet(interval, 5, 0, func() (Activity, error) { return Working, failed }); !errors.Is(err, failed) {
		t.Errorf("a question that fails: %v", err)
	}
}
