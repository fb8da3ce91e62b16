package rowfile

// This file writes Parquet, and parquetreader.go reads it. There are two layouts. The flat one has a column for each
// column of the key and each attribute column, and is for other programs. The other one has the columns of the key, and a
// list of cells; each cell has its name, its version, and its value in the column of its type. It holds all
// versions and types.

import (
	"fmt"
	"io"
	"slices"

	"github.com/parquet-go/parquet-go"

	"github.com/flagstone-db/flagstone/row"
)

// Metadata of the files that parquetWriter writes.
const (
	parquetVersionKey = "flagstone.version" // of what this file says
	parquetVersion    = "1"
	parquetCellsKey   = "flagstone.cells" // the name of the column with the list of cells; "" in a flat file
)

// attributeTypes are the types of cells; each has a column in the list of cells that is named after it.
var attributeTypes = []row.Type{row.TypeInteger, row.TypeDouble, row.TypeBoolean, row.TypeString, row.TypeBinary}

// parquetNode is the type of a column in a file.
func parquetNode(of row.Type) parquet.Node {
	switch of {
	case row.TypeInteger:
		return parquet.Leaf(parquet.Int64Type)
	case row.TypeDouble:
		return parquet.Leaf(parquet.DoubleType)
	case row.TypeBoolean:
		return parquet.Leaf(parquet.BooleanType)
	case row.TypeString:
		return parquet.String()
	}
	return parquet.Leaf(parquet.ByteArrayType)
}

func parquetValue(v row.Value) parquet.Value {
	switch v.Type() {
	case row.TypeInteger:
		return parquet.Int64Value(v.Int64())
	case row.TypeDouble:
		return parquet.DoubleValue(v.Float64())
	case row.TypeBoolean:
		return parquet.BooleanValue(v.Bool())
	}
	return parquet.ByteArrayValue(v.Bytes())
}

// cellsName is a name for the list of cells that no column of the key has.
func cellsName(key []Column) string {
	name := "cells"
	for keyColumn(key, name) >= 0 {
		name += "_"
	}
	return name
}

// cellNode is the list of cells.
func cellNode() parquet.Node {
	cell := parquet.Group{"name": parquet.String(), "version": parquet.Leaf(parquet.Int64Type)}
	for _, of := range attributeTypes {
		cell[of.String()] = parquet.Optional(parquetNode(of))
	}
	return parquet.List(cell)
}

// parquetWriter writes Parquet.
type parquetWriter struct {
	out      *parquet.GenericWriter[any]
	schema   *parquet.Schema
	layout   *Layout
	cells    string            // the name of the list of cells; "" in a flat file
	columns  [][]parquet.Value // of a row, by the index of the column
	key      []int             // indexes of the columns of the key
	flat     map[string]flatColumn
	name     int // indexes of the fields of a cell
	version  int
	value    map[row.Type]int
	buffered int64
}

// flatColumn is an attribute column of a flat file.
type flatColumn struct {
	index int
	of    row.Type
}

// groupBytes is about how much of a file is in memory until it is written as a row group.
const groupBytes = 32 << 20

func newParquetWriter(out io.Writer, l *Layout) (Writer, error) {
	w := &parquetWriter{layout: l, flat: map[string]flatColumn{}, value: map[row.Type]int{}}
	root := parquet.Group{}
	for _, k := range l.Key {
		root[k.Name] = parquetNode(k.Type)
	}
	for _, c := range l.Columns {
		if root[c.Name] != nil {
			return nil, fmt.Errorf("a flat Parquet file has one column of a name, and %s is there twice", c.Name)
		}
		root[c.Name] = parquet.Optional(parquetNode(c.Type))
	}
	if len(l.Columns) == 0 {
		w.cells = cellsName(l.Key)
		root[w.cells] = cellNode()
	}
	w.schema = parquet.NewSchema("rows", root)
	w.columns = make([][]parquet.Value, len(w.schema.Columns()))
	w.findColumns()
	w.out = parquet.NewGenericWriter[any](out, w.schema, parquet.Compression(&parquet.Zstd),
		parquet.KeyValueMetadata(parquetVersionKey, parquetVersion), parquet.KeyValueMetadata(parquetCellsKey, w.cells))
	return w, nil
}

// findColumns finds the indexes of the columns, which are sorted by name.
func (w *parquetWriter) findColumns() {
	index := func(path ...string) int {
		leaf, _ := w.schema.Lookup(path...)
		return leaf.ColumnIndex
	}
	for _, k := range w.layout.Key {
		w.key = append(w.key, index(k.Name))
	}
	for _, c := range w.layout.Columns {
		w.flat[c.Name] = flatColumn{index(c.Name), c.Type}
	}
	if w.cells == "" {
		return
	}
	field := func(name string) int { return index(w.cells, "list", "element", name) }
	w.name, w.version = field("name"), field("version")
	for _, of := range attributeTypes {
		w.value[of] = field(of.String())
	}
}

// Write writes a row.
func (w *parquetWriter) Write(r *Row) error {
	for i := range w.columns {
		w.columns[i] = w.columns[i][:0]
	}
	for i, v := range r.Key {
		w.add(w.key[i], parquetValue(v), 0, 0)
	}
	var err error
	if w.cells == "" {
		err = w.addFlat(r)
	} else {
		w.addCells(r)
	}
	if err != nil {
		return err
	}
	if _, err := w.out.WriteRows([]parquet.Row{parquet.MakeRow(w.columns...)}); err != nil {
		return err
	}
	for _, v := range r.Key {
		w.buffered += int64(v.Size())
	}
	for i := range r.Cells {
		w.buffered += int64(len(r.Cells[i].Name)+r.Cells[i].Value.Size()) + 16
	}
	if w.buffered >= groupBytes {
		w.buffered = 0
		return w.out.Flush()
	}
	return nil
}

func (w *parquetWriter) add(column int, v parquet.Value, repetition, definition int) {
	w.columns[column] = append(w.columns[column], v.Level(repetition, definition, column))
}

func (w *parquetWriter) addFlat(r *Row) error {
	for i := range r.Cells {
		c := &r.Cells[i]
		at, ok := w.flat[c.Name]
		if !ok || at.of != c.Value.Type() {
			return fmt.Errorf("row %v: column %s holds a value of type %s, and %w", r.Key, c.Name, c.Value.Type(), ErrNoColumn)
		}
		if len(w.columns[at.index]) > 0 {
			return fmt.Errorf("row %v: column %s has several versions, and a flat file holds one", r.Key, c.Name)
		}
		w.add(at.index, parquetValue(c.Value), 0, 1)
	}
	for _, at := range w.flat {
		if len(w.columns[at.index]) == 0 {
			w.add(at.index, parquet.NullValue(), 0, 0)
		}
	}
	return nil
}

func (w *parquetWriter) addCells(r *Row) {
	if len(r.Cells) == 0 {
		w.add(w.name, parquet.NullValue(), 0, 0)
		w.add(w.version, parquet.NullValue(), 0, 0)
		for _, at := range w.value {
			w.add(at, parquet.NullValue(), 0, 0)
		}
	}
	for i := range r.Cells {
		c := &r.Cells[i]
		repetition := min(i, 1)
		w.add(w.name, parquet.ByteArrayValue([]byte(c.Name)), repetition, 1)
		w.add(w.version, parquet.Int64Value(c.Version), repetition, 1)
		for of, at := range w.value {
			if of == c.Value.Type() {
				w.add(at, parquetValue(c.Value), repetition, 2)
			} else {
				w.add(at, parquet.NullValue(), repetition, 1)
			}
		}
	}
}

// Close writes the end of the file.
func (w *parquetWriter) Close() error { return w.out.Close() }

// rowValue is the value of a column of a type.
func rowValue(of row.Type, v parquet.Value) row.Value {
	switch of {
	case row.TypeInteger:
		if v.Kind() == parquet.Int32 {
			return row.Integer(int64(v.Int32()))
		}
		return row.Integer(v.Int64())
	case row.TypeDouble:
		if v.Kind() == parquet.Float {
			return row.Double(float64(v.Float()))
		}
		return row.Double(v.Double())
	case row.TypeBoolean:
		return row.Boolean(v.Boolean())
	case row.TypeString:
		return row.StringBytes(slices.Clone(v.ByteArray()))
	}
	return row.Binary(slices.Clone(v.ByteArray()))
}
