package workload

import (
	"math/bits"
	"time"
)

// Histogram counts durations in buckets of at most 1.6% width, from 1 ns to
// hours. It is used by one goroutine; Merge brings several together.
type Histogram struct {
	counts [64 * subBuckets]uint64
	total  uint64
	sum    time.Duration
	max    time.Duration
}

const (
	subBits    = 6
	subBuckets = 1 << subBits
)

// bucket: values below subBuckets have a bucket each, above it each power of
// two is cut into subBuckets pieces.
func bucket(n uint64) int {
	shift := max(bits.Len64(n)-subBits-1, 0)
	return shift<<subBits + int(n>>shift)
}

// middle returns the middle of a bucket's range.
func middle(b int) uint64 {
	if b < 2*subBuckets {
		return uint64(b)
	}
	shift := b>>subBits - 1
	low := uint64(b-shift<<subBits) << shift
	return low + 1<<shift/2
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	d = max(d, 0)
	h.counts[bucket(uint64(d))]++
	h.total++
	h.sum += d
	h.max = max(h.max, d)
}

// Merge adds all of o.
func (h *Histogram) Merge(o *Histogram) {
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	h.sum += o.sum
	h.max = max(h.max, o.max)
}

// Count is how many durations were added.
func (h *Histogram) Count() int64 { return int64(h.total) }

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return h.max }

// Quantile returns the duration that a share q of all does not exceed.
func (h *Histogram) Quantile(q float64) time.Duration {
	if h.total == 0 {
		return 0
	}
	rank := min(uint64(q*float64(h.total)), h.total-1)
	var seen uint64
	for b, n := range h.counts {
		seen += n
		if seen > rank {
			return min(time.Duration(middle(b)), h.max)
		}
	}
	return h.max
}
