package wal

import (
	"errors"
	"runtime"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

// handedOver makes a log whose appends leave writing to HandOver, and counts the calls of
// Gathered.
func handedOver(t *testing.T, fail *bool) (opts Options, asked, written *int) {
	asked, written = new(int), new(int)
	opts = testOptions(hookFS{newSim(), func(op, _ string) error {
		if op != "write" {
			return nil
		}
		*written++
		if *fail {
			return syscall.EIO
		}
		return nil
	}})
	opts.Sync, opts.SegmentSize = false, 0
	opts.Gathered = func() { *asked++ }
	opts.Memory = offheaptest.New(t)
	return opts, asked, written
}

func TestWhatHasGatheredIsLeftToOthers(t *testing.T) {
	opts, asked, written := handedOver(t, new(bool))
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	*written = 0
	for *asked == 0 {
		if err := w.HandOver(); err != nil || len(w.buf) >= writeThreshold || *written > 0 {
			t.Fatalf("with %d bytes in the buffer: wrote %d times, %v", len(w.buf), *written, err)
		}
		mustAppendOnly(t, w, &o, 10_000)
	}
	if *asked != 1 || *written != 0 || len(w.buf) != 0 {
		t.Fatalf("asked %d times, Append wrote %d times, %d bytes are left", *asked, *written, len(w.buf))
	}
	mustAppendOnly(t, w, &o, 10_000) // joins the next group
	if err := w.HandOver(); err != nil || *written != 1 || len(w.buf) < 10_000 {
		t.Fatalf("wrote %d times, %d bytes are left, %v", *written, len(w.buf), err)
	}
	if err := w.HandOver(); err != nil || *written != 1 {
		t.Errorf("wrote %d times, %v", *written, err)
	}
	// If HandOver is not called, Append writes in the end, before it takes more.
	for *written == 1 {
		if len(w.buf) > writeAnyway+10_100 {
			t.Fatalf("%d bytes wait", len(w.buf))
		}
		mustAppendOnly(t, w, &o, 10_000)
	}
	mustAppendOnly(t, w, &o, 200_000)
	mustClose(t, w)
	if err := w.HandOver(); err != nil {
		t.Errorf("hand-over of a closed log: %v", err)
	}
	again, _ := mustOpen(t, opts, 0, &o) // all records are there
	mustClose(t, again)
}

func TestAFailedHandOverPoisonsTheLog(t *testing.T) {
	broken := false
	opts, _, _ := handedOver(t, &broken)
	opts.Compress = CompressAlways // its buffer is given back, too
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	broken = true
	if _, err := o.append(w, 0, writeThreshold); err != nil {
		t.Fatal(err)
	}
	err := w.HandOver()
	if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
		t.Errorf("hand-over: %v", err)
	}
	if _, again := o.append(w, 0, 1); again != err {
		t.Errorf("append afterwards: %v", again)
	}
	_ = w.Close()
}

// TestASyncDoesNotWaitForEver appends data as fast as it is handed over.
func TestASyncDoesNotWaitForEver(t *testing.T) {
	var w *Writer
	var o oracle
	synced := make(chan error, 1)
	var hook func(w *Writer) // at each write, one at a time
	opts := testOptions(hookFS{newSim(), func(op, _ string) error {
		if hook != nil && op == "write" {
			hook(w)
		}
		return nil
	}})
	opts.Sync, opts.SegmentSize, opts.Gathered = false, 0, func() {}
	w, _ = mustOpen(t, opts, 0, &o)
	mustAppendOnly(t, w, &o, writeThreshold)
	lsn, writes := w.last, 0
	hook = func(w *Writer) {
		if writes++; writes == 1 {
			go func() { synced <- w.Sync(lsn) }()
			for waits := false; !waits; runtime.Gosched() {
				w.mu.Lock()
				waits = w.flying[0].done != nil
				w.mu.Unlock()
			}
		}
		if writes <= 10 && w.DurableLSN() < lsn {
			mustAppendOnly(t, w, &o, writeThreshold)
		}
	}
	if err := w.HandOver(); err != nil {
		t.Fatal(err)
	}
	if err := <-synced; err != nil || writes > 2 {
		t.Errorf("the sync came after %d writes, %v", writes, err)
	}
	hook = nil
	mustClose(t, w)
}

// TestWhoWaitsWritesWhatWasLeftToOthers never calls HandOver: a caller that has to wait for the
// group writes it itself.
func TestWhoWaitsWritesWhatWasLeftToOthers(t *testing.T) {
	for name, wait := range map[string]func(w *Writer) error{
		"sync":         func(w *Writer) error { return w.Sync(w.last) },
		"sync of less": func(w *Writer) error { return w.Sync(w.last - 1) },
		"flush":        func(w *Writer) error { return w.Flush() },
		"rotate": func(w *Writer) error {
			_, err := w.Rotate()
			return err
		},
		"close": func(w *Writer) error { return w.Close() },
		"append": func(w *Writer) error {
			_, err := w.Append(7, 1, make([]byte, maxGroup-1000))
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			opts, asked, written := handedOver(t, new(bool))
			var o oracle
			w, _ := mustOpen(t, opts, 0, &o)
			*written = 0
			mustAppendOnly(t, w, &o, writeThreshold)
			mustAppendOnly(t, w, &o, 10_000)
			left := w.last - 1
			if *asked != 1 || *written != 0 || w.ready.Load() == nil {
				t.Fatalf("asked %d times", *asked)
			}
			if err := wait(w); err != nil || w.written < left {
				t.Errorf("wrote up to record %d of %d, %v", w.written, left, err)
			}
			if err := w.Close(); err != nil {
				t.Error(err)
			}
			if s := opts.Memory.Stats(); s.Allocations != 0 {
				t.Errorf("%d bytes are left in %d allocations", s.InUse, s.Allocations)
			}
		})
	}
}
