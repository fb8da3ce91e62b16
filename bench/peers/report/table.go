package report

// This file prints tables.

import (
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// grid is a table of text; its first row is the head.
type grid [][]string

// write writes the grid as Markdown, with columns of equal width, numbers to
// the right.
func (g grid) write(w io.Writer) {
	width := make([]int, len(g[0]))
	for _, row := range g {
		for c, cell := range row {
			width[c] = max(width[c], len([]rune(cell)))
		}
	}
	for r, row := range g {
		var b strings.Builder
		for c := range g[0] {
			cell := ""
			if c < len(row) {
				cell = row[c]
			}
			pad := strings.Repeat(" ", width[c]-len([]rune(cell)))
			if c == 0 {
				fmt.Fprintf(&b, "| %s%s ", cell, pad)
			} else {
				fmt.Fprintf(&b, "| %s%s ", pad, cell)
			}
		}
		fmt.Fprintln(w, b.String()+"|")
		if r == 0 {
			for c := range g[0] {
				if c == 0 {
					fmt.Fprintf(w, "|%s", strings.Repeat("-", width[c]+2))
				} else {
					fmt.Fprintf(w, "|%s:", strings.Repeat("-", width[c]+1))
				}
			}
			fmt.Fprintln(w, "|")
		}
	}
	fmt.Fprintln(w)
}

// count formats a number to three digits, with k and M.
func count(x float64) string {
	switch {
	case math.IsNaN(x):
		return "-"
	case math.Abs(x) >= 1e6:
		return digits(x/1e6) + "M"
	case math.Abs(x) >= 1e4:
		return digits(x/1e3) + "k"
	default:
		return digits(x)
	}
}

func digits(x float64) string {
	switch a := math.Abs(x); {
	case a >= 100 || x == math.Trunc(x):
		return fmt.Sprintf("%.0f", x)
	case a >= 10:
		return fmt.Sprintf("%.1f", x)
	default:
		return fmt.Sprintf("%.2f", x)
	}
}

// times formats a ratio.
func times(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return digits(x) + "x"
}

// microseconds formats processor time; -: the kernel's clock did not see any.
func microseconds(x float64) string {
	if math.IsNaN(x) || x <= 0 {
		return "-"
	}
	if x < 0.095 {
		return fmt.Sprintf("%.3f", x)
	}
	return digits(x)
}

// megabytes formats bytes.
func megabytes(x float64) string {
	if math.IsNaN(x) {
		return "-"
	}
	return digits(x / 1e6)
}

// Table prints what a look while working needs: all figures, and the ratios.
func Table(w io.Writer, header runner.Header, records []runner.Record) error {
	r := gather(header, records)
	fmt.Fprintf(w, "\n%d rows (%s), %d keys, memtable %d MiB, cache %d MiB; %d rounds, medians; w/settle: with the time to settle. %s\n\n",
		header.Settings.Rows, valuesOf(header.Settings), header.Settings.Keys, header.Settings.Memtable>>20, header.Settings.Cache>>20, r.rounds, debtOf(header.Settings))
	r.details(w, r.lines)
	r.ratios(w, r.lines)
	r.failed(w)
	return nil
}

// details is the long table: a row per figure and variant.
func (r *results) details(w io.Writer, lines []*line) {
	g := grid{{"figure, variant", "ops/s", "w/settle", "p50 us", "p99", "p99.9", "max", "CPU us/op", "allocs/op", "B/op",
		"written MB", "read MB", "space MB", "without log", "RSS MB", "anon MB"}}
	get := func(s *series, f func(*workload.Figure) float64) float64 { return s.of(f) }
	for _, l := range lines {
		for _, v := range r.variants {
			s := l.series[v]
			if s == nil {
				continue
			}
			settled := "-"
			if x := get(s, func(f *workload.Figure) float64 { return f.RateSettled }); x > 0 {
				settled = count(x)
			}
			rate := count(get(s, func(f *workload.Figure) float64 { return f.Rate }))
			if s.stopped() {
				rate = "~" + rate
			}
			g = append(g, []string{
				l.name + " " + v, rate, settled,
				count(get(s, func(f *workload.Figure) float64 { return f.P50 })),
				count(get(s, func(f *workload.Figure) float64 { return f.P99 })),
				count(get(s, func(f *workload.Figure) float64 { return f.P999 })),
				count(get(s, func(f *workload.Figure) float64 { return f.Max })),
				microseconds(s.cpu()),
				digits(get(s, func(f *workload.Figure) float64 { return f.Allocs })),
				count(get(s, func(f *workload.Figure) float64 { return f.AllocBytes })),
				megabytes(get(s, func(f *workload.Figure) float64 { return float64(f.WriteBytes) })),
				megabytes(get(s, func(f *workload.Figure) float64 { return float64(f.ReadBytes) })),
				megabytes(get(s, spaceBytes)), megabytes(get(s, dataBytes)),
				megabytes(get(s, func(f *workload.Figure) float64 { return float64(f.PeakRSS) })),
				megabytes(get(s, func(f *workload.Figure) float64 { return float64(f.PeakAnon) })),
			})
		}
	}
	g.write(w)
}

// ratios is the short table: Flagstone beside the best.
func (r *results) ratios(w io.Writer, lines []*line) {
	g := grid{{"figure", "Flagstone ops/s", "CPU us/op", "best LSM peer", "its ops/s", "its CPU us/op", "ratio",
		"bbolt ops/s", "bbolt CPU us/op", "ratio to bbolt"}}
	verifying := slices.Contains(r.variants, subject+"-verify")
	if verifying {
		g[0] = slices.Insert(g[0], 7, "ratio of flagstone-verify")
	}
	trees := []string{"bbolt"}
	if slices.ContainsFunc(r.variants, func(v string) bool { return strings.HasPrefix(v, "lmdb") }) {
		trees = append(trees, "lmdb")
		g[0] = append(g[0], "lmdb ops/s", "lmdb CPU us/op", "ratio to lmdb")
	}
	written := slices.ContainsFunc(lines, func(l *line) bool { return l.written().peer != nil })
	if written {
		g[0] = append(g[0], "ratio until the device has it")
	}
	for _, l := range lines {
		mine := l.series[subject]
		if mine == nil || l.aside() {
			continue
		}
		row := []string{l.name, count(mine.headline()), microseconds(mine.cpu())}
		if x := l.lsm(); x.peer != nil {
			name := x.peer.variant
			if f := x.peer.factor(); f != 1 {
				name = fmt.Sprintf("%s (x%.1f in the ratio)", name, f)
			}
			row = append(row, name, count(x.peer.headline()), microseconds(x.peer.cpu()), times(x.ratio))
		} else {
			row = append(row, "-", "-", "-", "-")
		}
		if verifying {
			row = append(row, times(ratio(l.series[subject+"-verify"], l.lsm().peer, headline)))
		}
		for _, tree := range trees {
			if x := l.best(isA(tree)); x.peer != nil {
				row = append(row, count(x.peer.headline()), microseconds(x.peer.cpu()), times(x.ratio))
			} else {
				row = append(row, "", "", "")
			}
		}
		if x := l.written(); x.peer != nil {
			row = append(row, times(x.ratio)+" / "+x.peer.variant)
		} else if written {
			row = append(row, "")
		}
		g = append(g, row)
	}
	if len(g) > 1 {
		g.write(w)
	}
}

// failed lists the runs that came to nothing.
func (r *results) failed(w io.Writer) {
	seen := map[string]bool{}
	for _, f := range r.failures {
		what := fmt.Sprintf("- %s on %s: %s", f.Workload, f.Variant, f.Error)
		if f.Killed {
			what += " (killed by the time limit)"
		}
		if len(f.Output) > 0 {
			what += ": " + f.Output[max(len(f.Output)-1, 0)]
		}
		if !seen[what] {
			fmt.Fprintln(w, what)
		}
		seen[what] = true
	}
	if len(r.failures) > 0 {
		fmt.Fprintln(w)
	}
}

// figureNames lists the figures of a shape.
func (r *results) shape(shape workload.Shape) []*line {
	return slices.DeleteFunc(slices.Clone(r.lines), func(l *line) bool { return l.shape != shape })
}
