package wal

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// readAll reads segments from one on, up to another, which is excluded, as the reader of kept segments does.
func readAll(t *testing.T, fsys vfs.FS, from, to uint64) (positions []uint64) {
	t.Helper()
	for n := from; n < to; n++ {
		err := Read(testOptions(fsys), n, func(r Record) error {
			positions = append(positions, r.Position)
			return nil
		})
		if err != nil {
			t.Fatalf("segment %d: %v", n, err)
		}
	}
	return positions
}

// TestReleasedSegmentsStayForTheirReader writes, rotates and crashes; all that is released stays, and nothing is
// written over it, until the reader is done.
func TestReleasedSegmentsStayForTheirReader(t *testing.T) {
	sim, position, want := newSim(), uint64(0), []uint64(nil)
	opts := testOptions(sim)
	opts.Keep = 2
	released := uint64(0)
	for round := range 4 {
		from, err := Recover(opts, released, func(Record) error { return nil })
		if err != nil {
			t.Fatal(err)
		}
		w, err := NewWriter(opts, from)
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			position++
			lsn, err := w.Append(1, position, []byte("payload"))
			if err = errors.Join(err, w.Sync(lsn)); err != nil {
				t.Fatal(err)
			}
			if want = append(want, position); position == 1 {
				want = nil // in segment 1, which is not kept
			}
			if released, err = w.Rotate(); err != nil {
				t.Fatal(err)
			}
			if same, err := w.Rotate(); err != nil || same != released {
				t.Fatalf("an empty segment was ended: %d, %v", same, err)
			}
			if err := w.Release(released); err != nil {
				t.Fatal(err)
			}
		}
		if got := readAll(t, sim, 2, released); !slices.Equal(got, want) || w.Oldest() != 2 {
			t.Fatalf("round %d: segments from %d on have %d, want %d", round, w.Oldest(), got, want)
		}
		if round == 3 {
			checkGivenUp(t, sim, w, released)
		}
		if round%2 == 0 {
			mustClose(t, w)
		} else {
			sim = sim.Crash(vfs.CrashLoseAll, uint64(round))
			opts.FS = sim
		}
	}
}

// checkGivenUp ends the keeping of the segments below released, in steps.
func checkGivenUp(t *testing.T, sim *vfs.Sim, w *Writer, released uint64) {
	t.Helper()
	size := w.opts.SegmentSize
	if got := w.Within(3 * size); got != released-3 {
		t.Errorf("segments from %d on take three times %d bytes, the current one is %d", got, size, released)
	}
	if err := w.Keep(5, 0); err != nil || w.Oldest() != 5 {
		t.Errorf("kept from 5: the oldest one is %d, %v", w.Oldest(), err)
	}
	if err := Read(testOptions(sim), 4, nil); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a segment that was given up: %v", err)
	}
	if err := w.Keep(0, 0); err != nil || w.Oldest() != released {
		t.Errorf("nothing is kept: the oldest one is %d, %v", w.Oldest(), err)
	}
}

// TestRotateEndsASegmentAmongWriters: groups in flight follow each other all the time.
func TestRotateEndsASegmentAmongWriters(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.Keep, opts.SegmentSize = 1, 1<<20
	w, _ := mustOpen(t, opts, 0, new(oracle))
	var all sync.WaitGroup
	for stream := range uint32(4) {
		all.Go(func() {
			for i := range uint64(200) {
				lsn, err := w.Append(stream, i, fmt.Appendf(nil, "record %d of %d", i, stream))
				if err = errors.Join(err, w.Sync(lsn)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	var last uint64
	for range 20 {
		n, err := w.Rotate()
		if err != nil || n < last {
			t.Fatalf("segment %d after %d: %v", n, last, err)
		}
		last = n
	}
	all.Wait()
	last, err := w.Rotate()
	if got := readAll(t, sim, 1, last); len(got) != 800 || err != nil {
		t.Errorf("%d records below segment %d: %v", len(got), last, err)
	}
	mustClose(t, w)
}

// TestGivenUpSegmentsBecomeSparesForTheNextRound: a reader that gives up many segments at once leaves the files of the
// next ones, within the limit. They go when rounds become smaller, and when the log is not kept any more. Files that have
// grown for a large record are no spares.
func TestGivenUpSegmentsBecomeSparesForTheNextRound(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.SegmentSize *= 2
	w, _ := mustOpen(t, opts, 0, new(oracle))
	defer mustClose(t, w)
	position, current, size := uint64(0), uint64(0), opts.SegmentSize
	round := func(segments int, record int64) {
		t.Helper()
		for range segments {
			position++
			lsn, err := w.Append(1, position, make([]byte, record))
			if err = errors.Join(err, w.Sync(lsn)); err != nil {
				t.Fatal(err)
			}
		}
		n, err := w.Rotate()
		if err = errors.Join(err, w.Release(n)); err != nil {
			t.Fatal(err)
		}
		current = n
	}
	round(20, size/2) // before the log is kept
	if err := w.Keep(current, 9*size); err != nil {
		t.Fatal(err)
	}
	for i, step := range []struct {
		segments int // of the round
		record   int64
		left     uint64 // closed segments that the reader does not give up
		limit    int64
		want     int
	}{
		{6, size / 2, 4, 9 * size, 2},
		{0, 0, 0, 9 * size, 5}, // of 6
		{0, 0, 0, 9 * size, 3},
		{0, 0, 0, 9 * size, maxSpares},
		{8, size / 2, 0, 5 * size, 5},
		{3, size / 2, 0, 9 * size, 5},
		{5, size, 0, 9 * size, 0},
		{4, size / 2, 0, 9 * size, 4},
	} {
		round(step.segments, step.record)
		err := w.Keep(current-step.left, step.limit)
		if got := len(spareFiles(t, sim)); got != step.want || w.SpareBytes() != int64(max(got-maxSpares, 0))*size || err != nil {
			t.Errorf("step %d: %d spares, %d bytes, want %d: %v", i, got, w.SpareBytes(), step.want, err)
		}
	}
	if err := w.Keep(0, 0); err != nil || len(spareFiles(t, sim)) != maxSpares || w.SpareBytes() != 0 {
		t.Errorf("nothing is kept: spares %v, %v", spareFiles(t, sim), err)
	}
}

// TestASegmentThatIsUsedAgainUnderItsReaderIsGone, and not damaged: another reader has given it up, and the writer has
// written over it. A segment that is damaged, and still there, is corrupt.
func TestASegmentThatIsUsedAgainUnderItsReaderIsGone(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.Keep, opts.SegmentSize = 1, 4*readChunk
	w, _ := mustOpen(t, opts, 0, new(oracle))
	defer mustClose(t, w)
	position := uint64(0)
	segment := func() {
		t.Helper()
		for range 3 {
			position++
			lsn, err := w.Append(1, position, bytes.Repeat([]byte{byte(position)}, readChunk))
			if err = errors.Join(err, w.Sync(lsn)); err != nil {
				t.Fatal(err)
			}
		}
		n, err := w.Rotate()
		if err = errors.Join(err, w.Release(n)); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		segment()
	}
	read := 0
	err := Read(opts, 1, func(Record) error {
		if read++; read > 1 {
			return nil
		}
		if err := w.Keep(2, 0); err != nil {
			return err
		}
		for range 3 {
			segment()
		}
		return nil
	})
	if !errors.Is(err, fs.ErrNotExist) || errors.Is(err, ErrCorrupt) || read == 3 {
		t.Errorf("%d records were read of a segment that was written over: %v", read, err)
	}
	f, err := sim.OpenReadWrite(w.path(segmentName(3)), vfs.OpenOptions{})
	if err == nil {
		_, err = f.WriteAt(make([]byte, blockSize), readChunk)
		err = errors.Join(err, f.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	if err := Read(opts, 3, func(Record) error { return nil }); !errors.Is(err, ErrCorrupt) {
		t.Errorf("a damaged segment: %v", err)
	}
}
