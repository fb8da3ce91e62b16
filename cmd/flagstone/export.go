package main

// This file is the command export. Where rows come from is in exportsource.go, and files are in package rowfile.

import (
	"bufio"
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"time"

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

	State     string        `type:"path" placeholder:"FILE" help:"Remember in this file how far the export is. Run again with it after an interruption, it goes on there. Until it is complete, the rows are in a file beside it, FILE.NUMBER.part. For CSV and JSON Lines."`
	SaveEvery time.Duration `default:"1s" placeholder:"DURATION" help:"How often --state is written. ${default} if not given."`

	limiter *rate.Limiter // nil: no limit
	saved   *exportState  // nil: the export cannot go on
}

// Help is the long help of the command.
func (exportCommand) Help() string {
	return `The rows are in the order of their keys. Those of a folder are as they were at one moment. Those of an endpoint are not: each page is read at its own.

JSON Lines and Parquet without --columns hold every version and type, and an import of them makes the same rows. CSV holds the newest version of each column, without its time; two passes over the table find the columns, unless --columns gives all with types. --columns with types makes a Parquet file flat: a column for each, for other programs. The file has its name only when it is complete; until then it is FILE.NUMBER.part.

With --state the same command goes on behind the rows that are durable. It refuses a folder that was opened to write meanwhile, since the file would not be of one moment. Parquet cannot go on: its index is at its end.

  flagstone export orders orders.jsonl
  flagstone export orders orders.parquet --columns total:double,state:string
  flagstone export orders orders.csv --endpoint http://127.0.0.1:8087 --state export.state`
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
	case e.State != "" && (e.File == stdio || format == rowfile.Parquet):
		return nil, misuse("--state is for files of CSV and JSON Lines; standard output and a Parquet file, whose index is at its end, cannot go on")
	case isOfState(e.State, e.File):
		return nil, misuse("%s is a file of --state, and cannot be that of the rows; give another name to one of them", e.File)
	case e.State != "" && e.SaveEvery <= 0:
		return nil, misuse("--save-every is %s; give a time above 0", e.SaveEvery)
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
	if e.State == "" {
		if err := e.checkNew(); err != nil {
			return err
		}
	}
	if err := e.locate(ctx, c); err != nil {
		return err
	}
	unlock, err := lockState(e.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	source, err := e.source(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(advised(err), source.close()) }()
	layout := rowfile.Layout{Key: source.key(), Columns: p.typed}
	for _, name := range p.query.Columns {
		if slices.ContainsFunc(layout.Key, func(k rowfile.Column) bool { return k.Name == name }) {
			return misuse("--columns %s: that is a column of the key, which is always there", name)
		}
	}
	if e.State != "" {
		return e.goOn(ctx, c, source, p, &layout)
	}
	all, err := e.findColumns(ctx, c, source, p, &layout)
	if err != nil {
		return err
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

// checkNew refuses a file that is there already.
func (e *exportCommand) checkNew() error {
	if e.File != stdio && !e.Overwrite && exists(e.File) {
		return fmt.Errorf("%s exists; give another name, or --overwrite", e.File)
	}
	return nil
}

// maxColumns bounds the columns of a CSV file.
const maxColumns = 10_000

// findColumns finds the columns of a file that has to name them, if they are not given, and then the number of rows.
func (e *exportCommand) findColumns(ctx context.Context, c *output, source rowSource, p *plan, layout *rowfile.Layout) (rows int64, err error) {
	if p.format == rowfile.CSV && len(p.typed) == 0 {
		layout.Columns, rows, err = e.columns(ctx, c, source, p)
	}
	return rows, err
}

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
	rows, share, unseen := int64(0), 0.0, newUnseen(p.query.Columns)
	ranges, at, err := source.ranges(ctx, &p.query)
	if err != nil {
		return err
	}
	s := e.saved
	if s != nil && s.Rows > 0 {
		key, _ := hex.DecodeString(s.Key) // it was read before
		rows, share, unseen = s.Rows, at.share(key), nil
	}
	progress.Begin(rows, share)
	err = eachPage(ctx, ranges, func(page []rowfile.Row) (err error) {
		before := share
		if share, err = at.after(share, page); err != nil {
			return err
		}
		if p.pick != nil {
			page = p.pick(page)
		}
		if s != nil && len(page) > 0 {
			if page, err = s.behind(page); err != nil {
				return err
			}
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
			if s != nil && time.Since(s.at) >= e.SaveEvery {
				if err := s.save(w, &page[i], rows); err != nil {
					return err
				}
			}
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
	if err == nil && s != nil {
		s.Done = true
		err = s.save(w, nil, rows)
	}
	if err != nil {
		progress.Clear()
		return err
	}
	progress.End(rows)
	unseen.warn(c, int(rows))
	return nil
}
