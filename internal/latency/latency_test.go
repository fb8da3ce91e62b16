package latency

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
)

func TestBucketsAreAdjacentAndNarrow(t *testing.T) {
	for i := range buckets {
		if b := bucketOf(bound(i)); b != i {
			t.Errorf("%v is in bucket %d, not in %d, which it ends", bound(i), b, i)
		}
		if b := bucketOf(bound(i) + 1); b != min(i+1, buckets-1) {
			t.Errorf("%v is in bucket %d, want %d", bound(i)+1, b, i+1)
		}
		if i > 0 && (bound(i) <= bound(i-1) || float64(bound(i)) > 1.2501*float64(bound(i-1))) {
			t.Errorf("bucket %d ends at %v, the one before at %v", i, bound(i), bound(i-1))
		}
	}
	if bucketOf(0) != 0 || bucketOf(-1) != 0 || bucketOf(1<<62) != buckets-1 || bound(buckets-1) < time.Minute {
		t.Errorf("the ends are wrong: %v", bound(buckets-1))
	}
}

func TestQuantilesAreJustAboveTheExactOnes(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	var h Histogram
	var all []time.Duration
	var sum time.Duration
	for range 1000 {
		d := time.Duration(1) << (8 + rng.IntN(25))
		d += time.Duration(rng.Int64N(int64(d)))
		h.Add(d)
		all, sum = append(all, d), sum+d
	}
	slices.Sort(all)
	s := h.Snapshot()
	for _, q := range []float64{0, 0.001, 0.5, 0.99, 0.999, 1} {
		exact, got := all[max(int(q*1000+0.5), 1)-1], s.Quantile(q)
		if got < exact || float64(got) > 1.26*float64(exact) {
			t.Errorf("quantile %v: %v, exactly %v", q, got, exact)
		}
	}
	var n uint64
	for _, c := range s.Buckets() {
		n += c
	}
	if n != 1000 || s.Count() != 1000 || s.Sum != sum {
		t.Errorf("%d of 1000 durations, sum %v, want %v", n, s.Sum, sum)
	}
	if none := (new(Snapshot)); none.Quantile(0.5) != 0 {
		t.Error("a quantile of nothing")
	}
}

func TestOneOfSomeOperationsIsTimed(t *testing.T) {
	c := clocktest.NewManual(0)
	var h Histogram
	const operations = 100_000
	for range operations {
		began := Begin(c)
		c.Advance(time.Microsecond)
		h.End(c, began)
	}
	s := h.Snapshot()
	if n := s.Count(); n < operations/Every/2 || n > operations/Every*2 || s.Sum != time.Duration(n)*time.Microsecond {
		t.Errorf("%d of %d were timed, %v together", n, operations, s.Sum)
	}
}

func TestASnapshotSinceAnotherHasWhatCameBetween(t *testing.T) {
	var h Histogram
	h.Add(time.Microsecond)
	before := h.Snapshot()
	h.Add(time.Millisecond)
	h.Add(time.Hour)
	since := h.Snapshot().Since(before)
	if since.Count() != 2 || since.Sum != time.Millisecond+time.Hour || since.Quantile(0.01) < time.Millisecond {
		t.Errorf("%d, %s, %s", since.Count(), since.Sum, since.Quantile(0.01))
	}
	var again Snapshot
	for end, n := range since.Buckets() {
		again.Add(end, n)
	}
	if again.counts != since.counts {
		t.Errorf("%v, want %v", again.counts, since.counts)
	}
}
