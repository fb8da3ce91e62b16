package vfs

// The real file system, with the parts that all systems share. The other parts are in
// os_linux.go, os_darwin.go, os_unix.go and os_windows.go, behind these functions:
//
//	plainFlags, dirFlags    the extra flags to open files and directories, see openFile
//	openFlags(direct)       the extra flags of direct I/O; ok=false without it
//	directAlign(f)          the alignment that the open file demands; 0: cannot
//	syncData(f)             content and what is needed to read it back
//	allocate(f, size)       reserve space; errors.ErrUnsupported if it cannot
//	adviseSequential(f), adviseRandom(f)     hints
//	dropCached(f, off, n)   a hint: the next read of a range comes from the device
//	startWriteback(f)       a hint: what is in the page cache alone goes to the device
//	syncDir(dir)            make entries durable
//	lockFile(f)             exclusive, non-blocking; ErrLocked
//	lockDir(dir)            the same of a directory; nil, nil if it cannot
//
// They also have the methods Restrict, FileLimit and Memory of osFS, and Map of osFile.

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
)

// A store's files hold its users' data, so only the owner may read them.
const (
	filePerm = 0o600
	dirPerm  = 0o700
)

// OS returns the file system of the operating system.
func OS() FS { return osFS{} }

type osFS struct{}

func (osFS) Create(name string, opts OpenOptions) (File, error) {
	return openOS(name, os.O_RDWR|os.O_CREATE|os.O_TRUNC, opts)
}

func (osFS) Open(name string, opts OpenOptions) (File, error) {
	if opts.Sparing {
		return openSparing(name, opts)
	}
	opts.Direct = opts.Direct || opts.Uncached
	return openOS(name, os.O_RDONLY, opts)
}

func (osFS) OpenReadWrite(name string, opts OpenOptions) (File, error) {
	return openOS(name, os.O_RDWR, opts)
}

// openFile opens a regular file, or makes one. An attacker may have planted a name in a store's
// directory, so it does not follow a symbolic link or wait for a pipe. It follows links in the
// path to the directory, since these are the owner's.
func openFile(name string, flags int) (*os.File, error) {
	f, err := os.OpenFile(name, flags|plainFlags, filePerm)
	if err != nil {
		if st, serr := os.Lstat(name); serr == nil && !st.Mode().IsRegular() && !st.IsDir() {
			err = &fs.PathError{Op: "open", Path: name, Err: notRegular(st)}
		}
		return nil, err
	}
	st, err := f.Stat()
	switch {
	case err != nil:
	case st.IsDir(): // some systems allow to open one for reading
		err = errIsDir
	case !st.Mode().IsRegular():
		err = notRegular(st)
	default:
		return f, nil
	}
	f.Close() // the first error is the one that matters
	return nil, pathError("open", name, err)
}

func notRegular(st fs.FileInfo) error {
	kind := "a device or a socket"
	switch {
	case st.Mode()&fs.ModeSymlink != 0:
		kind = "a symbolic link"
	case st.Mode()&fs.ModeNamedPipe != 0:
		kind = "a pipe"
	}
	return fmt.Errorf("%w, but %s", ErrNotRegular, kind)
}

// openOS opens name, with direct I/O if that is asked for and possible.
func openOS(name string, flags int, opts OpenOptions) (File, error) {
	f, align, err := openAligned(name, flags, opts.Direct)
	if err != nil {
		return nil, pathError("open", name, err)
	}
	buffered := align == 1
	switch {
	case !buffered || opts.Uncached: // see ReadAt
	case opts.Sequential:
		adviseSequential(f)
	case opts.Random:
		adviseRandom(f)
	}
	return &osFile{
		f: f, name: name, readOnly: flags&os.O_RDWR == 0, align: align,
		behind: opts.WriteBehind && buffered, uncached: opts.Uncached && buffered,
	}, nil
}

// openAligned opens name for openOS, and returns the alignment that the file demands: 1 without
// direct I/O.
func openAligned(name string, flags int, direct bool) (f *os.File, align int, err error) {
	if extra, ok := openFlags(); direct && ok {
		f, err := openFile(name, flags|extra)
		if err != nil && !errors.Is(err, errDirectRefused) {
			return nil, 0, err
		}
		if err == nil {
			if align := directAlign(f); align > 0 {
				return f, align, nil
			}
			// Direct I/O needs a larger block than AlignedBuffer offers.
			if err := f.Close(); err != nil {
				return nil, 0, pathError("close", name, err)
			}
		}
	}
	f, err = openFile(name, flags)
	return f, 1, err
}

func (osFS) Remove(name string) error   { return remove("remove", name, false) }
func (osFS) RemoveDir(dir string) error { return remove("removedir", dir, true) }

// remove deletes a file or an empty directory; os.Remove would delete either.
func remove(op, name string, dir bool) error {
	st, err := os.Lstat(name)
	switch {
	case err != nil:
	case st.IsDir() && !dir:
		err = errIsDir
	case !st.IsDir() && dir:
		err = errNotDir
	default:
		err = os.Remove(name)
	}
	return pathError(op, name, err)
}

func (osFS) Rename(oldName, newName string) error {
	return linkError("rename", oldName, newName, os.Rename(oldName, newName))
}

func (osFS) Link(oldName, newName string) error {
	return linkError("link", oldName, newName, os.Link(oldName, newName))
}

func (osFS) MkdirAll(dir string) error { return pathError("mkdir", dir, os.MkdirAll(dir, dirPerm)) }

func (osFS) List(dir string) ([]string, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|dirFlags, 0)
	if err != nil {
		return nil, pathError("list", dir, err)
	}
	names, err := f.Readdirnames(-1)
	if err = errors.Join(err, f.Close()); err != nil {
		return nil, pathError("list", dir, err)
	}
	slices.Sort(names)
	return names, nil
}

func (osFS) Stat(name string) (Info, error) {
	st, err := os.Stat(name)
	if err != nil {
		return Info{}, pathError("stat", name, err)
	}
	if st.IsDir() {
		return Info{Dir: true}, nil
	}
	return Info{Size: st.Size()}, nil
}

func (osFS) Lstat(name string) (Info, error) {
	st, err := os.Lstat(name)
	switch {
	case err != nil:
	case st.IsDir():
		return Info{Dir: true}, nil
	case st.Mode().IsRegular():
		return Info{Size: st.Size()}, nil
	default:
		err = &fs.PathError{Op: "stat", Path: name, Err: notRegular(st)}
	}
	return Info{}, pathError("stat", name, err)
}

func (osFS) SyncDir(dir string) error { return pathError("syncdir", dir, syncDir(dir)) }

// Lock locks an open file. So the lock ends with the process in any case, and a second open of
// the file conflicts within one process too. The file is never deleted: otherwise a second
// process could lock a new file of the same name. Its content, the process id of the last
// holder, only serves error texts.
func (osFS) Lock(name string, mode LockMode) (io.Closer, error) {
	f, err := takeLock(name, mode)
	if err != nil {
		return nil, pathError("lock", name, err)
	}
	return osLock{f}, nil
}

// takeLock makes no file for a reader. A reader that finds none locks the directory instead, and
// looks again: a writer makes the file first, and then checks whether the directory is locked.
func takeLock(name string, mode LockMode) (f *os.File, err error) {
	var dir *os.File
	if f, err = openLock(name, mode); mode == LockToRead && errors.Is(err, fs.ErrNotExist) {
		if dir, err = lockDir(filepath.Dir(name)); err != nil {
			return nil, err
		}
		if f, err = openLock(name, mode); errors.Is(err, fs.ErrNotExist) {
			return dir, nil
		}
		dir.Close() // a writer came
	}
	if err != nil {
		return nil, err
	}
	if err = lockFile(f); errors.Is(err, ErrLocked) {
		err = fmt.Errorf("%w%s", err, lockHolder(f))
	}
	if err == nil && mode == LockToWrite {
		if dir, err = lockDir(filepath.Dir(name)); err == nil {
			dir.Close()
			noteHolder(f)
		}
	}
	if err != nil {
		f.Close() // read only so far: nothing to lose
		return nil, err
	}
	return f, nil
}

func openLock(name string, mode LockMode) (*os.File, error) {
	if mode == LockToWrite {
		return openFile(name, os.O_RDWR|os.O_CREATE)
	}
	// Some network file systems lock only files that are open for writing.
	f, err := openFile(name, os.O_RDWR)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return openFile(name, os.O_RDONLY)
	}
	return f, err
}

// noteHolder writes the process id into the lock file. A file with other content belongs to
// another program, under a second name, and is not changed.
func noteHolder(f *os.File) {
	if st, err := f.Stat(); err != nil || st.Size() > 0 && lockHolder(f) == "" {
		return
	}
	// A note that cannot be written (on a full disk) does not prevent the start.
	if f.Truncate(0) == nil {
		_, _ = f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	}
}

// lockHolder reads the process id that the holder of a lock wrote.
func lockHolder(f *os.File) string {
	var buf [32]byte
	n, _ := f.ReadAt(buf[:], 0)
	pid, err := strconv.Atoi(strings.TrimSpace(string(buf[:n])))
	if err != nil {
		return ""
	}
	return fmt.Sprintf(" (process %d)", pid)
}

// osLock is a lock on an open file, nil if the platform cannot lock a directory.
type osLock struct{ *os.File }

// Close releases the lock; closing the file does so on every system.
func (l osLock) Close() error {
	if l.File == nil {
		return nil
	}
	return l.File.Close()
}

// osFile is an open file. Package os retries interrupted calls and completes
// short reads and writes.
type osFile struct {
	f        *os.File
	name     string
	readOnly bool
	align    int
	appended atomic.Int64 // offset of the next Write
	behind   bool         // see OpenOptions.WriteBehind
	uncached bool         // see OpenOptions.Uncached; not direct
	held     atomic.Int64 // bytes written since the last write-back was started
}

// writeBehind is how many bytes are written before their write-back is started.
const writeBehind = 1 << 20

func (f *osFile) ReadAt(p []byte, off int64) (int, error) {
	if err := checkTransfer("read", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	if f.uncached {
		dropCached(f.f, off, int64(len(p)))
	}
	n, err := f.f.ReadAt(p, off)
	if err == nil || err == io.EOF {
		return n, err
	}
	// A direct read that ends at the end of the file stops inside a block. The attempt to go on
	// from there is misaligned, and some file systems report that and not the end of the file.
	if f.align > 1 && n%f.align != 0 {
		if st, serr := f.f.Stat(); serr == nil && off+int64(n) >= st.Size() {
			return n, io.EOF
		}
	}
	return n, pathError("read", f.name, err)
}

func (f *osFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.writable("write"); err != nil {
		return 0, err
	}
	if err := checkTransfer("write", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	n, err := f.f.WriteAt(p, off)
	if f.behind && f.held.Add(int64(n)) >= writeBehind {
		f.held.Store(0)
		startWriteback(f.f)
	}
	return n, pathError("write", f.name, err)
}

func (f *osFile) Write(p []byte) (int, error) {
	off := f.appended.Load()
	n, err := f.WriteAt(p, off)
	f.appended.Store(off + int64(n))
	return n, err
}

func (f *osFile) writable(op string) error {
	if f.readOnly {
		return &fs.PathError{Op: op, Path: f.name, Err: fs.ErrPermission}
	}
	return nil
}

func (f *osFile) Alignment() int { return f.align }

func (f *osFile) Truncate(size int64) error {
	if err := f.writable("truncate"); err != nil {
		return err
	}
	return pathError("truncate", f.name, f.f.Truncate(size))
}

func (f *osFile) WillNeed(offset, n int64) { adviseWillNeed(f.f, offset, n) }

// Preallocate never shrinks the file: it ignores a size below the current one.
func (f *osFile) Preallocate(size int64) error {
	if err := f.writable("preallocate"); err != nil {
		return err
	}
	if size <= 0 {
		return nil
	}
	err := allocate(f.f, size)
	if !errors.Is(err, errors.ErrUnsupported) {
		return pathError("preallocate", f.name, err)
	}
	have, err := f.Size()
	if err != nil || have >= size {
		return err
	}
	return f.Truncate(size)
}

func (f *osFile) Sync() error     { return pathError("sync", f.name, f.f.Sync()) }
func (f *osFile) SyncData() error { return pathError("syncdata", f.name, syncData(f.f)) }
func (f *osFile) Close() error    { return pathError("close", f.name, f.f.Close()) }

func (f *osFile) Size() (int64, error) {
	st, err := f.f.Stat()
	if err != nil {
		return 0, pathError("size", f.name, err)
	}
	return st.Size(), nil
}
