package mvcc_test

// Golden cases of the rules: testdata/rules/*, one file per subject. To rewrite the
// expected answers, run go test ./mvcc -run Golden -rewrite, and read the difference.
//
// Commands:
//
//	runs              runs of one row, newest first, separated by "--"; a cell
//	                  per line, in any order
//	read              what a view shows: seq= limit= cutoff= columns=(a,b)
//	                  start= end= newest= from= to= nocells
//	prune             merge all runs, or runs=(first,last), 0 being the newest,
//	                  and put the output in their place: keep=N (default: the
//	                  largest limit of the views)
//	                  views=(seq:limit,...) limit= expiry= horizon=
//	                  below=anything|expiring|nothing
//	trim-for-delete   visible=(versions) delete= limit=
//
// Cells: "delete-row#5", "marker@10#5", "marker@max#5", "a@10#5=value",
// "a@10#5 delete", "a@10#5 trim", "a@max#5 trim". Versions are milliseconds,
// cutoffs seconds.

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

func TestGoldenRules(t *testing.T) {
	datadriven.Walk(t, "testdata/rules", func(t *testing.T, path string) {
		var runs [][]row.Cell // newest first
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "runs":
				runs = nil
				for part := range strings.SplitSeq(d.Input, "--\n") {
					runs = append(runs, parseCells(t, d, part))
				}
				return ""
			case "read":
				return goldenRead(t, d, runs)
			case "prune":
				from, to := 0, len(runs)-1
				if d.HasArg("runs") {
					d.ScanArgs(t, "runs", &from, &to)
				}
				input := slices.Concat(runs[from : to+1]...)
				sortCells(input)
				output := goldenPrune(t, d, input)
				runs = slices.Concat(runs[:from:from], [][]row.Cell{output}, runs[to+1:])
				return formatCells(output)
			case "trim-for-delete":
				return goldenTrim(t, d)
			}
			d.Fatalf(t, "unknown command %q", d.Cmd)
			return ""
		})
	})
}

func goldenRead(t *testing.T, d *datadriven.TestData, runs [][]row.Cell) string {
	v := mvcc.View{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}
	d.MaybeScanArgs(t, "seq", &v.Seq)
	d.MaybeScanArgs(t, "limit", &v.MaxVersions)
	d.MaybeScanArgs(t, "cutoff", &v.Cutoff)
	sel := mvcc.Selection{NoCells: d.HasArg("nocells")}
	if arg, ok := d.Arg("columns"); ok {
		for _, name := range arg.Vals {
			sel.Columns = append(sel.Columns, []byte(name))
		}
	}
	var start, end string
	d.MaybeScanArgs(t, "start", &start)
	d.MaybeScanArgs(t, "end", &end)
	sel.Start, sel.End = []byte(start), []byte(end)
	d.MaybeScanArgs(t, "newest", &sel.MaxVersions)
	d.MaybeScanArgs(t, "from", &sel.MinVersion)
	d.MaybeScanArgs(t, "to", &sel.MaxVersionExcl)
	var sources []mvcc.Iterator
	for _, cells := range runs {
		if len(cells) > 0 {
			it := mvcctest.Run{{Key: []byte("k"), Cells: cells}}.NewIterator()
			it.First()
			sources = append(sources, it)
		}
	}
	a := readBoth(t, mvcctest.NewRowMerge(sources), v, sel)
	if !a.exists {
		return "absent\n" + formatCells(a.cells)
	}
	return "exists\n" + formatCells(a.cells)
}

func goldenPrune(t *testing.T, d *datadriven.TestData, input []row.Cell) []row.Cell {
	limit := 1
	d.MaybeScanArgs(t, "limit", &limit)
	p := mvcc.Policy{ExpiryCutoff: mvcc.NoExpiry, MaxVersions: limit}
	if arg, ok := d.Arg("views"); ok {
		for _, s := range arg.Vals {
			v := mvcc.View{Cutoff: math.MaxInt64}
			if n, err := fmt.Sscanf(s, "%d:%d", &v.Seq, &v.MaxVersions); n != 2 {
				d.Fatalf(t, "view %q: %v", s, err)
			}
			p.Views = append(p.Views, v)
		}
	}
	p.Views = append(p.Views, mvcc.View{Seq: row.MaxSequence, MaxVersions: limit, Cutoff: math.MaxInt64})
	d.MaybeScanArgs(t, "keep", &p.MaxVersions)
	d.MaybeScanArgs(t, "expiry", &p.ExpiryCutoff)
	d.MaybeScanArgs(t, "horizon", &p.TombstoneHorizon)
	below := "anything"
	d.MaybeScanArgs(t, "below", &below)
	return prune(t, p, map[string]mvcc.Below{
		"anything": mvcc.BelowAnything, "expiring": mvcc.BelowExpiring, "nothing": mvcc.BelowNothing,
	}[below], input)
}

func goldenTrim(t *testing.T, d *datadriven.TestData) string {
	var versions []int64
	arg, _ := d.Arg("visible")
	for _, s := range arg.Vals {
		versions = append(versions, parseVersion(t, s))
	}
	var deleted int64
	var limit int
	d.ScanArgs(t, "delete", &deleted)
	d.ScanArgs(t, "limit", &limit)
	if threshold, ok := mvcc.TrimForDelete(versions, deleted, limit); ok {
		return fmt.Sprintf("trim@%d\n", threshold)
	}
	return "none\n"
}

func parseVersion(t *testing.T, s string) int64 {
	if s == "max" {
		return row.MaxVersion
	}
	v, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func parseCells(t *testing.T, d *datadriven.TestData, text string) (cells []row.Cell) {
	for line := range strings.Lines(text) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		head, value, isPut := strings.Cut(line, "=")
		head, kind, _ := strings.Cut(head, " ")
		name, number, ok := strings.Cut(head, "#")
		if !ok {
			d.Fatalf(t, "no sequence number in %q", line)
		}
		seq, err := strconv.ParseUint(number, 10, 64)
		if err != nil {
			d.Fatalf(t, "%q: %v", line, err)
		}
		name, version, _ := strings.Cut(name, "@")
		c := row.Cell{Column: []byte(name), Seq: seq, Version: row.MaxVersion}
		if version != "" {
			c.Version = parseVersion(t, version)
		}
		switch {
		case isPut:
			c.Kind, c.Type, c.Value = row.KindPut, row.TypeString, []byte(value)
		case name == "delete-row":
			c.Kind, c.Column = row.KindDeleteRow, nil
		case name == "marker":
			c.Kind, c.Column = row.KindRowMarker, nil
		case kind == "delete":
			c.Kind = row.KindDeleteVersion
		case kind == "trim":
			c.Kind = row.KindTrim
		default:
			d.Fatalf(t, "what is %q?", line)
		}
		cells = append(cells, c)
	}
	sortCells(cells)
	return cells
}

func formatCells(cells []row.Cell) string {
	var b strings.Builder
	for _, c := range cells {
		version := strconv.FormatInt(c.Version, 10)
		if c.Version == row.MaxVersion {
			version = "max"
		}
		switch c.Kind {
		case row.KindDeleteRow:
			fmt.Fprintf(&b, "delete-row#%d\n", c.Seq)
		case row.KindRowMarker:
			fmt.Fprintf(&b, "marker@%s#%d\n", version, c.Seq)
		case row.KindTrim:
			fmt.Fprintf(&b, "%s@%s#%d trim\n", c.Column, version, c.Seq)
		case row.KindDeleteVersion:
			fmt.Fprintf(&b, "%s@%s#%d delete\n", c.Column, version, c.Seq)
		case row.KindPut:
			fmt.Fprintf(&b, "%s@%s#%d=%s\n", c.Column, version, c.Seq, c.Value)
		}
	}
	return b.String()
}
