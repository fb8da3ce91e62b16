package vfs

import (
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"testing"
)

// TestPagesComeOftenWhereFewAreReadAgain reads places of a simulated file whose page cache holds some of them.
func TestPagesComeOftenWhereFewAreReadAgain(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	const places = 10_000
	for _, c := range []struct {
		name   string
		cached func(place int) bool
		read   func(r *rand.Rand) int
		rarely bool
	}{
		{"reads spread evenly, a quarter cached", func(p int) bool { return p%4 == 0 }, func(r *rand.Rand) int { return r.IntN(places) }, true},
		{"reads spread evenly, nine tenths cached", func(p int) bool { return p%10 > 0 }, func(r *rand.Rand) int { return r.IntN(places) }, true},
		{"reads of what is not cached", func(p int) bool { return p%4 == 0 }, func(r *rand.Rand) int { return r.IntN(places/4)*4 + 1 }, true},
		{"half of the reads are of a cached quarter", func(p int) bool { return p%4 == 0 },
			func(r *rand.Rand) int { p := r.IntN(places); return p - p%4*r.IntN(2) }, false},
		{"reads spread evenly, nothing cached", func(int) bool { return false }, func(r *rand.Rand) int { return r.IntN(places) }, false},
		{"a tenth is read, and most of it cached", func(p int) bool { return p < places/10 && p%8 > 0 }, func(r *rand.Rand) int { return r.IntN(places / 10) }, false},
	} {
		r := rand.New(rand.NewPCG(seed, 1))
		var a admission
		served, admitted := uint32(0), 0
		for misses := 0; misses < 4*judgeEvery; {
			if c.cached(c.read(r)) {
				served++
				continue
			}
			misses++
			admit := a.miss(served, func(place uint64) bool {
				p, _ := bits.Mul64(place, places)
				return c.cached(int(p))
			})
			served = 0
			if admit && misses > 3*judgeEvery {
				admitted++
			}
		}
		want := judgeEvery / admitOften
		if c.rarely {
			want = judgeEvery / admitRarely
		}
		if admitted != want {
			t.Errorf("%s: of %d misses %d bring their pages, want %d", c.name, judgeEvery, admitted, want)
		}
	}
}

// TestAFileBeginsWithTheNewestJudgementOfAny reads one file evenly, of which a quarter is cached, and then others.
func TestAFileBeginsWithTheNewestJudgementOfAny(t *testing.T) {
	var others atomic.Bool
	admitted := func(a *admission, misses int, cached bool) (n int) {
		for i := range misses {
			if a.miss(uint32(i%3/2), func(uint64) bool { return cached }) { // a third of a read is served for each miss
				n++
			}
		}
		return n
	}
	even := &admission{others: &others}
	if got := admitted(even, judgeEvery-1, true); got != (judgeEvery-1)/admitOften {
		t.Errorf("%d misses bring their pages before anything was judged", got)
	}
	admitted(even, 1, true)
	next := &admission{others: &others}
	if got := admitted(next, judgeEvery-1, false); got != (judgeEvery-1)/admitRarely {
		t.Errorf("of a file that begins as one read evenly %d misses bring their pages", got)
	}
	admitted(next, 1, false)
	if got := admitted(next, judgeEvery, false); got != judgeEvery/admitOften {
		t.Errorf("of a file whose other places are not cached %d misses bring their pages", got)
	}
	if got := admitted(even, judgeEvery-1, true); got != (judgeEvery-1)/admitRarely {
		t.Errorf("another file's judgement changed that of a file that has its own: %d", got)
	}
}
