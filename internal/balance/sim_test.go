package balance

// A model of a store: one table, whose operations and data are played into meters and anchors, in
// simulated time. Plans are carried out at once.

import (
	"bytes"
	"fmt"
	"iter"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/row"
)

const (
	keys    = 20_000 // partition keys of the table
	opBytes = opUnits * load.UnitBytes
	opUnits = 16
)

// model is a table whose partition keys are the integers from 0 to keys.
type model struct {
	t        *testing.T
	rng      *rand.Rand
	settings Settings
	balancer *Balancer
	forgets  bool // children of a split begin with empty meters
	now      time.Duration
	parts    []part
	ids      uint64
	encoded  [][]byte
	bytes    []int64 // of the keys
	units    []int64 // of the partitions, in the last round

	splits, merges int
	acted          time.Duration // when the last of them was
	reports        []Report      // new ones
	plan           Plan          // the last one
}

type part struct {
	id       uint64
	from, to int
	meter    *load.Meter
	fixed    bool
}

func newModel(t *testing.T, seed uint64, s Settings) *model {
	m := &model{t: t, rng: rand.New(rand.NewPCG(seed, 0)), settings: s, balancer: New(s), bytes: make([]int64, keys)}
	for i := range int64(keys + 1) {
		k, err := row.AppendKey(nil, 2, row.Integer(i))
		if err != nil {
			t.Fatal(err)
		}
		m.encoded = append(m.encoded, k)
	}
	m.parts = []part{m.part(0, keys, load.New(2, 0))}
	return m
}

func (m *model) part(from, to int, meter *load.Meter) part {
	m.ids++
	return part{id: m.ids, from: from, to: to, meter: meter}
}

// round plays operations of one Interval, each on the key that pick chooses, and carries out the
// plan.
func (m *model) round(perSecond int, pick func() int) {
	m.units = make([]int64, len(m.parts))
	for i := range perSecond * int(Interval/time.Second) {
		k := pick()
		at := sort.Search(len(m.parts), func(i int) bool { return m.parts[i].to > k })
		m.units[at] += opUnits
		if i%3 == 0 {
			m.parts[at].meter.Write(uint32(i), m.encoded[k], opBytes)
		} else {
			m.parts[at].meter.Read(uint32(i), m.encoded[k], 1, opBytes)
		}
	}
	m.now += Interval
	m.plan = m.balancer.Plan(m.now, []Table{m.table()})
	m.carryOut()
}

// run plays rounds for a time.
func (m *model) run(d time.Duration, perSecond int, pick func() int) {
	for end := m.now + d; m.now < end; {
		m.round(perSecond, pick)
	}
}

func (m *model) table() Table {
	t := Table{ID: 1, Columns: 2}
	for i, p := range m.parts {
		var bounds [2][]byte
		if i > 0 {
			bounds[0] = m.encoded[p.from]
		}
		if i < len(m.parts)-1 {
			bounds[1] = m.encoded[p.to]
		}
		t.Partitions = append(t.Partitions, Partition{ID: p.id, Start: bounds[0], End: bounds[1], Bytes: m.size(p), Load: p.meter,
			NoSplit: p.fixed, NoMerge: p.fixed, Anchors: func(apart int64) iter.Seq2[[]byte, int64] { return m.anchors(p, apart) }})
	}
	return t
}

func (m *model) size(p part) (sum int64) {
	for _, b := range m.bytes[p.from:p.to] {
		sum += b
	}
	return sum
}

// anchors are as those of a table file: every so many bytes, also in the middle of a partition key.
func (m *model) anchors(p part, apart int64) iter.Seq2[[]byte, int64] {
	return func(yield func([]byte, int64) bool) {
		var since int64
		for k := p.from; k < p.to; k++ {
			for left := m.bytes[k]; left > 0; {
				step := min(left, apart-since)
				left, since = left-step, since+step
				if since == apart {
					second, _ := row.AppendKey(slices.Clone(m.encoded[k]), 2, row.Integer(left))
					if !yield(second, since) {
						return
					}
					since = 0
				}
			}
		}
		yield(m.encoded[p.to-1], since)
	}
}

func (m *model) carryOut() {
	m.t.Helper()
	if n := len(m.plan.Splits) + len(m.plan.Merges); n > m.balancer.settings.MaxActions {
		m.t.Fatalf("%d actions in one plan", n)
	}
	for _, s := range m.plan.Splits {
		i := slices.IndexFunc(m.parts, func(p part) bool { return p.id == s.Partition })
		v, err := row.DecodeKey(s.Key, 2)
		if i < 0 || err != nil || len(v) != 1 || s.Why == "" {
			m.t.Fatalf("split of partition %d at %x (%v): %v", s.Partition, s.Key, s.Why, err)
		}
		p, at := m.parts[i], int(v[0].Int64())
		if at <= p.from || at >= p.to || p.fixed {
			m.t.Fatalf("split of %d to %d at %d, fixed: %v", p.from, p.to, at, p.fixed)
		}
		left, right := p.meter.Divide(s.Key, m.now)
		if m.forgets {
			left, right = load.New(2, m.now), load.New(2, m.now)
		}
		m.parts = slices.Replace(m.parts, i, i+1, m.part(p.from, at, left), m.part(at, p.to, right))
		m.splits, m.acted = m.splits+1, m.now
	}
	for _, g := range m.plan.Merges {
		i := slices.IndexFunc(m.parts, func(p part) bool { return p.id == g.Left })
		if i < 0 || i+1 >= len(m.parts) || m.parts[i+1].id != g.Right || m.parts[i].fixed || m.parts[i+1].fixed {
			m.t.Fatalf("merge of %d and %d, which are no neighbours that may be merged", g.Left, g.Right)
		}
		l, r := m.parts[i], m.parts[i+1]
		m.parts = slices.Replace(m.parts, i, i+2, m.part(l.from, r.to, load.Join(l.meter, r.meter, m.now)))
		m.merges, m.acted = m.merges+1, m.now
	}
	for _, r := range m.plan.Reports {
		if r.New {
			m.reports = append(m.reports, r)
		}
	}
}

// still runs, and fails the test if anything is split, merged or newly reported.
func (m *model) still(d time.Duration, perSecond int, pick func() int) {
	m.t.Helper()
	splits, merges, reports := m.splits, m.merges, len(m.reports)
	m.run(d, perSecond, pick)
	if m.splits != splits || m.merges != merges || len(m.reports) != reports {
		m.t.Errorf("%d splits, %d merges and %d reports in %v after things had settled: %s",
			m.splits-splits, m.merges-merges, len(m.reports)-reports, d, m)
	}
}

func (m *model) String() string {
	var b bytes.Buffer
	for i, p := range m.parts {
		fmt.Fprintf(&b, " [%d %d): %.0f/s %d bytes;", p.from, p.to, p.meter.Look(m.now).Units(), m.size(p))
		if i > 40 {
			break
		}
	}
	return b.String()
}

// hot returns how many partitions, the busiest first, carry a part of the load of some rounds, and
// how many times the load of the last of them that of the first is.
func (m *model) hot(rounds, perSecond int, pick func() int, part float64) (n int, ratio float64) {
	sum := make([]float64, len(m.parts))
	var total float64
	for range rounds {
		m.round(perSecond, pick)
		if len(m.units) != len(sum) {
			m.t.Fatal("the partitions changed")
		}
		for i, u := range m.units {
			sum[i], total = sum[i]+float64(u), total+float64(u)
		}
	}
	slices.Sort(sum)
	slices.Reverse(sum)
	var carried float64
	for carried < part*total {
		carried += sum[n]
		n++
	}
	return n, sum[0] / sum[n-1]
}

// The patterns of access.

func (m *model) uniform() int { return m.rng.IntN(keys) }

// fiveOf95 is 95 % of the operations on 5 % of the keys, which follow each other from a key on or
// are spread.
func (m *model) fiveOf95(first, apart int) func() int {
	return func() int {
		if m.rng.IntN(100) < 95 {
			return (first + apart*m.rng.IntN(keys/20)) % keys
		}
		return m.rng.IntN(keys)
	}
}

// zipf is a few keys with much and many with little load; the busy ones are neighbours, or spread.
func (m *model) zipf(s float64, spread bool) func() int {
	z := rand.NewZipf(m.rng, s, 10, keys-1)
	return func() int {
		k := int(z.Uint64())
		if spread {
			k = k * 7919 % keys
		}
		return k
	}
}

// one is one key with most of the operations.
func (m *model) one(key, percent int) func() int {
	return func() int {
		if m.rng.IntN(100) < percent {
			return key
		}
		return m.rng.IntN(keys)
	}
}
