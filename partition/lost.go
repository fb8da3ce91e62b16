package partition

// The time that reads lose to level 0, and to each file of the levels below it but the deepest: how much faster
// they would be if it were compacted with the files below. Package compaction weighs it against the bytes of
// such a compaction.

import (
	"slices"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// The estimated losses of one read operation, in nanoseconds, for rows of a kilobyte.
const (
	lostToFilter = 80   // a get checks a file of level 0 and goes on
	lostToRow    = 400  // a get finds a part of its row that an older file holds, too
	lostToSeek   = 1000 // a scan seeks in one more run
	lostToStep   = 150  // a scan compares more than one run, for each row

	// What a get loses besides lostToRow to a block that is not in the block cache: reads of the file, and the
	// work on the block. A mapping is read once for the head and once for values, a call reads both.
	lostToMapped = 2_500
	lostToCall   = 8_000
	lostToDevice = 100_000
)

// lostNotice is how much time reads lose to level 0 between two calls of Scheduler.ReadsLose, by stripe.
const lostNotice = 1 << 22

// lose notes that a read lost that much time to level 0. hash chooses the stripe.
func (t *Tree) lose(hash uint64, nanos int) {
	if nanos == 0 {
		return
	}
	t.notice(t.lost.of(uint32(hash)).Add(int64(nanos)), int64(nanos), lostNotice)
}

// loseTo notes that a read lost that much time to a file of another level.
func (t *Tree) loseTo(f *tablefiles.File, nanos int) {
	if nanos == 0 {
		return
	}
	t.notice(f.Lost.Add(int64(nanos)), int64(nanos), compaction.LeastLost(f.Meta.Size))
}

// notice calls Scheduler.ReadsLose if nanos brought a loss to a multiple of unit.
func (t *Tree) notice(total, nanos, unit int64) {
	if total/unit != (total-nanos)/unit {
		t.env.Scheduler.ReadsLose(t)
	}
}

// lostTo returns what reads lost to the files below level 0, by number.
func (v *version) lostTo() map[uint64]int64 {
	lost := make(map[uint64]int64)
	for _, files := range v.byLevel[1 : manifest.NumLevels-1] {
		for _, f := range files {
			if n := f.Lost.Load(); n > 0 {
				lost[f.Meta.Number] = n
			}
		}
	}
	return lost
}

// spend forgets what reads lost to the files that a candidate takes to another level. If it fails, they lose
// more before it is tried again.
func (t *Tree) spend(v *version, c *compaction.Candidate) {
	if c.OutputLevel == c.Level || c.Level > 0 && c.Move {
		return // they stay where they are, or go on to a level where reads lose as much
	}
	if c.Level == 0 {
		t.lost.reset()
		return
	}
	for _, f := range v.byLevel[c.Level] {
		if slices.ContainsFunc(c.Upper, func(m *manifest.FileMeta) bool { return m.Number == f.Meta.Number }) {
			f.Lost.Store(0)
		}
	}
}

// lookCost is what a get lost to a file in which it found a row.
func lookCost(it *sstable.Iterator) int {
	n := it.Reads()
	return lostToRow + n.Mapped*lostToMapped + n.Called*lostToCall + n.Far*lostToDevice
}
