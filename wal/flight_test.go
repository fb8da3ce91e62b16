package wal

// Two groups in flight at once.

import (
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// flights opens a log whose first group, of record 1, hangs at the given call until release is
// closed, and begins a second one, of record 2, beside it. It returns when no goroutine makes
// progress any more.
func flights(t *testing.T, disk *vfs.Sim, at string, failure error) (w *Writer, fsys *hookFS, o *oracle, outcome []error, release chan struct{}, done *sync.WaitGroup) {
	release = make(chan struct{})
	held := false
	fsys = &hookFS{FS: disk}
	armed := false
	var mu sync.Mutex
	fsys.before = func(op, _ string) error {
		mu.Lock()
		hold := armed && op == at && !held
		if hold {
			held = true
		}
		mu.Unlock()
		if hold {
			<-release
			return failure
		}
		return nil
	}
	opts := testOptions(fsys)
	opts.SegmentSize = 1 << 20
	o = &oracle{}
	w, _ = mustOpen(t, opts, 0, o)
	mu.Lock()
	armed = true
	mu.Unlock()
	outcome = make([]error, 2)
	done = new(sync.WaitGroup)
	for i := range outcome {
		lsn, err := w.Append(0, uint64(i+1), testPayload(uint64(i+1), 100))
		if err != nil {
			t.Fatal(err)
		}
		done.Go(func() { outcome[i] = w.Sync(lsn) })
		synctest.Wait()
	}
	return w, fsys, o, outcome, release, done
}

func TestP01_TheSecondGroupIsDurableOnlyAfterTheFirst(t *testing.T) {
	for _, at := range []string{"write", "syncdata"} {
		synctest.Test(t, func(t *testing.T) {
			w, _, _, outcome, release, done := flights(t, newSim(), at, nil)
			if len(w.flying) != 2 || !w.flying[1].over {
				t.Fatalf("%d groups are on their way", len(w.flying))
			}
			if n := w.DurableLSN(); n != 0 {
				t.Errorf("record %d counts as durable while the first hangs", n)
			}
			close(release)
			done.Wait()
			if err := errors.Join(outcome...); err != nil || w.DurableLSN() != 2 {
				t.Errorf("durable %d, %v", w.DurableLSN(), err)
			}
			mustClose(t, w)
		})
	}
}

// TestP10_BufferedGroupsGoOneByOne: without direct I/O, the kernel reports a failed write once,
// to the first sync.
func TestP10_BufferedGroupsGoOneByOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, _, _, outcome, release, done := flights(t, vfs.NewSim(vfs.SimOptions{BlockSize: -1}), "syncdata", nil)
		if len(w.flying) != 1 {
			t.Errorf("%d groups are on their way", len(w.flying))
		}
		close(release)
		done.Wait()
		if err := errors.Join(outcome...); err != nil || w.DurableLSN() != 2 {
			t.Errorf("durable %d, %v", w.DurableLSN(), err)
		}
		mustClose(t, w)
	})
}

// TestP04_ASecondGroupWithoutTheFirstIsNoDamage: the machine stops when the
// second group is on the disk and the first is not.
func TestP04_ASecondGroupWithoutTheFirstIsNoDamage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, fsys, _, _, release, done := flights(t, newSim(), "write", nil)
		crashed := fsys.FS.(*vfs.Sim).Image(vfs.CrashLoseAll, 0)
		opts := testOptions(crashed)
		opts.SegmentSize = 1 << 20
		records := 0
		res, err := Recover(opts, 0, func(Record) error { records++; return nil })
		if err != nil || records != 0 {
			t.Errorf("%d records, %v", records, err)
		}
		next, err := NewWriter(opts, res)
		if err != nil {
			t.Fatal(err)
		}
		mustClose(t, next)
		close(release)
		done.Wait()
		mustClose(t, w)
	})
}

func TestP10_AFailureOfTheFirstGroupIsOneOfTheSecond(t *testing.T) {
	for _, at := range []string{"write", "syncdata"} {
		synctest.Test(t, func(t *testing.T) {
			w, _, _, outcome, release, done := flights(t, newSim(), at, syscall.EIO)
			close(release)
			done.Wait()
			for i, err := range outcome {
				if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
					t.Errorf("group %d: %v", i+1, err)
				}
			}
			if n := w.DurableLSN(); n != 0 {
				t.Errorf("record %d counts as durable", n)
			}
			if err := w.Close(); !errors.Is(err, ErrFailed) {
				t.Errorf("Close: %v", err)
			}
		})
	}
}
