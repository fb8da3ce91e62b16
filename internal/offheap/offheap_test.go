package offheap_test

import (
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

// mustPanic runs f and fails the test if it does not panic.
func mustPanic(t *testing.T, what string, f func()) {
	t.Helper()
	defer func() {
		if recover() == nil {
			t.Errorf("%s does not panic", what)
		}
	}()
	f()
}

func TestSizesWasteAtMostAnEighth(t *testing.T) {
	p := offheap.New(offheap.Options{})
	for n := 1; n < 5<<20; n += 1 + n/50 {
		size := offheap.Size(n)
		if size < n || size > 64 && size-n > max(n/8, 4<<10) {
			t.Fatalf("Size(%d) is %d", n, size)
		}
		b := p.Alloc(n)
		if len(b) != n || cap(b) != size {
			t.Fatalf("Alloc(%d) returns %d bytes, capacity %d, want %d", n, len(b), cap(b), size)
		}
		p.Free(b)
	}
	if err := p.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestAllocationsNeverOverlap allocates and frees at random. Every allocation is filled with its
// own number, which is checked often.
func TestAllocationsNeverOverlap(t *testing.T) {
	for name, p := range map[string]*offheap.Pool{
		"plain": offheap.New(offheap.Options{Idle: 4 << 20}), "guarded": offheaptest.New(t),
	} {
		t.Run(name, func(t *testing.T) {
			var wait sync.WaitGroup
			for g := range 4 {
				wait.Go(func() { churn(t, p, rand.New(rand.NewPCG(7, uint64(g))), 1500) })
			}
			wait.Wait()
			if p.Slack() != 0 {
				t.Errorf("slack of %d bytes", p.Slack())
			}
			if s := p.Stats(); s.InUse != 0 || s.Allocations != 0 || s.Mapped > 4<<20 {
				t.Errorf("after everything was freed: %+v", s)
			}
			if err := p.Close(); err != nil {
				t.Error(err)
			}
			if s := p.Stats(); s.Mapped != 0 {
				t.Errorf("closed, but has %d bytes", s.Mapped)
			}
		})
	}
}

func churn(t *testing.T, p *offheap.Pool, r *rand.Rand, steps int) {
	type held struct {
		b []byte
		x byte
	}
	var all []held
	free := func(i int) {
		h := all[i]
		for at, x := range h.b {
			if x != h.x {
				t.Errorf("byte %d of %d is %#x, want %#x", at, len(h.b), x, h.x)
				break
			}
		}
		p.Free(h.b)
		all[i] = all[len(all)-1]
		all = all[:len(all)-1]
	}
	for range steps {
		if len(all) > 0 && r.IntN(5) < 2 || len(all) > 100 {
			free(r.IntN(len(all)))
			continue
		}
		n := 1 + r.IntN(1<<(1+r.IntN(20)))
		h := held{p.Alloc(n), byte(r.Uint32())}
		for i := range h.b {
			h.b[i] = h.x
		}
		all = append(all, h)
	}
	for len(all) > 0 && !t.Failed() {
		free(len(all) - 1)
	}
}

func TestFreeOfWhatIsNotAllocatedPanics(t *testing.T) {
	p := offheap.New(offheap.Options{})
	p.Free(nil)
	kept := p.Alloc(100)
	for _, n := range []int{100, 10 << 10, 300 << 10, 1 << 20, 3 << 20} {
		b := p.Alloc(n)
		mustPanic(t, "Free of the middle", func() { p.Free(b[7:]) })
		p.Free(b)
		mustPanic(t, "a second Free", func() { p.Free(b) })
	}
	mustPanic(t, "Free of the heap's memory", func() { p.Free(make([]byte, 10)) })
	if err := p.Close(); err == nil {
		t.Error("Close does not see what was not freed")
	}
	p.Free(kept)
}

func TestMemoryIsReusedBeforeItIsMapped(t *testing.T) {
	p := offheap.New(offheap.Options{Idle: 8 << 20})
	for range 3 {
		var all [][]byte
		for range 32 {
			all = append(all, p.Alloc(1<<20))
		}
		if s := p.Stats(); s.InUse != 32<<20 || s.Mapped != 32<<20 {
			t.Fatalf("%+v", s)
		}
		for _, b := range all {
			p.Free(b)
		}
		if s := p.Stats(); s.InUse != 0 || s.Mapped != 8<<20 {
			t.Fatalf("%+v", s)
		}
	}
}

// TestLargeMemoryOfWholeChunksIsReused frees more than the pool keeps; the rest serves the same size again.
func TestLargeMemoryOfWholeChunksIsReused(t *testing.T) {
	const size = 4 << 20
	p := offheap.New(offheap.Options{Idle: 2 * size})
	var all [][]byte
	for range 3 {
		all = append(all, p.Alloc(size))
	}
	odd, small := p.Alloc(size+1), p.Alloc(2<<20)
	for _, b := range append(all, odd) {
		p.Free(b)
	}
	if s := p.Stats(); s.InUse != 2<<20 || s.Mapped != 2*size+2<<20 {
		t.Errorf("after Free: %+v", s)
	}
	again := p.Alloc(size)
	if s := p.Stats(); s.Mapped != 2*size+2<<20 || &again[0] != &all[1][0] && &again[0] != &all[2][0] {
		t.Errorf("allocated again: %+v", s)
	}
	p.Free(small)
	p.Free(again)
	if s := p.Stats(); s.InUse != 0 || s.Mapped > 2*size {
		t.Errorf("all freed: %+v", s)
	}
	if err := p.Close(); err != nil || p.Stats().Mapped != 0 {
		t.Errorf("closed: %v, %+v", err, p.Stats())
	}
}

// TestWhatGrowsByDoublingTakesLittleMore allocates each size once, as a small memtable does.
func TestWhatGrowsByDoublingTakesLittleMore(t *testing.T) {
	p := offheap.New(offheap.Options{})
	var all [][]byte
	for n := 2 << 10; n <= 1<<20; n *= 2 {
		all = append(all, p.Alloc(n))
	}
	if s := p.Stats(); s.InUse != 2<<20-2<<10 || s.Mapped > 4<<20 {
		t.Errorf("%+v, want 2 MiB in use and no more mapped than twice that", s)
	}
	if p.Slack() > 320<<10 {
		t.Errorf("slack of %d bytes", p.Slack())
	}
	for _, b := range all {
		p.Free(b)
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
}
