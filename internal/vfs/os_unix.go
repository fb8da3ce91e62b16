//go:build linux || darwin

package vfs

// The parts that Linux and macOS share.

import (
	"errors"
	"fmt"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// Error causes that the simulated file system shares with the real one.
const (
	errIsDir    = unix.EISDIR
	errNotDir   = unix.ENOTDIR
	errNotEmpty = unix.ENOTEMPTY
)

const (
	plainFlags = unix.O_NOFOLLOW | unix.O_NONBLOCK
	dirFlags   = unix.O_DIRECTORY
)

// isPlatformNoSpace adds nothing: IsNoSpace checks all of them.
func isPlatformNoSpace(error) bool { return false }

// control calls fn with the file's descriptor, which stays open meanwhile, and again while a
// signal interrupts it.
func control(f *os.File, fn func(fd int) error) error {
	conn, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var inner error
	err = conn.Control(func(fd uintptr) {
		for {
			inner = fn(int(fd))
			if inner != unix.EINTR {
				return
			}
		}
	})
	if err != nil {
		return fs.ErrClosed // the only reason why Control does not call
	}
	return inner
}

// Restrict implements FS.
func (osFS) Restrict(name string) error {
	const others = 0o077
	st, err := os.Stat(name)
	if err != nil || st.Mode().Perm()&others == 0 {
		return pathError("restrict", name, err)
	}
	f, err := os.OpenFile(name, os.O_RDONLY|plainFlags, 0)
	if err != nil {
		return pathError("restrict", name, err)
	}
	if st, err = f.Stat(); err == nil {
		err = f.Chmod(st.Mode().Perm() &^ others)
	}
	return pathError("restrict", name, errors.Join(err, f.Close()))
}

func syncDir(dir string) error {
	f, err := os.OpenFile(dir, os.O_RDONLY|dirFlags, 0)
	if err != nil {
		return err
	}
	err = f.Sync()
	return errors.Join(err, f.Close())
}

// lockFile uses flock. That lock belongs to the open file, not to the process. So it conflicts
// with every other open of the file, and, unlike fcntl locks, is kept when another descriptor of
// the file is closed.
func lockFile(f *os.File) error {
	err := control(f, func(fd int) error { return unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB) })
	if err == unix.EWOULDBLOCK {
		return ErrLocked
	}
	return err
}

// lockDir returns nil, nil on file systems that do not lock directories, such as some network
// ones.
func lockDir(dir string) (*os.File, error) {
	f, err := os.OpenFile(dir, os.O_RDONLY|dirFlags, 0)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		f.Close()
		if errors.Is(err, ErrLocked) {
			return nil, fmt.Errorf("%w: a reader has its directory", err)
		}
		return nil, nil
	}
	return f, nil
}

func (f *osFile) Map(size int64) (*Mapping, error) {
	if size <= 0 || int64(int(size)) != size {
		return nil, errors.ErrUnsupported
	}
	var data []byte
	err := control(f.f, func(fd int) (err error) {
		data, err = unix.Mmap(fd, 0, int(size), unix.PROT_READ, unix.MAP_SHARED)
		return err
	})
	if err != nil {
		return nil, pathError("map", f.name, err)
	}
	return &Mapping{name: f.name, data: data, unmap: unix.Munmap, want: willNeed}, nil
}

// willNeed begins to read pages of a mapped file.
func willNeed(b []byte) error { return unix.Madvise(b, unix.MADV_WILLNEED) }

// FileLimit is the soft limit, which package os has raised to the hard one.
func (osFS) FileLimit() int {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) != nil || r.Cur > 1<<30 {
		return 0
	}
	return int(r.Cur)
}
