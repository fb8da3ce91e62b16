package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/ots"
)

type topCommand struct {
	at
	Interval time.Duration `default:"2s" placeholder:"DURATION" help:"How often the figures are read. ${default} if not given."`
	Count    int           `default:"0" placeholder:"N" help:"End after so many pictures; 0, the default, goes on until it is interrupted."`
	Tables   int           `default:"20" placeholder:"N" help:"Show so many tables of each store, the busiest first. ${default} if not given."`
	JSON     bool          `name:"json" help:"Print all figures since the server was started, as one JSON object per picture: those of flagstone.Metrics."`
}

// Help is the long help of the command.
func (topCommand) Help() string {
	return `Figures are of the last interval. PRESSURE is how much writers are held back, up to 100%. GETS/S and WRITES/S are of the engine, which times one operation in 64; ranges and batches do not count there. P50 and P99 are at most a quarter too high. FILES are those of level 0 and of all levels; DEBT is what compactions have yet to merge. 'flagstone partition list TABLE' shows where the load of a table is, 'flagstone advise TABLE' what to do about its key; both take a table as it is named here.

  flagstone top
  flagstone top --interval 10s --count 6 --json > figures.jsonl`
}

// figures are those of the stores, by the type of their instances.
type figures = map[ots.InstanceType]flagstone.Metrics

// Run prints pictures until ctx ends.
func (t *topCommand) Run(ctx context.Context, c *output) error {
	if t.Interval < 100*time.Millisecond {
		return misuse("--interval is %s; give at least 100ms", t.Interval)
	}
	if t.Count < 0 || t.Tables < 0 {
		return misuse("--count and --tables are numbers from 0 on")
	}
	home, err := t.server(ctx)
	if err != nil {
		return err
	}
	defer home.Close()
	before, err := home.Figures(ctx)
	if err != nil {
		return err
	}
	system := clock.System()
	read := system.Elapsed()
	ticker := time.NewTicker(t.Interval)
	defer ticker.Stop()
	for shown := 0; t.Count == 0 || shown < t.Count; shown++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		now, err := home.Figures(ctx)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil {
			return err
		}
		took := system.Elapsed() - read
		read += took
		if t.JSON {
			err = c.jsonLine(now)
		} else {
			err = t.print(c, before, now, took.Seconds())
		}
		if err != nil {
			return err
		}
		before = now
	}
	return nil
}

// print prints a picture, on an empty screen if it goes to a terminal.
func (t *topCommand) print(c *output, before, now figures, seconds float64) error {
	var text bytes.Buffer
	if c.terminal() {
		text.WriteString("\x1b[H\x1b[2J")
	}
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		t.store(&text, string(kind), before[kind], now[kind], seconds)
	}
	_, err := c.out.Write(text.Bytes())
	return err
}

// store prints the figures of one store over some seconds.
func (t *topCommand) store(w *bytes.Buffer, kind string, before, now flagstone.Metrics, seconds float64) {
	rate := func(before, now int64) string { return bytesText(int64(float64(now-before)/seconds)) + "/s" }
	hits, misses := now.CacheHits-before.CacheHits, now.CacheMisses-before.CacheMisses
	share := "-"
	if hits+misses > 0 {
		share = fmt.Sprintf("%.1f%%", 100*float64(hits)/float64(hits+misses))
	}
	fmt.Fprintf(w, "%s: pressure %.0f%%, writers held back %s; memtables %s of %s; cache %s, hits %s\n", kind, 100*now.Pressure,
		(now.Stalled - before.Stalled).Round(time.Millisecond), bytesText(now.MemoryBytes), bytesText(now.MemoryBudget), bytesText(now.CacheBytes), share)
	fmt.Fprintf(w, "written: log %s, flushes %s, compactions %s; snapshots %d\n", rate(before.LogBytes, now.LogBytes),
		rate(before.FlushedBytes, now.FlushedBytes), rate(before.CompactedOut, now.CompactedOut), now.OpenSnapshots)
	if now.Poisoned {
		fmt.Fprintln(w, "THE STORE TAKES NO WRITES until the server is started again; its log says why")
	}
	earlier := make(map[string]flagstone.TableMetrics)
	for _, table := range before.Tables {
		earlier[table.Name] = table
	}
	now.Tables = slices.Clone(now.Tables) // the next picture needs what they are
	for i := range now.Tables {
		table := &now.Tables[i]
		table.Gets, table.Updates = table.Gets.Since(earlier[table.Name].Gets), table.Updates.Since(earlier[table.Name].Updates)
	}
	busy := func(t flagstone.TableMetrics) uint64 { return t.Gets.Timed() + t.Updates.Timed() }
	slices.SortStableFunc(now.Tables, func(a, b flagstone.TableMetrics) int { return cmp.Compare(busy(b), busy(a)) })
	lines := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(lines, "GETS/S\tP50\tP99\tWRITES/S\tP50\tP99\tBYTES\tFILES\tDEBT\tPARTITIONS\t  TABLE")
	for _, table := range now.Tables[:min(t.Tables, len(now.Tables))] {
		var files int
		var size int64
		for level := range table.Files {
			files += table.Files[level]
			size += table.Bytes[level]
		}
		fmt.Fprintf(lines, "%s\t%s\t%s\t%d, %d\t%s\t%d\t  %s\n", operations(table.Gets, seconds), operations(table.Updates, seconds),
			bytesText(size+table.ValueBytes), table.Files[0], files, bytesText(table.Debt), table.Partitions, lineText(table.Name))
	}
	lines.Flush()
	if n := len(now.Tables) - t.Tables; n > 0 {
		fmt.Fprintf(w, "and %d more tables\n", n)
	}
	fmt.Fprintln(w)
}

// operations are the rate, the median and the 99th percentile of operations.
func operations(l flagstone.Latency, seconds float64) string {
	if l.Timed() == 0 {
		return "-\t-\t-"
	}
	return fmt.Sprintf("%.0f\t%s\t%s", float64(l.Timed()*latency.Every)/seconds, l.Quantile(0.5), l.Quantile(0.99))
}

// bytesText writes a number of bytes with a unit, rounded.
func bytesText(n int64) string {
	units := []string{"B", "KiB", "MiB", "GiB", "TiB"}
	f := float64(n)
	for f >= 1024 && len(units) > 1 {
		f, units = f/1024, units[1:]
	}
	if units[0] == "B" {
		return fmt.Sprintf("%d B", n)
	}
	return fmt.Sprintf("%.1f %s", f, units[0])
}
