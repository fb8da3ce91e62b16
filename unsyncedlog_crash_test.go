package flagstone

// Loads without a sync (P3): the segments of their log become durable late, or never. The power is
// cut at each call, as in crash_test.go, and the pictures are judged by it.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/wal"
)

// A flush of one table makes durable what the log may lose, unless earlier changes of the other table
// are in memory alone: in every second load there are some, in the others only until a flush has synced them.
func TestP03_CrashAtEveryCallOfALoadWithoutSyncs(t *testing.T) {
	late := 0
	for seed := range uint64(max(crashFull(), shorter(4), 2)) {
		c := &crasher{
			t: t, opts: scriptOptions(SyncNone), rng: rand.New(rand.NewPCG(seed, 2)), stride: 8, often: 60,
			digests: map[uint64]bool{}, seen: map[picture]bool{},
		}
		if seed%4 >= 2 { // longer between two flushes
			c.opts.MemtableSize, c.opts.MemoryBudget = 8<<10, 64<<10
		}
		disk := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(disk, 1)
		s := newScript(fault, c.opts, seed)
		s.outcome = func(err error) bool {
			t.Fatalf("seed %d, step %q: %v", seed, s.step, err)
			return false
		}
		fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
			if call.Op&vfs.OpMutating == 0 {
				return
			}
			if s.store != nil && s.store.log != nil && s.store.log.NewestOnDisk() < s.store.log.Newest() {
				late++
			}
			c.calls++
			c.shoot(s, disk, call)
		}})
		ok := s.open() == nil && s.create("a", 3) && s.create("b", 1) && s.background(10)
		for i := range 12 {
			ok = ok && s.load("b", 40) && (seed%2 == 0 && i > 0 || s.update("a"))
		}
		if !ok || !s.flush() || !s.load("b", 40) {
			t.Fatalf("seed %d", seed)
		}
		for _, policy := range vfs.CrashPolicies() {
			c.judge(s, disk.Image(policy, seed), fmt.Sprintf("seed %d: after the end, %v", seed, policy), 0)
		}
		dead := disk.Kill()
		s.store.Close()
		c.judge(s, dead, fmt.Sprintf("seed %d: killed at the end", seed), 0)
		t.Logf("seed %d: %d calls, %d pictures judged (%d of recovery)", seed, c.calls, c.pictures, c.nested)
	}
	if late == 0 {
		t.Error("every segment was durable before the next one began")
	}
}

// P1: what was written before Sync survives a power cut, and a caller waits no longer for it than its context.
func TestP01_SyncMakesDurableWhatWasWritten(t *testing.T) {
	r := newRig(t, Options{Sync: SyncNone, WALSegmentSize: 16 << 10, eagerSegments: 1})
	table := r.table("t", TableOptions{})
	written := 0
	for range 200 {
		written++
		put(t, table, "p", written, "c", startMillis, strings.Repeat("x", 1000))
		r.exec.RunAll()
	}
	if r.store.log.NewestOnDisk() == r.store.log.Newest() {
		t.Fatal("all of the log is durable before it is synced")
	}
	must(t, r.store.Sync(ctx()))
	put(t, table, "p", 0, "c", startMillis, "after it")
	ended, cancel := context.WithCancel(ctx())
	cancel()
	if err := r.store.Sync(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that has ended: %v", err)
	}
	r.crash(vfs.CrashLoseAll, 1)
	if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != written {
		t.Errorf("%d rows after the power cut, %d were durable", n, written)
	}
	must(t, r.store.Close())
	if err := r.store.Sync(ctx()); !errors.Is(err, ErrClosed) {
		t.Errorf("a closed store: %v", err)
	}
}

// A flush syncs the log for what another table has in memory, until that is durable.
func TestAnIdleTableCostsNoSyncOfTheLog(t *testing.T) {
	r := newRig(t, Options{Sync: SyncNone, MemtableSize: 64 << 10, WALSegmentSize: 16 << 10, eagerSegments: 1})
	idle, busy := r.table("a", TableOptions{}), r.table("b", TableOptions{}) // in the order of their flushes
	load := func() (synced bool) {
		before := r.store.Metrics()
		for i := range 300 {
			put(t, busy, "p", i, "c", startMillis, strings.Repeat("x", 1000))
			r.exec.RunAll()
		}
		after := r.store.Metrics()
		if after.FlushedBytes == before.FlushedBytes {
			t.Fatal("nothing was flushed")
		}
		return after.LogSyncs.Timed() > before.LogSyncs.Timed()
	}
	for range 3 {
		put(t, idle, "p", 0, "c", startMillis, "x")
		if !load() {
			t.Error("flushes outlive what another table has in memory, and the log may lose")
		}
		if load() {
			t.Error("the log is synced for what is durable")
		}
		before := r.store.Metrics().LogSyncs.Timed()
		must(t, r.store.Flush(ctx()))
		if r.store.Metrics().LogSyncs.Timed() > before {
			t.Error("the log is synced for a flush of what is durable, or of all that is not")
		}
	}
}

// P1: what is written after KeepLog is in the kept log, whatever a power cut took of what was written before.
func TestP01_AKeptLogHasNoHoleAfterAPowerCut(t *testing.T) {
	r := newRig(t, Options{Sync: SyncNone, eagerSegments: 1, WALSegmentSize: 16 << 10, MemtableSize: 1 << 20})
	table := r.table("t", TableOptions{})
	for i := range 100 {
		put(t, table, "p", i, "c", startMillis, strings.Repeat("x", 1000))
	}
	if r.store.log.NewestOnDisk() == r.store.log.Newest() {
		t.Fatal("all of the log is durable before it is kept")
	}
	must(t, r.store.KeepLog(ctx(), 1<<30))
	must(t, r.store.Checkpoint(ctx(), "/checkpoint"))
	checkpoint, _, err := manifest.Load(r.fs, "/checkpoint")
	must(t, err)
	for i := range 5 {
		put(t, table, "flushed", i, "c", startMillis, "x")
	}
	must(t, r.store.Flush(ctx()))
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	for i := range 5 {
		put(t, table, "new", i, "c", startMillis, "x")
	}
	kept, err := r.store.KeptLog(ctx())
	must(t, err)
	found := 0
	opts := wal.Options{FS: r.fs, Dir: path.Join("/store", kept.Dir), StoreID: kept.StoreID}
	for n := max(kept.From, checkpoint.Origin.Segment); n < kept.Until; n++ {
		must(t, wal.Read(opts, n, func(wal.Record) error {
			found++
			return nil
		}))
	}
	if found != 10 {
		t.Errorf("%d records in segments %d to %d, of which a restore of the checkpoint needs those from %d on; want 10",
			found, kept.From, kept.Until, checkpoint.Origin.Segment)
	}
}

// load changes rows of one table, beside background work.
func (s *script) load(table string, changes int) bool {
	for range changes {
		if !s.update(table) || s.rng.IntN(4) == 0 && !s.background(1) {
			return false
		}
	}
	return true
}
