package keydesign

import (
	"cmp"
	"slices"
	"strings"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// Statistics is what Advise judges a key by.
type Statistics struct {
	Table   string
	Columns []Column // of the primary key
	Bytes   int64    // the table's approximate size
	// Sample holds rows in key order, spread evenly over the table's bytes.
	Sample []Row
	// Load is what requests to the busiest partition keys cost lately; empty if it was not
	// counted.
	Load []KeyLoad
	// LoadUnits is what requests to all partition keys cost lately. LoadOver is the time in which
	// a steady load adds up to it.
	LoadUnits int64
	LoadOver  time.Duration
	// RowBytes is how many bytes a row has that was read or written lately, on average; 0 if unknown.
	RowBytes float64
	// Refused says which requests got no capacity units lately.
	Refused Refusals
	// Passed says that scans pass many deleted or expired rows.
	Passed Passed
}

// Passed are rows that scans passed per second lately because they were deleted or have expired, and those that reads of
// the same partitions returned.
type Passed struct {
	Rate     float64 `json:"per_second"`
	Returned float64 `json:"returned_per_second"`
}

// Refusals are requests that were refused lately, for they had no capacity units left: those of the key and code that most
// were refused with.
type Refusals struct {
	Rate float64 `json:"per_second"`
	Code string  `json:"code,omitempty"`
	// Key is their partition key; "" if the limit is not that of one key.
	Key string `json:"key,omitempty"`
}

// Column is a key column.
type Column struct {
	Name string
	Type row.Type
}

// Row is one row of the sample.
type Row struct {
	Key     []row.Value
	Bytes   int64 // that the row stands for
	Version int64 // when it was written, in milliseconds; 0 if unknown
	Own     int64 // bytes of its key and first columns, as they were put; 0 if unknown
}

// KeyLoad is what requests to a partition key cost lately, in capacity units.
type KeyLoad struct {
	Key   row.Value
	Units int64
	Rows  []Row // of a key with a large part of the load, each with the same weight
}

// LeastLoad is the number of units below which load is not judged, and Statistics need no rows of busy keys.
const LeastLoad = 1000

// Thresholds by which a key is judged.
const (
	// heavyShare is the share of a table above which a partition key is called heavy; proposals
	// aim at goodShare.
	heavyShare = 0.05
	goodShare  = 0.01
	// newestShare is the share of the sample that is called new. New rows are called crowded if
	// crowdedShare of them lie within a tenth of the key range; by chance a tenth of them would.
	newestShare  = 0.05
	crowdedShare = 0.6
	leastNewest  = 10
	// largeRow is the size from which rows are called large.
	largeRow = 64 << 10
	// leastSample is the number of rows below which nothing is judged.
	leastSample = 100

	// Limits of one partition key. Table Store advises 1 GB at most, since a partition, of 10
	// GB, is never divided within a partition key.
	maxKeyBytes    = 1 << 30
	partitionBytes = 10 << 30
	maxKeyUnits    = 10_000 // per second
)

// Report is what Advise finds out about a table's key.
type Report struct {
	Table   string   `json:"table"`
	Columns []string `json:"columns"`
	Bytes   int64    `json:"bytes"`
	Sampled int      `json:"sampled"` // rows

	Size      Spread     `json:"size"`
	Load      *Spread    `json:"load,omitempty"`   // nil: unknown
	Newest    *Crowding  `json:"newest,omitempty"` // nil: unknown
	LoadUnits int64      `json:"load_units"`
	LoadRate  float64    `json:"load_units_per_second"`
	LoadOver  float64    `json:"load_over_seconds"` // those of which LoadRate is the average
	RowBytes  float64    `json:"row_bytes"`         // of a row that was read or written lately, on average; 0 if unknown
	Largest   *Largest   `json:"largest,omitempty"` // of the sampled rows; nil: there is none, or sizes are unknown
	Refused   *Refusals  `json:"refused,omitempty"` // nil: none
	Passed    *Passed    `json:"passed,omitempty"`  // nil: few
	Proposals []Proposal `json:"proposals"`
}

// Largest is a row that is larger than the others.
type Largest struct {
	Key   string `json:"key"`   // its columns in order
	Bytes int64  `json:"bytes"` // of key, names and values of the first columns, as they were put
}

// Spread says how something is spread over partition keys.
type Spread struct {
	Distinct int     `json:"distinct"` // partition keys in the sample, or counted
	Top      []Share `json:"top"`      // the heaviest, in descending order
	// Even is the number of partition keys of equal weight that would be as concentrated (the
	// inverse of Simpson's index); 0 if unknown.
	Even  float64 `json:"even,omitempty"`
	Heavy bool    `json:"heavy"`
	// Large says that a partition key has too many bytes.
	Large bool `json:"large,omitempty"`
}

// Share is the share of one partition key.
type Share struct {
	Key  string  `json:"key"`
	Part float64 `json:"part"`
}

// largest is the share of the heaviest partition key.
func (s *Spread) largest() float64 {
	if len(s.Top) == 0 {
		return 0
	}
	return s.Top[0].Part
}

// Crowding says how the rows that were written last lie in the key range.
type Crowding struct {
	Rows int `json:"rows"` // the rows of the sample that were written last
	// InTenth is the share of them in that tenth of the range that has most of them.
	InTenth float64 `json:"in_tenth"`
	Crowded bool    `json:"crowded"`
}

// Advise judges a table's key.
func Advise(st *Statistics) *Report {
	r := &Report{
		Table: st.Table, Bytes: st.Bytes, Sampled: len(st.Sample),
		LoadUnits: st.LoadUnits, LoadOver: max(st.LoadOver, time.Second).Seconds(), Proposals: []Proposal{},
		Size: Spread{Top: []Share{}}, RowBytes: st.RowBytes,
	}
	if st.Refused.Rate > 0 {
		r.Refused = &st.Refused
	}
	if st.Passed.Rate > 0 {
		r.Passed = &st.Passed
	}
	r.LoadRate = float64(r.LoadUnits) / r.LoadOver
	for _, c := range st.Columns {
		r.Columns = append(r.Columns, c.Name+" "+c.Type.String())
	}
	r.Largest = largestOf(st.Sample)
	if len(st.Sample) < leastSample {
		return r
	}
	order := make([]int, len(st.Sample))
	for i := range order {
		order[i] = i
	}
	r.Size = spreadOf(st.Sample, func(s *Row) string { return s.Key[0].String() })
	r.Size.Large = r.Size.largest()*float64(r.Bytes) >= maxKeyBytes
	r.Newest = crowdingOf(st.Sample, order)
	if st.LoadUnits >= LeastLoad {
		r.Load = loadOf(st)
	}
	r.propose(st)
	return r
}

func largestOf(sample []Row) *Largest {
	if len(sample) == 0 {
		return nil
	}
	of := slices.MaxFunc(sample, func(a, b Row) int { return cmp.Compare(a.Own, b.Own) })
	if of.Own == 0 {
		return nil
	}
	var key []string
	for _, v := range of.Key {
		key = append(key, v.String())
	}
	return &Largest{strings.Join(key, ", "), of.Own}
}

// topShares is how many of the heaviest partition keys a report names.
const topShares = 5

// spreadOf weighs the sample by the partition keys that name returns.
func spreadOf(sample []Row, name func(*Row) string) Spread {
	weights := map[string]int64{}
	var total int64
	for i := range sample {
		weights[name(&sample[i])] += sample[i].Bytes
		total += sample[i].Bytes
	}
	s := Spread{Distinct: len(weights), Top: []Share{}}
	var squares float64
	for key, weight := range weights {
		part := float64(weight) / float64(max(total, 1))
		squares += part * part
		s.Top = append(s.Top, Share{Key: key, Part: part})
	}
	s.Even = 1 / squares
	slices.SortFunc(s.Top, func(a, b Share) int {
		return cmp.Or(-cmp.Compare(a.Part, b.Part), cmp.Compare(a.Key, b.Key))
	})
	s.Top = s.Top[:min(len(s.Top), topShares)]
	s.Heavy = s.largest() > heavyShare
	return s
}

// loadOf is the spread of the load; only the busiest keys are known.
func loadOf(st *Statistics) *Spread {
	s := &Spread{Distinct: len(st.Load), Top: []Share{}}
	for _, l := range st.Load {
		s.Top = append(s.Top, Share{Key: l.Key.String(), Part: float64(l.Units) / float64(st.LoadUnits)})
	}
	slices.SortFunc(s.Top, func(a, b Share) int {
		return cmp.Or(-cmp.Compare(a.Part, b.Part), cmp.Compare(a.Key, b.Key))
	})
	s.Top = s.Top[:min(len(s.Top), topShares)]
	s.Heavy = s.largest() > heavyShare
	return s
}

// crowdingOf looks for the new rows in the sample, in the key order that a permutation of it
// gives. It returns nil if new rows cannot be told from old ones.
func crowdingOf(sample []Row, order []int) *Crowding {
	versions := make([]int64, 0, len(sample))
	for i := range sample {
		if v := sample[i].Version; v > 0 {
			versions = append(versions, v)
		}
	}
	slices.Sort(versions)
	newest := max(int(newestShare*float64(len(sample))), leastNewest)
	if len(versions) < len(sample)/2 || len(versions) < 2*newest || versions[0] == versions[len(versions)-newest] {
		return nil
	}
	limit := versions[len(versions)-newest]
	isNew := func(i int) bool { return sample[order[i]].Version >= limit }
	width := max(len(order)/10, 1)
	var total, here, most int
	for i := range order {
		if isNew(i) {
			total++
			here++
		}
		if i >= width && isNew(i-width) {
			here--
		}
		most = max(most, here)
	}
	c := &Crowding{Rows: total, InTenth: float64(most) / float64(total)}
	c.Crowded = c.InTenth >= crowdedShare
	return c
}
