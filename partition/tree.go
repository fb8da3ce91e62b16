package partition

import (
	"bytes"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/valuefile"
)

// Tree is one partition. Reads are safe for concurrent use with everything. The owner serialises
// the write path (Reserve, Rotate). One Flush runs at a time, and any number of Compact calls.
type Tree struct {
	table uint64
	id    uint64
	rows  uint64 // the tree in the row cache
	start []byte
	end   []byte // nil: unbounded

	// began is the first sequence number that the tree could get if it replaced others. Memtables that
	// start below it are inherited: they may have rows outside of the tree's range.
	began uint64

	// since is a sequence number at which the partition's rows came from another store; 0 if they did not.
	// Views below it do not show them as they were.
	since uint64

	// From env to meter is what writes read.
	env  *Env
	held atomic.Pointer[Held]

	state   atomic.Pointer[state]
	mutable atomic.Pointer[memory] // of the state: a writer that holds the order lock finds it by one load
	meter   *load.Meter            // nil if nothing is measured
	rotated atomic.Int64           // bytes reserved in memtables that were rotated out

	// lost is the time that reads have lost, in nanoseconds. The stripe of a get follows from its
	// key: then the reads alone decide when ReadsLose is called, and not what a processor did
	// before. Scans lose at least a microsecond each, and share the first stripe.
	lost stripes

	// install serialises the replacement of the state. It is held for
	// microseconds only: Rotate takes it in the middle of a commit.
	install sync.Mutex

	// commits is held from the commit of an edit until its version is installed, so that
	// versions are installed in the order of the manifest's states.
	commits sync.Mutex

	// flushing is held during a flush. compacting is held shared during a compaction, and
	// exclusively by CompactRange and Drop. dropped is set under both when the partition is
	// gone.
	flushing   sync.Mutex
	compacting sync.RWMutex
	dropped    bool

	// yielding is above 0 while Alone waits or runs. successors is set once the tree was replaced.
	yielding   atomic.Int64
	successors atomic.Pointer[[]*Tree]

	// running are the compactions under way. A compaction leaves the list when its output is
	// installed, or when it failed. So a goroutine that pins the state under the lock sees the
	// output of every successful compaction that is not listed.
	running struct {
		sync.Mutex
		candidates []*compaction.Candidate
	}
}

// NewTree makes the tree of a partition from its manifest entry, with an empty
// memtable.
func NewTree(env *Env, table uint64, meta *manifest.Partition) *Tree {
	t := &Tree{
		env: env, table: table,
		id: meta.ID, start: meta.Start, end: meta.End,
	}
	if meta.Service != manifest.Serving {
		t.held.Store(&Held{meta.Service, meta.Reason})
	}
	if env.Rows != nil {
		t.rows = env.Rows.NewState()
	}
	t.setState(newState([]*memory{env.newMemory(meta.FlushedSeq + 1)}, newVersion(env.Files, meta)))
	return t
}

// Measure lets a meter count what is read from the tree and written to it. REQUIRES: the tree is not used
// yet.
func (t *Tree) Measure(m *load.Meter) { t.meter = m }

// Load is the meter of the tree, nil if there is none.
func (t *Tree) Load() *load.Meter { return t.meter }

// ID is the partition's id in the manifest.
func (t *Tree) ID() uint64 { return t.id }

// Bounds are the first key of the partition's range, and the one behind it; nil is unbounded.
func (t *Tree) Bounds() (start, end []byte) { return t.start, t.end }

// Contains reports whether the key lies in the partition's range.
func (t *Tree) Contains(key []byte) bool {
	return bytes.Compare(t.start, key) <= 0 && (t.end == nil || bytes.Compare(key, t.end) < 0)
}

// Table is the id of the partition's table.
func (t *Tree) Table() uint64 { return t.table }

// overlaps reports whether a file has, or may have, keys of the partition's range.
func (t *Tree) overlaps(f *manifest.FileMeta) bool {
	return bytes.Compare(t.start, f.Largest) <= 0 && (t.end == nil || bytes.Compare(f.Smallest, t.end) < 0)
}

// pin returns the current state, pinned. The caller ends the pin with unref.
func (t *Tree) pin() *state { return t.pinStripe(0) }

// pinStripe returns the current state, pinned in a stripe.
func (t *Tree) pinStripe(stripe uint32) *state {
	for {
		if s := t.state.Load(); t.tryPin(s, stripe) {
			return s
		}
	}
}

// tryPin pins a state that was the tree's a moment ago, and reports whether the pin counts. It
// counts if the state is still the tree's, since the pin then precedes the replacement.
func (t *Tree) tryPin(s *state, stripe uint32) bool {
	s.pins.of(stripe).Add(1)
	if t.state.Load() == s {
		return true
	}
	s.unpin(stripe)
	return false
}

// replace installs the state that change makes from the current one.
func (t *Tree) replace(change func(old *state) *state) {
	t.install.Lock()
	defer t.install.Unlock()
	old := t.state.Load()
	t.setState(change(old))
	old.retire()
}

// setState makes a new state the tree's.
func (t *Tree) setState(s *state) {
	if t.env.Rows != nil {
		s.id = t.env.Rows.NewState()
	}
	t.state.Store(s)
	t.mutable.Store(s.mutable())
}

// writeStripe is the meter's stripe for all writes: more of them would be more cache lines to miss.
const writeStripe = 0

// A Slot is a place in a memtable, reserved for one mutation.
type Slot struct {
	memory *memory
	size   int64
}

// Apply inserts the change. Changes of one row must be applied one after the other, in the order
// of their sequence numbers; the owner holds the row's latch. spare is how many of the reserved
// bytes were not needed, and waiting is how many of these had been counted as waiting for a
// flush. Done follows it.
func (s Slot) Apply(seq uint64, c *row.Change) (spare, waiting int64) {
	m := s.memory
	spare = s.size - m.table.Apply(seq, c)
	// Either Rotate sees the smaller size, or this call sees the rotation.
	if m.reserved.Add(-spare)&rotatedBit != 0 {
		waiting = spare
	}
	return spare, waiting
}

// Done ends the use of the slot, when no later write waits for this one. The memtable may be flushed then.
func (s Slot) Done() {
	s.memory.table.OrderGroup()
	s.memory.writers.Done()
}

// Full reports whether the mutable memtable has no room for a mutation of that
// size. An empty memtable has room for anything.
func (t *Tree) Full(size int64) bool {
	m := t.mutable.Load()
	used := m.bytes()
	return used > 0 && used+size > t.env.MemtableSize
}

// Reserve reserves at most size bytes in the mutable memtable for a mutation. One of the log's segments
// oldest to newest holds it. The owner serialises calls of Reserve and Rotate, in the order of
// sequence numbers.
func (t *Tree) Reserve(size int64, oldest, newest uint64) Slot {
	m := t.mutable.Load()
	m.writers.Add(1)
	m.reserved.Add(size)
	if m.newest.Load() != newest {
		m.segment.CompareAndSwap(0, oldest)
		m.newest.Store(newest)
	}
	return Slot{m, size}
}

// A write meets the tree, then its memory, then what that leads to, each through a pointer in the one before.
// With a thousand partitions each is a cache miss, most of them under the owner's order lock. Expect,
// ExpectMemory and ExpectApply prefetch them, if they are called in this order while the write is made.

// Expect prefetches what finds the tree's memory.
func (t *Tree) Expect() {
	hot := unsafe.Offsetof(t.env)
	prefetch.Range(uintptr(unsafe.Pointer(t))+hot, int(unsafe.Offsetof(t.rotated)-hot))
}

// ExpectMemory prefetches what Reserve, Wrote and Slot.Apply use of the memory and the meter.
func (t *Tree) ExpectMemory() {
	prefetch.Range(uintptr(unsafe.Pointer(t.mutable.Load())), int(unsafe.Offsetof(memory{}.table))+memtable.Hot)
	if t.meter != nil {
		t.meter.Expect(writeStripe)
	}
}

// ExpectApply prefetches what Slot.Apply reads next.
func (t *Tree) ExpectApply() { t.mutable.Load().table.Expect() }

// Wrote counts a change for which Reserve reserved memory. Values count as they were put.
func (t *Tree) Wrote(c *row.Change) {
	if t.meter == nil {
		return
	}
	size := len(c.Key) + len(c.Cells().Bytes())
	if c.Packs() {
		var cell row.Cell
		r := c.Cells().Reader()
		for range c.Cells().Len() {
			if r.Next(&cell) != nil { // never: the change was normalized
				break
			}
			if cell.Packed {
				size += valuefile.PackedAway(cell.Value)
			}
		}
	}
	t.meter.Write(writeStripe, c.Key, size)
}

// Rotate replaces the mutable memtable with a new one; the old one then waits to be flushed.
// nextSeq is the first sequence number not given out yet. It returns the bytes reserved in the
// old memtable, or 0 if that was empty and stayed.
func (t *Tree) Rotate(nextSeq uint64) int64 {
	m := t.mutable.Load()
	if m.bytes() == 0 {
		return 0
	}
	moved := m.reserved.Or(rotatedBit)
	t.rotated.Add(moved)
	t.replace(func(old *state) *state {
		return newState(append(slices.Clone(old.memories), t.env.newMemory(nextSeq)), old.version)
	})
	return moved
}

// MemoryBytes is how many bytes writers have reserved in the mutable memtable and in those that
// wait to be flushed. Trees that share a memtable after a split share its bytes.
func (t *Tree) MemoryBytes() (mutable, waiting int64) {
	s := t.pin()
	defer s.unref()
	for _, m := range s.waiting() {
		waiting += m.bytes() / max(m.holders.Load(), 1)
	}
	return s.mutable().bytes(), waiting
}

// Written is how many bytes writers have reserved in the tree's memtables since the tree was
// made.
func (t *Tree) Written() int64 {
	return t.rotated.Load() + t.mutable.Load().bytes()
}

// OldestSegment is the oldest log segment that holds something not yet flushed, or 0 if the
// memtables are empty. What the tree had when it was replaced counts.
func (t *Tree) OldestSegment() (oldest uint64) {
	consider := func(segment uint64) {
		if segment != 0 && (oldest == 0 || segment < oldest) {
			oldest = segment
		}
	}
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories { // inherited ones are not in the order of their first writes
		consider(m.segment.Load())
	}
	for _, next := range t.Successors() {
		consider(next.OldestSegment())
	}
	return oldest
}

// Holds reports whether a memtable that was not flushed may hold a mutation that is below a sequence
// number and lies in a log segment from segment on, which is at least 1.
func (t *Tree) Holds(below, segment uint64) bool {
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories {
		if m.newest.Load() >= segment && m.startSeq < below {
			return true
		}
	}
	return slices.ContainsFunc(t.Successors(), func(next *Tree) bool { return next.Holds(below, segment) })
}

// MutableSegment is the oldest log segment that holds something of the mutable memtable, or 0 if
// that is empty.
func (t *Tree) MutableSegment() uint64 { return t.mutable.Load().segment.Load() }

// Meta is the partition's current manifest entry.
func (t *Tree) Meta() *manifest.Partition {
	s := t.pin()
	defer s.unref()
	return s.version.meta
}

// FlushedSeq is the sequence number up to which the table files are complete.
func (t *Tree) FlushedSeq() uint64 { return t.Meta().FlushedSeq }

// Drop runs commit, which removes the partition from the manifest, while no flush or compaction
// runs. Then it lets go of the files, which are deleted when the last reader that pinned them is
// done. It returns the bytes that were reserved in memtables that no other tree holds. REQUIRES: no
// write will begin.
func (t *Tree) Drop(commit func() error) (freed int64, err error) {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	t.compacting.Lock()
	defer t.compacting.Unlock()
	// Writes that have a place may still give back bytes that they do not need.
	for _, m := range t.state.Load().memories {
		m.writers.Wait()
	}
	if err := commit(); err != nil {
		return 0, err
	}
	for _, m := range t.state.Load().memories {
		freed += m.letGo()
	}
	t.state.Load().version.markObsolete(new(manifest.State)) // which names no file
	t.Close()
	return freed, nil
}

// Close lets go of the tree's files. REQUIRES: no write, flush or compaction runs or will begin.
func (t *Tree) Close() {
	t.dropped = true
	t.replace(func(old *state) *state {
		meta := *old.version.meta
		meta.Levels = [manifest.NumLevels][]*manifest.FileMeta{}
		// On the Go heap, because nothing frees this memtable.
		empty := new(memory)
		empty.table.Init(memtable.Options{SlabSize: 1})
		return newState([]*memory{empty}, newVersion(t.env.Files, &meta))
	})
}
