package flagstone

import (
	"bytes"
	"encoding/json"
	"iter"
	"strconv"
	"time"

	"github.com/flagstone-db/flagstone/internal/latency"
)

// Latency is how long operations of one kind took since the store was opened. One of 64 is timed, chosen at
// random. Operations whose name ends in Async count until their Commit.Wait has returned, with what the
// caller does before it calls Wait; they do not count if they fail before.
type Latency struct{ of *latency.Snapshot } // nil: there are none

// Timed is how many operations were timed.
func (l Latency) Timed() uint64 {
	if l.of == nil {
		return 0
	}
	return l.of.Count()
}

// Total is how long all of these took together.
func (l Latency) Total() time.Duration {
	if l.of == nil {
		return 0
	}
	return l.of.Sum
}

// Quantile returns a time within which a share q of the operations, such as 0.99, was done; 0 if none was timed. It is
// at most a quarter above the exact one, at least 256 ns, and at most 69 s.
func (l Latency) Quantile(q float64) time.Duration {
	if l.of == nil {
		return 0
	}
	return l.of.Quantile(q)
}

// Buckets are the counts of a histogram, with the upper end of each bucket, ascending. What took longer than the
// last end is in the last bucket.
func (l Latency) Buckets() iter.Seq2[time.Duration, uint64] {
	if l.of == nil {
		l.of = new(latency.Snapshot)
	}
	return l.of.Buckets()
}

// Since is what was timed between an earlier Latency of the same store and this one.
func (l Latency) Since(earlier Latency) Latency {
	if l.of == nil || earlier.of == nil {
		return l
	}
	return Latency{l.of.Since(earlier.of)}
}

// MarshalJSON writes {"total": 5000, "buckets": {"256": 3, ...}}: the total in nanoseconds, and the counts of buckets
// that have any, by their upper ends in nanoseconds. A map of them would take most of the time of all figures.
func (l Latency) MarshalJSON() ([]byte, error) {
	text := append(strconv.AppendInt([]byte(`{"total":`), int64(l.Total()), 10), `,"buckets":{`...)
	for end, n := range l.Buckets() {
		if n > 0 {
			text = append(strconv.AppendInt(append(text, '"'), int64(end), 10), `":`...)
			text = append(strconv.AppendUint(text, n, 10), ',')
		}
	}
	return append(bytes.TrimSuffix(text, []byte(",")), "}}"...), nil
}

// UnmarshalJSON reads what MarshalJSON writes.
func (l *Latency) UnmarshalJSON(text []byte) error {
	var read struct {
		Total   time.Duration
		Buckets map[time.Duration]uint64
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	l.of = &latency.Snapshot{Sum: read.Total}
	for end, n := range read.Buckets {
		l.of.Add(end, n)
	}
	return nil
}

// latencies are those of a table.
type latencies struct{ gets, scans, updates, commits latency.Histogram }
