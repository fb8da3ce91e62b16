package load

import (
	"bytes"
	"cmp"
	"container/heap"
	"iter"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

const (
	// maxSample is the number of keys in a sample.
	maxSample = 128
	// maxKept is how many bytes of a partition key are kept. Partition keys that agree in so many
	// bytes count as one.
	maxKept = 512
)

// sample is a random sample of operations, without replacement: Efraimidis and Spirakis, "Weighted
// random sampling with a reservoir" (2006), with weights that double every HalfLife, so that older
// operations need no change when time passes. An operation's priority is the logarithm of its
// weight plus a random number of the Gumbel distribution; the highest priorities are kept. So a part
// of a sample is a sample of that part, and the highest priorities of two samples are a sample of
// both.
//
// It is a heap with the lowest priority on top.
type sample struct {
	list   []touched
	random rand.PCG
}

// touched is one sampled operation.
type touched struct {
	priority float64
	at       time.Duration
	key      []byte // the encoded partition key, or its first maxKept bytes
	kind     kind
}

func (s *sample) Len() int           { return len(s.list) }
func (s *sample) Less(i, j int) bool { return s.list[i].priority < s.list[j].priority }
func (s *sample) Swap(i, j int)      { s.list[i], s.list[j] = s.list[j], s.list[i] }
func (s *sample) Push(x any)         { s.list = append(s.list, x.(touched)) }
func (s *sample) Pop() any {
	last := s.list[len(s.list)-1]
	s.list = s.list[:len(s.list)-1]
	return last
}

// offer takes an operation that stands for so many units into the sample, or leaves it out.
func (s *sample) offer(k kind, key []byte, columns int, units int64, at time.Duration) {
	uniform := (float64(s.random.Uint64()>>11) + 0.5) / (1 << 53)
	priority := math.Log2(float64(units)) + float64(at)/float64(HalfLife) - math.Log2(-math.Log(uniform))
	if len(s.list) == maxSample && priority <= s.list[0].priority {
		return
	}
	prefix, ok := row.PartitionPrefix(key, columns)
	if !ok {
		return
	}
	prefix = prefix[:min(len(prefix), maxKept)]
	if len(s.list) < maxSample {
		heap.Push(s, touched{priority, at, bytes.Clone(prefix), k})
		return
	}
	lowest := &s.list[0]
	lowest.priority, lowest.at, lowest.kind, lowest.key = priority, at, k, append(lowest.key[:0], prefix...)
	heap.Fix(s, 0)
}

// divide gives the operations below a key to one sample and the others to another. It returns the
// part that is below; of an empty sample that is half.
func (s *sample) divide(at []byte, left, right *sample) (below float64) {
	for _, t := range s.list {
		to := right
		if bytes.Compare(t.key, at) < 0 {
			to = left
		}
		t.key = bytes.Clone(t.key)
		heap.Push(to, t)
	}
	if len(s.list) == 0 {
		return 0.5
	}
	return float64(len(left.list)) / float64(len(s.list))
}

// join adds another sample.
func (s *sample) join(other *sample) {
	for _, t := range other.list {
		t.key = bytes.Clone(t.key)
		if len(s.list) < maxSample {
			heap.Push(s, t)
		} else if s.list[0].priority < t.priority {
			s.list[0] = t
			heap.Fix(s, 0)
		}
	}
}

func (s *sample) copy(columns int) Sample {
	out := Sample{columns: columns, list: slices.Clone(s.list)}
	for i := range out.list {
		out.list[i].key = bytes.Clone(out.list[i].key)
	}
	slices.SortFunc(out.list, func(a, b touched) int {
		return cmp.Or(bytes.Compare(a.key, b.key), cmp.Compare(a.at, b.at))
	})
	return out
}

// Sample is the partition keys of a few operations, sorted. Each operation stands for the same part
// of the load.
type Sample struct {
	columns int
	list    []touched
}

// Len is the number of operations in the sample.
func (s Sample) Len() int { return len(s.list) }

// Keys yields the partition key of each operation, as Bound encodes it, and whether it was a write.
func (s Sample) Keys() iter.Seq2[[]byte, bool] {
	return func(yield func([]byte, bool) bool) {
		for _, t := range s.list {
			if key := Bound(t.key, s.columns); key != nil && !yield(key, t.kind == writing) {
				return
			}
		}
	}
}

// Half returns the bound between partition keys at which the load is divided most evenly, and the
// part of the load below it. The bound is nil if all operations have one partition key.
func (s Sample) Half() (bound []byte, below float64) {
	best := -1
	for i := 1; i < len(s.list); i++ {
		if !bytes.Equal(s.list[i-1].key, s.list[i].key) && (best < 0 || s.uneven(i) < s.uneven(best)) {
			best = i
		}
	}
	if best < 0 {
		return nil, 0
	}
	return Bound(s.list[best].key, s.columns), s.below(best)
}

// below is the part of the load that the first n operations stand for.
func (s Sample) below(n int) float64 { return float64(n) / float64(len(s.list)) }

func (s Sample) uneven(n int) float64 { return math.Abs(s.below(n) - 0.5) }

// Below is the part of the load below a bound, 0 of an empty sample.
func (s Sample) Below(bound []byte) float64 {
	n, _ := slices.BinarySearchFunc(s.list, bound, func(t touched, bound []byte) int {
		return bytes.Compare(t.key, bound)
	})
	return float64(n) / float64(max(len(s.list), 1))
}

// Heaviest returns the encoded partition key with the largest part of the load, and that part. It
// is nil if the sample is empty.
func (s Sample) Heaviest() (key []byte, part float64) {
	most, count := 0, 0
	for i := range s.list {
		if i == 0 || !bytes.Equal(s.list[i-1].key, s.list[i].key) {
			count = 0
		}
		if count++; count > most {
			most, key = count, s.list[i].key
		}
	}
	if most == 0 {
		return nil, 0
	}
	return Bound(key, s.columns), s.below(most)
}

// Newest returns the newer half of the sample: the operations after the median of their times. If
// there are none, it is those at that time.
func (s Sample) Newest() Sample {
	if len(s.list) == 0 {
		return s
	}
	times := make([]time.Duration, len(s.list))
	for i, t := range s.list {
		times[i] = t.at
	}
	slices.Sort(times)
	median := times[len(times)/2]
	if median == times[len(times)-1] {
		median--
	}
	newest := Sample{columns: s.columns}
	for _, t := range s.list {
		if t.at > median {
			newest.list = append(newest.list, t)
		}
	}
	return newest
}

// Bound returns the place between partition keys at which a table with so many key columns is cut
// near a key: the partition key of a key, encoded. If key is only the beginning of one, it is the
// smallest partition key that begins so. It is nil if key does not begin with a partition key.
func Bound(key []byte, columns int) []byte {
	v, ok := row.PartitionValueAt(key, columns)
	if !ok {
		return nil
	}
	bound, err := row.AppendKey(nil, columns, v)
	if err != nil {
		return nil
	}
	return bound
}
