package ots

// This file counts what the requests to each table have cost (PROTOCOL 13.3):
// in each second, consumption up to the table's reserved throughput is reserved,
// and the rest is additional. It counts and refuses nothing.

import "sync"

// Throughput is what the requests to a table have cost since the service was
// opened, in capacity units.
type Throughput struct {
	ReservedRead, ReservedWrite     int64
	AdditionalRead, AdditionalWrite int64
}

// meter counts for one table.
type meter struct {
	mu          sync.Mutex
	second      int64 // the one that read and write belong to
	read, write int64 // consumed in it
	total       Throughput
}

// charge counts what a request has cost a table.
func (e *Engine) charge(t *table, cost CapacityUnit) {
	found, ok := e.meters.Load(t.info.ID)
	if !ok {
		found, _ = e.meters.LoadOrStore(t.info.ID, new(meter))
	}
	m, second := found.(*meter), e.store.WallMillis()/1000
	m.mu.Lock()
	defer m.mu.Unlock()
	if second != m.second {
		m.second, m.read, m.write = second, 0, 0
	}
	split(&m.read, int64(cost.Read), int64(t.ReservedRead), &m.total.ReservedRead, &m.total.AdditionalRead)
	split(&m.write, int64(cost.Write), int64(t.ReservedWrite), &m.total.ReservedWrite, &m.total.AdditionalWrite)
}

// split adds a cost to what was used in this second, and to the totals.
func split(used *int64, cost, limit int64, reserved, additional *int64) {
	within := min(cost, max(limit-*used, 0))
	*used += cost
	*reserved += within
	*additional += cost - within
}

// Throughput returns what the requests to a table have cost.
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
