package cache_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

// decoded is the decoded form of a block in these tests.
type decoded struct{ data []byte }

type (
	blocks = cache.Cache[decoded]
	file   = cache.File[decoded]
	block  = cache.Block[decoded]
)

// made is a cache with its pool, which the test checks at the end.
type made struct {
	*blocks
	memory *offheap.Pool
}

// newCache makes a cache whose freed memory cannot be touched. At the end of the test everything must be
// freed. It has one shard.
func newCache(t *testing.T, opts cache.Options) made { return newSharded(t, opts, 1) }

// newSharded is newCache with a number of shards.
func newSharded(t *testing.T, opts cache.Options, shards int) made {
	opts.Memory = offheaptest.New(t)
	c := made{cache.WithShards[decoded](opts, shards), opts.Memory}
	t.Cleanup(func() {
		if t.Failed() {
			return
		}
		c.Close()
		if err := c.memory.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

// openFile is OpenFile, with Close at the end of the test.
func (c made) openFile(t *testing.T, n int) *file {
	f := c.OpenFile(n)
	t.Cleanup(f.Close)
	return f
}

// load is a filler that fills a block of n bytes with one letter.
type load struct {
	n      int
	letter byte
	err    error
	fills  atomic.Int64
	during func() // called while the block is being filled
	file   *file
}

func (l *load) FillBlock(b *block) error {
	l.fills.Add(1)
	if l.during != nil {
		l.during()
	}
	if l.err != nil {
		return l.err
	}
	b.Value.data = l.file.Allocate(b, l.n)
	for i := range b.Value.data {
		b.Value.data[i] = l.letter
	}
	return nil
}

func data(b *block) []byte { return b.Value.data }

// get returns a block that is no longer pinned, for tests of what is resident.
func get(t *testing.T, f *file, i int, l *load) {
	t.Helper()
	l.file = f
	b, err := f.Get(i, l)
	if err != nil {
		t.Fatal(err)
	}
	if got := data(b); len(got) != l.n || l.n > 0 && (got[0] != l.letter || got[l.n-1] != l.letter) {
		t.Fatalf("block of %d bytes, first %q, want %d of %q", len(got), got[:min(1, len(got))], l.n, l.letter)
	}
	f.Release(b)
}

func TestABlockIsFilledOnceAndFoundAfterwards(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f, other := c.openFile(t, 10), c.openFile(t, 10)
	l := &load{n: 1000, letter: 'a'}
	if b := f.Lookup(0); b != nil {
		t.Fatal("a block that nobody filled")
	}
	for range 3 {
		get(t, f, 0, l)
	}
	if n := l.fills.Load(); n != 1 {
		t.Fatalf("filled %d times", n)
	}
	b := f.Lookup(0)
	if b == nil || data(b)[0] != 'a' {
		t.Fatal("Lookup does not find a resident block")
	}
	f.Release(b)
	if b := other.Lookup(0); b != nil {
		t.Fatal("the block of another file")
	}
	if b := f.Lookup(8); b != nil {
		t.Fatal("the block of another number")
	}
	s := c.Stats()
	if s.Hits != 2 || s.Misses != 1 || s.Blocks != 1 || s.Evictions != 0 {
		t.Fatalf("%+v; a Lookup must not count", s)
	}
}

func TestResidentBlocksStayWithinTheCapacity(t *testing.T) {
	const capacity = 2 << 20
	for _, shards := range []int{1, 4} {
		rng := rand.New(rand.NewPCG(1, uint64(shards)))
		c := newSharded(t, cache.Options{Capacity: capacity}, shards)
		f := c.openFile(t, 5000)
		for i := range 5000 {
			get(t, f, i, &load{n: rng.IntN(20_000), letter: byte(i)})
			if s := c.Stats(); s.Bytes > capacity {
				t.Fatalf("%d bytes after %d blocks", s.Bytes, i)
			}
		}
		s := c.Stats()
		if s.Evictions == 0 || s.Blocks == 0 || s.Bytes < capacity/2 || s.Capacity != capacity {
			t.Fatalf("%+v", s)
		}
		// The charge is what is allocated, except for slots and free blocks of each shard.
		if m := c.memory.Stats(); m.InUse > s.Bytes+5000*16+int64(shards)*(128<<10) {
			t.Fatalf("%d bytes in use for %d charged", m.InUse, s.Bytes)
		}
	}
}

func TestWhatIsReservedIsTakenOffTheCapacity(t *testing.T) {
	const capacity = 2 << 20
	c := newSharded(t, cache.Options{Capacity: capacity}, 4)
	f := c.openFile(t, 1000)
	fill := func() {
		for i := range 1000 {
			get(t, f, i, &load{n: 8000, letter: byte(i)})
		}
	}
	fill()
	if s := c.Stats(); s.Bytes <= capacity/2 {
		t.Fatalf("%d bytes before", s.Bytes)
	}
	c.Reserve(capacity / 2)
	for _, when := range []string{"at once", "afterwards"} {
		if s := c.Stats(); s.Bytes > capacity/2 || s.Bytes < capacity/4 {
			t.Fatalf("%d bytes %s", s.Bytes, when)
		}
		fill()
	}
}

// TestMappedMemoryStaysNearTheCapacity changes the sizes of blocks from one pass to the next:
// memory that one size leaves must serve the other.
func TestMappedMemoryStaysNearTheCapacity(t *testing.T) {
	const capacity = 64 << 20
	c := newCache(t, cache.Options{Capacity: capacity})
	f := c.openFile(t, 60_000)
	for pass := range 6 {
		for i := range 10_000 {
			get(t, f, pass*10_000+i, &load{n: 6000 + pass*1500 + i%300, letter: byte(i)})
		}
		if m := c.memory.Stats(); m.Mapped > capacity+capacity/5 {
			t.Errorf("pass %d: %d bytes mapped for a cache of %d", pass, m.Mapped, capacity)
		}
	}
}

// TestAScanDoesNotEvictWhatIsInUse: blocks that were touched twice outlive any number of blocks
// that are touched once.
func TestAScanDoesNotEvictWhatIsInUse(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f, hot := c.openFile(t, 6000), &load{n: 4000, letter: 'h'}
	const hots = 50
	for i := range 5000 {
		get(t, f, i%hots, hot)
		get(t, f, hots+i, &load{n: 4000, letter: 's'})
	}
	if n := hot.fills.Load(); n > 2*hots {
		t.Fatalf("%d blocks in use were filled %d times", hots, n)
	}
}

func TestAPinnedBlockIsNeitherFreedNorOverwritten(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 64 << 10})
	f := c.openFile(t, 2000)
	pinned, err := f.Get(0, &load{n: 4000, letter: 'p', file: f})
	if err != nil {
		t.Fatal(err)
	}
	for i := range 1000 {
		get(t, f, 1+i, &load{n: 4000, letter: 'o'})
	}
	again := f.Lookup(0)
	if again == nil {
		t.Fatal("a pinned block was evicted: the next reader would load it again")
	}
	f.Release(again)
	f.Evict(0)
	if f.Lookup(0) != nil {
		t.Fatal("an evicted block is found")
	}
	for i := range 1000 {
		get(t, f, 1+i, &load{n: 4000, letter: 'o'})
	}
	for i, x := range data(pinned) {
		if x != 'p' {
			t.Fatalf("byte %d is %q", i, x)
		}
	}
	f.Release(pinned)
}

// TestUseAfterReleaseIsNoticed: a test that uses a block after Release must notice it.
func TestUseAfterReleaseIsNoticed(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f := c.openFile(t, 1)
	b, err := f.Get(0, &load{n: 1000, letter: 'p', file: f})
	if err != nil {
		t.Fatal(err)
	}
	kept := data(b)
	f.Release(b)
	if kept[0] != 'p' {
		t.Fatal("a resident block changed")
	}
	f.Evict(0)
	if !offheaptest.Freed(kept) {
		t.Fatal("an evicted block is as it was")
	}
}

func TestReleasingTooOftenPanics(t *testing.T) {
	c := newCache(t, cache.Options{})
	f := c.openFile(t, 1)
	b, err := f.Get(0, &load{n: 10, letter: 'a', file: f}) // not kept: the pin is the last reference
	if err != nil {
		t.Fatal(err)
	}
	f.Release(b)
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	f.Release(b)
}

func TestAMissAllocatesNothingOnTheHeap(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	const warm, runs = 1000, 500
	f, l := c.openFile(t, warm+runs+1), &load{n: 5000, letter: 'a'}
	for i := range warm {
		get(t, f, i, l)
	}
	i := warm
	perGet := testing.AllocsPerRun(runs, func() {
		b, err := f.Get(i, l)
		if err != nil {
			t.Fatal(err)
		}
		f.Release(b)
		i++
	})
	if perGet > 0.1 { // the pool makes a span now and then
		t.Fatalf("%v allocations for each block that takes the place of another", perGet)
	}
}

func TestALargeBlockIsHandedOutButNotKept(t *testing.T) {
	for _, capacity := range []int64{0, 10_000} {
		c := newCache(t, cache.Options{Capacity: capacity})
		f, l := c.openFile(t, 1), &load{n: 5000, letter: 'a'}
		for range 3 {
			get(t, f, 0, l)
		}
		if s := c.Stats(); l.fills.Load() != 3 || s.Blocks != 0 || s.Bytes != 0 {
			t.Fatalf("filled %d times, %+v", l.fills.Load(), s)
		}
	}
}

func TestAnErrorIsReturnedAndNotKept(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f := c.openFile(t, 1)
	l := &load{n: 100, letter: 'a', err: errors.New("planted"), file: f}
	for range 2 {
		if _, err := f.Get(0, l); !errors.Is(err, l.err) {
			t.Fatalf("error %v", err)
		}
	}
	if n := l.fills.Load(); n != 2 {
		t.Fatalf("tried %d times; an error must not be kept", n)
	}
	l.err = nil
	get(t, f, 0, l)
}

// waiting starts n Gets of a block while it is being filled, and returns their results.
func waiting(t *testing.T, c made, n int, l *load) []error {
	t.Helper()
	l.file = c.openFile(t, 1)
	inside, finish := make(chan struct{}), make(chan struct{})
	l.during = func() { close(inside); <-finish }
	var all sync.WaitGroup
	errs := make([]error, n+1)
	one := func(i int) {
		defer func() {
			if p := recover(); p != nil {
				errs[i] = fmt.Errorf("%v", p)
			}
		}()
		b, err := l.file.Get(0, l)
		if errs[i] = err; err == nil {
			if data(b)[0] != l.letter {
				errs[i] = errors.New("another content")
			}
			l.file.Release(b)
		}
	}
	all.Go(func() { one(0) })
	<-inside
	if b := l.file.Lookup(0); b != nil {
		t.Error("Lookup returns a block that is being filled")
	}
	l.file.Evict(0) // must leave it alone
	before := c.Stats().Hits
	for i := range n {
		all.Go(func() { one(i + 1) })
	}
	for c.Stats().Hits < before+uint64(n) {
		runtime.Gosched()
	}
	close(finish)
	all.Wait()
	return errs
}

func TestConcurrentGetsFillABlockOnce(t *testing.T) {
	c, l := newCache(t, cache.Options{Capacity: 1 << 20}), &load{n: 100, letter: 'a'}
	for _, err := range waiting(t, c, 8, l) {
		if err != nil {
			t.Fatal(err)
		}
	}
	if n := l.fills.Load(); n != 1 {
		t.Fatalf("filled %d times", n)
	}
}

func TestAllWhoWaitedGetTheError(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	l := &load{n: 100, err: errors.New("planted")}
	for i, err := range waiting(t, c, 8, l) {
		if !errors.Is(err, l.err) {
			t.Fatalf("Get %d: %v", i, err)
		}
	}
}

func TestAPanicWhileFillingIsAnErrorForThoseWhoWaited(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	l := &panicking{inside: make(chan struct{}), finish: make(chan struct{})}
	f := c.openFile(t, 1)
	var all sync.WaitGroup
	var first any
	var second error
	all.Go(func() {
		defer func() { first = recover() }()
		_, _ = f.Get(0, l)
	})
	<-l.inside
	all.Go(func() { _, second = f.Get(0, l) })
	for c.Stats().Hits == 0 {
		runtime.Gosched()
	}
	close(l.finish)
	all.Wait()
	if first != "planted" || second == nil {
		t.Fatalf("panic %v, error %v", first, second)
	}
	get(t, f, 0, &load{n: 10, letter: 'a'})
}

type panicking struct{ inside, finish chan struct{} }

func (p *panicking) FillBlock(*block) error {
	close(p.inside)
	<-p.finish
	panic("planted")
}

// TestConcurrentUseNeverShowsAnotherBlock: many goroutines read few blocks through a cache that
// holds a part of them; some evict. Poison turns a block recycled too early into a wrong letter,
// and the end of the test finds memory that was not freed.
func TestConcurrentUseNeverShowsAnotherBlock(t *testing.T) {
	c := newSharded(t, cache.Options{Capacity: 300_000}, 2)
	f := c.openFile(t, 200)
	planted := errors.New("planted")
	var all sync.WaitGroup
	for g := range uint64(8) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(g, 3))
			var held []*block
			for range 5000 {
				i := rng.IntN(200)
				if rng.IntN(2) == 0 {
					i %= 4 // contended
				}
				l := &load{n: 200 + i*17, letter: byte(i), file: f}
				if rng.IntN(20) == 0 {
					l.err = planted
				}
				switch rng.IntN(10) {
				case 0:
					f.Evict(i)
					continue
				case 1:
					if b := f.Lookup(i); b != nil {
						held = append(held, b)
					}
				default:
					b, err := f.Get(i, l)
					if err != nil {
						if !errors.Is(err, planted) {
							t.Error(err)
						}
						continue
					}
					held = append(held, b)
				}
				for len(held) > 0 && (len(held) > 5 || rng.IntN(2) == 0) {
					b := held[0]
					for _, x := range data(b) {
						if len(data(b)) != 200+int(x)*17 {
							t.Error("another block's content")
							break
						}
					}
					f.Release(b)
					held = held[1:]
				}
			}
			for _, b := range held {
				f.Release(b)
			}
		})
	}
	all.Wait()
	s := c.Stats()
	if s.Bytes > s.Capacity || s.Evictions == 0 {
		t.Fatalf("%+v", s)
	}
	for i := range 200 {
		f.Evict(i)
	}
	if s := c.Stats(); s.Blocks != 0 || s.Bytes != 0 {
		t.Fatalf("%+v after everything was evicted", s)
	}
}

func BenchmarkGetResident(b *testing.B) {
	for _, blocks := range []int{1, 4096} {
		b.Run(fmt.Sprintf("blocks=%d", blocks), func(b *testing.B) {
			c := cache.New[decoded](cache.Options{Capacity: 256 << 20})
			f := c.OpenFile(blocks)
			l := &load{n: 8 << 10, letter: 'a', file: f}
			for i := range blocks {
				block, err := f.Get(i, l)
				if err != nil {
					b.Fatal(err)
				}
				f.Release(block)
			}
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				for i := 0; pb.Next(); i++ {
					block, err := f.Get(i*2654435761%blocks, l)
					if err != nil {
						b.Error(err)
						return
					}
					f.Release(block)
				}
			})
		})
	}
}

func BenchmarkGetAbsent(b *testing.B) {
	c := cache.New[decoded](cache.Options{Capacity: 4 << 20})
	const blocks = 1 << 16
	f := c.OpenFile(blocks)
	l := &load{n: 8 << 10, file: f}
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		block, err := f.Get(i%blocks, l)
		if err != nil {
			b.Fatal(err)
		}
		f.Release(block)
	}
}
