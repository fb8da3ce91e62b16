package partition

// Point reads.

import (
	"bytes"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// Getter is a point read under way, with its working memory, which it keeps
// for reads to come.
//
//	g := tree.NewGetter()
//	defer g.Close()
//	view := ... // now that all that is visible is pinned
//	reader, err := g.Seek(key, view, selection)
//	... reader.Exists(), reader.NextCell() ...
type Getter struct {
	home   *getters
	tree   *Tree
	state  *state
	stripe uint32

	above   *memtable.Memtable // the newest run, not of the tree; nil if there is none
	sources []mvcc.Iterator
	merge   mvcc.RowMerge
	reader  mvcc.RowReader
	extent  row.Extent // of the last source,
	known   bool       // if it has one

	// Iterators, of which the first so many are in use.
	memories     []*memtable.Iterator
	tables       []*sstable.Iterator
	usedMemories int
	usedTables   int
}

// getters keeps getters between reads.
type getters struct {
	pool    sync.Pool
	stripes atomic.Uint32
}

// take returns a getter. It goes back to the processor that it was on, mostly,
// so one stripe of pins is used by one processor, mostly.
func (p *getters) take() *Getter {
	if g, ok := p.pool.Get().(*Getter); ok {
		return g
	}
	return &Getter{home: p, stripe: p.nextStripe()}
}

func (p *getters) nextStripe() uint32 { return p.stripes.Add(1) % pinStripes }

// NewGetter pins the tree as it is now and returns a point read, which is to
// be closed.
func (t *Tree) NewGetter() *Getter {
	g := t.env.getters.take()
	g.tree, g.state = t, t.pinStripe(g.stripe)
	return g
}

// Above lets the read take a memtable for the newest run: what a transaction has
// written. nil is none.
func (g *Getter) Above(m *memtable.Memtable) { g.above = m }

// Seek looks for one row: it asks the runs that may hold it, newest first, and
// stops at a run that deletes the row, since no older one matters then. The
// reader is positioned on the row, valid until Close, and finds an absent row
// as one that does not exist.
func (g *Getter) Seek(key []byte, view mvcc.View, sel mvcc.Selection) (*mvcc.RowReader, error) {
	if err := g.collect(key, view.Seq); err != nil {
		return nil, err
	}
	g.merge.Reset(g.sources)
	if g.known {
		g.merge.Describe(&g.extent)
	}
	g.reader.Reset(&g.merge, view, sel)
	return &g.reader, nil
}

// Close releases the tree and what the read pinned.
func (g *Getter) Close() {
	for _, it := range g.tables[:g.usedTables] {
		it.Close() // returns nil; errors are those of movements
	}
	for _, it := range g.memories[:g.usedMemories] {
		it.Close()
	}
	g.usedTables, g.usedMemories = 0, 0
	g.sources, g.known = g.sources[:0], false
	g.merge.Reset(nil)
	g.state.unpin(g.stripe)
	g.tree, g.state, g.above = nil, nil, nil
	g.home.pool.Put(g)
}

// collect positions a source on the row in every run that holds it, from the
// newest down to the first that deletes it at a sequence number up to seq.
func (g *Getter) collect(key []byte, seq uint64) error {
	s := g.state
	if g.above != nil && g.collectMemory(g.above, key, seq) {
		return nil
	}
	for i := len(s.memories) - 1; i >= 0; i-- {
		if g.collectMemory(s.memories[i].table, key, seq) {
			return nil
		}
	}
	hash := sstable.Hash(key)
	lost := 0
	for n, files := range s.version.runs {
		i := sort.Search(len(files), func(i int) bool {
			return bytes.Compare(files[i].meta.Largest, key) >= 0
		})
		if i < len(files) {
			found := len(g.sources)
			if done, err := g.collectFile(files[i], key, hash, seq); done || err != nil {
				g.tree.lose(g.stripe, lost)
				return err
			}
			// It would not have been asked, had it been merged with what lies below.
			if n < s.version.recent && n+1 < len(s.version.runs) {
				lost += lostToFilter
				if len(g.sources) > found {
					lost += lostToRow
				}
			}
		}
	}
	g.tree.lose(g.stripe, lost)
	return nil
}

// collectMemory adds the row as a memtable holds it, if it does; done says that
// older runs do not matter.
func (g *Getter) collectMemory(m *memtable.Memtable, key []byte, seq uint64) (done bool) {
	if m.Empty() {
		return false
	}
	it := g.memoryIterator(m)
	return it.SeekRowExact(key) && g.add(it, seq)
}

// collectFile adds the row as a table file holds it, if it does; done says that
// older runs do not matter.
func (g *Getter) collectFile(f *tableFile, key []byte, hash, seq uint64) (done bool, err error) {
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

func (g *Getter) memoryIterator(m *memtable.Memtable) *memtable.Iterator {
	if g.usedMemories == len(g.memories) {
		g.memories = append(g.memories, new(memtable.Iterator))
	}
	it := g.memories[g.usedMemories]
	g.usedMemories++
	it.Init(m)
	return it
}

func (g *Getter) tableIterator(r *sstable.Reader) *sstable.Iterator {
	if g.usedTables == len(g.tables) {
		g.tables = append(g.tables, new(sstable.Iterator))
	}
	it := g.tables[g.usedTables]
	g.usedTables++
	it.Init(r, sstable.IterOptions{})
	return it
}

// add takes a source that stands on the row. It reports whether the source
// deletes the row at a sequence number up to seq.
func (g *Getter) add(it mvcc.Iterator, seq uint64) bool {
	g.sources = append(g.sources, it)
	e := &g.extent
	if g.known = it.Extent(e); g.known {
		return e.Deleted && e.DeleteSeq <= seq
	}
	if !it.FirstCell() {
		return false
	}
	c := it.Cell()
	return c.Kind == row.KindDeleteRow && c.Seq <= seq
}
