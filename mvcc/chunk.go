package mvcc

// Reading several rows at once: see row.Chunk.

import "github.com/flagstone-db/flagstone/row"

// CollectRows adds visible rows with their selected cells to dst, and returns their
// number. It begins with the current row and goes on for as long as dst has a budget
// and the source knows the rows well enough; the source then stands on the last of
// them. 0 means that the current row must be read by itself. Begin the row after them
// with NextRow. Examined does not count these rows. REQUIRES: the row is unread.
func (r *RowReader) CollectRows(dst *row.Chunk) int {
	p := &r.projection
	if r.sel.NoCells {
		p = nil
	}
	if merge, ok := r.all.(interleaved); ok && !r.asked {
		if n := merge.CollectInterleaved(dst, r.Limit, p, r); n > 0 {
			return n
		}
	}
	if r.judgeWhole() != visible || r.many == 0 {
		return 0
	}
	n := r.whole.(ManyRows).CollectRows(dst, r.many, p)
	r.many -= n - 1
	return n
}

// CollectRows adds rows that Extent described, and returns their number.
func (m *MergeIterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	r := &m.runs[m.heap[0].run]
	n := r.it.(ManyRows).CollectRows(dst, rows, p)
	r.key = r.it.RowKey()
	m.stretch -= n - 1
	return n
}
