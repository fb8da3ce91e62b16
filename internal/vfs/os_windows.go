package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/windows"
)

// Error causes that the simulated file system shares with the real one.
const (
	errIsDir    = windows.Errno(windows.ERROR_DIRECTORY_NOT_SUPPORTED)
	errNotDir   = windows.Errno(windows.ERROR_DIRECTORY)
	errNotEmpty = windows.Errno(windows.ERROR_DIR_NOT_EMPTY)
)

// Links are followed; few users may make them on Windows.
const plainFlags, dirFlags = 0, 0

// errDirectRefused never occurs: files are opened buffered.
const errDirectRefused = windows.Errno(windows.ERROR_INVALID_PARAMETER)

func isPlatformNoSpace(err error) bool {
	return errors.Is(err, windows.ERROR_DISK_FULL) || errors.Is(err, windows.ERROR_HANDLE_DISK_FULL)
}

func openFlags() (int, bool) { return 0, false }

func directAlign(*os.File) int { return 0 }

func syncData(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// startWriteback does nothing: the system decides.
func startWriteback(*os.File) {}

func adviseSequential(*os.File) {}
func adviseRandom(*os.File)     {}

// adviseWillNeed does nothing.
func adviseWillNeed(*os.File, int64, int64) {}

// dropCached does nothing on Windows: reads may come from the system's cache.
func dropCached(*os.File, int64, int64) {}

// syncDir cannot sync on Windows, where NTFS logs directory changes in order. It still reports a
// directory that does not exist.
func syncDir(dir string) error {
	st, err := os.Stat(dir)
	if err == nil && !st.IsDir() {
		err = errNotDir
	}
	return err
}

// lockFile locks one byte far beyond the content: other processes cannot read a locked region,
// and the content names the holder.
func lockFile(f *os.File) error {
	const flags = windows.LOCKFILE_EXCLUSIVE_LOCK | windows.LOCKFILE_FAIL_IMMEDIATELY
	at := &windows.Overlapped{OffsetHigh: 1 << 30}
	err := windows.LockFileEx(windows.Handle(f.Fd()), flags, 0, 1, 0, at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) || errors.Is(err, windows.ERROR_IO_PENDING) {
		return ErrLocked
	}
	return err
}

// lockDir does nothing: directories cannot be locked.
func lockDir(string) (*os.File, error) { return nil, nil }

// Restrict does nothing: files have no permissions of this kind.
func (osFS) Restrict(string) error { return nil }

// Map is not available.
func (f *osFile) Map(int64) (*Mapping, error) { return nil, errors.ErrUnsupported }

// FileLimit is unknown: only memory limits handles.
func (osFS) FileLimit() int { return 0 }

func (osFS) Memory() int64 { return 0 }

// openSparing opens name as an ordinary file: the system does not say what its cache holds.
func openSparing(name string, opts OpenOptions) (File, error) { return openOS(name, os.O_RDONLY, opts) }
