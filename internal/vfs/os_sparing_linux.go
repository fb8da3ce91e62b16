package vfs

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sparingFile is a file opened with OpenOptions.Sparing: for reads past the page
// cache, and once more for reads through it.
//
// Reading what the page cache does not have through it costs finding pages and giving
// others back, half of the processor time of a read where memory is short (a control
// group of 96 MiB, data of 400: 5 KiB at random), and it takes away what others, or
// the same reader, would have found again. So only one such read in admitEvery goes
// through it: of reads at random hardly any would meet its pages again, and what is read
// often soon comes to its turn (bimodal insertion: Qureshi and others, Adaptive
// Insertion Policies for High Performance Caching, ISCA 2007).
type sparingFile struct {
	*osFile // past the page cache
	through *osFile
	fd      uintptr // of through
	size    int64
	absent  atomic.Uint32 // reads of what was not in the page cache
}

// admitEvery is measured with gets of a Zipf distribution (s = 1.05, data four times the
// memory, some ten seconds in): of those that took no access to the device there were
// 46 in a hundred with 1, 48 with 2, 49 with 4 and 48 with 8, which takes longest
// to get there. The median was 57, 45, 32 and 37 us.
const admitEvery = 4

// openSparing opens name for reading that spares the page cache, or just for reading.
func openSparing(name string, opts OpenOptions) (File, error) {
	opts.Direct = true
	past, err := openOS(name, os.O_RDONLY, opts)
	if err != nil || past.Alignment() == 1 {
		return past, err
	}
	opts.Direct = false
	through, err := openOS(name, os.O_RDONLY, opts)
	if err != nil {
		past.Close()
		return nil, err
	}
	f := &sparingFile{osFile: past.(*osFile), through: through.(*osFile)}
	f.fd = f.through.f.Fd()
	// Nothing is written, so a whole page need not be: of a block of 5 KiB at random
	// two fifths less are read with sectors of 512 bytes, which takes a tenth less time.
	f.align = readAlign(f.osFile.f)
	f.size, err = f.Size()
	if err == nil {
		_, err = isCached(f.fd, 0, 1)
	}
	if err != nil {
		past.Close()
		return through, nil
	}
	return f, nil
}

// ReadAt reads through the page cache what is there, and its share of what is not.
func (f *sparingFile) ReadAt(p []byte, off int64) (int, error) {
	if err := checkTransfer("read", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	if f.hasCached(off, min(int64(len(p)), f.size-off)) || f.absent.Add(1)%admitEvery == 0 {
		return f.through.ReadAt(p, off)
	}
	return f.osFile.ReadAt(p, off)
}

func (f *sparingFile) hasCached(off, n int64) bool {
	if n <= 0 {
		return false
	}
	all, err := isCached(f.fd, off, n)
	return all && err == nil
}

// Close closes both.
func (f *sparingFile) Close() error { return errors.Join(f.osFile.Close(), f.through.Close()) }

// isCached reports whether all pages of a range of an open file are in the page
// cache. Errors say that the kernel does not tell: cachestat(2) is of Linux 6.5.
func isCached(fd uintptr, offset, n int64) (bool, error) {
	page := int64(os.Getpagesize())
	from, to := offset/page, (offset+n+page-1)/page
	var found unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(n)}, &found, 0)
	return err == nil && found.Cache >= uint64(to-from), err
}

// readAlign is the least that direct reads of a file demand of offsets, lengths and
// addresses, or directAlignment if the kernel does not say.
func readAlign(f *os.File) int {
	var st unix.Statx_t
	err := control(f, func(fd int) error {
		return unix.Statx(fd, "", unix.AT_EMPTY_PATH, unix.STATX_DIOALIGN, &st)
	})
	n := int(max(st.Dio_offset_align, st.Dio_mem_align))
	if err != nil || st.Mask&unix.STATX_DIOALIGN == 0 || n < 512 || directAlignment%n != 0 {
		return directAlignment
	}
	return n
}
