package main

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"
	"unicode/utf8"

	"golang.org/x/term"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/ots"
)

type topCommand struct {
	at
	Interval time.Duration `default:"2s" placeholder:"DURATION" help:"How often the figures are read. ${default} if not given."`
	Count    int           `default:"0" placeholder:"N" help:"End after so many pictures; 0, the default, goes on until q or Ctrl-C."`
	Tables   int           `default:"20" placeholder:"N" help:"Show so many tables of each store at most, the busiest first. ${default} if not given."`
	JSON     bool          `name:"json" help:"Print all figures since the server was started, as one JSON object per picture: those of flagstone.Metrics."`
}

// Help is the long help of the command.
func (topCommand) Help() string {
	return `Figures are of the last interval. Pressure is how much writers are held back, up to 100%. UNITS/S are capacity units, one for every 4 KiB of an operation, and BYTES/ROW is the size of a row that is read or written: averages in which an operation counts half after 20 seconds. REFUSED/S are requests that had no capacity units left. PASSED/S are rows that ranges pass since they were deleted or have expired, the same average; 'flagstone table compact TABLE' drops them. GETS/S, SCANS/S and WRITES/S are of the engine, which times one operation in 64; a scan is a page of a range, and batches count in UNITS/S alone. BYTES are in memory and on disk, as those of 'flagstone table list'. P50 and P99 are at most a quarter too high. DEBT is what compactions have yet to merge; FILES are those of level 0 and of all levels. A terminal of 80 columns shows what matters most, a wider one more columns, a pipe all of them. 'flagstone partition list TABLE' shows where the load of a table is, 'flagstone advise TABLE' what to do about its key; both take a table as it is named here.

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
	if !t.JSON && c.terminal() {
		typed, release := endedByKeys(ctx)
		defer release()
		ctx = typed
	}
	home, err := t.server(ctx)
	if err != nil {
		return err
	}
	defer home.Close()
	before, err := home.Figures(ctx)
	if ctx.Err() != nil {
		return nil
	}
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
	width, tables := 0, t.Tables
	if f, ok := c.file(); ok && isTerminal(f) {
		text.WriteString("\x1b[H\x1b[2J")
		if columns, lines, err := term.GetSize(int(f.Fd())); err == nil && len(now) > 0 {
			width, tables = columns, min(t.Tables, max(lines/len(now)-storeLines, 1))
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(now)) {
		writeStore(&text, string(kind), before[kind], now[kind], seconds, tables, width)
	}
	picture := text.Bytes()
	if width > 0 { // the terminal may be one that waits for keys
		picture = bytes.ReplaceAll(picture, []byte("\n"), []byte("\r\n"))
	}
	_, err := c.out.Write(picture)
	return err
}

// storeLines is how many lines a store has besides its tables, with the line that a terminal keeps for the cursor: three of
// figures, the warning, the head of the list, how many tables there are more, and an empty one.
const storeLines = 8

// writeStore writes the figures of one store over some seconds: of so many tables at most, the busiest first, in lines
// of so many characters.
func writeStore(w *bytes.Buffer, kind string, before, now flagstone.Metrics, seconds float64, tables, width int) {
	rate := func(before, now int64) string { return bytesText(int64(float64(now-before)/seconds)) + "/s" }
	hits, misses := now.CacheHits-before.CacheHits, now.CacheMisses-before.CacheMisses
	share := "-"
	if hits+misses > 0 {
		share = fmt.Sprintf("%.1f%%", 100*float64(hits)/float64(hits+misses))
	}
	line := func(format string, args ...any) { fmt.Fprintln(w, cut(fmt.Sprintf(format, args...), width)) }
	line("%s: pressure %.0f%%, writers held back %s", kind, 100*now.Pressure, (now.Stalled - before.Stalled).Round(time.Millisecond))
	line("memtables %s of %s; cache %s, hits %s; snapshots %d",
		bytesText(now.MemoryBytes), bytesText(now.MemoryBudget), bytesText(now.CacheBytes), share, now.OpenSnapshots)
	line("written: log %s, flushes %s, compactions %s", rate(before.LogBytes, now.LogBytes),
		rate(before.FlushedBytes, now.FlushedBytes), rate(before.CompactedOut, now.CompactedOut))
	if now.Poisoned {
		line("THE STORE TAKES NO WRITES until the server is started again; its log says why")
	} else if now.Refusal != "" {
		line("WRITES ARE REFUSED: %s", lineText(now.Refusal))
	}
	earlier := make(map[string]flagstone.TableMetrics)
	for _, table := range before.Tables {
		earlier[table.Name] = table
	}
	now.Tables = slices.Clone(now.Tables) // the next picture needs what they are
	for i := range now.Tables {
		table := &now.Tables[i]
		of := earlier[table.Name]
		table.Gets, table.Scans, table.Updates = table.Gets.Since(of.Gets), table.Scans.Since(of.Scans), table.Updates.Since(of.Updates)
		table.Refused = max(table.Refused-of.Refused, 0) // of a table that was made anew
	}
	slices.SortStableFunc(now.Tables, func(a, b flagstone.TableMetrics) int { return cmp.Compare(b.Units, a.Units) })
	writeTables(w, now.Tables[:min(tables, len(now.Tables))], seconds, width)
	if n := len(now.Tables) - tables; n > 0 {
		line("and %d more tables", n)
	}
	fmt.Fprintln(w)
}

// topColumn is a column of the list of tables. A narrow terminal leaves out those of a high rank.
type topColumn struct {
	title string
	rank  int
	cell  func(t *flagstone.TableMetrics, seconds float64) string
}

// topColumns are in the order in which they are shown. The name of the table is behind them.
var topColumns = []topColumn{
	{"UNITS/S", 0, func(t *flagstone.TableMetrics, _ float64) string { return fmt.Sprintf("%.0f", t.Units) }},
	{"GETS/S", 1, func(t *flagstone.TableMetrics, seconds float64) string { return rateText(t.Gets, seconds) }},
	{"P50", 14, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Gets, 0.5) }},
	{"P99", 2, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Gets, 0.99) }},
	{"SCANS/S", 5, func(t *flagstone.TableMetrics, seconds float64) string { return rateText(t.Scans, seconds) }},
	{"P50", 16, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Scans, 0.5) }},
	{"P99", 7, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Scans, 0.99) }},
	{"WRITES/S", 3, func(t *flagstone.TableMetrics, seconds float64) string { return rateText(t.Updates, seconds) }},
	{"P50", 15, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Updates, 0.5) }},
	{"P99", 4, func(t *flagstone.TableMetrics, _ float64) string { return quantileText(t.Updates, 0.99) }},
	{"REFUSED/S", 6, func(t *flagstone.TableMetrics, seconds float64) string {
		return fmt.Sprintf("%.0f", float64(t.Refused)/seconds)
	}},
	{"PASSED/S", 8, func(t *flagstone.TableMetrics, _ float64) string { return fmt.Sprintf("%.0f", t.PassedRate) }},
	{"BYTES/ROW", 9, func(t *flagstone.TableMetrics, _ float64) string { return meanText(t.ByteRate, t.RowRate) }},
	{"BYTES", 10, func(t *flagstone.TableMetrics, _ float64) string { return bytesText(t.Size) }},
	{"DEBT", 11, func(t *flagstone.TableMetrics, _ float64) string { return bytesText(t.Debt) }},
	{"PARTITIONS", 12, func(t *flagstone.TableMetrics, _ float64) string { return strconv.Itoa(t.Partitions) }},
	{"FILES", 13, func(t *flagstone.TableMetrics, _ float64) string {
		all := 0
		for _, files := range t.Files {
			all += files
		}
		return fmt.Sprintf("%d, %d", t.Files[0], all)
	}},
}

// writeTables writes a line for each table. Lines have at most so many characters, 0 for any number: columns are left
// out, then names cut.
func writeTables(w *bytes.Buffer, tables []flagstone.TableMetrics, seconds float64, width int) {
	const gap, usualName = 2, 24
	names, longest := []string{"TABLE"}, 0
	for i := range tables {
		names = append(names, lineText(tables[i].Name))
	}
	for _, name := range names {
		longest = max(longest, utf8.RuneCountInString(name))
	}
	cells, widths := make([][]string, len(topColumns)), make([]int, len(topColumns))
	for i, column := range topColumns {
		cells[i] = append(cells[i], column.title)
		for n := range tables {
			cells[i] = append(cells[i], column.cell(&tables[n], seconds))
		}
		for _, cell := range cells[i] {
			widths[i] = max(widths[i], utf8.RuneCountInString(cell)+gap)
		}
	}
	left, shown := width-min(longest, usualName), make([]bool, len(topColumns))
	for rank := range topColumns {
		i := slices.IndexFunc(topColumns, func(c topColumn) bool { return c.rank == rank })
		if width > 0 && widths[i] > left {
			break
		}
		left -= widths[i]
		shown[i] = true
	}
	room := max(left+min(longest, usualName), 1)
	for line, name := range names {
		for i := range topColumns {
			if shown[i] {
				fmt.Fprintf(w, "%*s  ", widths[i]-gap, cells[i][line])
			}
		}
		if width > 0 {
			name = cut(name, room)
		}
		fmt.Fprintln(w, name)
	}
}

// cut shortens a line to so many characters, 0 for any number.
func cut(line string, width int) string {
	if runes := []rune(line); width > 0 && len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return line
}

// rateText is how many operations per second a latency counts.
func rateText(l flagstone.Latency, seconds float64) string {
	if l.Timed() == 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f", float64(l.Timed()*latency.Every)/seconds)
}

// meanText is how many bytes a row has, of so many bytes and rows per second.
func meanText(bytes, rows float64) string {
	if rows < 0.05 {
		return "-"
	}
	return bytesText(int64(bytes / rows))
}

func quantileText(l flagstone.Latency, q float64) string {
	if l.Timed() == 0 {
		return "-"
	}
	return latencyText(float64(l.Quantile(q)) / 1e3)
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
