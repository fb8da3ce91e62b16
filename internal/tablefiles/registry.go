package tablefiles

import (
	"fmt"
	"io"
	"math/bits"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// Owner is what a registry asks of the store that owns the files.
type Owner interface {
	// ValueFile returns what the manifest knows of a live value file; false for any other
	// number. It is called with the registry's lock held.
	ValueFile(number uint64) (usage manifest.ValueUsage, live bool)
	// Obsolete is told the name, relative to the store's directory, of a table or value file to
	// which neither the manifest nor a reader refers any more. It is called from any goroutine,
	// without locks held.
	Obsolete(name string)
}

// Registry is the set of referenced table and value files of one store. It is safe for
// concurrent use.
type Registry struct {
	dir    string // of the store
	opts   Options
	owner  Owner
	open   openFiles
	memory int64                    // of the machine
	keep   [densities]atomic.Uint32 // see sstable.ReaderOptions

	mu struct {
		sync.Mutex
		tables     map[uint64]*File
		values     map[uint64]*valueFile
		bytes      int64            // of all table files
		dense      [densities]int64 // of those of a density
		valueBytes int64            // of all value files
	}
}

// Access says how files are read.
type Access int

const (
	// AccessAuto maps table files while these take less than half of the machine's memory, and
	// value files while both kinds do. Other reads of table files spare the page cache.
	AccessAuto Access = iota
	// AccessMapped maps every file.
	AccessMapped
	// AccessDirect reads by system calls only.
	AccessDirect
	// AccessOnce reads by system calls too, and says that each file is read once, front to back.
	AccessOnce
)

const (
	// mappedShare: files are mapped while they take less than this part of the memory.
	mappedShare = 2
	// outgrownBy: what is written once has probably left the page cache when it is read, if the tables take
	// more than this many times the memory.
	outgrownBy = 2
	// spareShare: gets ask the page cache to keep tables of all of the memory but this part. It is for
	// memtables, caches, value files and other stores, however much these take, and for blocks that the kernel
	// keeps because they are read often.
	spareShare = 4
)

// Options say how files are opened.
type Options struct {
	// Cache holds blocks; nil means no cache.
	Cache *sstable.BlockCache
	// Access says whether files are mapped.
	Access Access
	// Elapsed is a monotonic clock; see sstable.ReaderOptions.
	Elapsed func() time.Duration
	// VerifyInterval is the option of that name of sstable and valuefile readers.
	VerifyInterval time.Duration
	// Async takes reads of the device, while reads spare the page cache; nil means that they wait in calls.
	Async *vfs.AsyncReads
	// Helpers load blocks ahead for scans; nil means none.
	Helpers *assist.Helpers
}

// New returns the registry of the store in dir.
func New(fs vfs.FS, dir string, opts Options, owner Owner) *Registry {
	reg := &Registry{dir: dir, opts: opts, owner: owner, memory: fs.Memory()}
	reg.open.fs, reg.open.limit = fs, fileLimit(fs.FileLimit())
	reg.mu.tables = make(map[uint64]*File)
	reg.mu.values = make(map[uint64]*valueFile)
	return reg
}

// File is a referenced table file.
type File struct {
	Meta *manifest.FileMeta // not changed

	registry *Registry
	values   []*valueFile // to which its cells refer
	handle[sstable.Reader]

	_    [64]byte     // keeps what changes off the cache lines that every read needs
	Lost atomic.Int64 // what reads lost to it, in nanoseconds: see package partition
}

// The kinds of files.
const tableKind, valueKind = "table", "value"

// Describe returns the manifest's description of a table file with these properties, but for the
// time at which it was made.
func Describe(number uint64, p *sstable.Properties) *manifest.FileMeta {
	f := &manifest.FileMeta{
		Number: number, UniqueID: p.UniqueID, Size: p.FileSize, Checksum: p.FileChecksum,
		Smallest: p.SmallestKey, Largest: p.LargestKey, SmallestSeq: p.SmallestSeq, LargestSeq: p.LargestSeq,
		MinVersion: p.MinVersion, MaxVersion: p.MaxVersion, Permanent: p.Permanent, NewestTombstone: p.NewestTombstone,
		Rows: p.Rows, Cells: p.Cells, Puts: p.Puts, Tombstones: p.Tombstones,
	}
	for _, v := range p.ValueFiles {
		f.Values = append(f.Values, manifest.ValueUse{File: v.Number, Values: v.Values, Bytes: v.Bytes})
	}
	return f
}

// handle is what a table file and a value file have in common. The reader is opened at its first
// use.
type handle[R any] struct {
	refs     int         // guarded by Registry.mu
	obsolete atomic.Bool // the manifest does not name the file any more
	opening  sync.Mutex
	reader   atomic.Pointer[R]
}

// open returns the reader, which read makes at the first call from the named file. kind is table or
// value. Errors name the file.
func (h *handle[R]) open(reg *Registry, kind, name string, read func(file vfs.File, mapped bool) (*R, error)) (*R, error) {
	h.opening.Lock()
	defer h.opening.Unlock()
	if r := h.reader.Load(); r != nil {
		return r, nil
	}
	mapped, how := reg.access(kind == valueKind)
	file, err := reg.open.file(name, how)
	if err != nil {
		return nil, fmt.Errorf("open %s file %s: %w", kind, name, err)
	}
	r, err := read(file, mapped)
	if err != nil {
		file.Close()
		return nil, err
	}
	h.reader.Store(r)
	return r, nil
}

// release closes the file, which has no references left. If it is obsolete, its name goes to the
// owner.
func (h *handle[R]) release(owner Owner, name string) {
	if r := h.reader.Swap(nil); r != nil {
		any(r).(io.Closer).Close()
	}
	if h.obsolete.Load() {
		owner.Obsolete(name)
	}
}

// Ref returns the table file that meta describes, with one more reference, which the caller ends
// with Unref. It does not open the file. It panics if the table file refers to a value file that
// is not live.
func (reg *Registry) Ref(meta *manifest.FileMeta) *File {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	f := reg.mu.tables[meta.Number]
	if f == nil {
		f = &File{Meta: meta, registry: reg, values: reg.refValues(meta)}
		reg.mu.tables[meta.Number] = f
		reg.addBytes(meta, meta.Size)
	}
	f.refs++
	return f
}

// HoldTable adds a reference to the table file with a number, and to its value files, until release is called. ok is
// false if nothing refers to the file.
func (reg *Registry) HoldTable(number uint64) (release func(), ok bool) {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	f := reg.mu.tables[number]
	if f == nil {
		return nil, false
	}
	f.refs++
	return f.Unref, true
}

// addBytes counts the bytes of a table file that comes or goes. REQUIRES: mu is held.
func (reg *Registry) addBytes(meta *manifest.FileMeta, n int64) {
	reg.mu.bytes += n
	reg.mu.dense[density(meta)] += n
	even, left := int64(sstable.KeepAll), int64(0)
	if room := reg.memory - reg.memory/spareShare; reg.memory > 0 && room < reg.mu.bytes {
		even, left = room/2*sstable.KeepAll/reg.mu.bytes, room-room/2
	}
	for i, bytes := range reg.mu.dense {
		share := even
		if more := min(left, bytes-bytes*even/sstable.KeepAll); more > 0 {
			share, left = share+more*sstable.KeepAll/bytes, left-more
		}
		reg.keep[i].Store(uint32(share))
	}
}

// densities is how many densities of table files are told apart.
const densities = 16

// density is a measure of the bytes that a row takes in a file: the fewer, the denser, and each density but the last
// ends at twice the bytes of the one before. If rows are read alike, a page that holds more of them is read more often.
// Files that hold updates of one column of wide rows are the densest. Rows may not be read alike, so half of what the
// page cache can keep is for all files alike, and half for the densest.
func density(meta *manifest.FileMeta) int {
	return min(bits.Len64(uint64(meta.Size)/max(meta.Rows, 1)), densities-1)
}

// keep is the share of the file's blocks that the page cache is asked to keep: see sstable.ReaderOptions.
func (f *File) keep() *atomic.Uint32 { return &f.registry.keep[density(f.Meta)] }

// Unref drops a reference. The last one closes the file and the value files that no other table
// file refers to, and hands the obsolete ones among them to the owner.
func (f *File) Unref() {
	reg := f.registry
	reg.mu.Lock()
	f.refs--
	last := f.refs == 0
	var unused []*valueFile
	if last {
		delete(reg.mu.tables, f.Meta.Number)
		reg.addBytes(f.Meta, -f.Meta.Size)
		unused = reg.unrefValues(f.values)
	}
	reg.mu.Unlock()
	if !last {
		return
	}
	f.release(reg.owner, manifest.TableName(f.Meta.Number))
	reg.releaseValues(unused)
}

// MarkObsolete notes which of the file and its value files the state does not name. They are
// handed to the owner when nothing refers to them any more.
func (f *File) MarkObsolete(s *manifest.State) {
	if s.File(f.Meta.Number) == nil {
		f.obsolete.Store(true)
	}
	for _, v := range f.values {
		if _, live := s.ValueFile(v.meta.Number); !live {
			v.obsolete.Store(true)
		}
	}
}

// Opened returns the reader of the file if it was opened before, else nil. See Reader.
func (f *File) Opened() *sstable.Reader { return f.reader.Load() }

// Reader returns the reader of the file, which it opens on the first call. The reader is valid
// while the caller holds a reference. Errors name the file.
func (f *File) Reader() (*sstable.Reader, error) {
	if r := f.reader.Load(); r != nil {
		return r, nil
	}
	return f.openReader()
}

// openReader opens the file. It fails if size or unique id are not those in the manifest.
func (f *File) openReader() (*sstable.Reader, error) {
	reg, meta := f.registry, f.Meta
	name := filepath.Join(reg.dir, manifest.TableName(meta.Number))
	return f.open(reg, tableKind, name, func(file vfs.File, mapped bool) (*sstable.Reader, error) {
		return sstable.Open(file, sstable.ReaderOptions{
			FileName: name, FileSize: meta.Size, UniqueID: meta.UniqueID, SeqOffset: meta.SeqOffset, Cache: reg.opts.Cache, Mapped: mapped,
			VerifyInterval: reg.opts.VerifyInterval, Elapsed: reg.opts.Elapsed, Helpers: reg.opts.Helpers, Keep: f.keep(),
		})
	})
}

// OpenFile opens a table or value file for a reader that the registry does not know. The bound on open files counts it.
func (reg *Registry) OpenFile(name string) (vfs.File, error) {
	return reg.open.file(name, vfs.OpenOptions{})
}

// Outgrown reports whether what is written now has probably left the page cache when it is read, because
// the tables take so much more than the memory, or that is not known.
func (reg *Registry) Outgrown() bool {
	reg.mu.Lock()
	defer reg.mu.Unlock()
	return reg.memory == 0 || reg.mu.bytes > reg.memory*outgrownBy
}

// access says how to read a file that is opened now: through a mapping, or by system calls, with
// or without sparing the page cache. Value files are mapped only if all files fit in memory
// beside the tables, which are read more.
func (reg *Registry) access(values bool) (mapped bool, how vfs.OpenOptions) {
	how.Random = reg.opts.Access != AccessOnce
	switch {
	case reg.opts.Access != AccessAuto:
		return reg.opts.Access == AccessMapped, how
	case reg.memory == 0:
		return true, how
	}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	bytes := reg.mu.bytes
	if values {
		bytes += reg.mu.valueBytes
	}
	mapped = bytes < reg.memory/mappedShare
	if !mapped && !values { // direct reads, which valuefile.Open does not take
		how.Sparing, how.Async = true, reg.opts.Async
	}
	return mapped, how
}

// Stats is what the open table and value files take.
type Stats struct {
	Open        int   // descriptors
	ReaderBytes int64 // of indexes and filters of table files, and of their places in the cache
	Mapped      int   // table files
}

// Stats returns what the open files take now.
func (reg *Registry) Stats() Stats {
	s := Stats{Open: reg.open.count()}
	reg.mu.Lock()
	defer reg.mu.Unlock()
	for _, f := range reg.mu.tables {
		if r := f.reader.Load(); r != nil {
			s.ReaderBytes += r.MemoryUsed()
			if r.Mapped() {
				s.Mapped++
			}
		}
	}
	return s
}
