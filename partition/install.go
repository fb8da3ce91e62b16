package partition

// Installation: table files that no flush or compaction made become files of trees.

import (
	"bytes"
	"errors"
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
	// Levels has the files as a partition lists them.
	Levels compaction.Levels
	Values []*manifest.ValueFile
	// Unnumbered says that all cells have the sequence number 1, and that the files are of the last level.
	// An installation gives all cells one number, and a tree may list the files at a higher level. Otherwise
	// cells and files keep number and level.
	Unnumbered bool
}

// ErrOccupied says that files of a tree have cells in the range of numbered files, which could be newer
// or older ones.
var ErrOccupied = errors.New("partition: table files have cells of deleted rows in the range; compact it first")

// files are the table files of all levels.
func (l *Load) files() []*manifest.FileMeta { return allFiles(&l.Levels) }

// Range is the smallest range of keys that has all rows: end is excluded. REQUIRES: there are files.
func (l *Load) Range() (low, end []byte) { return rangeOf(l.files()) }

func rangeOf(files []*manifest.FileMeta) (low, end []byte) {
	first := slices.MinFunc(files, func(f, g *manifest.FileMeta) int { return bytes.Compare(f.Smallest, g.Smallest) })
	last := slices.MaxFunc(files, func(f, g *manifest.FileMeta) int { return bytes.Compare(f.Largest, g.Largest) })
	return first.Smallest, append(bytes.Clone(last.Largest), 0)
}

// LargestSeq is the largest sequence number in the files.
func (l *Load) LargestSeq() (seq uint64) {
	for _, f := range l.files() {
		seq = max(seq, f.LargestSeq)
	}
	return seq
}

// Discard deletes the files. One that cannot be deleted is an orphan, which the next Open removes.
// REQUIRES: the manifest does not name them.
func (l *Load) Discard(env *Env) {
	for _, f := range l.files() {
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
// that may have rows of it. They must lie below everything newer and above everything older that has rows in common
// with them. The caller knows that the range has no visible row and nothing in memory; what may be left are
// cells of deleted or expired rows. Place reads a block of each file that reaches across the range. Errors
// match ErrOccupied.
func (l *Load) Place(trees []*Tree) (*Placed, error) {
	p := &Placed{load: l, trees: trees}
	for _, t := range trees {
		for level, files := range l.Levels {
			files = slices.DeleteFunc(slices.Clone(files), func(f *manifest.FileMeta) bool { return !t.overlaps(f) })
			if len(files) == 0 {
				continue
			}
			at, err := t.levelFor(files, level, l.Unnumbered)
			if err != nil {
				return nil, err
			}
			for _, f := range files {
				p.added = append(p.added, manifest.Addition{Partition: t.id, Level: at, File: f})
			}
		}
	}
	return p, nil
}

// levelFor chooses the level for files of a load's level. Unnumbered files are newer than all that
// is there: they go to the deepest level that has no file in the way, and below which nothing newer can
// be; or to level 0, whose files lie over each other.
func (t *Tree) levelFor(files []*manifest.FileMeta, level int, unnumbered bool) (int, error) {
	s := t.pin()
	defer s.unref()
	low, end := rangeOf(files)
	deepest := 0
	for at, there := range s.version.byLevel[:] {
		meets, holds, err := within(there, low, end)
		switch {
		case err != nil:
			return 0, err
		case unnumbered && (holds || at > level):
			return deepest, nil
		case !unnumbered && (holds || meets && at == level && at > 0):
			return 0, ErrOccupied
		case !meets && at <= level:
			deepest = at
		}
	}
	if unnumbered {
		return deepest, nil
	}
	return level, nil
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

// Edit returns the edit that adds the files. seq is the sequence number of the cells of an unnumbered load.
func (p *Placed) Edit(seq uint64) *manifest.Edit {
	var e manifest.Edit
	numbered := map[*manifest.FileMeta]*manifest.FileMeta{}
	for _, a := range p.added {
		if p.load.Unnumbered {
			if numbered[a.File] == nil {
				f := *a.File
				f.SeqOffset = seq - f.LargestSeq
				f.SmallestSeq, f.LargestSeq = f.SmallestSeq+f.SeqOffset, seq
				numbered[a.File] = &f
			}
			a.File = numbered[a.File]
		}
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

// Build makes an unnumbered load of one table file. rows writes the rows, at least one, in key order. After an
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
	load := &Load{Values: o.values.metas, Unnumbered: true}
	load.Levels[manifest.NumLevels-1] = o.metas
	return load, nil
}

// Append adds the files of a load whose rows lie behind those of l.
func (l *Load) Append(next *Load) {
	for level, files := range next.Levels {
		l.Levels[level] = append(l.Levels[level], files...)
	}
	l.Values = append(l.Values, next.Values...)
}
