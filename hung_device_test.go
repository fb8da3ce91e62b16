package flagstone

// A device that hangs: callers get their deadlines, and what they wrote goes on its
// way (RELIABILITY section 1, "slow or hung device").

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// hang makes the calls that match a rule hang until release is called. reached is closed at the
// first one.
func hang(fault *vfs.Fault, rule vfs.Rule) (reached <-chan struct{}, release func()) {
	held, first := make(chan struct{}), make(chan struct{})
	rule.Times, rule.Action = vfs.Forever, vfs.Hold(held)
	fault.Add(rule)
	var once, released sync.Once
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op&rule.Ops != 0 {
			once.Do(func() { close(first) })
		}
	}})
	return first, func() { released.Do(func() { fault.Clear(); close(held) }) }
}

func putContext(ctx context.Context, table *Table, n int, value string) error {
	return table.Update(ctx, Key("p", n), func(_ context.Context, tx *RowTx) error {
		tx.Put("c", startMillis, row.String(value))
		return nil
	})
}

func TestAPutReturnsAtItsDeadlineWhileTheDeviceHangs(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	reached, release := hang(fault, vfs.Rule{Ops: vfs.OpSyncData, Glob: "0*.log"})
	defer release()

	ctx, cancel := context.WithCancel(context.Background())
	outcomes := make(chan error)
	const writers = 8
	go func() { outcomes <- putContext(ctx, table, 0, "first") }()
	<-reached
	for n := 1; n < writers; n++ {
		go func() { outcomes <- putContext(ctx, table, n, "more") }()
	}
	patient := make(chan error, 1)
	go func() { patient <- putContext(context.Background(), table, writers, "patient") }()
	for r.store.pipeline.LastSeq()-r.store.pipeline.Visible() < writers+1 {
		runtime.Gosched() // until all of them are on their way
	}
	cancel()
	for range writers {
		if err := <-outcomes; !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
			t.Errorf("a put whose context ended: %v", err)
		}
	}
	deadline, stop := context.WithTimeout(context.Background(), time.Millisecond)
	defer stop()
	if err := putContext(deadline, table, writers+1, "late"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a put with a deadline: %v", err)
	}
	if n := count(t, table, ScanOptions{}); n != 0 {
		t.Errorf("%d rows are visible and not durable", n)
	}

	r.clock.Advance(2 * time.Second)
	if d := r.store.Metrics().LogWaiting; d < 2*time.Second {
		t.Errorf("the metrics say that the log waits for %v", d)
	}
	release()
	if err := <-patient; err != nil {
		t.Errorf("the put without a deadline: %v", err)
	}
	r.exec.RunAll()
	for n := range writers {
		if got := show(t, table, "p", n); !strings.Contains(got, "=") {
			t.Errorf("row %d, whose put gave up, is %q after the device answered", n, got)
		}
	}
	if d := r.store.Metrics().LogWaiting; d != 0 {
		t.Errorf("the metrics say that the log waits for %v", d)
	}
}

// Writers wait for the next segment's file and for the log's full buffer without a lock.
func TestAPutReturnsAtItsDeadlineWhileTheLogCannotGrow(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Ops: vfs.OpSyncData, Glob: "0*.log"},
		{Ops: vfs.OpCreate, Glob: "spare-*"},
		{Ops: vfs.OpPreallocate, Glob: "spare-*"},
		{Ops: vfs.OpRename, Glob: "spare-*"},
		{Ops: vfs.OpWriteAt, Glob: "MANIFEST-*"},
	} {
		t.Run(fmt.Sprint(rule.Ops, " ", rule.Glob), func(t *testing.T) {
			r, fault := faultRig(t, Options{WALSegmentSize: 64 << 10, MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
			table := r.table("t", TableOptions{})
			reached, release := hang(fault, rule)
			defer release()
			value := noise(rand.New(rand.NewPCG(1, 1)), 1<<20)
			var writers sync.WaitGroup
			for n := range 8 { // they wait without a deadline
				writers.Go(func() {
					if err := putContext(context.Background(), table, n, value); err != nil {
						t.Errorf("a put without a deadline: %v", err)
					}
				})
			}
			<-reached
			for n := range 20 {
				ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
				if err := putContext(ctx, table, 100+n, value); !errors.Is(err, context.DeadlineExceeded) {
					t.Errorf("a put with a deadline: %v", err)
				}
				cancel()
			}
			release()
			writers.Wait()
			if n := count(t, table, ScanOptions{}); n < 8 {
				t.Errorf("%d rows", n)
			}
		})
	}
}

func TestTheStoreSaysThatTheDeviceHangsAndThatItAnswersAgain(t *testing.T) {
	var log lockedText
	r, fault := faultRig(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	table := r.table("t", TableOptions{})
	reached, release := hang(fault, vfs.Rule{Ops: vfs.OpSyncData, Glob: "0*.log"})
	defer release()
	done := make(chan error)
	go func() { done <- putContext(context.Background(), table, 1, "v") }()
	<-reached
	const hangsAfter = time.Second // see internal/commit
	r.clock.Advance(hangsAfter / 2)
	if strings.Contains(log.String(), "does not answer") {
		t.Error("it says so too early")
	}
	r.clock.Advance(3 * hangsAfter)
	if n := strings.Count(log.String(), "does not answer"); n != 1 {
		t.Errorf("it says so %d times:\n%s", n, log.String())
	}
	release()
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(2 * hangsAfter)
	if !strings.Contains(log.String(), "answers again") {
		t.Errorf("it does not say that the device answers again:\n%s", log.String())
	}
}

// lockedText is a log that goroutines write to.
type lockedText struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *lockedText) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *lockedText) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// TestP11_ABatchLargerThanALogSegmentOnAFullDisk gives the disk one block more from
// run to run.
func TestP11_ABatchLargerThanALogSegmentOnAFullDisk(t *testing.T) {
	refused := 0
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		for blocks := int64(0); blocks < 60; blocks++ {
			r := newRig(t, Options{Sync: sync, WALSegmentSize: 16 << 10})
			table := r.table("t", TableOptions{})
			put(t, table, "p", 1, "c", startMillis, "small")
			used, err := r.fs.Usage("/store")
			if err != nil {
				t.Fatal(err)
			}
			r.fs.SetCapacity(int64(used.Total-used.Available) + blocks*4096)
			large := noise(rand.New(rand.NewPCG(1, 1)), 100<<10)
			err = putContext(ctx(), table, 2, large)
			if err == nil {
				continue
			}
			if refused++; !errors.Is(err, ErrNoSpace) || errors.Is(err, ErrPoisoned) || errors.Is(err, ErrOutcomeUnknown) {
				t.Fatalf("%d blocks left: %v", blocks, err)
			}
			if got := show(t, table, "p", 2); got != "absent" {
				t.Fatalf("%d blocks left: the refused row is %.40q", blocks, got)
			}
			r.fs.SetCapacity(0)
			r.clock.Advance(jobs.RetryAfter)
			r.exec.RunAll()
			if err := putContext(ctx(), table, 2, large); err != nil {
				t.Fatalf("%d blocks left, with space again: %v", blocks, err)
			}
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
			r.crash(vfs.CrashLoseAll, 1)
			if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 2 {
				t.Fatalf("%d blocks left: %d rows", blocks, n)
			}
		}
	}
	if refused < 20 {
		t.Errorf("refused %d times", refused)
	}
}

// A record larger than a segment needs an empty one: small writes must not take that
// each time.
func TestALargeWriteGoesBeforeThoseThatCameLater(t *testing.T) {
	r, fault := faultRig(t, Options{WALSegmentSize: 64 << 10, MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 0, "c", startMillis, "small")
	reached, release := hang(fault, vfs.Rule{Ops: vfs.OpRename, Glob: "spare-*"})
	defer release()
	apply := func(within context.Context, n int, value string) (uint64, error) {
		b := r.store.NewBatch()
		b.Row(table, Key("p", n)).Put("c", startMillis, row.String(value))
		c, err := r.store.ApplyAsync(within, b)
		if err != nil {
			return 0, err
		}
		if err := c.Wait(ctx()); err != nil {
			return 0, err
		}
		written, err := table.Get(ctx(), Key("p", n), ReadOptions{})
		if err != nil {
			return 0, err
		}
		return written.Cells()[0].Seq, nil
	}
	type outcome struct {
		seq uint64
		err error
	}
	large, small := make(chan outcome, 1), make(chan outcome)
	go func() {
		seq, err := apply(ctx(), 1, noise(rand.New(rand.NewPCG(1, 1)), 1<<20))
		large <- outcome{seq, err}
	}()
	<-reached
	const writers = 32
	for n := range writers {
		go func() {
			seq, err := apply(ctx(), 100+n, "later")
			small <- outcome{seq, err}
		}()
	}
	deadline, cancel := context.WithTimeout(ctx(), time.Millisecond)
	defer cancel()
	if _, err := apply(deadline, 2, "with a deadline"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a small write with a deadline: %v", err)
	}
	release()
	first := <-large
	if first.err != nil {
		t.Fatal(first.err)
	}
	for range writers {
		if o := <-small; o.err != nil || o.seq <= first.seq {
			t.Errorf("a later write: %v, sequence number %d, before %d of the large one", o.err, o.seq, first.seq)
		}
	}
}

func TestAWriteThatWaitsForRoomWhileTheStoreIsClosedSaysThatItIsClosed(t *testing.T) {
	r, fault := faultRig(t, Options{WALSegmentSize: 64 << 10, MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 0, "c", startMillis, "small")
	reached, release := hang(fault, vfs.Rule{Ops: vfs.OpPreallocate, Glob: "0*.log"})
	defer release()
	written, closed := make(chan error, 1), make(chan error, 1)
	go func() {
		b := r.store.NewBatch()
		b.Row(table, Key("p", 1)).Put("c", startMillis, row.String(noise(rand.New(rand.NewPCG(1, 1)), 1<<20)))
		_, err := r.store.ApplyAsync(ctx(), b)
		written <- err
	}()
	<-reached
	go func() { closed <- r.store.Close() }()
	// While the device hangs, the log has no room for a large record, until Close closes the log.
	for {
		_, err := r.store.log.AppendNow(0, 1, make([]byte, 128<<10))
		if errors.Is(err, wal.ErrClosed) {
			break
		}
		if !errors.Is(err, wal.ErrRoom) {
			t.Fatal("the probe:", err)
		}
		runtime.Gosched()
	}
	release()
	if err := <-written; !errors.Is(err, ErrClosed) {
		t.Errorf("the write: %v", err)
	}
	if err := <-closed; err != nil {
		t.Errorf("Close: %v", err)
	}
}
