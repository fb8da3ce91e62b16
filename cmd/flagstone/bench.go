package main

// This file is the command bench. What it measures is in package ycsb, and the tables on which it does are in
// benchtable.go.

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/guptarohit/asciigraph"

	"github.com/flagstone-db/flagstone/cmd/flagstone/ycsb"
)

type benchCommand struct {
	Workloads []string `arg:"" optional:"" help:"The workloads, one after the other on one table; a to f if none is given. They are described above."`

	Rows     int64         `default:"100000" placeholder:"N" help:"Load so many rows first. ${default} if not given."`
	Columns  int           `default:"10" placeholder:"N" help:"Attribute columns of each row. ${default} if not given."`
	Value    size          `default:"100" placeholder:"SIZE" help:"Size of each value. ${default} bytes if not given."`
	Duration time.Duration `default:"10s" placeholder:"DURATION" help:"How long each workload runs. ${default} if not given."`
	Workers  int           `default:"8" placeholder:"N" help:"So many operations are under way at most. ${default} if not given."`
	Rate     float64       `default:"0" placeholder:"N" help:"Begin so many operations in a second, whatever the store does. 0, the default, begins each when the one before is over."`

	Endpoint string `placeholder:"URL" help:"Measure this Table Store endpoint, such as http://127.0.0.1:8087, through the official SDK, and not a store within this process."`
	Instance string `default:"demo" env:"FLAGSTONE_INSTANCE" help:"The instance of the endpoint."`
	Dir      string `default:"./flagstone-data" env:"FLAGSTONE_DIR" help:"Directory of the endpoint's store, for its access key, unless FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET are set." type:"path"`

	In   string `placeholder:"DIR" help:"Make the store within this process in this directory, on the device that is to be measured. If not given, where temporary files are." type:"existingdir"`
	Sync string `default:"always" enum:"always,none" help:"When the store within this process acknowledges a write: always, when it is durable; none, when it is logged in memory."`

	JSON bool `name:"json" help:"Print a JSON object for each workload."`
}

// Help is the long help of the command.
func (benchCommand) Help() string {
	var text strings.Builder
	text.WriteString("The workloads:\n\n")
	for _, w := range ycsb.Workloads {
		fmt.Fprintf(&text, "  %-7s %s\n", w.Name, w.About)
	}
	text.WriteString(`
They run on a table that is made for them and is gone afterwards: in a store within this process, whose files are removed, or at an endpoint. Values are random letters, which hardly compress.

Without --rate a worker begins an operation when its last one is over, so a store that stalls is asked for less, and its latencies look better than what clients of it would see. With --rate latencies count from the moment at which an operation should have begun. What a timer is late is in them, and is printed beside them.

  flagstone bench
  flagstone bench a --rate 2000 --duration 1m
  flagstone bench get scan --rows 5000000 --in /mnt/nvme
  flagstone bench a c --endpoint http://127.0.0.1:8087 --workers 32`)
	return text.String()
}

// maxBenchRow is the size of the largest row that bench makes.
const maxBenchRow = 1 << 20

func (b *benchCommand) check() (loads []ycsb.Workload, err error) {
	if len(b.Workloads) == 0 {
		b.Workloads = []string{"a", "b", "c", "d", "e", "f"}
	}
	for _, name := range b.Workloads {
		load, ok := ycsb.Find(strings.ToLower(name))
		if !ok {
			return nil, misuse("there is no workload %q; there are %s", name, strings.Join(workloadNames(), ", "))
		}
		loads = append(loads, load)
	}
	switch {
	case b.In != "" && b.Endpoint != "":
		return nil, misuse("--in is for a store within this process, and --endpoint for another one; give one of them")
	case b.Rows < 1 || b.Rows > 1e9:
		return nil, misuse("--rows is %d; give 1 to 1,000,000,000", b.Rows)
	case b.Columns < 1 || b.Columns > 1024:
		return nil, misuse("--columns is %d; give 1 to 1,024", b.Columns)
	case int64(b.Columns)*int64(b.Value) > maxBenchRow:
		return nil, misuse("%d columns of %d bytes are more than %d; make rows smaller", b.Columns, b.Value, maxBenchRow)
	case b.Workers < 1 || b.Workers > 1000:
		return nil, misuse("--workers is %d; give 1 to 1,000", b.Workers)
	case b.Duration < 100*time.Millisecond:
		return nil, misuse("--duration is %s; give at least 100ms", b.Duration)
	case !(b.Rate >= 0 && b.Rate <= 1e9):
		return nil, misuse("--rate is %g; give up to 1,000,000,000 operations a second, or 0 for as many as are done", b.Rate)
	}
	return loads, nil
}

func workloadNames() (names []string) {
	for _, w := range ycsb.Workloads {
		names = append(names, w.Name)
	}
	return names
}

// Run measures.
func (b *benchCommand) Run(ctx context.Context, c *output) (err error) {
	loads, err := b.check()
	if err != nil {
		return err
	}
	table, err := b.table(ctx, c)
	if err != nil {
		return err
	}
	defer func() {
		if left := table.Close(); err != nil && left != nil {
			err = fmt.Errorf("%w; %w", err, left)
		} else if left != nil {
			err = left
		}
	}()
	options := ycsb.Options{
		Rows: b.Rows, Columns: b.Columns, ValueSize: int(b.Value), Workers: b.Workers, Duration: b.Duration, Rate: b.Rate,
		Progress: func(what string, done int64) { fmt.Fprintf(c.err, "flagstone: %s: %d\n", what, done) },
	}
	if c.terminal() { // one line, and the next result is written over it
		options.Progress = func(what string, done int64) { fmt.Fprintf(c.err, "\r%s: %d\x1b[K\r", what, done) }
	}
	bench := ycsb.New(table, options)
	took, err := bench.Load(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintf(c.err, "flagstone: loaded %d rows of %d columns of %s in %s, %.0f rows/s, with %d workers\n", b.Rows, b.Columns, bytesText(int64(b.Value)),
		took.Round(time.Millisecond), float64(b.Rows)/took.Seconds(), b.Workers)
	for _, load := range loads {
		result, err := bench.Run(ctx, load)
		if err != nil {
			return err
		}
		if b.JSON {
			err = c.jsonLine(result)
		} else {
			err = printResult(c.out, result)
		}
		if err != nil {
			return err
		}
		if result.Stopped {
			return errors.New("interrupted")
		}
	}
	return nil
}

// printResult prints a table of the kinds of operations, and a chart over time.
func printResult(out io.Writer, r *ycsb.Result) error {
	fmt.Fprintf(out, "%s\n%d operations in %.1f s, %.0f/s", r.About, r.Operations, r.Seconds, r.PerSecond)
	if r.Asked > 0 {
		fmt.Fprintf(out, "; %g/s were asked for, and %d of them not begun in time", r.Asked, r.Unserved)
	}
	fmt.Fprint(out, "\n\n")
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "\tCOUNT\tPER S\tMEAN\tP50\tP90\tP99\tP99.9\tP99.99\tMAX\t")
	line := func(name, count, rate string, l *ycsb.Latencies) {
		fmt.Fprintf(w, "%s\t%s\t%s", name, count, rate)
		for _, us := range []float64{l.Mean, l.P50, l.P90, l.P99, l.P999, l.P9999, l.Max} {
			fmt.Fprintf(w, "\t%s", latencyText(us))
		}
		fmt.Fprintln(w, "\t")
	}
	for i := range r.Kinds {
		k := &r.Kinds[i]
		line(k.Kind, fmt.Sprint(k.Count), fmt.Sprintf("%.0f", k.PerSecond), &k.Latencies)
	}
	if r.Timers != nil {
		line("timers", "", "", r.Timers)
	}
	if err := w.Flush(); err != nil {
		return err
	}
	for i := range r.Kinds {
		if k := &r.Kinds[i]; k.Rows > 0 {
			fmt.Fprintf(out, "scans read %d rows, %.0f/s\n", k.Rows, float64(k.Rows)/r.Seconds)
		}
	}
	_, err := fmt.Fprintf(out, "\n%s\n\n", chart(r))
	return err
}

// chart draws the operations of each whole second.
func chart(r *ycsb.Result) string {
	whole := r.Timeline[:len(r.Timeline)-1]
	if len(whole) < 2 {
		return ""
	}
	points := make([]float64, len(whole))
	for i, n := range whole {
		points[i] = float64(n)
	}
	const widest = 72
	return asciigraph.Plot(points, asciigraph.Height(8), asciigraph.Width(min(widest, max(len(points), 30))), asciigraph.LowerBound(0),
		asciigraph.UpperBound(slices.Max(points)), asciigraph.Precision(0), asciigraph.Caption("operations in each second"))
}

// latencyText is a number of microseconds with three digits.
func latencyText(us float64) string {
	switch {
	case us < 999.5:
		return fmt.Sprintf("%.3gus", us)
	case us < 999.5e3:
		return fmt.Sprintf("%.3gms", us/1e3)
	}
	return fmt.Sprintf("%.3gs", us/1e6)
}
