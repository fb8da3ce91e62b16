package compaction

// Merges that somebody asked for.

import (
	"bytes"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
)

// Shortcut returns what an edit alone does for a merge that somebody asked for of
// the keys from start to end: to drop files of which everything is expired, or to
// take a file to the last level as it is, if no other file meets it and nothing
// in it may go; surplus says which files may hold more versions than are to be
// kept. Nil if there is nothing of the kind.
func Shortcut(in Input, start, end []byte, surplus func(*manifest.FileMeta) bool) *Candidate {
	p := newPicker(in)
	if c := p.expired(); c != nil {
		return c
	}
	for level, files := range in.Levels[:lastLevel] {
		for _, f := range files {
			r := rangeOf(f)
			if bytes.Compare(start, f.Largest) > 0 || end != nil && bytes.Compare(f.Smallest, end) >= 0 ||
				f.Tombstones > 0 || p.reclaimable(level, f) > 0 || len(f.Values) > 0 || surplus(f) || !p.onlyOne(f, r) {
				continue
			}
			return &Candidate{
				Reason: ReasonManual, Level: level, OutputLevel: lastLevel, Upper: []*manifest.FileMeta{f}, Move: true,
				Smallest: r.smallest, Largest: r.largest,
			}
		}
	}
	return nil
}

// onlyOne reports whether no other file meets the file's range.
func (p *picker) onlyOne(f *manifest.FileMeta, r keyRange) bool {
	for level, files := range p.Levels {
		if level > 0 {
			files = overlapping(files, r)
		}
		for _, other := range files {
			if other != f && r.meets(other.Smallest, other.Largest) {
				return false
			}
		}
	}
	return true
}

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
