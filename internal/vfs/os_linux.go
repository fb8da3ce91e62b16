package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errDirectRefused is what a file system without direct I/O answers to
// O_DIRECT.
const errDirectRefused = unix.EINVAL

func openFlags() (int, bool) { return unix.O_DIRECT, true }

// directAlign asks the kernel what alignment the file demands (Linux 6.1 and
// later say; older ones leave the default, which suits all usual devices).
// Zero means more than this package's buffers offer.
func directAlign(f *os.File) int {
	var st unix.Statx_t
	err := control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return directAlignment
	}
	if st.Dio_offset_align > directAlignment || st.Dio_mem_align > directAlignment {
		return 0
	}
	return directAlignment
}

// syncData is fdatasync: it commits the size and the extents when they
// changed, and leaves out the times.
func syncData(f *os.File) error { return control(f, unix.Fdatasync) }

func allocate(f *os.File, size int64) error {
	err := control(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP {
		return errors.ErrUnsupported
	}
	return err
}

// adviseSequential doubles the kernel's read-ahead. Failure changes nothing
// but speed.
func adviseSequential(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL) })
}

// adviseRandom switches it off.
func adviseRandom(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) })
}

// dropCached gives back pages of the page cache that are clean, as those of a file are
// that was synced. Pages that are mapped into a process stay.
func dropCached(f *os.File, off, n int64) {
	from := off &^ (int64(os.Getpagesize()) - 1) // the kernel keeps a page of which it is to drop a part
	to := off + n + int64(os.Getpagesize()) - 1
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, from, to-from, unix.FADV_DONTNEED) })
}

// startWriteback begins to write back all that the page cache has of the file, and
// does not wait for it. Failure changes nothing but speed: a sync reports what could
// not be written.
func startWriteback(f *os.File) {
	_ = control(f, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) })
}
