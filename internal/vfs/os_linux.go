package vfs

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// errDirectRefused is the answer of a file system without direct I/O to O_DIRECT.
const errDirectRefused = unix.EINVAL

func openFlags() (int, bool) { return unix.O_DIRECT, true }

// directAlign uses the default if the kernel does not say which alignment the file demands: the
// default suits all usual devices. Zero means more than this package's buffers offer.
func directAlign(f *os.File) int {
	if leastAlign(f) > directAlignment {
		return 0
	}
	return directAlignment
}

// leastAlign asks the kernel which alignment direct I/O on the file demands of offsets, lengths and
// addresses. Linux 6.1 and later say; 0 means unknown.
func leastAlign(f *os.File) int {
	var st unix.Statx_t
	err := control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || st.Dio_offset_align == 0 {
		return 0
	}
	return int(max(st.Dio_offset_align, st.Dio_mem_align))
}

// syncData is fdatasync: it commits size and extents if they changed, but not the times.
func syncData(f *os.File) error { return control(f, unix.Fdatasync) }

func allocate(f *os.File, size int64) error {
	err := control(f, func(fd int) error { return unix.Fallocate(fd, 0, 0, size) })
	if err == unix.ENOSYS || err == unix.EOPNOTSUPP {
		return errors.ErrUnsupported
	}
	return err
}

// adviseSequential doubles the kernel's read-ahead. Failure only costs speed.
func adviseSequential(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_SEQUENTIAL) })
}

// adviseRandom switches the kernel's read-ahead off.
func adviseRandom(f *os.File) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, 0, 0, unix.FADV_RANDOM) })
}

// adviseWillNeed begins to read a part of the file into the page cache.
func adviseWillNeed(f *os.File, off, n int64) {
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, off, n, unix.FADV_WILLNEED) })
}

// dropCached drops clean pages from the page cache; the pages of a synced file are clean. Pages
// mapped into a process stay.
func dropCached(f *os.File, off, n int64) {
	from := off &^ (int64(os.Getpagesize()) - 1) // the kernel does not drop a part of a page
	to := off + n + int64(os.Getpagesize()) - 1
	_ = control(f, func(fd int) error { return unix.Fadvise(fd, from, to-from, unix.FADV_DONTNEED) })
}

// startWriteback starts to write back all dirty pages of the file, without waiting. Failure only
// costs speed: a sync reports what could not be written.
func startWriteback(f *os.File) {
	_ = control(f, func(fd int) error { return unix.SyncFileRange(fd, 0, 0, unix.SYNC_FILE_RANGE_WRITE) })
}
