package row

// Rows that are read several at once, so that what a step through the layers
// costs is paid once for all of them.

// Chunk holds rows that were read together: their keys and cells, in memory of
// its own, which it uses again after Reset.
type Chunk struct {
	// Collector has the cells of all rows, one row behind the other.
	Collector
	// Budget is about how many bytes of rows a reader adds at once, and at least
	// one row.
	Budget int

	keys []byte
	ends []chunkEnd
}

// chunkEnd is where a row ends.
type chunkEnd struct{ key, cell uint32 }

// Reset forgets the rows.
func (c *Chunk) Reset() {
	c.Collector.Reset()
	c.keys, c.ends = c.keys[:0], c.ends[:0]
}

// Len is the number of rows.
func (c *Chunk) Len() int { return len(c.ends) }

// Row returns the key and the cells of row i, which point into the chunk.
func (c *Chunk) Row(i int) (key []byte, cells []Cell) {
	var from chunkEnd
	if i > 0 {
		from = c.ends[i-1]
	}
	to := c.ends[i]
	return c.keys[from.key:to.key:to.key], c.Cells[from.cell:to.cell:to.cell]
}

// AddKey begins a row, whose key is prefix and suffix together. Its cells are
// what is collected until EndRow.
func (c *Chunk) AddKey(prefix, suffix []byte) {
	c.keys = append(append(c.keys, prefix...), suffix...)
}

// EndRow ends a row with the cells up to the given number, of those that are or
// will be collected.
func (c *Chunk) EndRow(cells int) {
	c.ends = append(c.ends, chunkEnd{uint32(len(c.keys)), uint32(cells)})
}

// Size is the memory that the chunk keeps, in bytes.
func (c *Chunk) Size() int { return c.Collector.Size() + cap(c.keys) + 8*cap(c.ends) }
