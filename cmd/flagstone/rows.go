package main

// This file holds the commands that read and change rows. They work beside a server, through its
// administration port, and on a store that no process has open.

import (
	"context"
	"encoding/csv"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/instances/admin"
	"github.com/flagstone-db/flagstone/row"
)

const whereHelp = ` A comparison in --where is a column, one of == != > >= < <=, and a value: a string in double quotes, a number (a double if it has a point or an exponent), true, false, or bytes as x"00ff". 'NAME exists' asks for the column. A name that is not a word is written in backquotes. A comparison with a missing column, or with a value of another type, is false, also !=.`

const keyHelp = `A value of the key is written as it is if its column is a string, in decimal if it is an integer, and in hexadecimal if it is binary. A string that begins with a dash, and is no integer, comes after --; all arguments there are values.`

// outputOptions say which columns of rows are printed, and how.
type outputOptions struct {
	Columns  []string `placeholder:"NAME,..." help:"Only these attribute columns."`
	Versions int32    `default:"1" placeholder:"N" help:"Up to so many versions of each column, newest first."`
	JSON     bool     `name:"json" xor:"form" help:"Print a JSON object per row."`
	CSV      bool     `name:"csv" xor:"form" help:"Print comma-separated values; needs --columns."`
}

type getCommand struct {
	ofTable
	Key []string `arg:"" help:"The values of the primary key."`
	outputOptions
}

// Help is the long help of the command.
func (getCommand) Help() string {
	return keyHelp + `

  flagstone get orders customer-500 17 --versions 3`
}

// Run prints the row.
func (g *getCommand) Run(ctx context.Context, c *output) error {
	return g.with(ctx, toRead, func(home admin.Admin) error {
		t, err := home.Table(ctx, g.Instance, g.Table)
		if err != nil {
			return err
		}
		if len(g.Key) != len(t.Key) {
			return misuse("the key of table %s is %s; %d values were given, %q. 'flagstone scan' takes the first ones", g.Table, keyColumns(t.Key), len(g.Key), g.Key)
		}
		query := instances.Query{Table: g.Table, Prefix: g.Key}
		if n, err := g.print(ctx, c, home, g.Instance, t, &query, 0); err != nil || n > 0 {
			return err
		}
		return fmt.Errorf("%w: table %s has no such row", instances.ErrNotFound, g.Table)
	})
}

// ranged names rows of a table.
type ranged struct {
	ofTable
	Prefix   []string `arg:"" optional:"" help:"Values of the first key columns, which the rows have."`
	From     *string  `placeholder:"VALUE" help:"Begin at this value of the next key column."`
	To       *string  `placeholder:"VALUE" help:"End before this value of it."`
	Backward bool     `help:"In descending order; --from is then above --to."`
	Where    string   `placeholder:"FILTER" help:"Only rows that pass, such as 'state == \"paid\" and (total > 10.0 or not note exists)'."`
}

func (r *ranged) query() instances.Query {
	return instances.Query{Table: r.Table, Prefix: r.Prefix, From: r.From, To: r.To, Backward: r.Backward, Where: r.Where}
}

type scanCommand struct {
	ranged
	outputOptions
	Limit int `default:"100" placeholder:"N" help:"Print so many rows at most, 0 for all. ${default} if not given."`
}

// Help is the long help of the command.
func (scanCommand) Help() string {
	return keyHelp + ` Each page of rows is read at one moment, and the next page at a later one.` + whereHelp + `

  flagstone scan orders
  flagstone scan orders customer-500 --from 17 --to 30
  flagstone scan orders --where 'state == "paid" and total > 10.0'
  flagstone scan orders --limit 0 --columns total,state --csv`
}

// Run prints the rows.
func (s *scanCommand) Run(ctx context.Context, c *output) error {
	if s.Limit < 0 {
		return misuse("--limit is %d; give a number of rows, or 0 for all", s.Limit)
	}
	return s.with(ctx, toRead, func(home admin.Admin) error {
		t, err := home.Table(ctx, s.Instance, s.Table)
		if err != nil {
			return err
		}
		query := s.query()
		_, err = s.print(ctx, c, home, s.Instance, t, &query, s.Limit)
		return err
	})
}

// pages calls each with the pages of a query, up to limit rows if that is not 0. It reports whether there are more.
func pages(ctx context.Context, home admin.Admin, instance string, q *instances.Query, limit int, each func(rows []instances.Row) error) (more bool, err error) {
	const most = 1000
	for read := 0; ; {
		q.Limit = most
		if limit > 0 {
			q.Limit = int32(min(most, limit-read))
		}
		page, err := home.Rows(ctx, instance, q)
		if err != nil {
			return false, err
		}
		read += len(page.Rows)
		if err := each(page.Rows); err != nil {
			return false, err
		}
		q.Next = page.Next
		if q.Next == nil || limit > 0 && read >= limit {
			return q.Next != nil, nil
		}
	}
}

// print prints the rows of a query, up to limit if that is not 0, and returns their number.
func (s *outputOptions) print(ctx context.Context, c *output, home admin.Admin, instance string, t *instances.Table, q *instances.Query, limit int) (n int, err error) {
	switch {
	case s.CSV && len(s.Columns) == 0:
		return 0, misuse("rows may have any columns; name those for --csv with --columns")
	case s.CSV && s.Versions > 1:
		return 0, misuse("--csv has one version of a cell; --json has several")
	}
	for _, k := range t.Key {
		if slices.Contains(s.Columns, k.Name) {
			return 0, misuse("--columns %s: that is a column of the key, which is always printed", k.Name)
		}
	}
	q.Columns, q.MaxVersions = s.Columns, s.Versions
	each := newPeoplePrinter(c, t, s)
	switch {
	case s.JSON:
		each = func(rows []instances.Row) error {
			for i := range rows {
				if err := c.jsonLine(&rows[i]); err != nil {
					return err
				}
			}
			return nil
		}
	case s.CSV:
		each = newCSVPrinter(c, t, s)
	}
	unseen := newUnseen(s.Columns)
	more, err := pages(ctx, home, instance, q, limit, func(rows []instances.Row) error {
		n += len(rows)
		for i := range rows {
			for j := range rows[i].Columns {
				delete(unseen, rows[i].Columns[j].Name)
			}
		}
		return each(rows)
	})
	if err == nil {
		unseen.warn(c, n)
	}
	if more && err == nil {
		fmt.Fprintln(c.err, "flagstone: there may be more rows; --limit 0 prints all")
	}
	return n, err
}

// unseenColumns are columns that were named, and that no row has had.
type unseenColumns map[string]bool

func newUnseen(named []string) unseenColumns {
	u := unseenColumns{}
	for _, name := range named {
		u[name] = true
	}
	return u
}

// warn says of each column that none of n rows had it.
func (u unseenColumns) warn(c *output, n int) {
	for _, name := range slices.Sorted(maps.Keys(u)) {
		if n > 0 {
			fmt.Fprintf(c.err, "flagstone: no row that was read has a column %s\n", lineText(name))
		}
	}
}

// cellsOf writes the versions of a column of a row.
func cellsOf(r *instances.Row, column string, write func(c *instances.Cell) string) string {
	var texts []string
	for i := range r.Columns {
		if r.Columns[i].Name == column {
			texts = append(texts, write(&r.Columns[i]))
		}
	}
	return strings.Join(texts, "; ")
}

func newCSVPrinter(c *output, t *instances.Table, s *outputOptions) func([]instances.Row) error {
	w := csv.NewWriter(c.out)
	var header []string
	for _, k := range t.Key {
		header = append(header, k.Name)
	}
	header = append(header, s.Columns...)
	begun := false
	return func(rows []instances.Row) error {
		if !begun {
			begun = true
			if err := w.Write(header); err != nil {
				return err
			}
		}
		for i := range rows {
			var record []string
			for _, k := range rows[i].Key {
				record = append(record, k.Value.Text())
			}
			for _, column := range s.Columns {
				record = append(record, cellsOf(&rows[i], column, func(c *instances.Cell) string { return c.Value.Text() }))
			}
			if err := w.Write(record); err != nil {
				return err
			}
		}
		w.Flush()
		return w.Error()
	}
}

// newPeoplePrinter prints tables whose columns are those of a page of rows.
func newPeoplePrinter(c *output, t *instances.Table, s *outputOptions) func([]instances.Row) error {
	var before []string
	begun := false
	return func(rows []instances.Row) error {
		columns := s.Columns
		seen := map[string]bool{}
		for i := range rows {
			for _, cell := range rows[i].Columns {
				if len(s.Columns) == 0 && !seen[cell.Name] {
					seen[cell.Name] = true
					columns = append(columns, cell.Name)
				}
			}
		}
		w := tabwriter.NewWriter(c.out, 0, 0, 2, ' ', 0)
		if len(rows) > 0 && (!begun || !slices.Equal(columns, before)) {
			var header []string
			for _, k := range t.Key {
				header = append(header, lineText(k.Name))
			}
			for _, name := range columns {
				header = append(header, lineText(name))
			}
			fmt.Fprintln(w, strings.Join(header, "\t"))
			begun, before = true, columns
		}
		for i := range rows {
			var line []string
			for _, k := range rows[i].Key {
				line = append(line, lineText(k.Value.Text()))
			}
			for _, name := range columns {
				line = append(line, cellsOf(&rows[i], name, s.cellText))
			}
			fmt.Fprintln(w, strings.Join(line, "\t"))
		}
		return w.Flush()
	}
}

func (s *outputOptions) cellText(c *instances.Cell) string {
	const most = 60
	text := lineText(c.Value.Text())
	if runes := []rune(text); len(runes) > most {
		text = fmt.Sprintf("%s... (%d bytes)", string(runes[:most]), len(c.Value.Bytes()))
	}
	if s.Versions > 1 {
		text += "@" + strconv.FormatInt(c.Version, 10)
	}
	return text
}

// lineText writes text so that it is one field of a line, and cannot steer a terminal.
func lineText(text string) string {
	if quoted := strconv.Quote(text); text == "" || !utf8.ValidString(text) || quoted != `"`+text+`"` {
		return quoted
	}
	return text
}

type countCommand struct{ ranged }

// Help is the long help of the command.
func (countCommand) Help() string {
	return keyHelp + ` All rows are read, page by page, without their attribute columns.` + whereHelp
}

// Run prints the number of rows.
func (s *countCommand) Run(ctx context.Context, c *output) error {
	return s.with(ctx, toRead, func(home admin.Admin) error {
		const report = 100_000
		query, n, told := s.query(), 0, 0
		query.KeysOnly = true
		_, err := pages(ctx, home, s.Instance, &query, 0, func(rows []instances.Row) error {
			n += len(rows)
			if n >= told+report {
				told = n
				fmt.Fprintf(c.err, "flagstone: %d rows so far\n", n)
			}
			return nil
		})
		if err != nil {
			return err
		}
		fmt.Fprintln(c.out, n)
		return nil
	})
}

// changed names a row to change.
type changed struct {
	ofTable
	Key    []string `arg:"" help:"The values of the primary key."`
	Expect string   `default:"" enum:",exists,absent" placeholder:"exists|absent" help:"Change it only if it exists, or only if it does not."`
}

const setHelp = keyHelp + ` NAME=VALUE sets a string. NAME:integer=5, NAME:double=1.5, NAME:boolean=true and NAME:binary=00ff set other types. NAME@1700000000000=VALUE sets the version of that millisecond. Names with @, : or = are for SDKs.`

type putCommand struct {
	changed
	Set []string `short:"s" sep:"none" placeholder:"NAME[:TYPE][@VERSION]=VALUE" help:"A column; may be given several times."`
}

// Help is the long help of the command.
func (putCommand) Help() string {
	return `The row has the given columns afterwards, and no others. ` + setHelp + ` The value auto stands for a key column that the store numbers; the number is printed.

  flagstone put orders customer-500 17 -s state=new -s total:double=12.5`
}

// Run puts the row.
func (p *putCommand) Run(ctx context.Context, c *output) error {
	return p.run(ctx, c, "put", p.Set, nil)
}

type updateCommand struct {
	changed
	Set   []string `short:"s" sep:"none" placeholder:"NAME[:TYPE][@VERSION]=VALUE" help:"A column; may be given several times."`
	Unset []string `short:"u" sep:"none" placeholder:"NAME" help:"Delete all versions of a column; may be given several times."`
}

// Help is the long help of the command.
func (updateCommand) Help() string {
	return `Other columns stay. ` + setHelp + `

  flagstone update orders customer-500 17 -s state=paid -u note`
}

// Run updates the row.
func (u *updateCommand) Run(ctx context.Context, c *output) error {
	return u.run(ctx, c, "update", u.Set, u.Unset)
}

type deleteCommand struct{ changed }

// Help is the long help of the command.
func (deleteCommand) Help() string { return keyHelp }

// Run deletes the row.
func (d *deleteCommand) Run(ctx context.Context, c *output) error {
	return d.run(ctx, c, "delete", nil, nil)
}

// run changes the row, and prints the value of a key column that the store has numbered.
func (r *changed) run(ctx context.Context, c *output, kind string, set, unset []string) error {
	change := instances.Change{Table: r.Table, Kind: kind, Key: r.Key, Unset: unset, Expect: r.Expect}
	for _, text := range set {
		cell, err := parseCell(text)
		if err != nil {
			return err
		}
		if slices.ContainsFunc(change.Set, func(c instances.Cell) bool { return c.Name == cell.Name && c.Version == cell.Version }) {
			return misuse("column %s is set twice", cell.Name)
		}
		change.Set = append(change.Set, cell)
	}
	return r.with(ctx, toChange, func(home admin.Admin) error {
		key, err := home.Change(ctx, r.Instance, &change)
		if err != nil {
			return err
		}
		for i := range key {
			if r.Key[i] == instances.AutoValue && key[i].Value.Text() != instances.AutoValue {
				fmt.Fprintln(c.out, key[i].Value.Text())
			}
		}
		return nil
	})
}

// parseCell reads NAME[:TYPE][@VERSION]=VALUE.
func parseCell(text string) (cell instances.Cell, err error) {
	name, value, ok := strings.Cut(text, "=")
	if !ok {
		return cell, misuse("%q sets nothing; give NAME=VALUE or NAME:TYPE=VALUE", text)
	}
	name, version, versioned := strings.Cut(name, "@")
	name, kind, typed := strings.Cut(name, ":")
	cell.Name = name
	if versioned {
		if cell.Version, err = strconv.ParseInt(version, 10, 64); err != nil || cell.Version < 1 {
			return cell, misuse("%q: %q is no version; give milliseconds since 1970", text, version)
		}
	}
	of := row.TypeString
	if typed {
		if of, err = instances.ParseType(kind); err != nil {
			return cell, misuse("%q: %w", text, err)
		}
	}
	if cell.Value.Value, err = instances.ParseValue(of, value); err != nil {
		return cell, misuse("%q: %w", text, err)
	}
	return cell, nil
}
