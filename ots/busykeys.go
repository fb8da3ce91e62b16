package ots

// This file finds the partition keys that cost most, without a counter for each: the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent
// and top-k elements in data streams", ICDT 2005). It keeps a fixed number of counters; a key
// without one takes over the smallest, with its count. A key with more than 1/busyCounters of
// all units is never missed, and no count is too large by more than the count that was taken
// over. Units decay forward (Cormode, Shkapenyuk, Srivastava and Xu, "Forward decay", ICDE 2009): a
// later request weighs more, instead of all earlier ones less.

import (
	"cmp"
	"context"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// busyCounters is the number of keys per table that have a counter.
	busyCounters = 64
	// busyRate is the sampling rate: about one request in busyRate is counted.
	busyRate = 8
	// busyHalfLife is the time in which a request loses half of its weight, and newHalfLife that of the units that a new
	// load is judged by.
	busyHalfLife, newHalfLife = 10 * time.Minute, 20 * time.Second
	// newTimes: a load is new if it has so many times the rate of the longer average.
	newTimes = 2
	// busySpread is over how many rows of a page its cost is spread.
	busySpread = 16
	// busyRescale is after how many half-lives weights are made small again.
	busyRescale = 64
)

// busyKeys are the busiest partition keys of a table.
type busyKeys struct {
	place map[uint64]int // index into list by the key's hash
	list  []busyKey
	total float64 // of all counted requests

	half  time.Duration // in which a request loses half of its weight; 0 is busyHalfLife
	begun time.Duration // the first request was counted
	unit  time.Duration // a request at this moment weighs its units
}

type busyKey struct {
	hash  uint64
	key   row.Value
	units float64
	taken float64 // the part of units that earlier keys of this counter left

	code string        // of refusals
	last time.Duration // when the last refusal was
}

func (b *busyKeys) halfLife() time.Duration { return cmp.Or(b.half, busyHalfLife) }

// age is what a request at the moment unit is worth now.
func (b *busyKeys) age(now time.Duration) float64 {
	return math.Exp2(-float64(now-b.unit) / float64(b.halfLife()))
}

// add counts the cost of a request and returns the counter, which is the key's until the next call.
func (b *busyKeys) add(now time.Duration, hash uint64, key row.Value, cost float64) *busyKey {
	if b.place == nil {
		b.place = make(map[uint64]int, busyCounters)
		b.begun, b.unit = now, now
	}
	if now-b.unit >= busyRescale*b.halfLife() {
		b.rescale(now)
	}
	units := cost / b.age(now)
	b.total += units
	if i, ok := b.place[hash]; ok {
		b.list[i].units += units
		return &b.list[i]
	}
	if len(b.list) < busyCounters {
		b.place[hash] = len(b.list)
		b.list = append(b.list, busyKey{hash: hash, key: key.Clone(), units: units})
		return &b.list[len(b.list)-1]
	}
	least := 0
	for i := range b.list {
		if b.list[i].units < b.list[least].units {
			least = i
		}
	}
	over := &b.list[least]
	delete(b.place, over.hash)
	b.place[hash] = least
	*over = busyKey{hash: hash, key: key.Clone(), units: over.units + units, taken: over.units}
	return over
}

// units is the cost of about all requests, not only of those that were counted, and rate what it is per second.
func (b *busyKeys) units(now time.Duration) float64 { return b.total * busyRate * b.age(now) }
func (b *busyKeys) rate(now time.Duration) float64 {
	return b.units(now) / max(b.over(now), time.Second).Seconds()
}

// rescale makes weights relative to another moment.
func (b *busyKeys) rescale(now time.Duration) {
	kept := b.age(now)
	b.total *= kept
	for i := range b.list {
		b.list[i].units *= kept
		b.list[i].taken *= kept
	}
	b.unit = now
}

// over is the time in which a steady load adds up to what is counted now.
func (b *busyKeys) over(now time.Duration) time.Duration {
	since := float64(now-b.begun) / float64(b.halfLife())
	return time.Duration(float64(b.halfLife()) / math.Ln2 * (1 - math.Exp2(-since)))
}

// countsBusy reports whether a request is counted: about one in busyRate. It picks at random, so that no periodic
// pattern of requests escapes.
func countsBusy() bool { return rand.Uint32()%busyRate == 0 }

// noteBusy counts a request if countsBusy says so.
func (e *Engine) noteBusy(t *table, partition row.Value, cost CapacityUnit) {
	if countsBusy() {
		e.addBusy(t, []row.Value{partition}, cost)
	}
}

// addBusy counts a request, with the same part of its cost for each of these partition keys, at most busySpread.
func (e *Engine) addBusy(t *table, partitions []row.Value, cost CapacityUnit) {
	var hashes [busySpread]uint64
	for i, p := range partitions {
		hashes[i] = e.partitionOf(t, p).hash
	}
	m, now := e.meterOf(t), e.store.Elapsed()
	m.mu.Lock()
	defer m.mu.Unlock()
	m.recent.half = newHalfLife
	each := (float64(cost.Read) + float64(cost.Write)) / float64(len(partitions))
	for i, p := range partitions {
		m.busy.add(now, hashes[i], p, each)
		m.recent.add(now, hashes[i], p, each)
	}
}

// pageKeys are the partition keys of a random sample of the rows of a page that is counted.
type pageKeys struct {
	counts bool
	rows   int
	keys   []row.Value
}

// add takes the next row into the sample, or leaves it out.
func (k *pageKeys) add(partition row.Value) {
	if !k.counts {
		return
	}
	k.rows++
	if len(k.keys) < busySpread {
		k.keys = append(k.keys, partition.Clone())
	} else if i := rand.IntN(k.rows); i < busySpread {
		k.keys[i] = partition.Clone()
	}
}

// KeyStatistics describes the primary key of a table: about the given number of rows, spread
// over the bytes of the table, and the partition keys that cost most lately: a request counts half
// after busyHalfLife, or after newHalfLife if the load is new. Counts of units are lower bounds.
func (e *Engine) KeyStatistics(ctx context.Context, instance, name string, rows int) (*keydesign.Statistics, error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return nil, bad
	}
	sample, err := t.engine.Sample(ctx, rows)
	if err != nil {
		return nil, e.asError(err, "sample", name, false)
	}
	st := &keydesign.Statistics{Table: name, Bytes: t.engine.ApproximateSize()}
	for _, k := range t.key {
		st.Columns = append(st.Columns, keydesign.Column{Name: k.Name, Type: k.Type})
	}
	for _, s := range sample {
		st.Sample = append(st.Sample, keydesign.Row{Key: s.Key, Bytes: s.Bytes, Version: s.Version, Own: s.Own})
	}
	var rowRate, byteRate float64
	for _, p := range t.engine.Partitions() {
		rowRate, byteRate = rowRate+p.Reads+p.Writes, byteRate+p.ByteRate
		for _, f := range p.Findings {
			if f.Kind == flagstone.PassedRows {
				st.Passed.Rate, st.Passed.Returned = st.Passed.Rate+f.Figure, st.Passed.Returned+p.Reads
			}
		}
	}
	if rowRate >= leastRows {
		st.RowBytes = byteRate / rowRate
	}
	e.meterOf(t).load(st, e.store.Elapsed())
	if len(t.key) == 1 || st.LoadUnits < keydesign.LeastLoad { // a key has one row, or no load is judged
		return st, nil
	}
	for i := range st.Load {
		of := &st.Load[i]
		if of.Units*ownShare < st.LoadUnits {
			break
		}
		own, err := t.engine.SampleKey(ctx, of.Key, ownRows)
		if err != nil {
			return nil, e.asError(err, "sample", name, false)
		}
		for _, s := range own {
			of.Rows = append(of.Rows, keydesign.Row{Key: s.Key, Bytes: s.Bytes})
		}
	}
	return st, nil
}

const (
	// ownRows is about how many rows of a partition key are looked at that has 1/ownShare of the load or more.
	ownRows, ownShare = 1000, 100
	// leastRows is how many rows per second must be read and written for their size to be known.
	leastRows = 0.05
)

// load adds what requests cost lately, the busiest partition key first.
func (m *meter) load(st *keydesign.Statistics, now time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	busy := &m.busy
	if recent := &m.recent; recent.units(now) >= keydesign.LeastLoad && recent.rate(now) >= newTimes*busy.rate(now) {
		busy = recent
	}
	worth := busyRate * busy.age(now)
	st.LoadUnits, st.LoadOver = int64(busy.units(now)), busy.over(now)
	for _, b := range busy.list {
		st.Load = append(st.Load, keydesign.KeyLoad{Key: b.key, Units: int64((b.units - b.taken) * worth)})
	}
	slices.SortStableFunc(st.Load, func(a, b keydesign.KeyLoad) int { return cmp.Compare(b.Units, a.Units) })
	if key, code, rate := m.refusals(now); rate > 0 {
		st.Refused = keydesign.Refusals{Rate: rate, Code: code}
		if key.Type() != row.TypeNone {
			st.Refused.Key = key.String()
		}
	}
}

// refusals is Engine.Refusals. REQUIRES: mu is held.
func (m *meter) refusals(now time.Duration) (key row.Value, code string, rate float64) {
	r := &m.refused
	worth := r.age(now) / max(r.over(now), time.Second).Seconds()
	for _, b := range r.list {
		if of := (b.units - b.taken) * worth; of >= leastRefused && of > rate && now-b.last <= refusedFinding {
			key, code, rate = b.key, b.code, of
		}
	}
	return key, code, rate
}

// Refusals returns the most frequent refusals of requests to a table: the partition key, the zero Value if the limit is not that
// of one key, the code, and how many per second there were lately.
func (e *Engine) Refusals(t *flagstone.Table) (key row.Value, code string, rate float64) {
	found, ok := e.meters.Load(t.Info().ID)
	if !ok {
		return key, "", 0
	}
	m := found.(*meter)
	m.mu.Lock()
	defer m.mu.Unlock()
	key, code, rate = m.refusals(e.store.Elapsed())
	return key, code, rate
}
