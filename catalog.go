package flagstone

// Which tables there are.

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/commit"
	meters "github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

// tables are the tables of a store, with their change logs.
type tables struct {
	commit.Latch                         // held while a table is made, changed or dropped
	current      atomic.Pointer[catalog] // replaced as a whole
}

// catalog is the set of tables at one moment.
type catalog struct {
	byID    map[uint64]*Table
	byName  map[string]*Table
	ordered []*Table // all of them, by name
}

// add adds a table, or the change log of a table that was added before. Change logs are not found by
// name.
func (c *catalog) add(t *Table) {
	c.byID[t.core.ID] = t
	switch log := t.core.Meta().Log; {
	case log == nil:
		c.byName[t.core.Name] = t
	case log.Until == 0:
		c.byID[log.Of].core.Log.Store(t.core)
	}
}

// find returns the table of an id, or ErrTableNotFound.
func (all *tables) find(id uint64) (*Table, error) {
	t := all.current.Load().byID[id]
	if t == nil {
		return nil, fmt.Errorf("%w: id %d", ErrTableNotFound, id)
	}
	return t, nil
}

// load makes the tables and their trees from the manifest.
func (all *tables) load(s *Store, state *manifest.State) {
	c := &catalog{byID: make(map[uint64]*Table), byName: make(map[string]*Table)}
	for _, meta := range state.Tables { // a change log comes after its table
		c.add(newTable(s, meta))
	}
	all.store(c)
}

// store makes c the catalogue.
func (all *tables) store(c *catalog) {
	c.ordered = slices.SortedFunc(maps.Values(c.byID), func(a, b *Table) int { return strings.Compare(a.core.Name, b.core.Name) })
	all.current.Store(c)
}

// change replaces the catalogue by a changed copy. REQUIRES: the latch is held.
func (all *tables) change(edit func(c *catalog)) {
	old := all.current.Load()
	c := &catalog{byID: maps.Clone(old.byID), byName: maps.Clone(old.byName)}
	edit(c)
	all.store(c)
}

// but returns the tables and change logs that are not left out, ordered by name.
func (all *tables) but(leftOut func(*Table) bool) []*Table {
	return slices.DeleteFunc(slices.Clone(all.current.Load().ordered), leftOut)
}

// trees returns the trees of all tables, and with dropping also those of tables that are being
// dropped.
func (all *tables) trees(dropping bool) (trees []*partition.Tree) {
	for _, t := range all.current.Load().ordered {
		if dropping || !t.core.Dropped.Load() {
			trees = append(trees, t.core.Trees()...)
		}
	}
	return trees
}

func newTable(s *Store, meta *manifest.Table) *Table {
	t := &Table{store: s, core: new(table.Table), latencies: new(latencies)}
	trees := make([]*partition.Tree, 0, len(meta.Partitions))
	for _, p := range meta.Partitions {
		tree := partition.NewTree(s.env, meta.ID, p)
		if meta.Log == nil {
			tree.Measure(meters.New(len(meta.Key), s.clock.Elapsed()))
		}
		trees = append(trees, tree)
	}
	env := &s.tableEnv
	if s.external != nil && meta.Log != nil {
		log := s.tableEnv
		log.Clock = s.external.Time(s.clock)
		env = &log
	}
	t.core.Init(env, meta, trees)
	return t
}
