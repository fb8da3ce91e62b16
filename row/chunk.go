package row

// Reading several rows at once, so that they share the cost of a step through the layers.

import "slices"

// Chunk holds rows that were read together: their keys and cells, in its own memory, which it
// reuses after Reset. Names and values may instead point into the block they were read from,
// which the source keeps until it leaves the block.
type Chunk struct {
	// Collector has the cells of all rows, one row after the other.
	Collector
	// Budget is about how many bytes of rows a reader adds at once; it adds at least one row.
	Budget int

	keys []byte
	ends []RowEnd
}

// KeySlack is how many bytes may be written past the keys, so that copies of a few bytes can be
// stores of eight.
const KeySlack = 8

// RowEnd is the end of a row of a chunk: in bytes of all keys, and in number of cells.
type RowEnd struct{ Key, Cell uint32 }

// Reset removes all rows.
func (c *Chunk) Reset() {
	c.Collector.Reset()
	c.keys, c.ends = c.keys[:0], c.ends[:0]
}

// Len returns the number of rows.
func (c *Chunk) Len() int { return len(c.ends) }

// Row returns the key and the cells of row i, which point into the chunk.
func (c *Chunk) Row(i int) (key []byte, cells []Cell) {
	var from RowEnd
	if i > 0 {
		from = c.ends[i-1]
	}
	to := c.ends[i]
	return c.keys[from.Key:to.Key:to.Key], c.Cells[from.Cell:to.Cell:to.Cell]
}

// CellsOf returns the cells of the first n rows, at least one.
func (c *Chunk) CellsOf(n int) []Cell { return c.Cells[:c.ends[n-1].Cell] }

// AddKey begins a row with the key prefix+suffix. Its cells are those collected until EndRow.
func (c *Chunk) AddKey(prefix, suffix []byte) {
	c.keys = append(append(c.keys, prefix...), suffix...)
}

// EndRow ends a row. cells is the number of cells of the chunk up to its end; some may be
// collected later.
func (c *Chunk) EndRow(cells int) {
	c.ends = append(c.ends, RowEnd{uint32(len(c.keys)), uint32(cells)})
}

// AddRows adds n rows at once, whose keys have the given number of bytes together. The caller
// fills in the keys, one after the other, and the ends, which also count earlier rows: keyed is
// the number of their key bytes. The caller may write KeySlack bytes past the keys.
func (c *Chunk) AddRows(n, bytes int) (ends []RowEnd, keys []byte, keyed int) {
	from := len(c.ends)
	keyed = len(c.keys)
	c.ends = slices.Grow(c.ends, n)[:from+n]
	c.keys = slices.Grow(c.keys, bytes+KeySlack)[:keyed+bytes]
	return c.ends[from:], c.keys[keyed : keyed+bytes+KeySlack], keyed
}

// Size returns the memory that the chunk keeps, in bytes.
func (c *Chunk) Size() int { return c.Collector.Size() + cap(c.keys) + 8*cap(c.ends) }
