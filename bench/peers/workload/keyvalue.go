package workload

// This file holds the key-value shape: one column per row, 16-byte keys.

import (
	"fmt"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// keyValue lists the workloads on values of one size.
func keyValue(set string, size int) []Spec {
	spec := func(name, about, from string, writes bool, threads int, run func(*env) error) Spec {
		return Spec{Name: set + "-" + name, About: about, Shape: KeyValue, Set: from, Writes: writes, Threads: threads,
			size: size, plain: true, order: spread, run: run}
	}
	fillseq := spec("fillseq", "put new keys in order", "", false, 1, runPut)
	fillseq.order = ascending
	all := []Spec{
		fillseq,
		spec("fillrandom", "put new keys in random order", "", false, 1, runPut),
		spec("overwrite", "put keys that exist, at random", set, true, 1, runOverwrite),
		spec("readrandom-g1", "get a random key", set, false, 1, runGetAll),
		spec("readrandom-g2", "get a random key", set, false, 2, runGetAll),
		spec("readmissing", "get keys that do not exist", set, false, 1, runGetMissing),
		spec("scan100", "100 keys from a random one on", set, false, 1, runRangeAll),
		spec("fullscan", "all keys", set, false, 1, runScanAll),
	}
	for _, y := range ycsb() {
		s := spec("ycsb-"+y.name, y.about, set, y.writes(), 2, func(e *env) error { return runYCSB(e, y) })
		all = append(all, s)
	}
	return all
}

// mixture is a YCSB core workload: how many of a hundred operations are what.
type mixture struct {
	name, about                        string
	read, update, insert, scan, modify int
	latest                             bool // newest keys are read most; else a zipfian choice
}

func (m *mixture) writes() bool { return m.update+m.insert+m.modify > 0 }

func ycsb() []mixture {
	return []mixture{
		{name: "a", about: "half read, half update, zipfian", read: 50, update: 50},
		{name: "b", about: "95% read, 5% update, zipfian", read: 95, update: 5},
		{name: "c", about: "read, zipfian", read: 100},
		{name: "d", about: "95% read of the latest, 5% insert", read: 95, insert: 5, latest: true},
		{name: "e", about: "95% scan of 1 to 100, 5% insert, zipfian", scan: 95, insert: 5},
		{name: "f", about: "half read, half read-modify-write, zipfian", read: 50, modify: 50},
	}
}

// runYCSB runs one of the mixtures. Each worker inserts keys of its own behind
// the loaded ones, and so knows which of the latest there are.
func runYCSB(e *env, m mixture) error {
	count, n := e.count(), uint64(e.spec.Threads)
	z := newSkew(count, !m.latest)
	op := func(w *worker, i uint64) (int, error) {
		pick := uint64(z.next(&w.random))
		if m.latest {
			// Rank r is the r-th newest key: this worker's insertions, and
			// before them the loaded keys from the last to the first.
			if pick < w.inserted {
				pick = uint64(count) + (w.inserted-1-pick)*n + uint64(w.id)
			} else {
				pick = uint64(count) - 1 - (pick - w.inserted)
			}
		}
		kind := w.random.below(100)
		w.kind = kindRead
		switch {
		case kind < m.read:
			return 1, w.getAll(pick, i%sampleEvery == 0)
		case kind < m.read+m.scan:
			rows, err := w.scan(w.maker.keyOf(pick), rowstore.Query{}, 0, 1+w.random.below(100), nil)
			if err == nil && rows == 0 {
				err = fmt.Errorf("workload: a scan from key %d on is empty", pick)
			}
			return 1, err
		}
		w.kind = kindWrite
		if kind < m.read+m.scan+m.insert {
			fresh := uint64(count) + w.inserted*n + uint64(w.id)
			w.inserted++
			return 1, w.session.Put(w.maker.keyOf(fresh), w.maker.all(fresh, baseVersion, 0))
		}
		pick = min(pick-pick%n, uint64(count)/n*n-n) + uint64(w.id)
		if m.modify > 0 {
			if err := w.getAll(pick, false); err != nil {
				return 0, err
			}
		}
		generation := uint32(i + 1)
		w.wrote(pick, 0, generation)
		return 1, w.session.Put(w.maker.keyOf(pick), w.maker.all(pick, baseVersion+int64(generation), generation))
	}
	if !m.writes() {
		return e.reads("", "operations", e.spec.Threads, op)
	}
	return e.timedMix(op)
}
