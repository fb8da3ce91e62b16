package ots

// This file finds the partition keys that requests cost most, without counting
// all: the Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient
// computation of frequent and top-k elements in data streams", ICDT 2005). It
// keeps a fixed number of counters; a key that has none takes over the smallest,
// with its count. A key that has more than its share of a counter is never
// missed, and no count is too large by more than the count that was taken over.

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// busyCounters is how many keys of a table are counted.
	busyCounters = 64
	// busyRate is how many requests there are for each that is counted.
	busyRate = 8
)

// busyKeys are the busiest partition keys of a table.
type busyKeys struct {
	place map[uint64]int // of a key's hash among the counters
	list  []busyKey
	total int64 // units of all keys that were counted
}

type busyKey struct {
	hash  uint64
	key   row.Value
	units int64
	taken int64 // of them, those of keys before it
}

// add counts the units of a request.
func (b *busyKeys) add(hash uint64, key row.Value, units int64) {
	b.total += units
	if i, ok := b.place[hash]; ok {
		b.list[i].units += units
		return
	}
	if b.place == nil {
		b.place = make(map[uint64]int, busyCounters)
	}
	if len(b.list) < busyCounters {
		b.place[hash] = len(b.list)
		b.list = append(b.list, busyKey{hash: hash, key: key.Clone(), units: units})
		return
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
}

// noteBusy counts one request of busyRate, chosen at random so that no rhythm
// of requests hides any.
func (e *Engine) noteBusy(t *table, partition row.Value, cost CapacityUnit) {
	if rand.Uint32()%busyRate != 0 {
		return
	}
	hash := e.partitionOf(t, partition).hash
	m := e.meterOf(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	m.busy.add(hash, partition, int64(cost.Read)+int64(cost.Write))
}

// KeyStatistics gathers what is to be known about the primary key of a table:
// about so many rows that are spread over its bytes, and the partition keys that
// requests have cost most since the service was opened. Counts of units are
// lower bounds.
func (e *Engine) KeyStatistics(ctx context.Context, instance, name string, rows int) (*keydesign.Statistics, error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return nil, bad
	}
	sample, err := t.engine.Sample(ctx, rows)
	if err != nil {
		return nil, e.asError(err, "sample", name, false)
	}
	st := &keydesign.Statistics{Table: name, Bytes: t.engine.ApproximateSize(), LoadSince: time.UnixMilli(e.opened)}
	for _, k := range t.key {
		st.Columns = append(st.Columns, keydesign.Column{Name: k.Name, Type: k.Type})
	}
	for _, s := range sample {
		st.Sample = append(st.Sample, keydesign.Row{Key: s.Key, Bytes: s.Bytes, Version: s.Version})
	}
	m := e.meterOf(t)
	m.mu.Lock()
	defer m.mu.Unlock()
	st.LoadUnits = m.busy.total * busyRate
	for _, b := range m.busy.list {
		st.Load = append(st.Load, keydesign.KeyLoad{Key: b.key, Units: (b.units - b.taken) * busyRate})
	}
	return st, nil
}
