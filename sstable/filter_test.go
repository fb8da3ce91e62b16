package sstable

import (
	"encoding/binary"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"
)

// TestTheFilterIsNearlyAsSelectiveAsTheLibrarysFilter compares the share of absent keys that
// pass with that of a bits-and-blooms filter of the same size. The rate is a little higher,
// because a key's bits lie in one line, and lines fill unevenly. The bounds are the measured
// values with a margin.
func TestTheFilterIsNearlyAsSelectiveAsTheLibrarysFilter(t *testing.T) {
	const n = 50_000
	for _, test := range []struct{ bitsPerKey, bound float64 }{
		{6, 1.1}, {8, 1.2}, {10, 1.4}, {12, 1.7}, {16, 2.6},
	} {
		rng := rand.New(rand.NewPCG(11, uint64(test.bitsPerKey)))
		key := func() []byte { return binary.BigEndian.AppendUint64(nil, rng.Uint64()) }
		library := bloom.NewWithEstimates(n, math.Exp(-test.bitsPerKey*math.Ln2*math.Ln2))
		hashes := make([]uint64, n)
		for i := range hashes {
			k := key()
			hashes[i] = Hash(k)
			library.Add(k)
		}
		var f filter
		encoded := encodeFilter(hashes, test.bitsPerKey)
		if bad := f.parse(encoded); bad != "" {
			t.Fatal(bad)
		}
		if got := float64(len(encoded)) * 8 / n; got > test.bitsPerKey*1.01+0.1 {
			t.Errorf("%g bits per key take %.2f", test.bitsPerKey, got)
		}
		for _, h := range hashes {
			if !f.mayContain(h) {
				t.Fatalf("a key that was added is denied at %g bits", test.bitsPerKey)
			}
		}
		const tries = 400_000
		ours, theirs := 0, 0
		for range tries {
			k := key()
			if f.mayContain(Hash(k)) {
				ours++
			}
			if library.Test(k) {
				theirs++
			}
		}
		t.Logf("%2g bits per key: %.3f%%, library %.3f%%", test.bitsPerKey, 100*float64(ours)/tries, 100*float64(theirs)/tries)
		if float64(ours) > test.bound*float64(theirs)+20 {
			t.Errorf("%g bits per key: %d of %d absent keys pass, %d with the library", test.bitsPerKey, ours, tries, theirs)
		}
	}
}

func TestAMalformedFilterIsRefusedAndNeverDenies(t *testing.T) {
	good := encodeFilter([]uint64{1, 2, 3}, 10)
	for name, change := range map[string]func(b []byte) []byte{
		"no bytes":        func(b []byte) []byte { return nil },
		"no probes":       func(b []byte) []byte { b[0] = 0; return b },
		"too many probes": func(b []byte) []byte { b[0] = maxProbes + 1; return b },
		"no lines":        func(b []byte) []byte { clear(b[1:5]); return b[:5] },
		"too many lines":  func(b []byte) []byte { b[1]++; return b },
		"cut short":       func(b []byte) []byte { return b[:len(b)-1] },
	} {
		var f filter
		if bad := f.parse(change(append([]byte(nil), good...))); bad == "" {
			t.Errorf("%s: accepted", name)
		}
		if !f.mayContain(1) {
			t.Errorf("%s: denies a key", name)
		}
	}
}
