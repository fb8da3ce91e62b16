// Package report makes tables, verdicts and charts of records: medians over the
// rounds, ratios of runs of the same round, and whether the figures that
// Flagstone set itself are reached.
package report

import (
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// subject is whom the report is about.
const subject = runner.Subject

// line is all that was measured of one figure: the variants by name.
type line struct {
	name     string // of the figure
	workload string
	shape    workload.Shape
	unit     string
	apart    bool // not in the geometric mean
	series   map[string]*series
}

// series is one variant's figure in each round.
type series struct {
	variant  string
	engine   runner.EngineInfo
	encoding rowstore.Encoding
	rounds   map[int]workload.Figure
}

// results are records in order.
type results struct {
	header   runner.Header
	records  []runner.Record
	engines  map[string]runner.EngineInfo
	lines    []*line
	byName   map[string]*line
	failures []runner.Record
	ran      map[string]map[string]bool // workload, variant; failures too
	rounds   int
	variants []string
}

func gather(header runner.Header, records []runner.Record) *results {
	r := &results{header: header, records: records, engines: map[string]runner.EngineInfo{}, byName: map[string]*line{}}
	for _, e := range header.Engines {
		r.engines[e.Name] = e
	}
	order, apart := map[string]int{}, map[string]bool{}
	for i, s := range workload.All() {
		order[s.Name], apart[s.Name] = i, s.Apart
	}
	r.ran = map[string]map[string]bool{}
	for _, rec := range records {
		if r.ran[rec.Workload] == nil {
			r.ran[rec.Workload] = map[string]bool{}
		}
		r.ran[rec.Workload][rec.Variant] = true
		r.rounds = max(r.rounds, rec.Round)
		if rec.Error != "" {
			r.failures = append(r.failures, rec)
			continue
		}
		if !slices.Contains(r.variants, rec.Variant) {
			r.variants = append(r.variants, rec.Variant)
		}
		for _, f := range rec.Figures {
			r.line(&rec, &f).rounds[rec.Round] = f
		}
	}
	for _, l := range r.lines {
		l.apart = apart[l.workload]
	}
	slices.SortStableFunc(r.lines, func(a, b *line) int { return order[a.workload] - order[b.workload] })
	slices.SortFunc(r.variants, func(a, b string) int { return r.rank(a) - r.rank(b) })
	return r
}

// only is the results of one round.
func (r *results) only(round int) *results {
	return gather(r.header, slices.DeleteFunc(slices.Clone(r.records), func(rec runner.Record) bool { return rec.Round != round }))
}

// rank orders variants: Flagstone first, then as the header lists engines, their tunings,
// and encodings.
func (r *results) rank(variant string) int {
	const room = 100 // for the tunings and encodings of an engine
	tuned, encoding, _ := strings.Cut(variant, "+")
	name, tuning, _ := strings.Cut(tuned, "-")
	for i, e := range r.header.Engines {
		if name == e.Name {
			t := slices.IndexFunc(e.Tunings, func(t rowstore.Tuning) bool { return t.Name == tuning })
			enc := slices.Index([]rowstore.Encoding{rowstore.RowValue, rowstore.CellKeys, rowstore.Plain}, rowstore.Encoding(encoding))
			return room*i + 4*(t+1) + enc + 1
		}
	}
	return room * len(r.header.Engines)
}

// line returns the series that a record's figure belongs to.
func (r *results) line(rec *runner.Record, f *workload.Figure) *series {
	l := r.byName[f.Name]
	if l == nil {
		l = &line{name: f.Name, workload: rec.Workload, shape: rec.Shape, unit: f.Unit, series: map[string]*series{}}
		r.byName[f.Name] = l
		r.lines = append(r.lines, l)
	}
	s := l.series[rec.Variant]
	if s == nil {
		s = &series{variant: rec.Variant, engine: r.engines[rec.Engine], encoding: rec.Encoding, rounds: map[int]workload.Figure{}}
		l.series[rec.Variant] = s
	}
	return s
}

// median of some numbers; NaN of none.
func median(values []float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	values = slices.Clone(values)
	slices.Sort(values)
	n := len(values)
	return (values[n/2] + values[(n-1)/2]) / 2
}

// geomean is the geometric mean of the positive ones of some numbers; NaN of
// none.
func geomean(values []float64) float64 {
	sum, n := 0.0, 0
	for _, v := range values {
		if v > 0 && !math.IsInf(v, 0) {
			sum += math.Log(v)
			n++
		}
	}
	return math.Exp(sum / float64(n))
}

// of returns the median over the rounds of something of the figures; NaN if
// there are none.
func (s *series) of(get func(*workload.Figure) float64) float64 {
	if s == nil {
		return math.NaN()
	}
	var values []float64
	for _, f := range s.rounds {
		values = append(values, get(&f))
	}
	return median(values)
}

func headline(f *workload.Figure) float64 { return f.Headline() }

func (s *series) headline() float64 { return s.of(headline) }

// cpu is the processor time of an operation in microseconds, settling included.
func (s *series) cpu() float64 { return s.of((*workload.Figure).CPUPerOp) }

// stopped says whether a time limit ended any of the rounds.
func (s *series) stopped() bool {
	for _, f := range s.rounds {
		if f.Stopped {
			return true
		}
	}
	return false
}

// factor is by what a peer's throughput is multiplied when it stands for the
// best.
func (s *series) factor() float64 {
	if s.engine.Factor > 0 {
		return s.engine.Factor
	}
	return 1
}

// ratio is the median over the rounds of a rate of the subject over the
// peer's in the same round, the peer's multiplied by its factor.
func ratio(of, peer *series, rate func(*workload.Figure) float64) float64 {
	if of == nil || peer == nil {
		return math.NaN()
	}
	var ratios []float64
	for round, f := range of.rounds {
		if p, ok := peer.rounds[round]; ok && rate(&p) > 0 {
			ratios = append(ratios, rate(&f)/(rate(&p)*peer.factor()))
		}
	}
	return median(ratios)
}

// against is the comparison of the subject with the best of some peers: the one
// against which its ratio is least.
type against struct {
	peer  *series
	ratio float64 // NaN if there is no such peer
}

// best compares the subject's headline with those peers that are wanted.
func (l *line) best(wanted func(*series) bool) against { return l.bestBy(headline, wanted) }

func (l *line) bestBy(rate func(*workload.Figure) float64, wanted func(*series) bool) against {
	out := against{ratio: math.NaN()}
	if l == nil {
		return out
	}
	mine := l.series[subject]
	for _, s := range l.series {
		if s.engine.Name == subject || !wanted(s) {
			continue
		}
		x := ratio(mine, s, rate)
		if !math.IsNaN(x) && (out.peer == nil || x < out.ratio) {
			out = against{s, x}
		}
	}
	return out
}

func isLSM(s *series) bool { return s.engine.LSM }

// isA says whether a series is one of that engine.
func isA(engine string) func(*series) bool {
	return func(s *series) bool { return s.engine.Name == engine }
}

func (l *line) lsm() against   { return l.best(isLSM) }
func (l *line) bbolt() against { return l.best(isA("bbolt")) }

// written compares what was written with the time counted until the device had it.
func (l *line) written() against { return l.bestBy((*workload.Figure).RateWritten, isLSM) }

// workloadRatios returns the ratio to the best LSM peer of each workload of a
// shape that counts in the geometric mean, a workload of several phases once, with
// their geometric mean.
func (r *results) workloadRatios(shape workload.Shape) (names []string, ratios []float64) {
	byWorkload := map[string][]float64{}
	for _, l := range r.lines {
		if l.shape != shape || l.aside() || l.apart {
			continue
		}
		if x := l.lsm().ratio; !math.IsNaN(x) {
			if byWorkload[l.workload] == nil {
				names = append(names, l.workload)
			}
			byWorkload[l.workload] = append(byWorkload[l.workload], x)
		}
	}
	for _, name := range names {
		ratios = append(ratios, geomean(byWorkload[name]))
	}
	return names, ratios
}

// aside: the figure is not compared as a rate (reclaiming is judged by bytes).
func (l *line) aside() bool { return l.unit == workload.DeadUnits || l.unit == workload.Arrivals }

// extras lists the names of the series' extra figures.
func (s *series) extras() []string {
	var names []string
	for _, f := range s.rounds {
		for name := range f.Extra {
			if !slices.Contains(names, name) {
				names = append(names, name)
			}
		}
	}
	slices.Sort(names)
	return names
}
