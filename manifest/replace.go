package manifest

import (
	"bytes"
	"cmp"
	"slices"
)

// UserCut reports whether a user asked for a cut at the partition's start, so that only a user takes
// it away. Earlier versions marked no cuts, and kept those that a table was made with: those of
// epoch 0.
func (p *Partition) UserCut() bool { return p.Cut || p.Epoch == 0 && len(p.Start) > 0 }

func (p *Partition) detached() bool { return p.Service == Detached }

// hasFiles reports whether the partition lists a table file.
func (p *Partition) hasFiles() bool {
	return slices.ContainsFunc(p.Levels[:], func(files []*FileMeta) bool { return len(files) > 0 })
}

// Divide returns the partitions with two new ids that a split of p at a key makes. Both list the
// files that hold, or may hold, keys of theirs. The cut between them is none that a user asked for.
func (p *Partition) Divide(at []byte, low, high uint64) []*Partition {
	made := []*Partition{{ID: low, Start: p.Start, End: at, Cut: p.UserCut()}, {ID: high, Start: at, End: p.End}}
	for _, half := range made {
		half.Epoch, half.FlushedSeq = p.Epoch+1, p.FlushedSeq
		for level, files := range p.Levels {
			half.Levels[level] = filesIn(half, files)
		}
	}
	return made
}

// Join returns the partition with a new id that a merge of two neighbours makes. A Replacement
// refuses it while only one of them lists a file that has keys of both.
func Join(low, high *Partition, id uint64) *Partition {
	p := &Partition{
		ID: id, Start: low.Start, End: high.End, Cut: low.UserCut(),
		Epoch: max(low.Epoch, high.Epoch) + 1, FlushedSeq: min(low.FlushedSeq, high.FlushedSeq),
	}
	for level := range p.Levels {
		files := slices.Concat(low.Levels[level], high.Levels[level])
		slices.SortFunc(files, func(f, g *FileMeta) int {
			if level == 0 {
				return compareL0(f, g)
			}
			return cmp.Or(bytes.Compare(f.Smallest, g.Smallest), cmp.Compare(f.Number, g.Number))
		})
		p.Levels[level] = slices.CompactFunc(files, func(f, g *FileMeta) bool { return f.Number == g.Number })
	}
	return p
}
