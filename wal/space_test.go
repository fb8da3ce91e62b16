package wal

// A full disk (P11): a group that finds no space stays in flight and is tried again; a record
// without space is refused before a byte is written.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestP11_ARecordLargerThanASegmentIsRefusedOnAFullDiskBeforeAByteIsWritten(t *testing.T) {
	const record = 40 * blockSize
	for _, m := range modes {
		for spare := int64(0); spare < record/blockSize+12; spare++ {
			sim := newSim()
			opts := testOptions(sim)
			m.set(&opts)
			var o oracle
			w, _ := mustOpen(t, opts, 0, &o)
			mustAppend(t, w, &o, 0, 100)
			used, err := sim.Usage("wal")
			if err != nil {
				t.Fatal(err)
			}
			sim.SetCapacity(int64(used.Total-used.Available) + spare*blockSize)
			before := len(o.records)
			lsn, err := o.append(w, 0, record)
			if err != nil {
				if !vfs.IsNoSpace(err) || errors.Is(err, ErrFailed) {
					t.Fatalf("%d blocks left: %v", spare, err)
				}
				o.records = o.records[:before]
				sim.SetCapacity(0)
				if lsn, err = o.append(w, 0, record); err != nil {
					t.Fatalf("%d blocks left, once there is space: %v", spare, err)
				}
			}
			// Accepted records need no further block except those of the next segment.
			if err := o.sync(w, lsn); err != nil {
				t.Fatalf("%d blocks left, the record was taken: %v", spare, err)
			}
			mustClose(t, w)
			sim.SetCapacity(0)
			mustOpen(t, opts, 0, &o)
		}
	}
}

// Each call that may find no space, of a group or of a rotation, finds none, once or for long.
// The writer goes on when there is space.
func TestP11_WhatFindsNoSpaceIsTriedAgain(t *testing.T) {
	const space = vfs.OpCreate | vfs.OpWrites | vfs.OpPreallocate | vfs.OpRename
	for _, apart := range []bool{false, true} {
		for _, m := range modes {
			for _, times := range []int64{1, vfs.Forever} {
				for nth := int64(1); ; nth++ {
					if !noSpaceAt(t, vfs.Rule{Ops: space, Nth: nth, Times: times, Action: vfs.FailWith(syscall.ENOSPC)}, m, apart) {
						break
					}
				}
			}
		}
	}
}

// noSpaceAt reports whether the rule hit a call.
func noSpaceAt(t *testing.T, rule vfs.Rule, m mode, apart bool) (hit bool) {
	t.Helper()
	label := fmt.Sprintf("call %d, %d times, %v, apart %v", rule.Nth, rule.Times, m, apart)
	sim := newSim()
	fault := vfs.NewFault(sim, 1)
	opts := testOptions(fault)
	m.set(&opts)
	var begun []uint64
	opts.Begun = func(n uint64) error {
		begun = append(begun, n)
		return nil
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	if !apart {
		ctx = context.Background()
	}
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	fault.Add(rule)
	for i := range 30 {
		size := []int{3000, 9 * blockSize}[i%8/7]
		before := len(o.records)
		lsn, err := o.append(w, 0, size)
		if err == nil {
			err = w.SyncContext(ctx, lsn)
		} else {
			o.records = o.records[:before]
		}
		if err == nil {
			o.acked = len(o.records)
			continue
		}
		if !vfs.IsNoSpace(err) || errors.Is(err, ErrFailed) {
			t.Fatalf("%s: %v", label, err)
		}
		fault.Clear()
		if _, err := w.Rotate(); err != nil {
			t.Fatalf("%s, with space again: %v", label, err)
		}
		o.acked = len(o.records)
	}
	fault.Clear()
	mustClose(t, w)
	if open := sim.OpenFiles(); len(open) > 0 {
		t.Fatalf("%s: files left open: %v", label, open)
	}
	for i, n := range begun {
		if n != uint64(i+1) {
			t.Fatalf("%s: segments were begun in the order %v", label, begun)
		}
	}
	opts.FS = sim
	mustOpen(t, opts, 0, &o)
	return len(fault.Injected()) > 0
}

// A writer that is closed after it found no space reports that, and leaves no file open.
func TestP11_ClosingAWriterWithoutSpaceTellsAndLosesNothingThatWasDurable(t *testing.T) {
	for nth := int64(1); nth < 30; nth++ {
		sim := newSim()
		fault := vfs.NewFault(sim, 1)
		var o oracle
		w, _ := mustOpen(t, testOptions(fault), 0, &o)
		fault.Add(vfs.Rule{
			Ops: vfs.OpWrites | vfs.OpRename, Nth: nth, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC),
		})
		var err error
		for range 20 {
			var lsn LSN
			if lsn, err = o.append(w, 0, 3000); err == nil {
				err = o.sync(w, lsn)
			}
			if err != nil {
				break
			}
		}
		closed := w.Close()
		if (err == nil) != (closed == nil) || closed != nil && !strings.Contains(closed.Error(), "no space") {
			t.Fatalf("call %d: %v, then closed with %v", nth, err, closed)
		}
		if open := sim.OpenFiles(); len(open) > 0 {
			t.Fatalf("call %d: files left open: %v", nth, open)
		}
		mustOpen(t, testOptions(sim), 0, &o)
	}
}

// Each waiting write tries again, but the lack of space is logged once.
func TestP11_ThatThereIsNoSpaceIsLoggedOnce(t *testing.T) {
	fault := vfs.NewFault(newSim(), 1)
	opts := testOptions(fault)
	var log strings.Builder
	opts.Logger = slog.New(slog.NewTextHandler(&log, nil))
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	lsn, err := o.append(w, 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	for round := 1; round <= 2; round++ {
		fault.Add(vfs.Rule{Ops: vfs.OpWrites, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)})
		for range 20 {
			if err := w.Sync(lsn); !vfs.IsNoSpace(err) {
				t.Fatal(err)
			}
		}
		if n := strings.Count(log.String(), "no space for the log"); n != round {
			t.Fatalf("full for the %d. time: %q", round, log.String())
		}
		fault.Clear()
		if err := w.Sync(lsn); err != nil {
			t.Fatal(err)
		}
		if lsn, err = o.append(w, 0, 100); err != nil {
			t.Fatal(err)
		}
	}
	mustClose(t, w)
}

// fullRun is a log on a disk that is full now and then, and its history.
type fullRun struct {
	oracle
	t       *testing.T
	rng     *rand.Rand
	opts    Options // with no file system
	sim     *vfs.Sim
	w       *Writer
	made    int      // records that were tried
	crashed *vfs.Sim // the disk at the crash that was planned; nil before it
	then    oracle   // and what it must hold

	refused, starts, carried int // records larger than a segment, starts without space, and records carried over to a small disk
}

// full leaves so many blocks, at random, or any number.
func (r *fullRun) full(blocks int) {
	used, err := r.sim.Usage(".")
	if err != nil {
		r.t.Fatal(err)
	}
	r.sim.SetCapacity(int64(used.Total-used.Available) + int64(r.rng.IntN(blocks))*blockSize)
}

// noSpace ends the test if an error is not for want of space.
func (r *fullRun) noSpace(what string, err error) {
	r.t.Helper()
	if err != nil && !vfs.IsNoSpace(err) {
		r.t.Fatalf("%s: %v", what, err)
	}
}

// work appends records, half of them larger than a segment, while the disk becomes full and has room again. At a call at
// random it keeps what the disk has after a crash.
func (r *fullRun) work() {
	for range 1 + r.rng.IntN(12) {
		if r.full(40); r.rng.IntN(3) == 0 {
			r.sim.SetCapacity(0)
		}
		size := r.rng.IntN(900)
		if r.rng.IntN(2) == 0 {
			size = r.rng.IntN(30 * blockSize)
		}
		r.made++
		before := len(r.records)
		lsn, err := r.append(r.w, r.made, size)
		if err != nil { // nothing of it may be there
			if r.noSpace("append", err); size > int(r.opts.SegmentSize) {
				r.refused++
			}
			r.records = r.records[:before]
			continue
		}
		if r.rng.IntN(2) == 0 {
			r.noSpace("sync", r.sync(r.w, lsn))
		}
	}
}

// open begins on a small disk, in which it may fail, also crash again, and then on one with room.
func (r *fullRun) open(policies []vfs.CrashPolicy) {
	for try := 0; ; try++ {
		if r.full(60); try == 3 {
			r.sim.SetCapacity(0)
		}
		planned, sim := r.rng.IntN(60), r.sim
		opts := r.opts
		opts.FS = hookFS{sim, func(op, _ string) error {
			if planned--; changes[op] && planned <= 0 && r.crashed == nil {
				r.crashed, r.then = sim.Image(policies[r.rng.IntN(len(policies))], r.rng.Uint64()), r.oracle
				r.then.records = slices.Clone(r.records)
			}
			return nil
		}}
		r.crashed = nil
		got, res, err := recovered(opts, 0)
		if err == nil {
			err = r.check(got)
		}
		if err != nil {
			r.t.Fatalf("start %d: %v", try, err)
		}
		if r.w, err = NewWriter(opts, res); err == nil {
			for _, e := range got[len(got)-min(len(got), res.Records):] {
				if try < 3 && !res.Durable() && len(e.payload) > int(opts.SegmentSize) {
					r.carried++
				}
			}
			r.records, r.acked = r.records[:len(got)], len(got)
			return
		}
		r.noSpace("start", err)
		if open := r.sim.OpenFiles(); len(open) > 0 {
			r.t.Fatalf("files left open: %v", open)
		}
		if r.starts++; r.rng.IntN(2) == 0 {
			r.sim = r.sim.Crash(policies[r.rng.IntN(len(policies))], r.rng.Uint64())
		}
	}
}

// Segments that are grown for large records, a disk that is full at any moment, and crashes there: each acknowledged
// record is there after a start, which may have no space, and no refused one is.
func TestP11_P14_CrashesOnAFullDiskLoseNoAcknowledgedRecord(t *testing.T) {
	var refused, starts, carried, crashes int
	for _, m := range modes {
		for s := range scale(60, 20_000) {
			r := &fullRun{t: t, rng: rand.New(rand.NewPCG(*seed+uint64(s), 0)), sim: newSim(), opts: testOptions(nil)}
			m.set(&r.opts)
			policies := vfs.CrashPolicies()
			for range 4 {
				r.open(policies)
				r.work()
				switch end := r.rng.IntN(4); {
				case r.crashed != nil && end > 0:
					r.sim, r.oracle = r.crashed, r.then
					crashes++
				case end > 0:
					r.sim = r.sim.Crash(policies[r.rng.IntN(len(policies))], r.rng.Uint64())
				default:
					r.sim = r.sim.Kill()
				}
			}
			r.open(policies)
			r.sim.SetCapacity(0)
			mustAppend(t, r.w, &r.oracle, -1, 10, 9*blockSize, 10)
			mustClose(t, r.w)
			r.opts.FS = r.sim
			w, _ := mustOpen(t, r.opts, 0, &r.oracle)
			mustClose(t, w)
			refused, starts, carried = refused+r.refused, starts+r.starts, carried+r.carried
			if t.Failed() {
				t.Fatalf("seed %d, %v", *seed+uint64(s), m)
			}
		}
	}
	t.Logf("%d large records refused, %d starts without space, %d large records carried over, %d crashes at calls", refused, starts, carried, crashes)
	if refused == 0 || starts == 0 || carried == 0 || crashes == 0 {
		t.Error("one of them was not tried")
	}
}

// TestP11_ARecordIsSyncedThoughTheGroupBehindItFindsNoSpace, with two groups in flight, and two callers that wait for
// the first one: in the goroutines of the callers, and in others.
func TestP11_ARecordIsSyncedThoughTheGroupBehindItFindsNoSpace(t *testing.T) {
	for _, apart := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			ctx := context.Background()
			if apart {
				ctx = t.Context()
			}
			var writes atomic.Int32
			release, armed := make(chan struct{}), false
			fsys := &hookFS{newSim(), func(op, _ string) error {
				if !armed || op != "write" {
					return nil
				}
				switch writes.Add(1) {
				case 1:
					<-release
				case 2:
					return syscall.ENOSPC
				}
				return nil
			}}
			opts := testOptions(fsys)
			opts.SegmentSize = 1 << 20
			var o oracle
			w, _ := mustOpen(t, opts, 0, &o)
			armed = true
			var outcome [3]error
			var done sync.WaitGroup
			wait := func(i int, lsn LSN) {
				done.Go(func() { outcome[i] = w.SyncContext(ctx, lsn) })
				synctest.Wait()
			}
			first, err := o.append(w, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			wait(0, first)
			wait(1, first)
			second, err := o.append(w, 0, 100)
			if err != nil {
				t.Fatal(err)
			}
			wait(2, second)
			close(release)
			done.Wait()
			if outcome[0] != nil || outcome[1] != nil || !vfs.IsNoSpace(outcome[2]) || w.DurableLSN() != first {
				t.Errorf("apart %v: %v; record %d is durable", apart, outcome, w.DurableLSN())
			}
			mustClose(t, w) // there is space again
		})
	}
}
