package flagstone

import (
	"fmt"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// hookedClock calls a function at one reading of the wall clock.
type hookedClock struct {
	*clocktest.Manual
	mu   sync.Mutex
	hook func()
}

func (c *hookedClock) NowMillis() int64 {
	c.mu.Lock()
	hook := c.hook
	c.hook = nil
	c.mu.Unlock()
	if hook != nil {
		hook()
	}
	return c.Manual.NowMillis()
}

// A compaction that is about to raise the expiry watermark reads the table's Time To Live; before
// it raises it, the Time To Live is raised, and a reader sees what that brings back. The reader
// must go on seeing it.
func TestWhatALongerTimeToLiveBringsBackStays(t *testing.T) {
	c := &hookedClock{Manual: clocktest.NewManual(startMillis)}
	s, err := Open("/store", Options{Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{}), Clock: c, Executor: executortest.NewManual()}})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	r := &rig{t: t, store: s}
	believeClock(c.Manual)
	start := c.NowMillis()
	table := r.table("t", TableOptions{TTLSeconds: 100})
	put(t, table, "p", 1, "c", start, "x")
	if err := s.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	c.Advance(200 * time.Second)
	put(t, table, "p", 2, "c", start+200_000, "y")
	want(t, "expired", show(t, table, "p", 1), "absent")

	brought := make(chan string, 1)
	begun := make(chan struct{})
	c.mu.Lock()
	c.hook = func() {
		go func() {
			close(begun)
			if err := table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: NeverExpires}}); err != nil {
				t.Error(err)
			}
			brought <- show(t, table, "p", 1)
		}()
		<-begun
		for range 10_000 { // it has time for it, unless it has to wait for this merge
			runtime.Gosched()
		}
	}
	c.mu.Unlock()
	if err := (treeEnv{s}).Advance(table.core.ID, start); err != nil {
		t.Fatal(err)
	}
	want(t, "after all", show(t, table, "p", 1), <-brought)
}

// The wall clock is wrong for so long that the trusted clock believes it, and there are no writes
// meanwhile; a compaction raises the watermark. Once the clock is right again, versions by the
// store's clock must not be below the watermark: they would be acknowledged and never be shown.
func TestP16_WritesAfterAClockThatWasAheadAreShown(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{TTLSeconds: 1000})
	put(t, table, "p", 1, "c", startMillis, "old")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	right := r.clock.NowMillis()
	r.clock.SetWall(right + 24*3600*1000)
	for range 2 { // it has to stand
		r.clock.Advance(storeclock.Probation)
		r.exec.RunAll()
	}
	if table.Info().ExpiryWatermark < startMillis/1000 {
		t.Fatalf("the watermark is %d", table.Info().ExpiryWatermark)
	}
	for _, reopened := range []bool{false, true} {
		if reopened {
			r.reopen()
			table = r.table("t", TableOptions{})
		}
		r.clock.SetWall(right)
		version := r.store.NowMillis()
		put(t, table, "p", 2, "c", version, "new")
		want(t, fmt.Sprintf("reopened %v", reopened), show(t, table, "p", 2), fmt.Sprintf("c@%d=new ", version))
	}
}
