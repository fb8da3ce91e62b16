package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errDirectRefused never occurs: macOS has no direct open.
const errDirectRefused = unix.EINVAL

func openFlags() (int, bool) { return 0, false }

func directAlign(*os.File) int { return 0 }

// syncData is a full sync: package os uses F_FULLFSYNC, the only call on macOS that reaches
// beyond the device's cache.
func syncData(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// startWriteback does nothing: the system decides.
func startWriteback(*os.File) {}

func adviseSequential(f *os.File) {
	_ = control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_RDAHEAD, 1)
		return err
	})
}

func adviseRandom(f *os.File) {
	_ = control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_RDAHEAD, 0)
		return err
	})
}

// adviseWillNeed does nothing.
func adviseWillNeed(*os.File, int64, int64) {}

// dropCached lets reads through f bypass the cache, except for what it holds already.
func dropCached(f *os.File, _, _ int64) {
	_ = control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_NOCACHE, 1)
		return err
	})
}

func (osFS) Memory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// openSparing opens name as an ordinary file: the system does not say what its cache holds.
func openSparing(name string, opts OpenOptions) (File, error) { return openOS(name, os.O_RDONLY, opts) }
