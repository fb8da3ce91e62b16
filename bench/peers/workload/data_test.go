package workload

import (
	"bytes"
	"slices"
	"testing"
	"time"
)

func TestKeysAreNumbersAndSortAsOrdered(t *testing.T) {
	for _, o := range []order{ascending, spread} {
		var last []byte
		for i := range uint64(1000) {
			key := appendKey(nil, i, o)
			if got, err := number(key, o); err != nil || got != i {
				t.Fatalf("number(%q) = %d, %v, want %d", key, got, err, i)
			}
			if o == ascending && bytes.Compare(key, last) <= 0 {
				t.Fatalf("%q after %q", key, last)
			}
			last = key
		}
	}
	if _, err := number([]byte("nothing"), spread); err == nil {
		t.Error("a strange key passed")
	}
}

func TestAValueOfAnotherRowColumnOrLengthIsFound(t *testing.T) {
	buf := make([]byte, valueSize)
	value := make([]byte, valueSize)
	fill(value, 7, 3, 41)
	if err := checkValue(value, buf, 7, 3); err != nil {
		t.Fatal(err)
	}
	if got := generationOf(value); got != 41 {
		t.Errorf("generation %d", got)
	}
	wrong := map[string]error{
		"another row":    checkValue(value, buf, 8, 3),
		"another column": checkValue(value, buf, 7, 4),
		"cut":            checkValue(value[:60], buf, 7, 3),
		"nothing":        checkValue(nil, buf, 7, 3),
	}
	for at := range value {
		value[at] ^= 1
		wrong["flipped bit"] = checkValue(value, buf, 7, 3)
		if wrong["flipped bit"] == nil {
			t.Errorf("a flipped bit in byte %d passed", at)
		}
		value[at] ^= 1
	}
	for what, err := range wrong {
		if err == nil {
			t.Errorf("%s passed", what)
		}
	}
}

func TestQuantilesAreWithinABucket(t *testing.T) {
	var h, half Histogram
	r := random(1)
	var all []time.Duration
	for i := range 100_000 {
		d := time.Duration(r.next() >> (20 + r.below(40)))
		all = append(all, d)
		if i%2 == 0 {
			half.Add(d)
		} else {
			h.Add(d)
		}
	}
	h.Merge(&half)
	slices.Sort(all)
	for _, q := range []float64{0, 0.1, 0.5, 0.99, 0.999, 1} {
		want := all[min(int(q*float64(len(all))), len(all)-1)]
		got := h.Quantile(q)
		if diff := float64(got-want) / float64(max(want, 1)); diff > 0.02 || diff < -0.02 {
			t.Errorf("quantile %g: %v, want %v", q, got, want)
		}
	}
	if h.Max() != all[len(all)-1] || h.Count() != int64(len(all)) {
		t.Errorf("max %v of %d", h.Max(), h.Count())
	}
}

func TestZipfIsSkewedAndInRange(t *testing.T) {
	const n, draws = 1000, 200_000
	z := newZipf(n, false)
	r := random(3)
	counts := make([]int, n)
	for range draws {
		counts[z.next(&r)]++
	}
	// Rank 0 has a share of 1/zeta(1000, 0.99), about 13%; rank 100 a hundredth
	// of that.
	if share := float64(counts[0]) / draws; share < 0.11 || share > 0.15 {
		t.Errorf("the first rank has %.3f", share)
	}
	if counts[100] > counts[0]/40 {
		t.Errorf("rank 100 was drawn %d times, rank 0 %d times", counts[100], counts[0])
	}
}
