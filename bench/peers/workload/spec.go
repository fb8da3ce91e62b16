package workload

import (
	"strconv"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// Shape of the data.
type Shape string

const (
	// Rows of ten columns of 100 bytes, unless the workload says otherwise.
	Rows Shape = "row"
	// KeyValue pairs: rows of one column.
	KeyValue Shape = "key-value"
	// Growth: rows, as many as are asked for, in a memory that stays the same.
	Growth Shape = "growth"
	// Beyond memory: rows, four times as many bytes as the process may use.
	Beyond Shape = "beyond memory"
)

// The data sets that workloads start from. Each engine loads them once.
const (
	setRows   = "rows"
	setKV100  = "kv100"
	setKV1K   = "kv1k"
	setBeyond = "beyond"
)

// Spec is a workload.
type Spec struct {
	Name  string
	About string
	Shape Shape
	// Set is the data set it starts from, "" for none; Writes says that it
	// changes it, so it needs a copy.
	Set    string
	Writes bool
	// Threads that work at once.
	Threads int
	// Load marks the making of a data set, which is no workload.
	Load bool
	// Apart: compared like the others, but left out of the geometric mean, which is of
	// reading and writing rows.
	Apart bool

	sync        bool
	cold        bool
	maxVersions int
	ttl         time.Duration
	size        int // of a value
	bigSize     int // of the large value beside the usual ones, if there is one
	order       order
	plain       bool
	run         func(*env) error
}

func (s *Spec) columns() [][]byte {
	if s.plain {
		return plainColumns()
	}
	return columnNames(columnCount)
}

// Bounded says that the process's memory is bounded, page cache included.
func (s *Spec) Bounded() bool { return s.Shape == Beyond || s.Shape == Growth }

// Find returns the workload, or making of a data set, of that name.
func Find(name string) (Spec, bool) {
	for _, s := range append(All(), loads()...) {
		if s.Name == name {
			return s, true
		}
	}
	return Spec{}, false
}

// LoadName is the name under which a data set is made.
func LoadName(set string) string { return "load-" + set }

// loads are the makings of the data sets: batches of rows in random order.
func loads() []Spec {
	sets := []Spec{
		{Name: setRows, Shape: Rows, size: valueSize},
		{Name: setBeyond, Set: setBeyond, Shape: Beyond, size: valueSize},
		{Name: setKV100, Shape: KeyValue, size: 100, plain: true},
		{Name: setKV1K, Shape: KeyValue, size: 1024, plain: true},
	}
	for i := range sets {
		s := &sets[i]
		s.Name, s.Load, s.Threads, s.order, s.run = LoadName(s.Name), true, 1, spread, runLoad
	}
	return sets
}

// All returns every workload, in the order in which they are run: workloads of
// one data set next to each other.
func All() []Spec {
	var all []Spec
	all = append(all, rowWrites()...)
	all = append(all, rowReads()...)
	all = append(all, rowSpecial()...)
	for _, kv := range []struct {
		set  string
		size int
	}{{setKV100, 100}, {setKV1K, 1024}} {
		all = append(all, keyValue(kv.set, kv.size)...)
	}
	all = append(all, beyond()...)
	all = append(all, growth()...)
	for i := range all {
		s := &all[i]
		if s.Shape == "" {
			s.Shape = Rows
		}
		if s.Threads == 0 {
			s.Threads = 1
		}
		if s.size == 0 {
			s.size = valueSize
		}
	}
	return all
}

// threaded makes a spec per number of goroutines, named after it.
func threaded(s Spec, counts ...int) []Spec {
	var out []Spec
	for _, n := range counts {
		t := s
		t.Name += "-g" + strconv.Itoa(n)
		t.Threads = n
		out = append(out, t)
	}
	return out
}

func rowWrites() []Spec {
	var all []Spec
	all = append(all, threaded(Spec{Name: "putrow", About: "put new rows in random order, not synced",
		order: spread, run: runPut}, 1, 8)...)
	all = append(all, Spec{Name: "batch100", About: "put new rows in batches of 100",
		order: spread, run: runBatch})
	all = append(all, threaded(Spec{Name: "putsync", About: "put new rows, each durable when acknowledged",
		order: spread, sync: true, run: runPutSync}, 1, 16)...)
	all = append(all, Spec{Name: "overwrite", About: "put rows that exist, at random",
		Set: setRows, Writes: true, order: spread, run: runOverwrite})
	all = append(all, Spec{Name: "sustained", About: "overwrite three times as many rows as there are: tail of the latency",
		Set: setRows, Writes: true, order: spread, run: runSustained})
	all = append(all, Spec{Name: "openput", About: "overwrite random rows at fixed rates: latency from the intended moment",
		Set: setRows, Writes: true, Threads: 2, order: spread, run: runOpenPut})
	all = append(all, threaded(Spec{Name: "update1", About: "update one column of a random row",
		Set: setRows, Writes: true, order: spread, run: runUpdate}, 1, 8)...)
	all = append(all, threaded(Spec{Name: "mixed", About: "half get of all columns, half update of one, zipfian",
		Set: setRows, Writes: true, order: spread, run: runMixed}, 2, 8)...)
	return all
}

func rowReads() []Spec {
	read := func(name, about string, run func(*env) error) Spec {
		return Spec{Name: name, About: about, Set: setRows, order: spread, run: run}
	}
	var all []Spec
	all = append(all, threaded(read("getrow-all", "get all columns of a random row", runGetAll), 1, 2, 8)...)
	all = append(all,
		read("getrow-1col", "get one column of a random row", runGetOne),
		read("getrow-missing", "get rows that do not exist", runGetMissing))
	cold := read("getrow-cold", "get all columns after the page cache was dropped", runGetCold)
	cold.cold = true
	split := read("splitpoints", "keys that cut the store into pieces of a sixtieth", runSplitPoints)
	split.Apart = true // it reads no row
	return append(all, cold,
		read("range100-all", "100 rows from a random key on, all columns", runRangeAll),
		read("range100-1col", "100 rows from a random key on, one column", runRangeOne),
		read("scan-all", "all rows, all columns", runScanAll),
		read("scan-1col", "all rows, one column", runScanOne),
		split)
}

func rowSpecial() []Spec {
	versions := func(name string, kept int) Spec {
		return Spec{Name: name, About: "20 versions of a column written to each row, " + strconv.Itoa(kept) + " kept",
			maxVersions: kept, order: spread, run: runVersions}
	}
	ttl := func(name, about string, o order) Spec {
		return Spec{Name: name, About: about, ttl: ttlSeconds * time.Second, order: o, run: runTTL}
	}
	values := func(name string, size int) Spec {
		return Spec{Name: name, About: "rows of three small columns and one of " + strconv.Itoa(size>>10) + " KiB",
			bigSize: size, order: spread, run: runValues}
	}
	return []Spec{
		versions("versions1", 1), versions("versions10", 10),
		ttl("ttl-random", "70% of the rows expire, at random", spread),
		ttl("ttl-ordered", "the oldest 70% of time-ordered rows expire", ascending),
		{Name: "hotrow", About: "one row updated again and again, and read", order: spread, run: runHotRow},
		{Name: "widerow", About: "one row of very many columns (row encodings: a fiftieth of them)", order: spread, run: runWideRow},
		values("values64k", 64<<10), values("values1m", 1<<20),
	}
}

// Variant is an engine with a tuning ("" for none) and an encoding.
type Variant struct {
	// Name is "pebble-deep0+row": the engine, the tuning if there is one, and the encoding
	// unless the engine has rows of its own. Tuned is the name without the encoding.
	Name, Tuned string
	Tuning      string
	Encoding    rowstore.Encoding
}

// Variants are those of an engine that a workload of this shape runs on, the ones without
// a tuning first.
func (s *Spec) Variants(e rowstore.Engine) (all []Variant) {
	for _, tuning := range append([]rowstore.Tuning{{}}, e.Tunings...) {
		tuned := e.Name
		if tuning.Name != "" {
			tuned += "-" + tuning.Name
		}
		for _, enc := range e.Encodings {
			if (enc == rowstore.Plain) != (s.Shape == KeyValue) {
				continue
			}
			name := tuned
			if e.Encodings[0] != rowstore.Native {
				name += "+" + string(enc)
			}
			all = append(all, Variant{name, tuned, tuning.Name, enc})
		}
	}
	return all
}
