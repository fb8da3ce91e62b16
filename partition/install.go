package partition

// Installation: table files that no flush or compaction made become files of trees.

import (
	"bytes"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// Load is table files, and the value files that they refer to, that no partition lists yet. They are
// complete in the store's directory, under numbers of Manifest.NextFile, and durable with their names.
type Load struct {
	// Files have disjoint ranges, in ascending order. All cells have the sequence number 1; an installation
	// gives them another one.
	Files  []*manifest.FileMeta
	Values []*manifest.ValueFile
}

// Range is the smallest range of keys that has all rows: end is excluded. REQUIRES: there are files.
func (l *Load) Range() (low, end []byte) { return rangeOf(l.Files) }

// Size is the bytes of its table files and value files.
func (l *Load) Size() (n int64) {
	for _, f := range l.Files {
		n += f.Size
	}
	for _, v := range l.Values {
		n += v.Size
	}
	return n
}

func rangeOf(files []*manifest.FileMeta) (low, end []byte) {
	first := slices.MinFunc(files, func(f, g *manifest.FileMeta) int { return bytes.Compare(f.Smallest, g.Smallest) })
	last := slices.MaxFunc(files, func(f, g *manifest.FileMeta) int { return bytes.Compare(f.Largest, g.Largest) })
	return first.Smallest, append(bytes.Clone(last.Largest), 0)
}

// Discard deletes the files. One that cannot be deleted is an orphan, which the next Open removes.
// REQUIRES: the manifest does not name them.
func (l *Load) Discard(env *Env) {
	for _, f := range l.Files {
		env.FS.Remove(filepath.Join(env.Dir, manifest.TableName(f.Number)))
	}
	for _, v := range l.Values {
		env.FS.Remove(filepath.Join(env.Dir, manifest.ValueName(v.Number)))
	}
}

// Placed is a load for which the levels in its trees are chosen. It is installed in three steps: an edit
// of the manifest, Open with the state after it, and Show. REQUIRES: Alone, from Place to Show.
type Placed struct {
	load     *Load
	trees    []*Tree
	added    []manifest.Addition // at their levels
	versions []*version          // of the trees, by Open
}

// Place chooses the levels for the files of a load in trees, which cover its range. A tree lists the files
// that may have rows of it. The caller knows that the range has no visible row and nothing in memory; what may
// be left are cells of deleted or expired rows. Place reads a block of each file that reaches across the range.
func (l *Load) Place(trees []*Tree) (*Placed, error) {
	p := &Placed{load: l, trees: trees}
	for _, t := range trees {
		files := slices.DeleteFunc(slices.Clone(l.Files), func(f *manifest.FileMeta) bool { return !t.overlaps(f) })
		if len(files) == 0 {
			continue
		}
		level, err := t.levelFor(files)
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			p.added = append(p.added, manifest.Addition{Partition: t.id, Level: level, File: f})
		}
	}
	return p, nil
}

// levelFor chooses the level for files of a load, which are newer than all that is there: the deepest one that
// has no file in the way, and below which nothing newer can be; or level 0, whose files lie over each other.
func (t *Tree) levelFor(files []*manifest.FileMeta) (int, error) {
	s := t.pin()
	defer s.unref()
	low, end := rangeOf(files)
	deepest := 0
	for at, there := range s.version.byLevel[:] {
		meets, holds, err := within(there, low, end)
		switch {
		case err != nil:
			return 0, err
		case holds:
			return deepest, nil
		case !meets:
			deepest = at
		}
	}
	return deepest, nil
}

// within reports whether files of a level reach into a range, and whether one holds a row of it.
func within(files []*tablefiles.File, low, end []byte) (meets, holds bool, err error) {
	var it sstable.Iterator
	for _, f := range files {
		if bytes.Compare(f.Meta.Largest, low) < 0 || bytes.Compare(f.Meta.Smallest, end) >= 0 {
			continue
		}
		meets = true
		r, err := f.Reader()
		if err != nil {
			return false, false, err
		}
		it.Init(r, sstable.IterOptions{})
		holds = it.SeekRow(low) && bytes.Compare(it.RowKey(), end) < 0
		err = it.Error()
		it.Close() // always nil: movements report the errors
		if holds || err != nil {
			return meets, holds, err
		}
	}
	return meets, false, nil
}

// Edit returns the edit that adds the files, with seq as the sequence number of their cells.
func (p *Placed) Edit(seq uint64) *manifest.Edit {
	var e manifest.Edit
	numbered := map[*manifest.FileMeta]*manifest.FileMeta{}
	for _, a := range p.added {
		if numbered[a.File] == nil {
			f := *a.File
			f.SeqOffset = seq - f.LargestSeq
			f.SmallestSeq, f.LargestSeq = f.SmallestSeq+f.SeqOffset, seq
			numbered[a.File] = &f
		}
		a.File = numbered[a.File]
		e.Added = append(e.Added, a)
	}
	for _, v := range p.load.Values {
		e.Values = append(e.Values, manifest.ValueAddition{Table: p.trees[0].table, File: v})
	}
	return &e
}

// Open prepares what Show installs. state is the one after the edit.
func (p *Placed) Open(state *manifest.State) {
	for _, t := range p.trees {
		_, meta := state.Partition(t.id)
		p.versions = append(p.versions, newVersion(t.env.Files, meta))
	}
}

// Show gives the files to the trees. It takes microseconds for each tree. REQUIRES: no reader's view includes the sequence
// numbers of the files yet.
func (p *Placed) Show() {
	for i, t := range p.trees {
		t.replace(func(old *state) *state { return newState(slices.Clone(old.memories), p.versions[i]) })
	}
}

// InMemory reports whether a memtable of the tree has a row from low, included, to end, excluded; a
// nil end is unbounded.
func (t *Tree) InMemory(low, end []byte) bool {
	s := t.pin()
	defer s.unref()
	return slices.ContainsFunc(s.memories, func(m *memory) bool {
		it := m.table.NewIterator()
		return it.SeekRow(low) && (end == nil || bytes.Compare(it.RowKey(), end) < 0)
	})
}

// Changed reports whether the tree may have rows from low, included, to end, excluded, that were written after
// seq, or has some in memory. It reads a block of each newer file that reaches into the range.
func (t *Tree) Changed(low, end []byte, seq uint64) (bool, error) {
	if t.InMemory(low, end) {
		return true, nil
	}
	s := t.pin()
	defer s.unref()
	newer := slices.DeleteFunc(slices.Clone(s.version.files), func(f *tablefiles.File) bool { return f.Meta.LargestSeq <= seq })
	_, holds, err := within(newer, low, end)
	return holds, err
}

// Build makes a load of one table file. rows writes the rows, at least one, in key order. After an
// error there are no files.
func Build(env *Env, rows func(w compaction.TableWriter) error) (*Load, error) {
	o := newOutput(env, true)
	table, err := o.NewTable()
	if err == nil {
		if err = rows(table); err == nil {
			err = table.Finish()
		} else {
			table.Abandon()
		}
	}
	err = o.end(err)
	if failed := o.verified(); err == nil {
		err = failed
	}
	if err == nil {
		err = o.sync()
	}
	if err != nil {
		o.discard()
		return nil, err
	}
	env.Work.Loaded.Add(o.written())
	return &Load{Files: o.metas, Values: o.values.metas}, nil
}

// Append adds the files of a load whose rows lie behind those of l.
func (l *Load) Append(next *Load) {
	l.Files = append(l.Files, next.Files...)
	l.Values = append(l.Values, next.Values...)
}
