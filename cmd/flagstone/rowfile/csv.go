package rowfile

// This file reads and writes CSV as RFC 4180 has it. encoding/csv does not tell an empty field from a quoted one,
// changes ends of lines in values, and reads a quote that is never closed into memory; so it is not used.

import (
	"bufio"
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// csvReader reads CSV.
type csvReader struct {
	records *records
	size    int64
	o       *ReadOptions
	columns []csvColumn
	fields  fields
	key     []row.Value
	cells   []Cell
	cellOf  []int // of the first column of a name: 1 + the place of its cell in cells; 0 if it has none
}

// csvColumn is what a field of a record is.
type csvColumn struct {
	Column
	key   int // its place in the key, -1 if it is an attribute column
	first int // the first column of its name
}

// maxHeader bounds the columns of a file.
const maxHeader = 100_000

var byteOrderMark = []byte("\xef\xbb\xbf")

func newCSVReader(in io.Reader, size int64, o *ReadOptions) (Reader, error) {
	comma := cmp.Or(o.Comma, ',')
	head, err := newRecords(in, comma, Position{})
	if err != nil {
		return nil, err
	}
	r := &csvReader{records: head, size: size, o: o, key: make([]row.Value, len(o.Key)), fields: fields{comma: comma}}
	header, err := head.next()
	if err == io.EOF {
		return nil, errors.New("line 1: the file has no header with the names of its columns")
	}
	if err != nil {
		return nil, err
	}
	if err = r.fields.split(bytes.TrimPrefix(header, byteOrderMark), maxHeader); err == nil {
		err = r.readHeader()
	}
	if err != nil {
		return nil, fmt.Errorf("line %d: the header: %w", head.begin, err)
	}
	if o.At.Offset > head.behind.Offset {
		if r.records, err = newRecords(in, comma, o.At); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// readHeader reads the names and types of the columns.
func (r *csvReader) readHeader() error {
	seen := map[Column]bool{}
	found := make([]bool, len(r.o.Key))
	first := map[string]int{}
	for _, text := range r.fields.list {
		c := csvColumn{Column: ParseColumn(string(text))}
		c.key = keyColumn(r.o.Key, c.Name)
		if c.key >= 0 {
			of := r.o.Key[c.key].Type
			if c.Type != row.TypeNone && c.Type != of {
				return fmt.Errorf("key column %s is of type %s in the table, and of type %s in the file", c.Name, of, c.Type)
			}
			c.Type, found[c.key] = of, true
		} else if c.Type == row.TypeNone {
			c.Type = row.TypeString
			if of, ok := r.o.Types[c.Name]; ok {
				c.Type = of
			}
		}
		if strings.ContainsRune(c.Name, '\r') {
			return errors.New("the header has a carriage return; lines end in a line feed, or in both")
		}
		if c.Name == "" {
			return fmt.Errorf("column %d has no name", len(r.columns)+1)
		}
		if seen[c.Column] {
			return fmt.Errorf("column %s is there twice", c.Column)
		}
		seen[c.Column] = true
		if _, ok := first[c.Name]; !ok {
			first[c.Name] = len(r.columns)
		}
		c.first = first[c.Name]
		r.columns = append(r.columns, c)
	}
	r.cellOf = make([]int, len(r.columns))
	for i, ok := range found {
		if !ok {
			return fmt.Errorf("there is no column %s, which the key of the table has; %s", r.o.Key[i], r.found(r.o.Key[i].Name))
		}
	}
	for name := range r.o.Types {
		if _, ok := first[name]; !ok {
			return fmt.Errorf("there is no column %s, for which a type is given; %s", name, r.found(name))
		}
	}
	return nil
}

// found says which columns the header has, and what may be wrong if another one is wanted.
func (r *csvReader) found(want string) string {
	const most = 10 // columns that are named
	var names []string
	hint := ""
	for _, c := range r.columns {
		if names = append(names, c.Name); strings.EqualFold(c.Name, want) {
			hint = ": names are case-sensitive"
		}
		for _, other := range ",;\t|" {
			if hint == "" && byte(other) != r.fields.comma && strings.ContainsRune(c.Name, other) {
				hint = fmt.Sprintf(": is the delimiter '%c'? --delimiter '%c'", other, other)
			}
		}
	}
	text := fmt.Sprintf("the file has %.60q", names[:min(most, len(names))])
	if len(names) > most {
		text += fmt.Sprintf(" and %d more", len(names)-most)
	}
	return text + strings.ReplaceAll(hint, "'\t'", "tab")
}

// Next reads a record.
func (r *csvReader) Next(out *Row) error {
	record, err := r.records.next()
	if err != nil {
		return err
	}
	if err = r.fields.split(record, len(r.columns)); err == nil {
		err = r.row()
	}
	if err != nil {
		return &BadRow{Line: r.records.begin, Text: string(record), Err: err}
	}
	out.Line, out.Key, out.Cells = r.records.begin, r.key, r.cells
	return nil
}

// row makes a row of the fields.
func (r *csvReader) row() error {
	if len(r.fields.list) != len(r.columns) {
		return fmt.Errorf("%d fields, and the header has %d", len(r.fields.list), len(r.columns))
	}
	r.cells = r.cells[:0]
	clear(r.cellOf)
	for i, field := range r.fields.list {
		c := &r.columns[i]
		if c.key < 0 && len(field) == 0 && r.missing(c.Type, r.fields.quoted[i]) {
			continue
		}
		v, err := parseField(c.Type, field)
		if err != nil {
			return fmt.Errorf("column %s: %w", c.Name, err)
		}
		if c.key >= 0 {
			r.key[c.key] = v
			continue
		}
		if err := r.addCell(c, v, len(field) == 0); err != nil {
			return err
		}
	}
	return nil
}

// addCell adds the cell of a field. Of several columns with one name a row has a value in one. With EmptyValue an
// empty field is a value only if they have no other.
func (r *csvReader) addCell(c *csvColumn, v row.Value, empty bool) error {
	at := r.cellOf[c.first] - 1
	switch optional := r.o.Empty == EmptyValue; {
	case at < 0:
		r.cells = append(r.cells, Cell{c.Name, NoVersion, v})
		r.cellOf[c.first] = len(r.cells)
	case optional && empty:
	case optional && len(r.cells[at].Value.Bytes()) == 0 && !isFixed(r.cells[at].Value.Type()):
		r.cells[at].Value = v
	default:
		return fmt.Errorf("column %s has two values", c.Name)
	}
	return nil
}

// isFixed reports whether values of a type cannot be empty.
func isFixed(of row.Type) bool { return of != row.TypeString && of != row.TypeBinary }

// missing reports whether an empty field is no cell.
func (r *csvReader) missing(of row.Type, quoted bool) bool {
	switch r.o.Empty {
	case EmptyMissing:
		return true
	case EmptyValue:
		return isFixed(of)
	}
	return !quoted
}

func parseField(of row.Type, field []byte) (row.Value, error) {
	if of == row.TypeString {
		return row.StringBytes(field), nil
	}
	return instances.ParseValue(of, string(field))
}

// Position is the place behind the record that was read last.
func (r *csvReader) Position() Position { return r.records.behind }

// Size is the length of the file.
func (r *csvReader) Size() int64 { return r.size }

// Close does nothing.
func (r *csvReader) Close() error { return nil }

// fields are those of a record. They lie in the record, or in memory that the next record takes.
type fields struct {
	comma     byte
	list      [][]byte
	quoted    []bool
	unescaped []byte
}

// split cuts a record into fields, most of them at most: a field takes more memory than its comma.
func (f *fields) split(record []byte, most int) error {
	f.list, f.quoted, f.unescaped = f.list[:0], f.quoted[:0], f.unescaped[:0]
	for {
		var field []byte
		quoted := len(record) > 0 && record[0] == '"'
		if quoted {
			var err error
			if field, record, err = f.quotedField(record[1:]); err != nil {
				return fmt.Errorf("field %d: %w", len(f.list)+1, err)
			}
		} else {
			end := bytes.IndexByte(record, f.comma)
			if end < 0 {
				end = len(record)
			}
			field, record = record[:end], record[end:]
			if bytes.IndexByte(field, '"') >= 0 {
				return fmt.Errorf("field %d: a quote in a field that does not begin with one", len(f.list)+1)
			}
		}
		f.list, f.quoted = append(f.list, field), append(f.quoted, quoted)
		if len(record) == 0 {
			return nil
		}
		if len(f.list) == most {
			return fmt.Errorf("more than %d fields", most)
		}
		record = record[1:] // the comma
	}
}

// quotedField returns the field that a quote has begun, and the text behind it.
func (f *fields) quotedField(text []byte) (field, rest []byte, err error) {
	end := bytes.IndexByte(text, '"')
	if end >= 0 && (end+1 == len(text) || text[end+1] == f.comma) { // it holds no quote
		return text[:end], text[end+1:], nil
	}
	begin := len(f.unescaped)
	for {
		end := bytes.IndexByte(text, '"')
		if end < 0 {
			return nil, nil, errors.New("the quote is not closed")
		}
		f.unescaped = append(f.unescaped, text[:end]...)
		text = text[end+1:]
		switch {
		case len(text) == 0 || text[0] == f.comma:
			return f.unescaped[begin:], text, nil
		case text[0] == '"':
			f.unescaped, text = append(f.unescaped, '"'), text[1:]
		default:
			return nil, nil, errors.New("text behind the closing quote")
		}
	}
}

// csvWriter writes CSV.
type csvWriter struct {
	out    *bufio.Writer
	layout *Layout
	places map[Column]int // of an attribute column
	record []row.Value
	line   []byte
}

func newCSVWriter(out io.Writer, l *Layout) (Writer, error) {
	w := &csvWriter{out: bufio.NewWriterSize(out, 256<<10), layout: l, places: map[Column]int{}, record: make([]row.Value, len(l.Columns))}
	for i, c := range l.Columns {
		w.places[c] = i
	}
	if l.Behind {
		return w, nil
	}
	for i, c := range append(append([]Column{}, l.Key...), l.Columns...) {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		w.line = appendField(w.line, row.String(c.String()))
	}
	w.line = append(w.line, '\n')
	_, err := w.out.Write(w.line)
	return w, err
}

// Write writes a row of at most one version of each column.
func (w *csvWriter) Write(r *Row) error {
	clear(w.record)
	for i := range r.Cells {
		c := &r.Cells[i]
		at, ok := w.places[Column{c.Name, c.Value.Type()}]
		if !ok {
			return fmt.Errorf("row %v: column %s holds a value of type %s, and %w", r.Key, c.Name, c.Value.Type(), ErrNoColumn)
		}
		w.record[at] = c.Value
	}
	w.line = w.line[:0]
	for i, v := range r.Key {
		if i > 0 {
			w.line = append(w.line, ',')
		}
		w.line = appendField(w.line, v)
	}
	for _, v := range w.record {
		w.line = append(w.line, ',')
		if v.Type() != row.TypeNone {
			w.line = appendField(w.line, v)
		}
	}
	w.line = append(w.line, '\n')
	_, err := w.out.Write(w.line)
	return err
}

// appendField writes a value, in quotes if it needs them.
func appendField(line []byte, v row.Value) []byte {
	switch v.Type() {
	case row.TypeInteger:
		return strconv.AppendInt(line, v.Int64(), 10)
	case row.TypeString:
		text := v.Bytes()
		if len(text) > 0 && !bytes.ContainsAny(text, ",\"\r\n") && !bytes.HasPrefix(text, byteOrderMark) {
			return append(line, text...)
		}
		line = append(line, '"')
		for {
			quote := bytes.IndexByte(text, '"')
			if quote < 0 {
				return append(append(line, text...), '"')
			}
			line = append(append(line, text[:quote+1]...), '"')
			text = text[quote+1:]
		}
	case row.TypeBinary:
		if len(v.Bytes()) == 0 {
			return append(line, `""`...)
		}
	}
	return append(line, instances.Value{Value: v}.Text()...)
}

// Close writes what is left.
func (w *csvWriter) Close() error { return w.out.Flush() }
