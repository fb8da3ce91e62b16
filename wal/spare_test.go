package wal

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func spareFiles(t testing.TB, fsys vfs.FS) (spares []string) {
	t.Helper()
	names, err := fsys.List("wal")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasPrefix(name, sparePrefix) {
			spares = append(spares, name)
		}
	}
	return spares
}

func TestReleasedSegmentsAreReusedAndFew(t *testing.T) {
	sim := newSim()
	created := 0
	opts := testOptions(hookFS{sim, func(op, _ string) error {
		if op == "create" {
			created++
		}
		return nil
	}})
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	for range 30 {
		mustAppend(t, w, &o, 0, 6000)
		if err := w.Release(w.Segment()); err != nil {
			t.Fatal(err)
		}
		if n := len(spareFiles(t, sim)); n > maxSpares {
			t.Fatalf("%d spares", n)
		}
		if n := len(w.Segments()); n != 1 {
			t.Fatalf("%d segments after release", n)
		}
	}
	if created > 2 {
		t.Errorf("%d files were created for %d segments", created, w.Segment())
	}
	if err := w.Release(w.Segment() + 1); err == nil {
		t.Error("the current segment was released")
	}
	mustClose(t, w)
}

// P4: a recycled file is full of frames that were once good. None of them is read as part of the
// new log, wherever that ends.
func TestP04_StaleFramesOfARecycledSegmentNeverParse(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.SegmentSize = 8 * blockSize
	w, _ := mustOpen(t, opts, 0, &oracle{})
	position := uint64(0)
	add := func(sync bool) {
		t.Helper()
		position++
		lsn, err := w.Append(0, position, testPayload(position, 1000)) // one size: frames fall on old frames
		if err == nil && sync {
			err = w.Sync(lsn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for range 7 {
		for start := w.Segment(); w.Segment() == start; {
			add(true)
		}
		if err := w.Release(w.Segment()); err != nil {
			t.Fatal(err)
		}
	}
	for first := position; w.Segment() == w.Segments()[0] && position < first+6; {
		add(true)
		for _, policy := range vfs.CrashPolicies() {
			after := testOptions(sim.Image(policy, position))
			got, res, err := recovered(after, w.Segment())
			if err != nil || len(got) == 0 || got[len(got)-1].position != position {
				t.Fatalf("%v after record %d: %d records, torn %q, %v", policy, position, len(got), res.Torn, err)
			}
		}
	}
	content, err := sim.ReadFile(logFile(w.Segment()))
	if err != nil {
		t.Fatal(err)
	}
	if tail := content[len(content)-blockSize:]; !slices.ContainsFunc(tail, func(b byte) bool { return b != 0 }) {
		t.Error("the file was not recycled: the test proves nothing")
	}
	mustClose(t, w)
}

// A file is not reused, but deleted, if it shows the header of a live segment:
// it may be that segment under a second name, or an unfinished attempt.
func TestP04_FilesThatMayBeLiveAreNotRecycled(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 0, 1000)
	for _, to := range []string{"wal/spare-000040.log", "wal/spare-000041.log"} {
		if err := sim.Link(logFile(1), to); err != nil {
			t.Fatal(err)
		}
	}
	// Two names of a dead segment: one spare, not two.
	if _, err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, w)
	if _, err := sim.Create("wal/notes.txt", vfs.OpenOptions{}); err != nil {
		t.Fatal(err)
	}
	live := sim.Image(vfs.CrashKeepAll, 0)
	opts.FS = live
	w, _ = mustOpen(t, opts, 0, &o)
	if spares := spareFiles(t, live); len(spares) != 0 {
		t.Errorf("spares while segment 1 is live: %v", spares)
	}
	mustAppend(t, w, &o, 1, 5000, 5000, 5000)
	mustClose(t, w)
	mustOpen(t, opts, 0, &o)

	opts.FS = sim
	res, err := Recover(opts, 2, func(Record) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	if w, err = NewWriter(opts, res); err != nil {
		t.Fatal(err)
	}
	// One of the three names became the current segment.
	if spares := spareFiles(t, sim); len(spares) != 0 {
		t.Errorf("spares with three names of one dead segment: %v", spares)
	}
	names, _ := sim.List("wal")
	if want := []string{"000002.log", "000003.log", "notes.txt"}; !slices.Equal(names, want) {
		t.Errorf("files %v, want %v", names, want)
	}
	mustClose(t, w)
}

func TestFilesOfAnotherSizeAreNotRecycled(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 0, 100_000) // grows the segment
	if _, err := w.Rotate(); err != nil {
		t.Fatal(err)
	}
	if err := w.Release(2); err != nil {
		t.Fatal(err)
	}
	if spares := spareFiles(t, sim); len(spares) != 0 {
		t.Errorf("spares: %v", spares)
	}
	mustClose(t, w)
}

// A full disk shows when the next segment is prepared. It harms nothing then, and the current
// segment goes on taking records.
func TestP11_FullDiskShowsInPrepareNextAndHarmsNothing(t *testing.T) {
	for _, failing := range []string{"create", "preallocate", "write", "sync", "close"} {
		sim := newSim()
		broken := false
		opts := testOptions(hookFS{sim, func(op, _ string) error {
			if broken && op == failing {
				broken = false
				return syscall.ENOSPC
			}
			return nil
		}})
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		if w.NeedsNext() {
			t.Error("an empty segment needs no successor yet")
		}
		mustAppend(t, w, &o, 0, 5000)
		if !w.NeedsNext() {
			t.Error("the segment is more than half full and has no successor")
		}
		broken = true
		if err := w.PrepareNext(); !errors.Is(err, syscall.ENOSPC) || errors.Is(err, ErrFailed) {
			t.Fatalf("%s: prepare: %v", failing, err)
		}
		if spares := spareFiles(t, sim); len(spares) != 0 {
			t.Errorf("%s: left behind %v", failing, spares)
		}
		mustAppend(t, w, &o, 0, 10)
		if err := errors.Join(w.PrepareNext(), w.PrepareNext()); err != nil || w.NeedsNext() {
			t.Fatalf("%s: prepare with space: %v", failing, err)
		}
		if spares := spareFiles(t, sim); len(spares) != 1 {
			t.Errorf("%s: spares %v", failing, spares)
		}
		mustAppend(t, w, &o, 0, 5000, 5000)
		mustClose(t, w)
		opts.FS = sim
		mustOpen(t, opts, 0, &o)
	}
}

// A full disk that shows only when the next segment is needed refuses records, and takes them
// again when there is space.
func TestP11_FullDiskInAppendRefusesAndKeepsWhatWasAcknowledged(t *testing.T) {
	sim := vfs.NewSim(vfs.SimOptions{Capacity: 10 * blockSize})
	opts := testOptions(sim)
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	var err error
	for err == nil {
		var lsn LSN
		if lsn, err = o.append(w, 0, 3000); err == nil {
			err = o.sync(w, lsn)
		}
	}
	o.records = o.records[:len(o.records)-1] // a refused record will not be there
	for range 3 {
		if !vfs.IsNoSpace(err) || errors.Is(err, ErrFailed) || o.acked < 2 {
			t.Fatalf("after %d records: %v", o.acked, err)
		}
		_, err = w.Append(7, 1, make([]byte, 3000))
	}
	sim.SetCapacity(0)
	mustAppend(t, w, &o, 1, 3000)
	mustAppend(t, w, &o, 0, 3000, 3000, 3000)
	mustClose(t, w)
	w, _ = mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 1, 3000)
	mustClose(t, w)
}

// P10: an error at any call of a rotation keeps acknowledged records. From the first call on that
// changes the current segment it poisons the writer.
func TestP10_ErrorAtEveryCallOfRotation(t *testing.T) {
	for fail := 1; ; fail++ {
		sim := newSim()
		calls, armed, failed := 0, false, ""
		opts := testOptions(hookFS{sim, func(op, name string) error {
			if !armed {
				return nil
			}
			if calls++; calls == fail {
				failed = op + " " + name
				return syscall.EIO
			}
			return nil
		}})
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		mustAppend(t, w, &o, 0, 100)
		mustAppendOnly(t, w, &o, 100)
		armed = true
		_, err := w.Rotate()
		armed = false
		if calls < fail {
			if err != nil || calls < 10 {
				t.Fatalf("%d calls, %v", calls, err)
			}
			return
		}
		if !errors.Is(err, syscall.EIO) {
			t.Fatalf("call %d, %s: %v", fail, failed, err)
		}
		if fail <= 5 { // create, preallocate, close, open, size: of the file for the next segment
			if errors.Is(err, ErrFailed) {
				t.Errorf("call %d, %s: %v", fail, failed, err)
			}
			mustAppend(t, w, &o, 0, 100)
			mustClose(t, w)
			continue
		}
		if !errors.Is(err, ErrFailed) {
			t.Fatalf("call %d, %s: %v", fail, failed, err)
		}
		if _, again := w.Append(5, 1, nil); again != err {
			t.Errorf("call %d, %s: append afterwards: %v", fail, failed, again)
		}
		if closed := w.Close(); closed != err {
			t.Errorf("call %d, %s: close: %v", fail, failed, closed)
		}
		if open := sim.OpenFiles(); len(open) > 0 {
			t.Errorf("call %d, %s: left open %v", fail, failed, open)
		}
		for _, policy := range vfs.CrashPolicies() {
			o := oracle{slices.Clone(o.records), o.acked}
			after := testOptions(sim.Image(policy, uint64(fail)))
			w, _ := mustOpen(t, after, 0, &o)
			mustAppend(t, w, &o, 1, 100)
			mustClose(t, w)
			if len(spareFiles(t, after.FS)) > maxSpares {
				t.Errorf("call %d, %s, %v: too many spares", fail, failed, policy)
			}
		}
	}
}

// An error in Release does not affect the log; a later writer finds the files that it left.
func TestErrorInReleaseLeavesTheLogAlone(t *testing.T) {
	for _, failing := range []string{"stat", "rename", "remove", "syncdir"} {
		t.Run(failing, func(t *testing.T) {
			sim := newSim()
			broken := false
			opts := testOptions(hookFS{sim, func(op, _ string) error {
				if broken && op == failing {
					broken = false
					return syscall.EIO
				}
				return nil
			}})
			var o oracle
			w, _ := mustOpen(t, opts, 0, &o)
			for range 4 {
				mustAppend(t, w, &o, 0, 100)
				if _, err := w.Rotate(); err != nil {
					t.Fatal(err)
				}
			}
			broken = true
			if err := w.Release(5); !errors.Is(err, syscall.EIO) || errors.Is(err, ErrFailed) {
				t.Fatalf("release: %v", err)
			}
			o = oracle{}
			if _, err := w.Append(0, 100, []byte("x")); err != nil {
				t.Fatal(err)
			}
			mustClose(t, w)
			opts.FS = sim
			res, err := Recover(opts, 5, func(Record) error { return nil })
			if err != nil || res.Records != 1 {
				t.Fatalf("%d records, %v", res.Records, err)
			}
			if _, err = NewWriter(opts, res); err != nil {
				t.Fatal(err)
			}
			l, _ := list(sim, "wal")
			if len(l.segments) != 2 || l.segments[0] != 5 || len(l.spares) > maxSpares {
				t.Errorf("files: %+v", l)
			}
		})
	}
}

func TestOnlyCanonicalNamesAreSegments(t *testing.T) {
	for name, want := range map[string]uint64{
		"000001.log": 1, "999999.log": 999999, "1000000.log": 1000000, "18446744073709551615.log": 1<<64 - 1,
		"000000.log": 0, "1.log": 0, "0000001.log": 0, "01000000.log": 0, "+00001.log": 0, "000001": 0, "000001.LOG": 0,
		"18446744073709551616.log": 0, "spare-000001.log": 0, "00000a.log": 0, ".log": 0, "": 0,
	} {
		n, ok := vfs.ParseNumber(name, segmentName)
		if ok != (want > 0) || ok && n != want {
			t.Errorf("%q: %d, %v", name, n, ok)
		}
	}
	if s := fmt.Sprint(segmentName(42), " ", spareName(1234567)); s != "000042.log spare-1234567.log" {
		t.Error(s)
	}
}

// TestASpareIsJudgedByItsHeader: a sector behind the header that cannot be read does not keep a
// log from opening, since a spare is written anew.
func TestASpareIsJudgedByItsHeader(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.SegmentSize = 1 << 20
	w, _ := mustOpen(t, opts, 0, &oracle{})
	if err := w.PrepareNext(); err != nil {
		t.Fatal(err)
	}
	mustClose(t, w)
	spares := 0
	opts.FS = badSectors{sim.Image(vfs.CrashKeepAll, 0), &spares}
	w, _ = mustOpen(t, opts, 0, &oracle{})
	mustClose(t, w)
	if spares == 0 {
		t.Error("no spare was opened: the test tests nothing")
	}
}

// badSectors fails reads of spares behind their first blocks, and counts the spares.
type badSectors struct {
	vfs.FS
	spares *int
}

func (b badSectors) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	f, err := b.FS.Open(name, opts)
	if err == nil && strings.Contains(name, "spare-") {
		*b.spares++
		return badSector{f}, nil
	}
	return f, err
}

type badSector struct{ vfs.File }

func (f badSector) ReadAt(p []byte, off int64) (int, error) {
	if off+int64(len(p)) > 2*blockSize {
		return 0, syscall.EIO
	}
	return f.File.ReadAt(p, off)
}
