// Package rowcache keeps rows that are read again and again, as a reader found them: put together of several
// runs and of updates in a memtable, or copied from the block of a table file.
//
// What a reader finds depends on the runs of the partition, which change only with its state; on
// the row's mutations since the last of these runs was closed; and on the reader's view. A
// Moment names all of that, so changes do not have to invalidate a cached row: only a reader for
// which nothing changed finds it.
//
// A row lies in the ring of its shard, which is overwritten in a circle, oldest row first. A row
// that is found in the oldest quarter is written again, so rows in use stay.
//
//	ring   the entries, one behind the other; none wraps around the end
//	entry  header, cells, key, names and values
//	slots  where the entries are: two places for each hash of a row
//	seen   rows that were offered and not taken, so that a row is taken only
//	       when it is offered several times before others take its place
//	gates  whether lookups pay: gate.go
//
// Ring and slots lie off the Go heap. A reader copies what it finds, under the lock of the shard: a kilobyte in
// less than a tenth of a microsecond. If another one is there it does not wait, and reads the row
// elsewhere: table files serve many readers of one row at once.
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
	// minShard is the least size of a shard, if there are several.
	minShard = 64 << 10
	// maxEntry: for a larger row, copying takes much longer than putting it together.
	maxEntry = 16 << 10
	// slotShare: there is at least one slot for so many bytes of capacity.
	slotShare = 256
	// offers is how often a row is offered until it is taken, a power of two. Behind a closed gate an offer counts
	// twice: few are made, so a row that is offered again is read often.
	offers = 4
	// reserveStep is how much memory is reserved at a time.
	reserveStep = 16 << 10
)

// Cache holds rows. Methods are safe for concurrent use.
type Cache struct {
	memory  *offheap.Pool
	reserve func(bytes int64)
	shards  []shard
	gates   [gates]gate
	states  atomic.Uint64
}

// New makes a cache of so many bytes in total. As rows come, reserve is called with how many more bytes they take.
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

// NewState returns a unique id for a state of a partition.
func (c *Cache) NewState() uint64 { return c.states.Add(1) }

// Stats are the hits since the cache was made, and its present size.
type Stats struct {
	Hits  uint64
	Bytes int64 // taken from memory
}

// Stats returns the sums over the shards.
func (c *Cache) Stats() (total Stats) {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		total.Hits += s.hits
		total.Bytes += s.reserved
		s.mu.Unlock()
	}
	return total
}

// Close gives the memory back. A store that is closed does not wait for its readers: later ones
// find nothing, and what they put is not kept.
func (c *Cache) Close() {
	for i := range c.shards {
		s := &c.shards[i]
		s.mu.Lock()
		c.memory.Free(s.memory)
		s.memory, s.ring, s.slots, s.seen, s.reserved = nil, nil, nil, nil, 0
		s.closed = true
		s.mu.Unlock()
	}
}

// Moment is what the cells that a reader finds of a row depend on.
type Moment struct {
	Tree  uint64 // the partition, also a number of NewState: other stores have partitions of the same id
	State uint64 // of the partition; see NewState
	// Newest is the sequence number of the row's newest mutation in the state's memtables, 0 if
	// they do not have the row.
	Newest uint64
	// Seq, MaxVersions and Oldest are of the reader's view: its sequence number, its limit of
	// versions of a column, and the smallest version that is not expired.
	Seq         uint64
	MaxVersions int
	Oldest      int64
}

// Wanted is what a reader wants of a row: the cells of the projection with versions from
// MinVersion to MaxVersion.
type Wanted struct {
	row.Projection
	MinVersion, MaxVersion int64
	NoCells                bool // the reader only asks whether the row exists
}

// Get appends the wanted cells of a row to dst, if the cache has the row and no other reader is in its shard.
// hash is of the key.
func (c *Cache) Get(hash uint64, key []byte, at *Moment, w *Wanted, dst *row.Collector) bool {
	g := c.gate(hash, at)
	hash ^= at.Tree
	s := c.shard(hash)
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	i := s.find(hash)
	if i < 0 || !s.entry(i).holds(at, key) {
		g.missed()
		return false
	}
	e := s.entry(i)
	g.hit(e.merged)
	e.collect(w, dst)
	s.hits++
	s.renew(i)
	c.reserveFor(s)
	return true
}

// Put offers a row that a reader found elsewhere: all cells that its view shows, and at least one. merged says that
// they had to be put together. The cache takes the row if it was offered often and no other reader is in its shard.
// REQUIRES: the reader's view shows every mutation of the row in the state's files, and those in its memtables up to
// at.Newest.
func (c *Cache) Put(hash uint64, key []byte, at *Moment, cells []row.Cell, merged bool) {
	weight := uint32(1)
	if !c.gate(hash, at).open() {
		weight = 2
	}
	hash ^= at.Tree
	s := c.shard(hash)
	if !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	if s.ring == nil && !c.make(s) {
		return
	}
	i := s.find(hash)
	switch {
	case i < 0 && !s.offered(hash, weight):
		return
	case i < 0:
		i = s.victim(hash)
	case s.entry(i).holds(at, key): // another reader was faster
		return
	}
	size, data, ok := sizeOf(key, cells, len(s.ring))
	if !ok {
		return
	}
	s.slots[i] = slot{hash: hash, at: s.place(size)}
	e := s.entry(i)
	*e = entry{
		Moment: *at, minVersion: cells[0].Version, merged: merged,
		size: uint32(size), keyLen: uint32(len(key)), cells: uint32(len(cells)), data: uint32(data),
	}
	e.fill(key, cells)
	c.reserveFor(s)
}

// shard chooses by bits of the hash that no shard uses for its slots.
func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>56&uint64(len(c.shards)-1)] }

// make allocates the memory of a shard. It returns false if the shard is too small for anything,
// or the cache is closed.
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
	if ring < entrySize {
		return false
	}
	s.memory = c.memory.Alloc(slotBytes + seenBytes + ring)
	head := s.memory[:slotBytes+seenBytes]
	clear(head)
	s.slots = unsafe.Slice((*slot)(unsafe.Pointer(&head[0])), slots)
	s.seen = unsafe.Slice((*uint32)(unsafe.Pointer(&head[slotBytes])), slots)
	s.ring, s.mask = s.memory[slotBytes+seenBytes:], uint64(slots-1)
	c.reserveFor(s)
	return true
}

// reserveFor reserves what the shard uses of its memory, in steps: all before the ring, and of that
// what was written once.
func (c *Cache) reserveFor(s *shard) {
	written := min((s.head/reserveStep+1)*reserveStep, uint64(len(s.ring)))
	if used := int64(cap(s.memory)-len(s.ring)) + int64(written); used > s.reserved {
		c.reserve(used - s.reserved)
		s.reserved = used
	}
}

// shard is a part of the cache, with its lock.
type shard struct {
	mu       sync.Mutex
	capacity int
	memory   []byte // all of the following
	reserved int64  // of it
	ring     []byte
	slots    []slot   // a power of two
	seen     []uint32 // upper halves of hashes, whose lowest bits count offers
	mask     uint64
	head     uint64 // bytes written to the ring since it was made
	hits     uint64
	closed   bool
	_        [64]byte // keeps neighbouring shards' locks off this cache line
}

// slot says where an entry is: one more than the bytes written to the ring before it, or 0 if
// there never was one.
type slot struct{ hash, at uint64 }

// alive reports whether the entry of a slot is not overwritten.
func (s *shard) alive(l *slot) bool { return l.at > 0 && s.head-(l.at-1) <= uint64(len(s.ring)) }

// find returns the slot of a hash, or -1.
func (s *shard) find(hash uint64) int {
	if s.ring == nil {
		return -1
	}
	for _, i := range [2]uint64{hash & s.mask, hash&s.mask ^ 1} {
		if l := &s.slots[i]; l.hash == hash && s.alive(l) {
			return int(i)
		}
	}
	return -1
}

// offered counts an offer of a row and reports whether it is the last one needed.
func (s *shard) offered(hash uint64, weight uint32) bool {
	const count = offers - 1 // the bits of seen that count
	seen, tag := &s.seen[hash&s.mask], uint32(hash>>32)&^count
	if *seen&^count != tag {
		*seen = tag
	}
	if *seen&count+weight >= offers {
		*seen = tag
		return true
	}
	*seen += weight
	return false
}

// victim returns the slot for a new entry: the older one of two.
func (s *shard) victim(hash uint64) int {
	i := hash & s.mask
	if s.slots[i^1].at < s.slots[i].at {
		i ^= 1
	}
	return int(i)
}

// entry is that of a slot. REQUIRES: the slot is alive.
func (s *shard) entry(slot int) *entry {
	return (*entry)(unsafe.Pointer(&s.ring[(s.slots[slot].at-1)%uint64(len(s.ring))]))
}

// place takes size bytes, a multiple of eight, from the ring, and returns their position as
// slot.at has it.
func (s *shard) place(size int) (at uint64) {
	n := uint64(len(s.ring))
	if rest := n - s.head%n; rest < uint64(size) {
		s.head += rest
	}
	at = s.head + 1
	s.head += uint64(size)
	return at
}

// renew writes an entry once more if it will be overwritten soon.
func (s *shard) renew(i int) {
	l := &s.slots[i]
	n := uint64(len(s.ring))
	if s.head-(l.at-1) <= n-n/4 {
		return
	}
	from, size := (l.at-1)%n, uint64(s.entry(i).size)
	l.at = s.place(int(size))
	to := (l.at - 1) % n
	copy(s.ring[to:to+size], s.ring[from:from+size]) // the two may overlap
}
