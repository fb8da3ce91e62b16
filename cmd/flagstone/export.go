package main

// This file is the command export. Where rows come from is in exportsource.go, and files are in package rowfile.

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

type exportCommand struct {
	ofFiles
	File      string   `arg:"" optional:"" default:"-" help:"The file, which must not exist; -, the default, is standard output."`
	Columns   []string `placeholder:"NAME[:TYPE]" help:"Only these attribute columns. Types make a flat Parquet file, and spare CSV to look for the columns first."`
	Prefix    []string `placeholder:"VALUE" help:"Only rows whose key begins with these values."`
	From      *string  `placeholder:"VALUE" help:"Begin at this value of the next key column."`
	To        *string  `placeholder:"VALUE" help:"End before this value of it."`
	Where     string   `placeholder:"FILTER" help:"Only rows that pass, as in 'flagstone scan'."`
	Versions  int32    `default:"0" placeholder:"N" help:"Up to so many versions of each column, newest first. If not given, all, and of CSV and flat Parquet files the newest."`
	Rate      float64  `default:"0" placeholder:"ROWS" help:"Write so many rows in a second at most; 0, the default, as many as there are. Rows that --where drops are read besides, and do not count."`
	Overwrite bool     `help:"Replace the file if it exists."`

	limiter *rate.Limiter // nil: no limit
}

// Help is the long help of the command.
func (exportCommand) Help() string {
	return `The rows are in the order of their keys. Those of a folder are as they were at one moment. Those of an endpoint are not: each page is read at its own.

JSON Lines and Parquet without --columns hold every version and type, and an import of them makes the same rows. CSV holds the newest version of each column, without its time; two passes over the table find the columns, unless --columns gives all with types. --columns with types makes a Parquet file flat: a column for each, for other programs. The file has its name only when it is complete; until then it is FILE.NUMBER.part.

  flagstone export orders orders.jsonl
  flagstone export orders orders.parquet --columns total:double,state:string
  flagstone export orders orders.csv --endpoint http://127.0.0.1:8087`
}

// plan is what an export writes.
type plan struct {
	format rowfile.Format
	typed  []rowfile.Column // --columns, if all of them have a type
	query  instances.Query
	pick   func(page []rowfile.Row) []rowfile.Row // what is written of a page; nil: all
}

// plan checks the options.
func (e *exportCommand) plan() (*plan, error) {
	format, err := e.format(e.File)
	if err != nil {
		return nil, err
	}
	p := &plan{format: format, query: instances.Query{
		Table: e.Table, Prefix: e.Prefix, From: e.From, To: e.To, Where: e.Where, MaxVersions: e.Versions,
	}}
	for _, text := range e.Columns {
		c := rowfile.ParseColumn(text)
		p.query.Columns = append(p.query.Columns, c.Name)
		if c.Type != row.TypeNone {
			p.typed = append(p.typed, c)
		}
	}
	typed := len(p.typed) > 0
	flat := format == rowfile.CSV || format == rowfile.Parquet && typed
	switch {
	case typed && len(p.typed) < len(e.Columns):
		return nil, misuse("--columns gives a type to some columns; give one to all, or to none")
	case typed && format == rowfile.JSON:
		return nil, misuse("JSON Lines have the type of each value; leave the types of --columns out")
	case e.Versions < 0:
		return nil, misuse("--versions is %d; give a number, or 0 for all", e.Versions)
	case flat && e.Versions > 1:
		return nil, misuse("CSV and flat Parquet files have one version of a cell; JSON Lines, and Parquet without types in --columns, have several")
	case flat:
		p.query.MaxVersions = 1
	case e.Versions == 0:
		p.query.MaxVersions = math.MaxInt32
	}
	return p, nil
}

// Run exports.
func (e *exportCommand) Run(ctx context.Context, c *output) (err error) {
	p, err := e.plan()
	if err != nil {
		return err
	}
	if e.limiter, err = limiterOf(e.Rate); err != nil {
		return err
	}
	if e.File != stdio && !e.Overwrite && exists(e.File) {
		return fmt.Errorf("%s exists; give another name, or --overwrite", e.File)
	}
	if err := e.locate(ctx, c); err != nil {
		return err
	}
	source, err := e.source(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, source.close()) }()
	layout := rowfile.Layout{Key: source.key(), Columns: p.typed}
	for _, name := range p.query.Columns {
		if slices.ContainsFunc(layout.Key, func(k rowfile.Column) bool { return k.Name == name }) {
			return misuse("--columns %s: that is a column of the key, which is always there", name)
		}
	}
	all := int64(0)
	if p.format == rowfile.CSV && len(p.typed) == 0 {
		if layout.Columns, all, err = e.columns(ctx, c, source, p); err != nil {
			return err
		}
	}
	if e.File == stdio {
		return e.write(ctx, c, c.out, source, p, &layout, all)
	}
	return vfs.MakeFile(e.File, e.Overwrite, func(out io.Writer) error {
		buffered := bufio.NewWriterSize(out, 256<<10)
		if err := e.write(ctx, c, buffered, source, p, &layout, all); err != nil {
			return err
		}
		return buffered.Flush()
	})
}

// maxColumns bounds the columns of a CSV file.
const maxColumns = 10_000

// columns finds the columns and types of all rows, and the number of rows.
func (e *exportCommand) columns(ctx context.Context, c *output, source rowSource, p *plan) (columns []rowfile.Column, rows int64, err error) {
	progress := e.progress(c, "looked for columns in")
	progress.Begin(0, 0)
	seen := map[rowfile.Column]bool{}
	ranges, at, err := source.ranges(ctx, &p.query)
	if err != nil {
		return nil, 0, err
	}
	share := 0.0
	err = eachPage(ctx, ranges, func(page []rowfile.Row) error {
		before := share
		if share, err = at.after(share, page); err != nil {
			return err
		}
		for i := range page {
			if err := e.wait(ctx, progress, rows, before); err != nil {
				return err
			}
			rows++
			for _, cell := range page[i].Cells {
				seen[rowfile.Column{Name: cell.Name, Type: cell.Value.Type()}] = true
			}
		}
		if len(seen) > maxColumns {
			return fmt.Errorf("the rows have more than %d columns; name those for CSV with --columns", maxColumns)
		}
		progress.Show(rows, share)
		return nil
	})
	for c := range seen {
		columns = append(columns, c)
	}
	slices.SortFunc(columns, func(a, b rowfile.Column) int { return cmp.Or(cmp.Compare(a.Name, b.Name), cmp.Compare(a.Type, b.Type)) })
	return columns, rows, err
}

// wait keeps to --rate. A page may so take long: it shows the progress.
func (e *exportCommand) wait(ctx context.Context, progress *bulkio.Progress, rows int64, share float64) error {
	if e.limiter == nil {
		return nil
	}
	progress.Show(rows, share)
	return e.limiter.Wait(ctx)
}

// write writes the rows. all is their number, 0 if it is unknown.
func (e *exportCommand) write(ctx context.Context, c *output, out io.Writer, source rowSource, p *plan, layout *rowfile.Layout, all int64) error {
	w, err := rowfile.NewWriter(out, p.format, layout)
	if err != nil {
		return err
	}
	progress := e.progress(c, "exported")
	progress.Begin(0, 0)
	rows, unseen := int64(0), newUnseen(p.query.Columns)
	ranges, at, err := source.ranges(ctx, &p.query)
	if err != nil {
		return err
	}
	share := 0.0
	err = eachPage(ctx, ranges, func(page []rowfile.Row) (err error) {
		before := share
		if share, err = at.after(share, page); err != nil {
			return err
		}
		if p.pick != nil {
			page = p.pick(page)
		}
		for i := range page {
			if err := e.wait(ctx, progress, rows, before); err != nil {
				return err
			}
			if err := w.Write(&page[i]); err != nil {
				return err
			}
			for j := range page[i].Cells {
				delete(unseen, page[i].Cells[j].Name)
			}
			rows++
		}
		if all > 0 {
			share = float64(rows) / float64(all)
		}
		progress.Show(rows, share)
		return nil
	})
	if err == nil {
		err = w.Close()
	}
	if err != nil {
		progress.Clear()
		return err
	}
	progress.End(rows)
	unseen.warn(c, int(rows))
	return nil
}
