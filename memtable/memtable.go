package memtable

import (
	"bytes"
	"cmp"
	"hash/maphash"
	"math"
	"math/rand/v2"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/row"
)

// Options of a memtable. The zero Options are ready to use.
type Options struct {
	// SlabSize is the size in bytes of the first slab; later ones grow to 1 MiB. It is rounded up
	// to a power of two from 4 KiB to 1 MiB; 0 means 4 KiB. Values that are large for a slab get
	// one of their own.
	SlabSize int
	// Seed determines the heights of skiplist nodes: memtables with the same seed and history are
	// alike. 0 means a random seed, which clients cannot guess.
	Seed uint64
	// Memory is the pool for the slabs; nil is the Go heap. With a pool, Free must be called at
	// the end.
	Memory *offheap.Pool
}

const (
	minSlabSize = 4 << 10
	// nodeSlabShare divides SlabSize into the size of the first slab of row nodes, which are
	// small beside the cells. An empty memtable has only that slab.
	nodeSlabShare = 4
	// inlineLimit is the size up to which a packed part is stored right behind its row node.
	// Larger parts are allocated apart, so that the nodes, which a descent visits, share fewer
	// pages.
	//
	// With 50,000 rows of 1.2 KB (best of 3, quiet machine, one pass): parts apart, an insertion
	// took 1.0 us, a descent and read 1.3 us, a read through the hash 0.85 us; behind their nodes
	// 1.2, 1.9 and 0.78 us. In five alternating runs on a loaded machine insertion by 8 writers
	// was faster apart each time; the other differences were noise. With 300,000 rows of one
	// 100-byte cell on a loaded machine, parts behind their nodes made reads about twice and
	// iteration about three times as fast.
	inlineLimit = 256
	// nominalHeight is the tower height that Apply counts; the mean is 1.33.
	nominalHeight = 2
)

// Memtable is a sorted set of rows in memory; see the package comment. What an insertion needs is
// at its beginning, in three cache lines: with a thousand memtables each line is a miss.
type Memtable struct {
	head    link // of the row list: a node with a full tower and no key
	height  atomic.Uint32
	last    atomic.Uint32 // the row inserted last; inUse while a writer has it, ordered and recent
	ordered atomic.Bool   // rows come right behind the one inserted before them; stored by the writer that has last
	strays  uint8         // how many of the last rows did not, though the ones before them did
	seed    uint64
	rows    atomic.Int64
	pending pendingRows
	hash    rowHash
	nodes   region // row nodes, small packed parts
	data    region // larger packed parts, indexes
	arena   arena
	recent  rowSplice // if ordered: the place behind the row inserted last
}

// inUse is the link of no row: none begins in the last word of a slab.
const inUse = math.MaxUint32

// New returns an empty memtable.
func New(opts Options) *Memtable {
	m := new(Memtable)
	m.Init(opts)
	return m
}

// Init makes a zero Memtable an empty one.
func (m *Memtable) Init(opts Options) {
	slabSize := minSlabSize
	for slabSize < min(opts.SlabSize, maxSlabSize) {
		slabSize *= 2
	}
	m.seed = cmp.Or(opts.Seed, rand.Uint64())
	m.nodes.firstSize = slabSize / nodeSlabShare
	m.data.firstSize = slabSize
	m.arena.pool = opts.Memory
	m.hash.seed = maphash.MakeSeed()
	var p *rowNode
	m.head, p = m.newRowNode(maxHeight, 0)
	p.height = maxHeight
	for level := range maxHeight {
		p.next(level).Store(0)
	}
	m.height.Store(1)
	m.last.Store(uint32(m.head))
}

// Free returns the memory to the pool. REQUIRES: the memtable, and the memory that iterators
// returned, are no longer in use.
func (m *Memtable) Free() { m.arena.free() }

// Apply adds a normalized change at a sequence number. It copies the memory that the change
// refers to. Changes of different rows may be applied at the same time; those of one row must be
// applied one after the other, with rising sequence numbers. Readers may run at any time. OrderGroup does a part of the
// work later, if it is called.
//
// Apply leaves out a row marker that changes nothing for any reader: one of a row whose live
// marker in this memtable expires in the same second or later. A change without any other cell
// then adds only its sequence number.
//
// The result is about the bytes added to Used, at most EstimateSize and in the long run not less.
// It counts towers of nominalHeight, so that chance does not decide when a memtable is full.
func (m *Memtable) Apply(seq uint64, c *row.Change) (used int64) {
	marker, ok := c.Marker()
	if !ok {
		marker = noMarker
		if !c.DeleteRow && c.Cells().Len() == 0 {
			return 0
		}
	}
	hash := m.hash.of(c.Key)
	if m.comesNext(c.Key) {
		m.hash.expect(hash)
	} else if _, n := m.findRow(hash, c.Key); n != nil {
		return m.updateRow(n, seq, c, marker)
	}
	return m.insertRow(hash, seq, c, marker)
}

// comesNext reports whether the key belongs right behind the row inserted last, as keys in order do. Then the
// memtable does not hold the row, and its hash, where a look-up misses in each large table, need not be asked.
// The answer holds for the goroutine that writes the row: no other one can insert it.
func (m *Memtable) comesNext(key []byte) bool {
	last := link(m.last.Load())
	if last == inUse || !m.ordered.Load() || m.pending.rows.Load() > 0 || bytes.Compare(m.row(last).key(), key) >= 0 {
		return false
	}
	next := link(m.row(last).next(0).Load())
	return next == 0 || bytes.Compare(m.row(next).key(), key) > 0
}

// Hot is the size of the beginning of a Memtable, which Apply reads.
const Hot = int(unsafe.Offsetof(Memtable{}.arena) + unsafe.Sizeof(arena{}.bases))

// Expect prefetches what Apply reads behind the beginning: the slabs being filled. It reads nothing of them, so it may
// be called at any time, also after Free.
func (m *Memtable) Expect() {
	prefetch.Range(uintptr(unsafe.Pointer(m.nodes.current.Load())), int(unsafe.Sizeof(slab{})))
	prefetch.Range(uintptr(unsafe.Pointer(m.data.current.Load())), int(unsafe.Sizeof(slab{})))
}

// insertRow adds a row with its first change.
func (m *Memtable) insertRow(hash, seq uint64, c *row.Change, marker int64) (used int64) {
	height := towerHeight(mix64(m.seed + uint64(m.rows.Add(1))))
	size := packedSize(c.Cells())
	node := roundUp(rowHeader + height*linkSize + len(c.Key))
	var l, packed link
	var n *rowNode
	var part unsafe.Pointer
	if size <= inlineLimit {
		l, n = m.newRowNode(height, len(c.Key)+wordSize-1+size)
		packed, part = l+link(node/wordSize), unsafe.Add(unsafe.Pointer(n), node)
	} else {
		l, n = m.newRowNode(height, len(c.Key))
		packed, part = m.arena.alloc(&m.data, size)
	}
	n.packed, n.keyLen, n.height = packed, uint16(len(c.Key)), uint8(height)
	n.index.Store(0)
	copy(n.key(), c.Key)
	(*packedPart)(part).fill(seq, c, marker)
	if !m.linkInOrder(l, n, c.Key) {
		m.pend(l, n)
	}
	m.addRow(hash, l)
	return roundUp(rowHeader+nominalHeight*linkSize+len(c.Key)) + roundUp(size) + wordSize + hashBytesPerRow
}

// maxStrays is how many rows in succession may be out of order. One may lie anywhere, and rows go on behind the one
// before it; the second may begin another run of rows in order.
const maxStrays = 2

// linkInOrder puts a filled node into the list if rows come in order: right behind the row inserted last, or elsewhere
// after a descent. It returns false if rows do not come in order, or no longer.
func (m *Memtable) linkInOrder(l link, n *rowNode, key []byte) bool {
	if !m.ordered.Load() {
		return false
	}
	own := [1]descent{{key: key}}
	last := link(m.last.Swap(inUse))
	if last == inUse {
		m.descend(own[:])
		m.linkRow(l, n, key, &own[0].splice)
		return true
	}
	defer func() { m.last.Store(uint32(last)) }()
	s := &m.recent
	switch {
	case !m.ordered.Load():
		return false
	case m.follows(key, int(n.height), s):
		m.strays = 0
	case m.strays == maxStrays:
		m.strays = 0
		m.ordered.Store(false)
		return false
	default:
		m.strays++
		m.descend(own[:])
		s = &own[0].splice
	}
	m.linkRow(l, n, key, s)
	if m.strays != 1 {
		m.lastAt(l, s)
		last = l
	}
	return true
}

// lastAt notes the place behind the row l, which was inserted at s, which may be out of date. REQUIRES: the caller has last.
func (m *Memtable) lastAt(l link, s *rowSplice) {
	if s != &m.recent {
		m.recent = *s
	}
	for level := range int(m.row(l).height) {
		m.recent.prev[level] = l
	}
}

// newRowNode allocates a row node and extra bytes behind its tower.
func (m *Memtable) newRowNode(height, extra int) (link, *rowNode) {
	l, p := m.arena.alloc(&m.nodes, rowHeader+height*linkSize+extra)
	return l, (*rowNode)(p)
}

// updateRow adds a later change to a row.
func (m *Memtable) updateRow(n *rowNode, seq uint64, change *row.Change, marker int64) (used int64) {
	cells := change.Cells()
	if marker != noMarker && !change.DeleteRow && markerCovers(m.liveMarker(n), marker) {
		marker = noMarker
		if cells.Len() == 0 {
			return 0
		}
	}
	w := indexWriter{random: mix64(m.seed ^ mix64(seq)<<1)}
	w.init(m, n, seq)
	if marker != noMarker || change.DeleteRow {
		w.head.version = marker
	}
	var c row.Cell
	if change.DeleteRow {
		c = row.Cell{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow}
		w.insert(&c)
	}
	if marker != noMarker {
		c = row.Cell{Version: marker, Seq: seq, Kind: row.KindRowMarker}
		w.insert(&c)
	}
	reader := cells.Reader()
	c.Seq = seq
	for range cells.Len() {
		mustDecode(&reader, &c)
		w.insert(&c)
	}
	return w.used
}

// markerCovers reports whether a row with the marker have looks the same to every reader as one
// that also has the newer marker version.
func markerCovers(have, version int64) bool {
	const second = 1000 // versions are milliseconds, expiry compares seconds
	switch {
	case have == noMarker:
		return false
	case have == row.MaxVersion || version == row.MaxVersion:
		return have == row.MaxVersion
	}
	return have/second >= version/second
}

// EstimateSize returns an upper bound of the bytes that Apply adds to Used. It leaves out the
// waste at the end of a slab.
func EstimateSize(c *row.Change) int64 {
	const (
		node     = int64(rowHeader + maxHeight*linkSize + 2*wordSize + hashBytesPerRow)
		cell     = int64(cellHeader + maxHeight*linkSize + wordSize)
		heads    = 3 * cell // of three heights
		rowLevel = 2 * cell
	)
	cells := c.Cells()
	insert := node + int64(len(c.Key)+packedSize(cells))
	update := heads + rowLevel + int64(cells.Len())*cell + int64(len(cells.Bytes()))
	return max(insert, update)
}

// Size returns the bytes of memory that the memtable has reserved.
func (m *Memtable) Size() int64 { return m.arena.reserved.Load() }

// Used returns the bytes of memory that hold data; see EstimateSize. Size grows in steps of a
// slab.
func (m *Memtable) Used() int64 {
	return m.nodes.used() + m.data.used() + m.rows.Load()*hashBytesPerRow
}

// Rows returns the number of rows.
func (m *Memtable) Rows() int { return int(m.rows.Load()) }

// Empty reports whether there are no rows.
func (m *Memtable) Empty() bool { return m.rows.Load() == 0 }
