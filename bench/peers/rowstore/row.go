package rowstore

import (
	"bytes"
	"slices"
)

// Row is a row's key and cells. A Row that reads fill keeps its memory from one
// read to the next.
type Row struct {
	Key   []byte
	Cells []Cell

	arena []byte // what Key and Cells of a filled row point into
}

// Reset empties the row, keeps its memory, and sets its key to a copy.
func (r *Row) Reset(key []byte) {
	r.Cells = r.Cells[:0]
	r.arena = r.arena[:0]
	r.Key = r.Copy(key)
}

// Copy copies bytes into the row's memory. When that grows, earlier slices keep
// pointing into the old one, which stays alive for them.
func (r *Row) Copy(b []byte) []byte {
	from := len(r.arena)
	r.arena = append(r.arena, b...)
	return r.arena[from:len(r.arena):len(r.arena)]
}

// Bytes returns n bytes of the row's memory, of undefined content.
func (r *Row) Bytes(n int) []byte {
	from := len(r.arena)
	r.arena = slices.Grow(r.arena, n)[:from+n]
	return r.arena[from : from+n : from+n]
}

// Add adds a copy of a cell. Cells of one column that follow each other share
// the copy of its name.
func (r *Row) Add(column []byte, version int64, value []byte) {
	r.Cells = append(r.Cells, Cell{r.name(column), version, r.Copy(value)})
}

func (r *Row) name(column []byte) []byte {
	if n := len(r.Cells); n > 0 && bytes.Equal(r.Cells[n-1].Column, column) {
		return r.Cells[n-1].Column
	}
	return r.Copy(column)
}

// Clone returns a copy that shares no memory with r.
func (r *Row) Clone() Row {
	c := Row{Key: bytes.Clone(r.Key), Cells: make([]Cell, len(r.Cells))}
	for i, cell := range r.Cells {
		c.Cells[i] = Cell{bytes.Clone(cell.Column), cell.Version, bytes.Clone(cell.Value)}
	}
	return c
}
