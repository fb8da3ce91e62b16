package vfs

import (
	"errors"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sparingFile is a file opened with OpenOptions.Sparing. It is open twice: for reads past the
// page cache and for reads through it.
//
// A read through the page cache that misses it has to find pages and evict others. That takes
// half of the processor time of a read where memory is short (a control group of 96 MiB, data of
// 400, 5 KiB at random), and evicts pages that would have been read again. So only one such read
// in admitEvery goes through the cache: of random reads hardly any would meet its pages again,
// and what is read often soon gets its turn (bimodal insertion: Qureshi and others, Adaptive
// Insertion Policies for High Performance Caching, ISCA 2007).
type sparingFile struct {
	*osFile // past the page cache
	through *osFile
	fd      uintptr // of through
	size    int64
	absent  atomic.Uint32 // reads that missed the page cache
}

// admitEvery was measured with gets of a Zipf distribution (s = 1.05, data four times the
// memory, after some ten seconds). With 1, 2, 4 and 8, the gets without an access to the device
// were 46, 48, 49 and 48 in a hundred, and 8 takes longest to get there. The median was 57, 45,
// 32 and 37 us.
const admitEvery = 4

// openSparing opens name for reads that spare the page cache, or as an ordinary file.
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
	// The file is only read, so the alignment may be smaller than a page: of a random block of 5
	// KiB, sectors of 512 bytes read two fifths less, which takes a tenth less time.
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

// ReadAt reads through the page cache what is there, and one in admitEvery of the other reads.
func (f *sparingFile) ReadAt(p []byte, off int64) (int, error) {
	if err := checkTransfer("read", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	if all, _ := isCached(f.fd, off, min(int64(len(p)), f.size-off)); all || f.absent.Add(1)%admitEvery == 0 {
		return f.through.ReadAt(p, off)
	}
	return f.osFile.ReadAt(p, off)
}

// Close closes both.
func (f *sparingFile) Close() error { return errors.Join(f.osFile.Close(), f.through.Close()) }

// isCached reports whether all pages of a range of an open file are in the page cache; false if it
// is empty. An error means that the kernel does not say: cachestat(2) needs Linux 6.5.
func isCached(fd uintptr, offset, n int64) (bool, error) {
	if n <= 0 {
		return false, nil
	}
	page := int64(os.Getpagesize())
	from, to := offset/page, (offset+n+page-1)/page
	var found unix.Cachestat_t
	err := unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(n)}, &found, 0)
	return err == nil && found.Cache >= uint64(to-from), err
}

// readAlign is the least alignment that direct reads of a file demand of offsets, lengths and
// addresses, or directAlignment if the kernel does not say.
func readAlign(f *os.File) int {
	if n := leastAlign(f); n >= 512 && directAlignment%n == 0 {
		return n
	}
	return directAlignment
}
