package partition

// Rows that are kept as a read found them: see package rowcache. Here is when a
// read may use one, and keep one.
//
// What a read finds is decided by the runs of the pinned state, of which only the
// mutable memtable (and one that was just rotated out, until the writers that have
// a place in it are done) still changes; and by the view. Mutations of one row are
// applied in the order of their sequence numbers, and all that a view shows are
// applied before there is such a view. So if the newest mutation of the row in the
// memtables is the same as when the row was kept, there is none in between, and a
// view that shows at least as much shows the same, apart from what has expired.
//
// A row is kept only if the view shows all that there is of it: the newest mutation
// in the memtables, or, if these do not have the row, all that was ever flushed.

import (
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/row"
)

// rowCache returns the cache of rows, or nil if it is of no use to a read at the
// view, and notes the moment of the read. REQUIRES: findMemories.
func (g *Getter) rowCache(view *mvcc.View) *rowcache.Cache {
	rows := g.tree.env.Rows
	if rows == nil || g.above != nil {
		return nil
	}
	g.moment = rowcache.Moment{
		State: g.state.id, Seq: view.Seq, MaxVersions: view.MaxVersions, Oldest: view.Oldest(),
	}
	if len(g.found) > 0 {
		g.moment.Newest = g.found[0].NewestSeq()
	}
	return rows
}

// recall gets the selected cells of the row from the cache, if they are there.
func (g *Getter) recall(rows *rowcache.Cache, key []byte, hash uint64, sel *mvcc.Selection, dst *row.Collector) bool {
	w := &g.wanted
	w.NoCells, w.MinVersion, w.MaxVersion = sel.NoCells, sel.MinVersion, row.MaxVersion
	if sel.MaxVersionExcl > 0 {
		w.MaxVersion = sel.MaxVersionExcl - 1
	}
	w.Columns, w.Start, w.End, w.Versions = sel.Columns, sel.Start, sel.End, sel.MaxVersions
	return rows.Get(hash^g.tree.id, key, &g.moment, w, dst)
}

// keep gives the cache a row that was read whole.
func (g *Getter) keep(rows *rowcache.Cache, key []byte, hash uint64, cells []row.Cell) {
	m := &g.moment
	complete := m.Seq >= g.state.memories[0].startSeq-1
	if len(g.found) > 0 {
		complete = m.Newest <= m.Seq
	}
	// The newest applied state is not that of a view that comes later.
	if complete && m.Seq < row.MaxSequence && len(cells) > 0 {
		rows.Put(hash^g.tree.id, key, m, cells)
	}
}
