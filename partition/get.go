package partition

// Point reads: Getter.

import (
	"bytes"

	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
)

// Getter is a point read under way. It keeps its working memory for the next read.
//
//	g := tree.NewGetter()
//	defer g.Close()
//	view := ... // after the pin: everything visible is now pinned
//	exists, err := g.Get(key, view, selection, cells, maxColumns)
type Getter struct {
	pinned
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

	files    []*tablefiles.File // of filesOf
	started  []started
	older    int // above 0: lately, gets went on to older files more often than started reads were in vain
	memories reused[memtable.Iterator]
	tables   reused[sstable.Iterator]
}

// started is a table file, by its place in Getter.files, whose block with the row is read while newer ones are looked at.
type started struct {
	file   int
	it     *sstable.Iterator
	needed bool
}

// pinned is a reader's pin of a tree.
type pinned struct {
	tree  *Tree
	state *state
	// stripe is that of all its pins, 0 before the first one. Pools mostly return a reader on the
	// processor that put it there, so mostly one processor uses one stripe.
	stripe uint32
}

// pin pins the tree as it is now. unpin ends the pin. If the tree was replaced, pin pins nothing and
// returns false: then the tree may not hold what was written last.
func (p *pinned) pin(t *Tree) bool {
	if p.stripe == 0 {
		p.stripe = t.env.stripes.Add(1)
	}
	p.tree, p.state = t, t.pinStripe(p.stripe)
	if t.successors.Load() != nil {
		p.unpin()
		return false
	}
	return true
}

// Tree is what is pinned.
func (p *pinned) Tree() *Tree { return p.tree }

// measure counts a read of a row with these cells.
func (p *pinned) measure(key []byte, cells []row.Cell) {
	if p.tree.meter != nil {
		p.tree.meter.Read(p.stripe, key, 1, len(key)+sizeOf(cells))
	}
}

// sizeOf is how many bytes cells have for the meter: values count as they were put.
func sizeOf(cells []row.Cell) (size int) {
	for i := range cells {
		c := &cells[i]
		size += len(c.Column) + len(c.Value)
		if c.Packed {
			size += valuefile.PackedAway(c.Value)
		} else if c.Separate {
			if ref, err := row.ParseReference(c.Value); err == nil { // else reading the value reports it
				size += int(ref.Raw)
			}
		}
	}
	return size
}

func (p *pinned) unpin() {
	p.state.unpin(p.stripe)
	p.tree, p.state = nil, nil
}

// reused keeps values for the next use. The first used ones are in use.
type reused[T any] struct {
	values []*T
	used   int
}

// take returns a value that is not in use: a zero one, or as its last user left it.
func (r *reused[T]) take() *T {
	if r.used == len(r.values) {
		r.values = append(r.values, new(T))
	}
	r.used++
	return r.values[r.used-1]
}

// NewGetter pins the tree as it is now and returns a point read, which the caller closes; nil if the
// tree was replaced.
func (t *Tree) NewGetter() *Getter {
	g, ok := t.env.getters.Get().(*Getter)
	if !ok {
		g = new(Getter)
	}
	if !g.pin(t) {
		return nil
	}
	return g
}

// Pin makes a zero or unpinned Getter, which the caller owns, a point read of the tree as it is
// now. The caller ends it with Unpin. It pins nothing and returns false if the tree was replaced.
func (g *Getter) Pin(t *Tree) bool { return g.pin(t) }

// Above adds a memtable as the newest run of the read: the writes of a transaction. nil adds
// nothing.
func (g *Getter) Above(m *memtable.Memtable) { g.above = m }

// Get copies the visible and selected cells of one row to dst, which is empty, and reports
// whether the row exists. It stops after maxColumns columns; 0 means all.
func (g *Getter) Get(key []byte, view mvcc.View, sel *mvcc.Selection, dst *row.Collector, maxColumns int) (exists bool, err error) {
	hash := sstable.Hash(key)
	g.cut = false
	g.findMemories(key)
	rows := g.rowCache(&view, hash)
	if rows != nil && g.recall(rows, key, hash, sel, dst) {
		if maxColumns > 0 {
			dst.Cells = mvcc.FirstColumns(dst.Cells, maxColumns)
		}
		g.measure(key, dst.Cells)
		return true, nil
	}
	if err := g.position(key, hash, view, sel); err != nil {
		return false, err
	}
	exists = g.reader.Collect(dst, maxColumns)
	if err := g.reader.Error(); err != nil {
		return false, err
	}
	g.measure(key, dst.Cells)
	g.cut = g.reader.Cut()
	if rows != nil && !g.cut && maxColumns == 0 && sel.All() {
		g.keep(rows, key, hash, dst.Cells)
	}
	return exists, nil
}

// Cut reports whether Get stopped at one of the bounds of its selection.
func (g *Getter) Cut() bool { return g.cut }

// Unchanged reports that no mutation of the row with a sequence number above seq was applied. It
// returns false also if such a mutation may have left the memtables or never was in one, or the tree was
// replaced. REQUIRES: no mutation of the row is being applied.
func (t *Tree) Unchanged(key []byte, seq uint64) bool {
	g := t.NewGetter()
	if g == nil {
		return false
	}
	defer g.Close()
	g.findMemories(key)
	switch {
	case g.state.version.newest > seq:
		return false
	case len(g.found) > 0:
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
	home := &g.tree.env.getters
	g.Unpin()
	home.Put(g)
}

// Unpin releases the tree and what the read pinned.
func (g *Getter) Unpin() {
	for _, it := range g.tables.values[:g.tables.used] {
		it.Close() // always nil: reading reports the errors
	}
	for _, it := range g.memories.values[:g.memories.used] {
		it.Close()
	}
	g.tables.used, g.memories.used = 0, 0
	if len(g.found) > 0 {
		clear(g.found)
		g.found = g.found[:0]
	}
	clear(g.files)
	g.files = g.files[:0]
	if len(g.started) > 0 {
		clear(g.started)
		g.started = g.started[:0]
	}
	if len(g.sources) > 0 {
		g.sources, g.known = g.sources[:0], false
		g.merge.Reset(nil)
	}
	g.above = nil
	g.unpin()
}

// findMemories finds the row in the memtables that hold it, newest first.
func (g *Getter) findMemories(key []byte) {
	if g.above != nil {
		g.findMemory(g.above, key)
	}
	for i := len(g.state.memories) - 1; i >= 0; i-- {
		if m := &g.state.memories[i].table; !m.Empty() {
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
		it := g.memories.take()
		it.InitAt(&g.found[i])
		if g.add(it, seq) {
			return nil
		}
	}
	v, lost := g.state.version, 0 // to level 0
	newer, cost := -1, 0          // the last run that held the row, and what the look into it cost
	files := g.filesOf(v.runs, key, hash)
	var done bool
	var err error
	for n, f := range files {
		if f == nil {
			continue
		}
		held := len(g.sources)
		var it *sstable.Iterator
		if it, done, err = g.collectFile(n, key, hash, seq); err != nil {
			break
		}
		if len(g.sources) > held {
			switch { // a compaction of the two runs would have saved a look
			case newer >= v.recent:
				g.tree.loseTo(files[newer], cost)
			case newer >= 0:
				lost += cost
			}
			newer, cost = n, lookCost(it)
		}
		if done {
			break
		}
		if n < v.recent && n+1 < len(v.runs) {
			lost += lostToFilter
		}
	}
	g.tree.lose(hash, lost)
	if len(g.started) > 0 || g.older < 0 {
		g.learn(len(g.sources) - len(g.found))
	}
	return err
}

// filesOf returns the file of each run that has the key in its range, nil if a run has none. It
// prefetches the filters of all of them together: each is likely to miss the processor's caches.
func (g *Getter) filesOf(runs [][]*tablefiles.File, key []byte, hash uint64) []*tablefiles.File {
	for _, files := range runs {
		var f *tablefiles.File
		if i := fileOf(files, key); i < len(files) && bytes.Compare(files[i].Meta.Smallest, key) <= 0 {
			f = files[i]
			if r := f.Opened(); r != nil && len(runs) > 1 {
				r.Expect(hash)
			}
		}
		g.files = append(g.files, f)
	}
	return g.files
}

// collectFile adds the row from table file n of Getter.files, which has the key in its range, if the file holds it. done
// says that older runs do not matter. The iterator is the one that looked, nil if none did.
func (g *Getter) collectFile(n int, key []byte, hash, seq uint64) (it *sstable.Iterator, done bool, err error) {
	if it = g.startedAt(n); it == nil {
		r, err := g.files[n].Reader()
		if err != nil || !r.MayContain(hash) {
			return nil, false, err
		}
		it = g.tables.take()
		it.Init(r, sstable.IterOptions{})
		if len(g.started) == 0 && g.older >= 0 && r.Far(key) {
			g.startOlder(n, r, key, hash)
		}
	}
	if !it.SeekRowExact(key) {
		return it, false, it.Error()
	}
	done = g.add(it, seq)
	return it, done, it.Error()
}

// startedAt returns the iterator that reads a block of file n already, nil if there is none.
func (g *Getter) startedAt(n int) *sstable.Iterator {
	for i := range g.started {
		if s := &g.started[i]; s.file == n {
			s.needed = true
			return s.it
		}
	}
	return nil
}

const (
	// mostStarted bounds the blocks that a get begins to read before it knows that it needs them.
	mostStarted = 4
	// mostOlder bounds Getter.older, so that a change of what is read is soon noticed.
	mostOlder = 32
)

// startOlder begins to read the blocks that the files below file n may hold of the row, which r reads. They would be read
// when that was read from the device, one after the other. It ends at a file whose rows hide what is older.
func (g *Getter) startOlder(n int, r *sstable.Reader, key []byte, hash uint64) {
	for n++; n < len(g.files) && !r.HidesOlder() && len(g.started) < mostStarted; n++ {
		f := g.files[n]
		if f == nil || f.Opened() == nil || !f.Opened().MayContain(hash) {
			continue
		}
		r = f.Opened()
		it := g.tables.take()
		it.Init(r, sstable.IterOptions{})
		if it.StartRead(key) {
			g.started = append(g.started, started{file: n, it: it})
		} else {
			it.Close() // always nil
			g.tables.used--
		}
	}
}

// learn notes whether older files were needed, and which started reads were not.
func (g *Getter) learn(tables int) {
	if tables > 1 {
		g.older = min(g.older+1, mostOlder)
	}
	for i := range g.started {
		if !g.started[i].needed {
			g.older = max(g.older-1, -mostOlder)
		}
	}
}

// source is a run that may hold the row.
type source interface {
	mvcc.Iterator
	mvcc.WholeRows
}

// add adds a source that stands on the row. It reports whether the source deletes the row at a
// sequence number up to seq.
func (g *Getter) add(it source, seq uint64) bool {
	g.sources = append(g.sources, it)
	e := &g.extent
	if _, g.known = it.Extent(row.Ask{}, e); g.known {
		return e.Deleted && e.DeleteSeq <= seq
	}
	if !it.FirstCell() {
		return false
	}
	c := it.Cell()
	return c.Kind == row.KindDeleteRow && c.Seq <= seq
}
