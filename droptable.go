package flagstone

// Dropping tables: one edit drops them with their change logs, once no write to them is in
// progress.

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/external"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

// DropTable removes a table and its data. A scan that has begun to read finishes; a get in
// progress may fail with ErrTableNotFound. Files are deleted when nothing reads them.
func (s *Store) DropTable(ctx context.Context, name string) error {
	_, err := s.command(ctx, external.Drop, func() (*manifest.Edit, error) {
		t := s.tables.current.Load().byName[name]
		if t == nil {
			return nil, fmt.Errorf("%w: %q", ErrTableNotFound, name)
		}
		return &manifest.Edit{Dropped: []uint64{t.core.ID}}, nil
	})
	return err
}

// dropTables removes tables by one edit. REQUIRES: tables is held, or the store is being opened.
func (s *Store) dropTables(tables []*Table) error {
	if err := s.dropTrees(tables, retire(s, tables, true)); err != nil {
		retire(s, tables, false)
		return err
	}
	s.tables.change(func(c *catalog) {
		for _, t := range tables {
			delete(c.byID, t.core.ID)
			delete(c.byName, t.core.Name)
		}
	})
	return nil
}

// retire stops writes to tables from taking a place in the log, or, if dropped is false, allows
// them again after a drop that failed. It returns the trees of the tables. The tables stay in the
// catalogue until the drop is durable: until then the log must keep their records. The drop frees
// their memtables, so that other memtables need not make room.
func retire(s *Store, tables []*Table, dropped bool) (trees []*partition.Tree) {
	s.pipeline.Between(func() {
		for _, t := range tables {
			t.core.Dropped.Store(dropped)
			trees = append(trees, t.core.Trees()...)
		}
		if dropped {
			s.pipeline.SetAside(trees)
		}
	})
	if !dropped {
		for _, tree := range trees { // what was set aside, and what became due meanwhile
			if _, waiting := tree.MemoryBytes(); waiting > 0 {
				s.upkeep.FlushDue(tree)
			}
			s.upkeep.CompactionDue(tree)
		}
	}
	return trees
}

// dropTrees stops the background work of all trees of some tables, commits the drop, and releases
// the files.
func (s *Store) dropTrees(tables []*Table, trees []*partition.Tree) error {
	if len(trees) == 0 {
		// Without this sync, the drop could survive earlier writes to other tables.
		if err := s.sync(); err != nil {
			return err
		}
		var e manifest.Edit
		for _, t := range tables {
			e.Dropped = append(e.Dropped, t.core.ID)
		}
		if _, err := s.commitEdit(&e); err != nil {
			return err
		}
		for _, t := range tables {
			s.opts.Logger.Info("table dropped", "table", t.core.Name, "id", t.core.ID)
		}
		return nil
	}
	tree := trees[0]
	freed, err := tree.Drop(func() error { return s.dropTrees(tables, trees[1:]) })
	if err != nil {
		return err
	}
	s.gate.Free(freed, freed) // all of it was set aside
	s.gate.NoteFlush(nil)     // the failure may have been this tree's; if not, the next flush reports it again
	s.upkeep.NoteFiles(tree)
	return nil
}
