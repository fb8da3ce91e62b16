package wal

// A full disk (P11): a group that finds no space stays in flight and is tried again; a record
// without space is refused before a byte is written.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestP11_ARecordLargerThanASegmentIsRefusedOnAFullDiskBeforeAByteIsWritten(t *testing.T) {
	const record = 40 * blockSize
	for _, synced := range []bool{true, false} {
		for spare := int64(0); spare < record/blockSize+12; spare++ {
			sim := newSim()
			opts := testOptions(sim)
			opts.Sync = synced
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
		for _, synced := range []bool{true, false} {
			for _, times := range []int64{1, vfs.Forever} {
				for nth := int64(1); ; nth++ {
					if !noSpaceAt(t, vfs.Rule{Ops: space, Nth: nth, Times: times, Action: vfs.FailWith(syscall.ENOSPC)}, synced, apart) {
						break
					}
				}
			}
		}
	}
}

// noSpaceAt reports whether the rule hit a call.
func noSpaceAt(t *testing.T, rule vfs.Rule, synced, apart bool) (hit bool) {
	t.Helper()
	label := fmt.Sprintf("call %d, %d times, sync %v, apart %v", rule.Nth, rule.Times, synced, apart)
	sim := newSim()
	fault := vfs.NewFault(sim, 1)
	opts := testOptions(fault)
	opts.Sync = synced
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
