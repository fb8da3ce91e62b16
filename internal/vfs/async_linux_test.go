package vfs

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// asyncFile makes a file of random bytes, whose last block is not whole, and opens it.
func asyncFile(t *testing.T, a *AsyncReads) (content []byte, name string, f File) {
	t.Helper()
	content = make([]byte, 2<<20+1000)
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	for i := range content {
		content[i] = byte(random.Uint32())
	}
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := OS().Open(name, OpenOptions{Random: true, Sparing: true, Async: a})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	return content, name, f
}

// uncache writes a file's pages to the device and takes them out of the page cache.
func uncache(t *testing.T, name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// readEverywhere reads pieces of a file from several goroutines, in and beyond its end.
func readEverywhere(t *testing.T, f File, name string, content []byte) {
	var readers sync.WaitGroup
	for range 16 {
		readers.Go(func() {
			random := rand.New(rand.NewPCG(rand.Uint64(), 0))
			align := max(f.Alignment(), 512)
			for i := range 200 {
				if i%50 == 0 {
					uncache(t, name)
				}
				p := AlignedBuffer(align * (1 + random.IntN(20)))
				off := random.IntN(len(content)/align+2) * align
				n, err := f.ReadAt(p, int64(off))
				want := content[min(off, len(content)):min(off+len(p), len(content))]
				if !bytes.Equal(p[:n], want) || (err == io.EOF) != (len(want) < len(p)) || err != nil && err != io.EOF {
					t.Errorf("%d bytes at %d: got %d, want %d, or other ones; %v", len(p), off, n, len(want), err)
				}
			}
		})
	}
	readers.Wait()
}

func TestReadsInFlightTogetherGetWhatTheFileHas(t *testing.T) {
	for range 2 {
		a := NewAsyncReads()
		content, name, f := asyncFile(t, a)
		readEverywhere(t, f, name, content)
		if f.Alignment() > 1 && a.ring.Load() == nil {
			t.Log("all reads waited in calls: no read met another, or the kernel refused")
		}
		if n := a.inFlight.Load(); n != 0 {
			t.Errorf("%d reads are counted as in flight", n)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadsWaitInCallsWithoutTheKernelsObjects(t *testing.T) {
	a := NewAsyncReads()
	content, name, f := asyncFile(t, a)
	if err := a.Close(); err != nil { // before the first read: none are made any more
		t.Fatal(err)
	}
	readEverywhere(t, f, name, content)
	a.Reap()
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseWaitsForReadsInFlight(t *testing.T) {
	a := NewAsyncReads()
	content, name, f := asyncFile(t, a)
	done := make(chan struct{})
	go func() {
		defer close(done)
		readEverywhere(t, f, name, content)
	}()
	for a.ring.Load() == nil { // ends: the readers meet
		select {
		case <-done:
			t.Log("all reads waited in calls: no read met another, or the kernel refused")
			return
		default:
		}
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

func TestAFailedAsyncReadIsTriedByACall(t *testing.T) {
	a := NewAsyncReads()
	defer a.Close()
	content, _, f := asyncFile(t, a)
	file, ok := f.(*sparingFile)
	if !ok {
		t.Log("the file system has no direct reads")
		return
	}
	a.enter() // as if another were in flight
	defer a.leave()
	closed, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	file.pastFD = closed.Fd()
	closed.Close() // the number is of no file now
	p := AlignedBuffer(4096)
	if n, err := f.ReadAt(p, 4096); n != len(p) || err != nil || !bytes.Equal(p, content[4096:8192]) {
		t.Errorf("got %d bytes, %v", n, err)
	}
}
