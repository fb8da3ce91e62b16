package workload

import (
	"bytes"
	"slices"
	"testing"
	"time"

	"github.com/golang/snappy"
	"github.com/klauspost/compress/s2"
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
	for _, v := range []Values{HalfZeros, Text} {
		t.Run(string(v), func(t *testing.T) { findWrongValues(t, v) })
	}
}

func findWrongValues(t *testing.T, v Values) {
	buf := make([]byte, valueSize)
	value := make([]byte, valueSize)
	v.fill(value, 7, 3, 41)
	if err := v.checkValue(value, buf, 7, 3); err != nil {
		t.Fatal(err)
	}
	if got := generationOf(value); got != 41 {
		t.Errorf("generation %d", got)
	}
	wrong := map[string]error{
		"another row":    v.checkValue(value, buf, 8, 3),
		"another column": v.checkValue(value, buf, 7, 4),
		"cut":            v.checkValue(value[:60], buf, 7, 3),
		"nothing":        v.checkValue(nil, buf, 7, 3),
	}
	for at := range value {
		value[at] ^= 1
		wrong["flipped bit"] = v.checkValue(value, buf, 7, 3)
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

func TestTextHasNoRunsAndCompressesToAboutHalf(t *testing.T) {
	const block = 8 << 10
	for _, size := range []int{valueSize, 1 << 10, 64 << 10} {
		var all, snappied, s2ed int
		for first := 0; first < 100*block; first += block {
			var data []byte
			value := make([]byte, size)
			for i := 0; len(data) < block; i++ {
				Text.fill(value, uint64(first+i), i%columnCount, uint32(i))
				for at := 17; at < size; at++ {
					if value[at] == value[at-1] || value[at] == 0 {
						t.Fatalf("a run at byte %d of %q", at, value)
					}
				}
				data = append(data, value...)
			}
			for part := range slices.Chunk(data, block) { // of which a table file has blocks
				all += len(part)
				snappied += len(snappy.Encode(nil, part))
				s2ed += len(s2.Encode(nil, part))
			}
		}
		a, b := float64(snappied)/float64(all), float64(s2ed)/float64(all)
		t.Logf("values of %d bytes: Snappy %.3f, S2 %.3f", size, a, b)
		if min(a, b) < 0.42 || max(a, b) > 0.60 {
			t.Errorf("values of %d bytes: Snappy makes %.3f of text, S2 %.3f", size, a, b)
		}
	}
}

func BenchmarkFill(b *testing.B) {
	for _, v := range []Values{HalfZeros, Text} {
		b.Run(string(v), func(b *testing.B) {
			value := make([]byte, valueSize)
			for i := range b.N {
				v.fill(value, uint64(i), 3, 0)
			}
		})
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
