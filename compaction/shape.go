package compaction

// The shape of a partition: how large each level should be.
//
// Targets are derived from the last level upwards. Each level is smaller than the next by the
// multiplier, until one is small enough to take level 0 directly. That level is the base; the
// levels above it stay empty. So the last level holds six sevenths to nine tenths of the data in a
// partition of any size, which bounds the space that dead data takes, and a small partition has
// only as many levels as it needs.
//
// Worked example, multiplier 10, LevelBase 1 GiB, last level 6 with 30 GiB:
// targets are 30 GiB at 6, 3 GiB at 5, 307 MiB at 4, which is at most
// LevelBase: the base is level 4. It may have a sixth of the level below it, 512 MiB. With a tenth it is
// often beyond its target, because it takes all of level 0 at once, and then compactions out of it keep
// level 0 waiting. LevelBase bounds that, too.
//
// Level 0 gathers L0Trigger flushes before it is compacted into the base. That rewrites as many
// times its bytes as the base is larger, so LevelBase is four times what level 0 holds. With a
// quarter of that, 280 MB of rows of a kilobyte lay on two levels, and each byte was rewritten
// twice on its way down.
//
// Levels are compacted earlier for the sake of reads: while writes are few, once reads have lost
// what a compaction is worth (pick.go), and level 0 in an idle partition from a depth of IdleDepth
// on, if it is not small beside what it overlaps.

import (
	"cmp"
	"slices"

	"github.com/flagstone-db/flagstone/manifest"
)

// Config says how a partition is shaped. Zero fields take the default.
type Config struct {
	L0Trigger     int   // depth of level 0 at which it is compacted, default 12
	IdleDepth     int   // the same in an idle partition, default 2
	L0Size        int64 // bytes in level 0 at which it is compacted, default 6 x TableFileSize
	LevelBase     int64 // largest target of the base level in bytes, default 4 x L0Size
	Multiplier    int64 // ratio of neighbouring levels, default 10
	TableFileSize int64 // target size of table files in bytes, default 64 MiB
}

func (c Config) withDefaults() Config {
	c.L0Trigger = cmp.Or(c.L0Trigger, 12)
	c.IdleDepth = cmp.Or(c.IdleDepth, 2)
	c.TableFileSize = cmp.Or(c.TableFileSize, 64<<20)
	c.L0Size = cmp.Or(c.L0Size, 6*c.TableFileSize)
	c.LevelBase = cmp.Or(c.LevelBase, 4*c.L0Size)
	c.Multiplier = cmp.Or(c.Multiplier, 10)
	return c
}

// baseMultiplier is how many times as large as the base the next level is, if Multiplier is not less.
const baseMultiplier = 6

// maxOverlapFactor bounds the bytes that a table may overlap in the level below its own, in
// multiples of the target size.
const maxOverlapFactor = 10

// Base returns the files of the level that level 0 is compacted into.
func Base(levels *Levels, cfg Config) []*manifest.FileMeta {
	s := newShape(levels, cfg.withDefaults())
	return levels[s.base]
}

// LargestBase is the largest target of the base level in bytes.
func LargestBase(cfg Config) int64 { return cfg.withDefaults().LevelBase }

type shape struct {
	base   int // the level that level 0 is compacted into
	size   [manifest.NumLevels]int64
	target [manifest.NumLevels]int64 // of the levels from base on
}

func newShape(levels *Levels, cfg Config) shape {
	var s shape
	highest, largest := lastLevel, int64(0) // highest level in use, size of the largest
	for level := lastLevel; level >= 0; level-- {
		s.size[level] = size(levels[level])
		if level > 0 && len(levels[level]) > 0 {
			highest = level
			largest = max(largest, s.size[level])
		}
	}
	// A level above the last may be the largest for a while; its data is then on its way to the
	// last.
	s.base = lastLevel
	s.target[lastLevel] = max(largest, cfg.LevelBase)
	for s.base > 1 && (s.target[s.base] > cfg.LevelBase || s.base > highest) {
		s.base--
		s.target[s.base] = max(1, s.target[s.base+1]/cfg.Multiplier)
	}
	if s.base < lastLevel {
		s.target[s.base] = max(s.target[s.base], min(s.target[s.base+1]/baseMultiplier, cfg.LevelBase))
	}
	return s
}

// score says how urgent it is to take something out of a level; from 1 on it should be done.
// Bytes that running compactions take out do not count.
func (s *shape) score(levels *Levels, level int, cfg Config, busy map[uint64]bool) float64 {
	files := free(levels[level], busy)
	if level == 0 {
		// Large values count, though a merge does not rewrite them: overwritten ones take space
		// until a compaction drops their references.
		return max(float64(Depth(files))/float64(cfg.L0Trigger), float64(size(files)+valueBytes(files))/float64(cfg.L0Size))
	}
	if level < s.base || level == lastLevel {
		return 0
	}
	return float64(size(files)) / float64(s.target[level])
}

// free returns the files that no running compaction takes.
func free(files []*manifest.FileMeta, busy map[uint64]bool) []*manifest.FileMeta {
	if len(busy) == 0 {
		return files
	}
	return slices.DeleteFunc(slices.Clone(files), func(f *manifest.FileMeta) bool { return busy[f.Number] })
}

// Debt estimates how many bytes compactions must process until every level is within its target:
// what must leave each level, with what it overlaps in the next. It drives back-pressure on
// writers.
func Debt(levels *Levels, cfg Config) int64 {
	cfg = cfg.withDefaults()
	s := newShape(levels, cfg)
	var debt, carried int64
	if Depth(levels[0]) >= cfg.L0Trigger || s.size[0] >= cfg.L0Size {
		carried = s.size[0]
		debt = carried + min(s.size[s.base], carried*cfg.Multiplier)
	}
	for level := s.base; level < lastLevel; level++ {
		excess := s.size[level] + carried - s.target[level]
		if excess <= 0 {
			break
		}
		// Each byte overlaps as many bytes of the next level as that is larger.
		debt += excess + int64(float64(excess)*float64(s.size[level+1])/float64(s.size[level]+carried))
		carried = excess
	}
	return debt
}
