package report

// This file puts the report together.

import (
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// reportName is the report's file in a directory of results.
const reportName = "REPORT.md"

// MachineName is the file of the machine's limits in a directory of results; the
// report takes it in if it is there.
const MachineName = "machine.md"

// Write writes the report and its charts into dir and returns the report's path.
func Write(dir string, header runner.Header, records []runner.Record) (string, error) {
	r := gather(header, records)
	charts, err := r.charts(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, reportName)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	r.write(f, charts)
	if limits, err := os.ReadFile(filepath.Join(dir, MachineName)); err == nil {
		fmt.Fprintf(f, "## Limits of the machine\n\n%s", limits)
	}
	return path, f.Close()
}

func (r *results) write(w io.Writer, charts []chart) {
	s := r.header.Settings
	fmt.Fprintf(w, "# Flagstone beside its peers\n\n")
	fmt.Fprintf(w, "%s, revision %s. %s.\n\n", r.header.Started, r.header.Revision, r.header.Machine)
	fmt.Fprintf(w, "%d rounds, medians over them; ratios are medians of the ratios within a round. %d rows of ten columns of 100 "+
		"bytes (%s), %d keys; memtable %d MiB, cache %d MiB, 10 filter bits per key, 4 KiB blocks, S2 or Snappy, log on. Reads are timed "+
		"for %g s after a warm-up; a phase of writing is stopped after %g s (~). %s\n\n",
		r.rounds, s.Rows, valuesOf(s), s.Keys, s.Memtable>>20, s.Cache>>20, s.ReadSeconds, s.LimitSeconds, debtOf(s))

	fmt.Fprintf(w, "## Acceptance\n\n")
	fmt.Fprintf(w, "Against the best LSM peer, in the best of the tunings and encodings that ran, unless it says bbolt. The figure of a peer with a "+
		"factor (see the engines below) is multiplied by it first.\n\n")
	if !slices.ContainsFunc(r.header.Engines, func(e runner.EngineInfo) bool { return e.Name == "rocksdb" }) {
		fmt.Fprintf(w, "RocksDB is not among the peers: it was not built in (`-tags rocksdb`).\n\n")
	}
	r.coverage(w)
	g := grid{{"goal", "measured", "", "remarks"}}
	for _, v := range r.acceptance() {
		g = append(g, []string{v.goal, v.figure, v.outcome(), v.note})
	}
	g.write(w)
	r.failed(w)

	for _, shape := range []workload.Shape{workload.Rows, workload.KeyValue, workload.Beyond} {
		r.section(w, shape, charts)
	}
	r.appendix(w)
}

// coverage tells which variants of this build ran on which workloads, as the best peer is
// the best of those that did. What failed was run.
func (r *results) coverage(w io.Writer) {
	on, off := map[string][]string{}, map[string][]string{}
	var variants []string
	for _, s := range workload.All() {
		ran := r.ran[s.Name]
		for _, e := range r.header.Engines {
			if len(ran) == 0 || len(e.Encodings) == 0 {
				continue
			}
			for _, v := range s.Variants(rowstore.Engine{Name: e.Name, Tunings: e.Tunings, Encodings: e.Encodings}) {
				if !slices.Contains(variants, v.Name) {
					variants = append(variants, v.Name)
				}
				if ran[v.Name] {
					on[v.Name] = append(on[v.Name], s.Name)
				} else {
					off[v.Name] = append(off[v.Name], s.Name)
				}
			}
		}
	}
	if len(off) == 0 {
		fmt.Fprintf(w, "Every engine of this build ran with all its tunings and encodings on every workload below, in the first "+
			"round at least; the best peer is the best of all of them.\n\n")
		return
	}
	fmt.Fprintf(w, "The best peer is the best of the variants that ran.\n\n")
	var nowhere []string
	for _, v := range variants {
		switch {
		case len(on[v]) == 0:
			nowhere = append(nowhere, v)
		case len(off[v]) == 0:
		case len(on[v]) < len(off[v]):
			fmt.Fprintf(w, "- %s ran on no workload but %s.\n", v, strings.Join(on[v], ", "))
		default:
			fmt.Fprintf(w, "- %s ran on all but %s.\n", v, strings.Join(off[v], ", "))
		}
	}
	if len(nowhere) > 0 {
		fmt.Fprintf(w, "- On none: %s.\n", strings.Join(nowhere, ", "))
	}
	fmt.Fprintln(w)
}

// valuesOf says what the values are.
func valuesOf(s runner.Settings) string {
	if s.Values == workload.Text {
		return "text of about half the size when compressed"
	}
	return "half random, half zeros"
}

// debtOf says what engines owe when reads begin.
func debtOf(s runner.Settings) string {
	if s.Unmerged {
		return "Data sets that are read are as settling left them, not merged."
	}
	return "Data sets that are read were merged by each engine's manual compaction."
}

// section is what is told of one shape.
func (r *results) section(w io.Writer, shape workload.Shape, charts []chart) {
	lines := r.shape(shape)
	if len(lines) == 0 {
		return
	}
	title := strings.ToUpper(string(shape[:1])) + string(shape[1:])
	fmt.Fprintf(w, "## %s\n\n", title)
	_, ratios := r.workloadRatios(shape)
	if m := geomean(ratios); !math.IsNaN(m) {
		fmt.Fprintf(w, "Geometric mean over %d workloads%s: %s of the best LSM peer on each.\n\n", len(ratios), leftOut(lines), times(m))
	}
	for _, c := range charts {
		if c.shape == shape {
			fmt.Fprintf(w, "![%s](%s)\n\n", c.title, c.file)
		}
	}
	fmt.Fprintf(w, "Operations per second, the time to settle counted where something was written:\n\n")
	r.ratios(w, lines)
	r.matrix(w, lines)
}

// leftOut names the workloads that are compared but not in the geometric mean.
func leftOut(lines []*line) string {
	var names []string
	for _, l := range lines {
		if l.apart && !slices.Contains(names, l.workload) {
			names = append(names, l.workload)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return " (without " + strings.Join(names, ", ") + ")"
}

// matrix is the table of all variants.
func (r *results) matrix(w io.Writer, lines []*line) {
	var variants []string
	for _, v := range r.variants {
		for _, l := range lines {
			if l.series[v] != nil {
				variants = append(variants, v)
				break
			}
		}
	}
	fmt.Fprintf(w, "All of them, ops/s (p99; processor time of an operation; both in microseconds):\n\n")
	g := grid{append([]string{"figure"}, variants...)}
	for _, l := range lines {
		if l.aside() {
			continue
		}
		row := []string{l.name}
		for _, v := range variants {
			s := l.series[v]
			if s == nil {
				row = append(row, "-")
				continue
			}
			mark := ""
			if s.stopped() {
				mark = "~"
			}
			row = append(row, fmt.Sprintf("%s%s (%s; %s)", mark, count(s.headline()),
				count(s.of(func(f *workload.Figure) float64 { return f.P99 })), microseconds(s.cpu())))
		}
		g = append(g, row)
	}
	g.write(w)
}

// appendix is everything that was measured.
func (r *results) appendix(w io.Writer) {
	fmt.Fprintf(w, "## Workloads\n\n")
	for _, s := range workload.All() {
		fmt.Fprintf(w, "- `%s`: %s.\n", s.Name, s.About)
	}
	fmt.Fprintf(w, "\n## Engines, and what an unsynced write means in each\n\n")
	for _, e := range r.header.Engines {
		fmt.Fprintf(w, "- %s %s", e.Name, e.Version)
		if e.Build != "" {
			fmt.Fprintf(w, ", %s", e.Build)
		}
		if e.Factor != 1 {
			fmt.Fprintf(w, " (times %.1f where it stands for the best peer)", e.Factor)
		}
		fmt.Fprintf(w, ": %s\n", e.Unsynced)
		for _, t := range e.Tunings {
			fmt.Fprintf(w, "  - %s-%s: %s\n", e.Name, t.Name, t.About)
		}
	}
	fmt.Fprintf(w, "\n## Special figures\n\n")
	r.extras(w)
	fmt.Fprintf(w, "## Everything\n\nLatencies and processor time in microseconds, the latter with settling; allocations of the Go heap; RSS and anon: peaks of the process's "+
		"resident memory and its anonymous part.\n\n")
	r.details(w, r.lines)
}

// extras lists the figures that only some workloads have.
func (r *results) extras(w io.Writer) {
	g := grid{{"figure, variant", "what", "value"}}
	for _, l := range r.lines {
		for _, v := range r.variants {
			s := l.series[v]
			if s == nil {
				continue
			}
			for _, name := range s.extras() {
				x := s.of(func(f *workload.Figure) float64 { return f.Extra[name] })
				g = append(g, []string{l.name + " " + v, strings.ReplaceAll(name, "_", " "), count(x)})
			}
		}
	}
	if len(g) > 1 {
		g.write(w)
	}
}
