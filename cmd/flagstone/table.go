package main

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
)

type tableCommand struct {
	List     tableListCommand      `cmd:"" help:"List the tables of an instance: key, options, size, partitions."`
	Describe tableDescribeCommand  `cmd:"" help:"Show one table."`
	Create   tableCreateCommand    `cmd:"" help:"Make a table."`
	Alter    tableAlterCommand     `cmd:"" help:"Change the options of a table."`
	Drop     tableDropCommand      `cmd:"" help:"Delete a table with its rows."`
	Flush    tableFlushCommand     `cmd:"" help:"Write what a table has in memory to table files."`
	Split    partitionSplitCommand `cmd:"" help:"Split a partition of a table: 'flagstone partition split'."`
	Compact  tableCompactCommand   `cmd:"" help:"Merge all files of a table, and drop what is deleted, expired or overwritten."`
}

// Help is the long help of the command.
func (tableCommand) Help() string {
	return `Rows are read and changed by 'flagstone get', 'scan', 'count', 'put', 'update' and 'delete'.

  flagstone table create orders --key customer:string --key order:integer --versions 3
  flagstone table alter orders --ttl 86400 --yes
  flagstone table list`
}

// inInstance names an instance.
type inInstance struct {
	at
	Instance string `default:"demo" env:"FLAGSTONE_INSTANCE" help:"The instance."`
}

type tableListCommand struct {
	inInstance
	JSON bool `name:"json" help:"Print the list as JSON."`
}

// Run prints the tables.
func (l *tableListCommand) Run(ctx context.Context, c *output) error {
	return l.with(ctx, toRead, func(home admin.Admin) error {
		list, err := home.Tables(ctx, l.Instance)
		if err != nil {
			return err
		}
		if l.JSON {
			return c.json(list)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		fmt.Fprintln(w, "NAME\tKEY\tTTL\tVERSIONS\tSTREAM\tBYTES\tPARTITIONS\tCREATED\tRESERVED")
		for _, t := range list {
			fmt.Fprintf(w, "%s\t%s\t%s\t%d\t%s\t%d\t%d\t%s\t%s\n", t.Name, keyColumns(t.Key), ttlText(t.TimeToLive), t.MaxVersions,
				streamText(t.StreamHours), t.Bytes, t.Partitions, moment(t.CreatedMillis), reservedText(&t))
		}
		return w.Flush()
	})
}

// json prints a value as people read it.
func (c *output) json(v any) error {
	encoder := json.NewEncoder(c.out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(v)
}

// jsonLine prints a value as one line.
func (c *output) jsonLine(v any) error { return json.NewEncoder(c.out).Encode(v) }

func keyColumns(key []instances.KeyColumn) string {
	var columns []string
	for _, k := range key {
		text := lineText(k.Name) + ":" + k.Type
		if k.AutoIncrement {
			text += ":" + instances.AutoValue
		}
		columns = append(columns, text)
	}
	return strings.Join(columns, ",")
}

func ttlText(seconds int32) string {
	if seconds < 0 {
		return "-"
	}
	return fmt.Sprintf("%ds", seconds)
}

func streamText(hours int32) string {
	if hours == 0 {
		return "-"
	}
	return fmt.Sprintf("%dh", hours)
}

// reservedText is the units that are reserved for a second: those of reads, those of writes.
func reservedText(t *instances.Table) string {
	if t.ReservedRead == 0 && t.ReservedWrite == 0 {
		return "-"
	}
	return fmt.Sprintf("%d/%d", t.ReservedRead, t.ReservedWrite)
}

type tableDescribeCommand struct {
	ofTable
	JSON bool `name:"json" help:"Print the table as JSON."`
}

// Run prints the table.
func (d *tableDescribeCommand) Run(ctx context.Context, c *output) error {
	return d.with(ctx, toRead, func(home admin.Admin) error {
		t, err := home.Table(ctx, d.Instance, d.Table)
		if err != nil {
			return err
		}
		if d.JSON {
			return c.json(t)
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		for _, line := range [][2]any{
			{"name", t.Name}, {"key", keyColumns(t.Key)}, {"time to live", ttlText(t.TimeToLive)}, {"max versions", t.MaxVersions},
			{"max version offset", fmt.Sprintf("%ds", t.MaxVersionOffset)}, {"updates allowed", t.AllowUpdate},
			{"reserved read units", t.ReservedRead}, {"reserved write units", t.ReservedWrite}, {"stream", streamText(t.StreamHours)},
			{"bytes", t.Bytes}, {"partitions", t.Partitions}, {"created", moment(t.CreatedMillis)},
		} {
			fmt.Fprintf(w, "%s\t%v\n", line[0], line[1])
		}
		return w.Flush()
	})
}

// tableOptions are what can be changed of a table.
type tableOptions struct {
	TTL      *int32 `name:"ttl" placeholder:"SECONDS" help:"Time To Live in seconds, -1 for ever."`
	Versions *int32 `placeholder:"N" help:"Max Versions: how many versions of a cell are kept."`
	Offset   *int64 `name:"version-offset" placeholder:"SECONDS" help:"Max Version Offset: how far the version of a cell may be from the clock."`
	Stream   *int32 `placeholder:"HOURS" help:"Keep a stream of changes for so many hours; 0 for none."`
	Read     *int32 `name:"reserved-read" placeholder:"UNITS" help:"Reserved throughput: capacity units of reads in a second."`
	Write    *int32 `name:"reserved-write" placeholder:"UNITS" help:"Reserved throughput: capacity units of writes in a second."`
}

func (o *tableOptions) change() instances.TableChange {
	return instances.TableChange{
		TimeToLive: o.TTL, MaxVersions: o.Versions, MaxVersionOffset: o.Offset, StreamHours: o.Stream,
		ReservedRead: o.Read, ReservedWrite: o.Write,
	}
}

type tableCreateCommand struct {
	ofTable
	Key []string `required:"" sep:"none" placeholder:"NAME:TYPE" help:"A column of the primary key, one to four in order. TYPE is string, integer or binary; integer:auto is numbered by the store."`
	tableOptions
}

// Help is the long help of the command.
func (tableCreateCommand) Help() string {
	return `Without options a table keeps one version of each cell for ever, and has no stream.`
}

// Run makes the table.
func (t *tableCreateCommand) Run(ctx context.Context, c *output) error {
	table := instances.NewTable{Name: t.Table, TableChange: t.change()}
	for _, text := range t.Key {
		name, of, _ := strings.Cut(text, ":")
		of, auto := strings.CutSuffix(of, ":"+instances.AutoValue)
		if !slices.Contains([]string{"string", "integer", "binary"}, of) {
			return misuse("--key %s: %q is no type of a key; write NAME:string, NAME:integer or NAME:binary", text, of)
		}
		table.Key = append(table.Key, instances.KeyColumn{Name: name, Type: of, AutoIncrement: auto})
	}
	return t.with(ctx, toChange, func(home admin.Admin) error {
		if err := home.CreateTable(ctx, t.Instance, &table); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "flagstone: made table %s\n", t.Table)
		return nil
	})
}

type tableAlterCommand struct {
	ofTable
	tableOptions
	Yes bool `help:"Yes, also if cells or records of the stream go by it."`
}

// Help is the long help of the command.
func (tableAlterCommand) Help() string {
	return `A shorter Time To Live and fewer versions delete what is beyond them, and '--stream 0' the stream, at once and for good. The command says what would go, and does it with --yes.`
}

// Run changes the table.
func (t *tableAlterCommand) Run(ctx context.Context) error {
	change := t.change()
	if change == (instances.TableChange{}) {
		return misuse("nothing to change; give --ttl, --versions, --version-offset, --stream, --reserved-read or --reserved-write")
	}
	return t.with(ctx, toChange, func(home admin.Admin) error {
		if !t.Yes {
			lost, err := t.lost(ctx, home)
			if err != nil {
				return err
			}
			if lost != "" {
				return misuse("this deletes %s; repeat it with --yes", lost)
			}
		}
		return home.AlterTable(ctx, t.Instance, t.Table, &change)
	})
}

// alterSample is of how many rows an alteration says what they would lose.
const alterSample = 100

// lost says what the change deletes of a table that has something.
func (t *tableAlterCommand) lost(ctx context.Context, home admin.Admin) (string, error) {
	old, err := home.Table(ctx, t.Instance, t.Table)
	if err != nil {
		return "", err
	}
	var lost []string
	oldest, versions := int64(math.MinInt64), old.MaxVersions
	if t.TTL != nil && *t.TTL >= 0 && (old.TimeToLive < 0 || *t.TTL < old.TimeToLive) {
		lost = append(lost, fmt.Sprintf("cells that are older than %ds", *t.TTL))
		oldest = time.Now().UnixMilli() - int64(*t.TTL)*1000
	}
	if t.Versions != nil && *t.Versions < versions {
		versions = *t.Versions
		lost = append(lost, fmt.Sprintf("versions of a cell but for the newest %d", versions))
	}
	if len(lost) > 0 {
		page, err := home.Rows(ctx, t.Instance, &instances.Query{Table: t.Table, Limit: alterSample, MaxVersions: old.MaxVersions})
		if err != nil {
			return "", err
		}
		hit := 0
		for _, r := range page.Rows {
			of := map[string]int32{}
			if slices.ContainsFunc(r.Columns, func(c instances.Cell) bool {
				of[c.Name]++
				return c.Version < oldest || of[c.Name] > versions
			}) {
				hit++
			}
		}
		lost = []string{fmt.Sprintf("%s, which %d of the first %d rows have now", strings.Join(lost, " and "), hit, len(page.Rows))}
		if hit == 0 && page.Next == nil { // that was the whole table
			lost = nil
		}
	}
	if t.Stream != nil && *t.Stream == 0 && old.StreamHours > 0 { // the service refuses other hours of a stream that is there
		lost = append(lost, "all records of the stream")
	}
	return strings.Join(lost, ", and "), nil
}

type tableDropCommand struct {
	ofTable
	Yes bool `required:"" help:"Yes, with all its rows."`
}

// Run drops the table.
func (t *tableDropCommand) Run(ctx context.Context, c *output) error {
	return t.with(ctx, toChange, func(home admin.Admin) error {
		if err := home.DropTable(ctx, t.Instance, t.Table); err != nil {
			return err
		}
		fmt.Fprintf(c.err, "flagstone: dropped table %s\n", t.Table)
		return nil
	})
}

type tableFlushCommand struct{ ofTable }

// Help is the long help of the command.
func (tableFlushCommand) Help() string {
	return `The store flushes by itself when memory is full; this is for looking at files and for measurements. Nothing is lost without it: what is in memory is in the log, too.`
}

// Run flushes the table.
func (t *tableFlushCommand) Run(ctx context.Context) error {
	return t.with(ctx, toChange, func(home admin.Admin) error { return home.FlushTable(ctx, t.Instance, t.Table) })
}

type tableCompactCommand struct{ ofTable }

// Help is the long help of the command.
func (tableCompactCommand) Help() string {
	return `Each byte of the table is read and written once. The store compacts by itself; this is for measurements, and to have the space of deleted or expired data back now.`
}

// Run compacts the table.
func (t *tableCompactCommand) Run(ctx context.Context) error {
	return t.with(ctx, toChange, func(home admin.Admin) error { return home.CompactTable(ctx, t.Instance, t.Table) })
}
