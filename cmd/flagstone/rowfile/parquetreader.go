package rowfile

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/parquet-go/parquet-go"
	"github.com/parquet-go/parquet-go/format"

	"github.com/flagstone-db/flagstone/row"
)

// parquetReader reads Parquet.
type parquetReader struct {
	file    *parquet.File
	groups  []parquet.RowGroup // those that were not begun
	rows    parquet.Rows       // of the group that is being read; nil: none
	buffer  [64]parquet.Row
	ready   []parquet.Row // of buffer
	read    int64
	table   []Column
	columns []parquetColumn   // by their index
	values  [][]parquet.Value // of a row, by the index of the column
	key     []row.Value
	cells   []Cell
}

// parquetColumn is what a column of the file is.
type parquetColumn struct {
	Column
	key  int    // its place in the key, -1 if it is none of it
	cell string // name, version or a type: its field in the list of cells; "" if it is not in it
	// unsigned: an integer without a sign. Of those of 64 bits half do not fit.
	unsigned bool
}

func newParquetReader(in io.Reader, size int64, o *ReadOptions) (_ Reader, err error) {
	defer recovered(&err)
	at, ok := in.(io.ReaderAt)
	if !ok || size <= 0 {
		return nil, errors.New("a parquet file is not read from a pipe, and is never an empty file")
	}
	if err := checkFooter(at, size); err != nil {
		return nil, err
	}
	r := &parquetReader{table: o.Key, key: make([]row.Value, len(o.Key)), read: o.At.Offset}
	if r.file, err = parquet.OpenFile(at, size); err != nil {
		return nil, err
	}
	if v, ok := r.file.Lookup(parquetVersionKey); ok && v != parquetVersion {
		return nil, fmt.Errorf("the layout of the file has version %s, and only version %s is known", v, parquetVersion)
	}
	if err := errors.Join(checkCodecs(r.file), r.readSchema(o)); err != nil {
		return nil, err
	}
	return r, r.seek(o.At.Offset)
}

// checkFooter compares the length of the footer with that of the file: the library takes as much memory as it is told.
func checkFooter(in io.ReaderAt, size int64) error {
	const magic, least = "PAR1", 12
	end := make([]byte, 8)
	if size < least {
		return errors.New("the file is too short for a parquet file")
	}
	if _, err := in.ReadAt(end, size-int64(len(end))); err != nil {
		return err
	}
	if string(end[4:]) != magic {
		return errors.New("this is no parquet file, or its end is missing")
	}
	if footer := int64(binary.LittleEndian.Uint32(end)); footer > size-least {
		return fmt.Errorf("the file is damaged: its footer has %d bytes, and the file %d", footer, size)
	}
	return nil
}

// checkCodecs refuses lz4: of a damaged page, the library's decoder tries larger and larger buffers without end.
func checkCodecs(f *parquet.File) error {
	for _, group := range f.Metadata().RowGroups {
		for _, column := range group.Columns {
			if codec := column.MetaData.Codec; codec == format.Lz4 || codec == format.Lz4Raw {
				return fmt.Errorf("the file is compressed with %s, which is not read; write it with zstd or snappy", codec)
			}
		}
	}
	return nil
}

// recovered makes an error of a panic: the library trusts the counts and offsets of a file that has no checksum over its
// footer.
func recovered(err *error) {
	if p := recover(); p != nil {
		*err = fmt.Errorf("the file is damaged: %v", p)
	}
}

// readSchema finds what each column is.
func (r *parquetReader) readSchema(o *ReadOptions) error {
	cells, _ := r.file.Lookup(parquetCellsKey)
	found := make([]bool, len(o.Key))
	for _, path := range r.file.Schema().Columns() {
		leaf, ok := r.file.Schema().Lookup(path...)
		if !ok || leaf.ColumnIndex != len(r.columns) {
			return fmt.Errorf("column %v cannot be found", path)
		}
		c, err := r.column(path, &leaf, cells, o)
		if err != nil {
			return fmt.Errorf("column %s: %w", path[0], err)
		}
		if c.key >= 0 {
			found[c.key] = true
		}
		r.columns = append(r.columns, c)
	}
	for i, ok := range found {
		if !ok {
			return fmt.Errorf("there is no column %s, which the key of the table has", o.Key[i])
		}
	}
	return nil
}

// column says what a column is.
func (r *parquetReader) column(path []string, leaf *parquet.LeafColumn, cells string, o *ReadOptions) (c parquetColumn, err error) {
	name := path[0]
	c = parquetColumn{Column: Column{Name: name}, key: keyColumn(o.Key, name)}
	if c.Type, c.unsigned, err = leafType(leaf.Node.Type()); err != nil {
		return c, err
	}
	switch nested := len(path) > 1 || leaf.MaxRepetitionLevel > 0; {
	case nested && cells != "" && name == cells && len(path) == 4:
		c.cell = path[3]
		return c, nil
	case nested:
		return c, errors.New("it is a list, a map or a structure; only plain columns are imported")
	}
	bytes := c.Type == row.TypeString || c.Type == row.TypeBinary
	if want, ok := o.Types[name]; ok && bytes && (want == row.TypeString || want == row.TypeBinary) {
		c.Type = want
	} else if ok && want != c.Type {
		return c, fmt.Errorf("it is of type %s in the file, and %s is asked for", c.Type, want)
	}
	if c.key >= 0 {
		want := o.Key[c.key].Type
		if bytes && (want == row.TypeString || want == row.TypeBinary) {
			c.Type = want
		}
		if c.Type != want {
			return c, fmt.Errorf("it is of type %s in the file, and %s in the key of the table", c.Type, want)
		}
	}
	return c, nil
}

// leafType is the type of the values of a column.
func leafType(t parquet.Type) (of row.Type, unsigned bool, err error) {
	var logical any
	if l := t.LogicalType(); l != nil {
		logical = l.Value
	}
	switch logical.(type) {
	case *format.DecimalType, *format.VariantType, *format.Float16Type:
		return row.TypeNone, false, fmt.Errorf("values of Parquet's type %s are not imported", t)
	}
	integer, isInteger := logical.(*format.IntType)
	switch t.Kind() {
	case parquet.Boolean:
		return row.TypeBoolean, false, nil
	case parquet.Int32, parquet.Int64:
		return row.TypeInteger, isInteger && !integer.IsSigned, nil
	case parquet.Float, parquet.Double:
		return row.TypeDouble, false, nil
	case parquet.ByteArray, parquet.FixedLenByteArray:
		switch logical.(type) {
		case *format.StringType, *format.EnumType, *format.JsonType:
			return row.TypeString, false, nil
		}
		return row.TypeBinary, false, nil
	}
	return row.TypeNone, false, fmt.Errorf("values of Parquet's type %s are not imported", t)
}

// seek goes to a row.
func (r *parquetReader) seek(to int64) error {
	r.groups = r.file.RowGroups()
	for len(r.groups) > 0 && to >= r.groups[0].NumRows() {
		to -= r.groups[0].NumRows()
		r.groups = r.groups[1:]
	}
	if len(r.groups) == 0 || to == 0 {
		return nil
	}
	r.rows, r.groups = r.groups[0].Rows(), r.groups[1:]
	return r.rows.SeekToRow(to)
}

// Next reads a row.
func (r *parquetReader) Next(out *Row) (err error) {
	defer recovered(&err)
	for len(r.ready) == 0 {
		if r.rows == nil {
			if len(r.groups) == 0 {
				return r.end()
			}
			r.rows, r.groups = r.groups[0].Rows(), r.groups[1:]
		}
		n, err := r.rows.ReadRows(r.buffer[:])
		r.ready = r.buffer[:n]
		if err == io.EOF && n == 0 {
			err = r.rows.Close()
			r.rows = nil
		}
		if err != nil && err != io.EOF {
			return fmt.Errorf("row %d: %w", r.read+1, err)
		}
	}
	in := r.ready[0]
	r.ready = r.ready[1:]
	r.read++
	if err := r.divide(in); err != nil {
		return fmt.Errorf("row %d: the file is damaged: %w", r.read, err)
	}
	if err := r.row(); err != nil {
		return &BadRow{Line: r.read, Err: err}
	}
	out.Line, out.Key, out.Cells = r.read, r.key, r.cells
	return nil
}

// end returns io.EOF if all rows were there.
func (r *parquetReader) end() error {
	if r.read < r.file.NumRows() {
		return fmt.Errorf("the file ends after row %d, and says that it has %d", r.read, r.file.NumRows())
	}
	return io.EOF
}

// divide finds the values of each column. In a damaged file a column may end early, and the library gives the row
// without its values.
func (r *parquetReader) divide(in parquet.Row) error {
	r.values = r.values[:0]
	cells := -1
	for i := range r.columns {
		n := 0
		for n < len(in) && in[n].Column() == i {
			n++
		}
		switch c := &r.columns[i]; {
		case n == 0:
			return fmt.Errorf("column %s has no value", c.Name)
		case c.cell == "" && n > 1:
			return fmt.Errorf("column %s has %d values", c.Name, n)
		case c.cell != "" && cells >= 0 && n != cells:
			return fmt.Errorf("field %s of the cells has %d values, and another one %d", c.cell, n, cells)
		case c.cell != "":
			cells = n
		}
		r.values, in = append(r.values, in[:n:n]), in[n:]
	}
	if len(in) > 0 {
		return fmt.Errorf("a value of column %d is out of its place", in[0].Column())
	}
	return nil
}

// row makes a row of the values.
func (r *parquetReader) row() error {
	clear(r.key)
	r.cells = r.cells[:0]
	for i, values := range r.values {
		c, v := &r.columns[i], values[0]
		switch {
		case c.cell != "":
			if err := r.cellValues(c, values); err != nil {
				return err
			}
		case v.IsNull():
		case c.unsigned && v.Kind() == parquet.Int64 && v.Int64() < 0:
			return fmt.Errorf("column %s: %d is no integer of 64 bits with a sign", c.Name, v.Uint64())
		case c.key >= 0:
			r.key[c.key] = c.value(v)
		default:
			r.cells = append(r.cells, Cell{c.Name, NoVersion, c.value(v)})
		}
	}
	for i := range r.cells {
		if c := &r.cells[i]; c.Name == "" || c.Value.Type() == row.TypeNone {
			return fmt.Errorf("cell %d has no name or no value", i+1)
		}
	}
	return checkKey(r.table, r.key)
}

// value is a value of the column.
func (c *parquetColumn) value(v parquet.Value) row.Value {
	if c.unsigned && v.Kind() == parquet.Int32 {
		return row.Integer(int64(v.Uint32()))
	}
	return rowValue(c.Type, v)
}

// cellValues takes one field of all cells of a row.
func (r *parquetReader) cellValues(c *parquetColumn, values []parquet.Value) error {
	for i, v := range values {
		if v.DefinitionLevel() == 0 { // the list is empty
			return nil
		}
		if i == len(r.cells) {
			r.cells = append(r.cells, Cell{Version: NoVersion})
		}
		cell := &r.cells[i]
		switch {
		case v.IsNull():
		case c.cell == "name":
			cell.Name = string(v.ByteArray())
		case c.cell == "version":
			if cell.Version = v.Int64(); cell.Version < 0 {
				return fmt.Errorf("cell %d has version %d", i+1, cell.Version)
			}
		case cell.Value.Type() != row.TypeNone:
			return fmt.Errorf("cell %d has two values", i+1)
		default:
			cell.Value = rowValue(c.Type, v)
		}
	}
	return nil
}

// Position is the number of rows that were read.
func (r *parquetReader) Position() Position { return Position{Offset: r.read, Line: r.read} }

// Size is the number of rows.
func (r *parquetReader) Size() int64 { return r.file.NumRows() }

// Close releases the memory of the row group.
func (r *parquetReader) Close() error {
	if r.rows == nil {
		return nil
	}
	return r.rows.Close()
}
