package rowfile

// This file gives columns of a file other names, and cells the versions that a column has.

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

// renaming reads a file whose columns have other names in the table.
type renaming struct {
	Reader
	names   map[string]string // see ReadOptions.Names
	given   map[string]bool   // the new names
	version string            // see ReadOptions.Version
}

// inFile returns the options of a reader that knows the file's own names.
func (o *ReadOptions) inFile() *ReadOptions {
	of := *o
	of.Key = slices.Clone(o.Key)
	for name, to := range o.Names {
		if i := keyColumn(o.Key, to); i >= 0 {
			of.Key[i].Name = name
		}
	}
	return &of
}

// rename gives the rows of a reader the names of the table.
func rename(r Reader, names map[string]string, version string) (Reader, error) {
	var columns []string
	switch r := r.(type) {
	case *csvReader:
		for i := range r.columns {
			columns = append(columns, r.columns[i].Name)
		}
	case *parquetReader:
		for i := range r.columns {
			if r.columns[i].cell != "" { // its rows say which columns there are
				columns = nil
				break
			}
			columns = append(columns, r.columns[i].Name)
		}
	}
	given := map[string]bool{}
	for name, to := range names {
		if columns != nil && !slices.Contains(columns, name) {
			return nil, fmt.Errorf("there is no column %s, which is renamed or left out", name)
		}
		given[to] = true
	}
	if version != "" && columns != nil && !slices.Contains(columns, version) {
		return nil, fmt.Errorf("there is no column %s, which would have the versions", version)
	}
	return &renaming{r, names, given, version}, nil
}

// Next reads a row.
func (r *renaming) Next(out *Row) error {
	if err := r.Reader.Next(out); err != nil {
		return err
	}
	if err := r.versions(out); err != nil {
		return &BadRow{Line: out.Line, Err: err}
	}
	kept := out.Cells[:0]
	for _, c := range out.Cells {
		switch to, ok := r.names[c.Name]; {
		case ok && to == "":
			continue
		case ok:
			c.Name = to
		case r.given[c.Name]:
			return &BadRow{Line: out.Line, Err: fmt.Errorf("column %s has the name that another one is given", c.Name)}
		}
		kept = append(kept, c)
	}
	out.Cells = kept
	return nil
}

// versions takes the cell of the version from a row, and gives its version to the cells that have none.
func (r *renaming) versions(out *Row) error {
	if r.version == "" {
		return nil
	}
	at := slices.IndexFunc(out.Cells, func(c Cell) bool { return c.Name == r.version })
	if at < 0 {
		return fmt.Errorf("no value for column %s, which has the version", r.version)
	}
	version, err := versionOf(out.Cells[at].Value)
	if err != nil {
		return fmt.Errorf("column %s: %w", r.version, err)
	}
	out.Cells = slices.DeleteFunc(out.Cells, func(c Cell) bool { return c.Name == r.version })
	for i := range out.Cells {
		if out.Cells[i].Version == NoVersion {
			out.Cells[i].Version = version
		}
	}
	return nil
}

// maxVersion is the end of the year 9999: what lies behind it are microseconds, as times of Parquet often are.
const maxVersion = 253402300799999

// versionOf returns the milliseconds that an integer is, or the text of one, or of a time.
func versionOf(v row.Value) (millis int64, err error) {
	switch v.Type() {
	case row.TypeInteger:
		millis = v.Int64()
	case row.TypeString:
		if millis, err = strconv.ParseInt(v.Text(), 10, 64); err != nil {
			var t time.Time
			t, err = time.Parse(time.RFC3339, v.Text())
			millis = t.UnixMilli()
		}
	default:
		err = fmt.Errorf("a value of type %s", v.Type())
	}
	if err == nil && (millis < 0 || millis > maxVersion) {
		err = fmt.Errorf("%d is not between 1970 and the year 9999", millis)
	}
	if err != nil {
		return 0, fmt.Errorf("a version is milliseconds since 1970, or a time as 2026-11-27T10:00:00Z: %w", err)
	}
	return millis, nil
}
