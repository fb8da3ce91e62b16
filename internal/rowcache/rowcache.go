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
//	seen   rows that were read and not found, so that a row is taken in only
//	       when it is read several times before others take its place
//
// Ring and slots lie off the Go heap, and are made when the first row is taken in. Readers copy what
// they find, under the lock of the shard, in less than a tenth of a microsecond. A reader that meets
// another one there does without the cache: many that read one row on many processors would wait for
// each other, and the table files let them all in.
//
// A look costs a miss or two of the processor's caches, up to a tenth of a get. Where few looks find
// something, since all rows are read alike, only one get in some sixty looks.
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
	// sightings is how often a row is offered before it is taken in.
	sightings = 4
	// hitWorth: a hit saves at least what so many looks in vain cost.
	hitWorth = 8
	// patience: so many looks in vain for which no hit made up end the looking.
	patience = 64
	// lookAgain: then one get in so many looks.
	lookAgain = 61
)

// Cache holds rows. Methods are safe for concurrent use.
type Cache struct {
	memory  *offheap.Pool
	reserve func(bytes int64)
	shards  []shard
	states  atomic.Uint64
}

// New makes a cache of so many bytes in total. They are allocated when the first rows come, and
// reserve is called with their number.
func New(capacity int64, memory *offheap.Pool, reserve func(bytes int64)) *Cache {
	n := 1
	for n < maxShards && capacity/int64(2*n) >= minShard {
		n *= 2
	}
	c := &Cache{memory: memory, reserve: reserve, shards: make([]shard, n)}
	for i := range c.shards {
		s := &c.shards[i]
		s.capacity = int(max(capacity, 0)) / n
		slots := 2
		for slots < s.capacity/slotShare {
			slots *= 2
		}
		s.seen, s.mask = make([]uint32, slots), uint64(slots-1)
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
		total.Bytes += int64(cap(s.memory))
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
		s.memory, s.ring, s.slots = nil, nil, nil
		s.closed = true
		s.mu.Unlock()
	}
}

// Moment is what the cells that a reader finds of a row depend on.
type Moment struct {
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

// Source is where a reader may have to look for a row if the cache does not have it.
type Source int

const (
	// FilesAlone: no memtable has anything of it.
	FilesAlone Source = iota
	// Memtables have something of it, and often all.
	Memtables
	sources
)

// Asks reports whether a reader of a row is to look for it and to offer it. Looks for rows of one source say
// nothing about the other.
func (c *Cache) Asks(hash uint64, from Source) bool {
	s := c.shard(hash)
	return s.vain[from].Load() < patience || s.asked.Add(1)%lookAgain == 0
}

// Get appends the wanted cells of a row to dst, if the cache has the row and no other reader is in its shard.
// hash is of the key and its partition.
func (c *Cache) Get(hash uint64, key []byte, from Source, at *Moment, w *Wanted, dst *row.Collector) bool {
	s := c.shard(hash)
	if !s.mu.TryLock() {
		return false
	}
	defer s.mu.Unlock()
	vain := &s.vain[from]
	i := s.find(hash)
	if i < 0 {
		vain.Store(min(vain.Load()+1, patience))
		return false
	}
	e := s.entry(s.slots[i].at)
	if !e.holds(at) || string(e.key()) != string(key) {
		vain.Store(min(vain.Load()+1, patience))
		return false
	}
	vain.Store(max(vain.Load()-hitWorth, 0))
	e.collect(w, dst)
	s.hits++
	s.renew(i)
	return true
}

// Put offers a row that a reader found elsewhere: all cells that its view shows, and at least one.
// The cache keeps it if the row was offered several times and no other reader is in its shard. REQUIRES: the
// reader's view shows every mutation of the row in the state's files, and those in its memtables up to at.Newest.
func (c *Cache) Put(hash uint64, key []byte, at *Moment, cells []row.Cell) {
	s := c.shard(hash)
	size, data, ok := sizeOf(key, cells, s.capacity)
	if !ok || !s.mu.TryLock() {
		return
	}
	defer s.mu.Unlock()
	i := s.find(hash)
	if i < 0 && !s.seenOften(hash) || s.ring == nil && !c.make(s) || size > len(s.ring) {
		return
	}
	if i < 0 {
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

// shard chooses by bits of the hash that no shard uses for its slots.
func (c *Cache) shard(hash uint64) *shard { return &c.shards[hash>>56&uint64(len(c.shards)-1)] }

// make allocates the memory of a shard. It returns false if the shard is too small for anything,
// or the cache is closed.
func (c *Cache) make(s *shard) bool {
	if s.closed {
		return false
	}
	slotBytes := len(s.seen) * int(unsafe.Sizeof(slot{}))
	ring := (s.capacity - slotBytes) &^ 7
	if ring < entrySize {
		return false
	}
	s.memory = c.memory.Alloc(slotBytes + ring)
	c.reserve(int64(cap(s.memory)))
	head := s.memory[:slotBytes]
	clear(head)
	s.slots = unsafe.Slice((*slot)(unsafe.Pointer(&head[0])), len(s.seen))
	s.ring = s.memory[slotBytes:]
	return true
}

// shard is a part of the cache, with its lock.
type shard struct {
	mu       sync.Mutex
	capacity int
	seen     []uint32 // upper halves of hashes, whose lowest bits count sightings; a power of two
	mask     uint64
	memory   []byte // slots and ring
	slots    []slot // as many as seen
	ring     []byte
	head     uint64 // bytes written to the ring since it was made
	hits     uint64
	closed   bool
	_        [64]byte              // keeps what all readers read off the cache line of the lock
	vain     [sources]atomic.Int32 // looks in vain for which no hit made up, up to patience; changed under mu
	asked    atomic.Uint32         // how often, while few look
	_        [64]byte
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

// seenOften counts a sighting of a row and reports whether it is the last one needed.
func (s *shard) seenOften(hash uint64) bool {
	seen, none := &s.seen[hash&s.mask], uint32(hash>>32)&^(sightings-1)
	if *seen&^(sightings-1) != none {
		*seen = none
	}
	if *seen == none+sightings-1 {
		return true
	}
	*seen++
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

func (s *shard) entry(at uint64) *entry {
	return (*entry)(unsafe.Pointer(&s.ring[(at-1)%uint64(len(s.ring))]))
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
	from, size := (l.at-1)%n, uint64(s.entry(l.at).size)
	l.at = s.place(int(size))
	to := (l.at - 1) % n
	copy(s.ring[to:to+size], s.ring[from:from+size]) // the two may overlap
}
