package sstable

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// groupFrom finds the same group as a linear search.
func TestTheGroupAtAnOffsetIsFound(t *testing.T) {
	f := &memFile{}
	wordTable(200, true).write(t, f, WriterOptions{Compression: CompressS2, BlockSize: 2000})
	x := &openFile(t, f, nil).index
	rng := rand.New(rand.NewPCG(1, 2))
	for range 20_000 {
		low := rng.IntN(x.groups + 1)
		offset := rng.Int64N(x.offset(x.groups-1) + 3000)
		if rng.IntN(2) == 0 && low < x.groups {
			offset = x.offset(low+rng.IntN(x.groups-low)) + rng.Int64N(3) - 1
		}
		want := low
		for want < x.groups && x.offset(want) < offset {
			want++
		}
		if got := x.groupFrom(low, rng.IntN(x.groups+1), offset); got != want {
			t.Fatalf("from %d to %d: %d, want %d", low, offset, got, want)
		}
	}
}

// A walk finds the same places, and the same sizes between them, as a linear search of the
// groups, for any bounds.
func TestAWalkFindsThePlacesBetweenItsBounds(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	f := &memFile{}
	model := wordTable(200, true)
	model.write(t, f, WriterOptions{Compression: CompressS2, BlockSize: 2000})
	r := openFile(t, f, nil)
	x := &r.index
	bound := func() []byte {
		switch rng.IntN(5) {
		case 0:
			return nil
		case 1:
			return []byte{byte(rng.IntN(256))}
		case 2:
			return x.appendSeparator(nil, rng.IntN(x.groups))
		}
		return model[rng.IntN(len(model))].key
	}
	for range 5_000 {
		low, high, apart := bound(), bound(), int64(0)
		if rng.IntN(2) == 0 {
			apart = rng.Int64N(2 * r.dataSize())
		}
		before, to := r.offsetOf(low), r.dataSize()
		if high != nil {
			to = max(r.offsetOf(high), before)
		}
		g, next := 0, int64(0)
		rest := r.WalkIndex(low, high, func(separator []byte, since int64) int64 {
			for ; g < x.groups; g++ {
				s := x.appendSeparator(nil, g)
				if string(s) >= string(low) && x.offset(g) >= next && (high == nil || string(s) < string(high)) {
					break
				}
			}
			if g == x.groups || !bytes.Equal(separator, x.appendSeparator(nil, g)) || since != x.offset(g)-before {
				t.Fatalf("from %q to %q, %d apart: a place %q, %d behind %d", low, high, apart, separator, since, before)
			}
			before, next = x.offset(g), x.offset(g)+apart
			g++
			return apart
		})
		for ; g < x.groups; g++ {
			s := x.appendSeparator(nil, g)
			if string(s) >= string(low) && x.offset(g) >= next && (high == nil || string(s) < string(high)) {
				t.Fatalf("from %q to %q, %d apart: no place at %q", low, high, apart, s)
			}
		}
		if rest != to-before {
			t.Fatalf("from %q to %q, %d apart: %d bytes behind the last place, want %d", low, high, apart, rest, to-before)
		}
	}
}
