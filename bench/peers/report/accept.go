package report

// This file judges the figures that Flagstone set itself: what it wants to reach
// against the best peers of the same run.

import (
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// verdict is one line of the acceptance table.
type verdict struct {
	goal    string
	figure  string // what was measured
	reached state
	note    string
	of      int    // figures that it is judged by
	rounds  [3]int // how many of those that have all of these are in each state by themselves
}

type state int

const (
	unknown state = iota // not measured in this run
	reached
	missed
)

func (s state) String() string { return [...]string{"not measured", "reached", "**missed**"}[s] }

// outcome says whether the goal is reached by what all rounds made together, and by how many of them alone.
func (v verdict) outcome() string {
	if of := v.rounds[reached] + v.rounds[missed]; v.reached == reached && v.rounds[missed] > 0 {
		return fmt.Sprintf("reached, in %d of %d rounds by itself", v.rounds[reached], of)
	}
	return v.reached.String()
}

// named is a value that is judged.
type named struct {
	name  string
	value float64
	peer  string
}

func judge(goal string, all []named, good func(float64) bool, worstLast func(a, b float64) int, format func(float64) string) verdict {
	all = slices.DeleteFunc(slices.Clone(all), func(n named) bool { return math.IsNaN(n.value) })
	v := verdict{goal: goal, of: len(all)}
	if len(all) == 0 {
		return v
	}
	slices.SortStableFunc(all, func(a, b named) int { return worstLast(b.value, a.value) })
	v.reached = reached
	var bad []string
	for _, n := range all {
		if !good(n.value) {
			v.reached = missed
			bad = append(bad, n.text(format))
		}
	}
	v.figure = all[0].text(format)
	if len(all) > 1 {
		v.figure = fmt.Sprintf("worst of %d: %s", len(all), v.figure)
	}
	if len(bad) > 1 {
		v.note = "missed by " + strings.Join(bad, ", ")
	}
	return v
}

func (n named) text(format func(float64) string) string {
	text := format(n.value)
	if n.name != "" {
		text += " (" + n.name
		if n.peer != "" {
			text += " / " + n.peer
		}
		text += ")"
	}
	return text
}

// larger and smaller order by what is worse: it comes last.
func larger(a, b float64) int {
	if a < b {
		return 1
	} else if a > b {
		return -1
	}
	return 0
}
func smaller(a, b float64) int { return larger(b, a) }

// atLeast judges that each ratio reaches a bound.
func atLeast(goal string, bound float64, all ...named) verdict {
	return judge(goal, all, func(x float64) bool { return x >= bound }, larger, times)
}

// meanAtLeast judges that the geometric mean of some ratios reaches a bound.
func meanAtLeast(goal string, bound float64, ratios []float64) verdict {
	v := atLeast(goal, bound, named{"", geomean(ratios), ""})
	v.of = len(ratios)
	return v
}

// atMost judges that each value stays within a bound.
func atMost(goal string, bound float64, format func(float64) string, all ...named) verdict {
	return judge(goal, all, func(x float64) bool { return x <= bound }, smaller, format)
}

// toLSM is the ratio of each figure to the best LSM peer.
func (r *results) toLSM(names ...string) []named {
	return r.compared(isLSM, names)
}

func (r *results) compared(peers func(*series) bool, names []string) []named {
	var out []named
	for _, name := range names {
		l := r.byName[name]
		if l == nil {
			continue
		}
		a := l.best(peers)
		if a.peer != nil {
			out = append(out, named{name, a.ratio, a.peer.variant})
		}
	}
	return out
}

// figuresOf lists the figures of a shape that are compared as rates.
func (r *results) figuresOf(shape workload.Shape) []string {
	var names []string
	for _, l := range r.shape(shape) {
		if !l.aside() {
			names = append(names, l.name)
		}
	}
	return names
}

var (
	getAll    = []string{"getrow-all-g1", "getrow-all-g2", "getrow-all-g8"}
	rangesAll = []string{"range100-all", "scan-all"}
	rangesOne = []string{"range100-1col", "scan-1col"}
	writesAll = []string{"putrow-g1", "putrow-g8", "batch100", "overwrite"}
)

// acceptance judges everything, by all rounds and by each.
func (r *results) acceptance() []verdict {
	all := r.goals()
	for round := range r.rounds {
		for i, v := range r.only(round + 1).goals() {
			if v.of == all[i].of {
				all[i].rounds[v.reached]++
			}
		}
	}
	return all
}

// goals judges everything.
func (r *results) goals() []verdict {
	_, rowRatios := r.workloadRatios(workload.Rows)
	_, kvRatios := r.workloadRatios(workload.KeyValue)
	var kvReads []string
	for _, set := range []string{"kv100-", "kv1k-"} {
		for _, name := range []string{"readrandom-g1", "readrandom-g2", "readmissing", "scan100", "fullscan", "ycsb-c"} {
			kvReads = append(kvReads, set+name)
		}
	}
	reads := slices.Concat(getAll, []string{"getrow-1col"}, rangesAll, rangesOne)
	v := []verdict{
		atLeast("rows: no workload below 1.1x of the best LSM peer", 1.1, r.toLSM(r.figuresOf(workload.Rows)...)...),
		meanAtLeast("rows: geometric mean over all workloads but split points at least 2x", 2, rowRatios),
		atLeast("get of all columns at least 2x", 2, r.toLSM(getAll...)...),
		atLeast("get of one column at least 2.5x", 2.5, r.toLSM("getrow-1col")...),
		atLeast("range and scan at least 1.5x", 1.5, r.toLSM(rangesAll...)...),
		atLeast("range and scan of one column at least 2x", 2, r.toLSM(rangesOne...)...),
		atLeast("each of these at least 0.8x of bbolt", 0.8, r.compared(isA("bbolt"), reads)...),
		atLeast("update of one column at least 1.2x", 1.2, r.toLSM("update1-g1", "update1-g8")...),
		atLeast("put, batch and overwrite at least 1.2x, settling included", 1.2, r.toLSM(writesAll...)...),
		atLeast("put with sync, one writer, at least 1.5x", 1.5, r.toLSM("putsync-g1")...),
		atLeast("put with sync, sixteen writers, at least 1.2x", 1.2, r.toLSM("putsync-g16")...),
		atLeast("missing rows at least 1.0x", 1, r.toLSM("getrow-missing")...),
		atLeast("one column of a million at least 2x", 2, r.toLSM("widerow/get-one")...),
		atLeast("split points at least 10x", 10, r.toLSM("splitpoints")...),
	}
	v = append(v, r.reclaiming()...)
	v = append(v, r.bothHalves()...)
	v = append(v,
		atLeast("key-value: no workload below 1.0x of the best LSM peer", 1, r.toLSM(r.figuresOf(workload.KeyValue)...)...),
		meanAtLeast("key-value: geometric mean at least 1.7x", 1.7, kvRatios),
		atLeast("key-value: reads and scans from memory at least 1.3x", 1.3, r.toLSM(kvReads...)...),
	)
	v = append(v, r.tails()...)
	v = append(v, r.memory()...)
	v = append(v, r.bytes()...)
	v = append(v,
		atLeast("data at four times the memory: get and range at least 1.0x", 1, r.toLSM("beyond/get", "beyond/range100")...),
		atMost("no heap allocation per put (below 0.05, background included)", 0.05, digits, r.mine(allocs, "putrow-g1")...),
		atMost("at most two heap allocations per get of ten columns", 2, digits, r.mine(allocs, "getrow-all-g1")...),
	)
	return v
}

func allocs(f *workload.Figure) float64     { return f.Allocs }
func writeBytes(f *workload.Figure) float64 { return float64(f.WriteBytes) }
func spaceBytes(f *workload.Figure) float64 { return float64(f.Space) }
func dataBytes(f *workload.Figure) float64  { return float64(f.Space - f.LogSpace) }

// mine is something of the subject's figures.
func (r *results) mine(get func(*workload.Figure) float64, figures ...string) (out []named) {
	for _, name := range figures {
		if l := r.byName[name]; l != nil {
			out = append(out, named{name, l.series[subject].of(get), ""})
		}
	}
	return out
}

// reclaiming judges the bytes rewritten to give back the space of expired data.
// Who gave back less than half of what was expired rewrote little because of that: a
// peer has no figure then, and the subject has missed. What the data takes is the
// space of the leanest engine before: the others' holds logs and garbage too.
func (r *results) reclaiming() []verdict {
	const expired = 0.7 // of the data
	before := func(f *workload.Figure) float64 { return f.Extra["space_before"] }
	rewritten := func(name string) (mine, leanest, share float64, peer string) {
		mine, leanest, share = math.NaN(), math.NaN(), math.NaN()
		l := r.byName[name]
		if l == nil || l.series[subject] == nil {
			return
		}
		data := math.Inf(1)
		for _, s := range l.series {
			if isLSM(s) {
				data = min(data, s.of(before))
			}
		}
		gaveBack := func(s *series) bool { return s.of(before)-s.of(spaceBytes) >= expired/2*data }
		mine = l.series[subject].of(writeBytes)
		if !gaveBack(l.series[subject]) {
			mine = math.Inf(1)
		}
		share = mine / data
		if _, least := l.toLeast(writeBytes, func(s *series) bool { return isLSM(s) && gaveBack(s) }); least != nil {
			leanest, peer = least.of(writeBytes), least.variant
		}
		return
	}
	mb := func(x float64) string {
		if math.IsInf(x, 1) {
			return "less than half given back"
		}
		return megabytes(x) + " MB"
	}
	mine, leanest, share, peer := rewritten("ttl-ordered/reclaim")
	ordered := atMost("TTL, time-ordered: reclaim rewrites at most a tenth of the bytes", 0.1,
		func(x float64) string { return fmt.Sprintf("%.3f of the data", x) }, named{"", share, ""})
	if ordered.reached != unknown {
		ordered.note = fmt.Sprintf("%s; leanest peer %s: %s", mb(mine), peer, mb(leanest))
	}
	mine, leanest, _, peer = rewritten("ttl-random/reclaim")
	random := atMost("TTL, random: reclaim rewrites no more than the best peer", 1, times, named{"bytes", mine / leanest, peer})
	if random.reached != unknown {
		random.note = fmt.Sprintf("%s against %s", mb(mine), mb(leanest))
	}
	return []verdict{ordered, random}
}

// bothHalves judges what no peer has: writes as fast as the best one-key-per-cell
// encoding and reads as fast as the best row-as-one-value, on one store.
func (r *results) bothHalves() []verdict {
	cell := func(s *series) bool { return s.engine.LSM && s.encoding == rowstore.CellKeys }
	row := func(s *series) bool { return s.engine.LSM && s.encoding == rowstore.RowValue }
	return []verdict{
		atLeast("both halves: updates as fast as one key per cell (versions, hot row)", 1,
			r.compared(cell, []string{"versions1/update", "versions10/update", "hotrow/update", "update1-g1"})...),
		atLeast("both halves: reads as fast as row as one value (versions, hot row)", 1,
			r.compared(row, []string{"versions1/get-newest", "versions10/get-newest", "hotrow/get-flushed", "hotrow/get-updated"})...),
		atLeast("both halves: mixed as fast as the best of both", 1, r.toLSM("mixed-g2", "mixed-g8")...),
	}
}

// tails judges the slowest puts of sustained overwriting.
func (r *results) tails() []verdict {
	p999 := func(f *workload.Figure) float64 { return f.P999 }
	longest := func(f *workload.Figure) float64 { return f.Max / 1e3 }
	tail := named{value: math.NaN()}
	if l := r.byName["sustained"]; l != nil {
		if peer := l.best(isA("pebble")).peer; peer != nil {
			tail = named{fmt.Sprintf("%s us against %s us", count(l.series[subject].of(p999)), count(peer.of(p999))),
				l.series[subject].of(p999) / peer.of(p999), peer.variant}
		}
	}
	open := named{value: math.NaN()}
	if l := r.byName["openput/80"]; l != nil {
		var peer *series
		if open, peer = l.toLeast(p999, isLSM); peer != nil {
			open.name = fmt.Sprintf("%s us against %s us", count(l.series[subject].of(p999)), count(peer.of(p999)))
		}
	}
	return []verdict{
		atMost("p99.9 of puts at 80% of capacity at most half of the best LSM peer's", 0.5, times, open),
		atMost("p99.9 of sustained overwriting at most half of Pebble's", 0.5, times, tail),
		atMost("no put pauses above 100 ms", 100, func(x float64) string { return digits(x) + " ms" },
			r.mine(longest, "sustained", "kv100-fillrandom", "kv100-overwrite", "kv1k-fillrandom", "kv1k-overwrite", "putrow-g1", "putrow-g8", "overwrite")...),
	}
}

// toLeast is how many times the subject's figure is that of the peer that has the least. It is NaN, without
// a peer, if nothing can be compared.
func (l *line) toLeast(of func(*workload.Figure) float64, peers func(*series) bool) (ratio named, least *series) {
	ratio = named{l.name, math.NaN(), ""}
	mine := l.series[subject]
	if mine == nil {
		return ratio, nil
	}
	for _, s := range l.series {
		if s.engine.Name == subject || !peers(s) {
			continue
		}
		if x := s.of(of); !math.IsNaN(x) && (least == nil || x < least.of(of)) {
			ratio.value, ratio.peer, least = mine.of(of)/x, s.variant, s
		}
	}
	return ratio, least
}

// memory judges peak memory over the row workloads that load and read rows of
// the usual size: anonymous memory, since pages of mapped files are the kernel's.
func (r *results) memory() []verdict {
	anon := func(f *workload.Figure) float64 { return float64(f.PeakAnon) }
	mb := func(x float64) string { return digits(x/1e6) + " MB" }
	var mine, over []named
	for _, l := range r.shape(workload.Rows) {
		if l.aside() || strings.HasPrefix(l.name, "values") || strings.HasPrefix(l.name, "widerow") || l.series[subject] == nil {
			continue
		}
		x := l.series[subject].of(anon)
		mine = append(mine, named{l.name, x, ""})
		leanest, _ := l.toLeast(anon, isLSM)
		over = append(over, leanest)
	}
	s := r.header.Settings
	budget := float64(s.Cache + memtables*s.Memtable)
	return []verdict{
		atMost(fmt.Sprintf("peak memory at most the budget (%s: cache and %d memtables) plus 20%%", mb(budget), memtables), 1.2*budget, mb, mine...),
		atMost("peak memory at most 1.3x of the leanest LSM peer's", 1.3, times, over...),
	}
}

// memtables is how many memtables' worth of memory Flagstone is configured to
// use, those being flushed included.
const memtables = 3

// bytes judges bytes written and space beside the variant of Pebble that takes the least of each.
func (r *results) bytes() []verdict {
	beside := func(goal string, of func(*workload.Figure) float64) verdict {
		var ratios []named
		for _, name := range slices.Concat(writesAll, []string{"sustained", "update1-g1", "versions1/update", "versions10/update", "ttl-random/load"}) {
			if l := r.byName[name]; l != nil {
				ratio, _ := l.toLeast(of, isA("pebble"))
				ratios = append(ratios, ratio)
			}
		}
		return atMost(goal, 1.0, times, ratios...)
	}
	return []verdict{
		beside("bytes written not above Pebble's", writeBytes),
		beside("space not above Pebble's, logs included", spaceBytes),
		beside("space not above Pebble's, without logs", dataBytes),
	}
}
