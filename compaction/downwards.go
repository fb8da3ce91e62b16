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
			if within(f, start, end) && f.Tombstones == 0 && p.reclaimable(level, f) <= 0 && len(f.Values) == 0 &&
				!surplus(f) && p.onlyOne(f) && !p.clipped(f) {
				return p.admit(&Candidate{
					Reason: ReasonManual, Level: level, OutputLevel: lastLevel, Upper: []*manifest.FileMeta{f}, Move: true,
				})
			}
		}
	}
	return nil
}

// within reports whether the file overlaps the keys from start to end (nil for unbounded).
func within(f *manifest.FileMeta, start, end []byte) bool {
	return bytes.Compare(start, f.Largest) <= 0 && (end == nil || bytes.Compare(f.Smallest, end) < 0)
}

// onlyOne reports whether no other file overlaps the file's range.
func (p *picker) onlyOne(f *manifest.FileMeta) bool {
	r := rangeOf(f)
	for level := range p.Levels {
		for _, other := range overlapping(p.Levels, level, r) {
			if other != f {
				return false
			}
		}
	}
	return true
}

// Downwards returns the compaction of all files that overlap the keys from start to end (nil for
// unbounded) into the last level. It returns nil if only the last level has those keys. Each file
// brings all deeper files that overlap it, so the output is the oldest data of its range.
func Downwards(levels *Levels, start, end []byte) *Candidate {
	c := &Candidate{Reason: ReasonManual, OutputLevel: lastLevel}
	var r keyRange // of the files taken
	for level, files := range levels {
		var wanted keyRange
		for _, f := range files {
			if within(f, start, end) || r.meets(f) {
				wanted.extend(f)
			}
		}
		c.Inputs[level] = overlapping(levels, level, wanted)
		for _, f := range c.Inputs[level] {
			r.extend(f)
		}
	}
	c.Upper, c.Lower = slices.Concat(c.Inputs[:lastLevel]...), c.Inputs[lastLevel]
	c.Smallest, c.Largest = r.smallest, r.largest
	if len(c.Upper) == 0 {
		return nil
	}
	return c
}
