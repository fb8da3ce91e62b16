package jobs_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
)

func newJobs() (*jobs.Jobs, *executortest.Manual, *clocktest.Manual) {
	e, c := executortest.NewManual(), clocktest.NewManual(0)
	return jobs.New(e, c, func(string, error) bool { return false }), e, c
}

func nothing() error { return nil }

func TestOneJobOfAKindIsQueuedAtATime(t *testing.T) {
	j, e, _ := newJobs()
	a, b := new(int), new(int) // what jobs work on
	var ran []string
	submit := func(of *int, name string) {
		j.Submit(jobs.Kind{Class: executor.Flush, Of: of, Name: name}, func() error { ran = append(ran, name); return nil })
	}
	for range 3 {
		submit(a, "flush")
	}
	submit(b, "flush")
	submit(a, "merge")
	if n := len(e.Pending()); n != 3 {
		t.Errorf("%d jobs are queued, want 3", n)
	}
	e.RunAll()
	submit(a, "flush") // it has ended
	e.RunAll()
	if want := []string{"flush", "flush", "merge", "flush"}; !slices.Equal(ran, want) {
		t.Errorf("ran %v, want %v", ran, want)
	}
}

func TestAJobThatIsSubmittedWhileItRunsRunsOnceMore(t *testing.T) {
	j, e, _ := newJobs()
	kind := jobs.Kind{Class: executor.Compaction, Name: "merge"}
	ran := 0
	var job func() error
	job = func() error {
		if ran++; ran == 1 {
			j.Submit(kind, job)
			j.Submit(kind, job)
			if n := len(e.Pending()); n != 0 {
				t.Errorf("%d jobs are queued beside the one that runs", n)
			}
		}
		return nil
	}
	j.Submit(kind, job)
	e.RunAll()
	if ran != 2 {
		t.Errorf("it ran %d times, want 2", ran)
	}
}

func TestBusyUntilTheLastJobOfItsClassesHasEnded(t *testing.T) {
	j, e, _ := newJobs()
	j.Submit(jobs.Kind{Class: executor.Cleanup, Name: "remove"}, nothing)
	if busy, _ := j.Busy(executor.Flush, executor.Compaction); busy {
		t.Error("busy with a job of another class")
	}
	j.Submit(jobs.Kind{Class: executor.Flush, Name: "flush"}, nothing)
	busy, ended := j.Busy(executor.Flush)
	if !busy {
		t.Error("not busy with a queued job")
	}
	e.Step(1)
	select {
	case <-ended:
	default:
		t.Error("a job has ended, and the channel is open")
	}
	if busy, _ := j.Busy(executor.Flush); busy {
		t.Error("busy after the job has ended")
	}
}

func TestCountsTellWhatRunsFromWhatWaits(t *testing.T) {
	j, e, _ := newJobs()
	class := executor.Compaction
	j.Submit(jobs.Kind{Class: class, Name: "first"}, func() error {
		if running, waiting := j.Counts(); running[class] != 1 || waiting[class] != 1 || waiting[executor.Flush] != 0 {
			t.Errorf("%d run, %d wait", running, waiting)
		}
		return nil
	})
	j.Submit(jobs.Kind{Class: class, Name: "second"}, nothing)
	e.RunAll()
	if running, waiting := j.Counts(); running[class]+waiting[class] != 0 {
		t.Errorf("%d run and %d wait in the end", running, waiting)
	}
}

func TestNothingBeginsAfterStop(t *testing.T) {
	j, e, c := newJobs()
	fail := func() { t.Error("it ran") }
	failing := func() error { fail(); return nil }
	kind := jobs.Kind{Class: executor.Flush, Name: "flush"}
	j.Submit(kind, failing)
	j.After(time.Second, fail)
	if !j.Begin() {
		t.Fatal("nothing may begin before Stop")
	}
	j.Stop()
	j.Submit(jobs.Kind{Class: executor.Flush, Name: "another"}, failing)
	j.After(time.Second, fail)
	if j.Begin() {
		t.Error("work begins after Stop")
	}
	e.RunAll()
	c.Advance(time.Minute)
	if n := c.Timers(); n != 0 {
		t.Errorf("%d timers are left", n)
	}
	waited := make(chan struct{})
	go func() { j.Wait(); close(waited) }()
	j.End()
	<-waited
}

func TestAJobThatFailedRunsAgainLater(t *testing.T) {
	e, c := executortest.NewManual(), clocktest.NewManual(0)
	lasting := errors.New("lasting")
	var failures []string
	j := jobs.New(e, c, func(name string, err error) bool {
		failures = append(failures, name+" "+err.Error())
		return err != lasting
	})
	outcomes := []error{errors.New("passing"), nil}
	ran := 0
	j.Submit(jobs.Kind{Class: executor.Flush, Name: "flush"}, func() error { ran++; return outcomes[ran-1] })
	j.Submit(jobs.Kind{Class: executor.Cleanup, Name: "remove"}, func() error { return lasting })
	for range 3 {
		e.RunAll()
		c.Advance(jobs.RetryAfter)
	}
	if want := []string{"flush passing", "remove lasting"}; ran != 2 || !slices.Equal(failures, want) {
		t.Errorf("it ran %d times, failures %q, want %q", ran, failures, want)
	}
}

func TestTimersRunOnce(t *testing.T) {
	j, _, c := newJobs()
	done := make(chan struct{}, 2)
	j.After(time.Second, func() { done <- struct{}{} })
	c.Advance(time.Second)
	<-done
	j.Stop() // nothing is left to be stopped
}

func TestStopEndsAWait(t *testing.T) {
	e := executor.NewPool([executor.Classes]int{1, 1, 1, 1})
	defer e.Close()
	j := jobs.New(e, clock.System(), nil)
	result := make(chan error)
	go func() { result <- j.Await(context.Background(), nil) }()
	j.Stop()
	if err := <-result; err != nil {
		t.Error(err)
	}
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	never := jobs.New(e, clock.System(), nil)
	if err := never.Await(cancelled, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}
