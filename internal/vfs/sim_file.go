package vfs

// The open files of the simulated file system.

import (
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"
)

// simFile implements File.
type simFile struct {
	sim      *Sim
	node     *inode
	name     string
	readOnly bool
	uncached bool // reads see what is durable
	align    int
	closed   bool // guarded by the disk's mutex
	appended atomic.Int64
}

// open makes an open file. REQUIRES: the disk is locked.
func (s *Sim) open(n *inode, name string, readOnly bool, opts OpenOptions) *simFile {
	f := &simFile{sim: s, node: n, name: name, readOnly: readOnly, align: 1}
	f.uncached = opts.Uncached && readOnly
	if (opts.Direct || (opts.Sparing || opts.Uncached) && readOnly) && s.opts.BlockSize >= 0 {
		f.align = s.opts.BlockSize
		if f.align == 0 {
			f.align = directAlignment
		}
	}
	n.opens++
	s.disk.files[f] = true
	return f
}

// check refuses calls on a closed file or a dead machine. REQUIRES: the disk is locked.
func (f *simFile) check(op string) error {
	if err := f.sim.checkRunning(op, f.name); err != nil {
		return err
	}
	if f.closed {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrClosed}
	}
	return nil
}

func (f *simFile) checkWrite(op string) error {
	if err := f.check(op); err != nil {
		return err
	}
	if f.readOnly {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	return nil
}

// ReadAt implements File.
func (f *simFile) ReadAt(p []byte, off int64) (int, error) {
	f.sim.disk.mu.RLock()
	defer f.sim.disk.mu.RUnlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	if err := checkTransfer("read", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	from := &f.node.visible
	if f.uncached {
		from = &f.node.durable
	}
	n := from.readAt(p, off)
	if f.align > 1 && !f.uncached {
		f.node.readPast(p[:n], off)
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// deviceWriteAt is a write that the device gets wrong: it stores other bytes than p, elsewhere,
// or none. Programs see p until the page cache is lost.
func (f *simFile) deviceWriteAt(p []byte, off int64, stored []byte, at int64) (int, error) {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	n, err := f.writeAt(p, off)
	if err != nil || n == 0 {
		return n, err
	}
	last := &f.node.pending[len(f.node.pending)-1]
	last.device, last.off, last.at, last.size = true, at, len(f.node.log), len(stored)
	f.node.log = append(f.node.log, stored...)
	return n, nil
}

// WriteAt implements File. On a full disk it writes the pages that fit.
func (f *simFile) WriteAt(p []byte, off int64) (int, error) {
	f.sim.disk.mu.Lock()
	defer f.sim.disk.mu.Unlock()
	return f.writeAt(p, off)
}

// writeAt is WriteAt. REQUIRES: the disk is locked.
func (f *simFile) writeAt(p []byte, off int64) (int, error) {
	d := f.sim.disk
	if err := f.checkWrite("write"); err != nil {
		return 0, err
	}
	if err := checkTransfer("write", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	if len(p) == 0 {
		return 0, nil
	}
	need := f.node.newPages(off, off+int64(len(p)))
	var err error
	if need > d.free() {
		p = p[:f.fitting(off, int64(len(p)))]
		need = f.node.newPages(off, off+int64(len(p)))
		err = &fs.PathError{Op: "write", Path: f.name, Err: errNoSpace}
	}
	if len(p) > 0 {
		d.used += need
		f.node.write(d.next(), p, off)
	}
	return len(p), err
}

// fitting returns how many of size bytes at off can be written before the disk is full.
func (f *simFile) fitting(off, size int64) int64 {
	free, end := f.sim.disk.free(), off
	for end < off+size {
		next := min((end/pageSize+1)*pageSize, off+size)
		if free -= f.node.newPages(end, next); free < 0 {
			break
		}
		end = next
	}
	return end - off
}

// Write implements File.
func (f *simFile) Write(p []byte) (int, error) {
	off := f.appended.Load()
	n, err := f.WriteAt(p, off)
	f.appended.Store(off + int64(n))
	return n, err
}

// Alignment implements File.
func (f *simFile) Alignment() int { return f.align }

// Truncate implements File.
func (f *simFile) Truncate(size int64) error {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.checkWrite("truncate"); err != nil {
		return err
	}
	if size < 0 {
		return &fs.PathError{Op: "truncate", Path: f.name, Err: fmt.Errorf("negative size %d: %w", size, fs.ErrInvalid)}
	}
	d.used -= f.node.pagesFrom(pagesFor(size))
	f.node.resize(d.next(), size)
	return nil
}

// WillNeed implements File.
func (f *simFile) WillNeed(int64, int64) {}

// Preallocate implements File. It reserves all of the space or none.
func (f *simFile) Preallocate(size int64) error {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.checkWrite("preallocate"); err != nil {
		return err
	}
	if size <= 0 {
		return nil
	}
	n := f.node
	need := n.newPages(0, size)
	if need > d.free() {
		return &fs.PathError{Op: "preallocate", Path: f.name, Err: errNoSpace}
	}
	d.used += need
	n.reserve(d.next(), size)
	return nil
}

// Sync implements File.
func (f *simFile) Sync() error { return f.sync("sync") }

// SyncData implements File. The only metadata of simulated files is the size. A data sync must
// make it durable too, or appended bytes are lost.
func (f *simFile) SyncData() error { return f.sync("syncdata") }

func (f *simFile) sync(op string) error {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.check(op); err != nil {
		return err
	}
	f.node.sync()
	if f.sim.opts.EntriesWithFiles {
		d.root.syncTree()
	}
	return nil
}

// syncTree makes the entries of a directory and of all directories below it durable.
func (n *inode) syncTree() {
	n.syncEntries()
	for _, child := range n.entries {
		if child.isDir() {
			child.syncTree()
		}
	}
}

// Size implements File.
func (f *simFile) Size() (int64, error) {
	f.sim.disk.mu.RLock()
	defer f.sim.disk.mu.RUnlock()
	if err := f.check("size"); err != nil {
		return 0, err
	}
	return f.node.visible.size, nil
}

// Close implements File.
func (f *simFile) Close() error {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := f.check("close"); err != nil {
		return err
	}
	f.closed = true
	delete(d.files, f)
	f.node.opens--
	d.release(f.node)
	return nil
}

// SyncFailure says what a failed sync leaves behind, named after the file systems that were
// studied (Rebello et al., ATC'20). In both, the next sync succeeds, because the pages count as
// clean.
type SyncFailure int

const (
	// SyncFailureExt4 keeps the content readable although it is not on the disk, as ext4 and XFS
	// do.
	SyncFailureExt4 SyncFailure = iota
	// SyncFailureBtrfs resets the content to that of the last sync.
	SyncFailureBtrfs
)

// staleReadAt reads what was on the disk before the pending writes.
func (f *simFile) staleReadAt(p []byte, off int64) (int, error) {
	f.sim.disk.mu.RLock()
	defer f.sim.disk.mu.RUnlock()
	if err := f.check("read"); err != nil {
		return 0, err
	}
	n := f.node.durable.readAt(p, off)
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

// failSync does to the file what a failed sync does; the caller returns the error.
func (f *simFile) failSync(model SyncFailure) {
	d := f.sim.disk
	d.mu.Lock()
	defer d.mu.Unlock()
	if f.check("sync") != nil {
		return
	}
	n := f.node
	if model == SyncFailureBtrfs {
		d.used -= n.pagesFrom(0)
		n.visible = n.durable.clone()
		d.used += n.pagesFrom(0)
	}
	n.unwritten = n.unwritten || len(n.pending) > 0 && model == SyncFailureExt4
	n.forget()
}

// Map implements File. Reads return the file's content at that time, even after Close.
func (f *simFile) Map(int64) (*Mapping, error) {
	f.sim.disk.mu.RLock()
	defer f.sim.disk.mu.RUnlock()
	if err := f.check("map"); err != nil {
		return nil, err
	}
	return &Mapping{name: f.name, read: func(p []byte, off int64) (int, error) {
		f.sim.disk.mu.RLock()
		defer f.sim.disk.mu.RUnlock()
		if err := f.sim.checkRunning("read", f.name); err != nil {
			return 0, err
		}
		n := f.node.visible.readAt(p, off)
		if n < len(p) {
			return n, io.EOF
		}
		return n, nil
	}}, nil
}
