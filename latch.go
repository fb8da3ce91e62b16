package flagstone

import (
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
)

// latches order the writers of a row. A writer holds the latch of every row it
// touches from before it reads (if it does) until its mutations are in the log
// buffer and in the memtables, but not while they are synced: a hot row is
// limited by the CPU, not by the disk.
//
// Latches are striped: two rows may share one, which only makes them wait.
type latches struct {
	stripes [latchStripes]sync.Mutex
}

const latchStripes = 1024

// rowHash is a hash of a row of a table.
func rowHash(table uint64, key []byte) uint64 { return xxhash.Sum64(key) ^ table*0x9E3779B97F4A7C15 }

// stripeOf is the latch of the rows with a hash.
func stripeOf(hash uint64) uint32 { return uint32(hash % latchStripes) }

// lockAll locks a set of stripes in ascending order, so that two batches never
// wait for each other, and returns the set without repeats, for unlockAll.
func (l *latches) lockAll(stripes []uint32) []uint32 {
	slices.Sort(stripes)
	stripes = slices.Compact(stripes)
	for _, i := range stripes {
		l.stripes[i].Lock()
	}
	return stripes
}

func (l *latches) unlockAll(stripes []uint32) {
	for _, i := range stripes {
		l.stripes[i].Unlock()
	}
}

// pass returns when every latch has been free for a moment: whoever held one
// when it was called has let go of it.
func (l *latches) pass() {
	for i := range l.stripes {
		l.stripes[i].Lock()
		//lint:ignore SA2001 waiting is all it is for
		l.stripes[i].Unlock()
	}
}

// lockEverything stops all writers between two writes.
func (l *latches) lockEverything() {
	for i := range l.stripes {
		l.stripes[i].Lock()
	}
}

func (l *latches) unlockEverything() {
	for i := range l.stripes {
		l.stripes[i].Unlock()
	}
}
