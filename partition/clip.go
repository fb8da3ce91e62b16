package partition

// How a tree sees files that reach beyond its range. A split makes two trees that list the files of
// one. A file with keys of both is listed by both, as a whole. Iterators and runParts clip its rows.
// Whatever looks only at what files are like (sizes, debt, the choice of a compaction) takes them
// from version.levels, which clips their descriptions. Edits need a file's number and, if they add
// it, its whole description.

import (
	"bytes"
	"math/bits"
	"slices"
	"sync"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// clipped is what a version's files have within the tree's range.
type clipped struct {
	once       sync.Once
	inside     *compaction.Levels
	straddlers []*manifest.FileMeta // those of inside that are clipped
}

// levels returns the version's files by level. The description of a file that reaches beyond the
// tree's range is a copy: its first and last key are those of the range, and its sizes and counts
// are estimates from the file's index, of what it has inside. The end of the range stands for the
// last key, though no row inside has it. What the description says of versions and sequence numbers
// holds for the whole file. The first call of a version may open files.
func (v *version) levels() *compaction.Levels {
	v.once.Do(func() {
		v.inside = &v.meta.Levels
		if v.trimmed() {
			return
		}
		v.inside = new(compaction.Levels)
		for level, files := range v.byLevel {
			for _, f := range files {
				meta := f.Meta
				if !v.meta.Holds(meta) {
					meta = clip(f, v.meta.Start, v.meta.End)
					v.straddlers = append(v.straddlers, meta)
				}
				v.inside[level] = append(v.inside[level], meta)
			}
		}
	})
	return v.inside
}

// trimmed reports whether no file reaches beyond the tree's range.
func (v *version) trimmed() bool {
	outside := func(f *tablefiles.File) bool { return !v.meta.Holds(f.Meta) }
	return !slices.ContainsFunc(v.files, outside)
}

// clip describes what a file has from start to end; a nil end is unbounded. Sizes can be wrong by a
// block at each of the two, and counts take cells as evenly spread over the bytes.
func clip(f *tablefiles.File, start, end []byte) *manifest.FileMeta {
	c := *f.Meta
	if bytes.Compare(c.Smallest, start) < 0 {
		c.Smallest = start
	}
	if end != nil && bytes.Compare(c.Largest, end) > 0 {
		c.Largest = end
	}
	part, whole := int64(1), int64(2) // of a file that cannot be opened; reads return the error
	if r, err := f.Reader(); err == nil {
		part, whole = between(r, start, end), between(r, nil, nil)
	}
	share := func(n uint64) uint64 {
		high, low := bits.Mul64(n, uint64(part))
		scaled, _ := bits.Div64(high, low, uint64(whole))
		return max(scaled, min(n, 1)) // whether a file has tombstones is no estimate
	}
	c.Size = int64(share(uint64(c.Size)))
	for _, n := range []*uint64{&c.Rows, &c.Cells, &c.Puts, &c.Tombstones} {
		*n = share(*n)
	}
	c.Values = slices.Clone(c.Values)
	for i := range c.Values {
		c.Values[i].Values, c.Values[i].Bytes = share(c.Values[i].Values), share(c.Values[i].Bytes)
	}
	return &c
}

// between is how many bytes of a file, with those in value files, lie between two keys, by its index.
func between(r *sstable.Reader, low, high []byte) (size int64) {
	rest := r.WalkIndex(low, high, func(_ []byte, since int64) int64 {
		size += since
		return -1
	})
	return size + rest
}

// Levels returns the tree's table files by level, each clipped to the tree's range: see
// version.levels. They must not be changed. Levels may open files.
func (t *Tree) Levels() *compaction.Levels {
	s := t.pin()
	defer s.unref()
	return s.version.levels()
}

// Trimmed reports whether none of the tree's table files reaches beyond the tree's range. Compactions
// see to that after a split, those of level 0 only once the tree is idle.
func (t *Tree) Trimmed() bool {
	s := t.pin()
	defer s.unref()
	return s.version.trimmed()
}
