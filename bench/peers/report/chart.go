package report

// This file draws the charts: SVG by hand, since all there is are bars and texts at
// known places.

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"html"
	"io"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

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
		var figures []figureRatios
		for _, l := range r.shape(shape) {
			if a := l.lsm(); !l.aside() && a.peer != nil {
				figures = append(figures, figureRatios{l.name, a.ratio, l.bbolt().ratio})
			}
		}
		if len(figures) == 0 {
			continue
		}
		if err := os.WriteFile(filepath.Join(dir, c.file), drawRatios(c.title, figures), 0o644); err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	return out, nil
}

// figureRatios are Flagstone's ratios of one figure; NaN or 0: there is none.
type figureRatios struct {
	name       string
	lsm, bbolt float64
}

// Places and sizes in a chart, in pixels.
const (
	chartWidth  = 860
	charWidth   = 7 // of a small letter, rather more than less
	barHeight   = 10
	barGap      = 8 // between two figures
	chartTop    = 84
	chartBottom = 30
	valueRoom   = 56 // for the number behind the longest bar
)

// drawRatios draws a bar for each ratio, on a logarithmic scale around 1.
func drawRatios(title string, figures []figureRatios) []byte {
	longest, height := 0, chartTop+chartBottom
	low, high := -1.0, 1.0 // logarithms
	for _, f := range figures {
		longest = max(longest, len(f.name))
		height += barGap
		for _, x := range f.bars() {
			height += barHeight
			low, high = min(low, math.Floor(math.Log2(x.ratio))), max(high, math.Ceil(math.Log2(x.ratio)))
		}
	}
	left := float64(longest*charWidth + 24)
	const gap = 32 // between the names and the axis, for the number beside a bar below 1
	perPower := (chartWidth - valueRoom - left - gap) / (high - low)
	at := func(ratio float64) float64 { return left + gap + (math.Log2(ratio)-low)*perPower }

	var b bytes.Buffer
	say := func(format string, args ...any) { fmt.Fprintf(&b, format+"\n", args...) }
	say(`<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %d" font-family="Liberation Sans, Arial, Helvetica, sans-serif" font-size="12">`, chartWidth, height, height)
	say(`<rect width="100%%" height="100%%" fill="#ffffff"/>`)
	say(`<text x="%d" y="24" font-size="16" font-weight="bold" text-anchor="middle">%s</text>`, chartWidth/2, html.EscapeString(title))
	legend := []bar{{color: lsmColor, peer: "to the best LSM peer"}}
	if slices.ContainsFunc(figures, func(f figureRatios) bool { return f.bbolt > 0 }) {
		legend = append(legend, bar{color: bboltColor, peer: "to bbolt"})
	}
	for i, s := range legend {
		x := chartWidth/2 - 90*len(legend) + 190*i
		say(`<rect x="%d" y="38" width="24" height="%d" fill="%s"/><text x="%d" y="48">%s</text>`, x, barHeight+2, s.color, x+32, s.peer)
	}
	for x := low; x <= high; x++ { // behind the bars
		width, color := 1, "#d8d8d8"
		if x == 0 {
			width, color = 2, "#707070"
		}
		p := at(math.Exp2(x))
		say(`<path d="M%.1f %dV%d" stroke="%s" stroke-width="%d"/>`, p, chartTop-6, height-chartBottom, color, width)
		for _, y := range []int{chartTop - 12, height - chartBottom + 16} {
			say(`<text x="%.1f" y="%d" text-anchor="middle" fill="#404040">%s</text>`, p, y, powerOfTwo(x))
		}
	}
	y := chartTop
	for _, f := range figures {
		bars := f.bars()
		middle := y + len(bars)*barHeight/2 + 4
		say(`<text x="%.1f" y="%d" text-anchor="end">%s</text>`, left, middle, html.EscapeString(f.name))
		for _, bar := range bars {
			from, to := min(at(1), at(bar.ratio)), max(at(1), at(bar.ratio))
			say(`<rect x="%.1f" y="%d" width="%.1f" height="%d" fill="%s"/>`, from, y, max(to-from, 1), barHeight-1, bar.color)
			place, anchor := to+5, "start"
			if bar.ratio < 1 {
				place, anchor = from-5, "end"
			}
			say(`<text x="%.1f" y="%d" font-size="10" text-anchor="%s" fill="#404040">%s</text>`, place, y+barHeight-2, anchor, times(bar.ratio))
			y += barHeight
		}
		y += barGap
	}
	say(`</svg>`)
	return b.Bytes()
}

// The colours of the two comparisons.
const (
	lsmColor   = "#2b6cb0"
	bboltColor = "#dd8a2e"
)

// bar is one ratio as it is drawn.
type bar struct {
	ratio float64
	color string
	peer  string
}

// bars are those of one figure, from above.
func (f *figureRatios) bars() (out []bar) {
	for _, b := range []bar{{ratio: f.lsm, color: lsmColor}, {ratio: f.bbolt, color: bboltColor}} {
		if b.ratio > 0 { // which NaN is not
			out = append(out, b)
		}
	}
	return out
}

// powerOfTwo writes a power of two as a ratio.
func powerOfTwo(x float64) string {
	if x < 0 {
		return fmt.Sprintf("1/%.0fx", math.Exp2(-x))
	}
	return fmt.Sprintf("%.0fx", math.Exp2(x))
}

// picture is a line of Markdown that shows a chart.
var picture = regexp.MustCompile(`^!\[(.+)\]\((.+\.svg)\)$`)

// Redraw draws the charts that a Markdown file shows from the tables that follow
// them in it: those with columns figure, ratio and ratio to bbolt, of which the first
// of each name counts. Paths are relative to the file.
func Redraw(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	charts, err := readRatios(f)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, c := range charts {
		err := os.WriteFile(filepath.Join(filepath.Dir(path), c.file), drawRatios(c.title, c.figures), 0o644)
		if err != nil {
			return err
		}
	}
	return nil
}

// published is a chart and the table that it is made of.
type published struct {
	title, file string
	figures     []figureRatios
}

func readRatios(r io.Reader) (charts []published, err error) {
	var columns [3]int // of name, ratio, ratio to bbolt
	inTable := false
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if m := picture.FindStringSubmatch(line); m != nil {
			charts = append(charts, published{title: m[1], file: m[2]})
			continue
		}
		if len(charts) == 0 || !strings.HasPrefix(line, "| ") {
			inTable = false
			continue
		}
		c := &charts[len(charts)-1]
		cells := strings.Split(strings.Trim(line, "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		switch {
		case cells[0] == "figure" && len(c.figures) == 0:
			inTable = true
			for i, name := range []string{"figure", "ratio", "ratio to bbolt"} {
				if columns[i] = slices.Index(cells, name); columns[i] < 0 {
					return nil, fmt.Errorf("the table of %s has no column %q", c.file, name)
				}
			}
		case inTable && !strings.HasPrefix(cells[0], "---"):
			f := figureRatios{name: cells[0], lsm: ratioOf(cells, columns[1]), bbolt: ratioOf(cells, columns[2])}
			if f.lsm == 0 {
				return nil, fmt.Errorf("no ratio of %s", f.name)
			}
			c.figures = append(c.figures, f)
		}
	}
	for _, c := range charts {
		if len(c.figures) == 0 {
			err = errors.Join(err, fmt.Errorf("no table for %s", c.file))
		}
	}
	return charts, errors.Join(err, lines.Err())
}

// ratioOf reads a ratio from a cell of a table; 0 if there is none.
func ratioOf(cells []string, column int) float64 {
	if column >= len(cells) {
		return 0
	}
	x, err := strconv.ParseFloat(strings.TrimSuffix(cells[column], "x"), 64)
	if err != nil {
		return 0
	}
	return x
}
