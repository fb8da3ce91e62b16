package vfs

// The simulated file system as its callers see it. sim_inode.go holds what is pending on one
// file, sim_crash.go what a power cut leaves of it, sim_file.go the open files, sim_content.go
// the bytes.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
)

// ErrCrashed is what every call on a Sim and its open files returns after a crash or kill: a
// dead program writes nothing more.
var ErrCrashed = errors.New("simulated machine has crashed")

// SimOptions describe a simulated machine.
type SimOptions struct {
	// BlockSize is the alignment that direct I/O demands, a power of two from 512 to 4096; 0
	// means 4096. A negative value means no direct I/O: files that ask for it are buffered.
	BlockSize int
	// Capacity is the size of the disk in bytes, in units of 4096; 0 means unbounded. Content
	// takes space page by page, names take none.
	Capacity int64
	// EntriesWithFiles makes a Sync of any file sync all directories too, as a journal like that
	// of ext4 does. By default a name is durable only after SyncDir, which is all that POSIX
	// promises.
	EntriesWithFiles bool
}

// Sim is a file system in memory that knows which bytes and names a power cut would lose. It is
// safe for concurrent use. The root directory exists; relative names are relative to it.
type Sim struct {
	opts SimOptions
	disk *disk
}

// disk is the state of a simulated file system. It outlives the Sim when the process is killed.
type disk struct {
	mu       sync.RWMutex
	running  *Sim // the Sim whose calls are served; nil after a power cut
	root     *inode
	seq      uint64 // operations so far
	nodes    uint64 // inodes so far
	capacity int64  // pages; <= 0: no bound
	used     int64  // pages that programs see or hold open
	locks    map[*inode]bool
	files    map[*simFile]bool // open
}

// NewSim returns an empty file system.
func NewSim(opts SimOptions) *Sim {
	if b := opts.BlockSize; b > 0 && (b < 512 || b > directAlignment || b&(b-1) != 0) {
		panic(fmt.Sprintf("vfs: block size %d is not a power of two from 512 to 4096", b))
	}
	d := &disk{}
	d.root = d.newDir()
	d.root.links = 1
	return d.start(opts)
}

// start makes the Sim that the disk serves from now on.
func (d *disk) start(opts SimOptions) *Sim {
	s := &Sim{opts: opts, disk: d}
	d.running = s
	d.capacity = capacityPages(opts.Capacity)
	d.locks = map[*inode]bool{}
	d.files = map[*simFile]bool{}
	return s
}

func (d *disk) newFile() *inode {
	d.nodes++
	return &inode{id: d.nodes}
}

func (d *disk) newDir() *inode {
	n := d.newFile()
	n.entries, n.durableEntries = map[string]*inode{}, map[string]*inode{}
	return n
}

func (d *disk) next() uint64 {
	d.seq++
	return d.seq
}

// enter begins a call that may change something. The caller defers the unlock.
func (s *Sim) enter(op, name string) error {
	s.disk.mu.Lock()
	return s.checkRunning(op, name)
}

// enterRead begins a call that changes nothing.
func (s *Sim) enterRead(op, name string) error {
	s.disk.mu.RLock()
	return s.checkRunning(op, name)
}

func (s *Sim) checkRunning(op, name string) error {
	if s.disk.running != s {
		return &fs.PathError{Op: op, Path: name, Err: ErrCrashed}
	}
	return nil
}

// find returns the inode of name.
func (d *disk) find(name string) (*inode, error) {
	rest := strings.TrimPrefix(filepath.ToSlash(filepath.Clean(name)), "/")
	n := d.root
	for rest != "" && rest != "." {
		if !n.isDir() {
			return nil, errNotDir
		}
		var part string
		part, rest, _ = strings.Cut(rest, "/")
		if n = n.entries[part]; n == nil {
			return nil, fs.ErrNotExist
		}
	}
	return n, nil
}

// findEntry returns the directory that holds name, the last part of name, and its inode, or nil
// if there is none.
func (d *disk) findEntry(name string) (dir *inode, base string, n *inode, err error) {
	clean := filepath.Clean(name)
	base = filepath.Base(clean)
	if base == "." || base == ".." || base == string(filepath.Separator) {
		return nil, "", nil, fs.ErrInvalid
	}
	dir, err = d.find(filepath.Dir(clean))
	if err != nil {
		return nil, "", nil, err
	}
	if !dir.isDir() {
		return nil, "", nil, errNotDir
	}
	return dir, base, dir.entries[base], nil
}

// Create implements FS.
func (s *Sim) Create(name string, opts OpenOptions) (File, error) {
	d := s.disk
	err := s.enter("create", name)
	defer d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dir, base, n, err := d.findEntry(name)
	switch {
	case err != nil:
		return nil, pathError("create", name, err)
	case n == nil:
		n = d.newFile()
		n.links = 1
		dir.change(entryOp{seq: d.next(), kind: entryLink, name: base, node: n})
	case n.isDir():
		return nil, pathError("create", name, errIsDir)
	case n.visible.size > 0:
		d.used -= n.pagesFrom(0)
		n.resize(d.next(), 0)
	}
	return s.open(n, name, false, opts), nil
}

// Open implements FS.
func (s *Sim) Open(name string, opts OpenOptions) (File, error) {
	return s.openExisting(name, true, opts)
}

// OpenReadWrite implements FS.
func (s *Sim) OpenReadWrite(name string, opts OpenOptions) (File, error) {
	return s.openExisting(name, false, opts)
}

func (s *Sim) openExisting(name string, readOnly bool, opts OpenOptions) (File, error) {
	err := s.enter("open", name)
	defer s.disk.mu.Unlock()
	if err != nil {
		return nil, err
	}
	n, err := s.disk.find(name)
	if err == nil && n.isDir() {
		err = errIsDir
	}
	if err != nil {
		return nil, pathError("open", name, err)
	}
	return s.open(n, name, readOnly, opts), nil
}

// Remove implements FS.
func (s *Sim) Remove(name string) error { return s.remove("remove", name, false) }

// RemoveDir implements FS.
func (s *Sim) RemoveDir(dir string) error { return s.remove("removedir", dir, true) }

func (s *Sim) remove(op, name string, wantDir bool) error {
	d := s.disk
	err := s.enter(op, name)
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	dir, base, n, err := d.findEntry(name)
	switch {
	case err != nil:
	case n == nil:
		err = fs.ErrNotExist
	case n.isDir() && !wantDir:
		err = errIsDir
	case !n.isDir() && wantDir:
		err = errNotDir
	case len(n.entries) > 0:
		err = errNotEmpty
	}
	if err != nil {
		return pathError(op, name, err)
	}
	dir.change(entryOp{seq: d.next(), kind: entryUnlink, name: base})
	d.unlinked(n)
	return nil
}

// unlinked notes that a file has lost a name, and frees its space after the last one.
func (d *disk) unlinked(n *inode) {
	n.links--
	d.release(n)
}

func (d *disk) release(n *inode) {
	if n.links == 0 && n.opens == 0 && !n.isDir() {
		d.used -= n.pagesFrom(0)
	}
}

// Rename implements FS.
func (s *Sim) Rename(oldName, newName string) error {
	d := s.disk
	err := s.enter("rename", oldName)
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	return linkError("rename", oldName, newName, d.rename(oldName, newName))
}

func (d *disk) rename(oldName, newName string) error {
	from, oldBase, n, err := d.findEntry(oldName)
	if err != nil {
		return err
	}
	to, newBase, replaced, err := d.findEntry(newName)
	switch {
	case err != nil:
		return err
	case n == nil:
		return fs.ErrNotExist
	case n == replaced:
		return nil
	case n.isDir() && contains(n, to):
		return fs.ErrInvalid
	case replaced != nil && n.isDir() && !replaced.isDir():
		return errNotDir
	case replaced != nil && !n.isDir() && replaced.isDir():
		return errIsDir
	case replaced != nil && len(replaced.entries) > 0:
		return errNotEmpty
	}
	if from == to {
		to.change(entryOp{seq: d.next(), kind: entryMove, name: oldBase, to: newBase, node: n})
	} else {
		// Each of the two directories becomes durable by itself.
		to.change(entryOp{seq: d.next(), kind: entryLink, name: newBase, node: n})
		from.change(entryOp{seq: d.next(), kind: entryUnlink, name: oldBase})
	}
	if replaced != nil {
		d.unlinked(replaced)
	}
	return nil
}

// contains reports whether dir is n or below it.
func contains(n, dir *inode) bool {
	if n == dir {
		return true
	}
	for _, child := range n.entries {
		if child.isDir() && contains(child, dir) {
			return true
		}
	}
	return false
}

// Link implements FS.
func (s *Sim) Link(oldName, newName string) error {
	d := s.disk
	err := s.enter("link", oldName)
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	n, err := d.find(oldName)
	if err == nil && n.isDir() {
		err = errIsDir
	}
	if err != nil {
		return linkError("link", oldName, newName, err)
	}
	dir, base, have, err := d.findEntry(newName)
	if err == nil && have != nil {
		err = fs.ErrExist
	}
	if err != nil {
		return linkError("link", oldName, newName, err)
	}
	n.links++
	dir.change(entryOp{seq: d.next(), kind: entryLink, name: base, node: n})
	return nil
}

// MkdirAll implements FS.
func (s *Sim) MkdirAll(dir string) error {
	d := s.disk
	err := s.enter("mkdir", dir)
	defer d.mu.Unlock()
	if err != nil {
		return err
	}
	n := d.root
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Clean(dir)), "/") {
		if part == "" || part == "." {
			continue
		}
		child := n.entries[part]
		if child == nil {
			child = d.newDir()
			child.links = 1
			n.change(entryOp{seq: d.next(), kind: entryLink, name: part, node: child})
		}
		if !child.isDir() {
			return pathError("mkdir", dir, errNotDir)
		}
		n = child
	}
	return nil
}

// findDir returns the directory of that name.
func (d *disk) findDir(op, dir string) (*inode, error) {
	n, err := d.find(dir)
	if err == nil && !n.isDir() {
		err = errNotDir
	}
	return n, pathError(op, dir, err)
}

// List implements FS.
func (s *Sim) List(dir string) ([]string, error) {
	err := s.enterRead("list", dir)
	defer s.disk.mu.RUnlock()
	if err != nil {
		return nil, err
	}
	n, err := s.disk.findDir("list", dir)
	if err != nil {
		return nil, err
	}
	names := make([]string, 0, len(n.entries))
	for name := range n.entries {
		names = append(names, name)
	}
	slices.Sort(names)
	return names, nil
}

// Stat implements FS.
func (s *Sim) Stat(name string) (Info, error) {
	err := s.enterRead("stat", name)
	defer s.disk.mu.RUnlock()
	if err != nil {
		return Info{}, err
	}
	n, err := s.disk.find(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	return Info{Size: n.visible.size, Dir: n.isDir()}, nil
}

// Lstat implements FS. A Sim has no symbolic links.
func (s *Sim) Lstat(name string) (Info, error) { return s.Stat(name) }

// SyncDir implements FS.
func (s *Sim) SyncDir(dir string) error {
	err := s.enter("syncdir", dir)
	defer s.disk.mu.Unlock()
	if err != nil {
		return err
	}
	n, err := s.disk.findDir("syncdir", dir)
	if err != nil {
		return err
	}
	n.syncEntries()
	return nil
}

// Lock implements FS.
func (s *Sim) Lock(name string, mode LockMode) (io.Closer, error) {
	d := s.disk
	err := s.enter("lock", name)
	defer d.mu.Unlock()
	if err != nil {
		return nil, err
	}
	dir, base, n, err := d.findEntry(name)
	switch {
	case err != nil:
		return nil, pathError("lock", name, err)
	case d.locks[dir]:
		return nil, pathError("lock", name, ErrLocked)
	case n == nil && mode == LockToRead:
		n = dir
	case n == nil:
		n = d.newFile()
		n.links = 1
		dir.change(entryOp{seq: d.next(), kind: entryLink, name: base, node: n})
	case n.isDir():
		return nil, pathError("lock", name, errIsDir)
	case d.locks[n]:
		return nil, pathError("lock", name, ErrLocked)
	}
	d.locks[n] = true
	return &simLock{sim: s, node: n, name: name}, nil
}

type simLock struct {
	sim  *Sim
	node *inode
	name string
}

// Close releases the lock.
func (l *simLock) Close() error {
	err := l.sim.enter("unlock", l.name)
	defer l.sim.disk.mu.Unlock()
	if err != nil {
		return err
	}
	if !l.sim.disk.locks[l.node] {
		return pathError("unlock", l.name, fs.ErrClosed)
	}
	delete(l.sim.disk.locks, l.node)
	return nil
}

// unboundedDisk is the size that an unbounded disk reports.
const unboundedDisk = 1 << 44

// Restrict does nothing: a simulated machine has one user. Its memory and the number of open files
// have no limit.
func (s *Sim) Restrict(string) error { return nil }
func (s *Sim) FileLimit() int        { return 0 }
func (s *Sim) Memory() int64         { return 0 }

// Usage is the space of a simulated disk in bytes.
type Usage struct {
	Total     uint64
	Available uint64 // to this process
}

// Usage returns the space of the disk that holds dir.
func (s *Sim) Usage(dir string) (Usage, error) {
	d := s.disk
	err := s.enterRead("usage", dir)
	defer d.mu.RUnlock()
	if err != nil {
		return Usage{}, err
	}
	if _, err := d.find(dir); err != nil {
		return Usage{}, pathError("usage", dir, err)
	}
	if d.capacity <= 0 {
		return Usage{Total: unboundedDisk, Available: uint64(unboundedDisk - d.used*pageSize)}, nil
	}
	return Usage{Total: uint64(d.capacity * pageSize), Available: uint64(d.free() * pageSize)}, nil
}

// free returns how many pages can still be allocated.
func (d *disk) free() int64 {
	if d.capacity <= 0 {
		return unboundedDisk
	}
	return max(d.capacity-d.used, 0)
}

// SetCapacity changes the size of the disk, in bytes; 0 means unbounded. A size below what is in
// use keeps the content and refuses more.
func (s *Sim) SetCapacity(bytes int64) {
	s.disk.mu.Lock()
	defer s.disk.mu.Unlock()
	s.opts.Capacity = bytes
	s.disk.capacity = capacityPages(bytes)
}

// capacityPages converts a capacity in bytes to pages. A bound below one page becomes one page,
// not none.
func capacityPages(bytes int64) int64 {
	if bytes <= 0 {
		return 0
	}
	return max(bytes/pageSize, 1)
}

// OpenFiles returns the sorted names of the files that are open. A test that expects none finds
// leaks.
func (s *Sim) OpenFiles() []string {
	s.disk.mu.RLock()
	defer s.disk.mu.RUnlock()
	names := make([]string, 0, len(s.disk.files))
	for f := range s.disk.files {
		names = append(names, f.name)
	}
	slices.Sort(names)
	return names
}

// errNoSpace is the error of a full simulated disk.
const errNoSpace = syscall.ENOSPC
