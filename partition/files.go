package partition

// The table files of a store: each is opened once, on first use, shared by all
// versions that refer to it, and handed to the owner for deletion when the
// last of them is gone.

import (
	"fmt"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/sstable"
)

// Files is the registry of the table files of one store. It is safe for
// concurrent use.
type Files struct {
	fs       vfs.FS
	dir      string // of the store
	cache    *sstable.BlockCache
	obsolete func(name string) // called once nothing refers to the file

	// Values says what the manifest knows of a live value file. Set before use
	// where table files refer to any.
	Values func(number uint64) (usage manifest.ValueUsage, live bool)

	mu struct {
		sync.Mutex
		byNumber map[uint64]*tableFile
		values   map[uint64]*valueFile
	}
}

// NewFiles makes a registry. obsolete is called, from any goroutine and without
// locks held, with the name, relative to dir, of each table or value file whose
// last reference went away while it was marked obsolete; it is closed by then.
func NewFiles(fs vfs.FS, dir string, blocks *sstable.BlockCache, obsolete func(name string)) *Files {
	f := &Files{fs: fs, dir: dir, cache: blocks, obsolete: obsolete}
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

	// obsolete: the manifest does not refer to the file any more.
	obsolete atomic.Bool

	open struct {
		sync.Mutex
		reader atomic.Pointer[sstable.Reader]
	}
}

// ref returns the file of that number with one more reference.
func (f *Files) ref(meta *manifest.FileMeta) *tableFile {
	f.mu.Lock()
	defer f.mu.Unlock()
	t := f.mu.byNumber[meta.Number]
	if t == nil {
		t = &tableFile{files: f, meta: meta, values: f.refValues(meta)}
		f.mu.byNumber[meta.Number] = t
	}
	t.refs.Add(1)
	return t
}

// unref drops a reference. The last one closes the file and, if it is
// obsolete, hands it over for deletion.
func (t *tableFile) unref() {
	f := t.files
	var unused []*valueFile
	f.mu.Lock()
	last := t.refs.Add(-1) == 0
	if last {
		delete(f.mu.byNumber, t.meta.Number)
		unused = f.unrefValues(t.values)
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
	r, err := OpenTable(t.files.fs, t.files.dir, t.files.cache, t.meta)
	if err != nil {
		return nil, err
	}
	t.open.reader.Store(r)
	return r, nil
}

// OpenTable opens the table file that meta describes, of the store in dir, and
// checks that it is that file: its size and its unique id are the manifest's.
func OpenTable(fs vfs.FS, dir string, blocks *sstable.BlockCache, meta *manifest.FileMeta) (*sstable.Reader, error) {
	name := filepath.Join(dir, manifest.TableName(meta.Number))
	file, err := fs.Open(name, vfs.OpenOptions{})
	if err != nil {
		return nil, fmt.Errorf("open table file %s: %w", name, err)
	}
	r, err := sstable.Open(file, sstable.ReaderOptions{
		Cache: blocks, FileName: name, FileSize: meta.Size, UniqueID: meta.UniqueID,
	})
	if err != nil {
		file.Close()
		return nil, err
	}
	return r, nil
}
