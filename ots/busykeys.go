package ots

// This file finds the partition keys that cost most, without a counter for each: the
// Space-Saving algorithm of Metwally, Agrawal and El Abbadi ("Efficient computation of frequent
// and top-k elements in data streams", ICDT 2005). It keeps a fixed number of counters; a key
// without one takes over the smallest, with its count. A key with more than 1/busyCounters of
// all units is never missed, and no count is too large by more than the count that was taken
// over.

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/flagstone-db/flagstone/keydesign"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// busyCounters is the number of keys per table that have a counter.
	busyCounters = 64
	// busyRate is the sampling rate: about one request in busyRate is counted.
	busyRate = 8
)

// busyKeys are the busiest partition keys of a table.
type busyKeys struct {
	place map[uint64]int // index into list by the key's hash
	list  []busyKey
	total int64 // of all counted requests
}

type busyKey struct {
	hash  uint64
	key   row.Value
	units int64
	taken int64 // the part of units that earlier keys of this counter left
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

// noteBusy counts about one request in busyRate. It picks at random, so that no periodic
// pattern of requests escapes.
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

// KeyStatistics describes the primary key of a table: about the given number of rows, spread
// over the bytes of the table, and the partition keys that cost most since the service was
// opened. Counts of units are lower bounds.
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
