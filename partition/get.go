package partition

// Point reads: Getter.

import (
	"bytes"
	"sort"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// Getter is a point read under way. It keeps its working memory for the next read.
//
//	g := tree.NewGetter()
//	defer g.Close()
//	view := ... // after the pin: everything visible is now pinned
//	exists, err := g.Get(key, view, selection, cells, maxColumns)
//
// or, to look at one cell after the other,
//
//	reader, err := g.Seek(key, view, selection)
//	... reader.Exists(), reader.NextCell() ...
type Getter struct {
	home    *getters // the pool it returns to; nil if the caller owns it
	tree    *Tree
	state   *state
	stripe  uint32 // of its pins, chosen once
	striped bool   // whether stripe is chosen

	above   *memtable.Memtable // the newest run, not part of the tree; nil if there is none
	sources []mvcc.Iterator
	merge   mvcc.RowMerge
	reader  mvcc.RowReader
	extent  row.Extent // of the last source
	known   bool       // whether extent is known
	cut     bool       // see Cut
	moment  rowcache.Moment
	wanted  rowcache.Wanted

	found []memtable.Place // the row's places in the memtables that hold it, newest first

	// Iterators, of which the first usedMemories and usedTables are in use.
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

// take returns a getter. The pool mostly returns a getter on the processor that put it there, so
// mostly one processor uses one stripe of pins.
func (p *getters) take() *Getter {
	if g, ok := p.pool.Get().(*Getter); ok {
		return g
	}
	return &Getter{home: p}
}

func (p *getters) nextStripe() uint32 { return p.stripes.Add(1) % pinStripes }

// NewGetter pins the tree as it is now and returns a point read, which the caller closes.
func (t *Tree) NewGetter() *Getter {
	g := t.env.getters.take()
	g.Pin(t)
	return g
}

// Pin makes a zero or unpinned Getter, which the caller owns, a point read of the tree as it is
// now. The caller ends it with Unpin.
func (g *Getter) Pin(t *Tree) {
	if !g.striped || t.env.Stepped { // a pool returns getters in an unpredictable order
		g.stripe, g.striped = t.env.getters.nextStripe(), true
	}
	g.tree, g.state = t, t.pinStripe(g.stripe)
}

// Above adds a memtable as the newest run of the read: the writes of a transaction. nil adds
// nothing.
func (g *Getter) Above(m *memtable.Memtable) { g.above = m }

// Get copies the visible and selected cells of one row to dst, which is empty, and reports
// whether the row exists. It stops after maxColumns columns; 0 means all.
func (g *Getter) Get(key []byte, view mvcc.View, sel *mvcc.Selection, dst *row.Collector, maxColumns int) (exists bool, err error) {
	hash := sstable.Hash(key)
	g.cut = false
	g.findMemories(key)
	rows := g.rowCache(&view)
	if rows != nil && g.recall(rows, key, hash, sel, dst) {
		if maxColumns > 0 {
			dst.Cells = mvcc.FirstColumns(dst.Cells, maxColumns)
		}
		return true, nil
	}
	if err := g.position(key, hash, view, sel); err != nil {
		return false, err
	}
	exists = g.reader.Collect(dst, maxColumns)
	if err := g.reader.Error(); err != nil {
		return false, err
	}
	g.cut = g.reader.Cut()
	if rows != nil && g.reader.PutTogether() && !g.cut && maxColumns == 0 && sel.All() {
		g.keep(rows, key, hash, dst.Cells)
	}
	return exists, nil
}

// Cut reports whether Get stopped at one of the bounds of its selection.
func (g *Getter) Cut() bool { return g.cut }

// Unchanged reports that no mutation of the row with a sequence number above seq was applied. It
// returns false also if such a mutation may have left the memtables. REQUIRES: no mutation of
// the row is being applied.
func (t *Tree) Unchanged(key []byte, seq uint64) bool {
	g := t.NewGetter()
	defer g.Close()
	g.findMemories(key)
	if len(g.found) > 0 {
		return g.found[0].NewestSeq() <= seq
	}
	return seq+1 >= g.state.memories[0].startSeq
}

// Seek positions a reader on one row. The reader is valid until Close; an absent row reads as
// one that does not exist.
func (g *Getter) Seek(key []byte, view mvcc.View, sel mvcc.Selection) (*mvcc.RowReader, error) {
	g.findMemories(key)
	if err := g.position(key, sstable.Hash(key), view, &sel); err != nil {
		return nil, err
	}
	return &g.reader, nil
}

// position positions the reader on the row. REQUIRES: findMemories was called.
func (g *Getter) position(key []byte, hash uint64, view mvcc.View, sel *mvcc.Selection) error {
	if err := g.collect(key, hash, view.Seq); err != nil {
		return err
	}
	g.merge.Reset(g.sources)
	if g.known {
		g.merge.Describe(&g.extent)
	}
	g.reader.Reset(&g.merge, view, *sel)
	return nil
}

// Close releases the tree and what the read pinned, and the getter.
func (g *Getter) Close() {
	g.Unpin()
	g.home.pool.Put(g)
}

// Unpin releases the tree and what the read pinned.
func (g *Getter) Unpin() {
	for _, it := range g.tables[:g.usedTables] {
		it.Close() // always nil: reading reports the errors
	}
	for _, it := range g.memories[:g.usedMemories] {
		it.Close()
	}
	g.usedTables, g.usedMemories = 0, 0
	if len(g.found) > 0 {
		clear(g.found)
		g.found = g.found[:0]
	}
	if len(g.sources) > 0 {
		g.sources, g.known = g.sources[:0], false
		g.merge.Reset(nil)
	}
	g.state.unpin(g.stripe)
	g.tree, g.state, g.above = nil, nil, nil
}

// findMemories finds the row in the memtables that hold it, newest first.
func (g *Getter) findMemories(key []byte) {
	if g.above != nil {
		g.findMemory(g.above, key)
	}
	for i := len(g.state.memories) - 1; i >= 0; i-- {
		if m := g.state.memories[i].table; !m.Empty() {
			g.findMemory(m, key)
		}
	}
}

func (g *Getter) findMemory(m *memtable.Memtable, key []byte) {
	if p, ok := m.Find(key); ok {
		g.found = append(g.found, p)
	}
}

// collect adds a source for every run that holds the row, from the newest down to the first that
// deletes it at a sequence number up to seq: older runs do not matter then.
func (g *Getter) collect(key []byte, hash, seq uint64) error {
	for i := range g.found {
		if g.add(g.memoryIterator(&g.found[i]), seq) {
			return nil
		}
	}
	s := g.state
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
			// A compaction with the runs below would have saved this lookup.
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

// collectFile adds the row from a table file, if the file holds it. done says that older runs do
// not matter.
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

func (g *Getter) memoryIterator(p *memtable.Place) *memtable.Iterator {
	if g.usedMemories == len(g.memories) {
		g.memories = append(g.memories, new(memtable.Iterator))
	}
	it := g.memories[g.usedMemories]
	g.usedMemories++
	it.InitAt(p)
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

// add adds a source that stands on the row. It reports whether the source deletes the row at a
// sequence number up to seq.
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
