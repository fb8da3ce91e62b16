package partition

// What reads lose to level 0: the time that they would have been faster by, had
// its files been merged with what they lie over. It is what says whether such a
// merge is worth its bytes; how much of it, package compaction knows.

import "sync/atomic"

// What reads lose, in nanoseconds: estimates for rows of a kilobyte.
const (
	lostToFilter = 80   // a get, to a file that does not hold its row
	lostToRow    = 400  // and to one that holds a part of it
	lostToSeek   = 1000 // a scan, to a run that it has to find its place in
	lostToStep   = 150  // a scan, at each row, to runs that it compares
)

// lostNotice is how much reads lose between two calls of Env.Lost, by stripe.
const lostNotice = 1 << 22

// lost is what reads have lost, in nanoseconds: in stripes, as pins are.
type lost [pinStripes]struct {
	total atomic.Int64
	_     [56]byte // the rest of a cache line
}

func (l *lost) total() (sum int64) {
	for i := range l {
		sum += l[i].total.Load()
	}
	return sum
}

func (l *lost) reset() {
	for i := range l {
		l[i].total.Store(0)
	}
}

// lose notes that a read lost so many nanoseconds.
func (t *Tree) lose(stripe uint32, nanos int) {
	if nanos == 0 {
		return
	}
	total := t.lost[stripe].total.Add(int64(nanos))
	if t.env.Lost != nil && total/lostNotice != (total-int64(nanos))/lostNotice {
		t.env.Lost(t)
	}
}
