package wal

// Error returns that the other tests do not reach.

import (
	"encoding/binary"
	"errors"
	"sync"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// A failed read is reported as such, anywhere in a log of several read windows: never as a torn
// tail, never as damage.
func TestErrorAtEveryReadOfALongLog(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.SegmentSize = 8 << 20
	var o oracle
	w, _ := mustOpen(t, opts, 0, &o)
	mustAppend(t, w, &o, 0, 3<<20, 900_000, 900_000)
	for fail := 1; ; fail++ {
		reads := 0
		opts.FS = hookFS{sim, func(op, _ string) error {
			if op == "read" {
				if reads++; reads == fail {
					return syscall.EIO
				}
			}
			return nil
		}}
		got, _, err := recovered(opts, 0)
		if reads < fail {
			if err != nil || o.check(got) != nil || reads < 8 {
				t.Fatalf("%d reads, %v, %v", reads, err, o.check(got))
			}
			break
		}
		if !errors.Is(err, syscall.EIO) || errors.Is(err, ErrCorrupt) {
			t.Fatalf("read %d: %v", fail, err)
		}
	}
	mustClose(t, w)
}

// P10: errors of writes inside Append poison the writer too.
func TestP10_FailedWriteInsideAppend(t *testing.T) {
	for _, size := range []int{maxGroup + maxPayload, writeThreshold} {
		broken := false
		opts := testOptions(hookFS{newSim(), func(op, _ string) error {
			if broken && op == "write" {
				return syscall.EIO
			}
			return nil
		}})
		opts.Sync, opts.SegmentSize = false, 0
		var o oracle
		w, _ := mustOpen(t, opts, 0, &o)
		broken = true
		_, err := o.append(w, 0, size)
		if !errors.Is(err, ErrFailed) || !errors.Is(err, syscall.EIO) {
			t.Errorf("append of %d bytes: %v", size, err)
		}
		if _, again := w.Append(9, 9, nil); again != err {
			t.Errorf("append afterwards: %v", again)
		}
		_ = w.Close()
	}
}

// Close, Append, Flush and Rotate wait for a write that is under way.
func TestOthersWaitForTheLeader(t *testing.T) {
	entered, release := make(chan bool), make(chan bool)
	hold := false
	opts := testOptions(hookFS{newSim(), func(op, _ string) error {
		if op == "syncdata" && hold {
			hold = false
			entered <- true
			<-release
		}
		return nil
	}})
	w, _ := mustOpen(t, opts, 0, &oracle{})
	lsn, err := w.Append(0, 1, make([]byte, 3*blockSize))
	if err != nil {
		t.Fatal(err)
	}
	hold = true
	var wg sync.WaitGroup
	wg.Go(func() {
		if err := w.Sync(lsn); err != nil {
			t.Error(err)
		}
	})
	<-entered
	wg.Go(func() {
		if _, err := w.Append(1, 1, make([]byte, 3*blockSize)); err != nil && !errors.Is(err, ErrClosed) {
			t.Error(err) // the record needs a new segment
		}
		mustClose(t, w)
	})
	release <- true
	wg.Wait()
	if w.DurableLSN() < lsn {
		t.Errorf("durable %d", w.DurableLSN())
	}
}

// A durable offset must be the start of a group, and a trailer must have the right counts, even
// under a good checksum.
func TestStampsAndTrailersMustFitWhatIsThere(t *testing.T) {
	type part struct {
		f    frame
		size int // of the payload
	}
	record := frame{kind: frameFull, position: 1, durable: blockSize}
	for name, parts := range map[string][]part{
		"durable offset inside a frame": {{record, 2 * blockSize},
			{frame{kind: frameFull, position: 2, durable: 2 * blockSize}, 8}},
		"trailer counts too few": {{record, blockSize - frameHeaderSize},
			{frame{kind: frameTrailer, durable: 2 * blockSize}, trailerPayload}},
	} {
		sim := newSim()
		w, _ := mustOpen(t, testOptions(sim), 0, &oracle{})
		if err := sim.Edit(logFile(1), func(b []byte) []byte {
			at := int64(blockSize)
			for _, p := range parts {
				end := at + int64(paddedSize(p.size))
				putFrameHeader(b[at:end], p.size, p.f, w.cur.seed, at)
				at = end
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

// A spare of a newer format is deleted and not reused; one whose size is no multiple of the chunk
// is filled to its end.
func TestSparesOfOddKinds(t *testing.T) {
	sim := newSim()
	opts := testOptions(sim)
	opts.SegmentSize = prepareChunk + 3*blockSize
	w, _ := mustOpen(t, opts, 0, &oracle{})
	if err := w.PrepareNext(); err != nil {
		t.Fatal(err)
	}
	name := spareFiles(t, sim)[0]
	if info, err := sim.Stat("wal/" + name); err != nil || info.Size != opts.SegmentSize {
		t.Fatalf("%d bytes, %v", info.Size, err)
	}
	mustClose(t, w)
	block := vfs.AlignedBuffer(blockSize)
	(&header{Number: 1, Size: blockSize}).encode(block)
	patchHeader(block, func(b []byte) { binary.LittleEndian.PutUint32(b[8:], formatVersion+1) })
	if err := sim.Edit("wal/"+name, func(b []byte) []byte { copy(b, block); return b }); err != nil {
		t.Fatal(err)
	}
	w, _ = mustOpen(t, opts, 0, &oracle{})
	if spares := spareFiles(t, sim); len(spares) != 0 {
		t.Errorf("spares %v", spares)
	}
	mustClose(t, w)
}
