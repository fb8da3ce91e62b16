package flagstone

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"runtime"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/internal/recovery"
	"github.com/flagstone-db/flagstone/internal/rowcache"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/wal"
)

// SyncMode says when a write is acknowledged, and so what can be lost.
type SyncMode int

const (
	// SyncAlways acknowledges a write when it is durable. The default.
	SyncAlways SyncMode = iota
	// SyncNone acknowledges a write when it is in the log's buffer. After a crash the store holds
	// a prefix of the writes. If only the process dies, only writes of the last 100 ms may be
	// missing, if their log was not handed to the system yet. The store hands it over as soon as
	// 128 KiB have gathered, and at 5 MiB at the latest if the system is slow to take it. If the
	// machine dies, all writes since the last Sync or Flush, or since the last change of the set of
	// tables or of a table's options, may be missing.
	SyncNone
)

// Compression says how blocks of table files are compressed. A block that does not shrink by an
// eighth is stored uncompressed.
type Compression int

const (
	// CompressionS2 is fast and light, the default.
	CompressionS2 Compression = iota
	// CompressionZstd is denser and slower.
	CompressionZstd
	// CompressionNone stores blocks as they are.
	CompressionNone
)

// table maps the compression to that of package sstable.
func (c Compression) table() sstable.Compression {
	return [...]sstable.Compression{
		CompressionS2: sstable.CompressS2, CompressionZstd: sstable.CompressZstd, CompressionNone: sstable.CompressNone,
	}[c]
}

// TableReads says how table files are read.
type TableReads int

const (
	// TableReadsAuto maps table files while those of the store take less than half of the memory
	// that the process may use. The default. Even then, blocks that are not in the page cache are
	// read by calls. If the files take more than twice that memory, most reads of
	// blocks that are not in the page cache bypass it, which leaves it to frequently read blocks.
	TableReadsAuto TableReads = iota
	// TableReadsMapped maps every table file.
	TableReadsMapped
	// TableReadsDirect reads by calls alone.
	TableReadsDirect
)

// LogCompression says whether what is written to the log is compressed, by S2. Any log is read, whatever its compression.
type LogCompression int

const (
	// LogCompressionAuto compresses while that is faster, which it tries where writers wait for a slow device
	// (docs/operations.md). The default. With SyncAlways it never does.
	LogCompressionAuto LogCompression = iota
	// LogCompressionAlways compresses. It costs a store that keeps its processors busy.
	LogCompressionAlways
	// LogCompressionNever does not. Builds that are older than compression can read the log if it was never compressed.
	LogCompressionNever
)

// The values are those of packages wal and tablefiles.
const (
	_ = uint(LogCompressionNever - LogCompression(wal.CompressNever))
	_ = uint(LogCompression(wal.CompressNever) - LogCompressionNever)
	_ = uint(TableReadsDirect - TableReads(tablefiles.AccessDirect))
	_ = uint(TableReads(tablefiles.AccessDirect) - TableReadsDirect)
)

// Options configure a Store. The zero value is a good start. Sizes are bytes; zero picks the
// default. Very small values are legal: they make small stores with many levels, for tests.
type Options struct {
	// Sync says when a write is acknowledged.
	Sync SyncMode
	// MemoryBudget bounds the memtables of all tables together, including those being flushed.
	// Default 256 MiB. docs/using.md has what a store takes in all.
	MemoryBudget int64
	// MemtableSize is the size at which one partition's memtable is flushed.
	// Default 64 MiB, at most a third of MemoryBudget and 2 GiB.
	MemtableSize int64
	// TableFileSize is the target size of table files. Default 64 MiB.
	TableFileSize int64
	// BlockSize is the target size of the blocks of table files before compression, at most 1 MiB. Default
	// 8 KiB. A read of a row that is not in memory reads one. With 4 KiB, random gets beyond memory are about a tenth
	// faster, tables are larger by a sixteenth, and their indexes, which stay in memory, twice as large.
	BlockSize int64
	// WALSegmentSize is the size of log segments. Default 16 MiB.
	WALSegmentSize int64
	// LogCompression says whether the log is compressed. Default LogCompressionAuto.
	LogCompression LogCompression
	// PartitionSplitSize is the size from which a partition is split, and a quarter of it that up to which
	// two quiet ones are merged. Default 10 GiB. If negative, partitions are split and merged only on
	// request. See docs/partitions.md.
	PartitionSplitSize int64
	// CacheSize bounds the cache of decompressed blocks and of rows that are read again and again;
	// these rows take up to a sixteenth of it. Default 256 MiB.
	CacheSize int64
	// TableReads says how table files are read. Default TableReadsAuto.
	TableReads TableReads
	// VerifyInterval is how long a value that was verified in a mapped file counts as verified. A
	// read that begins less than the interval after the beginning of one that verified the value
	// may return what the mapping holds without verifying it. This holds for scans of values in
	// table files, and for all reads of values in value files, which have 16 KiB and more. Any
	// later read verifies. If negative, every read verifies what it uses. 0 stands for 10 seconds:
	// verifying at every access costs a scan a tenth to a quarter more processor time, and a read
	// of a large value at least twice as much (BENCHMARKS.md). All else is verified whenever it is read from a file: keys, columns,
	// deletes, values that a get reads, and what goes to a cache. Indexes and filters are
	// verified when a file is opened, and stay in memory. So with any interval, no row or column
	// is wrongly absent.
	VerifyInterval time.Duration
	// Compression of table blocks. Default CompressionS2. Large values, which are not in blocks,
	// are compressed by S2 unless Compression is CompressionNone, or PlainValues is set.
	Compression Compression
	// PlainValues stores large values, those of 16 KiB and more, as they are. Text is then read five to
	// nine times as fast, and takes twice the space in log, memory and files; a megabyte takes longer to
	// put (docs/lab/compaction.md). It holds for what is put from now on, and in a replicated store for
	// what is proposed here; values that are stored are read in either form.
	PlainValues bool
	// ReadBack reads every table and value file of a flush or compaction back from the device and
	// compares it with what was written, before the log or the replaced files are released. If it
	// differs, the flush or compaction fails with ErrCorrupt and is tried again later. Without
	// ReadBack, a write that the device lost or changed is found only by the next reader. A
	// compaction takes a fifth longer, and a flush of large values more than twice as long
	// (BENCHMARKS.md). The manifest and the files that a checkpoint copies are always read back.
	ReadBack bool
	// ReadOnly opens the store without writing to it: the log is read into memory, nothing is
	// flushed, and writes fail with ErrReadOnly.
	ReadOnly bool
	// External, if not nil, says that the log of the store belongs to another program. Sync,
	// WALSegmentSize and LogCompression then have no effect, and ReadOnly is refused.
	External *External
	// Logger receives what happens to the store. Default: none.
	Logger *slog.Logger
	// OnEvent, if not nil, is called for flushes, compactions, stalls and the like: see Event. The goroutine that
	// does the work calls it, several at once, at times with writers waiting behind it and with locks held. So
	// it must return soon, and may call no method of the store but Metrics. The first calls come before Open returns, the last ones may come just after Close.
	OnEvent func(Event)
	// Shared holds what several stores of one process have in common. Default:
	// this store has its own.
	Shared *Shared
	// Seams is closed to programs that embed the store, and its fields may change at any time. The
	// tests and tools of this repository replace files, time and background work with it.
	Seams seams.Seams

	replay        func(*recovery.Replay) error // of ReplayLog
	eagerSegments int                          // of wal.Options, for tests
}

// Shared is what the stores of one process may share: memory off the Go heap, the block cache in
// it, and the goroutines that do background work and help reads. Close it after the last store.
type Shared struct {
	memory   *offheap.Pool
	cache    *sstable.BlockCache
	rows     *rowcache.Cache
	executor executor.Executor
	helpers  *assist.Helpers
	async    *vfs.AsyncReads
}

// rowShare divides CacheSize: rows that are read repeatedly may take that part.
const rowShare = 16

// NewShared makes what stores may share: a block cache of cacheSize bytes, and
// background workers.
func NewShared(cacheSize int64) *Shared {
	return newShared(cacheSize, newPool(), offheap.New(offheap.Options{}))
}

func newShared(cacheSize int64, workers executor.Executor, memory *offheap.Pool) *Shared {
	s := &Shared{memory: memory, executor: workers, helpers: assist.New(min(runtime.GOMAXPROCS(0), runtime.NumCPU()) - 1), async: vfs.NewAsyncReads()}
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

// release ends the reads in flight and gives the memory back.
func (s *Shared) release() error {
	err := s.async.Close()
	s.rows.Close()
	s.cache.Close()
	return errors.Join(err, s.memory.Close())
}

// newPool makes the pool for background work. Two compactions at once are the least that keeps a
// long one from delaying a short one; the same holds for flushes.
func newPool() executor.Executor {
	return executor.NewPool([executor.Classes]int{
		executor.Flush: 2, executor.Compaction: 2, executor.Log: 4, executor.Cleanup: 1,
	})
}

const (
	mib = 1 << 20
	gib = 1 << 30
)

// withDefaults replaces zero options by defaults and checks the rest. Errors are ErrInvalid.
func (o Options) withDefaults() (Options, error) {
	defaults := []struct {
		name  string
		value *int64
		def   int64
	}{
		{"MemoryBudget", &o.MemoryBudget, 256 * mib},
		{"MemtableSize", &o.MemtableSize, 64 * mib},
		{"TableFileSize", &o.TableFileSize, 64 * mib},
		{"BlockSize", &o.BlockSize, sstable.DefaultBlockSize},
		{"WALSegmentSize", &o.WALSegmentSize, wal.DefaultSegmentSize},
		{"CacheSize", &o.CacheSize, 256 * mib},
	}
	for _, d := range defaults {
		if *d.value < 0 {
			return o, fmt.Errorf("%w: Options.%s is %d bytes", ErrInvalid, d.name, *d.value)
		}
		*d.value = cmp.Or(*d.value, d.def)
	}
	o.PartitionSplitSize = cmp.Or(o.PartitionSplitSize, 10*gib)
	switch {
	case o.External != nil && o.ReadOnly:
		return o, fmt.Errorf("%w: Options.External and Options.ReadOnly exclude each other", ErrInvalid)
	case o.External != nil && o.External.Propose == nil:
		o.PartitionSplitSize = -1 // a follower proposes nothing
	}
	if o.Sync != SyncAlways && o.Sync != SyncNone {
		return o, fmt.Errorf("%w: Options.Sync is %d", ErrInvalid, o.Sync)
	}
	if o.BlockSize > sstable.MaxBlockSize {
		return o, fmt.Errorf("%w: Options.BlockSize is %d bytes, at most %d", ErrInvalid, o.BlockSize, sstable.MaxBlockSize)
	}
	if o.Compression < 0 || o.Compression > CompressionNone {
		return o, fmt.Errorf("%w: Options.Compression is %d", ErrInvalid, o.Compression)
	}
	if o.LogCompression < 0 || o.LogCompression > LogCompressionNever {
		return o, fmt.Errorf("%w: Options.LogCompression is %d", ErrInvalid, o.LogCompression)
	}
	if o.TableReads < 0 || o.TableReads > TableReadsDirect {
		return o, fmt.Errorf("%w: Options.TableReads is %d", ErrInvalid, o.TableReads)
	}
	// A memtable holds at most 4 GiB (package memtable), and one write may exceed MemtableSize.
	o.MemtableSize = min(o.MemtableSize, max(o.MemoryBudget/3, 1), 2*gib)
	o.VerifyInterval = cmp.Or(o.VerifyInterval, 10*time.Second)
	o.Logger = cmp.Or(o.Logger, slog.New(slog.DiscardHandler))
	o.Seams.SetDefaults()
	return o, nil
}

// valueThreshold is the length from which values go to value files, 0 if none do.
func (o Options) valueThreshold() int {
	return max(cmp.Or(o.Seams.ValueThreshold, partition.ValueThreshold), 0)
}

// packFrom is the length from which values put into a table are packed: those that will go to
// value files. They have the packed form from the log on, so log, memtable and flush write and
// hold less.
func (o Options) packFrom() int {
	threshold := o.valueThreshold()
	if threshold == 0 || o.Compression == CompressionNone || o.PlainValues {
		return math.MaxInt
	}
	// Packing a shorter value costs more than it saves.
	return max(threshold, shortestPacked)
}

const shortestPacked = 64

// balance derives when partitions are split and merged from the options.
func (o Options) balance() balance.Settings {
	settings := o.Seams.Balance
	settings.SplitBytes = o.PartitionSplitSize
	return settings
}

// levels derives the shape of the trees from the options.
func (o Options) levels() compaction.Config {
	cfg := o.Seams.Levels
	cfg.TableFileSize = o.TableFileSize
	return cfg
}
