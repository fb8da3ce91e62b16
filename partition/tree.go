package partition

import (
	"bytes"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// Env is what the trees of a store share, and what their owner does for them.
type Env struct {
	FS    vfs.FS
	Dir   string // of the store
	Files *Files

	// Memory is where memtables take their memory from; nil means the Go heap.
	Memory *offheap.Pool
	// Rows caches rows that lie in several runs; nil means no cache.
	Rows *rowcache.Cache
	// MemtableSize is the size, in bytes, at which a memtable is rotated out.
	MemtableSize int64
	// Table is the template for new table files; each gets its own UniqueID.
	Table sstable.WriterOptions
	// ValueThreshold is the length from which values go to value files; 0 means that none do.
	ValueThreshold int
	// UniqueID makes the identity of a new table or value file.
	UniqueID func() [16]byte
	// Compaction holds the sizes and triggers of the levels.
	Compaction compaction.Config
	// Lost, if not nil, is called now and then while reads of a tree lose time to runs that lie
	// over each other: Compact may find a compaction worth while. It must not block.
	Lost func(t *Tree)
	// Beside runs f while the caller does something else; wait returns its error.
	Beside func(f func() error) (wait func() error)
	// Stepped says that a test or simulation steps background work by hand, so nothing may
	// depend on chance: neither when Lost is called nor how a flush is divided.
	Stepped bool

	// ReadBack says that new table and value files are read back from the device.
	ReadBack bool

	// NextFile allocates a file number that was never used before.
	NextFile func() uint64
	// Commit makes the outcome of a flush or compaction durable in the manifest. It fails with
	// ErrStale if the table's options now require to keep more than kept.
	Commit func(table uint64, kept Kept, e *manifest.Edit) (*manifest.State, error)
	// Advance raises the table's expiry watermark to the present before a flush or compaction,
	// if the version oldest, in milliseconds, is expired.
	Advance func(table uint64, oldest int64) error
	// Policy says what a compaction that begins now may drop: it has the views of the open
	// snapshots and the latest view, the drop cutoff, and the tombstone horizon.
	Policy func(table uint64) compaction.Policy
	// MaxVersions is how many versions of each column a compaction must keep if mutations from
	// seq on may lie in newer runs: see mvcc.Policy.MaxVersions.
	MaxVersions func(table, seq uint64) int
	// Stopped is polled by long compactions; a non-nil error ends them.
	Stopped func() error
	// Helper asks for another goroutine of the class to run f, a part of a large compaction or
	// flush, once one is free, which may be never. It reports whether there is hope; a nil
	// Helper means there is none.
	Helper func(class executor.Class, f func()) bool
	// NowMillis is the wall clock, for the creation time of files.
	NowMillis func() int64

	// Work counts what flushes and compactions did.
	Work *Work

	Logger *slog.Logger

	getters   getters
	iterators sync.Pool // of *Iterator
}

// Work counts bytes of table files; Flushed and CompactedOut include value files.
type Work struct {
	Flushed                   atomic.Int64 // written from memtables
	CompactedIn, CompactedOut atomic.Int64 // read and written by compactions
	Moved                     atomic.Int64 // moved to a deeper level unchanged
	Dropped                   atomic.Int64 // dropped unread

	dirs sync.Map // directories already made durable: doing it for each file would cost a sync
}

// ErrStale says that a compaction must be done again: since it began, the table's options were
// changed to keep more than it kept.
var ErrStale = errors.New("partition: the table's options changed during a merge")

// errPartFailed ends the other parts of a compaction or flush when one part failed.
var errPartFailed = errors.New("partition: another part of the merge failed")

// ErrRefused says that an edit was not made, for lack of space for instance.
var ErrRefused = errors.New("partition: the manifest did not take the edit")

// Kept says what a compaction kept on purpose: that many versions of each column (0 means all),
// because mutations from NewerSeq on may lie in newer runs.
type Kept struct {
	Versions int
	NewerSeq uint64
}

// Tree is one partition. Reads are safe for concurrent use with everything. The owner serialises
// the write path (Reserve, Rotate). One Flush runs at a time, and any number of Compact calls.
type Tree struct {
	env     *Env
	table   uint64
	columns int // of the table's primary key
	id      uint64
	start   []byte
	end     []byte // nil: unbounded

	state   atomic.Pointer[state]
	lost    lost
	rotated atomic.Int64 // bytes reserved in memtables that were rotated out

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

	// running are the compactions under way. A compaction leaves the list when its output is
	// installed, or when it failed. So a goroutine that pins the state under the lock sees the
	// output of every successful compaction that is not listed.
	running struct {
		sync.Mutex
		candidates []*compaction.Candidate
	}
}

// NewTree makes the tree of a partition from its manifest entry, with an empty
// memtable. columns is the number of columns of the table's primary key.
func NewTree(env *Env, table uint64, columns int, meta *manifest.Partition) *Tree {
	t := &Tree{
		env: env, table: table, columns: columns,
		id: meta.ID, start: meta.Start, end: meta.End,
	}
	v := newVersion(env.Files, meta)
	t.setState(newState([]*memory{env.newMemory(meta.FlushedSeq + 1)}, v))
	v.unref() // the state holds it now
	return t
}

// newMemory makes an empty memtable for sequence numbers from startSeq on.
func (env *Env) newMemory(startSeq uint64) *memory {
	opts := memtable.Options{Memory: env.Memory}
	if env.Stepped {
		opts.Seed = startSeq + 1 // a flush divides the keys by the heights of towers
	}
	return &memory{table: memtable.New(opts), startSeq: startSeq}
}

// ID is the partition's id in the manifest.
func (t *Tree) ID() uint64 { return t.id }

// Contains reports whether the key lies in the partition's range.
func (t *Tree) Contains(key []byte) bool {
	return bytes.Compare(t.start, key) <= 0 && (t.end == nil || bytes.Compare(key, t.end) < 0)
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
	s.pins[stripe].count.Add(1)
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
}

// A Slot is a place in a memtable, reserved for one mutation.
type Slot struct {
	memory *memory
	size   int64
}

// Apply inserts the change. Changes of one row must be applied one after the other, in the order
// of their sequence numbers; the owner holds the row's latch. spare is how many of the reserved
// bytes were not needed, and waiting is how many of these had been counted as waiting for a
// flush.
func (s Slot) Apply(seq uint64, c *row.Change) (spare, waiting int64) {
	m := s.memory
	spare = s.size - m.table.Apply(seq, c)
	// Either Rotate sees the smaller size, or this call sees the rotation.
	if m.reserved.Add(-spare)&rotatedBit != 0 {
		waiting = spare
	}
	m.writers.Done()
	return spare, waiting
}

// Full reports whether the mutable memtable has no room for a mutation of that
// size. An empty memtable has room for anything.
func (t *Tree) Full(size int64) bool {
	m := t.state.Load().mutable()
	used := m.bytes()
	return used > 0 && used+size > t.env.MemtableSize
}

// Reserve reserves at most size bytes in the mutable memtable for a mutation. segment is the log
// segment that will hold it. The owner serialises calls of Reserve and Rotate, in the order of
// sequence numbers.
func (t *Tree) Reserve(size int64, segment uint64) Slot {
	m := t.state.Load().mutable()
	m.writers.Add(1)
	m.reserved.Add(size)
	m.segment.CompareAndSwap(0, segment)
	return Slot{m, size}
}

// Rotate replaces the mutable memtable with a new one; the old one then waits to be flushed.
// nextSeq is the first sequence number not given out yet. It returns the bytes reserved in the
// old memtable, or 0 if that was empty and stayed.
func (t *Tree) Rotate(nextSeq uint64) int64 {
	m := t.state.Load().mutable()
	if m.bytes() == 0 {
		return 0
	}
	moved := m.reserved.Or(rotatedBit)
	t.rotated.Add(moved)
	t.replace(func(old *state) *state {
		old.mutable().endSeq = nextSeq
		memories := append(append([]*memory(nil), old.memories...), t.env.newMemory(nextSeq))
		return newState(memories, old.version)
	})
	return moved
}

// MemoryBytes is how many bytes writers have reserved in the mutable memtable and in those that
// wait to be flushed.
func (t *Tree) MemoryBytes() (mutable, waiting int64) {
	s := t.pin()
	defer s.unref()
	for _, m := range s.waiting() {
		waiting += m.bytes()
	}
	return s.mutable().bytes(), waiting
}

// Written is how many bytes writers have reserved in the tree's memtables since the tree was
// made.
func (t *Tree) Written() int64 {
	return t.rotated.Load() + t.state.Load().mutable().bytes()
}

// OldestSegment is the oldest log segment that holds something not yet flushed, or 0 if the
// memtables are empty.
func (t *Tree) OldestSegment() uint64 {
	s := t.pin()
	defer s.unref()
	for _, m := range s.memories {
		if segment := m.segment.Load(); segment != 0 {
			return segment
		}
	}
	return 0
}

// MutableSegment is the oldest log segment that holds something of the mutable memtable, or 0 if
// that is empty.
func (t *Tree) MutableSegment() uint64 { return t.state.Load().mutable().segment.Load() }

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
// done. REQUIRES: no write will begin.
func (t *Tree) Drop(commit func() error) error {
	t.flushing.Lock()
	defer t.flushing.Unlock()
	t.compacting.Lock()
	defer t.compacting.Unlock()
	// Writes that have a place may still give back bytes that they do not need.
	for _, m := range t.state.Load().memories {
		m.writers.Wait()
	}
	if err := commit(); err != nil {
		return err
	}
	t.release(true)
	return nil
}

// Close lets go of the tree's files. REQUIRES: no write, flush or compaction runs or will begin.
func (t *Tree) Close() { t.release(false) }

func (t *Tree) release(obsolete bool) {
	t.dropped = true
	t.replace(func(old *state) *state {
		if obsolete {
			for _, level := range old.version.levels {
				for _, f := range level {
					f.obsolete.Store(true)
					for _, v := range f.values {
						v.obsolete.Store(true)
					}
				}
			}
		}
		meta := *old.version.meta
		meta.Levels = [manifest.NumLevels][]*manifest.FileMeta{}
		v := newVersion(t.env.Files, &meta)
		defer v.unref()
		// On the Go heap, because nothing frees this memtable.
		empty := &memory{table: memtable.New(memtable.Options{SlabSize: 1})}
		return newState([]*memory{empty}, v)
	})
}
