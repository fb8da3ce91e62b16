package partition

// The table files of a store. Each is opened once, on first use, and shared by all versions that
// refer to it. When the last of these is gone, the file is handed to the owner for deletion.

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// Files is the registry of the table files of one store. It is safe for
// concurrent use.
type Files struct {
	dir      string // of the store
	opts     FilesOptions
	open     openFiles
	memory   int64             // of the machine
	obsolete func(name string) // called when the last reference to an obsolete file is gone

	// Values says what the manifest knows of a live value file. It must be set before a table
	// file that refers to value files is used.
	Values func(number uint64) (usage manifest.ValueUsage, live bool)

	mu struct {
		sync.Mutex
		byNumber   map[uint64]*tableFile
		values     map[uint64]*valueFile
		bytes      int64 // of all table files
		valueBytes int64 // of all value files
	}
}

// Access says how table files are read.
type Access int

const (
	// AccessAuto maps table files while these take less than half of the machine's memory, and
	// value files while both kinds do. Reads spare the page cache when tables take over twice
	// the memory.
	AccessAuto Access = iota
	// AccessMapped maps every file.
	AccessMapped
	// AccessDirect reads by system calls only.
	AccessDirect
)

const (
	// mappedShare: files are mapped while they take less than this part of the memory.
	mappedShare = 2
	// sparingTables: reads spare the page cache (vfs.OpenOptions.Sparing) when the tables take
	// more than this many times the memory. Most of what is read once has then left memory by
	// the next read.
	sparingTables = 2
)

// FilesOptions say how table files are opened.
type FilesOptions struct {
	// Cache holds blocks; nil means no cache.
	Cache *sstable.BlockCache
	// Access says whether files are mapped.
	Access Access
	// Elapsed is a monotonic clock; see sstable.ReaderOptions.
	Elapsed func() time.Duration
	// VerifyInterval is the option of that name of sstable and valuefile readers.
	VerifyInterval time.Duration
	// Helpers take over work of reads; nil means none.
	Helpers *assist.Helpers
}

// NewFiles makes a registry. When the last reference to a table or value file marked obsolete
// goes away, the file is closed and obsolete is called with its name, relative to dir. It is
// called from any goroutine, without locks held.
func NewFiles(fs vfs.FS, dir string, opts FilesOptions, obsolete func(name string)) *Files {
	f := &Files{dir: dir, opts: opts, memory: vfs.Memory(fs), obsolete: obsolete}
	f.open.fs, f.open.limit = fs, fileLimit(vfs.FileLimit(fs))
	f.mu.byNumber = make(map[uint64]*tableFile)
	f.mu.values = make(map[uint64]*valueFile)
	return f
}

// tableFile is one table file and its reader.
type tableFile struct {
	files *Files
	meta  *manifest.FileMeta
	// values are the value files that the file's cells refer to.
	values []*valueFile
	refs   atomic.Int64 // versions that hold it; guarded by files.mu when it reaches 0

	// obsolete is set when the manifest does not refer to the file any more.
	obsolete atomic.Bool

	open struct {
		sync.Mutex
		reader atomic.Pointer[sstable.Reader]
	}
}

// ref returns the table file that meta describes, with one more reference.
func (f *Files) ref(meta *manifest.FileMeta) *tableFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.mu.byNumber[meta.Number]
	if t == nil {
		t = &tableFile{files: f, meta: meta, values: f.refValues(meta)}
		f.mu.byNumber[meta.Number] = t
		f.mu.bytes += meta.Size
	}
	t.refs.Add(1)
	return t
}

// unref drops a reference. The last one closes the file and, if it is obsolete, hands it over
// for deletion.
func (t *tableFile) unref() {
	f := t.files
	var unused []*valueFile
	f.mu.Lock()
	last := t.refs.Add(-1) == 0
	if last {
		delete(f.mu.byNumber, t.meta.Number)
		unused = f.unrefValues(t.values)
		f.mu.bytes -= t.meta.Size
	}
	f.mu.Unlock()
	if !last {
		return
	}
	if r := t.open.reader.Swap(nil); r != nil {
		r.Close()
	}
	if t.obsolete.Load() {
		f.obsolete(manifest.TableName(t.meta.Number))
	}
	for _, v := range unused {
		v.release(f)
	}
}

// reader returns the open reader of the file. The caller holds a reference,
// through a pinned state, for as long as it uses the reader.
func (t *tableFile) reader() (*sstable.Reader, error) {
	if r := t.open.reader.Load(); r != nil {
		return r, nil
	}
	t.open.Lock()
	defer t.open.Unlock()
	if r := t.open.reader.Load(); r != nil {
		return r, nil
	}
	r, err := t.files.openReader(t.meta)
	if err != nil {
		return nil, err
	}
	t.open.reader.Store(r)
	return r, nil
}

// openReader opens a table file of the store.
func (f *Files) openReader(meta *manifest.FileMeta) (*sstable.Reader, error) {
	name := filepath.Join(f.dir, manifest.TableName(meta.Number))
	mapped, sparing := f.access()
	file, err := f.open.file(name, vfs.OpenOptions{Random: true, Sparing: sparing})
	if err != nil {
		return nil, fmt.Errorf("open table file %s: %w", name, err)
	}
	return newReader(file, meta, sstable.ReaderOptions{
		Cache: f.opts.Cache, FileName: name, Mapped: mapped, VerifyInterval: f.opts.VerifyInterval,
		Elapsed: f.opts.Elapsed, Helpers: f.opts.Helpers,
	})
}

// access says how to read a file that is opened now: through a mapping, or by system calls, with
// or without sparing the page cache.
func (f *Files) access() (mapped, sparing bool) {
	if f.opts.Access != AccessAuto {
		return f.opts.Access == AccessMapped, false
	}
	if f.memory == 0 {
		return true, false
	}
	f.mu.Lock()
	bytes := f.mu.bytes
	f.mu.Unlock()
	return bytes < f.memory/mappedShare, bytes > f.memory*sparingTables
}

// mappedValues reports whether to map a value file that is opened now: the mapped files should
// fit in memory beside the tables, which are read more.
func (f *Files) mappedValues() bool {
	if f.opts.Access != AccessAuto {
		return f.opts.Access == AccessMapped
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.memory == 0 || f.mu.bytes+f.mu.valueBytes < f.memory/mappedShare
}

// newReader makes the reader of an open file. It closes the file if its size or unique id are
// not those in the manifest.
func newReader(file vfs.File, meta *manifest.FileMeta, opts sstable.ReaderOptions) (*sstable.Reader, error) {
	opts.FileSize, opts.UniqueID = meta.Size, meta.UniqueID
	r, err := sstable.Open(file, opts)
	if err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}

// OpenTable opens the table file that meta describes, of the store in dir, for a caller that
// reads it once, without a block cache.
func OpenTable(fs vfs.FS, dir string, meta *manifest.FileMeta) (*sstable.Reader, error) {
	name := filepath.Join(dir, manifest.TableName(meta.Number))
	file, err := fs.Open(name, vfs.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("open table file %s: %w", name, err)
	}
	return newReader(file, meta, sstable.ReaderOptions{FileName: name})
}

// FilesStats is what the open table and value files take.
type FilesStats struct {
	Open        int   // descriptors
	Readers     int   // files whose index and filter are in memory
	ReaderBytes int64 // of these readers, and of their places in the cache
	Mapped      int   // of the readers
}

// Stats returns what the open table files take now.
func (f *Files) Stats() FilesStats {
	s := FilesStats{Open: f.open.count()}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, t := range f.mu.byNumber {
		if r := t.open.reader.Load(); r != nil {
			s.Readers++
			s.ReaderBytes += r.MemoryUsed()
			if r.Mapped() {
				s.Mapped++
			}
		}
	}
	return s
}
