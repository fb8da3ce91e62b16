package partition

// When a read may use a row of the row cache, and when it may keep one there: see package
// rowcache.
//
// What a read finds is decided by its view and by the runs of the pinned state. Of these runs
// only the mutable memtable still changes (and one that was just rotated out, until the writers
// with a place in it are done). Mutations of one row are applied in the order of their sequence
// numbers, and a view exists only once all that it shows is applied. So if the row's newest
// mutation in the memtables is the same as when the row was kept, there is none in between: a
// view that shows at least as much shows the same, apart from what has expired.
//
// A row is kept only if the view shows all mutations of it: the newest one in the memtables or,
// if the memtables do not have the row, all that was ever flushed; and all that was ever installed.

import (
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// rowCache returns the row cache, or nil if it is of no use to a read of the row at the view, and notes
// the moment of the read. REQUIRES: findMemories was called.
func (g *Getter) rowCache(view *mvcc.View, hash uint64) *rowcache.Cache {
	rows := g.tree.env.Rows
	if rows == nil || g.above != nil {
		return nil
	}
	g.moment = rowcache.Moment{
		Tree: g.tree.rows, State: g.state.id, Seq: view.Seq, MaxVersions: view.MaxVersions, Oldest: view.Oldest(),
	}
	if len(g.found) > 0 {
		g.moment.Newest = g.found[0].NewestSeq()
	}
	if !rows.Pays(hash, &g.moment) {
		return nil
	}
	return rows
}

// recall copies the selected cells of the row from the cache, if they are there.
func (g *Getter) recall(rows *rowcache.Cache, key []byte, hash uint64, sel *mvcc.Selection, dst *row.Collector) bool {
	w := &g.wanted
	w.NoCells, w.MinVersion, w.MaxVersion = sel.NoCells, sel.MinVersion, row.MaxVersion
	if sel.MaxVersionExcl > 0 {
		w.MaxVersion = sel.MaxVersionExcl - 1
	}
	w.Columns, w.Start, w.End, w.Versions = sel.Columns, sel.Start, sel.End, sel.MaxVersions
	return rows.Get(hash, key, &g.moment, w, dst)
}

// keep offers a row that was read whole to the cache, unless a memtable has it as a whole, where it is found as fast.
func (g *Getter) keep(rows *rowcache.Cache, key []byte, hash uint64, cells []row.Cell) {
	m, merged := &g.moment, g.reader.PutTogether()
	if !merged && len(g.sources) <= len(g.found) {
		return
	}
	complete := m.Seq >= g.state.memories[0].startSeq-1
	if len(g.found) > 0 {
		complete = m.Newest <= m.Seq
	}
	complete = complete && m.Seq >= g.state.version.newest
	// A read at MaxSequence keeps nothing: a later view may show less than it did.
	if complete && m.Seq < row.MaxSequence && len(cells) > 0 {
		rows.Put(hash, key, m, cells, merged)
	}
}
