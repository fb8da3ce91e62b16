package wal

// Damage (RELIABILITY T8): every byte, every length, and other faults of the files of a log; and
// errors of every call of Recover and NewWriter.

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// damagedLog is a log of two sealed segments and an open one.
type damagedLog struct {
	sim       *vfs.Sim
	o         oracle
	ends      [4]int64 // where the log ends in each segment, by number
	lastGroup int64    // where the last group of the open segment begins
	before    int      // records before that
}

func newDamagedLog(t testing.TB) *damagedLog {
	t.Helper()
	l := &damagedLog{sim: newSim()}
	opts := testOptions(l.sim)
	w, _ := mustOpen(t, opts, 0, &l.o)
	for n := uint64(1); ; {
		mustAppend(t, w, &l.o, 0, 700, 30)
		l.ends[n] = w.cur.head.Offset
		if _, err := w.Rotate(); err != nil {
			t.Fatal(err)
		}
		if n++; n == 3 {
			break
		}
	}
	mustAppend(t, w, &l.o, 0, 500, 60)
	l.before, l.lastGroup = len(l.o.records), w.cur.head.Offset
	mustAppend(t, w, &l.o, 0, 300, 10, 200)
	l.ends[3] = w.cur.head.Offset
	l.sim = l.sim.Crash(vfs.CrashKeepAll, 0)
	return l
}

// outcome is the expected result of reading a damaged log.
type outcome int

const (
	whole   outcome = iota // all records
	torn                   // all but some of the last group
	refused                // ErrCorrupt
)

func (l *damagedLog) expect(t testing.TB, sim *vfs.Sim, want outcome, what string) {
	t.Helper()
	got, _, err := recovered(testOptions(sim), 0)
	ok := true
	switch want {
	case refused:
		ok = errors.Is(err, ErrCorrupt) && strings.Contains(err.Error(), ".log at offset ")
	case whole:
		ok = err == nil && len(got) == len(l.o.records) && l.o.check(got) == nil
	case torn:
		o := oracle{l.o.records, l.before}
		ok = err == nil && o.check(got) == nil
	}
	if !ok {
		t.Fatalf("%s: %d records, error %v; expected outcome %d", what, len(got), err, want)
	}
}

// P4: if any byte of the log is damaged, acknowledged records are read or the damage is reported;
// only the last group of an open log cannot be judged.
func TestP04_EveryFlippedByte(t *testing.T) {
	l := newDamagedLog(t)
	cases := 0
	for n := uint64(1); n <= 3; n++ {
		content, err := l.sim.ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		for off := range content {
			at := int64(off)
			if !long && at > l.ends[n]+2*frameHeaderSize && at%64 != 0 {
				continue
			}
			want := whole
			switch {
			case at < headerSize:
				want = refused
			case at < blockSize || at >= l.ends[n]:
			case n == 3 && at >= l.lastGroup:
				want = torn
			default:
				want = refused
			}
			for i, mask := range []byte{0x01, 0x80, 0xff} {
				if !long && off%3 != i {
					continue
				}
				cases++
				if err := l.sim.FlipByte(logFile(n), at, mask); err != nil {
					t.Fatal(err)
				}
				l.expect(t, l.sim, want, fmt.Sprintf("segment %d, byte %d, mask %02x", n, off, mask))
				if err := l.sim.FlipByte(logFile(n), at, mask); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	l.expect(t, l.sim, whole, "undamaged")
	t.Logf("%d cases", cases)
}

// P4: if a file is cut to any length, acknowledged records are read or the damage is reported.
func TestP04_EveryLength(t *testing.T) {
	l := newDamagedLog(t)
	cases := 0
	for n := uint64(1); n <= 3; n++ {
		content, err := l.sim.ReadFile(logFile(n))
		if err != nil {
			t.Fatal(err)
		}
		for size := int64(len(content)) - 1; size >= 0; size-- {
			if !long && size%8 != 0 && size%blockSize != blockSize-1 && size%blockSize != 1 {
				continue
			}
			cases++
			if err := l.sim.Cut(logFile(n), size); err != nil {
				t.Fatal(err)
			}
			want := refused
			if n < 3 && size >= l.ends[n] {
				want = whole
			}
			l.expect(t, l.sim, want, fmt.Sprintf("segment %d cut to %d", n, size))
		}
		if err := l.sim.Edit(logFile(n), func([]byte) []byte { return content }); err != nil {
			t.Fatal(err)
		}
	}
	t.Logf("%d cases", cases)
}

// P4: blocks zeroed, swapped or repeated, files swapped, missing or grown.
func TestP04_BlocksAndFilesOutOfPlace(t *testing.T) {
	l := newDamagedLog(t)
	edit := func(sim *vfs.Sim, n uint64, fn func(b []byte) []byte) {
		t.Helper()
		if err := sim.Edit(logFile(n), fn); err != nil {
			t.Fatal(err)
		}
	}
	for n := uint64(1); n <= 3; n++ {
		for at := int64(0); at < l.ends[n]; at += blockSize {
			want := refused
			if n == 3 && at >= l.lastGroup {
				want = torn
			}
			sim := l.sim.Image(vfs.CrashKeepAll, 0)
			edit(sim, n, func(b []byte) []byte { clear(b[at : at+blockSize]); return b })
			l.expect(t, sim, want, fmt.Sprintf("segment %d without block %d", n, at))
			for other := int64(0); other < l.ends[n]; other += blockSize {
				if other == at {
					continue
				}
				sim := l.sim.Image(vfs.CrashKeepAll, 0)
				edit(sim, n, func(b []byte) []byte { copy(b[at:at+blockSize], b[other:]); return b })
				l.expect(t, sim, want, fmt.Sprintf("segment %d, block %d in place of %d", n, other, at))
			}
		}
		sim := l.sim.Image(vfs.CrashKeepAll, 0)
		edit(sim, n, func(b []byte) []byte { return append(b, testPayload(1, 5000)...) })
		l.expect(t, sim, whole, fmt.Sprintf("segment %d with garbage behind it", n))
		if n < 3 {
			sim = l.sim.Image(vfs.CrashKeepAll, 0)
			if err := sim.Remove(logFile(n)); err != nil {
				t.Fatal(err)
			}
			l.expect(t, sim, refused, fmt.Sprintf("without segment %d", n))
		}
	}
	sim := l.sim.Image(vfs.CrashKeepAll, 0)
	one, _ := sim.ReadFile(logFile(1))
	two, _ := sim.ReadFile(logFile(2))
	edit(sim, 1, func([]byte) []byte { return two })
	l.expect(t, sim, refused, "segment 2 in place of 1")
	edit(sim, 2, func([]byte) []byte { return one })
	l.expect(t, sim, refused, "segments 1 and 2 swapped")
}

// P4: a log that was closed in good order has no group that cannot be judged.
func TestP04_ClosedLogIsCheckedToItsEnd(t *testing.T) {
	sim := newSim()
	var o oracle
	w, _ := mustOpen(t, testOptions(sim), 0, &o)
	mustAppend(t, w, &o, 0, 100, 50)
	mustClose(t, w)
	for at := int64(blockSize); at < w.cur.head.Offset; at++ {
		if err := sim.FlipByte(logFile(1), at, 0x10); err != nil {
			t.Fatal(err)
		}
		if _, _, err := recovered(testOptions(sim), 0); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if err := sim.FlipByte(logFile(1), at, 0x10); err != nil {
			t.Fatal(err)
		}
	}
}

// P4: a group that reached the disk before an earlier one is cut off with it, unless it says that
// the earlier one was durable.
func TestP04_LaterGroupDecidesBetweenTornAndDamaged(t *testing.T) {
	for _, synced := range []bool{false, true} {
		sim := newSim()
		opts := testOptions(sim)
		opts.SegmentSize = 1 << 20
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		starts := []int64{}
		for range 3 {
			starts = append(starts, w.cur.head.Offset)
			mustAppendOnly(t, w, &o, 5000)
			if err := w.Flush(); err != nil {
				t.Fatal(err)
			}
			if synced {
				if err := w.Sync(w.last); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := sim.FlipByte(logFile(1), starts[1]+5000, 1); err != nil {
			t.Fatal(err)
		}
		got, res, err := recovered(opts, 0)
		if synced {
			if place := fmt.Sprintf(": %s at offset %d: ", logFile(1), starts[1]); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), place) {
				t.Errorf("synced: %v", err)
			}
		} else if err != nil || len(got) != 1 || res.Torn == "" || res.end.Offset != starts[1] {
			t.Errorf("unsynced: %d records, torn %q at %d, %v", len(got), res.Torn, res.end.Offset, err)
		}
	}
}

func TestMissingSegmentsAreNamed(t *testing.T) {
	for _, c := range []struct {
		have []uint64
		min  uint64
		want string
	}{
		{nil, 0, ""}, {nil, 1, "000001.log"}, {nil, 7, "000007.log"}, {[]uint64{2}, 0, "000001.log"},
		{[]uint64{5}, 4, "000004.log"}, {[]uint64{3}, 4, "000004.log"}, {[]uint64{4, 6}, 4, "000005.log"},
		{[]uint64{1, 9}, 1, "000002.log"},
	} {
		opts := testOptions(newSim())
		res := RecoverResult{minSegment: c.min}
		err := res.liveSegments(&opts, c.have, max(c.min, 1))
		if c.want == "" && err != nil || c.want != "" && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%v from %d: %v", c.have, c.min, err)
		}
	}
}

func TestSegmentsOfAnotherStoreAreRefused(t *testing.T) {
	l := newDamagedLog(t)
	opts := testOptions(l.sim)
	opts.StoreID[3]++
	if _, _, err := recovered(opts, 0); !errors.Is(err, errWrongStore) || !strings.Contains(err.Error(), "000001.log") {
		t.Errorf("got %v", err)
	}
}

// patchHeader changes a header and corrects its checksum.
func patchHeader(b []byte, fn func(b []byte)) []byte {
	fn(b)
	binary.LittleEndian.PutUint64(b[88:], xxhash.Sum64(b[:88]))
	return b
}

// P22: an unknown version is refused with errNewerFormat, not as damage.
func TestP22_NewerFormatIsRefused(t *testing.T) {
	l := newDamagedLog(t)
	for n := uint64(1); n <= 3; n++ {
		sim := l.sim.Image(vfs.CrashKeepAll, 0)
		if err := sim.Edit(logFile(n), func(b []byte) []byte {
			return patchHeader(b, func(b []byte) { b[8] = formatVersion + 1 })
		}); err != nil {
			t.Fatal(err)
		}
		_, _, err := recovered(testOptions(sim), 0)
		if !errors.Is(err, errNewerFormat) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), segmentName(n)) {
			t.Errorf("segment %d: %v", n, err)
		}
	}
}

// A header with impossible fields is refused even if its checksum is right.
func TestImpossibleHeadersAreRefused(t *testing.T) {
	l := newDamagedLog(t)
	for name, fn := range map[string]func(b []byte){
		"version 0":                func(b []byte) { b[8] = 0 },
		"block size":               func(b []byte) { b[13]++ },
		"segment number":           func(b []byte) { b[32]++ },
		"previous segment":         func(b []byte) { b[40] ^= 8 },
		"no previous, but its end": func(b []byte) { b[40] = 0 },
		"end not at a block":       func(b []byte) { b[48] = 8 },
		"end in the header":        func(b []byte) { clear(b[48:56]) },
		"end below zero":           func(b []byte) { b[55] = 0x80 },
		"end beyond the file":      func(b []byte) { b[52] = 1 },
		"records":                  func(b []byte) { b[56]++ },
		"chain":                    func(b []byte) { b[64]++ },
		"size":                     func(b []byte) { clear(b[72:80]) },
		"reserved":                 func(b []byte) { b[80] = 1 },
	} {
		sim := l.sim.Image(vfs.CrashKeepAll, 0)
		// Patch the last segment: its frames, bound to the old header, now count as a torn tail,
		// so that only the header can be refused.
		if err := sim.Edit(logFile(3), func(b []byte) []byte { return patchHeader(b, fn) }); err != nil {
			t.Fatal(err)
		}
		l.expect(t, sim, refused, name)
	}
}

// Frames that no writer makes are damage, not a tail, if their checksum is good.
func TestImpossibleFramesAreRefused(t *testing.T) {
	rec := func(kind frameType, stream uint32, position uint64) frame {
		return frame{kind: kind, stream: stream, position: position, durable: blockSize}
	}
	for name, frames := range map[string][]frame{
		"middle without first":   {rec(frameMiddle, 1, 1)},
		"last without first":     {rec(frameLast, 1, 1)},
		"first after first":      {rec(frameFirst, 1, 1), rec(frameFirst, 1, 2)},
		"full after first":       {rec(frameFirst, 1, 1), rec(frameFull, 1, 2)},
		"other stream":           {rec(frameFirst, 1, 1), rec(frameLast, 2, 1)},
		"other position":         {rec(frameFirst, 1, 1), rec(frameLast, 1, 2)},
		"position repeated":      {rec(frameFull, 1, 1), rec(frameFull, 1, 1)},
		"position falls":         {rec(frameFull, 1, 2), rec(frameFull, 1, 1)},
		"padding with a stream":  {rec(framePadding, 1, 0)},
		"padding inside a block": {rec(framePadding, 0, 0)},
		"short trailer":          {rec(frameTrailer, 0, 0)},
		"durable before itself":  {{kind: frameFull, durable: 2 * blockSize}},
		"durable not at a block": {{kind: frameFull, durable: blockSize + 8}},
		"durable zero":           {{kind: frameFull}},
		"durable below zero":     {{kind: frameFull, durable: -blockSize}},
	} {
		sim := newSim()
		w, _ := mustOpen(t, testOptions(sim), 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			at := int64(blockSize)
			for _, f := range frames {
				size := int64(paddedSize(8))
				putFrameHeader(b[at:at+size], 8, f, w.cur.seed, at)
				at += size
			}
			return b
		}); err != nil {
			t.Fatal(err)
		}
		if _, _, err := recovered(testOptions(sim), 0); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// An error of any call makes Recover or NewWriter fail with that error, leaks
// no file, and leaves the log as it was.
func TestErrorAtEveryCallOfOpening(t *testing.T) {
	l := newDamagedLog(t)
	for fail := 1; ; fail++ {
		sim := l.sim.Image(vfs.CrashKeepAll, 0)
		calls, failed := 0, ""
		opts := testOptions(hookFS{sim, func(op, name string) error {
			if calls++; calls == fail {
				failed = op + " " + name
				return syscall.EIO
			}
			return nil
		}})
		_, res, err := recovered(opts, 2)
		var w *Writer
		if err == nil {
			if w, err = NewWriter(opts, res); err == nil {
				err = w.Release(w.Segment())
			}
		}
		if calls < fail {
			if err != nil {
				t.Fatal(err)
			}
			t.Logf("%d calls", calls)
			return
		}
		cutting := strings.HasPrefix(failed, "truncate") || w != nil && err == nil
		if !errors.Is(err, syscall.EIO) && !cutting {
			t.Errorf("call %d, %s: %v", fail, failed, err)
		}
		if w != nil {
			_ = w.Close()
		}
		if open := sim.OpenFiles(); len(open) > 0 {
			t.Errorf("call %d, %s: left open %v", fail, failed, open)
		}
		if w == nil {
			got, _, err := recovered(testOptions(sim), 2)
			if err != nil || len(got) != len(l.o.records)-2 {
				t.Errorf("after call %d, %s: %d records, %v", fail, failed, len(got), err)
			}
		}
	}
}

// An error of the callback ends recovery and is returned unchanged.
func TestCallbackErrorEndsRecovery(t *testing.T) {
	l := newDamagedLog(t)
	stop := errors.New("stop")
	n := 0
	_, err := Recover(testOptions(l.sim), 0, func(Record) error {
		if n++; n == 3 {
			return stop
		}
		return nil
	})
	if err != stop || n != 3 || len(l.sim.OpenFiles()) > 0 {
		t.Errorf("%v after %d records, open: %v", err, n, l.sim.OpenFiles())
	}
}

// P1, P10: records that the dead process had not synced, or whose sync failed, may be in memory
// only. The next writer copies them instead of building on them in place.
func TestP01_P10_UnsyncedTailIsCopiedNotBuiltUpon(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.Sync = false
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 0, 100)
	mustAppendOnly(t, w, &o, 200)
	if err := w.Flush(); err != nil {
		t.Fatal(err)
	}
	sim = sim.Kill()
	opts.FS = sim
	mustOpen(t, opts, 0, &o)
	if len(o.records) != 2 {
		t.Fatalf("the next process sees %d records", len(o.records))
	}
	if info, err := sim.Stat(logFile(1)); err != nil || info.Size != 2*blockSize {
		t.Errorf("the torn segment has %d bytes: %v", info.Size, err)
	}
	opts.FS = sim.Crash(vfs.CrashLoseAll, 0)
	first := 0 // records of the torn segment
	if _, err := Recover(opts, 0, func(r Record) error {
		if r.Segment == 1 {
			first++
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	if mustOpen(t, opts, 0, &o); len(o.records) != 2 || first != 1 {
		t.Errorf("after a power cut %d records, %d of them in the first segment", len(o.records), first)
	}
}
