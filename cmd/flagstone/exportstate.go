package main

// This file lets an export go on after an interruption. The form of its state is in docs/importing.md.

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/flagstone-db/flagstone/cmd/flagstone/rowfile"
	"github.com/flagstone-db/flagstone/cmd/flagstone/statefile"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// exportStateKind begins the file, and has the version of its form.
const exportStateKind = "export state 1"

// exportState is how far an export is.
type exportState struct {
	Export  string   `json:"export"`  // the table, the file, and the options that decide what it holds
	Moment  string   `json:"moment"`  // when the folder was opened to write last; "": rows are of no one moment
	Columns []string `json:"columns"` // attribute columns of a CSV file
	Part    string   `json:"part"`    // the name, in the directory of the file, that the rows have until they are complete
	Key     string   `json:"key"`     // of the last row, encoded, in hexadecimal; "": no row is written
	Rows    int64    `json:"rows"`    // rows that are durable
	Bytes   int64    `json:"bytes"`   // the length of the file with them
	Done    bool     `json:"done"`    // the file has all rows, and perhaps not its name

	path string
	file *os.File
	at   time.Time // when it was saved
	from string    // the key behind which this run begins, as Key; "" once a row has been read
}

// goOn exports what an earlier run has left, or begins.
func (e *exportCommand) goOn(ctx context.Context, c *output, source rowSource, p *plan, layout *rowfile.Layout) (err error) {
	begun, err := e.begun(source, p)
	if err != nil {
		return err
	}
	s, all, old := new(exportState), int64(0), e.checkNew()
	switch err := statefile.Read(e.State, exportStateKind, s); {
	case errors.Is(err, fs.ErrNotExist):
		if old != nil {
			return old
		}
		if all, err = e.findColumns(ctx, c, source, p, layout); err != nil {
			return err
		}
		s = begun
		for _, column := range layout.Columns {
			s.Columns = append(s.Columns, column.String())
		}
		if err := statefile.Write(e.State, exportStateKind, s); err != nil {
			return err
		}
	case err != nil:
		return err
	case s.Export != begun.Export:
		return fmt.Errorf("%s is the state of another export: of %s, and not of %s; give another --state", e.State, s.Export, begun.Export)
	case s.Done && !exists(e.part(s)) && !exists(e.File):
		return fmt.Errorf("%s is not there any more; remove %s to export it again", e.File, e.State)
	case s.Done && !exists(e.part(s)):
		fmt.Fprintf(c.err, "flagstone: all of it is exported by an earlier run: %d rows; remove %s to do it again\n", s.Rows, e.State)
		return nil
	case s.Moment != "" && s.Moment != begun.Moment && !s.Done:
		return fmt.Errorf("the store in %s was opened to write since the export began, so the file would not be of one moment; remove %s and %s to begin anew", e.Dir, e.State, e.part(s))
	case !s.Done && old != nil:
		return old
	case s.Moment == "" && begun.Moment != "":
		fmt.Fprintln(c.err, "flagstone: the rows are not of one moment: an endpoint gave those before")
	}
	overwrite := e.Overwrite
	if s.Done {
		st, err := os.Stat(e.File)
		overwrite = overwrite || err == nil && st.Size() == 0 // a run that ended then had made it, for the name
	} else if err := e.partly(ctx, c, source, p, layout, s, all); err != nil {
		return err
	}
	err = vfs.NameFile(e.part(s), e.File, overwrite)
	if errors.Is(err, fs.ErrExist) {
		err = leaving(err, "all rows are in %s; the same command with --overwrite gives them that name", e.part(s))
	}
	return err
}

// part is the file of the rows until they are complete. Its name is at random, so that no other export writes it.
func (e *exportCommand) part(s *exportState) string {
	return filepath.Join(filepath.Dir(e.File), s.Part)
}

// errNoFile refuses a directory or a link in the place of the rows.
var errNoFile = errors.New("no regular file")

// openPart opens the file of the rows, which only the run that begins may make.
func openPart(name string, begins bool) (*os.File, error) {
	st, err := os.Lstat(name)
	if begins && errors.Is(err, fs.ErrNotExist) {
		f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return nil, err
		}
		if err := vfs.OS().SyncDir(filepath.Dir(name)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
		return f, nil
	}
	if err == nil && !st.Mode().IsRegular() {
		err = fmt.Errorf("%s is %w", name, errNoFile)
	}
	if err != nil {
		return nil, err
	}
	return os.OpenFile(name, os.O_WRONLY, 0)
}

// begun is the state of an export that begins.
func (e *exportCommand) begun(source rowSource, p *plan) (*exportState, error) {
	query, err := json.Marshal(&p.query)
	if err != nil {
		return nil, err
	}
	s := &exportState{Part: filepath.Base(e.File) + "." + rand.Text()[:8] + ".part", Export: fmt.Sprintf("%s with the key %s to %s as %s with the columns %q and %s", source.name(), source.key(), place(e.File), p.format, e.Columns, query)}
	if e.Endpoint != "" {
		return s, nil
	}
	// Every opening of a folder to write begins a manifest, and so replaces CURRENT.
	current := filepath.Join(e.Dir, "CURRENT")
	content, err := os.ReadFile(current)
	if err != nil {
		return nil, err
	}
	st, err := os.Stat(current)
	if err != nil {
		return nil, err
	}
	s.Moment = fmt.Sprintf("%d %s", st.ModTime().UnixNano(), statefile.Checksum(content))
	return s, nil
}

// partly writes the rows behind those of the state.
func (e *exportCommand) partly(ctx context.Context, c *output, source rowSource, p *plan, layout *rowfile.Layout, s *exportState, all int64) (err error) {
	if p.query.Next, err = keyOfState(s.Key, len(layout.Key)); err != nil {
		return err
	}
	layout.Behind, layout.Columns = s.Bytes > 0, nil
	for _, column := range s.Columns {
		layout.Columns = append(layout.Columns, rowfile.ParseColumn(column))
	}
	part := e.part(s)
	switch s.file, err = openPart(part, s.Bytes == 0); {
	case errors.Is(err, errNoFile) || s.Bytes > 0 && errors.Is(err, fs.ErrNotExist):
		return leaving(err, "remove %s to begin anew", e.State)
	case err != nil:
		return leaving(err, "the same command goes on where %s says", e.State)
	}
	defer func() { err = errors.Join(err, s.file.Close()) }()
	switch end, err := s.file.Seek(0, io.SeekEnd); {
	case err != nil:
		return err
	case end < s.Bytes:
		return fmt.Errorf("%s has %d bytes, and had %d: it was cut or replaced; remove it and %s to begin anew", part, end, s.Bytes, e.State)
	}
	if err := s.file.Truncate(s.Bytes); err != nil {
		return err
	}
	if _, err := s.file.Seek(s.Bytes, io.SeekStart); err != nil {
		return err
	}
	if s.Rows > 0 {
		fmt.Fprintf(c.err, "flagstone: goes on after %d rows\n", s.Rows)
	}
	s.path, s.from, s.at, e.saved = e.State, s.Key, time.Now(), s
	err = e.write(ctx, c, s.file, source, p, layout, all)
	switch {
	case errors.Is(err, rowfile.ErrNoColumn):
		err = leaving(err, "remove %s and %s, and export anew, or with --columns and their types", e.State, part)
	case err != nil:
		err = leaving(err, "the same command goes on where %s says", e.State)
	}
	return err
}

// behind leaves out the row that the state has already, which comes first if it is still there.
func (s *exportState) behind(page []rowfile.Row) ([]rowfile.Row, error) {
	first, err := row.AppendKey(nil, len(page[0].Key), page[0].Key...)
	if err == nil && hex.EncodeToString(first) == s.from {
		page = page[1:]
	}
	s.from = ""
	return page, err
}

// save makes the rows up to last durable, and then the state. Without a last one there is no other than before.
func (s *exportState) save(w rowfile.Writer, last *rowfile.Row, rows int64) (err error) {
	if err := errors.Join(w.Close(), s.file.Sync()); err != nil {
		return err
	}
	if s.Bytes, err = s.file.Seek(0, io.SeekCurrent); err != nil {
		return err
	}
	if last != nil {
		key, err := row.AppendKey(nil, len(last.Key), last.Key...)
		if err != nil {
			return err
		}
		s.Key = hex.EncodeToString(key)
	}
	s.Rows, s.at = rows, time.Now()
	return statefile.Write(s.path, exportStateKind, s)
}
