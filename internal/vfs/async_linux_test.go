package vfs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// asyncFile makes a file of random bytes, whose last block is not whole, and opens it.
func asyncFile(t testing.TB, a *AsyncReads) (content []byte, name string, f File) {
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
func uncache(t testing.TB, name string) {
	f, err := os.OpenFile(name, os.O_RDWR, 0)
	if err == nil {
		err = errors.Join(f.Sync(), unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED), f.Close())
	}
	if err != nil {
		t.Error(err)
	}
}

// readEverywhere reads pieces of a file from n goroutines, in and beyond its end.
func readEverywhere(t *testing.T, f File, name string, content []byte, n int) {
	var readers sync.WaitGroup
	for range n {
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

// past reports whether reads of what is not in the page cache go past it.
func past(t *testing.T, f File, name string) bool {
	t.Helper()
	uncache(t, name)
	if f, ok := f.(*sparingFile); ok {
		if _, cached, err := cachedPages(f.fd, 0, f.size); err == nil && cached == 0 {
			return true
		}
	}
	t.Log("this file system has no direct reads, or keeps all pages")
	return false
}

// meet makes reads of a file meet another one until the test ends. It returns false where no read is async.
func meet(t *testing.T, a *AsyncReads, f File, name string) bool {
	t.Helper()
	if !past(t, f, name) {
		return false
	}
	if a.start.Do(a.begin); !a.usable.Load() {
		t.Log("the kernel has no async reads")
		return false
	}
	a.enter()
	t.Cleanup(a.leave)
	return true
}

func TestReadsInFlightTogetherGetWhatTheFileHas(t *testing.T) {
	for _, readers := range []int{1, 16, 2 * asyncSlots} {
		a := NewAsyncReads()
		content, name, f := asyncFile(t, a)
		able := meet(t, a, f, name)
		before := a.inFlight.Load()
		readEverywhere(t, f, name, content, readers)
		if able && a.meanCost.Load() == 0 {
			t.Errorf("%d readers: no read waited without a thread", readers)
		}
		if n := a.inFlight.Load() - before; n != 0 {
			t.Errorf("%d readers: %d reads are counted as in flight", readers, n)
		}
		if err := a.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestReadsThatWaitInCallsCountAsInFlight(t *testing.T) {
	a := NewAsyncReads()
	defer a.Close()
	content, name, f := asyncFile(t, a)
	if !past(t, f, name) {
		return
	}
	a.inCalls.Store(math.MaxInt32)
	var most atomic.Int32
	watch := make(chan struct{})
	var watcher sync.WaitGroup
	watcher.Go(func() {
		for {
			select {
			case <-watch:
				return
			default:
				most.Store(max(most.Load(), a.inFlight.Load()))
			}
		}
	})
	readEverywhere(t, f, name, content, 16)
	close(watch)
	watcher.Wait()
	if most.Load() < 2 {
		t.Errorf("of 16 readers, %d were seen in flight", most.Load())
	}
}

func TestLongWaitsSendReadsToCallsForAWhile(t *testing.T) {
	const ms, us = time.Millisecond, time.Microsecond
	for _, c := range []struct {
		what     string
		inFlight int32
		waits    []time.Duration // over and over
		calls    bool
	}{
		{"a device as it should be", 2, []time.Duration{80 * us}, false},
		{"a device with all it can take", 64, []time.Duration{2 * ms}, false},
		{"a stop of the machine now and then", 2, append(slices.Repeat([]time.Duration{100 * us}, 198), 20*ms, 20*ms), false},
		{"a poller that other goroutines hold back", 2, []time.Duration{3 * ms}, true},
		{"a processor that other goroutines keep", 16, []time.Duration{10 * ms}, true},
	} {
		a := NewAsyncReads()
		a.inFlight.Store(c.inFlight)
		calls := 0
		for i := range 2000 {
			a.waited(c.waits[i%len(c.waits)])
			calls = max(calls, int(a.inCalls.Load()))
		}
		if want := callsAfterLong; (calls > 0) != c.calls || calls > want {
			t.Errorf("%s: %d reads wait in calls, of at most %d", c.what, calls, want)
		}
		for range calls {
			if a.enter() {
				t.Errorf("%s: a read of the %d did not wait in a call", c.what, calls)
			}
			a.leave()
		}
		if a.waited(us); !a.enter() {
			t.Errorf("%s: one short wait after the calls, and reads wait in calls again", c.what)
		}
	}
}

// slowClock makes whatever is timed take 10 ms.
type slowClock struct {
	clock.Clock
	elapsed atomic.Int64
}

func (c *slowClock) Elapsed() time.Duration {
	return time.Duration(c.elapsed.Add(int64(10 * time.Millisecond)))
}

func TestReadsThatTakeLongSendTheNextOnesToCalls(t *testing.T) {
	a := NewAsyncReads()
	defer a.Close()
	_, name, f := asyncFile(t, a)
	if !meet(t, a, f, name) {
		return
	}
	a.clock = &slowClock{}
	p := AlignedBuffer(4096)
	for range 1000 {
		a.read(f.(*sparingFile).pastFD, p, 0)
	}
	if n := a.inCalls.Load(); n != callsAfterLong {
		t.Errorf("after reads of 10 ms, %d reads wait in calls, want %d", n, callsAfterLong)
	}
}

func TestReadsWaitInCallsWithoutTheKernelsObjects(t *testing.T) {
	a := NewAsyncReads()
	content, name, f := asyncFile(t, a)
	if err := a.Close(); err != nil { // before the first read: none are made any more
		t.Fatal(err)
	}
	readEverywhere(t, f, name, content, 16)
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestCloseWaitsForReadsInFlight(t *testing.T) {
	a := NewAsyncReads()
	content, name, f := asyncFile(t, a)
	able := meet(t, a, f, name)
	done := make(chan struct{})
	go func() {
		defer close(done)
		readEverywhere(t, f, name, content, 16)
	}()
	for able && a.meanCost.Load() == 0 { // ends: the readers read what is not cached
		runtime.Gosched()
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
	<-done
}

// TestNoProcessorIsKeptWhileNothingIsInFlight: in a system call, a goroutine keeps one of the GOMAXPROCS.
func TestNoProcessorIsKeptWhileNothingIsInFlight(t *testing.T) {
	a := NewAsyncReads()
	_, name, f := asyncFile(t, a)
	if !meet(t, a, f, name) {
		return
	}
	var stacks string
	memory := make([]byte, 1<<20)
	waits := func() bool {
		stacks = string(memory[:runtime.Stack(memory, true)])
		for _, stack := range strings.Split(stacks, "\n\n") {
			if strings.Contains(stack, "(*AsyncReads).run(") {
				return strings.Contains(stack, "[chan receive")
			}
		}
		return false
	}
	p := AlignedBuffer(f.Alignment())
	for range 50 {
		uncache(t, name)
		if _, err := f.ReadAt(p, 0); err != nil {
			t.Fatal(err)
		}
		for tries := 0; !waits(); tries++ {
			if tries == 10_000 {
				t.Fatalf("nothing is in flight, and run waits for it:\n%s", stacks)
			}
			runtime.Gosched()
		}
	}
	if a.meanCost.Load() == 0 {
		t.Error("all reads waited in calls")
	}
	if err := a.Close(); err != nil {
		t.Error(err)
	}
}

func TestAFailedAsyncReadIsTriedByACall(t *testing.T) {
	a := NewAsyncReads()
	defer a.Close()
	content, name, f := asyncFile(t, a)
	if !meet(t, a, f, name) {
		return
	}
	file := f.(*sparingFile)
	p := AlignedBuffer(4096)
	none := ^uint32(0) >> 1 // the number of no file
	for _, c := range []struct {
		what string
		fd   uintptr
		off  int64
		want int
	}{
		{"refused", uintptr(none), 4096, -1},
		{"failed, so that its event says it", file.pastFD, 1, -int(unix.EINVAL)},
		{"beyond the end", file.pastFD, int64(len(content)+4096) &^ 4095, 0},
	} {
		if n := a.read(c.fd, p, c.off); n != c.want {
			t.Errorf("a read that is %s: got %d, want %d", c.what, n, c.want)
		}
	}
	file.pastFD = uintptr(none)
	uncache(t, name)
	if n, err := f.ReadAt(p, 4096); n != len(p) || err != nil || !bytes.Equal(p, content[4096:8192]) {
		t.Errorf("got %d bytes, %v", n, err)
	}
}

// turns counts how often it is read, at one moment or in steps of 10 ms.
type turns struct {
	slowClock
	busy bool
	n    atomic.Int32
}

func (c *turns) Elapsed() time.Duration {
	c.n.Add(1)
	if !c.busy {
		return 0
	}
	return c.slowClock.Elapsed()
}

// TestReadersYieldWhileOthersKeepTheProcessorsBusy has reads that are done 100 yields after the clock was read
// so often as it must be.
func TestReadersYieldWhileOthersKeepTheProcessorsBusy(t *testing.T) {
	for _, c := range []struct {
		what     string
		busy     bool
		inFlight int32
		least    int32 // readings of the clock: two for yields
		most     int32
	}{
		{"few reads", true, minToYield - 1, 0, 0},
		{"idle processors", false, minToYield, 2, 2},
		{"busy processors", true, minToYield, 4, math.MaxInt32},
		{"more reads than that", true, maxToYield + 1, 2, 2},
	} {
		system := &turns{busy: c.busy}
		a := &AsyncReads{clock: system, procs: 1}
		a.inFlight.Store(c.inFlight)
		done := make(chan int64, 1)
		go func() {
			for system.n.Load() < c.least {
				runtime.Gosched()
			}
			for range 100 {
				runtime.Gosched()
			}
			done <- 7
		}()
		if got := a.await(done); got != 7 {
			t.Errorf("%s: %d", c.what, got)
		}
		if n := system.n.Load(); n > c.most {
			t.Errorf("%s: the clock was read %d times, want at most %d", c.what, n, c.most)
		}
	}
}

// BenchmarkReadsInFlight reads blocks from the device, eight at a time, alone and beside goroutines that yield every
// 20 us, about as merges do.
func BenchmarkReadsInFlight(b *testing.B) {
	for _, beside := range []int{0, runtime.GOMAXPROCS(0)} {
		b.Run(fmt.Sprintf("beside=%d", beside), func(b *testing.B) {
			a := NewAsyncReads()
			content, name, _ := asyncFile(b, a)
			uncache(b, name)
			fd, err := unix.Open(name, unix.O_RDONLY|unix.O_DIRECT, 0)
			if err != nil {
				b.Fatal(err)
			}
			var done atomic.Bool
			var others, readers sync.WaitGroup
			system := clock.System()
			for range beside {
				others.Go(func() {
					for turn := system.Elapsed(); !done.Load(); {
						if system.Elapsed()-turn > 20*time.Microsecond {
							runtime.Gosched()
							turn = system.Elapsed()
						}
					}
				})
			}
			var next atomic.Int64
			b.ResetTimer()
			for range 8 {
				readers.Go(func() {
					p := AlignedBuffer(4096)
					for i := next.Add(1); i <= int64(b.N); i = next.Add(1) {
						a.enter()
						if n := a.read(uintptr(fd), p, i*31%int64(len(content)/4096)*4096); n != len(p) {
							b.Errorf("read %d bytes", n)
						}
						a.leave()
					}
				})
			}
			readers.Wait()
			b.StopTimer()
			done.Store(true)
			others.Wait()
			if err := errors.Join(unix.Close(fd), a.Close()); err != nil {
				b.Error(err)
			}
		})
	}
}
