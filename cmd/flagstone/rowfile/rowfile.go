// Package rowfile reads and writes rows as files: CSV, JSON Lines and Parquet. It knows nothing of tables but their
// key. docs/importing.md describes what each format holds.
package rowfile

import (
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// Format is a kind of file.
type Format string

// The formats.
const (
	CSV     Format = "csv"
	JSON    Format = "json" // JSON Lines: an object per line, as `flagstone scan --json` prints it
	Parquet Format = "parquet"
)

// FormatOf returns the format that belongs to the extension of a file's name; "" if none does.
func FormatOf(name string) Format {
	switch strings.ToLower(filepath.Ext(name)) {
	case ".csv":
		return CSV
	case ".json", ".jsonl", ".ndjson":
		return JSON
	case ".parquet":
		return Parquet
	}
	return ""
}

// Column is a column of a key, or the cells of one name and one type.
type Column struct {
	Name string
	Type row.Type
}

// String writes the column as it stands in the header of a CSV file.
func (c Column) String() string { return c.Name + ":" + c.Type.String() }

// ParseColumn reads NAME:TYPE. Without a type, or with text behind the last colon that is none, all of the text is the
// name and the type is row.TypeNone.
func ParseColumn(text string) Column {
	if i := strings.LastIndexByte(text, ':'); i >= 0 {
		if of, err := instances.ParseType(text[i+1:]); err == nil {
			return Column{text[:i], of}
		}
	}
	return Column{Name: text}
}

// NoVersion is the version of a cell of which the file does not tell it.
const NoVersion int64 = -1

// Cell is a version of an attribute column.
type Cell struct {
	Name    string
	Version int64 // milliseconds, or NoVersion
	Value   row.Value
}

// Row is a row of a file. What a reader has put into it is valid until the next call of Next.
type Row struct {
	Line  int64 // where it begins in the file, from 1; in Parquet the number of the row
	Key   []row.Value
	Cells []Cell
}

// Position is a place between two rows of a file, from which another reader can go on.
type Position struct {
	Offset int64 `json:"offset"` // bytes; in Parquet rows
	Line   int64 `json:"line"`   // lines before it; in Parquet rows
	// Key is that of the row before the place if the rows come from a table: as docs/format-row.md encodes it, in
	// hexadecimal. Offset and Line are then the number of rows before it.
	Key string `json:"key,omitempty"`
}

// Reader reads the rows of a file one after the other. One goroutine uses it.
type Reader interface {
	// Next reads the next row. It returns io.EOF at the end. After a BadRow the caller may go on with the next row;
	// every other error ends the reader.
	Next(r *Row) error
	// Position is the place behind the row that was read last.
	Position() Position
	// Size is the offset of the end of the file, 0 if that is unknown.
	Size() int64
	Close() error
}

// BadRow is the error of a row that cannot be read.
type BadRow struct {
	Line int64
	Text string // the record, as it stands in the file; "" in Parquet
	Err  error
}

// Error says what is wrong with the row.
func (b *BadRow) Error() string { return fmt.Sprintf("line %d: %v", b.Line, b.Err) }

// ErrNoColumn is why a row with a value of another name or type than the columns of the file cannot be written.
var ErrNoColumn = errors.New("the file has no such column")

// Unwrap returns Err.
func (b *BadRow) Unwrap() error { return b.Err }

// Empty says what an empty field of a CSV file is. Only cells of strings and bytes can be empty; an empty
// field of another type is no cell, and an empty field of a key is the empty value.
type Empty string

// What an empty field is.
const (
	EmptyByQuotes Empty = "quotes"  // an empty value if it is quoted, and else no cell: as Writer writes them
	EmptyMissing  Empty = "missing" // no cell
	EmptyValue    Empty = "string"  // an empty value
)

// ReadOptions say how a file is read.
type ReadOptions struct {
	Format Format
	Key    []Column            // of the table
	Types  map[string]row.Type // of attribute columns of CSV that have none in the header, of JSON Lines with a member for each column, and of byte arrays of Parquet
	Names  map[string]string   // in the table, of columns by their names in the file; "" leaves an attribute column out
	// Version is the column of the file that has the version of the row's cells of which the file does not tell it:
	// milliseconds, or text as RFC 3339 has it. It is no cell. "": there is none.
	Version string
	Empty   Empty    // of CSV
	Comma   byte     // what separates the fields of CSV; 0: a comma
	At      Position // where to begin; the zero Position is the beginning of the file
}

// NewReader begins to read a file. size is its length in bytes, 0 if it is unknown. The input of a Parquet file must be
// an io.ReaderAt, and that of a reader which begins elsewhere an io.Seeker.
func NewReader(in io.Reader, size int64, o *ReadOptions) (Reader, error) {
	r, err := newReader(in, size, o.inFile())
	if err != nil || len(o.Names) == 0 && o.Version == "" {
		return r, err
	}
	return rename(r, o.Names, o.Version)
}

func newReader(in io.Reader, size int64, o *ReadOptions) (Reader, error) {
	switch o.Format {
	case CSV:
		return newCSVReader(in, size, o)
	case JSON:
		return newJSONReader(in, size, o)
	case Parquet:
		return newParquetReader(in, size, o)
	}
	return nil, fmt.Errorf("no format is named %q; there are csv, json and parquet", o.Format)
}

// maxColumnReaders bounds the columns of a Parquet file that are read at a time: each has a page in memory.
const maxColumnReaders = 1000

// Cut returns the positions that divide a file into n parts, from its beginning to its end. A part is not empty, so there
// may be fewer. A CSV or JSON file is read for it. A Parquet file is divided between its row groups.
func Cut(in io.Reader, size int64, o *ReadOptions, n int) ([]Position, error) {
	r, err := newReader(in, size, o.inFile())
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cuts := []Position{{}}
	due := func() int64 { return r.Size() * int64(len(cuts)) / int64(n) }
	records := (*records)(nil)
	switch r := r.(type) {
	case *csvReader:
		records = r.records
	case *jsonReader:
		records = r.records
	case *parquetReader:
		n = max(1, min(n, maxColumnReaders/len(r.columns)))
		at := int64(0)
		for _, group := range r.file.RowGroups() {
			if at += group.NumRows(); len(cuts) < n && at >= due() {
				cuts = append(cuts, Position{Offset: at, Line: at})
			}
		}
		return slices.Compact(append(cuts, Position{Offset: r.Size(), Line: r.Size()})), nil
	}
	for {
		switch _, err := records.next(); {
		case err == io.EOF:
			return slices.Compact(append(cuts, records.behind)), nil
		case err != nil:
			return nil, err
		case len(cuts) < n && records.behind.Offset >= due():
			cuts = append(cuts, records.behind)
		}
	}
}

// Layout says which columns a file has.
type Layout struct {
	Key []Column
	// Columns are the attribute columns of CSV, and of a flat Parquet file. Two of them may have one name and
	// different types in CSV. A Parquet file without them has a list of cells in each row.
	Columns []Column
	// Behind is set if a CSV file has its header already.
	Behind bool
}

// Writer writes rows to a file. One goroutine uses it.
type Writer interface {
	Write(r *Row) error
	// Close writes what is left. It does not close the output. More rows of CSV and JSON Lines may follow.
	Close() error
}

// NewWriter begins a file.
func NewWriter(out io.Writer, format Format, l *Layout) (Writer, error) {
	switch format {
	case CSV:
		return newCSVWriter(out, l)
	case JSON:
		return newJSONWriter(out, l), nil
	case Parquet:
		return newParquetWriter(out, l)
	}
	return nil, fmt.Errorf("no format is named %q; there are csv, json and parquet", format)
}

// keyColumn returns the place of a column in a key; -1 if it is none of the key.
func keyColumn(key []Column, name string) int {
	return slices.IndexFunc(key, func(k Column) bool { return k.Name == name })
}

// checkKey says which column of the key a row has not.
func checkKey(key []Column, values []row.Value) error {
	for i, v := range values {
		if v.Type() == row.TypeNone {
			return fmt.Errorf("no value for key column %s", key[i].Name)
		}
		if v.Type() != key[i].Type {
			return fmt.Errorf("key column %s is of type %s, and this value of type %s", key[i].Name, key[i].Type, v.Type())
		}
	}
	return nil
}
