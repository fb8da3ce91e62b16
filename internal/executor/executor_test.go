package executor_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
)

// panicVariable makes this test program run a job that panics.
const panicVariable = "FLAGSTONE_TEST_PANIC"

func TestMain(m *testing.M) {
	if os.Getenv(panicVariable) != "" {
		pool := newPool(1, 1, 1)
		pool.Go(executor.Flush, "bug", func() { panic("a bug in a job") })
		// Not Close, which might drop the job. If the panic were recovered, the next job would
		// end the process.
		pool.Go(executor.Flush, "next", func() { os.Exit(0) })
		select {}
	}
	goleak.VerifyTestMain(m)
}

func newPool(flush, compaction, cleanup int) *executor.Pool {
	return executor.NewPool([executor.Classes]int{executor.Flush: flush, executor.Compaction: compaction, executor.Log: 1, executor.Cleanup: cleanup})
}

var _ = []executor.Executor{(*executor.Pool)(nil), (*executortest.Manual)(nil)}

func TestPoolRunsJobsOfAClassInTheirOrder(t *testing.T) {
	pool := newPool(1, 1, 1)
	var got []int
	var all sync.WaitGroup
	for i := range 100 {
		all.Add(1)
		if !pool.Go(executor.Compaction, "job", func() { got = append(got, i); all.Done() }) {
			t.Fatal("refused")
		}
	}
	all.Wait()
	pool.Close()
	if len(got) != 100 || !slices.IsSorted(got) {
		t.Errorf("ran %v", got)
	}
}

func TestPoolBoundsEachClassByItself(t *testing.T) {
	pool := newPool(1, 3, 2)
	defer pool.Close()
	for c, limit := range map[executor.Class]int{executor.Flush: 1, executor.Compaction: 3, executor.Cleanup: 2} {
		var running, most atomic.Int64
		started, release := make(chan struct{}, 20), make(chan struct{})
		var all sync.WaitGroup
		for range 20 {
			all.Add(1)
			pool.Go(c, "job", func() {
				defer all.Done()
				now := running.Add(1)
				for old := most.Load(); now > old && !most.CompareAndSwap(old, now); old = most.Load() {
				}
				started <- struct{}{}
				<-release
				running.Add(-1)
			})
		}
		for range limit {
			<-started // as many as allowed do run at once
		}
		close(release)
		all.Wait()
		if most.Load() != int64(limit) {
			t.Errorf("%s: %d at once; want %d", c, most.Load(), limit)
		}
	}
}

func TestPoolClassesDoNotWaitForEachOther(t *testing.T) {
	pool := newPool(1, 1, 1)
	release, done := make(chan struct{}), make(chan struct{})
	pool.Go(executor.Compaction, "long", func() { <-release })
	pool.Go(executor.Flush, "urgent", func() { close(done) })
	<-done
	close(release)
	pool.Close()
}

func TestPoolCloseWaitsForRunningJobsAndDropsQueuedOnes(t *testing.T) {
	pool := newPool(1, 1, 1)
	started, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	pool.Go(executor.Flush, "running", func() {
		close(started)
		<-release
		ended.Store(true)
	})
	<-started
	pool.Go(executor.Flush, "queued", func() { t.Error("ran after Close") })
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		pool.Close()
		if !ended.Load() {
			t.Error("Close returned before the job")
		}
	}()
	// Close has begun once Go refuses; a job that slips in before is dropped.
	for pool.Go(executor.Flush, "late", func() { t.Error("ran after Close") }) {
	}
	close(release)
	<-closed
	pool.Close() // again, and at once
}

func TestPoolJobsMayQueueJobs(t *testing.T) {
	pool := newPool(1, 1, 1)
	done := make(chan struct{})
	var queue func(n int)
	queue = func(n int) {
		pool.Go(executor.Class(n%int(executor.Classes)), fmt.Sprint(n), func() {
			if n == 0 {
				close(done)
				return
			}
			queue(n - 1)
		})
	}
	queue(50)
	<-done
	pool.Close()
}

func TestPoolRefusesALimitBelowOne(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("accepted a class that can never run")
		}
	}()
	newPool(1, 0, 1)
}

func TestPoolDiesOfAPanicAndShowsIt(t *testing.T) {
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), panicVariable+"=1")
	out, err := cmd.CombinedOutput()
	if err == nil || !strings.Contains(string(out), "panic: a bug in a job") {
		t.Errorf("error %v, output:\n%s", err, out)
	}
}

func TestManualRunsOnlyWhatIsStepped(t *testing.T) {
	m := executortest.NewManual()
	var got []string
	add := func(c executor.Class, name string) {
		m.Go(c, name, func() { got = append(got, name) })
	}
	add(executor.Flush, "a")
	add(executor.Compaction, "b")
	add(executor.Cleanup, "c")
	want := []executortest.JobInfo{{Class: executor.Flush, Name: "a"}, {Class: executor.Compaction, Name: "b"}, {Class: executor.Cleanup, Name: "c"}}
	if !slices.Equal(m.Pending(), want) || len(got) != 0 {
		t.Fatalf("pending %v, ran %v", m.Pending(), got)
	}
	if m.Step(3) || m.Step(-1) {
		t.Error("stepped a job that is not there")
	}
	for _, i := range []int{1, 1, 0} {
		if !m.Step(i) {
			t.Error("did not step a job that is there")
		}
	}
	if m.Step(0) {
		t.Error("stepped a job that is not there")
	}
	if !slices.Equal(got, []string{"b", "c", "a"}) {
		t.Errorf("ran %v", got)
	}
}

func TestManualRunAllIncludesWhatJobsQueue(t *testing.T) {
	m := executortest.NewManual()
	var got []string
	m.Go(executor.Flush, "a", func() {
		got = append(got, "a")
		m.Go(executor.Compaction, "of a", func() { got = append(got, "of a") })
	})
	m.Go(executor.Flush, "b", func() { got = append(got, "b") })
	if n := m.RunAll(); n != 3 || !slices.Equal(got, []string{"a", "b", "of a"}) {
		t.Errorf("%d ran: %v", n, got)
	}
}

func TestManualCloseWaitsForTheRunningJobAndDropsTheRest(t *testing.T) {
	m := executortest.NewManual()
	started, release := make(chan struct{}), make(chan struct{})
	var ended atomic.Bool
	m.Go(executor.Flush, "running", func() {
		close(started)
		<-release
		ended.Store(true)
	})
	m.Go(executor.Flush, "queued", func() { t.Error("ran") })
	stepped := make(chan struct{})
	go func() {
		defer close(stepped)
		m.Step(0)
	}()
	<-started
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		m.Close()
		if !ended.Load() {
			t.Error("Close returned before the job")
		}
	}()
	for m.Go(executor.Flush, "late", func() { t.Error("ran") }) {
	}
	close(release)
	<-closed
	<-stepped
	if m.RunAll() != 0 || len(m.Pending()) != 0 {
		t.Error("jobs are left")
	}
}

func TestClassesHaveNames(t *testing.T) {
	for c := range executor.Classes {
		if c.String() == "" {
			t.Errorf("class %d", int(c))
		}
	}
}

func TestAwaitReturnsForWhateverComesFirst(t *testing.T) {
	pool := newPool(1, 1, 1)
	defer pool.Close()
	ready, never := make(chan struct{}), make(chan struct{})
	close(ready)
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := pool.Await(context.Background(), ready, never); err != nil {
		t.Errorf("an event: %v", err)
	}
	if err := pool.Await(context.Background(), never, ready); err != nil {
		t.Errorf("the end: %v", err)
	}
	if err := pool.Await(cancelled, never, never); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
}

func TestManualAwaitRunsAJobInstead(t *testing.T) {
	m := executortest.NewManual()
	ran := 0
	m.Go(executor.Flush, "job", func() { ran++ })
	cancelled, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.Await(cancelled, nil, nil); !errors.Is(err, context.Canceled) || ran != 0 {
		t.Errorf("a context that has ended: %v, %d ran", err, ran)
	}
	if err := m.Await(context.Background(), nil, nil); err != nil || ran != 1 {
		t.Errorf("a queued job: %v, %d ran", err, ran)
	}
	if err := m.Await(context.Background(), nil, nil); !errors.Is(err, executor.ErrIdle) {
		t.Errorf("no queued job: %v", err)
	}
}

func TestBesideReturnsItsErrorWhenAskedFor(t *testing.T) {
	pool := newPool(1, 1, 1)
	defer pool.Close()
	manual := executortest.NewManual()
	failure := errors.New("failure")
	for _, e := range []executor.Executor{pool, manual} {
		var ran atomic.Bool
		wait := e.Beside(func() error { ran.Store(true); return failure })
		if e == manual && ran.Load() {
			t.Error("it ran although nothing waited for it")
		}
		if err := wait(); err != failure || !ran.Load() {
			t.Errorf("%T: %v", e, err)
		}
	}
	if manual.Spare(executor.Flush, "part", nil) {
		t.Error("an executor that is stepped by hand has a goroutine to spare")
	}
}
