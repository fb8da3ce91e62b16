package tablefiles

// A bound on the open table and value files, since a process may have only so many descriptors.
// A file that was not read for a while is closed, and opened again with the same options when it
// is read. Its index and filter stay in memory meanwhile, and a mapping needs no descriptor.

import (
	"errors"
	"io/fs"
	"math"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

const (
	// reservedFiles descriptors of the process are left for other uses: logs, files being
	// written, the embedding program.
	reservedFiles = 64
	fewestFiles   = 8
)

// fileLimit is how many descriptors table and value files may have: three quarters of what the
// process may have beyond the reserve.
func fileLimit(ofProcess int) int {
	if ofProcess <= 0 {
		return math.MaxInt
	}
	return max((ofProcess-reservedFiles)*3/4, fewestFiles)
}

// openFiles is the set of open table and value files of a store.
type openFiles struct {
	fs    vfs.FS
	limit int // of descriptors

	mu          sync.Mutex
	open        []*reopened
	descriptors int // of open
	hand        int // of the clock that chooses what to close
}

// reopened is a table or value file, which is open or opened again when it is read.
type reopened struct {
	set         *openFiles
	name        string
	opts        vfs.OpenOptions
	size, align int64

	used atomic.Bool  // since the clock hand last passed
	mu   sync.RWMutex // held, shared, while the file is in use
	file vfs.File     // nil: closed for now
	done bool         // closed for ever
}

// file opens a file and puts it into the set.
func (o *openFiles) file(name string, opts vfs.OpenOptions) (vfs.File, error) {
	f := &reopened{set: o, name: name, opts: opts}
	err := f.with(func(file vfs.File) (err error) {
		f.size, err = file.Size()
		f.align = int64(file.Alignment())
		return err
	})
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// with calls fn with the open file. It opens the file first if it is closed.
func (f *reopened) with(fn func(vfs.File) error) error {
	for {
		f.mu.RLock()
		if f.file != nil {
			if !f.used.Load() {
				f.used.Store(true)
			}
			defer f.mu.RUnlock()
			return fn(f.file)
		}
		f.mu.RUnlock()
		if err := f.reopen(); err != nil {
			return err
		}
	}
}

func (f *reopened) reopen() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.done {
		return &fs.PathError{Op: "read", Path: f.name, Err: fs.ErrClosed}
	}
	if f.file != nil {
		return nil
	}
	if err := f.set.makeRoom(f.descriptors()); err != nil {
		return err
	}
	file, err := f.set.fs.Open(f.name, f.opts)
	if err != nil {
		return err
	}
	f.file = file
	f.used.Store(true)
	if file.Alignment() == 1 { // a file opened without direct reads must not get them later
		f.opts.Direct, f.opts.Sparing = false, false
	}
	f.set.mu.Lock()
	f.set.open = append(f.set.open, f)
	f.set.descriptors += f.descriptors()
	f.set.mu.Unlock()
	return nil
}

// descriptors is how many descriptors the file has when it is open.
func (f *reopened) descriptors() int {
	if f.opts.Sparing {
		return 2
	}
	return 1
}

// makeRoom closes files until n descriptors may be opened. It skips files in use: the process
// may have more descriptors than the limit.
func (o *openFiles) makeRoom(n int) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	for steps := 3 * len(o.open); o.descriptors+n > o.limit && len(o.open) > 0 && steps > 0; steps-- {
		o.hand = (o.hand + 1) % len(o.open)
		f := o.open[o.hand]
		if f.used.Swap(false) || !f.mu.TryLock() {
			continue
		}
		err := f.file.Close()
		f.file = nil
		f.mu.Unlock()
		o.remove(o.hand)
		if err != nil {
			return err
		}
	}
	return nil
}

// remove takes an entry out of the open files.
func (o *openFiles) remove(i int) {
	last := len(o.open) - 1
	o.descriptors -= o.open[i].descriptors()
	o.open[i], o.open[last] = o.open[last], nil
	o.open = o.open[:last]
}

// count is the number of open descriptors.
func (o *openFiles) count() int {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.descriptors
}

// Close closes the file for ever.
func (f *reopened) Close() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.done = true
	if f.file == nil {
		return nil
	}
	f.set.mu.Lock()
	f.set.remove(slices.Index(f.set.open, f))
	f.set.mu.Unlock()
	file := f.file
	f.file = nil
	return file.Close()
}

// ReadAt implements vfs.File.
func (f *reopened) ReadAt(p []byte, off int64) (n int, err error) {
	err = f.with(func(file vfs.File) (err error) {
		n, err = file.ReadAt(p, off)
		return err
	})
	return n, err
}

// StartRead implements vfs.Starter. It opens no file. The kernel keeps one that is closed meanwhile until the read is over.
func (f *reopened) StartRead(p []byte, off int64) (vfs.Started, bool) {
	f.mu.RLock()
	defer f.mu.RUnlock()
	if starter, can := f.file.(vfs.Starter); can {
		return starter.StartRead(p, off)
	}
	return nil, false
}

// Map implements vfs.File.
func (f *reopened) Map(size int64) (m *vfs.Mapping, err error) {
	err = f.with(func(file vfs.File) (err error) {
		m, err = file.Map(size)
		return err
	})
	return m, err
}

// Size implements vfs.File. Table and value files do not change.
func (f *reopened) Size() (int64, error) { return f.size, nil }

// WillNeed implements vfs.File.
func (f *reopened) WillNeed(offset, n int64) {
	_ = f.with(func(file vfs.File) error { file.WillNeed(offset, n); return nil })
}

// Alignment implements vfs.File.
func (f *reopened) Alignment() int { return int(f.align) }

func (f *reopened) readOnly(op string) error {
	return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
}

// All writing methods fail.

func (f *reopened) WriteAt([]byte, int64) (int, error) { return 0, f.readOnly("write") }
func (f *reopened) Write([]byte) (int, error)          { return 0, f.readOnly("write") }
func (f *reopened) Truncate(int64) error               { return f.readOnly("truncate") }
func (f *reopened) Preallocate(int64) error            { return f.readOnly("preallocate") }
func (f *reopened) Sync() error                        { return f.readOnly("sync") }
func (f *reopened) SyncData() error                    { return f.readOnly("sync") }
