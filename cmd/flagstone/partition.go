package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

type partitionCommand struct {
	List  partitionListCommand  `cmd:"" help:"List the partitions of a table: bounds, size, load, and what splits cannot mend."`
	Split partitionSplitCommand `cmd:"" help:"Begin a partition at a value of the first key column."`
	Merge partitionMergeCommand `cmd:"" help:"Join the two partitions that meet at a value of the first key column."`
}

// Help is the long help of the command.
func (partitionCommand) Help() string {
	return `Partitions split and merge by themselves; docs/partitions.md says when. A cut that was made here stays until it is taken away here. A value of the first key column is written as it is if it is a string, in decimal if it is an integer (after --, if it is negative), and in hexadecimal if it is binary.

  flagstone partition list orders
  flagstone partition split orders customer-500
  flagstone partition merge orders customer-500`
}

// ofTable names a table.
type ofTable struct {
	at
	Table    string `arg:"" predictor:"table" help:"The table."`
	Instance string `default:"demo" env:"FLAGSTONE_INSTANCE" help:"Its instance."`
}

type partitionListCommand struct {
	ofTable
	JSON bool `name:"json" help:"Print the list as JSON."`
}

// Help is the long help of the command.
func (partitionListCommand) Help() string {
	return `READS/S, WRITES/S and UNITS/S are rows and capacity units per second, averages in which an operation counts half after 20 seconds; they are 0 if no server has the store open. BYTES/ROW is the size of a row that is read or written, on average; a capacity unit is 4 KiB of an operation. BUSIEST KEY is the value of the first key column with the most units in a sample of the last operations, with its share; - says that none has a tenth. CUT says who cut the table where the partition starts.`
}

// Run prints the partitions.
func (l *partitionListCommand) Run(ctx context.Context, c *output) error {
	return l.with(ctx, toRead, func(home admin.Admin) error {
		list, err := home.Partitions(ctx, l.Instance, l.Table)
		if err != nil {
			return err
		}
		if l.JSON {
			return c.json(list)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "ID\tSTART\tEND\tCUT\tBYTES\tREADS/S\tWRITES/S\tBYTES/ROW\tUNITS/S\tBUSIEST KEY\tFINDINGS")
		for i, p := range list {
			fmt.Fprintf(w, "%d\t%s\t%s\t%s\t%d\t%.0f\t%.0f\t%s\t%.0f\t%s\t%s\n", p.ID, boundText(p.Start), boundText(p.End), cutBy(i, p.Cut), p.Bytes,
				p.Reads, p.Writes, meanText(p.ByteRate, p.Reads+p.Writes), p.Units, busiest(&p), findings(p.Findings))
		}
		return w.Flush()
	})
}

// boundText shows the bound of a partition in one line.
func boundText(text *string) string {
	if text == nil {
		return "-"
	}
	if *text == "-" {
		return strconv.Quote(*text)
	}
	return lineText(*text)
}

func busiest(p *instances.Partition) string {
	if p.Busiest == nil {
		return "-"
	}
	return fmt.Sprintf("%s %.0f%%", boundText(p.Busiest), 100*p.BusiestUnits/p.Units)
}

func cutBy(i int, byUser bool) string {
	switch {
	case i == 0:
		return "-"
	case byUser:
		return "user"
	}
	return "store"
}

func findings(list []instances.Finding) string {
	var shown []string
	for _, f := range list {
		text := fmt.Sprintf("%s: %.0f", f.Kind, f.Figure)
		if f.Key != nil {
			text = fmt.Sprintf("%s %s: %.0f", f.Kind, boundText(f.Key), f.Figure)
		}
		shown = append(shown, text)
	}
	return strings.Join(shown, "; ")
}

type partitionSplitCommand struct {
	ofTable
	At string `arg:"" help:"The value at which a partition is to begin."`
}

// Run splits the partition.
func (s *partitionSplitCommand) Run(ctx context.Context) error {
	return s.with(ctx, toChange, func(home admin.Admin) error { return home.Split(ctx, s.Instance, s.Table, s.At) })
}

type partitionMergeCommand struct {
	ofTable
	At string `arg:"" help:"The value at which the second partition begins."`
}

// Run merges the partitions.
func (m *partitionMergeCommand) Run(ctx context.Context) error {
	return m.with(ctx, toChange, func(home admin.Admin) error { return home.Merge(ctx, m.Instance, m.Table, m.At) })
}
