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
)

// decoded is what the tests make of a block. It counts how often it was told to
// forget.
type decoded struct {
	data    []byte
	forgets int
}

func (d *decoded) Forget() { d.data, d.forgets = nil, d.forgets+1 }

// load is a filler whose block of n bytes is full of one letter.
type load struct {
	n      int
	letter byte
	err    error
	fills  atomic.Int64
	during func() // called while the block is being filled
}

func (l *load) FillBlock(b *cache.Block) error {
	l.fills.Add(1)
	if l.during != nil {
		l.during()
	}
	if l.err != nil {
		return l.err
	}
	d, ok := b.Decoded.(*decoded)
	if !ok {
		d = new(decoded)
		b.Decoded = d
	}
	d.data = b.Allocate(l.n)
	for i := range d.data {
		d.data[i] = l.letter
	}
	return nil
}

func data(b *cache.Block) []byte { return b.Decoded.(*decoded).data }

// get returns a block that is no longer pinned, for tests of what is resident.
func get(t *testing.T, c *cache.Cache, file uint64, offset int64, l *load) *cache.Block {
	t.Helper()
	b, err := c.Get(file, offset, l)
	if err != nil {
		t.Fatal(err)
	}
	if got := data(b); len(got) != l.n || l.n > 0 && (got[0] != l.letter || got[l.n-1] != l.letter) {
		t.Fatalf("block of %d bytes, first %q, want %d of %q", len(got), got[:min(1, len(got))], l.n, l.letter)
	}
	b.Release()
	return b
}

func TestABlockIsFilledOnceAndFoundAfterwards(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20})
	file, l := c.NewID(), &load{n: 1000, letter: 'a'}
	if b := c.Lookup(file, 0); b != nil {
		t.Fatal("a block that nobody filled")
	}
	for range 3 {
		get(t, c, file, 0, l)
	}
	if n := l.fills.Load(); n != 1 {
		t.Fatalf("filled %d times", n)
	}
	b := c.Lookup(file, 0)
	if b == nil || data(b)[0] != 'a' {
		t.Fatal("Lookup does not find a resident block")
	}
	b.Release()
	if b := c.Lookup(file+1, 0); b != nil {
		t.Fatal("the block of another file")
	}
	if b := c.Lookup(file, 8); b != nil {
		t.Fatal("the block at another offset")
	}
	s := c.Stats()
	if s.Hits != 2 || s.Misses != 1 || s.Blocks != 1 || s.Evictions != 0 {
		t.Fatalf("%+v; a Lookup must not count", s)
	}
}

func TestFileIDsAreNeverGivenTwice(t *testing.T) {
	c := cache.New(cache.Options{})
	seen := map[uint64]bool{}
	for range 100 {
		id := c.NewID()
		if seen[id] {
			t.Fatalf("%d twice", id)
		}
		seen[id] = true
	}
}

func TestResidentBlocksStayWithinTheCapacity(t *testing.T) {
	const capacity = 1 << 20
	for _, shards := range []int{1, 4} {
		rng := rand.New(rand.NewPCG(1, uint64(shards)))
		c := cache.New(cache.Options{Capacity: capacity, Shards: shards, Poison: true})
		file := c.NewID()
		for i := range int64(5000) {
			get(t, c, file, i, &load{n: rng.IntN(20_000), letter: byte(i)})
			if s := c.Stats(); s.Bytes > capacity {
				t.Fatalf("%d bytes after %d blocks", s.Bytes, i)
			}
		}
		s := c.Stats()
		if s.Evictions == 0 || s.Blocks == 0 || s.Bytes < capacity/2 || s.Capacity != capacity {
			t.Fatalf("%+v", s)
		}
	}
}

// What is in use survives a scan: blocks that were touched twice outlive any
// number of blocks that are touched once.
func TestAScanDoesNotEvictWhatIsInUse(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20, Shards: 1})
	file, hot := c.NewID(), &load{n: 4000, letter: 'h'}
	const hots = 50
	for i := range int64(5000) {
		get(t, c, file, i%hots, hot)
		get(t, c, file, hots+i, &load{n: 4000, letter: 's'})
	}
	if n := hot.fills.Load(); n > 2*hots {
		t.Fatalf("%d blocks in use were filled %d times", hots, n)
	}
}

func TestAPinnedBlockIsNeitherFreedNorOverwritten(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 64 << 10, Shards: 1, Poison: true})
	file := c.NewID()
	pinned, err := c.Get(file, 0, &load{n: 4000, letter: 'p'})
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(1000) {
		get(t, c, file, 1+i, &load{n: 4000, letter: 'o'})
	}
	again := c.Lookup(file, 0)
	if again == nil {
		t.Fatal("a pinned block was evicted: the next reader would load it again")
	}
	again.Release()
	c.Evict(file, 0)
	for i := range int64(1000) {
		get(t, c, file, 1+i, &load{n: 4000, letter: 'o'})
	}
	for i, x := range data(pinned) {
		if x != 'p' {
			t.Fatalf("byte %d is %q", i, x)
		}
	}
	pinned.Release()
}

// A test that goes on using a block after Release must see that it does.
func TestPoisonShowsUseAfterRelease(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20, Shards: 1, Poison: true})
	file := c.NewID()
	b, err := c.Get(file, 0, &load{n: 1000, letter: 'p'})
	if err != nil {
		t.Fatal(err)
	}
	kept, object := data(b), b.Decoded.(*decoded)
	b.Release()
	if kept[0] != 'p' {
		t.Fatal("a resident block changed")
	}
	c.Evict(file, 0)
	for i, x := range kept {
		if x == 'p' {
			t.Fatalf("byte %d of an evicted block is as it was", i)
		}
	}
	if object.data != nil || object.forgets != 1 {
		t.Fatalf("the decoded object was told to forget %d times", object.forgets)
	}
}

func TestReleasingTooOftenPanics(t *testing.T) {
	c := cache.New(cache.Options{})
	b, err := c.Get(c.NewID(), 0, &load{n: 10, letter: 'a'}) // not kept: the pin is the last reference
	if err != nil {
		t.Fatal(err)
	}
	b.Release()
	defer func() {
		if recover() == nil {
			t.Fatal("no panic")
		}
	}()
	b.Release()
}

func TestBuffersAndObjectsAreRecycled(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20, Shards: 1})
	file, l := c.NewID(), &load{n: 5000, letter: 'a'}
	for i := range int64(1000) {
		get(t, c, file, i, l)
	}
	offset := int64(1000)
	perGet := testing.AllocsPerRun(500, func() {
		b, err := c.Get(file, offset, l)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		offset++
	})
	if perGet >= 1 { // the map grows now and then
		t.Fatalf("%v allocations for each block that takes the place of another", perGet)
	}
}

func TestAnObjectForgetsItsBufferBeforeItLiesIdle(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20, Shards: 1})
	file := c.NewID()
	collected := make(chan struct{})
	func() {
		l := &load{n: 8 << 20, letter: 'a'} // too large to be kept, or recycled
		b, err := c.Get(file, 0, l)
		if err != nil {
			t.Fatal(err)
		}
		runtime.AddCleanup(&data(b)[0], func(struct{}) { close(collected) }, struct{}{})
		b.Release()
	}()
	for range 100 {
		runtime.GC()
		select {
		case <-collected:
			runtime.KeepAlive(c)
			return
		default:
			runtime.Gosched()
		}
	}
	t.Fatal("the buffer of an evicted block is still referred to")
}

func TestALargeBlockIsHandedOutButNotKept(t *testing.T) {
	for _, capacity := range []int64{0, 10_000} {
		c := cache.New(cache.Options{Capacity: capacity, Shards: 1})
		file, l := c.NewID(), &load{n: 5000, letter: 'a'}
		for range 3 {
			get(t, c, file, 0, l)
		}
		if s := c.Stats(); l.fills.Load() != 3 || s.Blocks != 0 || s.Bytes != 0 {
			t.Fatalf("filled %d times, %+v", l.fills.Load(), s)
		}
	}
}

func TestAnErrorIsReturnedAndNotKept(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20})
	file, l := c.NewID(), &load{n: 100, letter: 'a', err: errors.New("planted")}
	for range 2 {
		if _, err := c.Get(file, 0, l); !errors.Is(err, l.err) {
			t.Fatalf("error %v", err)
		}
	}
	if n := l.fills.Load(); n != 2 {
		t.Fatalf("tried %d times; an error must not be kept", n)
	}
	l.err = nil
	get(t, c, file, 0, l)
}

// waiting starts n Gets of a block while it is being filled, and returns what
// they got once the filling ends.
func waiting(t *testing.T, c *cache.Cache, n int, l *load) []error {
	t.Helper()
	file := c.NewID()
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
		b, err := c.Get(file, 0, l)
		if errs[i] = err; err == nil {
			if data(b)[0] != l.letter {
				errs[i] = errors.New("another content")
			}
			b.Release()
		}
	}
	all.Go(func() { one(0) })
	<-inside
	if b := c.Lookup(file, 0); b != nil {
		t.Error("Lookup returns a block that is being filled")
	}
	c.Evict(file, 0) // must leave it alone
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
	c, l := cache.New(cache.Options{Capacity: 1 << 20}), &load{n: 100, letter: 'a'}
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
	c := cache.New(cache.Options{Capacity: 1 << 20})
	l := &load{n: 100, err: errors.New("planted")}
	for i, err := range waiting(t, c, 8, l) {
		if !errors.Is(err, l.err) {
			t.Fatalf("Get %d: %v", i, err)
		}
	}
}

func TestAPanicWhileFillingIsAnErrorForThoseWhoWaited(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 1 << 20})
	l := &panicking{inside: make(chan struct{}), finish: make(chan struct{})}
	file := c.NewID()
	var all sync.WaitGroup
	var first any
	var second error
	all.Go(func() {
		defer func() { first = recover() }()
		_, _ = c.Get(file, 0, l)
	})
	<-l.inside
	all.Go(func() { _, second = c.Get(file, 0, l) })
	for c.Stats().Hits == 0 {
		runtime.Gosched()
	}
	close(l.finish)
	all.Wait()
	if first != "planted" || second == nil {
		t.Fatalf("panic %v, error %v", first, second)
	}
	get(t, c, file, 0, &load{n: 10, letter: 'a'})
}

type panicking struct{ inside, finish chan struct{} }

func (p *panicking) FillBlock(*cache.Block) error {
	close(p.inside)
	<-p.finish
	panic("planted")
}

// Many goroutines read few blocks through a cache that holds a part of them,
// some evict. Poison turns a block that is recycled too early into a wrong
// letter.
func TestConcurrentUseNeverShowsAnotherBlock(t *testing.T) {
	c := cache.New(cache.Options{Capacity: 300_000, Shards: 2, Poison: true})
	file := c.NewID()
	planted := errors.New("planted")
	var all sync.WaitGroup
	for g := range uint64(8) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(g, 3))
			var held []*cache.Block
			for range 3000 {
				offset := rng.Int64N(200)
				l := &load{n: 200 + int(offset)*17, letter: byte(offset)}
				if rng.IntN(20) == 0 {
					l.err = planted
				}
				switch rng.IntN(10) {
				case 0:
					c.Evict(file, offset)
					continue
				case 1:
					if b := c.Lookup(file, offset); b != nil {
						held = append(held, b)
					}
				default:
					b, err := c.Get(file, offset, l)
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
					b.Release()
					held = held[1:]
				}
			}
			for _, b := range held {
				b.Release()
			}
		})
	}
	all.Wait()
	s := c.Stats()
	if s.Bytes > s.Capacity || s.Evictions == 0 {
		t.Fatalf("%+v", s)
	}
	for i := range int64(200) {
		c.Evict(file, i)
	}
	if s := c.Stats(); s.Blocks != 0 || s.Bytes != 0 {
		t.Fatalf("%+v after everything was evicted", s)
	}
}

func BenchmarkGetResident(b *testing.B) {
	c := cache.New(cache.Options{Capacity: 64 << 20})
	file, l := c.NewID(), &load{n: 8 << 10, letter: 'a'}
	const blocks = 4096
	for i := range int64(blocks) {
		block, err := c.Get(file, i<<13, l)
		if err != nil {
			b.Fatal(err)
		}
		block.Release()
	}
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := int64(0); pb.Next(); i++ {
			block, err := c.Get(file, (i*2654435761%blocks)<<13, l)
			if err != nil {
				b.Error(err)
				return
			}
			block.Release()
		}
	})
}

func BenchmarkGetAbsent(b *testing.B) {
	c := cache.New(cache.Options{Capacity: 4 << 20})
	file, l := c.NewID(), &load{n: 8 << 10, letter: 'a'}
	b.ReportAllocs()
	for i := int64(0); b.Loop(); i++ {
		block, err := c.Get(file, i<<13, l)
		if err != nil {
			b.Fatal(err)
		}
		block.Release()
	}
}
