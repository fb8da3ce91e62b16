package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestRecordsOfAllSizesComeBackInOrder(t *testing.T) {
	sizes := []int{0, 1, 7, 8, 9, 100, 4064, 4063, 4096, 10000, maxPayload - 1, maxPayload, maxPayload + 1,
		2 * maxPayload, 2*maxPayload + 5, maxGroup - 100, maxGroup, maxGroup + 1, 9<<20 + 3, 3}
	for _, segmentSize := range []int64{0, 1, 4 * blockSize, 1 << 20} {
		for _, synced := range []bool{false, true} {
			t.Run(fmt.Sprintf("segment=%d sync=%v", segmentSize, synced), func(t *testing.T) {
				sim := newSim()
				opts := testOptions(sim)
				opts.SegmentSize, opts.Sync = segmentSize, synced
				var o oracle
				w, _ := mustOpen(t, opts, 0, &o)
				mustAppend(t, w, &o, 0, sizes...)
				mustClose(t, w)
				got, res, err := recovered(opts, 0)
				if err != nil || res.Torn != "" || res.Records != len(sizes) {
					t.Fatalf("recover: %v, torn %q, %d records", err, res.Torn, res.Records)
				}
				if err := o.check(got); err != nil {
					t.Fatal(err)
				}
				if open := sim.OpenFiles(); len(open) > 0 {
					t.Errorf("files left open: %v", open)
				}
			})
		}
	}
}

func TestAnyGapBeforeTheEndOfABlockIsPadded(t *testing.T) {
	opts := testOptions(newSim())
	opts.SegmentSize = 8 << 20
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	for size := blockSize - frameHeaderSize - 64; size <= blockSize-frameHeaderSize; size++ {
		mustAppend(t, w, &o, 0, size)
		if w.cur.head.Offset%blockSize != 0 || w.cur.durable != w.cur.head.Offset {
			t.Fatalf("after a record of %d bytes: %+v", size, w.cur)
		}
	}
	mustClose(t, w)
	if got, _, err := recovered(opts, 0); err != nil || o.check(got) != nil || len(got) != 65 {
		t.Fatalf("%d records, %v, %v", len(got), err, o.check(got))
	}
}

func TestRecordSizeBoundsWhatEncodeTakes(t *testing.T) {
	opts := testOptions(newSim())
	opts.SegmentSize = 64 << 20
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	for _, n := range []int{0, 1, 8, 127, 128, maxBundled, maxBundled + 1, 5, maxPayload - 1, maxPayload, 3, maxPayload + 1, 3 * maxPayload,
		3*maxPayload + 9} {
		for _, joins := range []bool{false, true} {
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if joins {
				mustAppendOnly(t, w, &o, 3)
			}
			before := w.cur.head.Offset
			mustAppendOnly(t, w, &o, n)
			if took := w.cur.head.Offset - before; took > recordSize(n) || !joins && took < recordSize(n)-20 {
				t.Errorf("a record of %d bytes took %d, recordSize says %d", n, took, recordSize(n))
			}
		}
	}
	mustClose(t, w)
}

func mustAppendOnly(t *testing.T, w *Writer, o *oracle, size int) LSN {
	t.Helper()
	lsn, err := o.append(w, 0, size)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}

func TestPositionsMustRiseWithinAStreamAlsoAfterRecovery(t *testing.T) {
	opts := testOptions(newSim())
	w, _ := mustOpen(t, opts, 0, &oracle{})
	appendAt := func(stream uint32, position uint64, want error) {
		t.Helper()
		if _, err := w.Append(stream, position, []byte("x")); !errors.Is(err, want) {
			t.Fatalf("append at %d/%d: %v, want %v", stream, position, err, want)
		}
	}
	appendAt(0, 5, nil)
	appendAt(0, 5, errPosition)
	appendAt(0, 4, errPosition)
	appendAt(9, 0, nil)
	appendAt(9, 0, errPosition)
	appendAt(0, 7, nil)
	mustClose(t, w)
	res, err := Recover(opts, 0, func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if w, err = NewWriter(opts, res); err != nil {
		t.Fatal(err)
	}
	appendAt(0, 7, errPosition)
	appendAt(9, 0, errPosition)
	appendAt(9, 1, nil)
	appendAt(0, 8, nil)
	mustClose(t, w)
}

func TestAppendRefusesWhatIsTooLargeAndGoesOn(t *testing.T) {
	opts := testOptions(newSim())
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	piece := make([]byte, 64<<20)
	if _, err := w.Append(0, 1, piece, piece, piece, piece, []byte("x")); !errors.Is(err, ErrTooLarge) {
		t.Fatalf("got %v", err)
	}
	mustAppend(t, w, &o, 0, 10)
	mustClose(t, w)
}

func TestClosedWriterSaysSo(t *testing.T) {
	opts := testOptions(newSim())
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	lsn := mustAppendOnly(t, w, &o, 100)
	mustClose(t, w)
	mustClose(t, w)
	if _, err := w.Append(0, 99, nil); !errors.Is(err, ErrClosed) {
		t.Errorf("append: %v", err)
	}
	if _, err := w.Rotate(); !errors.Is(err, ErrClosed) {
		t.Errorf("rotate: %v", err)
	}
	if err := errors.Join(w.PrepareNext(), w.Release(1)); !errors.Is(err, ErrClosed) {
		t.Errorf("prepare, release: %v", err)
	}
	if err := w.Sync(lsn); err != nil || w.DurableLSN() != lsn {
		t.Errorf("close did not sync record %d: %v", lsn, err)
	}
	if err := w.Sync(lsn + 1); err == nil {
		t.Error("sync of a record that does not exist succeeded")
	}
	if w.NeedsNext() {
		t.Error("a closed writer needs no segment")
	}
}

// P1: the sync of the file happens before Sync returns, and the directory is
// synced before a segment takes its first record.
func TestP01_AcknowledgedMeansSyncedFileInASyncedDirectory(t *testing.T) {
	sim := newSim()
	var o oracle
	w, _ := mustOpen(t, testOptions(sim), 0, &o)
	for i := range 200 {
		mustAppend(t, w, &o, 0, i*17%3000)
		after := sim.Image(vfs.CrashLoseAll, 0)
		got, _, err := recovered(testOptions(after), 0)
		if err != nil {
			t.Fatal(err)
		}
		if err := o.check(got); err != nil {
			t.Fatalf("power cut after record %d: %v", i, err)
		}
	}
	if n := w.Segment(); n <= 10 {
		t.Errorf("only %d segments", n)
	}
	mustClose(t, w)
}

// P1: no write ever touches a block that was written before, and every write except a header is a
// whole number of blocks.
func TestP01_NoBlockIsWrittenTwice(t *testing.T) {
	sim := newSim()
	seen := map[string]int64{} // end of what was written
	rec := writeRecorder{FS: sim, wrote: func(name string, off int64, n int) {
		if off%blockSize != 0 || n%blockSize != 0 {
			t.Errorf("%s: write of %d bytes at %d", name, n, off)
		}
		if off < seen[name] {
			t.Errorf("%s: write at %d, already written up to %d", name, off, seen[name])
		}
		seen[name] = off + int64(n)
	}}
	opts := testOptions(rec)
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	rng := rand.New(rand.NewPCG(*seed, 1))
	for range 300 {
		mustAppendOnly(t, w, &o, rng.IntN(6000))
		switch rng.IntN(4) {
		case 0:
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
		case 1:
			mustAppend(t, w, &o, 0, rng.IntN(500))
		}
	}
	mustClose(t, w)
}

// writeRecorder reports each write.
type writeRecorder struct {
	vfs.FS
	wrote func(name string, off int64, n int)
}

func (r writeRecorder) Create(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := r.FS.Create(name, o)
	return recordedFile{f, name, r.wrote}, err
}

func (r writeRecorder) OpenReadWrite(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := r.FS.OpenReadWrite(name, o)
	return recordedFile{f, name, r.wrote}, err
}

type recordedFile struct {
	vfs.File
	name  string
	wrote func(string, int64, int)
}

func (f recordedFile) WriteAt(p []byte, off int64) (int, error) {
	f.wrote(f.name, off, len(p))
	return f.File.WriteAt(p, off)
}

// P10: after a failed write or sync nothing is acknowledged, all callers get the first error, and
// no further call reaches the disk.
func TestP10_FailedWriteOrSyncPoisonsTheWriter(t *testing.T) {
	for _, op := range []string{"write", "syncdata"} {
		for _, cause := range []error{syscall.EIO, syscall.ENOSPC} {
			if op == "write" && cause == syscall.ENOSPC {
				continue // see space_test.go
			}
			t.Run(fmt.Sprint(op, " ", cause), func(t *testing.T) {
				broken, calls := false, 0
				sim := newSim()
				opts := testOptions(hookFS{sim, func(o, name string) error {
					if broken && o == op {
						broken = false
						return cause
					}
					calls++
					return nil
				}})
				var o oracle
				w, _ := mustOpen(t, opts, 0, &o)
				mustAppend(t, w, &o, 0, 10)
				durable := w.DurableLSN()
				lsn := mustAppendOnly(t, w, &o, 20)
				broken = true
				first := w.Sync(lsn)
				if !errors.Is(first, ErrFailed) || !errors.Is(first, cause) {
					t.Fatalf("sync: %v", first)
				}
				calls = 0
				_, e1 := w.Append(0, 1000, nil)
				_, e2 := w.Rotate()
				for i, err := range []error{e1, e2, w.Sync(lsn), w.Flush(), w.PrepareNext(), w.Release(1)} {
					if err != first {
						t.Errorf("call %d gave %v, not the first error", i, err)
					}
				}
				if calls != 0 || w.DurableLSN() != durable {
					t.Errorf("%d calls after the failure; durable %d, before %d", calls, w.DurableLSN(), durable)
				}
				if err := w.Sync(durable); err != nil {
					t.Errorf("what was durable before: %v", err)
				}
				if err := w.Close(); err != first {
					t.Errorf("close: %v", err)
				}
				if open := sim.OpenFiles(); len(open) > 0 {
					t.Errorf("files left open: %v", open)
				}
				mustOpen(t, testOptions(sim), 0, &o)
			})
		}
	}
}

// P10: all waiters of a failed group get the error.
func TestP10_AllWaitersGetTheError(t *testing.T) {
	var broken atomic.Bool
	opts := testOptions(hookFS{newSim(), func(op, _ string) error {
		if op == "syncdata" && broken.Load() {
			return syscall.EIO
		}
		return nil
	}})
	w, _ := mustOpen(t, opts, 0, &oracle{})
	broken.Store(true)
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() {
			lsn, err := w.Append(uint32(i), 1, []byte("x"))
			if err == nil {
				err = w.Sync(lsn)
			}
			if !errors.Is(err, syscall.EIO) || !errors.Is(err, ErrFailed) {
				t.Errorf("waiter %d: %v", i, err)
			}
		})
	}
	wg.Wait()
	_ = w.Close()
}

// P10: a short write that reports no error is noticed.
func TestP10_ShortWriteIsAFailure(t *testing.T) {
	short := false
	opts := testOptions(shortFS{newSim(), &short})
	w, _ := mustOpen(t, opts, 0, &oracle{})
	lsn, err := w.Append(0, 1, []byte("x"))
	if err != nil {
		t.Fatal(err)
	}
	short = true
	if err := w.Sync(lsn); !errors.Is(err, io.ErrShortWrite) {
		t.Fatalf("sync: %v", err)
	}
	_ = w.Close()
}

type shortFS struct {
	vfs.FS
	short *bool
}

func (s shortFS) OpenReadWrite(name string, o vfs.OpenOptions) (vfs.File, error) {
	f, err := s.FS.OpenReadWrite(name, o)
	return shortFile{f, s.short}, err
}

type shortFile struct {
	vfs.File
	short *bool
}

func (f shortFile) WriteAt(p []byte, off int64) (int, error) {
	if *f.short {
		return len(p) - 1, nil
	}
	return f.File.WriteAt(p, off)
}

// While the disk is busy with one group, all later callers gather in the next: N waiters behind
// one sync take one more sync, not N.
func TestWaitersBehindOneSyncShareTheNext(t *testing.T) {
	const waiters = 50
	entered, release := make(chan bool), make(chan bool)
	var hold atomic.Bool
	var writes, syncs atomic.Int64
	opts := testOptions(hookFS{newSim(), func(op, _ string) error {
		switch op {
		case "write":
			writes.Add(1)
		case "syncdata":
			syncs.Add(1)
			if hold.CompareAndSwap(true, false) {
				entered <- true
				<-release
			}
		}
		return nil
	}})
	opts.SegmentSize = 1 << 20
	w, _ := mustOpen(t, opts, 0, &oracle{})
	hold.Store(true)
	writes.Store(0)
	syncs.Store(0)
	var wg sync.WaitGroup
	wg.Go(func() { appendAndSync(t, w, 1000, 1) })
	<-entered
	lsns := make([]LSN, waiters)
	for i := range lsns {
		lsn, err := w.Append(uint32(i), 1, []byte("x"))
		if err != nil {
			t.Fatal(err)
		}
		lsns[i] = lsn
	}
	for _, lsn := range lsns {
		wg.Go(func() {
			if err := w.Sync(lsn); err != nil {
				t.Error(err)
			}
		})
	}
	release <- true
	wg.Wait()
	if syncs.Load() != 2 || writes.Load() != 2 || w.last != waiters+1 {
		t.Errorf("%d syncs and %d writes of %d records", syncs.Load(), writes.Load(), w.last)
	}
	mustClose(t, w)
}

func appendAndSync(t *testing.T, w *Writer, stream uint32, position uint64) {
	lsn, err := w.Append(stream, position, testPayload(position, int(position%500)))
	if err == nil {
		err = w.Sync(lsn)
	}
	if err != nil {
		t.Error(err)
	}
}

// Many appenders, syncers, flushers, rotations, releases and preparations run at once: each
// stream comes back whole and in order.
func TestConcurrentUseKeepsEachStreamWhole(t *testing.T) {
	for _, synced := range []bool{true, false} {
		t.Run(fmt.Sprint("sync=", synced), func(t *testing.T) {
			sim := newSim()
			opts := testOptions(sim)
			opts.Sync = synced
			opts.SegmentSize = 64 << 10
			w, _ := mustOpen(t, opts, 0, &oracle{})
			const streams, records = 8, 150
			var wg sync.WaitGroup
			for i := range streams {
				wg.Go(func() {
					for p := uint64(1); p <= records; p++ {
						if p%3 == 0 {
							appendAndSync(t, w, uint32(i), p)
						} else if _, err := w.Append(uint32(i), p, testPayload(p, int(p%500))); err != nil {
							t.Error(err)
						}
					}
				})
			}
			stop, others := make(chan bool), sync.WaitGroup{}
			for _, f := range []func() error{
				w.Flush, w.PrepareNext,
				func() error { _, err := w.Rotate(); return err },
				func() error { w.Segments(); w.NeedsNext(); w.Stats(); return nil },
			} {
				others.Go(func() {
					for {
						select {
						case <-stop:
							return
						default:
							if err := f(); err != nil {
								t.Error(err)
								return
							}
						}
					}
				})
			}
			wg.Wait()
			close(stop)
			others.Wait()
			mustClose(t, w)
			got, res, err := recovered(opts, 0)
			if err != nil || len(got) != streams*records {
				t.Fatalf("%d records of %d in %d segments: %v", len(got), streams*records, len(res.segments), err)
			}
			for _, e := range got {
				if !bytes.Equal(e.payload, testPayload(e.position, int(e.position%500))) {
					t.Fatalf("stream %d position %d has another payload", e.stream, e.position)
				}
			}
		})
	}
}

// P18: records that are not synced are written when maxGroup bytes have gathered (much earlier in
// unsynced mode).
func TestP18_BuffersStayBounded(t *testing.T) {
	for _, synced := range []bool{true, false} {
		opts := testOptions(newSim())
		opts.Sync, opts.SegmentSize = synced, 64<<20 // no rotation, which would sync
		w, _ := mustOpen(t, opts, 0, &oracle{})
		payload := make([]byte, 100_000)
		for p := uint64(1); p <= 300; p++ {
			if _, err := w.Append(0, p, payload); err != nil {
				t.Fatal(err)
			}
			held := cap(w.buf)
			for _, b := range w.idle {
				held += cap(b)
			}
			if held > (1+maxFlying)*maxGroup+4*blockSize {
				t.Fatalf("sync=%v: buffers hold %d bytes", synced, held)
			}
		}
		if !synced && len(w.buf) > writeThreshold {
			t.Errorf("%d bytes wait in unsynced mode", len(w.buf))
		}
		if w.DurableLSN() != 0 {
			t.Errorf("record %d is durable without a sync", w.DurableLSN())
		}
		mustClose(t, w)
	}
}

// Flush gives everything to the operating system: it survives the death of the process, but may
// be lost with the machine.
func TestFlushedRecordsSurviveTheProcess(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.Sync = false
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	for range 20 {
		mustAppendOnly(t, w, &o, 100)
	}
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	mustAppendOnly(t, w, &o, 100)
	o.acked = 20
	opts.FS = sim.Kill()
	got, _, err := recovered(opts, 0)
	if err != nil || len(got) != 20 || o.check(got) != nil {
		t.Fatalf("%d records, %v, %v", len(got), err, o.check(got))
	}
}

func TestRotateGivesARecordFreeSegment(t *testing.T) {
	opts := testOptions(newSim())
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	if n, err := w.Rotate(); err != nil || n != 1 {
		t.Fatalf("rotation of an empty segment: %d, %v", n, err)
	}
	lsn := mustAppendOnly(t, w, &o, 10)
	if n, err := w.Rotate(); err != nil || n != 2 || w.Segment() != 2 || w.DurableLSN() != lsn {
		t.Fatalf("rotation: %d, %v, segment %d, durable %d", n, err, w.Segment(), w.DurableLSN())
	}
	mustAppend(t, w, &o, 0, 10)
	if got := w.Segments(); !slices.Equal(got, []uint64{1, 2}) {
		t.Errorf("segments %v", got)
	}
	mustClose(t, w)
	type place struct{ position, segment uint64 }
	var got []place
	res, err := Recover(opts, 0, func(r Record) error { got = append(got, place{r.Position, r.Segment}); return nil })
	if want := []place{{1, 1}, {3, 2}}; err != nil || !slices.Equal(got, want) || res.Bytes != 2*2*blockSize {
		t.Errorf("%+v in %d bytes, want %+v: %v", got, res.Bytes, want, err)
	}
}

func TestOptionsAreChecked(t *testing.T) {
	for _, opts := range []Options{{}, {FS: newSim()}, {Dir: "wal"}, {FS: newSim(), Dir: "wal", SegmentSize: -1}} {
		if _, err := Recover(opts, 0, nil); err == nil {
			t.Errorf("Recover accepts %+v", opts)
		}
		if _, err := NewWriter(opts, RecoverResult{NextSegment: 1}); err == nil {
			t.Errorf("NewWriter accepts %+v", opts)
		}
	}
	if _, err := NewWriter(testOptions(newSim()), RecoverResult{}); err == nil {
		t.Error("NewWriter accepts a result that is none")
	}
}

func TestErrorsNameFileAndOperation(t *testing.T) {
	w, _ := mustOpen(t, testOptions(newSim()), 0, &oracle{})
	failed := w.fail("sync", "wal/000007.log", io.ErrShortWrite)
	damaged := corrupt("wal/000007.log", 8192, "the checksum does not match")
	for err, want := range map[error]string{
		failed:  "wal: failed to sync wal/000007.log, reopen to go on: short write",
		damaged: "wal: corrupt: wal/000007.log at offset 8192: the checksum does not match",
	} {
		if err.Error() != want {
			t.Errorf("got %q, want %q", err, want)
		}
	}
	if !errors.Is(failed, ErrFailed) || !errors.Is(failed, io.ErrShortWrite) || !errors.Is(damaged, ErrCorrupt) {
		t.Error("errors do not match what they are")
	}
}

func TestTornTailIsLoggedOnce(t *testing.T) {
	var text strings.Builder
	sim := newSim()
	opts := testOptions(sim)
	opts.Logger = slog.New(slog.NewTextHandler(&text, nil))
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 0, 10)
	if text.Len() > 0 {
		t.Fatalf("logged: %s", text.String())
	}
	opts.FS = sim.Kill()
	mustOpen(t, opts, 0, &o)
	if got := text.String(); strings.Count(got, "\n") != 1 || !strings.Contains(got, "000001.log") {
		t.Errorf("logged: %s", got)
	}
}
