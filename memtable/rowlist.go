package memtable

// The row list: a skiplist of row nodes, sorted by key, with lock-free
// insertion and no removal.
//
//	row node = prev packed index keyLen height (rowHeader bytes)
//	           tower: height links, next row of each level
//	           key
//
// The tower has only the levels of its node. prev leads to some earlier row: the predecessor,
// except while rows are being inserted between the two, and then a reader walks on from there. It
// makes stepping backward cheap. Of a row that is pending it leads to the one that pends before it.
//
// A level holds a quarter of the nodes of the level below.
//
// The key is right behind the tower, mostly in the cache line of the link that led to it, so it
// is compared as bytes. The first eight bytes are the same in most keys of a table (a tag, the
// beginning of the partition key); keeping them as an integer would seldom decide. Aligning nodes
// to cache lines made no measurable difference.

import (
	"bytes"
	"math/bits"
	"sync/atomic"
	"unsafe"
)

const (
	// maxHeight is enough for 4^maxHeight nodes, 16 million.
	maxHeight = 12
	rowHeader = int(unsafe.Sizeof(rowNode{}))
	linkSize  = 4
)

// rowNode is the fixed part of a row node; tower and key follow it in memory.
type rowNode struct {
	prev   atomic.Uint32
	packed link          // first mutation, see packed.go
	index  atomic.Uint32 // head of the index of later mutations, see cellindex.go; 0 before the second
	keyLen uint16
	height uint8
}

func (m *Memtable) row(l link) *rowNode { return (*rowNode)(m.arena.at(l)) }

func (n *rowNode) next(level int) *atomic.Uint32 {
	return (*atomic.Uint32)(unsafe.Add(unsafe.Pointer(n), rowHeader+level*linkSize))
}

func (n *rowNode) key() []byte {
	at := unsafe.Add(unsafe.Pointer(n), rowHeader+int(n.height)*linkSize)
	return unsafe.Slice((*byte)(at), int(n.keyLen))
}

// rowSplice is the place of a key in the row list: at each level the last row
// before it and the first row at or after it.
type rowSplice struct {
	prev, next [maxHeight]link
}

// follows reports whether key belongs right behind the row at s.prev[0], as keys in order do. If
// so, it makes s the place of the key for a node of that height. A descent costs some ten cache
// misses, this none.
func (m *Memtable) follows(key []byte, height int, s *rowSplice) bool {
	for level := range height {
		if s.prev[level] != m.head && bytes.Compare(m.row(s.prev[level]).key(), key) >= 0 {
			return false
		}
		prev, next := s.prev[level], link(m.row(s.prev[level]).next(level).Load())
		if next != 0 && bytes.Compare(m.row(next).key(), key) < 0 {
			if level == 0 {
				return false
			}
			prev, next = m.findAtLevel(key, level, prev, 0)
		}
		s.prev[level], s.next[level] = prev, next
	}
	return true
}

// findAtLevel walks one level from prev, a row before key, to the last row
// before key and returns it and its successor. after is a row known to be at
// or after key, or nil.
func (m *Memtable) findAtLevel(key []byte, level int, prev, after link) (link, link) {
	n := m.row(prev)
	for {
		next := link(n.next(level).Load())
		if next == 0 || next == after {
			return prev, next
		}
		nextNode := m.row(next)
		if level > 0 {
			// The next row is probably this one. Loading its line now overlaps two cache misses,
			// which saves a tenth of the time of a small insertion.
			if below := link(n.next(level - 1).Load()); below != 0 && below != next {
				m.row(below).index.Load()
			}
		}
		if bytes.Compare(nextNode.key(), key) >= 0 {
			return prev, next
		}
		prev, n = next, nextNode
	}
}

// findBracket returns the last row before key (the head of the list if there
// is none) and the first row at or after it (nil if there is none).
func (m *Memtable) findBracket(key []byte) (before, atOrAfter link) {
	before = m.head
	for level := int(m.height.Load()) - 1; level >= 0; level-- {
		before, atOrAfter = m.findAtLevel(key, level, before, atOrAfter)
	}
	return before, atOrAfter
}

// findLast returns the last row, or the head of the list if it is empty.
func (m *Memtable) findLast() link {
	l := m.head
	for level := int(m.height.Load()) - 1; level >= 0; level-- {
		for next := link(m.row(l).next(level).Load()); next != 0; next = link(m.row(l).next(level).Load()) {
			l = next
		}
	}
	return l
}

// findPredecessor returns the row before n, whose link is l, or the head.
func (m *Memtable) findPredecessor(l link, n *rowNode) link {
	prev := link(n.prev.Load())
	for {
		next := link(m.row(prev).next(0).Load())
		if next == l {
			return prev
		}
		prev = next
	}
}

// linkRow puts a filled node into the list at s, the place of its key, which may be out of date.
func (m *Memtable) linkRow(l link, n *rowNode, key []byte, s *rowSplice) {
	height := int(n.height)
	for top := m.height.Load(); int(top) < height && !m.height.CompareAndSwap(top, uint32(height)); {
		top = m.height.Load()
	}
	for level := range height {
		prev, next := s.prev[level], s.next[level]
		for {
			n.next(level).Store(uint32(next))
			if level == 0 {
				n.prev.Store(uint32(prev))
			}
			if m.row(prev).next(level).CompareAndSwap(uint32(next), uint32(l)) {
				break
			}
			prev, next = m.findAtLevel(key, level, prev, 0)
		}
		if level == 0 && next != 0 {
			m.advancePrev(m.row(next), prev, l, key)
		}
	}
}

// advancePrev makes the back link of next lead to the new row l with this key, unless it already
// leads to a later row, inserted meanwhile. prev is the predecessor of l.
func (m *Memtable) advancePrev(next *rowNode, prev, l link, key []byte) {
	for {
		have := link(next.prev.Load())
		if have != prev && have != m.head && bytes.Compare(m.row(have).key(), key) > 0 {
			return
		}
		if next.prev.CompareAndSwap(uint32(have), uint32(l)) {
			return
		}
	}
}

// towerHeight turns random bits into the height of a node.
func towerHeight(random uint64) int {
	return min(1+bits.TrailingZeros64(random)/2, maxHeight)
}

// mix64 is the finalizer of SplitMix64: it turns a counter into random bits.
func mix64(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}
