package mvcc

// Runs that interleave: each of the next rows is of another run, so no run can hand over many rows
// at once. The merge then reads several rows of each run ahead, into a chunk of the run, and merges
// the chunks. Most rows cost a comparison of keys and a copy of their cells' descriptions.

import "github.com/flagstone-db/flagstone/row"

const (
	// shortStretch is how few rows a stretch has if merging chunks would have been faster.
	shortStretch = 4
	// shortStretches is how many of them follow each other before runs are read ahead.
	shortStretches = 4
	// maxPause is how many more there are at most, once a row needed cells of several runs, to which
	// those that were read ahead have to seek back. The number doubles each time, and halves with
	// each chunk that was of use.
	maxPause = 1 << 14
	// aheadShare divides the bytes that the caller wants: a run is read ahead by so much.
	aheadShare = 8
	// keptChunk is the most memory of a chunk that is kept for another run, in bytes.
	keptChunk = 64 << 10
)

// interleaved is a merge of runs that may interleave.
type interleaved interface {
	// CollectInterleaved adds rows that r shows to dst, and returns their number: the current row
	// and those after it below limit, of all runs. The merge then stands on the last of them, which
	// cannot be read again: only a movement may follow. It returns 0 if the runs do not interleave, or
	// the current row must be read by itself. A nil projection wants no columns. If a run fails, the
	// next movement gets the error. REQUIRES: the row is unread, and limit, projection and reader are
	// the same until the merge is positioned anew.
	CollectInterleaved(dst *row.Chunk, limit []byte, p *row.Projection, r *RowReader) int
}

// CollectInterleaved is as in interleaved. It ends where a run has no more rows in its chunk, since
// names and values may be borrowed from a block that the run leaves then.
func (m *MergeIterator) CollectInterleaved(dst *row.Chunk, limit []byte, p *row.Projection, reader *RowReader) (n int) {
	if m.err != nil || m.backward || m.stretch > 0 || m.ahead == 0 && m.short < shortStretches {
		return 0
	}
	first := m.heap[0].run
	for m.newestReplaces(dst.Budget/aheadShare, limit, p, reader) {
		r := &m.runs[m.holders[0]]
		key, cells := r.chunk.Row(r.next)
		dst.AddKey(key, nil)
		dst.Cells = append(dst.Cells, cells...)
		dst.EndRow(len(dst.Cells))
		if n++; m.atEnd() {
			m.pause /= 2
			if n >= max(shortStretch, r.chunk.Len()) && m.holders[0] == first {
				m.short = 0 // it may be a long stretch
			}
			return n
		}
		if !m.stepAll() {
			break
		}
	}
	if n > 0 {
		key, _ := dst.Row(dst.Len() - 1)
		m.key, m.moved = append(m.key[:0], key...), true
		if m.err == nil {
			m.gather()
		}
	}
	return n
}

// newestReplaces finds the runs that hold the row at the top of the heap. It reports whether the
// newest has it in its chunk, and no other run has anything of the row that matters.
func (m *MergeIterator) newestReplaces(budget int, limit []byte, p *row.Projection, reader *RowReader) bool {
	if !m.findHolders() {
		return false
	}
	r := &m.runs[m.holders[0]]
	if r.chunk == nil && !m.readAhead(r, budget, limit, p, reader) {
		return false
	}
	return len(m.holders) == 1 || r.replaces
}

// atEnd reports whether a run that holds the current row has no more rows in its chunk.
func (m *MergeIterator) atEnd() bool {
	for _, i := range m.holders {
		if r := &m.runs[i]; r.chunk != nil && r.next+1 == r.chunk.Len() {
			return true
		}
	}
	return false
}

// readAhead reads the current row of a run and those after it into a chunk. It returns false if the
// reader does not show them or has to look at each of their cells, or if older runs have something of the
// current row that matters. REQUIRES: the row is below limit; it is if it follows a row of a chunk that has
// more, since those are.
func (m *MergeIterator) readAhead(r *run, budget int, limit []byte, p *row.Projection, reader *RowReader) bool {
	whole, ok := r.it.(WholeRows)
	if !ok || m.short < shortStretches {
		return false
	}
	e := &m.extent
	if newer, ok := whole.Extent(row.Ask{Rows: true, Limit: limit}, e); !ok || newer != nil || !reader.shows(e) {
		return false
	}
	replaces := e.Deleted && e.DeleteSeq <= reader.judge.seq
	if len(m.holders) > 1 && !replaces {
		m.rest()
		return false
	}
	c := m.takeChunk()
	c.Budget = budget
	if e.Rows > 0 {
		r.it.(ManyRows).CollectRows(c, e.Rows, p)
	} else {
		c.AddKey(r.key, nil)
		if p != nil {
			whole.Collect(&c.Collector, p)
		}
		c.EndRow(len(c.Cells))
	}
	r.chunk, r.next, r.replaces = c, 0, replaces
	r.key, _ = c.Row(0)
	m.ahead++
	return true
}

// unread makes a run that was read ahead stand on its current row again.
func (m *MergeIterator) unread(r *run) bool {
	last := r.next+1 == r.chunk.Len()
	m.drop(r)
	if last {
		r.key = r.it.RowKey()
		return true
	}
	m.rest()
	return m.settle(r, r.it.SeekRow(r.key))
}

// rest keeps runs from being read ahead for a while.
func (m *MergeIterator) rest() {
	m.pause = min(2*max(m.pause, shortStretches), maxPause)
	m.short = -m.pause
}

// unreadRow does so with all runs that hold the current row.
func (m *MergeIterator) unreadRow() bool {
	if m.err != nil {
		return false
	}
	for _, i := range m.holders {
		if r := &m.runs[i]; r.chunk != nil && !m.unread(r) {
			return false
		}
	}
	return true
}

// takeChunk returns an empty chunk.
func (m *MergeIterator) takeChunk() *row.Chunk {
	last := len(m.chunks) - 1
	if last < 0 {
		return new(row.Chunk)
	}
	c := m.chunks[last]
	m.chunks = m.chunks[:last]
	c.Reset()
	return c
}

// drop takes the chunk from a run. What the chunk points to may go then.
func (m *MergeIterator) drop(r *run) {
	clear(r.chunk.Cells)
	if r.chunk.Size() <= keptChunk {
		m.chunks = append(m.chunks, r.chunk)
	}
	r.chunk = nil
	m.ahead--
}
