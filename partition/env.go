package partition

// What the trees of a store share, and what they ask of it.

import (
	"encoding/binary"
	"errors"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/sstable"
)

// Manifest records which files the trees have. Its methods are safe for concurrent use.
type Manifest interface {
	// NextFile allocates a file number that was never used before.
	NextFile() uint64
	// ValueFile returns what is known of a live value file; false for any other number.
	ValueFile(number uint64) (usage manifest.ValueUsage, live bool)
	// Commit makes the outcome of a flush or compaction durable. It fails with ErrStale if the
	// table's options now require to keep more than kept, and with ErrRefused if the manifest is
	// as it was for another reason.
	Commit(table uint64, kept Kept, e *manifest.Edit) (*manifest.State, error)
}

// Retention says what a flush or compaction has to keep. Its methods are safe for concurrent use.
type Retention interface {
	// Advance raises the table's expiry watermark to the present before a flush or compaction,
	// if the version oldest, in milliseconds, is expired.
	Advance(table uint64, oldest int64) error
	// Policy says what a compaction that begins now may drop: it has the views of the open
	// snapshots and the latest view, the drop cutoff, and the tombstone horizon.
	Policy(table uint64) compaction.Policy
	// MaxVersions is how many versions of each column a compaction must keep if mutations from
	// seq on may lie in newer runs: see mvcc.Policy.MaxVersions.
	MaxVersions(table, seq uint64) int
}

// Scheduler decides when flushes and compactions run. Its methods are safe for concurrent use.
type Scheduler interface {
	// Cancelled returns nil, or the error with which a flush or compaction under way has to end.
	Cancelled() error
	// Yield is called by a flush or compaction under way, after every slice of 20 to 50 microseconds.
	// It does short work that is more urgent, and lets other threads go first unless writers are held back.
	Yield()
	// ReadsLose is called now and then while reads of a tree lose time to runs that lie over each
	// other: Compact may find a compaction worth while. It must not block.
	ReadsLose(t *Tree)
}

// Settings say how the trees of a store lay out their data. Sizes are bytes.
type Settings struct {
	// MemtableSize is the size at which a memtable is rotated out.
	MemtableSize int64
	// Table is the template for new table files; each gets its own UniqueID.
	Table sstable.WriterOptions
	// ValueThreshold is the length from which values go to value files; 0 means that none do.
	ValueThreshold int
	// PackValues says that value files compress what does not come packed: the records of change feeds.
	PackValues bool
	// Compaction holds the sizes and triggers of the levels.
	Compaction compaction.Config
	// ReadBack says that new table and value files are read back from the device.
	ReadBack bool
}

// Env is what the trees of a store share. It must not be copied once a tree uses it.
type Env struct {
	Settings
	FS    vfs.FS
	Dir   string // of the store
	Files *tablefiles.Registry
	// Memory is where memtables take their memory from; nil means the Go heap.
	Memory *offheap.Pool
	// Rows caches rows that are read again and again; nil means no cache.
	Rows *rowcache.Cache
	// Clock has the wall clock for the creation time of files.
	Clock clock.Clock
	// Random makes random bytes: the identity of a table or value file, or the seed of a
	// memtable. No two calls return the same.
	Random func() [16]byte

	Manifest  Manifest
	Retention Retention
	Scheduler Scheduler
	Executor  executor.Executor
	// Events gets flushes and compactions; it may be nil.
	Events *event.Source

	// Work counts what flushes and compactions did.
	Work Work

	dirs      sync.Map  // directories already made durable: doing it for each file would cost a sync
	getters   sync.Pool // of *Getter
	iterators sync.Pool // of *Iterator
	stripes   atomic.Uint32
}

// Work counts bytes of table files; Flushed, CompactedOut and Loaded include value files.
type Work struct {
	Flushed                   atomic.Int64 // written from memtables
	CompactedIn, CompactedOut atomic.Int64 // read and written by compactions
	Moved                     atomic.Int64 // moved to a deeper level unchanged
	Dropped                   atomic.Int64 // dropped unread
	Loaded                    atomic.Int64 // written for installations
}

// ErrStale says that a compaction must be done again: since it began, the table's options were
// changed to keep more than it kept.
var ErrStale = errors.New("partition: the table's options changed during a merge")

// ErrRefused says that an edit was not made, for lack of space for instance.
var ErrRefused = errors.New("partition: the manifest did not take the edit")

// Kept says what a compaction kept on purpose: that many versions of each column (0 means all),
// because mutations from NewerSeq on may lie in newer runs.
type Kept struct {
	Versions int
	NewerSeq uint64
}

// newMemory makes an empty memtable for sequence numbers from startSeq on.
func (env *Env) newMemory(startSeq uint64) *memory {
	seed := env.Random()
	m := &memory{startSeq: startSeq}
	m.table.Init(memtable.Options{Memory: env.Memory, Seed: binary.LittleEndian.Uint64(seed[:])})
	m.holders.Store(1)
	return m
}
