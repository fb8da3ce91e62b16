package memtable

// Rows that are not in the row list yet. A row at random costs a descent of some ten cache misses that depend on each
// other. So writers leave new rows in a stack, and one of them puts a group of them into the list: their descents take
// turns, and while one waits for a node from memory the others go on. Whoever reads the list puts in first what is
// there. The row hash has every row at once.
//
//	Apply ──► row hash ──► point reads
//	  └─────► pending ──OrderGroup──► row list ──► ordered reads
//
// Rows that come in order go to the list directly.

import (
	"bytes"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/prefetch"
)

const (
	// groupRows is how many descents take turns.
	groupRows = 32
	// mostStacked: Apply puts rows into the list when so many are on the stack, so that a reader mostly puts in no more
	// than these, which takes some 80 us.
	mostStacked = 4 * groupRows
	// looks is how often a reader looks before it sleeps, some 15 us (an estimate): a group takes about as long, and a
	// goroutine that sleeps runs late.
	looks = 1000
)

// pendingRows are rows that are in the hash and not in the list.
type pendingRows struct {
	stack atomic.Uint64 // how many rows are on it, and, in the lower half, the newest; prev of each leads to the one before
	rows  atomic.Int32  // not in the list; counted before they are on the stack
	mu    sync.RWMutex  // writers share it while they put rows into the list, and a reader has it alone
}

// stacked is how many rows are on the stack.
func (p *pendingRows) stacked() int { return int(p.stack.Load() >> 32) }

// pend leaves a filled node to be put into the list.
func (m *Memtable) pend(l link, n *rowNode) {
	m.pending.rows.Add(1)
	for {
		before := m.pending.stack.Load()
		n.prev.Store(uint32(before))
		if m.pending.stack.CompareAndSwap(before, (before>>32+1)<<32|uint64(l)) {
			break
		}
	}
	if m.pending.stacked() >= mostStacked {
		m.tryLinkPending()
	}
}

// OrderGroup puts rows into the list if there is a group of them, which takes some 20 us, or if others come in order
// meanwhile. Writers call it when their change is applied, and no later one waits for that.
func (m *Memtable) OrderGroup() {
	if n := m.pending.stacked(); n >= groupRows || n > 0 && m.ordered.Load() {
		m.tryLinkPending()
	}
}

// tryLinkPending puts rows into the list, unless a reader does so or waits for that.
func (m *Memtable) tryLinkPending() {
	if m.pending.mu.TryRLock() {
		m.linkPending()
		m.pending.mu.RUnlock()
	}
}

// order puts all rows that were applied into the list.
func (m *Memtable) order() {
	for look := 0; m.pending.rows.Load() > 0; look++ {
		if look == looks {
			m.pending.mu.Lock()
		} else if !m.pending.mu.TryLock() {
			continue
		}
		m.linkPending()
		m.pending.mu.Unlock()
		return
	}
}

// linkPending puts what is on the stack into the list, in the order of insertion. REQUIRES: pending.mu is held.
func (m *Memtable) linkPending() {
	var oldest, next, before link
	for l := link(m.pending.stack.Swap(0)); l != 0; oldest, l = l, next { // reverse the stack
		next = link(m.row(l).prev.Load())
		m.row(l).prev.Store(uint32(oldest))
	}
	for oldest != 0 {
		oldest, before = m.linkGroup(oldest, before)
	}
}

// linkGroup puts the rows from oldest on into the list, at most a group of them. before is the row that came before
// these, 0 if that is not known. It returns the next row, 0 if there is none, and the last one that it put in.
func (m *Memtable) linkGroup(oldest, before link) (next, last link) {
	var group [groupRows]descent
	n := 0
	for ; n < groupRows && oldest != 0; n++ {
		r := m.row(oldest)
		group[n].at, group[n].key = oldest, r.key()
		oldest = link(r.prev.Load())
	}
	m.descend(group[:n])
	for i := range n {
		d := &group[i]
		m.linkRow(d.at, m.row(d.at), d.key, &d.splice)
	}
	m.pending.rows.Add(int32(-n))
	if n > 1 {
		before = group[n-2].at
	}
	if oldest == 0 {
		m.judgeOrder(&group[n-1], before)
	}
	return oldest, group[n-1].at
}

// judgeOrder decides whether rows come in order, if they did not: the last one that was put into the list lies right
// behind the one before it.
func (m *Memtable) judgeOrder(d *descent, before link) {
	last := link(m.last.Swap(inUse))
	if last == inUse {
		return
	}
	if !m.ordered.Load() {
		if before == 0 {
			before = last
		}
		if last = d.at; link(m.row(last).prev.Load()) == before {
			m.ordered.Store(true)
			m.lastAt(last, &d.splice)
		}
	}
	m.last.Store(uint32(last))
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
