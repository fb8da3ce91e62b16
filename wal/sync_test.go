package wal

// Groups of many callers of Sync.

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestWhoIsWokenByAGroupIsInTheNext: the leader returns first, and would be alone in the next
// group that it leads.
func TestWhoIsWokenByAGroupIsInTheNext(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const callers, each = 16, 50
	var syncs atomic.Int64
	// The file system has no direct I/O, so that groups go one by one.
	opts := testOptions(hookFS{vfs.NewSim(vfs.SimOptions{BlockSize: -1}), func(op, _ string) error {
		if op == "syncdata" {
			syncs.Add(1)
			runtime.Gosched() // a device takes time
		}
		return nil
	}})
	opts.SegmentSize = 16 << 20
	w, _ := mustOpen(t, opts, 0, &oracle{})
	var wg sync.WaitGroup
	for i := range callers {
		wg.Go(func() {
			for n := range uint64(each) {
				appendAndSync(t, w, uint32(i+1), n+1)
			}
		})
	}
	wg.Wait()
	if n := syncs.Load(); w.last != callers*each || n > each*3/2 {
		t.Errorf("%d records in %d groups", w.last, n)
	}
	mustClose(t, w)
}

// TestALeaderWhoseRecordWasWrittenForgetsNobody: while the leader lets others join, a rotation
// makes its record durable, and a caller arrives that relies on the leader.
func TestALeaderWhoseRecordWasWrittenForgetsNobody(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	met := 0
	for range 20 {
		synctest.Test(t, func(t *testing.T) {
			opts := testOptions(newSim())
			w, _ := mustOpen(t, opts, 0, &oracle{})
			lsn, err := w.Append(1, 1, testPayload(1, 100))
			if err != nil {
				t.Fatal(err)
			}
			w.waiting.Add(1) // so that the leader believes that there are others
			var wg sync.WaitGroup
			wg.Go(func() {
				w.mu.Lock()
				if w.inviting {
					met++
				}
				w.mu.Unlock()
				if _, err := w.Rotate(); err != nil {
					t.Error(err)
				}
				appendAndSync(t, w, 2, 1)
			})
			wg.Go(func() { // runs first
				if err := w.Sync(lsn); err != nil {
					t.Error(err)
				}
			})
			wg.Wait()
			w.waiting.Add(-1)
			mustClose(t, w)
		})
	}
	if met == 0 {
		t.Error("the log was never rotated while the leader let others join")
	}
}

// TestNobodyWaitsForALeaderThatIsNone syncs from many goroutines while the log is rotated and
// flushed. A forgotten waiter would hang forever.
func TestNobodyWaitsForALeaderThatIsNone(t *testing.T) {
	for _, block := range []int{0, -1} {
		for _, processors := range []int{1, 3} {
			crowd(t, block, processors)
		}
	}
}

func crowd(t *testing.T, block, processors int) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(processors))
	const callers, each = 6, 150
	sim := vfs.NewSim(vfs.SimOptions{BlockSize: block})
	opts := testOptions(hookFS{sim, func(op, _ string) error {
		if op == "write" {
			runtime.Gosched()
		}
		return nil
	}})
	opts.SegmentSize = 64 << 10
	w, _ := mustOpen(t, opts, 0, &oracle{})
	over := make(chan struct{})
	var writing, disturbing sync.WaitGroup
	disturbing.Go(func() {
		for rng := rand.New(rand.NewPCG(1, 2)); ; runtime.Gosched() {
			select {
			case <-over:
				return
			default:
			}
			var err error
			switch rng.IntN(3) {
			case 0:
				_, err = w.Rotate()
			case 1:
				err = w.Flush()
			}
			if err == nil {
				newest := w.Segment() // may rise
				err = w.Release(newest - min(20, newest-1))
			}
			if err != nil {
				t.Error(err)
				return
			}
		}
	})
	for i := 1; i <= callers; i++ {
		writing.Go(func() {
			for n := range uint64(each) {
				appendAndSync(t, w, uint32(i), n+1)
			}
		})
	}
	writing.Wait()
	close(over)
	disturbing.Wait()
	mustClose(t, w)
	if w.last != callers*each {
		t.Errorf("%d records", w.last)
	}
}
