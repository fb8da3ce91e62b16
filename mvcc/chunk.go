package mvcc

// Rows that are read several at once: see row.Chunk.

import "github.com/flagstone-db/flagstone/row"

// CollectRows adds visible rows with their selected cells to dst: the current
// one, of which nothing was read so far, and those after it, as many as dst has a
// budget for and the source knows well enough. It returns their number, and moves
// the source to the last of them; 0 says that the current row is to be read by
// itself. Begin the next row by NextRow. Examined does not count these rows.
func (r *RowReader) CollectRows(dst *row.Chunk) int {
	if r.judged == unclear {
		r.judgeMany()
	}
	if r.judged != visible {
		return 0
	}
	p := &r.projection
	if r.sel.NoCells {
		p = nil
	}
	n := r.it.CollectRows(dst, r.granted+1, p)
	r.granted -= n - 1
	return n
}

// CollectRows adds rows that Stretch described.
func (m *MergeIterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	r := &m.runs[m.heap[0]]
	n := r.it.CollectRows(dst, rows, p)
	r.key = r.it.RowKey()
	m.stretch -= n - 1
	return n
}

// CollectRows returns 0: Stretch describes none.
func (m *RowMerge) CollectRows(*row.Chunk, int, *row.Projection) int { return 0 }
