package console

import (
	"cmp"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

const (
	// heatStep is the time between two slices of a picture, and heatSlices how many are kept: half an hour.
	heatStep   = 10 * time.Second
	heatSlices = 180
	// heatTables is how many tables are recorded at once, the busiest.
	heatTables = 32
	// heatPoints is about half of the most points of a slice, heatRows of the most rows of a picture.
	heatPoints, heatRows = 16, 32
)

// heat is which partition keys were used, over time.
type heat struct {
	times  []int64            // of the slices, in milliseconds of a clock that may be set
	first  int                // number of the first of them
	tables map[string][]slice // by name; a table has no slice of a time at which it was idle
}

// slice is the load of a table at one time, in key order.
type slice struct {
	number int
	points []point
}

// point is the load of a key, or of the keys from it to the next point.
type point struct {
	key           row.Value
	many          bool // it is of several keys
	reads, writes float32
}

func (p *point) load() float32 { return p.reads + p.writes }

func (p *point) add(q *point) {
	p.reads, p.writes, p.many = p.reads+q.reads, p.writes+q.writes, p.many || q.many
}

// record adds a slice, and forgets the oldest if there are too many.
func (h *heat) record(now int64, keys map[string][]flagstone.LoadedKey) {
	if len(h.times) == heatSlices {
		h.times = slices.Delete(h.times, 0, 1)
		h.first++
	}
	h.times = append(h.times, now)
	number := h.first + len(h.times) - 1
	type busy struct {
		name   string
		points []point
		load   float32
	}
	var tables []busy
	for name, loaded := range keys {
		b := busy{name: name}
		for _, k := range loaded {
			p := point{key: instances.Shortened(k.Key), reads: float32(k.Reads), writes: float32(k.Writes)}
			p.many = len(p.key.Bytes()) < len(k.Key.Bytes()) // others may begin so, too
			b.points, b.load = append(b.points, p), b.load+p.load()
		}
		tables = append(tables, b)
	}
	slices.SortFunc(tables, func(a, b busy) int { return cmp.Or(cmp.Compare(b.load, a.load), cmp.Compare(a.name, b.name)) })
	for _, t := range tables[:min(len(tables), heatTables)] {
		h.tables[t.name] = append(h.tables[t.name], slice{number, gather(t.points, heatPoints)})
	}
	for name, list := range h.tables {
		list = slices.DeleteFunc(list, func(s slice) bool { return s.number < h.first })
		if h.tables[name] = list; len(list) == 0 {
			delete(h.tables, name)
		}
	}
	h.drop()
}

// drop forgets the tables that were idle for longest, if there are too many.
func (h *heat) drop() {
	for len(h.tables) > heatTables {
		oldest, number := "", 0
		for name, list := range h.tables {
			if last := list[len(list)-1].number; oldest == "" || last < number {
				oldest, number = name, last
			}
		}
		delete(h.tables, oldest)
	}
}

// gather joins points, which are in key order, until each has about an n-th of the load. A key that has as much alone
// stays alone. At most 2n+1 are left.
func gather(points []point, n int) (joined []point) {
	var total float32
	for i := range points {
		total += points[i].load()
	}
	share := total / float32(n)
	for i := 0; i < len(points); {
		p := points[i]
		for i++; i < len(points) && points[i].key.Equal(p.key); i++ {
			p.add(&points[i])
		}
		if last := len(joined) - 1; last >= 0 && joined[last].load() < share && p.load() < share {
			joined[last].add(&p)
			joined[last].many = true
			continue
		}
		joined = append(joined, p)
	}
	return joined
}

// Picture is the load of a table by time and key.
type Picture struct {
	StepSeconds float64   `json:"step_seconds"`
	Slots       int       `json:"slots"` // the most columns that there can be
	Times       []int64   `json:"times"` // of its columns, in milliseconds
	Rows        []HeatRow `json:"rows"`  // in key order
	// Reads and Writes are capacity units per second, by column and row. A column is empty while the table was idle.
	Reads  [][]float32 `json:"reads"`
	Writes [][]float32 `json:"writes"`
}

// HeatRow is a row of a picture: a partition key, or those from it to that of the next row.
type HeatRow struct {
	Key  string `json:"key"`
	Many bool   `json:"many"`
}

// picture shows a table. Its rows have about the same load, and a key with more has one of its own.
func (h *heat) picture(table string) *Picture {
	p := &Picture{StepSeconds: heatStep.Seconds(), Slots: heatSlices, Times: append([]int64{}, h.times...), Rows: []HeatRow{}}
	history := h.tables[table]
	var all []point
	for _, s := range history {
		all = append(all, s.points...)
	}
	slices.SortStableFunc(all, func(a, b point) int { return compareValues(a.key, b.key) })
	rows := gather(all, heatRows)
	for _, r := range rows {
		p.Rows = append(p.Rows, HeatRow{Key: instances.Value{Value: r.key}.Text(), Many: r.many})
	}
	for i := range h.times {
		reads, writes := []float32{}, []float32{}
		if at := slices.IndexFunc(history, func(s slice) bool { return s.number == h.first+i }); at >= 0 {
			reads, writes = history[at].over(rows)
		}
		p.Reads, p.Writes = append(p.Reads, reads), append(p.Writes, writes)
	}
	return p
}

// over spreads the load over rows: that of a key is in its row, and that of several keys is divided evenly between the
// rows of several keys up to that of the next point.
func (s *slice) over(rows []point) (reads, writes []float32) {
	reads, writes = make([]float32, len(rows)), make([]float32, len(rows))
	for i, x := range s.points {
		first, end := rowOf(rows, x.key), len(rows)
		if i+1 < len(s.points) {
			end = rowOf(rows, s.points[i+1].key)
		}
		covered := []int{first}
		for to := first + 1; x.many && to < end; to++ {
			if rows[to].many {
				covered = append(covered, to)
			}
		}
		for _, to := range covered {
			reads[to] += x.reads / float32(len(covered))
			writes[to] += x.writes / float32(len(covered))
		}
	}
	return reads, writes
}

// rowOf is the number of the row that a key is in.
func rowOf(rows []point, key row.Value) int {
	i, found := slices.BinarySearchFunc(rows, key, func(r point, key row.Value) int { return compareValues(r.key, key) })
	if !found {
		i = max(i-1, 0)
	}
	return i
}

func compareValues(a, b row.Value) int { return instances.CompareKeys([]row.Value{a}, []row.Value{b}) }
