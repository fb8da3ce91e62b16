package compaction

// Key ranges of files, and what the levels below a compaction may hold.

import (
	"bytes"
	"math"
	"slices"
	"sort"

	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
)

// Levels are the files of a partition as in the manifest: level 0 from the oldest to the newest,
// the others in key order.
type Levels = [manifest.NumLevels][]*manifest.FileMeta

const lastLevel = manifest.NumLevels - 1

// keyRange is a range of row keys, both ends included. Nil ends mean an empty range, since no
// row key is nil.
type keyRange struct{ smallest, largest []byte }

func (r *keyRange) extend(f *manifest.FileMeta) {
	if r.smallest == nil || bytes.Compare(f.Smallest, r.smallest) < 0 {
		r.smallest = f.Smallest
	}
	if r.largest == nil || bytes.Compare(f.Largest, r.largest) > 0 {
		r.largest = f.Largest
	}
}

// meets reports whether the file overlaps the range.
func (r *keyRange) meets(f *manifest.FileMeta) bool {
	return r.smallest != nil && bytes.Compare(r.smallest, f.Largest) <= 0 && bytes.Compare(f.Smallest, r.largest) <= 0
}

func rangeOf(files ...*manifest.FileMeta) (r keyRange) {
	for _, f := range files {
		r.extend(f)
	}
	return r
}

// overlapping returns the files of a level that overlap the range, in their order; of level 0
// also those that overlap it only through others. In a deeper level they are neighbours.
func overlapping(levels *Levels, level int, r keyRange) []*manifest.FileMeta {
	files := levels[level]
	if level == 0 {
		return closure(files, r)
	}
	from := sort.Search(len(files), func(i int) bool { return bytes.Compare(files[i].Largest, r.smallest) >= 0 })
	to := from
	for to < len(files) && r.meets(files[to]) {
		to++
	}
	return files[from:to:to]
}

// closure is overlapping for level 0.
func closure(files []*manifest.FileMeta, r keyRange) []*manifest.FileMeta {
	var taken []*manifest.FileMeta
	for {
		before := len(taken)
		taken = taken[:0]
		for _, f := range files {
			if r.meets(f) {
				taken = append(taken, f)
				r.extend(f)
			}
		}
		if len(taken) == before {
			return taken
		}
	}
}

// Runs divides files of level 0, given from the oldest to the newest, into runs of files that do
// not overlap, so that a reader can treat each run as one sorted sequence. Where files of two
// runs overlap, the later run has the newer one. The files of a run are in key order.
func Runs(files []*manifest.FileMeta) (runs [][]*manifest.FileMeta) {
	// A file goes one run above the highest of the older files that it overlaps. That is quadratic
	// in the number of files, of which there are dozens.
	for _, f := range files {
		r, depth := rangeOf(f), len(runs)
		for depth > 0 && !slices.ContainsFunc(runs[depth-1], r.meets) {
			depth--
		}
		if depth == len(runs) {
			runs = append(runs, nil)
		}
		runs[depth] = append(runs[depth], f)
	}
	for _, run := range runs {
		slices.SortFunc(run, func(a, b *manifest.FileMeta) int { return bytes.Compare(a.Smallest, b.Smallest) })
	}
	return runs
}

// Depth is the number of runs that files of level 0 form.
func Depth(files []*manifest.FileMeta) int { return len(Runs(files)) }

func size(files []*manifest.FileMeta) (total int64) {
	for _, f := range files {
		total += f.Size
	}
	return total
}

// Below returns Job.Below for this candidate: whether files older than its inputs may hold a
// row. levels are those that it was picked from. Compactions that run meanwhile cannot make the
// answer too small: data gets below the output only through the candidate's levels, where its
// inputs are all there is.
func (c *Candidate) Below(levels *Levels) func(key []byte) mvcc.Below {
	runs := levels[c.OutputLevel+1:]
	if c.OutputLevel == 0 {
		runs = append(Runs(levels[0][:slices.Index(levels[0], c.Upper[0])]), runs...)
	}
	return Below(runs, func(f *manifest.FileMeta) mvcc.Below {
		if f.Permanent {
			return mvcc.BelowAnything
		}
		return mvcc.BelowExpiring
	})
}

// Below returns a Job.Below for a merge that lies over these runs of files, each in key order.
// judge says what a file may hold of a row within its range.
func Below(runs [][]*manifest.FileMeta, judge func(*manifest.FileMeta) mvcc.Below) func(key []byte) mvcc.Below {
	rest := slices.Clone(runs)
	return func(key []byte) mvcc.Below {
		below := mvcc.BelowNothing
		for i := range rest {
			for len(rest[i]) > 0 && bytes.Compare(rest[i][0].Largest, key) < 0 {
				rest[i] = rest[i][1:]
			}
			if len(rest[i]) > 0 && bytes.Compare(key, rest[i][0].Smallest) >= 0 {
				below = min(below, judge(rest[i][0]))
			}
			if below == mvcc.BelowAnything {
				break
			}
		}
		return below
	}
}

// NewerSeq returns the smallest sequence number in table files that are newer than the
// candidate's inputs and may share rows with them, or math.MaxUint64 if there are none. Together
// with the memtables' it tells which mutations a compaction has not seen: see
// mvcc.Policy.MaxVersions.
func (c *Candidate) NewerSeq(levels *Levels) uint64 {
	newer := uint64(math.MaxUint64)
	inputs := c.Files()
	r := keyRange{c.Smallest, c.Largest}
	// Files of Level that are not inputs count: the lower inputs reach beyond the upper ones, to
	// rows that such files hold. If a file of level 0 is rewritten in place, the older ones count too,
	// which only keeps more.
	for _, files := range levels[:max(c.OutputLevel, 1)] {
		for _, f := range files {
			if r.meets(f) && !slices.Contains(inputs, f) {
				newer = min(newer, f.SmallestSeq)
			}
		}
	}
	return newer
}
