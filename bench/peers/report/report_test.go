package report

import (
	"bytes"
	"encoding/xml"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// header of a run with Flagstone, a peer, a peer whose figures count more, and
// bbolt.
func header() runner.Header {
	return runner.Header{
		Settings: runner.Settings{Rows: 1000, Memtable: 64 << 20, Cache: 256 << 20},
		Engines: []runner.EngineInfo{
			{Name: "flagstone", LSM: true, Factor: 1}, {Name: "pebble", LSM: true, Factor: 1},
			{Name: "rocksdb", LSM: true, Factor: 1.6}, {Name: "bbolt", Factor: 1},
		},
	}
}

// record makes a record of one figure with a rate.
func record(round int, figure, engine string, encoding rowstore.Encoding, rate float64, change ...func(*workload.Figure)) runner.Record {
	name, _, _ := strings.Cut(figure, "/")
	spec, _ := workload.Find(name)
	variant := engine
	if encoding != rowstore.Native {
		variant += "+" + string(encoding)
	}
	f := workload.Figure{Name: figure, Unit: "rows", Ops: 1, Seconds: 1, Rate: rate}
	for _, c := range change {
		c(&f)
	}
	return runner.Record{
		Round: round, Workload: name, Shape: spec.Shape, Variant: variant, Engine: engine, Encoding: encoding,
		Figures: []workload.Figure{f},
	}
}

func TestRatioIsTheMedianOfRoundsAgainstTheBestPeer(t *testing.T) {
	var records []runner.Record
	for round, rates := range [][3]float64{{300, 100, 100}, {200, 100, 100}, {1000, 100, 100}} {
		records = append(records,
			record(round+1, "getrow-1col", "flagstone", rowstore.Native, rates[0]),
			record(round+1, "getrow-1col", "pebble", rowstore.RowValue, rates[1]),
			record(round+1, "getrow-1col", "rocksdb", rowstore.RowValue, rates[2]),
			record(round+1, "getrow-1col", "bbolt", rowstore.RowValue, 600))
	}
	l := gather(header(), records).byName["getrow-1col"]
	a := l.lsm()
	if a.peer.variant != "rocksdb+row" || math.Abs(a.ratio-300/160.) > 1e-9 {
		t.Errorf("best LSM peer %s, ratio %g", a.peer.variant, a.ratio)
	}
	if b := l.bbolt(); math.Abs(b.ratio-0.5) > 1e-9 {
		t.Errorf("ratio to bbolt %g", b.ratio)
	}
}

// TestAGoalOfAMeanThatNoRoundReaches: what scatters is not said to be reached without more.
func TestAGoalOfAMeanThatNoRoundReaches(t *testing.T) {
	pair := func(round int, figure string, rate float64) []runner.Record {
		return []runner.Record{
			record(round, figure, "flagstone", rowstore.Native, rate), record(round, figure, "pebble", rowstore.Plain, 100),
		}
	}
	r := gather(header(), slices.Concat(pair(1, "kv1k-overwrite", 140), pair(1, "kv1k-fillseq", 90), pair(2, "kv1k-overwrite", 70),
		pair(2, "kv1k-fillseq", 120), pair(3, "kv1k-fillseq", 130)))
	if v := find(t, r, "key-value: no workload below 1.0x"); v.outcome() != "reached, in 0 of 2 rounds by itself" {
		t.Errorf("1.05x and 1.20x, the medians of rounds with 0.7x and 0.9x, a third without all figures: %s", v.outcome())
	}
	r = gather(header(), slices.Concat(pair(1, "kv1k-fillseq", 120), pair(2, "kv1k-fillseq", 130)))
	if v := find(t, r, "key-value: no workload below 1.0x"); v.outcome() != "reached" {
		t.Errorf("1.2x and 1.3x: %s", v.outcome())
	}
}

func TestSettlingCounts(t *testing.T) {
	settled := func(f *workload.Figure) { f.RateSettled = 50 }
	r := gather(header(), []runner.Record{
		record(1, "putrow-g1", "flagstone", rowstore.Native, 100, settled),
		record(1, "putrow-g1", "pebble", rowstore.RowValue, 60),
	})
	if x := r.byName["putrow-g1"].lsm().ratio; math.Abs(x-50/60.) > 1e-9 {
		t.Errorf("ratio %g", x)
	}
}

// TestWhatAnEngineLeavesInThePageCacheIsTold: beside the headline, with the best peer by that measure.
func TestWhatAnEngineLeavesInThePageCacheIsTold(t *testing.T) {
	left := func(seconds float64) func(*workload.Figure) {
		return func(f *workload.Figure) {
			f.Ops, f.Seconds, f.Settle, f.RateSettled, f.Written = 100, 1, 1, 50, seconds
		}
	}
	r := gather(header(), []runner.Record{
		record(1, "putrow-g1", "flagstone", rowstore.Native, 100, left(0)), record(1, "getrow-1col", "flagstone", rowstore.Native, 100),
		record(1, "putrow-g1", "badger", rowstore.RowValue, 100, left(3)), record(1, "getrow-1col", "badger", rowstore.RowValue, 100),
		record(1, "putrow-g1", "pebble", rowstore.RowValue, 100, left(0.5)),
	})
	a := r.byName["putrow-g1"]
	if x := a.lsm(); x.ratio != 1 {
		t.Errorf("headline %g", x.ratio)
	}
	if x := a.written(); x.peer.variant != "pebble+row" || x.ratio != 1.25 {
		t.Errorf("until the device has it: %g of %s", x.ratio, x.peer.variant)
	}
	if x := r.byName["getrow-1col"].written(); x.peer != nil {
		t.Errorf("nothing is written by reads: %s", x.peer.variant)
	}
	var text bytes.Buffer
	r.ratios(&text, r.lines)
	if !strings.Contains(text.String(), "1.25x / pebble+row") {
		t.Error(text.String())
	}
}

func TestSplitPointsAreNotInTheGeometricMean(t *testing.T) {
	r := gather(header(), []runner.Record{
		record(1, "scan-all", "flagstone", rowstore.Native, 200), record(1, "scan-all", "pebble", rowstore.RowValue, 100),
		record(1, "splitpoints", "flagstone", rowstore.Native, 5000), record(1, "splitpoints", "pebble", rowstore.RowValue, 100),
	})
	names, ratios := r.workloadRatios(workload.Rows)
	if len(names) != 1 || names[0] != "scan-all" || math.Abs(geomean(ratios)-2) > 1e-9 {
		t.Errorf("the mean of %v is %g", names, geomean(ratios))
	}
	if x := r.byName["splitpoints"].lsm().ratio; x != 50 {
		t.Errorf("ratio of split points %g", x)
	}
	if got := leftOut(r.lines); got != " (without splitpoints)" {
		t.Errorf("left out:%s", got)
	}
}

func TestTablesTellProcessorTimeAndSpaceWithAndWithoutLog(t *testing.T) {
	cost := func(f *workload.Figure) { f.Ops, f.CPU, f.Space, f.LogSpace = 1000, 0.0123, 90e6, 20e6 }
	r := gather(header(), []runner.Record{
		record(1, "putrow-g1", "flagstone", rowstore.Native, 200, cost), record(1, "putrow-g1", "pebble", rowstore.RowValue, 100, cost),
	})
	var text bytes.Buffer
	r.details(&text, r.lines)
	r.ratios(&text, r.lines)
	r.matrix(&text, r.lines)
	for what, want := range map[string]int{" 12.3 ": 4, "12.3)": 2, " 90 ": 2, " 70 ": 2} {
		if got := strings.Count(text.String(), what); got != want {
			t.Errorf("%q stands %d times in the tables, want %d:\n%s", what, got, want, text.String())
		}
	}
}

func TestATuningOfTheSubjectIsNoPeerAndOneOfAPeerIs(t *testing.T) {
	h := header()
	for i := range h.Engines {
		h.Engines[i].Encodings = []rowstore.Encoding{rowstore.RowValue}
	}
	h.Engines[0].Encodings = []rowstore.Encoding{rowstore.Native}
	h.Engines[0].Tunings = []rowstore.Tuning{{Name: "verify"}}
	h.Engines[1].Tunings = []rowstore.Tuning{{Name: "deep0"}}
	tuned := func(r runner.Record, tuning string) runner.Record {
		engine, rest, _ := strings.Cut(r.Variant, "+")
		r.Variant, r.Tuning = strings.TrimSuffix(engine+"-"+tuning+"+"+rest, "+"), tuning
		return r
	}
	records := []runner.Record{
		record(1, "scan-all", "rocksdb", rowstore.RowValue, 10), record(1, "scan-all", "bbolt", rowstore.RowValue, 10),
		tuned(record(1, "scan-all", "pebble", rowstore.RowValue, 100), "deep0"), record(1, "scan-all", "pebble", rowstore.RowValue, 50),
		tuned(record(1, "scan-all", "flagstone", rowstore.Native, 180), "verify"), record(1, "scan-all", "flagstone", rowstore.Native, 200),
	}
	r := gather(h, records)
	a := r.byName["scan-all"].lsm()
	if a.peer.variant != "pebble-deep0+row" || a.ratio != 2 {
		t.Errorf("best LSM peer %s, ratio %g", a.peer.variant, a.ratio)
	}
	if want := []string{"flagstone", "flagstone-verify", "pebble+row", "pebble-deep0+row", "rocksdb+row", "bbolt+row"}; !slices.Equal(r.variants, want) {
		t.Errorf("variants %v, want %v", r.variants, want)
	}
	var text bytes.Buffer
	r.coverage(&text)
	r.ratios(&text, r.lines)
	if !strings.Contains(text.String(), "Every engine") || !strings.Contains(text.String(), "1.80x") {
		t.Errorf("everything ran, with checks at 1.80x of the best:\n%s", text.String())
	}
	lmdb := record(1, "scan-all", "lmdb", rowstore.RowValue, 800)
	h.Engines = append(h.Engines, runner.EngineInfo{Name: "lmdb", Factor: 1})
	text.Reset()
	r = gather(h, append(records, lmdb))
	r.ratios(&text, r.lines)
	if !strings.Contains(text.String(), "ratio to lmdb") || !strings.Contains(text.String(), "0.25x |\n") {
		t.Errorf("LMDB was four times as fast:\n%s", text.String())
	}
	text.Reset()
	gather(h, records[1:]).coverage(&text)
	if !strings.Contains(text.String(), "- On none: rocksdb+row.\n") || strings.Contains(text.String(), "Every engine") {
		t.Errorf("rocksdb was left out:\n%s", text.String())
	}
}

// find returns the verdict whose goal begins so.
func find(t *testing.T, r *results, goal string) verdict {
	t.Helper()
	for _, v := range r.acceptance() {
		if strings.HasPrefix(v.goal, goal) {
			return v
		}
	}
	t.Fatalf("no goal %q", goal)
	return verdict{}
}

// Rewriting nothing is easy for who gives nothing back.
func TestExpiredDataThatIsKeptReachesNothing(t *testing.T) {
	for after, want := range map[int64]state{100: missed, 30: reached} {
		kept := func(f *workload.Figure) {
			f.Unit, f.Space = workload.DeadUnits, after
			f.Extra = map[string]float64{"space_before": 100}
		}
		given := func(f *workload.Figure) {
			kept(f)
			f.WriteBytes, f.Space = 40, 30
		}
		r := gather(header(), []runner.Record{
			record(1, "ttl-ordered/reclaim", "flagstone", rowstore.Native, 1, kept),
			record(1, "ttl-random/reclaim", "flagstone", rowstore.Native, 1, kept),
			record(1, "ttl-random/reclaim", "rocksdb", rowstore.RowValue, 1, given),
		})
		for _, goal := range []string{"TTL, random", "TTL, time-ordered"} {
			if got := find(t, r, goal).reached; got != want {
				t.Errorf("%s with %d of 100 bytes left: %v, want %v", goal, after, got, want)
			}
		}
	}
}

func TestVerdicts(t *testing.T) {
	flag := func(figure string, rate float64, change ...func(*workload.Figure)) runner.Record {
		return record(1, figure, "flagstone", rowstore.Native, rate, change...)
	}
	pebble := func(figure string, encoding rowstore.Encoding, rate float64, change ...func(*workload.Figure)) runner.Record {
		return record(1, figure, "pebble", encoding, rate, change...)
	}
	reclaim := func(written, before, after int64) func(*workload.Figure) {
		return func(f *workload.Figure) {
			f.Unit, f.WriteBytes, f.Space = workload.DeadUnits, written, after
			f.Extra = map[string]float64{"space_before": float64(before)}
		}
	}
	tail := func(p999, longest float64) func(*workload.Figure) {
		return func(f *workload.Figure) { f.P999, f.Max = p999, longest }
	}
	anon := func(mb int64) func(*workload.Figure) {
		return func(f *workload.Figure) { f.PeakAnon = mb << 20 }
	}
	r := gather(header(), []runner.Record{
		flag("getrow-all-g1", 210, func(f *workload.Figure) { f.Allocs = 2 }), pebble("getrow-all-g1", rowstore.RowValue, 100),
		flag("getrow-all-g2", 190), pebble("getrow-all-g2", rowstore.RowValue, 100),
		flag("splitpoints", 1000), pebble("splitpoints", rowstore.CellKeys, 100),
		// The first peer reclaims nothing, so it is no measure.
		flag("ttl-random/reclaim", 1, reclaim(50, 100, 30)),
		pebble("ttl-random/reclaim", rowstore.RowValue, 1, reclaim(1, 100, 100)),
		record(1, "ttl-random/reclaim", "rocksdb", rowstore.RowValue, 1, reclaim(40, 100, 30)),
		flag("ttl-ordered/reclaim", 1, reclaim(10, 100, 30)),
		flag("versions10/update", 90), pebble("versions10/update", rowstore.CellKeys, 100), pebble("versions10/update", rowstore.RowValue, 50),
		flag("versions10/get-newest", 90), pebble("versions10/get-newest", rowstore.CellKeys, 100), pebble("versions10/get-newest", rowstore.RowValue, 50),
		flag("openput/80", 100, tail(60, 99)), pebble("openput/80", rowstore.RowValue, 900, tail(250, 1)),
		pebble("openput/80", rowstore.CellKeys, 10, tail(100, 1)),
		flag("sustained", 100, tail(100, 99_000), anon(700)), pebble("sustained", rowstore.RowValue, 100, tail(250, 1), anon(500)),
		flag("kv100-readmissing", 129), record(1, "kv100-readmissing", "pebble", rowstore.Plain, 100),
	})
	for goal, want := range map[string]state{
		"get of all columns":           missed,
		"get of one column":            unknown,
		"split points":                 reached,
		"TTL, random":                  missed,
		"TTL, time-ordered":            reached,
		"both halves: updates":         missed,
		"both halves: reads":           reached,
		"p99.9 of sustained":           reached,
		"p99.9 of puts at 80%":         missed, // the peer with the shortest tail counts, whatever its rate
		"no put pauses":                reached,
		"peak memory at most the":      missed,
		"peak memory at most 1.3x of":  missed,
		"key-value: no workload below": reached,
		"key-value: reads and scans":   missed,
		"at most two heap allocations": reached,
		"rows: no workload below 1.1x": missed,
		"each of these at least 0.8x":  unknown,
		"data at four times the":       unknown,
	} {
		if v := find(t, r, goal); v.reached != want {
			t.Errorf("%s: %v, want %v (%s)", goal, v.reached, want, v.figure)
		}
	}
	if v := find(t, r, "get of all columns"); !strings.Contains(v.figure, "1.90x (getrow-all-g2 / pebble+row)") {
		t.Errorf("worst: %s", v.figure)
	}
}

func TestAWorkloadOfSeveralPhasesCountsOnceInTheMean(t *testing.T) {
	r := gather(header(), []runner.Record{
		record(1, "hotrow/update", "flagstone", rowstore.Native, 400), record(1, "hotrow/update", "pebble", rowstore.RowValue, 100),
		record(1, "hotrow/get-flushed", "flagstone", rowstore.Native, 100), record(1, "hotrow/get-flushed", "pebble", rowstore.RowValue, 100),
		record(1, "scan-all", "flagstone", rowstore.Native, 800), record(1, "scan-all", "pebble", rowstore.RowValue, 100),
	})
	_, ratios := r.workloadRatios(workload.Rows)
	if m := geomean(ratios); len(ratios) != 2 || math.Abs(m-4) > 1e-9 {
		t.Errorf("mean %g of %v", m, ratios)
	}
}

func TestTheReportIsWrittenWithCharts(t *testing.T) {
	dir := t.TempDir()
	failure := record(1, "putrow-g1", "bbolt", rowstore.RowValue, 0)
	failure.Figures, failure.Error, failure.Output = nil, "exit status 2", []string{"the last words"}
	records := []runner.Record{
		record(1, "scan-all", "flagstone", rowstore.Native, 800), record(1, "scan-all", "pebble", rowstore.RowValue, 100),
		record(1, "scan-all", "bbolt", rowstore.RowValue, 1600), failure,
	}
	path, err := Write(dir, header(), records)
	if err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"8x", "0.50x", "the last words", "ratio-row.svg", "| scan-all "} {
		if !bytes.Contains(text, []byte(want)) {
			t.Errorf("the report lacks %q", want)
		}
	}
	svg, err := os.Open(filepath.Join(dir, "ratio-row.svg"))
	if err != nil {
		t.Fatal(err)
	}
	defer svg.Close()
	for d := xml.NewDecoder(svg); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if err := Table(io.Discard, header(), records); err != nil {
		t.Error(err)
	}
}

// TestEverythingOfAChartLiesInsideOfIt looks at the places of all texts, bars and
// lines; letters are taken to be 9 pixels wide in the title and 7 elsewhere.
func TestEverythingOfAChartLiesInsideOfIt(t *testing.T) {
	svg := string(drawRatios("Flagstone / best peer, some shape", []figureRatios{
		{"a-figure-with-a-long-name/scan-reclaimed", 0.51, 22.2}, {"b", 63, math.NaN()}, {"c", 1, 0},
	}))
	if strings.Contains(svg, "%!") || strings.Contains(svg, "NaN") || strings.Contains(svg, "Inf") {
		t.Fatalf("malformed: %s", svg)
	}
	number := func(text, name string) float64 {
		m := regexp.MustCompile(` ` + name + `="([-0-9.]+)"`).FindStringSubmatch(text)
		if m == nil {
			return 0
		}
		x, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	width, height := number(svg, "width"), number(svg, "height")
	elements := 0
	check := func(what string, left, right, top, bottom float64) {
		if elements++; left < 0 || right > width || top < 0 || bottom > height {
			t.Errorf("%s takes %.0f to %.0f and %.0f to %.0f of %.0f x %.0f", what, left, right, top, bottom, width, height)
		}
	}
	for _, m := range regexp.MustCompile(`<text([^>]*)>([^<]*)</text>`).FindAllStringSubmatch(svg, -1) {
		x, y, letter := number(m[1], "x"), number(m[1], "y"), 7.0
		if number(m[1], "font-size") > 12 {
			letter = 9
		}
		long := float64(len(m[2])) * letter
		switch {
		case strings.Contains(m[1], `"end"`):
			x -= long
		case strings.Contains(m[1], `"middle"`):
			x -= long / 2
		}
		check(m[2], x, x+long, y-12, y)
	}
	for _, m := range regexp.MustCompile(`<rect( x=[^>]*)>`).FindAllStringSubmatch(svg, -1) {
		x, y := number(m[1], "x"), number(m[1], "y")
		check("a bar", x, x+number(m[1], "width"), y, y+number(m[1], "height"))
	}
	for _, m := range regexp.MustCompile(`d="M([0-9.]+) ([0-9]+)V([0-9]+)"`).FindAllStringSubmatch(svg, -1) {
		x, _ := strconv.ParseFloat(m[1], 64)
		top, _ := strconv.ParseFloat(m[2], 64)
		bottom, _ := strconv.ParseFloat(m[3], 64)
		check("a line", x, x, top, bottom)
	}
	if elements < 3+4+2+6 {
		t.Errorf("only %d elements were found", elements)
	}
}

// TestThePublishedChartsShowThePublishedTables: "go run . charts" draws them again.
func TestThePublishedChartsShowThePublishedTables(t *testing.T) {
	const root = "../../.."
	f, err := os.Open(filepath.Join(root, "BENCHMARKS.md"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	charts, err := readRatios(f)
	if err != nil || len(charts) != 3 {
		t.Fatal(len(charts), err)
	}
	for _, c := range charts {
		have, err := os.ReadFile(filepath.Join(root, c.file))
		if err != nil || !bytes.Equal(have, drawRatios(c.title, c.figures)) {
			t.Errorf("%s is not of the table that follows it: %v", c.file, err)
		}
	}
}
