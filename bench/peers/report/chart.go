package report

// This file draws the charts.

import (
	"fmt"
	"image/color"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/text"
	"gonum.org/v1/plot/vg"

	"github.com/flagstone-db/flagstone/bench/peers/workload"
)

// chart is a picture beside the report.
type chart struct {
	shape       workload.Shape
	title, file string
}

// charts draws, for each shape, Flagstone's ratios to the best LSM peer and to
// bbolt.
func (r *results) charts(dir string) ([]chart, error) {
	var out []chart
	for _, shape := range []workload.Shape{workload.Rows, workload.KeyValue, workload.Beyond} {
		c := chart{shape, "Flagstone / best peer, " + string(shape),
			"ratio-" + strings.ReplaceAll(string(shape), " ", "-") + ".svg"}
		ok, err := r.ratioChart(shape, c.title, filepath.Join(dir, c.file))
		if err != nil {
			return nil, err
		}
		if ok {
			out = append(out, c)
		}
	}
	return out, nil
}

// The colours of the two comparisons.
var (
	lsmColor   = color.RGBA{0x2b, 0x6c, 0xb0, 0xff}
	bboltColor = color.RGBA{0xdd, 0x8a, 0x2e, 0xff}
)

// ratioChart draws a bar per figure, on a logarithmic scale around 1; false if
// there is nothing to draw.
func (r *results) ratioChart(shape workload.Shape, title, path string) (bool, error) {
	var names []string
	var lsm, bbolt plotter.Values
	log := func(x float64) float64 {
		if math.IsNaN(x) || x <= 0 {
			return 0
		}
		return math.Log2(x)
	}
	for _, l := range slices.Backward(r.shape(shape)) {
		a := l.lsm()
		if l.aside() || a.peer == nil {
			continue
		}
		names = append(names, l.name)
		lsm = append(lsm, log(a.ratio))
		bbolt = append(bbolt, log(l.bbolt().ratio))
	}
	if len(names) == 0 {
		return false, nil
	}
	p := plot.New()
	p.Title.Text = title
	for _, style := range []*text.Style{&p.Title.TextStyle, &p.X.Tick.Label, &p.Y.Tick.Label, &p.Legend.TextStyle} {
		style.Font.Variant = "Sans"
	}
	const thickness = 7
	for i, series := range []struct {
		values plotter.Values
		color  color.Color
		legend string
	}{{lsm, lsmColor, "best LSM peer"}, {bbolt, bboltColor, "bbolt"}} {
		bars, err := plotter.NewBarChart(series.values, vg.Points(thickness))
		if err != nil {
			return false, err
		}
		bars.Horizontal, bars.Color, bars.LineStyle.Width = true, series.color, 0
		bars.Offset = vg.Points(thickness * (0.5 - float64(i)))
		p.Add(bars)
		p.Legend.Add(series.legend, bars)
	}
	p.Legend.Top, p.Legend.YOffs = true, vg.Points(18) // above the bars
	p.Y.Label.Text = " "                               // or the longest name is cut
	low, high := slices.Min(slices.Concat(lsm, bbolt)), slices.Max(slices.Concat(lsm, bbolt))
	p.X.Min, p.X.Max = math.Floor(min(low, -1)), math.Ceil(max(high, 1))
	p.X.Tick.Marker = plot.ConstantTicks(ticks(p.X.Min, p.X.Max))
	p.Add(plotter.NewGrid())
	p.NominalY(names...)
	height := vg.Points(float64(len(names))*2.6*thickness + 70)
	writer, err := p.WriterTo(vg.Points(720), height, "svg")
	if err != nil {
		return false, err
	}
	f, err := os.Create(path)
	if err != nil {
		return false, err
	}
	_, err = writer.WriteTo(f)
	if closing := f.Close(); err == nil {
		err = closing
	}
	return true, err
}

// ticks are the powers of two in a range of logarithms.
func ticks(low, high float64) []plot.Tick {
	var out []plot.Tick
	for x := low; x <= high; x++ {
		label := fmt.Sprintf("%.0fx", math.Exp2(x))
		if x < 0 {
			label = fmt.Sprintf("1/%.0f", math.Exp2(-x))
		}
		out = append(out, plot.Tick{Value: x, Label: label})
	}
	return out
}
