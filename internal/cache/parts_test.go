package cache_test

import (
	"bytes"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// part adds a part filled with one letter to a block, or finds it there.
func part(f *file, b *block, k, n int, letter byte) []byte {
	if p := b.Part(k, n); p != nil {
		return p
	}
	p := f.NewPart(n)
	for i := range p {
		p[i] = letter
	}
	return f.AddPart(b, k, p)
}

func TestPartsLeaveBeforeTheirBlock(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 100 << 10})
	f := c.openFile(t, 200)
	l := &load{n: 64, letter: 'a', file: f}
	for i := range 100 { // a hundred blocks with parts of 2 KiB: twice what fits
		b, err := f.Get(i, l)
		if err != nil {
			t.Fatal(err)
		}
		if p := part(f, b, i%cache.MaxParts, 2<<10, 'p'); len(p) != 2<<10 || p[0] != 'p' {
			t.Fatal("another part")
		}
		f.Release(b)
	}
	s := c.Stats()
	if s.Bytes > s.Capacity || s.Blocks != 100 || s.Evictions != 0 {
		t.Fatalf("%+v: parts alone should have been enough", s)
	}
	with := 0
	for i := range 100 {
		b := f.Lookup(i)
		if b.Part(i%cache.MaxParts, 2<<10) != nil {
			with++
		}
		f.Release(b)
	}
	if with == 0 || with > 50 {
		t.Fatalf("%d blocks have their part", with)
	}
	f.Evict(99)
	if s := c.Stats(); s.Blocks != 99 {
		t.Fatalf("%+v", s)
	}
}

// TestExpectingABlockIsNoUseOfIt: a block that is only expected is not pinned, filled or counted
// as used.
func TestExpectingABlockIsNoUseOfIt(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f := c.openFile(t, 2)
	b, err := f.Get(0, &load{n: 64, letter: 'a', file: f})
	if err != nil {
		t.Fatal(err)
	}
	f.Release(b)
	before := c.Stats()
	for i := range 3 { // there is no third block
		f.Expect(i)
	}
	if s := c.Stats(); s != before {
		t.Fatalf("%+v, before %+v", s, before)
	}
	f.Evict(0)
	if s := c.Stats(); s.Blocks != 0 {
		t.Fatalf("%+v: the block that was expected stays", s)
	}
}

func TestAPartOfTwoReadersIsTheFirstOnes(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 1 << 20})
	f := c.openFile(t, 1)
	b, err := f.Get(0, &load{n: 64, letter: 'a', file: f})
	if err != nil {
		t.Fatal(err)
	}
	first := part(f, b, 3, 100, 'x')
	late := f.NewPart(100)
	if got := f.AddPart(b, 3, late); &got[0] != &first[0] {
		t.Fatal("the part was replaced under its readers")
	}
	f.Evict(0)
	if got := b.Part(3, 100); got == nil || got[99] != 'x' {
		t.Fatal("a pinned block lost its part")
	}
	if got := part(f, b, 4, 50, 'y'); got[49] != 'y' {
		t.Fatal("no part for an evicted block that is pinned")
	}
	f.Release(b)
	if s := c.Stats(); s.Bytes != 0 || s.Blocks != 0 {
		t.Fatalf("%+v", s)
	}
}

func TestAFullCacheWantsPartsOfOneUseInEight(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 64 << 10})
	f := c.openFile(t, 100)
	use := func(i int) (wanted bool) {
		b, err := f.Get(i, &load{n: 64, letter: 'a', file: f})
		if err != nil {
			t.Fatal(err)
		}
		defer f.Release(b)
		if wanted = f.Wants(b, 4<<10, true); wanted {
			part(f, b, 0, 4<<10, 'p')
		}
		return wanted
	}
	if !use(0) {
		t.Fatal("an empty cache does not want a part")
	}
	for i := range 40 {
		use(i)
	}
	wanted := 0
	for range 80 {
		if use(50) {
			wanted++
		}
	}
	if wanted != 10 {
		t.Fatalf("wanted %d times of 80", wanted)
	}
	b, err := f.Get(0, &load{n: 64, letter: 'a', file: f})
	if err != nil {
		t.Fatal(err)
	}
	defer f.Release(b)
	for range 8 {
		if !f.Wants(b, 4<<10, false) {
			t.Fatal("does not want what is not cheap")
		}
		if f.Wants(b, 32<<10, false) {
			t.Fatal("wants half of the shard for one part")
		}
		use(0)
	}
}

// TestPartsInAStorm: readers that add and read parts while the clock takes them away never see
// other bytes.
func TestPartsInAStorm(t *testing.T) {
	c := newCache(t, cache.Options{Capacity: 128 << 10})
	f := c.openFile(t, 64)
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 8))
			for range 4_000 {
				i, k := rng.IntN(64), rng.IntN(cache.MaxParts)
				b, err := f.Get(i, &load{n: 500, letter: byte(i), file: f})
				if err != nil {
					t.Error(err)
					return
				}
				p := part(f, b, k, 1000+k, byte(i*8+k))
				if want := bytes.Repeat([]byte{byte(i*8 + k)}, 1000+k); !bytes.Equal(p, want) {
					t.Errorf("block %d part %d: %x", i, k, p[:8])
					return
				}
				f.Release(b)
				if rng.IntN(100) == 0 {
					f.Evict(rng.IntN(64))
				}
			}
		})
	}
	wg.Wait()
	if s := c.Stats(); s.Evictions == 0 || s.Bytes > s.Capacity+4<<20 {
		t.Fatalf("%+v", s)
	}
}
