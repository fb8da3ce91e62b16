package rowcache

import "sync/atomic"

// gate decides whether gets look up rows. A lookup that finds nothing costs a miss or two of the processor's caches,
// 3 to 12% of a get. Where lookups find too little, because all rows are read alike, the gate closes: then one get in
// some sixty looks up its row. A partition shares its gates with one in 32 others. Rows that memtables have something of,
// and often all, have gates of their own.
//
// Gates belong to the cache and not to a reader: readers go from store to store, and what a seed makes a store do
// would depend on where its readers were.
type gate struct {
	unpaid  atomic.Int32 // misses for which no hit made up, up to mostUnpaid
	_       [60]byte     // unpaid rarely changes, so readers share its cache line
	skipped atomic.Uint32
	_       [60]byte
}

const (
	// gates: 32 kinds of partitions, each with 8 parts of its rows, so that few processors count in the same one,
	// of which memtables have something or nothing.
	gates = 32 * 8 * 2
	// mostUnpaid misses close the gate.
	mostUnpaid = 64
	// lookupEvery: behind a closed gate, one get in so many looks up its row.
	lookupEvery = 61
	// A hit pays for so many misses, where it saves the reading of a block, and where it saves a merge of runs.
	hitPays, mergedHitPays = 8, 32
)

func (c *Cache) gate(hash uint64, at *Moment) *gate {
	i := at.Tree*0x9E3779B97F4A7C15>>59<<4 | hash>>61<<1
	if at.Newest > 0 {
		i |= 1
	}
	return &c.gates[i]
}

// Pays reports whether a get is to look up the row, and to offer it if it is not there.
func (c *Cache) Pays(hash uint64, at *Moment) bool {
	g := c.gate(hash, at)
	return g.open() || g.skipped.Add(1)%lookupEvery == 0
}

func (g *gate) open() bool { return g.unpaid.Load() < mostUnpaid }

func (g *gate) missed() { g.count(1) }

func (g *gate) hit(merged bool) {
	if merged {
		g.count(-mergedHitPays)
	} else {
		g.count(-hitPays)
	}
}

// count may lose what others count at the same time.
func (g *gate) count(n int32) {
	before := g.unpaid.Load()
	if after := min(max(before+n, 0), mostUnpaid); after != before {
		g.unpaid.Store(after)
	}
}
