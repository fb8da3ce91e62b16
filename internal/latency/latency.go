// Package latency counts how long operations take, in histograms.
package latency

import (
	"iter"
	"math/bits"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock"
)

// Every is how many operations there are for one that is timed, on average. To read the clock twice for each would
// cost a quarter of the fastest gets.
const Every = 64

const (
	shift     = 8  // the first bucket ends at 2^shift ns
	octaves   = 28 // behind it; the last ends at 69 s
	perOctave = 4
	buckets   = 1 + octaves*perOctave
)

// Begin returns when an operation began, or a negative time if it is not to be timed.
func Begin(c clock.Clock) time.Duration { return new(NewSampler()).Begin(c) }

// Sampler decides which operations are timed. It belongs to working memory that is used again, and
// is how many operations it lets pass until the next that is timed.
type Sampler uint32

// NewSampler returns one that begins anywhere, so that working memory that is used a few times counts as much.
func NewSampler() Sampler { return Sampler(rand.Uint32N(Every)) }

// Begin is the function Begin. The distances are random: programs do things in turn.
func (s *Sampler) Begin(c clock.Clock) time.Duration {
	if *s > 0 {
		*s--
		return -1
	}
	*s = Sampler(rand.Uint32N(2*Every - 1))
	return c.Elapsed()
}

// Histogram counts durations. It is safe for concurrent use.
type Histogram struct {
	counts [buckets]atomic.Uint64
	sum    atomic.Int64 // nanoseconds
}

// End counts an operation that began at a time that Begin returned.
func (h *Histogram) End(c clock.Clock, began time.Duration) {
	if began >= 0 {
		h.end(c, began)
	}
}

// end is apart, so that End is inlined.
func (h *Histogram) end(c clock.Clock, began time.Duration) { h.Add(c.Elapsed() - began) }

// Add counts a duration.
func (h *Histogram) Add(d time.Duration) {
	h.counts[bucketOf(d)].Add(1)
	h.sum.Add(int64(d))
}

// bucketOf is the bucket of a duration: bounds are included in the bucket below. What is beyond the last bound is in the
// last bucket.
func bucketOf(d time.Duration) int {
	n := uint64(max(d-1, 0))
	if n < 1<<shift {
		return 0
	}
	octave := bits.Len64(n) - 1
	within := n>>(octave-2) - perOctave // perOctave is 2^2
	return min(1+(octave-shift)*perOctave+int(within), buckets-1)
}

// bound is the upper end of a bucket.
func bound(bucket int) time.Duration {
	if bucket == 0 {
		return 1 << shift
	}
	octave, within := (bucket-1)/perOctave+shift, (bucket-1)%perOctave
	return time.Duration(perOctave+within+1) << (octave - 2)
}

// Snapshot is a histogram at one moment.
type Snapshot struct {
	counts [buckets]uint64
	Sum    time.Duration
}

// Snapshot returns what was counted so far.
func (h *Histogram) Snapshot() *Snapshot {
	s := new(Snapshot)
	for i := range h.counts {
		s.counts[i] = h.counts[i].Load()
	}
	s.Sum = time.Duration(h.sum.Load())
	return s
}

// Add counts n durations of a bucket with that upper end.
func (s *Snapshot) Add(end time.Duration, n uint64) { s.counts[bucketOf(end)] += n }

// Since is what was counted between an earlier snapshot of the same histogram and this one. It is this one if the other
// is not of the same histogram, since more was counted there.
func (s *Snapshot) Since(earlier *Snapshot) *Snapshot {
	d := &Snapshot{Sum: s.Sum - earlier.Sum}
	for i := range d.counts {
		if s.counts[i] < earlier.counts[i] {
			return s
		}
		d.counts[i] = s.counts[i] - earlier.counts[i]
	}
	return d
}

// Count is how many durations there are.
func (s *Snapshot) Count() (n uint64) {
	for _, c := range s.counts {
		n += c
	}
	return n
}

// Quantile returns a duration which a share q of all does not exceed, at most a quarter more than the least such;
// 0 if there are none.
func (s *Snapshot) Quantile(q float64) time.Duration {
	n := s.Count()
	if n == 0 {
		return 0
	}
	rank := max(uint64(q*float64(n)+0.5), 1)
	for i, c := range s.counts {
		if c >= rank {
			return bound(i)
		}
		rank -= c
	}
	return bound(buckets - 1)
}

// Buckets are the upper ends of the buckets, ascending, and what each holds.
func (s *Snapshot) Buckets() iter.Seq2[time.Duration, uint64] {
	return func(yield func(time.Duration, uint64) bool) {
		for i, c := range s.counts {
			if !yield(bound(i), c) {
				return
			}
		}
	}
}
