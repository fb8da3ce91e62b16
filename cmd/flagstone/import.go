package main

// This file is the command import. The loop is in package bulkio, the files in package rowfile, and the targets in
// importfolder.go and importendpoint.go.

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/time/rate"

	"github.com/flagstone-db/flagstone/cmd/flagstone/bulkio"
	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/cmd/flagstone/statefile"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// ofFiles are the options that import and export share.
type ofFiles struct {
	ofTable
	Endpoint string         `placeholder:"URL" help:"The Table Store endpoint that has the table, such as http://127.0.0.1:8087, and not the folder --dir. If not given, and a server has --dir open, that of the server. The access key is in FLAGSTONE_ACCESS_KEY_ID and FLAGSTONE_ACCESS_KEY_SECRET, or in --dir."`
	Format   rowfile.Format `enum:",csv,json,parquet" default:"" placeholder:"csv|json|parquet" help:"The format of the file, unless its name ends in .csv, .json, .jsonl, .ndjson or .parquet. For - the default is json."`
	Progress time.Duration  `default:"5s" placeholder:"DURATION" help:"Say how far it is so often, 0 for never; on a terminal, all the time. ${default} if not given."`

	keys []keyPlace      // where the access key of the endpoint is; nil: in the usual places
	held *instances.Home // the folder, if the command has it open; nil: each use opens it
}

// stdio is the name of standard input and output.
const stdio = "-"

// format is the format of a file.
func (a *ofFiles) format(name string) (rowfile.Format, error) {
	switch of := rowfile.FormatOf(name); {
	case a.Format != "":
		return a.Format, nil
	case name == stdio:
		return rowfile.JSON, nil
	case of != "":
		return of, nil
	}
	return "", misuse("the name %s does not tell a format; give --format csv, json or parquet", name)
}

// progress makes what shows the progress.
func (a *ofFiles) progress(c *output, what string) *bulkio.Progress {
	p := &bulkio.Progress{Out: c.err, Every: a.Progress, What: what}
	if f, ok := c.err.(*os.File); ok && isTerminal(f) && a.Progress > 0 {
		p.Terminal, p.Every = true, min(a.Progress, 200*time.Millisecond)
	}
	return p
}

type importCommand struct {
	ofFiles
	Files     []string      `arg:"" help:"The files, read one after the other; - is standard input."`
	Types     []string      `placeholder:"NAME:TYPE" help:"Types of attribute columns of a CSV file whose header has none, such as total:double,count:integer; others are strings. Of JSON Lines with a member for each column; others have the type of the value. Of Parquet: string or binary for byte arrays."`
	Rename    []string      `sep:"none" placeholder:"FILE=TABLE" help:"The column FILE of the files is the column TABLE of the table; give it once for each."`
	Skip      []string      `sep:"none" placeholder:"NAME" help:"Leave out this column of the files; give it once for each."`
	Versions  string        `name:"version-column" placeholder:"NAME" help:"This column of the files has the version of the row's cells, in milliseconds since 1970 or as 2026-11-27T10:00:00Z. It is not stored."`
	Delimiter string        `default:"," placeholder:"CHARACTER" help:"What separates the fields of CSV files: one ASCII character, such as ';', or tab. A comma if not given."`
	EmptyAs   rowfile.Empty `name:"empty-as" enum:"quotes,missing,string" default:"quotes" placeholder:"quotes|missing|string" help:"What an empty field of CSV is: quotes, an empty string if it is quoted and else no cell; missing, no cell; string, an empty string. ${default} if not given."`
	Bulk      bool          `help:"Sort the rows and write them as table files into the folder, past log and memory. The table must have no row between the first and the last of them. All rows appear at once, at the end."`
	Temp      string        `type:"existingdir" placeholder:"DIR" help:"Where --bulk keeps what it sorts; about the size of the rows. If not given, where temporary files are."`
	Merge     bool          `help:"Put the cells of a row beside those that the table has, and replace only those of the same column and version. So an archive comes back."`
	Spread    int           `default:"1" placeholder:"N" help:"Read the files at so many places in turns, so that sorted files do not go to one partition of the table at a time. Of several rows with one key any may stay. ${default} if not given: one file after the other, and the last row stays."`
	ofWriting
}

// ofWriting are the options that import and copy share.
type ofWriting struct {
	Workers    *int          `placeholder:"N" help:"So many batches are under way at most. If not given, 16 at an endpoint, and in a folder one for each processor."`
	Rate       float64       `default:"0" placeholder:"ROWS" help:"Write so many rows in a second at most; 0, the default, as many as are taken."`
	Rejects    string        `type:"path" placeholder:"FILE" help:"Write lines that cannot be read, or that the store refuses, to this file, as JSON with file, line and reason."`
	MaxRejects int64         `name:"max-rejects" default:"0" placeholder:"N" help:"Go on after so many of them; --max-rejects=-1 for any number. 0, the default, ends at the first one."`
	State      string        `type:"path" placeholder:"FILE" help:"Remember in this file how far the command is. Run again with it after an interruption, it goes on there."`
	SaveEvery  time.Duration `default:"1s" placeholder:"DURATION" help:"How often --state is written. ${default} if not given."`
}

// Help is the long help of the command.
func (importCommand) Help() string {
	return `A row that is imported has the columns of the file afterwards, and no others. Of several rows with one key the last one stays. With --merge the cells of the file are put into the row, and its other cells stay. A cell whose file tells no version, as in CSV, gets that of --version-column, or the time at which the import began.

JSON Lines are what 'flagstone export' and 'flagstone scan --json' write, or have a member for each column, as {"customer":"anna","n":1,"total":12.5}. The header of a CSV file names the columns; NAME:TYPE gives a type, as in 'flagstone put'. A flat Parquet file has a column for each column. docs/importing.md describes the formats.

  flagstone import orders orders.jsonl
  flagstone import orders orders.csv --types total:double --rejects bad.jsonl --max-rejects 1000
  flagstone import orders 2026-*.parquet --endpoint http://127.0.0.1:8087 --rate 5000 --state import.state
  flagstone import orders old.parquet --merge
  flagstone import orders shop.csv --rename kunde=customer --rename summe=total --skip note
  flagstone import orders orders.csv --bulk`
}

// errNothingToMerge refuses a row of --merge: an update of a row puts at least one cell.
var errNothingToMerge = errors.New("the row has no cells; --merge puts cells only")

// importTarget is where rows go.
type importTarget interface {
	bulkio.Target
	key() []rowfile.Column // of the table
	name() string          // of the table, for the state file
	// begin is called once before the first row.
	begin(ctx context.Context, rejects *bulkio.Rejects) error
}

func (m *importCommand) check() error {
	_, rate := limiterOf(m.Rate)
	_, types := m.types()
	_, names := m.names()
	if err := cmp.Or(rate, types, names); err != nil { // before anything is made
		return err
	}
	switch {
	case m.Spread < 1 || m.Spread > 1000:
		return misuse("--spread is %d; give 1 to 1,000", m.Spread)
	case !m.comma():
		return misuse("--delimiter is %q; give one ASCII character that is neither a quote nor an end of a line, or tab", m.Delimiter)
	case m.Spread > 1 && slices.Contains(m.Files, stdio):
		return misuse("standard input has one place to read; leave --spread out")
	case m.Spread > 1 && m.Bulk:
		return misuse("--bulk sorts the rows; leave --spread out")
	case m.Workers != nil && (*m.Workers < 1 || *m.Workers > 1000):
		return misuse("--workers is %d; give 1 to 1,000", *m.Workers)
	case m.MaxRejects < -1:
		return misuse("--max-rejects is %d; give a number of lines, or -1 for any", m.MaxRejects)
	case m.Rejects != "" && isOfState(m.State, m.Rejects):
		return misuse("%s is a file of --state, and cannot be that of --rejects; give another name to one of them", m.Rejects)
	case slices.ContainsFunc(m.Files, func(file string) bool { return file != stdio && isOfState(m.State, file) }):
		return misuse("a file to import is a file of --state %s, and would be replaced; give another name to one of them", m.State)
	case m.SaveEvery <= 0:
		return misuse("--save-every is %s; give a time above 0", m.SaveEvery)
	case m.Bulk && m.Endpoint != "":
		return misuse("--bulk writes files into a folder that no server has open; it does not work at an endpoint")
	case m.Bulk && m.State != "":
		return misuse("--bulk writes all rows at once at the end, so there is nothing to resume; leave --state out")
	case m.Bulk && m.Merge:
		return misuse("--bulk writes rows where the table has none; it does not work with --merge")
	case m.Temp != "" && !m.Bulk:
		return misuse("--temp is for --bulk")
	case len(m.Files) > 1 && slices.Contains(m.Files, stdio):
		return misuse("- is standard input; it does not go together with files")
	case m.State != "" && slices.Contains(m.Files, stdio):
		return misuse("an import of standard input cannot be resumed; give a file, or leave --state out")
	}
	return nil
}

// comma reports whether --delimiter can be one, and turns the word tab into it.
func (m *importCommand) comma() bool {
	if m.Delimiter == "tab" || m.Delimiter == `\t` {
		m.Delimiter = "\t"
	}
	return len(m.Delimiter) == 1 && m.Delimiter[0] < 0x80 && !strings.ContainsAny(m.Delimiter, "\"\r\n\x00")
}

// types reads --types.
func (m *importCommand) types() (map[string]row.Type, error) {
	types := map[string]row.Type{}
	for _, text := range m.Types {
		c := rowfile.ParseColumn(text)
		if c.Type == row.TypeNone {
			return nil, misuse("--types %s: give NAME:TYPE; there are integer, double, boolean, string and binary", text)
		}
		types[c.Name] = c.Type
	}
	return types, nil
}

// names reads --rename and --skip.
func (m *importCommand) names() (map[string]string, error) {
	names, given := map[string]string{}, map[string]bool{}
	for _, text := range m.Rename {
		from, to, ok := strings.Cut(text, "=")
		if !ok || from == "" || to == "" {
			return nil, misuse("--rename %s: give the name in the file, =, and the name in the table", text)
		}
		if _, twice := names[from]; twice || given[to] {
			return nil, misuse("--rename %s: one of the names is in another --rename", text)
		}
		names[from], given[to] = to, true
	}
	for _, name := range m.Skip {
		if _, ok := names[name]; ok || name == "" {
			return nil, misuse("--skip %q: give the name of a column that has no --rename, once", name)
		}
		names[name] = ""
	}
	return names, nil
}

// readOptions say how a file is read.
func (m *importCommand) readOptions(name string, key []rowfile.Column) (o rowfile.ReadOptions, err error) {
	o = rowfile.ReadOptions{Key: key, Version: m.Versions, Empty: m.EmptyAs, Comma: m.Delimiter[0]}
	if o.Format, err = m.format(name); err == nil {
		o.Types, err = m.types()
	}
	if err == nil {
		o.Names, err = m.names()
	}
	if _, named := o.Names[m.Versions]; named {
		err = cmp.Or(err, misuse("--version-column %s: it is in --rename or --skip, and is not stored", m.Versions))
	}
	for i := range key {
		if slices.Contains(m.Skip, key[i].Name) {
			err = cmp.Or(err, misuse("--skip %s: the key of the table has this column", key[i].Name))
		}
		if m.Versions == key[i].Name {
			err = cmp.Or(err, misuse("--version-column %s: the key of the table has this column", m.Versions))
		}
	}
	return o, err
}

// Run imports.
func (m *importCommand) Run(ctx context.Context, c *output) (err error) {
	if err := m.locate(ctx, c); err != nil {
		return err
	}
	if err := m.check(); err != nil {
		return err
	}
	unlock, err := lockState(m.State)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, unlock()) }()
	target, closeTarget, err := m.target(ctx, c)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closeTarget()) }()
	im := bulkio.Import{Target: target, Progress: m.progress(c, "imported")}
	if m.Bulk {
		im.Progress.Stage = "sorted"
	}
	for _, file := range m.Files {
		in, err := m.input(c, file, target.key())
		if err != nil {
			return err
		}
		im.Inputs = append(im.Inputs, *in)
	}
	if im.State, err = m.state(target, im.Inputs); err != nil {
		return err
	}
	return m.run(ctx, c, &im, target)
}

// limiterOf is the limiter of --rate; nil if it is 0.
func limiterOf(rows float64) (*rate.Limiter, error) {
	if rows < 0 || rows != rows || rows > 1e9 {
		return nil, misuse("--rate is %g; give rows in a second, or 0 for no limit", rows)
	}
	if rows == 0 {
		return nil, nil
	}
	return rate.NewLimiter(rate.Limit(rows), max(1, int(rows/100))), nil
}

// workers is --workers, or else a default.
func (w *ofWriting) workers(otherwise int) int {
	if w.Workers == nil {
		return otherwise
	}
	return *w.Workers
}

// lockState keeps other processes from a state, if there is one.
func lockState(state string) (unlock func() error, err error) {
	if state == "" {
		return func() error { return nil }, nil
	}
	lock, err := statefile.Lock(state)
	if errors.Is(err, vfs.ErrLocked) {
		return nil, fmt.Errorf("another import, export or copy has the state %s: %w", state, err)
	}
	if err != nil {
		return nil, fmt.Errorf("--state: %w", err)
	}
	return lock.Close, nil
}

// isOfState reports whether a file is one that a state takes: itself, its next form, or its lock.
func isOfState(state, file string) bool {
	return state != "" && slices.ContainsFunc([]string{"", ".tmp", ".lock"}, func(of string) bool {
		return samePlace(state+of, file) || filepath.Base(state+of) == filepath.Base(file) && samePlace(filepath.Dir(state), filepath.Dir(file))
	})
}

// run runs an import whose inputs and state are known.
func (m *importCommand) run(ctx context.Context, c *output, im *bulkio.Import, target importTarget) (err error) {
	s := im.State
	if s.Done() {
		fmt.Fprintf(c.err, "flagstone: all of it is %s by an earlier run: %d rows; remove %s to do it again\n", im.Progress.What, s.Rows, m.State)
		return nil
	}
	if im.Rejects, err = bulkio.NewRejects(m.Files, m.MaxRejects, s); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, im.Rejects.Close()) }()
	if err := s.Keep(m.State); err != nil {
		return err
	}
	im.Spread = s.Places(m.Spread)
	if m.State != "" {
		im.Save = m.SaveEvery
	}
	if im.Limiter, err = limiterOf(m.Rate); err != nil {
		return err
	}
	if s.Rows+s.Rejected > 0 {
		fmt.Fprintf(c.err, "flagstone: goes on after %d rows\n", s.Rows)
	}
	if err := target.begin(ctx, im.Rejects); err != nil {
		return err
	}
	err = im.Run(ctx)
	if n, _, _ := im.Rejects.Sync(); n > 0 {
		fmt.Fprintf(c.err, "flagstone: rejected %d lines\n", n)
	}
	if err != nil && strings.Contains(err.Error(), "Invalid timestamp") { // of an endpoint
		err = leaving(err, "a version must be within the Time To Live, and within the Max Version Offset of the clock, which 'flagstone table alter %s --version-offset 4000000000' widens", m.Table)
	}
	switch {
	case err == nil:
	case m.State != "":
		err = leaving(err, "the same command goes on where %s says", m.State)
	case m.Bulk || s.Rows == 0:
	case slices.Contains(m.Files, stdio):
		err = leaving(err, "up to %d rows were written, and stay", s.Rows)
	default:
		err = leaving(err, "up to %d rows were written, and stay; with --state the import could go on", s.Rows)
	}
	return err
}

// target opens the table.
func (m *importCommand) target(ctx context.Context, c *output) (importTarget, func() error, error) {
	if m.Endpoint != "" {
		t, err := m.endpointTarget(c)
		return t, func() error { return nil }, err
	}
	home, release, err := m.folder(ctx, false)
	if err != nil {
		return nil, nil, err
	}
	t, err := m.folderTarget(ctx, c, home)
	if err != nil {
		return nil, nil, errors.Join(err, release())
	}
	return t, release, nil
}

// input describes a file.
func (m *importCommand) input(c *output, name string, key []rowfile.Column) (*bulkio.Input, error) {
	options, err := m.readOptions(name, key)
	if err != nil {
		return nil, err
	}
	in := &bulkio.Input{Identity: bulkio.Identity{Name: name}}
	in.Open = func(at rowfile.Position) (rowfile.Reader, error) {
		options.At = at
		if name == stdio {
			return rowfile.NewReader(onlyReader{c.in}, 0, &options)
		}
		f, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		if in.Modified == 0 {
			r, err := rowfile.NewReader(onlyReader{f}, 0, &options)
			return &openFile{r, f}, err
		}
		r, err := rowfile.NewReader(f, in.Size, &options)
		if err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return &openFile{r, f}, nil
	}
	if name == stdio {
		return in, nil
	}
	switch st, err := os.Stat(name); {
	case err != nil:
		return nil, err
	case st.IsDir():
		return nil, fmt.Errorf("%s is a directory", name)
	case !st.Mode().IsRegular() && (m.Spread > 1 || m.State != ""):
		return nil, misuse("%s is no regular file, which can be read once; leave --spread and --state out", name)
	case !st.Mode().IsRegular():
		return in, nil
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return nil, err
	}
	in.Identity, err = bulkio.Identify(name, f, st.Size(), st.ModTime())
	return in, err
}

// onlyReader hides that standard input may be a file, whose beginning may have been read, and that a pipe is one.
type onlyReader struct{ io.Reader }

// openFile is a reader that closes its file.
type openFile struct {
	rowfile.Reader
	file *os.File
}

// Close closes both.
func (f *openFile) Close() error { return errors.Join(f.Reader.Close(), f.file.Close()) }

// state finds how far the import is.
func (m *importCommand) state(target importTarget, inputs []bulkio.Input) (*bulkio.State, error) {
	begin := &bulkio.State{
		Target: target.name(), Rejects: m.Rejects, Version: time.Now().UnixMilli(),
		Settings: fmt.Sprintf("--format %q --types %q --empty-as %s --spread %d", m.Format, strings.Join(m.Types, ","), m.EmptyAs, m.Spread),
	}
	if m.Delimiter != "," {
		begin.Settings += fmt.Sprintf(" --delimiter %q", m.Delimiter)
	}
	if len(m.Rename)+len(m.Skip) > 0 {
		begin.Settings += fmt.Sprintf(" --rename %q --skip %q", m.Rename, m.Skip)
	}
	if m.Versions != "" {
		begin.Settings += fmt.Sprintf(" --version-column %q", m.Versions)
	}
	if m.Merge {
		begin.Settings += " --merge"
	}
	for i := range inputs {
		begin.Inputs = append(begin.Inputs, inputs[i].Identity)
		if m.Spread == 1 {
			weight := inputs[i].Size
			if inputs[i].Modified == 0 {
				weight = -1
			}
			begin.Parts = append(begin.Parts, bulkio.Part{File: i, Weight: weight})
		}
	}
	if s, err := bulkio.Load(m.State, begin); err != nil || s != nil {
		return s, err
	}
	for i := range inputs {
		if m.Spread > 1 {
			cuts, err := m.cuts(inputs[i].Name, inputs[i].Size, target.key())
			if err != nil {
				return nil, fmt.Errorf("%s: %w", inputs[i].Name, err)
			}
			begin.Parts = append(begin.Parts, bulkio.PartsOf(i, inputs[i].Size, cuts)...)
		}
	}
	return begin, nil
}

// cuts divides a file for --spread.
func (m *importCommand) cuts(name string, size int64, key []rowfile.Column) ([]rowfile.Position, error) {
	options, err := m.readOptions(name, key)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return rowfile.Cut(f, size, &options, m.Spread)
}

// keyOf is the key of a table as a file has it.
func keyOf(t *instances.Table) (key []rowfile.Column, err error) {
	for _, k := range t.Key {
		of, err := instances.ParseType(k.Type)
		if err != nil {
			return nil, err
		}
		key = append(key, rowfile.Column{Name: k.Name, Type: of})
	}
	return key, nil
}

// place names a folder for the state file, whatever the present directory.
func place(dir string) string {
	if whole, err := filepath.Abs(dir); err == nil {
		return whole
	}
	return dir
}
