package report

// This file reports how cost grows with the data: a table and a picture for each phase.

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"

	"github.com/flagstone-db/flagstone/bench/peers/runner"
	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// growthName is the report of the command grow.
const growthName = "GROWTH.md"

// grown is what was measured at one size.
type grown struct {
	rows int
	*results
}

// Growth writes GROWTH.md and its pictures into dir, whose folders, named after numbers of rows, have
// the records. It returns the path.
func Growth(dir string) (string, error) {
	sizes, err := readGrown(dir)
	if err != nil {
		return "", err
	}
	path := filepath.Join(dir, growthName)
	f, err := os.Create(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sizes[0].header
	fmt.Fprintf(f, "# What growth costs\n\n%s, revision %s. %s.\n\n", h.Started, h.Revision, h.Machine)
	fmt.Fprintf(f, "Memory %d MiB for process and page cache, block cache %d MiB, memtables of %d MiB. Rows of ten columns of "+
		"100 bytes; nothing is compacted by hand. Writes count the time until nothing is left to do. CPU and bytes are of all of a "+
		"phase, settling included; bytes written, read and of space are per row.\n\n", h.Settings.MemoryLimit>>20, h.Settings.Cache>>20, h.Settings.Memtable>>20)
	for _, phase := range phases(sizes) {
		name := strings.TrimPrefix(phase, workload.GrowthName+"/")
		file := workload.GrowthName + "-" + name + ".svg"
		if err := drawGrowth(filepath.Join(dir, file), phase, sizes); err != nil {
			return "", err
		}
		fmt.Fprintf(f, "## %s\n\n![%[1]s](%s)\n\n", name, file)
		growthTable(phase, sizes).write(f)
	}
	for _, s := range sizes {
		s.failed(f)
	}
	return path, f.Close()
}

// readGrown reads the records of all sizes, the smallest first.
func readGrown(dir string) ([]grown, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var sizes []grown
	for _, e := range entries {
		rows, err := strconv.Atoi(e.Name())
		if err != nil {
			continue
		}
		header, records, err := runner.Read(filepath.Join(dir, e.Name()))
		if err != nil {
			return nil, err
		}
		sizes = append(sizes, grown{rows, gather(header, records)})
	}
	if len(sizes) == 0 {
		return nil, errors.New("report: no records of a size are in " + dir)
	}
	slices.SortFunc(sizes, func(a, b grown) int { return a.rows - b.rows })
	return sizes, nil
}

// phases are the names of the figures, in their order.
func phases(sizes []grown) (names []string) {
	for _, s := range sizes {
		for _, l := range s.lines {
			if !slices.Contains(names, l.name) {
				names = append(names, l.name)
			}
		}
	}
	return names
}

// grownVariants are the variants that were measured at any of the sizes.
func grownVariants(sizes []grown) (all []string) {
	for _, s := range sizes {
		for _, v := range s.variants {
			if !slices.Contains(all, v) {
				all = append(all, v)
			}
		}
	}
	return all
}

// growthTable has a row for each variant and size.
func growthTable(phase string, sizes []grown) grid {
	g := grid{{"variant", "rows", "ops/s", "p50 us", "p99", "p99.9", "max", "CPU us/op", "slowest second", "written", "read",
		"space", "anon MB"}}
	for _, variant := range grownVariants(sizes) {
		for _, size := range sizes {
			l := size.byName[phase]
			if l == nil || l.series[variant] == nil {
				continue
			}
			s := l.series[variant]
			per := func(of func(*workload.Figure) float64) string {
				return digits(s.of(func(f *workload.Figure) float64 { return of(f) / float64(max(f.Ops, 1)) }))
			}
			g = append(g, []string{variant, count(float64(size.rows)), count(s.headline()),
				count(s.of(func(f *workload.Figure) float64 { return f.P50 })),
				count(s.of(func(f *workload.Figure) float64 { return f.P99 })),
				count(s.of(func(f *workload.Figure) float64 { return f.P999 })),
				count(s.of(func(f *workload.Figure) float64 { return f.Max })),
				count(s.of((*workload.Figure).CPUPerOp)),
				count(s.of(slowestSecond)),
				per(func(f *workload.Figure) float64 { return float64(f.WriteBytes) }),
				per(func(f *workload.Figure) float64 { return float64(f.ReadBytes) }),
				digits(s.of(func(f *workload.Figure) float64 { return float64(f.Space) }) / float64(size.rows)),
				megabytes(s.of(func(f *workload.Figure) float64 { return float64(f.PeakAnon) })),
			})
		}
	}
	return g
}

// slowestSecond is how much was done in the worst second but the last, which is not whole.
func slowestSecond(f *workload.Figure) float64 {
	if len(f.Timeline) < 2 {
		return math.NaN()
	}
	return float64(slices.Min(f.Timeline[:len(f.Timeline)-1]))
}

// drawGrowth draws the microseconds that a row costs against the number of rows, both logarithmic.
func drawGrowth(path, phase string, sizes []grown) error {
	p := plot.New()
	p.Title.Text, p.X.Label.Text, p.Y.Label.Text = phase, "rows", "us per row"
	p.X.Scale, p.Y.Scale = plot.LogScale{}, plot.LogScale{}
	p.X.Tick.Marker, p.Y.Tick.Marker = plot.LogTicks{Prec: -1}, plot.LogTicks{Prec: -1}
	p.Legend.Top, p.Legend.Left = true, true
	var lines []any
	least, most := math.Inf(1), math.Inf(-1)
	for _, variant := range grownVariants(sizes) {
		var points plotter.XYs
		for _, size := range sizes {
			if l := size.byName[phase]; l != nil && l.series[variant] != nil && l.series[variant].headline() > 0 {
				cost := 1e6 / l.series[variant].headline()
				points = append(points, plotter.XY{X: float64(size.rows), Y: cost})
				least, most = min(least, cost), max(most, cost)
			}
		}
		if len(points) > 0 {
			lines = append(lines, variant, points)
		}
	}
	if len(lines) == 0 {
		return fmt.Errorf("report: nothing of %s was measured", phase)
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return fmt.Errorf("report: the picture of %s: %w", phase, err)
	}
	// Around one point the library would take a range that includes 0.
	p.X.Min, p.X.Max = float64(sizes[0].rows)/2, 2*float64(sizes[len(sizes)-1].rows)
	p.Y.Min, p.Y.Max = least/2, 2*most
	return p.Save(18*vg.Centimeter, 10*vg.Centimeter, path)
}
