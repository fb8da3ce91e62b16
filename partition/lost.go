package partition

// The time that reads lose to each level but the deepest: how much faster they would be if its files were
// compacted with the files below. Package compaction weighs it against the bytes of such a compaction.

import (
	"sync/atomic"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// The estimated losses of one read operation, in nanoseconds, for rows of a kilobyte.
const (
	lostToFilter = 80   // a get checks a file that does not hold its row
	lostToRow    = 400  // additionally, if the file holds a part of the row
	lostToSeek   = 1000 // a scan seeks in one more run
	lostToStep   = 150  // a scan compares more than one run, for each row

	// What a get loses to a block that is not in the block cache: a read from the page cache or the device,
	// and the work on the block.
	lostToRead    = 5_000
	lostToFarRead = 100_000
)

// lostNotice is how much time reads lose to a level between two calls of Scheduler.ReadsLose, by stripe.
const lostNotice = 1 << 22

// losses is the time, in nanoseconds, that reads lost to each level since it was last compacted for them.
// A stripe has a cache line.
type losses [pinStripes]struct {
	levels [manifest.NumLevels]atomic.Int64
	_      [64 - 8*manifest.NumLevels]byte
}

// Lost is the time, in nanoseconds, that reads lost to each level since it was last compacted for them.
func (t *Tree) Lost() (lost compaction.Losses) {
	for i := range t.lost {
		for level := range lost {
			lost[level] += t.lost[i].levels[level].Load()
		}
	}
	return lost
}

// lose notes that a read lost that much time to a level. hash chooses the stripe.
func (t *Tree) lose(hash uint64, level, nanos int) {
	if nanos == 0 {
		return
	}
	total := t.lost[hash%pinStripes].levels[level].Add(int64(nanos))
	if total/lostNotice != (total-int64(nanos))/lostNotice {
		t.env.Scheduler.ReadsLose(t)
	}
}

// regain forgets a share of what reads lost to a level, which they will not lose again.
func (t *Tree) regain(level int, share float64) {
	for i := range t.lost {
		lost := &t.lost[i].levels[level]
		lost.Add(-int64(float64(lost.Load()) * share))
	}
}

// lostTo is what a get lost to a file that it looked into.
func lostTo(it *sstable.Iterator) int {
	near, far := it.Reads()
	return near*lostToRead + far*lostToFarRead
}
