package partition

// Scans: iterators over a tree.

import (
	"bytes"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// Iterator walks the rows of a tree as they were when it was made, with all runs merged. It has
// the shape of mvcc.Iterator. It skips rows outside the tree's range, which files may hold.
type Iterator struct {
	mvcc.MergeIterator
	pinned
	seeks int // of the merged runs
	steps int // from row to row

	// Working memory, kept for the next iterator.
	runs     []mvcc.Iterator
	levels   reused[levelIterator]
	memories reused[memtable.Iterator]
}

// NewIterator pins the tree and returns an iterator over it, nil if the tree was replaced. The caller
// closes it; after that, another caller may get the same iterator.
func (t *Tree) NewIterator() *Iterator {
	it, ok := t.env.iterators.Get().(*Iterator)
	if !ok {
		it = new(Iterator)
	}
	if !it.pin(t) {
		return nil
	}
	it.collectRuns()
	it.Reset(it.runs, it.state.version.prefix)
	return it
}

// Measured is how many bytes rows have for Count, of which key is one, with these cells.
func (it *Iterator) Measured(key []byte, rows int, cells []row.Cell) int {
	return rows*len(key) + sizeOf(cells)
}

// Count counts rows that were read as load, of which key is one, and rows that do not exist and were passed.
func (it *Iterator) Count(key []byte, rows, bytes, passed int) {
	if m := it.tree.meter; m != nil {
		m.Read(it.stripe, key, rows, bytes)
		m.Pass(passed)
	}
}

// Bounds are those of the tree.
func (it *Iterator) Bounds() (start, end []byte) { return it.tree.Bounds() }

// Above adds a memtable that is newer than all runs of the tree: the writes of a transaction.
// nil adds nothing. REQUIRES: the iterator was not positioned yet.
func (it *Iterator) Above(m *memtable.Memtable) {
	if m == nil {
		return
	}
	runs := it.runs
	it.runs = nil
	it.addMemory(m)
	it.runs = append(it.runs, runs...)
	it.Reset(it.runs, it.state.version.prefix)
}

// Until says that the caller will not ask for rows at or above end, so there is no read-ahead
// beyond it. REQUIRES: the iterator was not positioned yet; end is not changed until the
// iterator is closed.
func (it *Iterator) Until(end []byte) {
	if it.tree.end != nil && bytes.Compare(it.tree.end, end) < 0 {
		return
	}
	for _, level := range it.levels.values[:it.levels.used] {
		level.opts.End = end
	}
}

// collectRuns makes an iterator over each run, newest first. A memtable without a row counts if a writer has a place in
// it: what it inserts may be visible in a view that is made later, as what was ordered behind it is.
func (it *Iterator) collectRuns() {
	s := it.state
	for i := len(s.memories) - 1; i >= 0; i-- {
		if m := s.memories[i]; m.bytes() > 0 {
			it.addMemory(&m.table)
		}
	}
	for _, files := range s.version.runs {
		run := it.levels.take()
		run.init(files, sstable.IterOptions{End: it.tree.end, Believe: true})
		it.runs = append(it.runs, run)
	}
}

func (it *Iterator) addMemory(m *memtable.Memtable) {
	run := it.memories.take()
	run.Init(m)
	it.runs = append(it.runs, run)
}

// clip reports whether the iterator stands on a row of the tree.
func (it *Iterator) clip(ok bool) bool { return ok && it.tree.Contains(it.RowKey()) }

// First positions on the first row of the tree.
func (it *Iterator) First() bool { return it.clip(it.MergeIterator.SeekRow(it.tree.start)) }

// Last positions on the last row of the tree.
func (it *Iterator) Last() bool {
	if it.tree.end == nil {
		return it.clip(it.MergeIterator.Last())
	}
	return it.clip(it.MergeIterator.SeekRowBefore(it.tree.end))
}

// SeekRow positions on the first row of the tree at or above key.
func (it *Iterator) SeekRow(key []byte) bool {
	if bytes.Compare(key, it.tree.start) < 0 {
		key = it.tree.start
	}
	it.seeks++
	return it.clip(it.MergeIterator.SeekRow(key))
}

// SeekRowBefore positions on the last row of the tree below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	if it.tree.end != nil && bytes.Compare(key, it.tree.end) > 0 {
		key = it.tree.end
	}
	it.seeks++
	return it.clip(it.MergeIterator.SeekRowBefore(key))
}

// NextRow moves to the next row of the tree.
func (it *Iterator) NextRow() bool {
	it.steps++
	return it.MergeIterator.NextRow() && (it.tree.end == nil || bytes.Compare(it.RowKey(), it.tree.end) < 0)
}

// Extent is as in mvcc.MergeIterator, without rows outside of the tree's range.
func (it *Iterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	if end := it.tree.end; end != nil && (ask.Limit == nil || bytes.Compare(end, ask.Limit) < 0) {
		ask.Limit = end
	}
	return it.MergeIterator.Extent(ask, e)
}

// CollectInterleaved is as in mvcc.MergeIterator, without rows outside of the tree's range.
func (it *Iterator) CollectInterleaved(dst *row.Chunk, limit []byte, p *row.Projection, r *mvcc.RowReader) int {
	if end := it.tree.end; end != nil && (limit == nil || bytes.Compare(end, limit) < 0) {
		limit = end
	}
	n := it.MergeIterator.CollectInterleaved(dst, limit, p, r)
	it.steps += n
	return n
}

// PrevRow moves to the previous row of the tree.
func (it *Iterator) PrevRow() bool {
	it.steps++
	return it.MergeIterator.PrevRow() && bytes.Compare(it.RowKey(), it.tree.start) >= 0
}

// lose notes what seeks lost to each run that a compaction would have merged with the deepest, and steps to
// the newest of them. Below level 0 they lost it to the file that they read last.
func (it *Iterator) lose() {
	v, steps := it.state.version, it.steps*lostToStep
	deepest := max(len(v.runs)-1, 0)
	if extra := min(v.recent, deepest); extra > 0 {
		it.tree.lose(0, extra*it.seeks*lostToSeek+steps)
		steps = 0
	}
	for _, run := range it.levels.values[min(v.recent, deepest):deepest] {
		if run.last != nil {
			it.tree.loseTo(run.last, it.seeks*lostToSeek+steps)
			steps = 0
		}
	}
	it.seeks, it.steps = 0, 0
}

// Close releases the tree and gives the working memory back.
func (it *Iterator) Close() error {
	if it.state == nil {
		return nil
	}
	it.lose()
	err := it.MergeIterator.Close()
	it.runs, it.levels.used, it.memories.used = it.runs[:0], 0, 0
	home := &it.tree.env.iterators
	it.unpin()
	home.Put(it)
	return err
}
