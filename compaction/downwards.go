package compaction

// Merges that somebody asked for.

import (
	"bytes"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
)

// Downwards returns the merge of all files that meet the keys from start to end,
// nil for unbounded, into the last level, and its upper files by level; nil if
// those keys lie in the last level alone. With a file come all deeper ones that
// meet it, so nothing older is left where the output goes.
func Downwards(levels *Levels, start, end []byte) (*Candidate, [][]*manifest.FileMeta) {
	meets := func(f *manifest.FileMeta) bool {
		return bytes.Compare(start, f.Largest) <= 0 && (end == nil || bytes.Compare(f.Smallest, end) < 0)
	}
	c := &Candidate{Reason: ReasonManual, OutputLevel: lastLevel}
	upper := make([][]*manifest.FileMeta, lastLevel)
	var r keyRange // of the files taken
	take := func(level int) (files []*manifest.FileMeta) {
		var wanted keyRange
		for _, f := range levels[level] {
			if meets(f) || r.meets(f.Smallest, f.Largest) {
				wanted.extend(f)
			}
		}
		if wanted.smallest == nil {
			return nil
		}
		if level == 0 {
			files, _ = closure(levels[0], wanted)
		} else {
			files = overlapping(levels[level], wanted)
		}
		for _, f := range files {
			r.extend(f)
		}
		return files
	}
	for level := range lastLevel {
		upper[level] = take(level)
		c.Upper = append(c.Upper, upper[level]...)
	}
	if len(c.Upper) == 0 {
		return nil, nil
	}
	c.Lower = slices.Clone(take(lastLevel))
	c.Smallest, c.Largest = r.smallest, r.largest
	return c, upper
}
