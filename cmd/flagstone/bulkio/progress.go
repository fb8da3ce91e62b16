package bulkio

import (
	"cmp"
	"fmt"
	"io"
	"time"
)

// Progress shows how far an import or an export is. One goroutine uses it.
type Progress struct {
	Out      io.Writer
	Terminal bool          // one line is written over again
	Every    time.Duration // between two lines; 0: none but the last one
	What     string        // what is done, in the past: "imported"
	Stage    string        // what is done meanwhile, if that is something else: "sorted"

	begun, shown time.Time
	rows         int64 // before the beginning
	fraction     float64
	newest       float64   // the newest fraction,
	since        time.Time // which Show has got since then
}

// Begin notes where the work begins.
func (p *Progress) Begin(rows int64, fraction float64) {
	p.begun, p.rows, p.fraction = time.Now(), rows, fraction
	p.shown, p.newest = p.begun, fraction
}

// Show shows the number of rows and the part of the work that is done, when it is time. A fraction of 0 is unknown. It may
// grow in large steps.
func (p *Progress) Show(rows int64, fraction float64) {
	if fraction != p.newest {
		p.newest, p.since = fraction, time.Now()
	}
	if p.Every <= 0 || time.Since(p.shown) < p.Every {
		return
	}
	p.shown = time.Now()
	text := p.text(cmp.Or(p.Stage, p.What), rows, fraction, time.Since(p.begun), time.Since(p.since))
	if p.Terminal {
		fmt.Fprintf(p.Out, "\r%s\x1b[K", text)
	} else {
		fmt.Fprintf(p.Out, "flagstone: %s\n", text)
	}
}

// Clear takes the line away that is written over again.
func (p *Progress) Clear() {
	if p.Terminal && p.shown != p.begun {
		fmt.Fprint(p.Out, "\r\x1b[K")
	}
}

// End shows the sum of work that has succeeded.
func (p *Progress) End(rows int64) {
	p.Clear()
	took := time.Since(p.begun)
	fmt.Fprintf(p.Out, "flagstone: %s in %s\n", p.text(p.What, rows, 0, took, 0), took.Round(time.Millisecond))
}

// text describes what took so long, and had this fraction since a while.
func (p *Progress) text(what string, rows int64, fraction float64, took, since time.Duration) string {
	text := fmt.Sprintf("%s %d rows, %.0f rows/s", what, rows, float64(rows-p.rows)/max(took.Seconds(), 1e-3))
	if fraction > 0 {
		text += fmt.Sprintf(", %.1f %%", 100*fraction)
	}
	if done := fraction - p.fraction; done > 0 && fraction < 1 {
		left := time.Duration(float64(took-since)*(1-fraction)/done) - since
		text += fmt.Sprintf(", %s left", max(left, 0).Round(time.Second))
	}
	return text
}
