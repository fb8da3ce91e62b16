package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errDirectRefused never comes: macOS has no direct open.
const errDirectRefused = unix.EINVAL

func openFlags() (int, bool) { return 0, false }

func directAlign(*os.File) int { return 0 }

// syncData is a full sync: package os asks for F_FULLFSYNC, the only call on
// macOS that reaches beyond the device's cache.
func syncData(f *os.File) error { return f.Sync() }

func allocate(*os.File, int64) error { return errors.ErrUnsupported }

// startWriteback is left to the system.
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

// dropCached lets reads by f go past the cache, but for what is in it already.
func dropCached(f *os.File, _, _ int64) {
	_ = control(f, func(fd int) error {
		_, err := unix.FcntlInt(uintptr(fd), unix.F_NOCACHE, 1)
		return err
	})
}

func machineMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}

// openSparing opens name just for reading: nobody says what the system's cache has.
func openSparing(name string, opts OpenOptions) (File, error) { return openOS(name, os.O_RDONLY, opts) }
