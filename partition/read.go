package partition

// Scans.

import (
	"bytes"

	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/sstable"
)

// Iterator walks the rows of a tree, all runs merged, as they were when it was
// made: it has the shape of mvcc.Iterator. Rows outside the tree's range, which
// files may hold, are passed over.
type Iterator struct {
	*mvcc.MergeIterator
	tree  *Tree
	state *state
}

// NewIterator pins the tree and returns an iterator over it, which is to be
// closed.
func (t *Tree) NewIterator() *Iterator {
	s := t.pin()
	return &Iterator{MergeIterator: mvcc.NewMergeIterator(s.runs(sstable.IterOptions{})), tree: t, state: s}
}

// runs returns an iterator over each run, newest first.
func (s *state) runs(opts sstable.IterOptions) []mvcc.Iterator {
	var runs []mvcc.Iterator
	for i := len(s.memories) - 1; i >= 0; i-- {
		if m := s.memories[i].table; !m.Empty() {
			runs = append(runs, m.NewIterator())
		}
	}
	for level, files := range s.version.levels {
		if level == 0 {
			for i := len(files) - 1; i >= 0; i-- {
				runs = append(runs, newLevelIterator(files[i:i+1], opts))
			}
		} else if len(files) > 0 {
			runs = append(runs, newLevelIterator(files, opts))
		}
	}
	return runs
}

// clip reports whether the merge stands on a row of the tree.
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
	return it.clip(it.MergeIterator.SeekRow(key))
}

// SeekRowBefore positions on the last row of the tree below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	if it.tree.end != nil && bytes.Compare(key, it.tree.end) > 0 {
		key = it.tree.end
	}
	return it.clip(it.MergeIterator.SeekRowBefore(key))
}

// NextRow moves to the next row of the tree.
func (it *Iterator) NextRow() bool {
	return it.MergeIterator.NextRow() && (it.tree.end == nil || bytes.Compare(it.RowKey(), it.tree.end) < 0)
}

// PrevRow moves to the previous row of the tree.
func (it *Iterator) PrevRow() bool {
	return it.MergeIterator.PrevRow() && bytes.Compare(it.RowKey(), it.tree.start) >= 0
}

// Close releases the tree.
func (it *Iterator) Close() error {
	if it.state == nil {
		return nil
	}
	err := it.MergeIterator.Close()
	it.state.unref()
	it.state = nil
	return err
}
