// Package rowcache keeps rows as a reader found them whose reading took time:
// rows that lie in several runs, or were updated in a memtable, and had to be put
// together. A row that one run holds as a whole is none of them: the block cache
// has it.
//
// What a reader finds depends on where it looks (the runs of a partition, which
// change only with the partition's state), on the mutations of the row that came
// since the last of these runs was closed, and on its view. A Moment names all of
// that, so a cached row need not be told when something changes: it is found
// again only by a reader for whom nothing has.
//
// A row lies in the ring of its shard, which is written round and round: the row
// that is overwritten next is the one that was put there first. A row that is found
// in the last quarter is written anew, so rows that are in use stay.
//
//	ring   the entries, one behind the other; none reaches over the end
//	entry  header, cells, key, names and values
//	slots  where the entries are: two places for each hash of a row
//	seen   which rows were asked for and not found, so that a row is taken in only
//	       when it is asked for again
//
// All of it lies off the Go heap. Readers copy what they find, under the lock of
// the shard, which takes them less than a tenth of a microsecond.
package rowcache

import (
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/row"
)

const (
	maxShards = 16
	// minShard is the least size of one of several shards.
	minShard = 64 << 10
	// maxEntry: beside the copying of a larger row its judging is small.
	maxEntry = 16 << 10
	// slotShare: one slot for so many bytes, fewer than any row takes.
	slotShare = 256
)

// Cache holds rows. Methods are safe for concurrent use.
type Cache struct {
	memory  *offheap.Pool
	reserve func(bytes int64)
	shards  []shard
	inUse   atomic.Bool // there has been a row
	states  atomic.Uint64
}

// New makes a cache of so many bytes, all included. They are taken from memory
// when the first rows come, and reserve is told how many.
func New(capacity int64, memory *offheap.Pool, reserve func(bytes int64)) *Cache {
	n := 1
	for n < maxShards && capacity/int64(2*n) >= minShard {
		n *= 2
	}
	c := &Cache{memory: memory, reserve: reserve, shards: make([]shard, n)}
	for i := range c.shards {
		c.shards[i].capacity = int(max(capacity, 0)) / n
	}
	return c
}

// NewState returns a name for a state of a partition: no other has it.
func (c *Cache) NewState() uint64 { return c.states.Add(1) }

// Stats are what was found since the cache was made, and its present size.
type Stats struct {
	Hits  uint64
	Bytes int64 // taken from memory
}

// Stats sums over the shards.
func (c *Cache) Stats() (total Stats) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		total.Hits += s.hits
		total.Bytes += int64(cap(s.memory))
		s.mu.Unlock()
	}
	return total
}

// Close gives the memory back. A store that is closed does not wait for its readers:
// those that come later find nothing, and what they put is not kept.
func (c *Cache) Close() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		c.memory.Free(s.memory)
		s.memory, s.ring, s.slots, s.seen = nil, nil, nil, nil
		s.closed = true
		s.mu.Unlock()
	}
}

// Moment is what the cells that a reader finds of a row depend on.
type Moment struct {
	State uint64 // of the partition; see NewState
	// Newest is the sequence number of the row's newest mutation in the memtables
	// of the state, 0 if they do not have the row.
	Newest uint64
	// Seq, MaxVersions and Oldest are of the reader's view: what it sees, how many
	// versions of a column, and the smallest version that is not expired.
	Seq         uint64
	MaxVersions int
	Oldest      int64
}

// Wanted is what a reader wants of a row: the cells that the projection wants of
// those with versions from MinVersion to MaxVersion.
type Wanted struct {
	row.Projection
	MinVersion, MaxVersion int64
	NoCells                bool // whether the row exists is all that is wanted
}

// Get appends what is wanted of a row to dst, if the row is there. hash is of the
// key.
func (c *Cache) Get(hash uint64, key []byte, at *Moment, w *Wanted, dst *row.Collector) bool {
	if !c.inUse.Load() {
		return false
	}
	s := c.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil {
		return false
	}
	i := s.find(hash)
	if i < 0 {
		return false
	}
	e := s.entry(s.slots[i].at)
	if !e.holds(at) || string(e.key()) != string(key) {
		return false
	}
	e.collect(w, dst)
	s.hits++
	s.renew(i)
	return true
}

// Put notes that a reader put a row together: all cells that its view shows, and
// at least one. Of a row that was noted before the cells are kept. REQUIRES: the
// reader's view shows every mutation of the row that the state's files hold, and
// those in its memtables up to at.Newest.
func (c *Cache) Put(hash uint64, key []byte, at *Moment, cells []row.Cell) {
	s := c.shard(hash)
	size, data, ok := sizeOf(key, cells, s.capacity)
	if !ok {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ring == nil && !c.make(s) || size > len(s.ring) {
		return
	}
	i := s.find(hash)
	if i < 0 {
		if note := &s.seen[hash&s.mask]; *note != uint32(hash>>32) {
			*note = uint32(hash >> 32)
			return
		}
		i = s.victim(hash)
	}
	s.slots[i] = slot{hash: hash, at: s.place(size)}
	e := s.entry(s.slots[i].at)
	*e = entry{
		Moment: *at, minVersion: cells[0].Version,
		size: uint32(size), keyLen: uint32(len(key)), cells: uint32(len(cells)), data: uint32(data),
	}
	e.fill(key, cells)
}

// shard is chosen by bits of the hash that no shard uses for its slots.
func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>56&uint64(len(c.shards)-1)] }

// make takes the memory of a shard; false if it is too small for anything, or the
// cache is closed.
func (c *Cache) make(s *shard) bool {
	if s.closed {
		return false
	}
	slots := 2
	for slots < s.capacity/slotShare {
		slots *= 2
	}
	slotBytes, seenBytes := slots*int(unsafe.Sizeof(slot{})), slots*4
	ring := (s.capacity - slotBytes - seenBytes) &^ 7
	if ring < int(unsafe.Sizeof(entry{})) {
		return false
	}
	s.memory = c.memory.Alloc(slotBytes + seenBytes + ring)
	c.reserve(int64(cap(s.memory)))
	head := s.memory[:slotBytes+seenBytes]
	clear(head)
	s.slots = unsafe.Slice((*slot)(unsafe.Pointer(&head[0])), slots)
	s.seen = unsafe.Slice((*uint32)(unsafe.Pointer(&head[slotBytes])), slots)
	s.ring, s.mask = s.memory[slotBytes+seenBytes:], uint64(slots-1)
	c.inUse.Store(true)
	return true
}

// shard is a part of the cache, with its lock.
type shard struct {
	mu       sync.Mutex
	capacity int
	memory   []byte // all of the following
	ring     []byte
	slots    []slot // a power of two
	seen     []uint32
	mask     uint64
	head     uint64 // bytes that were written to the ring since it was made
	hits     uint64
	closed   bool
	_        [64]byte // keeps neighbouring shards' locks off this cache line
}

// slot says where an entry is: one more than the bytes that were written to the
// ring before it; 0 if there never was one.
type slot struct{ hash, at uint64 }

// alive reports whether the entry of a slot is not overwritten.
func (s *shard) alive(l *slot) bool { return l.at > 0 && s.head-(l.at-1) <= uint64(len(s.ring)) }

// find returns the slot of a hash, or -1.
func (s *shard) find(hash uint64) int {
	for _, i := range [2]uint64{hash & s.mask, hash&s.mask ^ 1} {
		if l := &s.slots[i]; l.hash == hash && s.alive(l) {
			return int(i)
		}
	}
	return -1
}

// victim returns the slot for a new entry: that of the older one of two.
func (s *shard) victim(hash uint64) int {
	i := hash & s.mask
	if s.slots[i^1].at < s.slots[i].at {
		i ^= 1
	}
	return int(i)
}

func (s *shard) entry(at uint64) *entry {
	return (*entry)(unsafe.Pointer(&s.ring[(at-1)%uint64(len(s.ring))]))
}

// place takes so many bytes, a multiple of eight, of the ring, and returns where
// they are, as slots say it.
func (s *shard) place(size int) (at uint64) {
	n := uint64(len(s.ring))
	if rest := n - s.head%n; rest < uint64(size) {
		s.head += rest
	}
	at = s.head + 1
	s.head += uint64(size)
	return at
}

// renew writes an entry that will be overwritten soon once more.
func (s *shard) renew(i int) {
	l := &s.slots[i]
	n := uint64(len(s.ring))
	if s.head-(l.at-1) <= n-n/4 {
		return
	}
	from, size := (l.at-1)%n, uint64(s.entry(l.at).size)
	l.at = s.place(int(size))
	to := (l.at - 1) % n
	copy(s.ring[to:to+size], s.ring[from:from+size]) // which may overlap
}
