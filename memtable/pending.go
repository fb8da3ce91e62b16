package memtable

// Rows that are not in the row list yet. A row at random costs a descent of some ten cache misses that depend on each
// other. So writers leave new rows in a stack, and one of them puts a group of them into the list: their descents take
// turns, and while one waits for a node from memory the others go on. Whoever reads the list puts in first what is
// there. The row hash has every row at once.
//
//	Apply ──► row hash ──► point reads
//	  └─────► pending ──OrderGroup──► row list ──► ordered reads
//
// Rows that come in order go to the list directly: they need no descent.

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

const (
	// groupRows is how many descents take turns.
	groupRows = 32
	// mostPending: with so many rows pending, a writer waits for a reader that has the lock.
	mostPending = 16 * groupRows
)

// pendingRows are rows that are in the hash and not in the list.
type pendingRows struct {
	newest atomic.Uint32 // a stack: prev of each leads to the one before
	rows   atomic.Int32  // until they are in the list; counted before they are on the stack
	mu     sync.RWMutex  // writers share it while they put groups into the list, and a reader has it alone
}

// pend leaves a filled node to be put into the list.
func (m *Memtable) pend(l link, n *rowNode) {
	m.pending.rows.Add(1)
	for {
		before := m.pending.newest.Load()
		n.prev.Store(before)
		if m.pending.newest.CompareAndSwap(before, uint32(l)) {
			return
		}
	}
}

// OrderGroup puts rows into the list if there is a group of them, which takes some 20 us. Writers call it when their
// changes are visible, so that no other writer waits for it.
func (m *Memtable) OrderGroup() {
	rows := m.pending.rows.Load()
	if rows < groupRows {
		return
	}
	if rows >= mostPending {
		m.pending.mu.RLock()
	} else if !m.pending.mu.TryRLock() {
		return
	}
	m.linkPending()
	m.pending.mu.RUnlock()
}

// order puts all rows that were applied into the list.
func (m *Memtable) order() {
	if m.pending.rows.Load() > 0 {
		m.pending.mu.Lock()
		m.linkPending()
		m.pending.mu.Unlock()
	}
}

// linkPending puts what is on the stack into the list, in the order of insertion. REQUIRES: pending.mu is held.
func (m *Memtable) linkPending() {
	var oldest, next link
	for l := link(m.pending.newest.Swap(0)); l != 0; oldest, l = l, next { // reverse the stack
		next = link(m.row(l).prev.Load())
		m.row(l).prev.Store(uint32(oldest))
	}
	var group [groupRows]descent
	for oldest != 0 {
		n := 0
		for ; n < groupRows && oldest != 0; n++ {
			r := m.row(oldest)
			group[n].at, group[n].key = oldest, r.key()
			oldest = link(r.prev.Load())
		}
		m.linkGroup(group[:n])
		m.pending.rows.Add(int32(-n))
	}
}

// linkGroup puts the rows of some descents into the list.
func (m *Memtable) linkGroup(group []descent) {
	m.descend(group)
	last := link(m.last.Swap(inUse))
	before := last
	for i := range group {
		d := &group[i]
		m.linkRow(d.at, m.row(d.at), d.key, &d.splice)
		if i < len(group)-1 {
			before = d.at
		}
	}
	if last != inUse {
		d := &group[len(group)-1]
		m.inserted(d.at, before, &d.splice)
	}
}

// descent is the search for the place of a row.
type descent struct {
	at     link // the row
	key    []byte
	level  int  // of the search, -1 when it is done
	prev   link // the last row that is known to be before the key,
	after  link // the first row that is known to be at or after it, or 0,
	next   link // and the one to compare with now
	splice rowSplice
}

// descend finds the places of all rows of a group.
func (m *Memtable) descend(group []descent) {
	top := int(m.height.Load())
	for i := range group {
		d := &group[i]
		d.level, d.prev, d.after = top-1, m.head, 0
		for level := top; level < maxHeight; level++ {
			d.splice.prev[level], d.splice.next[level] = m.head, 0
		}
		m.look(d)
	}
	for left := true; left; {
		left = false
		for i := range group {
			if d := &group[i]; d.level >= 0 {
				m.step(d)
				left = true
			}
		}
	}
}

// step compares with the next row, which was prefetched a turn ago, and prefetches the one after it.
func (m *Memtable) step(d *descent) {
	if bytes.Compare(m.row(d.next).key(), d.key) < 0 {
		d.prev = d.next
	} else {
		d.after = d.next
	}
	m.look(d)
}

// look goes down to the level where there is a row to compare with, and prefetches that.
func (m *Memtable) look(d *descent) {
	for n := m.row(d.prev); d.level >= 0; d.level-- {
		next := link(n.next(d.level).Load())
		if next != 0 && next != d.after {
			d.next = next
			prefetch.Range(uintptr(m.arena.at(next)), prefetch.Line)
			return
		}
		d.splice.prev[d.level], d.splice.next[d.level] = d.prev, next
	}
}
