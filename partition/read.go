package partition

import (
	"bytes"
	"sort"
	"sync"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// getter is the working memory of one point read.
type getter struct {
	sources []mvcc.Iterator
	tables  []*sstable.Iterator // opened by this read, to be closed
	spare   []*sstable.Iterator // closed ones, to be used again
	merge   mvcc.RowMerge
	reader  mvcc.RowReader
}

// getters keeps working memory between reads. It is a cache of scratch space
// only: which getter a read gets makes no difference.
var getters = sync.Pool{New: func() any { return new(getter) }}

// Get reads one row: it asks the runs that may hold it, newest first, and
// stops at a run that deletes the row, since no older one matters then. view is
// called once the runs are pinned. use reads the row through the reader, which
// is positioned, and finds an absent row as one that does not exist; it is not
// called if the read fails before.
func (t *Tree) Get(key []byte, view func() mvcc.View, sel mvcc.Selection, use func(*mvcc.RowReader)) (err error) {
	s := t.pin()
	defer s.unref()
	g := getters.Get().(*getter)
	defer func() {
		if e := g.release(); err == nil {
			err = e
		}
	}()
	v := view()
	if err := g.collect(s, key, v.Seq); err != nil {
		return err
	}
	g.merge.Reset(g.sources)
	g.reader.Reset(&g.merge, v, sel)
	g.reader.StartRow()
	use(&g.reader)
	return g.reader.Error()
}

// release closes what the read opened and gives the working memory back.
func (g *getter) release() (err error) {
	for _, it := range g.tables {
		if e := it.Close(); err == nil {
			err = e
		}
		g.spare = append(g.spare, it)
	}
	clear(g.sources)
	clear(g.tables)
	g.sources, g.tables = g.sources[:0], g.tables[:0]
	g.merge.Reset(nil)
	getters.Put(g)
	return err
}

// collect positions a source on the row in every run that holds it, from the
// newest down to the first that deletes it at a sequence number up to seq.
func (g *getter) collect(s *state, key []byte, seq uint64) error {
	for i := len(s.memories) - 1; i >= 0; i-- {
		m := s.memories[i].table
		if m.Empty() {
			continue
		}
		it := new(memtable.Iterator)
		if it.Init(m); it.SeekRowExact(key) && g.add(it, seq) {
			return nil
		}
	}
	hash := sstable.Hash(key)
	for level, files := range s.version.levels {
		if level == 0 {
			for i := len(files) - 1; i >= 0; i-- {
				if done, err := g.collectFile(files[i], key, hash, seq); done || err != nil {
					return err
				}
			}
			continue
		}
		i := sort.Search(len(files), func(i int) bool {
			return bytes.Compare(files[i].meta.Largest, key) >= 0
		})
		if i < len(files) {
			if done, err := g.collectFile(files[i], key, hash, seq); done || err != nil {
				return err
			}
		}
	}
	return nil
}

// collectFile adds the row as a table file holds it, if it does; done says that
// older runs do not matter.
func (g *getter) collectFile(f *tableFile, key []byte, hash, seq uint64) (done bool, err error) {
	if bytes.Compare(key, f.meta.Smallest) < 0 || bytes.Compare(key, f.meta.Largest) > 0 {
		return false, nil
	}
	r, err := f.reader()
	if err != nil || !r.MayContain(hash) {
		return false, err
	}
	it := g.tableIterator(r)
	if !it.SeekRowExact(key) {
		return false, it.Error()
	}
	done = g.add(it, seq)
	return done, it.Error()
}

// tableIterator returns an iterator over a table file, one that was used before
// if there is one.
func (g *getter) tableIterator(r *sstable.Reader) *sstable.Iterator {
	var it *sstable.Iterator
	if n := len(g.spare); n > 0 {
		it, g.spare = g.spare[n-1], g.spare[:n-1]
	} else {
		it = new(sstable.Iterator)
	}
	it.Init(r, sstable.IterOptions{})
	g.tables = append(g.tables, it)
	return it
}

// add takes a source that stands on the row. It reports whether the source
// deletes the row at a sequence number up to seq.
func (g *getter) add(it mvcc.Iterator, seq uint64) bool {
	g.sources = append(g.sources, it)
	if !it.FirstCell() {
		return false
	}
	c := it.Cell()
	return c.Kind == row.KindDeleteRow && c.Seq <= seq
}

// Iterator walks the rows of a tree, all runs merged, as they were when it was
// made: it has the shape of mvcc.Iterator. Rows outside the tree's range, which
// files may hold, are passed over.
type Iterator struct {
	mvcc.Iterator // the merge
	tree          *Tree
	state         *state
}

// NewIterator pins the tree and returns an iterator over it, which is to be
// closed.
func (t *Tree) NewIterator() *Iterator {
	s := t.pin()
	return &Iterator{Iterator: mvcc.NewMergeIterator(s.runs(sstable.IterOptions{})), tree: t, state: s}
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
func (it *Iterator) First() bool { return it.clip(it.Iterator.SeekRow(it.tree.start)) }

// Last positions on the last row of the tree.
func (it *Iterator) Last() bool {
	if it.tree.end == nil {
		return it.clip(it.Iterator.Last())
	}
	return it.clip(it.Iterator.SeekRowBefore(it.tree.end))
}

// SeekRow positions on the first row of the tree at or above key.
func (it *Iterator) SeekRow(key []byte) bool {
	if bytes.Compare(key, it.tree.start) < 0 {
		key = it.tree.start
	}
	return it.clip(it.Iterator.SeekRow(key))
}

// SeekRowBefore positions on the last row of the tree below key.
func (it *Iterator) SeekRowBefore(key []byte) bool {
	if it.tree.end != nil && bytes.Compare(key, it.tree.end) > 0 {
		key = it.tree.end
	}
	return it.clip(it.Iterator.SeekRowBefore(key))
}

// NextRow moves to the next row of the tree.
func (it *Iterator) NextRow() bool { return it.clip(it.Iterator.NextRow()) }

// PrevRow moves to the previous row of the tree.
func (it *Iterator) PrevRow() bool { return it.clip(it.Iterator.PrevRow()) }

// Close releases the tree.
func (it *Iterator) Close() error {
	if it.state == nil {
		return nil
	}
	err := it.Iterator.Close()
	it.state.unref()
	it.state = nil
	return err
}
