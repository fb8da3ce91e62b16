package ots

// This file counts the cost of requests per table (PROTOCOL 13.3). In each second, consumption
// up to the table's reserved throughput counts as reserved, the rest as additional. Counting
// refuses nothing. If the limits say so, requests are refused by the units per second of a
// partition key or of an instance, or by the reserved units of a table.

import (
	"hash/maphash"
	"strings"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// Throughput is the cost of the requests to a table since the service was opened, in capacity
// units, and how many requests were refused.
type Throughput struct {
	ReservedRead, ReservedWrite     int64
	AdditionalRead, AdditionalWrite int64
	Refused                         int64 // requests that got no units
}

// meter counts the units of one table.
type meter struct {
	mu          sync.Mutex
	second      int64 // the second of read and write
	read, write int64 // units used in that second
	total       Throughput
	busy        busyKeys
	recent      busyKeys // the same requests; they count half after newHalfLife

	refused busyKeys      // refusals by partition key and code, 1 each
	warned  time.Duration // when the log was last told of refusals
}

const (
	// leastRefused is the number of refusals per second, of a partition key or of other limits, that is worth a finding.
	leastRefused = 0.1
	// refusedHalfLife is the time in which a refusal loses half of its weight, refusedFinding how long the last one is worth
	// a finding, and refusedWarning how long the log is silent after a warning.
	refusedHalfLife = 20 * time.Second
	refusedFinding  = time.Minute
	refusedWarning  = time.Minute
)

// refuse counts a request that is refused with a code, and returns the error. partition is the key whose limit it met,
// the zero Value with another limit.
func (e *Engine) refuse(t *table, partition row.Value, code, message string) *Error {
	hash := maphash.String(e.seed, code)
	if partition.Type() != row.TypeNone {
		hash ^= e.partitionOf(t, partition).hash
	}
	m, now := e.meterOf(t), e.store.Elapsed()
	m.mu.Lock()
	m.total.Refused++
	m.refused.half = refusedHalfLife
	counted := m.refused.add(now, hash, partition, 1)
	counted.code, counted.last = code, now
	all, warns := m.total.Refused, m.total.Refused == 1 || now-m.warned >= refusedWarning
	if warns {
		m.warned = now
	}
	m.mu.Unlock()
	if warns {
		e.logger.Warn("requests are refused, they have no capacity units left", "table", t.info.Name, "code", code, "refused", all)
	}
	return &Error{Code: code, Message: message}
}

// partitionMeter counts the units of partition keys and of instances in the present second.
type partitionMeter struct {
	mu     sync.Mutex
	second int64
	used   map[partitionID]int64
}

// partitionID identifies a partition key. Two keys with the same ID would share a limit; with
// 64 bits of hash that does not happen.
type partitionID struct{ table, hash uint64 }

// partitionOf identifies a partition key.
func (e *Engine) partitionOf(t *table, key row.Value) partitionID {
	var h maphash.Hash
	h.SetSeed(e.seed)
	h.WriteByte(byte(key.Type()))
	if b := key.Bytes(); b != nil {
		h.Write(b)
	} else {
		h.Write(key.AppendPayload(nil))
	}
	return partitionID{t.info.ID, h.Sum64()}
}

// side is the kind of units that a request mainly uses.
type side int

const (
	reads side = iota
	writes
)

// admit refuses a request to a partition key that has used its units of this second, if that is
// enforced. It also refuses what admitTable refuses.
func (e *Engine) admit(t *table, partition row.Value, use side) *Error {
	if err := e.admitTable(t, use); err != nil {
		return err
	}
	if !e.limits.EnforceThroughput {
		return nil
	}
	if e.pressure.add(e.partitionOf(t, partition), e.store.WallMillis()/1000, 0) >= e.limits.PartitionKeyUnits {
		return e.refuse(t, partition, CodeCapacityUnitExhausted, "Capacity unit is not enough.")
	}
	return nil
}

// admitTable refuses a request to a table or an instance that has used its units of this
// second, if there is such a limit. An admitted request may cost more than what is left.
func (e *Engine) admitTable(t *table, use side) *Error {
	if e.limits.InstanceUnits > 0 && e.pressure.add(e.instanceOf(t), e.store.WallMillis()/1000, 0) >= e.limits.InstanceUnits {
		return e.refuse(t, row.Value{}, CodeCapacityUnitExhausted, "Capacity unit is not enough.")
	}
	if e.limits.ReservedOnly && e.meterOf(t).exhausted(t, use, e.store.WallMillis()/1000) {
		return e.refuse(t, row.Value{}, CodeNotEnoughCapacityUnit, "Remaining capacity unit is not enough.")
	}
	return nil
}

// exhausted reports whether a side of a table has reserved units and has used them in this
// second.
func (m *meter) exhausted(t *table, use side, second int64) bool {
	reserved := int64(t.ReservedRead)
	if use == writes {
		reserved = int64(t.ReservedWrite)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	used := m.read
	if use == writes {
		used = m.write
	}
	return reserved > 0 && m.second == counted(m.second, second) && used >= reserved
}

// instanceOf identifies the instance of a table among partition keys. No table has the ID 0.
func (e *Engine) instanceOf(t *table) partitionID {
	instance, _, _ := strings.Cut(t.info.Name, "/")
	return partitionID{0, maphash.String(e.seed, instance)}
}

// counted returns the second in which units count. A request that read the clock just before
// another request began the next second counts in the next, and does not end it.
func counted(current, second int64) int64 {
	if second == current-1 {
		return current
	}
	return second
}

// add counts units and returns the total of the ID in this second.
func (p *partitionMeter) add(id partitionID, second, units int64) int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	if second = counted(p.second, second); p.used == nil || second != p.second {
		p.second, p.used = second, map[partitionID]int64{}
	}
	used := p.used[id] + units
	if units > 0 {
		p.used[id] = used
	}
	return used
}

// chargeRow counts the cost of a request to one partition key.
func (e *Engine) chargeRow(t *table, partition row.Value, cost CapacityUnit) {
	e.charge(t, cost)
	e.noteBusy(t, partition, cost)
	if e.limits.EnforceThroughput {
		e.pressure.add(e.partitionOf(t, partition), e.store.WallMillis()/1000, int64(cost.Read)+int64(cost.Write))
	}
}

// meterOf returns the counters of a table.
func (e *Engine) meterOf(t *table) *meter {
	if found, ok := e.meters.Load(t.info.ID); ok {
		return found.(*meter)
	}
	fresh, _ := e.meters.LoadOrStore(t.info.ID, new(meter))
	return fresh.(*meter)
}

// charge counts the cost of a request to a table.
func (e *Engine) charge(t *table, cost CapacityUnit) {
	m, second := e.meterOf(t), e.store.WallMillis()/1000
	if e.limits.InstanceUnits > 0 {
		e.pressure.add(e.instanceOf(t), second, int64(cost.Read)+int64(cost.Write))
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if second = counted(m.second, second); second != m.second {
		m.second, m.read, m.write = second, 0, 0
	}
	split(&m.read, int64(cost.Read), int64(t.ReservedRead), &m.total.ReservedRead, &m.total.AdditionalRead)
	split(&m.write, int64(cost.Write), int64(t.ReservedWrite), &m.total.ReservedWrite, &m.total.AdditionalWrite)
}

// split adds a cost to the units used in this second, and to the totals.
func split(used *int64, cost, limit int64, reserved, additional *int64) {
	within := min(cost, max(limit-*used, 0))
	*used += cost
	*reserved += within
	*additional += cost - within
}

// Throughput returns the cost of the requests to a table so far.
func (e *Engine) Throughput(instance, name string) (Throughput, error) {
	t, bad := e.table(instance, name)
	if bad != nil {
		return Throughput{}, bad
	}
	found, ok := e.meters.Load(t.info.ID)
	if !ok {
		return Throughput{}, nil
	}
	m := found.(*meter)
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.total, nil
}
