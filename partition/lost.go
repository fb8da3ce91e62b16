package partition

// The time that reads lose to level 0: how much faster they would be if its files were compacted
// with the files below. Package compaction weighs it against the bytes of such a compaction.

// The estimated losses of one read operation, in nanoseconds, for rows of a kilobyte.
const (
	lostToFilter = 80   // a get checks a file that does not hold its row
	lostToRow    = 400  // additionally, if the file holds a part of the row
	lostToSeek   = 1000 // a scan seeks in one more run
	lostToStep   = 150  // a scan compares more than one run, for each row

	// lostToFarSeek is lostToSeek where a part of the tables is not in memory: a read of the device. Of gets
	// nothing like that was measured (docs/lab/device.md).
	lostToFarSeek = 100_000
)

// lostNotice is how much time reads lose between two calls of Scheduler.ReadsLose, by stripe.
const lostNotice = 1 << 22

// Lost is the time, in nanoseconds, that reads lost to level 0 since it was last compacted for them.
func (t *Tree) Lost() int64 { return t.lost.total() }

// lose notes that a read lost that much time. hash chooses the stripe.
func (t *Tree) lose(hash uint64, nanos int) {
	if nanos == 0 {
		return
	}
	total := t.lost.of(uint32(hash)).Add(int64(nanos))
	if total/lostNotice != (total-int64(nanos))/lostNotice {
		t.env.Scheduler.ReadsLose(t)
	}
}
