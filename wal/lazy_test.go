package wal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// lazyLog is a log whose segments become durable late. Each record takes a block.
type lazyLog struct {
	opts   Options
	w      *Writer
	newest uint64 // that the owner has noted
	last   uint64 // position
}

func newLazyLog(t *testing.T, fsys vfs.FS) *lazyLog {
	t.Helper()
	l := &lazyLog{opts: testOptions(fsys)}
	l.opts.Sync, l.opts.SegmentSize = false, 6*blockSize
	mode{lazy: true}.remember(&l.opts, &l.newest)
	l.w, _ = mustOpen(t, l.opts, 0, new(oracle))
	return l
}

// fill appends until the segment n has its file and one record, and hands all of that to the system.
func (l *lazyLog) fill(t *testing.T, n uint64) {
	t.Helper()
	for l.w.Segment() < n || l.w.Newest() < n {
		l.add(t, 3000)
	}
}

func (l *lazyLog) add(t *testing.T, size int) {
	t.Helper()
	l.last++
	if _, err := l.w.Append(0, l.last, testPayload(l.last, size)); err != nil {
		t.Fatal(err)
	}
	if err := l.w.Flush(); err != nil {
		t.Fatal(err)
	}
}

func TestALazyRotationSyncsTheDirectoryAlone(t *testing.T) {
	var steps []string
	l := newLazyLog(t, hookFS{newSim(), func(op, name string) error {
		if changes[op] && op != "create" && op != "preallocate" {
			steps = append(steps, op)
		}
		return nil
	}})
	steps = nil
	l.fill(t, 2)
	if l.newest != 1 || l.w.NewestOnDisk() != 1 || l.w.Newest() != 2 {
		t.Errorf("newest segment %d, on the disk %d, noted %d", l.w.Newest(), l.w.NewestOnDisk(), l.newest)
	}
	if want := []string{"write", "write", "write", "write", "write", "rename", "syncdir", "write"}; !slices.Equal(steps, want) {
		t.Errorf("four records, a header and a record: %v, want %v", steps, want)
	}
	l.fill(t, 4)
	steps = nil
	if err := l.w.Sync(l.w.last); err != nil {
		t.Fatal(err)
	}
	if want := []string{"syncdata", "syncdata", "syncdata", "syncdata"}; !slices.Equal(steps, want) || l.newest != 4 || l.w.NewestOnDisk() != 4 {
		t.Errorf("a sync of four segments took %v; on the disk is %d, noted %d", steps, l.w.NewestOnDisk(), l.newest)
	}
	l.fill(t, 6) // 5 is eager, as the last Sync was in the segment before it
	if l.w.NewestOnDisk() != 5 {
		t.Errorf("%d is on the disk", l.w.NewestOnDisk())
	}
	mustClose(t, l.w)
}

// P3, P4, P13: what a power cut can take from a segment that need not be durable ends the log. The same in one that must
// be durable is damage.
func TestP03_P04_P13_ALazyLogEndsWhereSomethingIsMissing(t *testing.T) {
	sim := newSim()
	l := newLazyLog(t, sim)
	l.fill(t, 3)
	if err := l.w.Sync(l.w.last); err != nil {
		t.Fatal(err)
	}
	l.fill(t, 8) // 4 is eager
	if l.newest != 4 {
		t.Fatalf("segment %d is noted", l.newest)
	}
	var first [9]uint64 // position of each segment's first record
	if _, err := Recover(l.opts, 0, func(r Record) error {
		if first[r.Segment] == 0 {
			first[r.Segment] = r.Position
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	flip := func(off int64) func(*vfs.Sim, string) error {
		return func(sim *vfs.Sim, name string) error { return sim.FlipByte(name, off, 1) }
	}
	for _, c := range []struct {
		what   string
		change func(sim *vfs.Sim, name string) error
		after  uint64 // records of the segment that remain
	}{
		{"its header is damaged", flip(20), 0},
		{"its first record is damaged", flip(blockSize + 50), 0},
		{"its second record is damaged", flip(2*blockSize + 50), 1},
		{"it is missing", func(sim *vfs.Sim, name string) error { return sim.Remove(name) }, 0},
	} {
		for n := uint64(3); n <= 7; n++ {
			image := sim.Image(vfs.CrashKeepAll, 0)
			if err := c.change(image, logFile(n)); err != nil {
				t.Fatal(err)
			}
			opts := l.opts
			opts.FS, opts.Newest.Segment, opts.Begun = image, l.newest, func(uint64) error { return nil }
			what := fmt.Sprintf("segment %d: %s", n, c.what)
			got, res, err := recovered(opts, 0)
			salvaged, losses, serr := salvageRecords(opts, uncancelled)
			if serr != nil {
				t.Errorf("%s: salvage: %v", what, serr)
			}
			if n < 4 || n == 4 && (strings.Contains(c.what, "header") || strings.Contains(c.what, "missing")) {
				if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), segmentName(n)) || len(losses) == 0 {
					t.Errorf("%s: %v; salvage lost %v", what, err, losses)
				}
				continue
			}
			want := first[n] - 1 + c.after
			if err != nil || uint64(len(got)) != want || uint64(len(salvaged)) != want || len(losses) != 0 {
				t.Errorf("%s: recovered %d records, salvaged %d, want %d; %v; lost %v", what, len(got), len(salvaged), want, err, losses)
				continue
			}
			w, err := NewWriter(opts, res)
			if err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if _, err := w.Append(0, want+1, []byte("behind it")); err != nil {
				t.Errorf("%s: %v", what, err)
			}
			mustClose(t, w)
			// All that is left is durable, and nothing is behind it.
			opts.FS, opts.Newest = image.Crash(vfs.CrashLoseAll, 0), w.End()
			if got, _, err := recovered(opts, 0); err != nil || uint64(len(got)) != want+1 {
				t.Errorf("%s: then %d records, want %d; %v", what, len(got), want+1, err)
			}
		}
	}
}

// A log whose first needed segment was never durable is empty after a power cut, and goes on with its number.
func TestP03_ReleasedSegmentsNeedNotBeDurable(t *testing.T) {
	sim := newSim()
	l := newLazyLog(t, sim)
	l.fill(t, 6)
	if err := l.w.Release(6); err != nil {
		t.Fatal(err)
	}
	l.opts.FS, l.opts.Newest.Segment = sim.Crash(vfs.CrashLoseAll, 0), l.newest
	got, res, err := recovered(l.opts, 6)
	if err != nil || len(got) != 0 || res.NextSegment != 6 {
		t.Fatalf("%d records, next segment %d, %v", len(got), res.NextSegment, err)
	}
	w, err := NewWriter(l.opts, res)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := w.Append(0, l.last+1, []byte("on it goes")); err != nil {
		t.Fatal(err)
	}
	mustClose(t, w)
	l.opts.Newest = w.End()
	if got, _, err := recovered(l.opts, 6); err != nil || len(got) != 1 {
		t.Errorf("%d records, %v", len(got), err)
	}
}

func TestSegmentsThatAreNotDurableAreBoundedAndClosed(t *testing.T) {
	for _, end := range []string{"close", "release", "fail"} {
		sim := newSim()
		broken := false
		l := newLazyLog(t, hookFS{sim, func(op, _ string) error {
			if broken && op == "syncdata" {
				return syscall.EIO
			}
			return nil
		}})
		l.fill(t, maxUnsynced+20)
		if n := len(sim.OpenFiles()); l.w.unsynced != maxUnsynced || n > maxUnsynced+2 {
			t.Errorf("%d segments are not durable, %d files are open", l.w.unsynced, n)
		}
		image := l.opts
		image.FS, image.Newest.Segment = sim.Image(vfs.CrashLoseAll, 0), l.newest
		if got, _, err := recovered(image, 0); err != nil || len(got) < 19 {
			t.Errorf("of the oldest segments %d records are durable, %v", len(got), err)
		}
		switch end {
		case "release":
			if err := l.w.Release(l.w.Newest()); err != nil || l.w.unsynced != 0 || len(sim.OpenFiles()) > 2 {
				t.Errorf("%v; %d files are open", err, len(sim.OpenFiles()))
			}
		case "fail":
			broken = true
			if err := l.w.Sync(l.w.last); !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
				t.Errorf("sync: %v", err)
			}
		}
		if err := l.w.Close(); (err == nil) != (end != "fail") {
			t.Errorf("close: %v", err)
		}
		if open := sim.OpenFiles(); len(open) > 0 {
			t.Errorf("%s: open files %v", end, open)
		}
	}
}

// What is kept for another process is durable, also what was not when the keeping began.
func TestSegmentsThatAreKeptAreDurable(t *testing.T) {
	for _, filled := range []uint64{4, 5} {
		sim := newSim()
		l := newLazyLog(t, sim)
		l.fill(t, 4)
		if err := l.w.Keep(3, 1<<30); err != nil {
			t.Fatal(err)
		}
		l.fill(t, filled)
		until, err := l.w.Rotate()
		if err != nil || l.w.NewestOnDisk() != until || l.newest != until {
			t.Fatalf("%v; on the disk is %d, noted %d, closed before %d", err, l.w.NewestOnDisk(), l.newest, until)
		}
		kept := readAll(t, sim.Image(vfs.CrashLoseAll, 0), 3, until)
		if kept[len(kept)-1] != l.last {
			t.Errorf("kept are the records up to %d of %d", kept[len(kept)-1], l.last)
		}
		mustClose(t, l.w)
	}
}

// Without reads past the page cache a recovery could not tell what is on the disk.
func TestNoSegmentIsLazyWithoutDirectReads(t *testing.T) {
	l := newLazyLog(t, vfs.NewSim(vfs.SimOptions{BlockSize: -1}))
	l.fill(t, 3)
	if l.w.NewestOnDisk() != 3 {
		t.Errorf("%d is on the disk", l.w.NewestOnDisk())
	}
	mustClose(t, l.w)
}

// The owner may call the writer when it notes a segment, also while the log is closed.
func TestBegunIsCalledWithoutLocks(t *testing.T) {
	l := newLazyLog(t, newSim())
	begun := l.w.opts.Begun
	l.w.opts.Begun = func(n uint64) error {
		l.w.Within(1 << 30)
		return begun(n)
	}
	l.fill(t, 3)
	mustClose(t, l.w)
	if l.newest != 3 {
		t.Errorf("segment %d is noted, 3 is closed", l.newest)
	}
}

// P1, P4: what a recovery has carried over is durable, and damage in it is no torn end.
func TestP01_P04_DamageInWhatWasCarriedOverIsFound(t *testing.T) {
	sim := newSim()
	l := newLazyLog(t, sim)
	for l.fill(t, 2); l.w.cur.head.Offset < 5*blockSize; { // so that no record follows what is carried over
		l.add(t, 3000)
	}
	l.opts.FS, l.opts.Newest.Segment = sim.Kill(), l.newest
	_, res, err := recovered(l.opts, 0)
	if err == nil {
		l.w, err = NewWriter(l.opts, res)
	}
	if err != nil {
		t.Fatal(err)
	}
	before, segment := l.last, l.w.Segment()
	if err := l.w.Sync(l.w.last); err != nil {
		t.Fatal(err)
	}
	for l.w.Newest() < segment+2 {
		l.add(t, 9000)
	}
	l.opts.Newest.Segment = l.newest
	var last int64
	if _, err := Recover(l.opts, 0, func(r Record) error {
		if r.Segment == segment && r.Position <= before {
			last = r.Offset
		}
		return nil
	}); err != nil || last == 0 {
		t.Fatal(last, err)
	}
	image := l.opts.FS.(*vfs.Sim).Image(vfs.CrashKeepAll, 0)
	if err := image.FlipByte(logFile(segment), last+50, 1); err != nil {
		t.Fatal(err)
	}
	l.opts.FS = image
	if got, _, err := recovered(l.opts, 0); !errors.Is(err, ErrCorrupt) {
		t.Errorf("%d of %d records, %v", len(got), before, err)
	}
}

// Rotate ends also if other callers end segments lazily meanwhile.
func TestRotateEndsBesideAppends(t *testing.T) {
	l := newLazyLog(t, newSim())
	var stop atomic.Bool
	var appenders sync.WaitGroup
	for stream := range uint32(4) {
		appenders.Go(func() {
			for position := uint64(1); !stop.Load(); position++ {
				if _, err := l.w.Append(1+stream, position, testPayload(position, 9000)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for range 100 {
		n, err := l.w.Rotate()
		if err == nil {
			err = l.w.Release(n)
		}
		if err != nil || l.w.NewestOnDisk() < n {
			t.Errorf("segment %d: %v", n, err)
		}
	}
	stop.Store(true)
	appenders.Wait()
	mustClose(t, l.w)
}

// P4: a segment that was closed in good order before its successor began has one.
func TestP04_AHeaderBehindATrailerIsNotTorn(t *testing.T) {
	for _, synced := range []bool{true, false} {
		sim := newSim()
		newest := uint64(0)
		opts := testOptions(sim)
		mode{lazy: true}.remember(&opts, &newest)
		opts.Sync = synced
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		mustAppend(t, w, &o, 0, 100)
		if _, err := w.Rotate(); err != nil {
			t.Fatal(err)
		}
		image := sim.Image(vfs.CrashKeepAll, 0)
		if err := image.FlipByte(logFile(2), 20, 1); err != nil {
			t.Fatal(err)
		}
		opts.FS, opts.Newest.Segment = image, 1 // the owner died before it noted the other one
		if _, _, err := recovered(opts, 0); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), segmentName(2)) {
			t.Errorf("sync %v: %v", synced, err)
		}
		mustClose(t, w)
	}
}
