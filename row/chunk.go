package row

// Rows that are read several at once, so that what a step through the layers
// costs is paid once for all of them.

import "slices"

// Chunk holds rows that were read together: their keys and cells, in memory of
// its own, which it uses again after Reset. Names and values may lie where they were
// read instead, in a block that the source keeps until it leaves it.
type Chunk struct {
	// Collector has the cells of all rows, one row behind the other.
	Collector
	// Budget is about how many bytes of rows a reader adds at once, and at least
	// one row.
	Budget int

	keys []byte
	ends []RowEnd
}

// KeySlack is how many bytes behind keys may be written, so that copies of a few
// bytes can be stores of eight.
const KeySlack = 8

// RowEnd is where a row of a chunk ends among all keys, in bytes, and among all
// cells.
type RowEnd struct{ Key, Cell uint32 }

// Reset forgets the rows.
func (c *Chunk) Reset() {
	c.Collector.Reset()
	c.keys, c.ends = c.keys[:0], c.ends[:0]
}

// Len is the number of rows.
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

// AddKey begins a row, whose key is prefix and suffix together. Its cells are
// what is collected until EndRow.
func (c *Chunk) AddKey(prefix, suffix []byte) {
	c.keys = append(append(c.keys, prefix...), suffix...)
}

// EndRow ends a row with the cells up to the given number, of those that are or
// will be collected.
func (c *Chunk) EndRow(cells int) {
	c.ends = append(c.ends, RowEnd{uint32(len(c.keys)), uint32(cells)})
}

// AddRows begins n rows at once, whose keys have so many bytes together. The caller
// fills the keys, one behind the other, and the ends, which count what was there
// before: keyed bytes of keys. He may write KeySlack bytes more than that.
func (c *Chunk) AddRows(n, bytes int) (ends []RowEnd, keys []byte, keyed int) {
	from := len(c.ends)
	keyed = len(c.keys)
	c.ends = slices.Grow(c.ends, n)[:from+n]
	c.keys = slices.Grow(c.keys, bytes+KeySlack)[:keyed+bytes]
	return c.ends[from:], c.keys[keyed : keyed+bytes+KeySlack], keyed
}

// Size is the memory that the chunk keeps, in bytes.
func (c *Chunk) Size() int { return c.Collector.Size() + cap(c.keys) + 8*cap(c.ends) }
