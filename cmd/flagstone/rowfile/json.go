package rowfile

// This file reads and writes JSON Lines. A line is an instances.Row, as `flagstone scan --json` prints it. A reader also
// takes lines that are an object with a member for each column.

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// jsonRow is instances.Row, but tells a cell without a version from one of version 0.
type jsonRow struct {
	Key     instances.List[instances.KeyValue] `json:"key"`
	Columns instances.List[jsonCell]           `json:"columns"`
}

type jsonCell struct {
	Name    string          `json:"name"`
	Version *int64          `json:"version"`
	Value   instances.Value `json:"value"`
}

type jsonReader struct {
	records *records
	size    int64
	table   []Column
	types   map[string]row.Type
	flat    bool // the last line was
	key     []row.Value
	cells   []Cell
}

func newJSONReader(in io.Reader, size int64, o *ReadOptions) (Reader, error) {
	records, err := newRecords(in, 0, o.At)
	return &jsonReader{records: records, size: size, table: o.Key, types: o.Types, key: make([]row.Value, len(o.Key))}, err
}

// Next reads a line.
func (r *jsonReader) Next(out *Row) error {
	line, err := r.records.next()
	if err != nil {
		return err
	}
	if err := r.row(line); err != nil {
		return &BadRow{Line: r.records.begin, Text: string(line), Err: err}
	}
	out.Line, out.Key, out.Cells = r.records.begin, r.key, r.cells
	return nil
}

func (r *jsonReader) row(line []byte) error {
	if !utf8.Valid(line) { // the decoder would change it
		return errors.New("the line is not UTF-8")
	}
	if err := checkEscapes(line); err != nil {
		return err
	}
	first, second := r.whole, r.columns
	if r.flat {
		first, second = second, first
	}
	err := first(line)
	if err == nil {
		return nil
	}
	other := second(line)
	if other == nil {
		r.flat = !r.flat
		return nil
	}
	// The error is that of the form that the line has.
	if r.flat == isWhole(line) {
		err = other
	}
	return err
}

// isWhole reports whether a line has a member key that is an array.
func isWhole(line []byte) bool {
	var in struct{ Key []json.RawMessage }
	return json.NewDecoder(bytes.NewReader(line)).Decode(&in) == nil && in.Key != nil
}

// columns reads a line that has a member for each column.
func (r *jsonReader) columns(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	if begin, err := decoder.Token(); err != nil {
		return jsonRefusal(err)
	} else if begin != json.Delim('{') {
		return errors.New("the line is no object")
	}
	clear(r.key)
	r.cells = r.cells[:0]
	seen := map[string]bool{}
	for decoder.More() {
		name, err := decoder.Token()
		var value *instances.Value // nil: null
		if err == nil {
			if err = decoder.Decode(&value); err != nil {
				err = fmt.Errorf("column %q: %w", name, err)
			}
		}
		if err == nil {
			err = r.column(name.(string), value, seen)
		}
		if err != nil {
			return fmt.Errorf("%w; a line has a member for each column, or is what 'flagstone export' writes: docs/importing.md", jsonRefusal(err))
		}
	}
	if _, err := decoder.Token(); err != nil {
		return jsonRefusal(err)
	}
	if len(bytes.TrimSpace(line[decoder.InputOffset():])) > 0 {
		return errors.New("text behind the object")
	}
	return checkKey(r.table, r.key)
}

// maxMembers bounds the members of a line, as instances.List does for a line of the other form.
const maxMembers = 10_000

// column takes a member. A value that is nil is no cell.
func (r *jsonReader) column(name string, value *instances.Value, seen map[string]bool) (err error) {
	switch {
	case seen[name]:
		return fmt.Errorf("column %q is there twice", name)
	case len(seen) == maxMembers:
		return fmt.Errorf("more than %d columns", maxMembers)
	}
	seen[name] = true
	if value == nil {
		return nil
	}
	at, want := keyColumn(r.table, name), r.types[name]
	if at >= 0 {
		want = r.table[at].Type
	}
	v := value.Value
	switch {
	case want == row.TypeDouble && v.Type() == row.TypeInteger:
		v = row.Double(float64(v.Int64()))
	case want != row.TypeNone && want != v.Type() && v.Type() == row.TypeString:
		if v, err = instances.ParseValue(want, v.Text()); err != nil {
			return fmt.Errorf("column %q: %w", name, err)
		}
	case want != row.TypeNone && want != v.Type():
		return fmt.Errorf("column %q is of type %s, and this value of type %s", name, want, v.Type())
	}
	if at >= 0 {
		r.key[at] = v
	} else {
		r.cells = append(r.cells, Cell{name, NoVersion, v})
	}
	return nil
}

// whole reads a line as export writes it.
func (r *jsonReader) whole(line []byte) error {
	decoder := json.NewDecoder(bytes.NewReader(line))
	decoder.DisallowUnknownFields()
	var in jsonRow
	if err := decoder.Decode(&in); err != nil {
		if name, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok {
			return fmt.Errorf("member %s has no place in a line with the members key and columns", name)
		}
		return jsonRefusal(err)
	}
	if len(bytes.TrimSpace(line[decoder.InputOffset():])) > 0 {
		return errors.New("text behind the object")
	}
	clear(r.key)
	for _, k := range in.Key {
		at := keyColumn(r.table, k.Name)
		if at < 0 {
			return fmt.Errorf("the key of the table has no column %q", k.Name)
		}
		if r.key[at].Type() != row.TypeNone {
			return fmt.Errorf("key column %s is there twice", k.Name)
		}
		r.key[at] = k.Value.Value
	}
	if err := checkKey(r.table, r.key); err != nil {
		return err
	}
	r.cells = r.cells[:0]
	for _, c := range in.Columns {
		if c.Value.Type() == row.TypeNone {
			return fmt.Errorf("column %q has no value", c.Name)
		}
		cell := Cell{c.Name, NoVersion, c.Value.Value}
		if c.Version != nil {
			if cell.Version = *c.Version; cell.Version < 0 {
				return fmt.Errorf("column %q has version %d", c.Name, cell.Version)
			}
		}
		r.cells = append(r.cells, cell)
	}
	return nil
}

// jsonRefusal says in the words of this package why the decoder takes a line for no row.
func jsonRefusal(err error) error {
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		return fmt.Errorf("no JSON at byte %d", syntax.Offset)
	}
	if of, ok := errors.AsType[*json.UnmarshalTypeError](err); ok {
		return fmt.Errorf("member %q holds something that has no place there: %s", of.Field, of.Value)
	}
	if errors.Is(err, io.ErrUnexpectedEOF) || err == io.EOF {
		return errors.New("the line ends within the object")
	}
	return err
}

// checkEscapes refuses an escape that is half of a surrogate pair: the decoder would replace it by U+FFFD.
func checkEscapes(line []byte) error {
	for {
		at := bytes.IndexByte(line, '\\')
		if at < 0 || at+1 == len(line) {
			return nil
		}
		first := escaped(line[at:])
		if line = line[at+2:]; !utf16.IsSurrogate(first) {
			continue
		}
		if utf16.DecodeRune(first, escaped(line[4:])) == unicode.ReplacementChar {
			return fmt.Errorf("\\u%04x is half of a surrogate pair; write a string that is not UTF-8 as {\"string\": HEXADECIMAL}", first)
		}
		line = line[10:]
	}
}

// escaped is the code of the escape with which a text begins; 0 if it begins with none.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return 0
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return 0
	}
	return rune(code)
}

// Position is the place behind the line that was read last.
func (r *jsonReader) Position() Position { return r.records.behind }

// Size is the length of the file.
func (r *jsonReader) Size() int64 { return r.size }

// Close does nothing.
func (r *jsonReader) Close() error { return nil }

type jsonWriter struct {
	out     *bufio.Writer
	encoder *json.Encoder
	row     instances.Row
}

func newJSONWriter(out io.Writer, l *Layout) Writer {
	w := &jsonWriter{out: bufio.NewWriterSize(out, 256<<10)}
	w.encoder = json.NewEncoder(w.out)
	for _, k := range l.Key {
		w.row.Key = append(w.row.Key, instances.KeyValue{Name: k.Name})
	}
	w.row.Columns = []instances.Cell{}
	return w
}

// Write writes a line.
func (w *jsonWriter) Write(r *Row) error {
	for i, v := range r.Key {
		w.row.Key[i].Value.Value = v
	}
	w.row.Columns = w.row.Columns[:0]
	for _, c := range r.Cells {
		w.row.Columns = append(w.row.Columns, instances.Cell{Name: c.Name, Version: c.Version, Value: instances.Value{Value: c.Value}})
	}
	return w.encoder.Encode(&w.row)
}

// Close writes what is left.
func (w *jsonWriter) Close() error { return w.out.Flush() }
