package wal

import (
	"errors"
	"slices"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// P1, P3, P4: an append waits for no step of a rotation. If the power is cut at any of them,
// acknowledged records are there, and so is the segment that counts as the newest one.
func TestP01_P03_P04_AppendsGoOnBesideARotation(t *testing.T) {
	for _, synced := range []bool{false, true} {
		sim := newSim()
		var o oracle
		var w *Writer
		var steps []string
		armed := false
		opts := testOptions(hookFS{sim, func(op, name string) error {
			if !armed {
				return nil
			}
			armed = false // the hook's own calls
			defer func() { armed = true }()
			steps = append(steps, op)
			mustAppendOnly(t, w, &o, 100+len(steps))
			newest := w.NewestOnDisk()
			if all := w.Segments(); all[len(all)-1] != newest {
				t.Errorf("before %s %s: the newest segment is %d, the last one %d", op, name, newest, all[len(all)-1])
			}
			if err := w.Release(newest + 1); err == nil {
				t.Errorf("before %s %s: segment %d was released", op, name, newest)
			}
			for _, policy := range vfs.CrashPolicies() {
				after := testOptions(sim.Image(policy, uint64(len(steps))))
				got, _, err := recovered(after, 0)
				if err == nil {
					err = o.check(got)
				}
				if err != nil {
					t.Errorf("sync %v, %v before %s %s: %v", synced, policy, op, name, err)
				}
				if _, _, err := recovered(after, newest); err != nil {
					t.Errorf("sync %v, %v before %s %s: from segment %d on: %v", synced, policy, op, name, newest, err)
				}
			}
			return nil
		}})
		opts.Sync, opts.SegmentSize = synced, 16*blockSize
		if !synced {
			opts.Gathered = func() {}
		}
		w, _ = mustOpen(t, opts, 0, &o)
		if err := w.PrepareNext(); err != nil {
			t.Fatal(err)
		}
		mustAppend(t, w, &o, 0, 100, 200)
		first := w.NewestOnDisk()
		for w.rotating() == nil { // until a rotation has begun, of which no Append takes a step
			mustAppendOnly(t, w, &o, 3000)
		}
		if n := w.NewestOnDisk(); n != first || w.Segment() != first+1 {
			t.Fatalf("segment %d before anybody made it", n)
		}
		armed = true
		if err := w.HandOver(); err != nil {
			t.Fatal(err)
		}
		armed = false
		want := []string{"write", "syncdata", "write", "syncdata", "close", "write", "sync", "close", "rename", "syncdir", "openrw"}
		if !slices.Equal(steps, want) {
			t.Errorf("sync %v: steps %v, want %v", synced, steps, want)
		}
		if n := w.NewestOnDisk(); n != first+1 {
			t.Errorf("segment %d", n)
		}
		mustAppend(t, w, &o, 0, 100)
		image := testOptions(sim.Image(vfs.CrashLoseAll, 0))
		if got, _, err := recovered(image, first+1); err != nil || len(got) < len(steps) {
			t.Errorf("sync %v: %d records in the next segment, %v", synced, len(got), err)
		}
		if got, _, err := recovered(image, 0); err != nil || o.check(got) != nil {
			t.Errorf("sync %v: %v, %v", synced, err, o.check(got))
		}
		mustClose(t, w)
	}
}

// The bytes that gather while no caller finishes a rotation are bounded, and the next segment
// does not end before it has begun.
func TestATurnThatNobodyComesForIsTakenByWhoHasToWait(t *testing.T) {
	opts := testOptions(newSim())
	opts.Sync, opts.SegmentSize = false, 0
	opts.Gathered = func() {}
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	for w.NewestOnDisk() < 4 {
		mustAppendOnly(t, w, &o, 200_000)
		if len(w.buf) > maxGroup {
			t.Fatalf("%d bytes wait", len(w.buf))
		}
	}
	mustClose(t, w)
	again, _ := mustOpen(t, opts, 0, &o)
	mustClose(t, again)
}

// P10: when a rotation fails, all waiters of a record framed for the new segment get the error.
func TestP10_AFailedTurnIsAFailureOfWhatFollowsIt(t *testing.T) {
	broken := false
	opts := testOptions(hookFS{newSim(), func(op, _ string) error {
		if broken && op == "rename" {
			return syscall.EIO
		}
		return nil
	}})
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	lsn := mustAppendOnly(t, w, &o, 3000)
	for w.rotating() == nil {
		mustAppendOnly(t, w, &o, 3000)
	}
	broken = true
	if err := w.Sync(w.last); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("sync: %v", err)
	}
	if err := w.Sync(lsn); !errors.Is(err, ErrFailed) {
		t.Errorf("sync of the old segment: %v", err)
	}
	if n := w.NewestOnDisk(); n != 1 {
		t.Errorf("segment %d", n)
	}
	_ = w.Close()
}
