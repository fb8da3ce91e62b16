package flagstone

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	"runtime"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/wal"
)

// SyncMode says what an acknowledged write has survived.
type SyncMode int

const (
	// SyncAlways acknowledges a write when it is durable. The default.
	SyncAlways SyncMode = iota
	// SyncNone acknowledges a write when it is in the log's buffer. After a
	// crash the store holds a prefix of the writes. When only the process dies,
	// only writes of the last 100 ms may be missing, and of these those whose
	// log was not handed to the system yet, as happens as soon as 128 KiB have
	// gathered (and at 5 MiB at the latest, if the system is slow to take it).
	// When the machine dies, those since the last Flush, or change of a table's
	// options or of the set of tables, may be missing.
	SyncNone
)

// Compression says how blocks of table files are compressed. A block that does
// not become smaller by an eighth is stored as it is.
type Compression int

const (
	// CompressionS2 is fast and light, the default.
	CompressionS2 Compression = iota
	// CompressionZstd is denser and slower.
	CompressionZstd
	// CompressionNone stores blocks as they are.
	CompressionNone
)

// table is the compression as package sstable numbers it.
func (c Compression) table() sstable.Compression {
	switch c {
	case CompressionZstd:
		return sstable.CompressZstd
	case CompressionNone:
		return sstable.CompressNone
	}
	return sstable.CompressS2
}

// TableReads says how table files are read.
type TableReads int

const (
	// TableReadsAuto maps table files while all of the store take less than
	// half of the memory that the process may use. The default. Blocks that are
	// not in the page cache are read by calls also then. If the files take more
	// than twice that memory, most of what the page cache does not have is read
	// past it, which leaves it to what is read often.
	TableReadsAuto TableReads = iota
	// TableReadsMapped maps every table file.
	TableReadsMapped
	// TableReadsDirect reads by calls alone.
	TableReadsDirect
)

// access is the choice as package partition names it.
func (r TableReads) access() partition.Access {
	switch r {
	case TableReadsMapped:
		return partition.AccessMapped
	case TableReadsDirect:
		return partition.AccessDirect
	}
	return partition.AccessAuto
}

// Options configure a Store. The zero value is a good start. Sizes are bytes;
// zero picks the default, and very small values are legal (they make small
// stores with many levels, which tests like).
type Options struct {
	// Sync says when a write is acknowledged.
	Sync SyncMode
	// MemoryBudget bounds the memtables of all tables together, those that are
	// being flushed included. Default 256 MiB.
	MemoryBudget int64
	// MemtableSize is the size at which one partition's memtable is flushed.
	// Default 64 MiB, at most a quarter of MemoryBudget and 2 GiB.
	MemtableSize int64
	// TableFileSize is the target size of table files. Default 64 MiB.
	TableFileSize int64
	// WALSegmentSize is the size of log segments. Default 16 MiB.
	WALSegmentSize int64
	// PartitionSplitSize is the size at which a partition is to be split.
	// Default 10 GiB. Partitions are not split yet.
	PartitionSplitSize int64
	// CacheSize bounds the cache of decompressed blocks, and of rows that lie in
	// several runs, which take up to a sixteenth of it. Default 256 MiB.
	CacheSize int64
	// TableReads says how table files are read. Default TableReadsAuto.
	TableReads TableReads
	// VerifyInterval is how long the verification of a value that is read through a
	// mapping is believed. A read that begins less than the interval after the
	// beginning of one that verified the value may return it as the mapping has it by
	// then, without verifying it: scans so for values in table files, and all reads for
	// values in value files, which have 16 KiB and more. Any later read verifies.
	// Negative: nothing is believed, every read verifies what it uses. 0 stands for
	// DefaultVerifyInterval. All else is verified whenever it is read from a file: keys,
	// columns, what is deleted, values that a get reads, what goes to a cache. Indexes
	// and filters are verified when a file is opened, and stay in memory. So whatever the
	// interval is, no row or column is wrongly absent.
	VerifyInterval time.Duration
	// Compression of table blocks. Default CompressionS2. Large values, which are
	// not in blocks, are compressed by S2, unless it is CompressionNone.
	Compression Compression
	// ReadBack reads every table and value file of a flush or merge back from the device
	// and compares it with what was meant to be in it, before the log or the files that it
	// replaces are let go. If it differs, the flush or merge fails with ErrCorrupt and is
	// tried again later. Without it the device is believed, and a write that it lost or
	// changed is found by the next reader. It makes a merge take a fifth longer, and a
	// flush of large values more than twice as long (BENCHMARKS.md). The manifest and
	// the files that a checkpoint copies are always read back.
	ReadBack bool
	// ReadOnly opens the store without writing to it: the log is read into
	// memory, nothing is flushed, and writes fail with ErrReadOnly.
	ReadOnly bool
	// Logger receives events. Default: none.
	Logger *slog.Logger
	// Shared holds what several stores of one process have in common. Default:
	// this store has its own.
	Shared *Shared
	// Seams replaces the file system, the clock and the executor in tests.
	Seams Seams
}

// Shared is what the stores of one process may share: memory off the Go heap,
// the block cache in it, the goroutines of background work, and those that help
// reads. Close it after the last store.
type Shared struct {
	memory   *offheap.Pool
	cache    *sstable.BlockCache
	rows     *rowcache.Cache
	executor executor.Executor
	helpers  *assist.Helpers
}

// rowShare is the share of the block cache's size that rows may take of it which
// lie in several runs and are read again and again.
const rowShare = 16

// NewShared makes what stores may share: a block cache of cacheSize bytes, and
// background workers.
func NewShared(cacheSize int64) *Shared {
	return newShared(cacheSize, newPool(), offheap.New(offheap.Options{}))
}

func newShared(cacheSize int64, workers executor.Executor, memory *offheap.Pool) *Shared {
	s := &Shared{memory: memory, executor: workers, helpers: assist.New(min(runtime.GOMAXPROCS(0), runtime.NumCPU()) - 1)}
	s.cache = sstable.NewBlockCache(cache.Options{Capacity: cacheSize, Memory: s.memory})
	s.rows = rowcache.New(cacheSize/rowShare, s.memory, s.cache.Reserve)
	return s
}

// Close ends the background workers and gives the memory back. REQUIRES: every
// store that uses it is closed.
func (s *Shared) Close() error {
	s.executor.Close()
	s.helpers.Close()
	return s.release()
}

// release gives the memory back.
func (s *Shared) release() error {
	s.rows.Close()
	s.cache.Close()
	return s.memory.Close()
}

// Seams are the doors to the machine: nil fields stand for the real ones. The
// types are internal; programs that embed Flagstone leave them alone.
type Seams struct {
	FS       vfs.FS
	Clock    clock.Clock
	Executor executor.Executor
	// Memory is where memtables, blocks and buffers lie, if Options.Shared is nil. Close
	// closes it.
	Memory *offheap.Pool
	// Helpers take over work of reads. A store whose Executor is given has none, unless
	// it is given some: they would make a history depend on the moment.
	Helpers *assist.Helpers
	// UniqueID makes the identities of files, of which no two may be the same, not
	// even of two stores. What a block takes in a file depends on it now and then, by a
	// byte: checksums are made with it, and references to values have checksums.
	UniqueID func() [16]byte
	// ValueThreshold is the length from which values go to value files; 0 stands
	// for the default, a negative number for none.
	ValueThreshold int
	// BlockSize is the size that blocks of tables aim at, in bytes; 0 stands for the
	// default.
	BlockSize int
	// Levels replaces the shape of the trees, as far as its fields are set.
	Levels compaction.Config
}

// newPool makes the goroutines that background work runs on: one flush and one
// compaction at a time per two cores would starve neither; two of each is the
// least that keeps a long compaction from delaying a short one.
func newPool() executor.Executor {
	return executor.NewPool([executor.Classes]int{
		executor.Flush: 2, executor.Compaction: 2, executor.Log: 4, executor.Cleanup: 1,
	})
}

// DefaultVerifyInterval is Options.VerifyInterval where that is 0. To verify at every
// access takes a scan a tenth to a quarter more of the processor, and a read of a large
// value twice as much and more: BENCHMARKS.md has the figures.
const DefaultVerifyInterval = 10 * time.Second

const (
	mib = 1 << 20
	gib = 1 << 30
)

// withDefaults fills in what was left open and checks the rest. Errors are
// ErrInvalid.
func (o Options) withDefaults() (Options, error) {
	defaults := []struct {
		name  string
		value *int64
		def   int64
	}{
		{"MemoryBudget", &o.MemoryBudget, 256 * mib},
		{"MemtableSize", &o.MemtableSize, 64 * mib},
		{"TableFileSize", &o.TableFileSize, 64 * mib},
		{"WALSegmentSize", &o.WALSegmentSize, wal.DefaultSegmentSize},
		{"PartitionSplitSize", &o.PartitionSplitSize, 10 * gib},
		{"CacheSize", &o.CacheSize, 256 * mib},
	}
	for _, d := range defaults {
		if *d.value < 0 {
			return o, fmt.Errorf("%w: Options.%s is %d bytes", ErrInvalid, d.name, *d.value)
		}
		if *d.value == 0 {
			*d.value = d.def
		}
	}
	if o.Sync != SyncAlways && o.Sync != SyncNone {
		return o, fmt.Errorf("%w: Options.Sync is %d", ErrInvalid, o.Sync)
	}
	if o.Compression < 0 || o.Compression > CompressionNone {
		return o, fmt.Errorf("%w: Options.Compression is %d", ErrInvalid, o.Compression)
	}
	if o.TableReads < 0 || o.TableReads > TableReadsDirect {
		return o, fmt.Errorf("%w: Options.TableReads is %d", ErrInvalid, o.TableReads)
	}
	// A memtable ends at 4 GiB, see package memtable, and one write may exceed the size.
	o.MemtableSize = min(o.MemtableSize, max(o.MemoryBudget/4, 1), 2*gib)
	if o.VerifyInterval == 0 {
		o.VerifyInterval = DefaultVerifyInterval
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Seams.FS == nil {
		o.Seams.FS = vfs.OS()
	}
	if o.Seams.Clock == nil {
		o.Seams.Clock = clock.System()
	}
	if o.Seams.UniqueID == nil {
		o.Seams.UniqueID = func() (id [16]byte) {
			rand.Read(id[:])
			return id
		}
	}
	return o, nil
}

// valueThreshold is the length from which values go to value files, 0 if none do.
func (o Options) valueThreshold() int {
	if o.Seams.ValueThreshold == 0 {
		return partition.ValueThreshold
	}
	return max(o.Seams.ValueThreshold, 0)
}

// levels derives the shape of the trees from the options.
func (o Options) levels() compaction.Config {
	cfg := o.Seams.Levels
	cfg.TableFileSize = o.TableFileSize
	return cfg
}
