package compaction

// Manual compactions: those that a caller asks for by key range.

import (
	"bytes"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
)

// Shortcut returns a candidate for a manual compaction of the keys from start to end that an
// edit alone can do: it drops files in which everything is expired, or moves a file to the last
// level unchanged, if no other file overlaps it and nothing in it can be dropped. surplus says
// which files may hold more versions than are to be kept. It returns nil if there is no such
// candidate.
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

// onlyOne reports whether no other file overlaps the file's range.
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

// Downwards returns the compaction of all files that overlap the keys from start to end (nil for
// unbounded) into the last level, and its upper files by level. It returns nil if only the last
// level has those keys. Each file brings all deeper files that overlap it, so the output is the
// oldest data of its range.
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
