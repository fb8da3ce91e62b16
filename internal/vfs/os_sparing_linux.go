package vfs

import (
	"errors"
	"io"
	"math/bits"
	"os"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// sparingFile is a file opened with OpenOptions.Sparing. It is open twice: for reads past the
// page cache and for reads through it.
//
// A read through the page cache that misses it has to find pages and evict others. That takes
// half of the processor time of a read where memory is short (a control group of 96 MiB, data of
// 400, 5 KiB at random), and evicts pages that would have been read again. So only those that
// admission chooses go through the cache.
//
// With AsyncReads, reads that miss the page cache go past it while others are in flight. The kernel is asked
// to bring the pages of those that should go through it there beside that.
type sparingFile struct {
	*osFile // past the page cache
	through *osFile
	pastFD  uintptr // the descriptors of both
	fd      uintptr
	size    int64
	async   *AsyncReads   // may be nil
	present atomic.Uint32 // reads since the last one that missed the page cache
	admission
}

// After a streak of presentStreak short reads that the page cache served, only one in askEvery asks the kernel
// whether it does, which takes a third of a read: the others go through it. Windows ask, since merges read
// them beside gets, and they hold much that is read once.
const (
	presentStreak = 64
	askEvery      = 8
)

// mostTwice bounds the reads that are read past the page cache while the kernel reads their pages into it.
const mostTwice = MostStarted

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
	f := &sparingFile{osFile: past.(*osFile), through: through.(*osFile), async: opts.Async}
	f.pastFD, f.fd = f.osFile.f.Fd(), f.through.f.Fd()
	if f.async != nil {
		f.others = &f.async.rarely
	}
	// The file is only read, so the alignment may be smaller than a page: of a random block of 5
	// KiB, sectors of 512 bytes read two fifths less, which takes a tenth less time.
	f.align = readAlign(f.osFile.f)
	f.size, err = f.Size()
	if err == nil {
		_, _, err = cachedPages(f.fd, 0, 1)
	}
	if err != nil {
		past.Close()
		return through, nil
	}
	return f, nil
}

// ReadAt reads through the page cache what is there, windows of which half is there, what admission chooses of the
// other reads, and most short reads of a streak.
func (f *sparingFile) ReadAt(p []byte, off int64) (int, error) {
	if err := checkTransfer("read", f.name, p, off, f.align); err != nil {
		return 0, err
	}
	if n := f.present.Add(1); len(p) <= mostTwice && n > presentStreak && n%askEvery != 0 {
		return f.through.ReadAt(p, off)
	}
	want := min(int64(len(p)), f.size-off)
	pages, cached, _ := cachedPages(f.fd, off, want)
	if cached >= pages || len(p) > mostTwice && 2*cached >= pages {
		return f.through.ReadAt(p, off)
	}
	admit := f.miss(f.present.Swap(0)-1, want)
	wait := f.async.enter()
	defer f.async.leave()
	switch {
	case wait && f.readAsync(p, off, want, admit):
		if want < int64(len(p)) {
			return int(want), io.EOF
		}
		return len(p), nil
	case admit:
		return f.through.ReadAt(p, off)
	}
	return f.osFile.ReadAt(p, off)
}

// miss is that of admission, for a read of n bytes.
func (f *sparingFile) miss(served uint32, n int64) (admit bool) {
	return f.admission.miss(served, func(place uint64) bool {
		offset, _ := bits.Mul64(place, uint64(f.size-n))
		pages, cached, _ := cachedPages(f.fd, int64(offset), n)
		return cached >= pages
	})
}

// readAsync reads from the device, unless the pages of a long read are to be admitted. It returns false if it
// did not read what is wanted.
func (f *sparingFile) readAsync(p []byte, off, want int64, admit bool) bool {
	if want <= 0 || admit && len(p) > mostTwice {
		return false
	}
	if admit {
		adviseWillNeed(f.through.f, off, want)
	}
	return int64(f.async.read(f.pastFD, p, off)) == want
}

// StartRead is that of Starter. It begins no read of what the page cache has, nor while many are in flight: those are
// waited for, and this one may turn out not to be needed.
func (f *sparingFile) StartRead(p []byte, off int64) (Started, bool) {
	if f.async == nil || f.async.inCalls.Load() > 0 || len(p) > MostStarted || f.present.Load() > presentStreak ||
		checkTransfer("read", f.name, p, off, f.align) != nil {
		return nil, false
	}
	want := min(int64(len(p)), f.size-off)
	if want <= 0 {
		return nil, false
	}
	if pages, cached, _ := cachedPages(f.fd, off, want); cached >= pages {
		return nil, false
	}
	s := f.async.submit(f.pastFD, p, off, asyncSlots/2)
	if s == nil {
		return nil, false
	}
	s.want = want
	if f.miss(f.present.Swap(0), want) {
		adviseWillNeed(f.through.f, off, want)
	}
	return s, true
}

// Close closes both.
func (f *sparingFile) Close() error { return errors.Join(f.osFile.Close(), f.through.Close()) }

// cachedPages returns how many pages a range of an open file has, and how many of them are in the page
// cache. An error means that the kernel does not say: cachestat(2) needs Linux 6.5.
func cachedPages(fd uintptr, offset, n int64) (pages, cached uint64, err error) {
	if n <= 0 {
		return 0, 0, nil
	}
	page := int64(os.Getpagesize())
	from, to := offset/page, (offset+n+page-1)/page
	var found unix.Cachestat_t
	err = unix.Cachestat(uint(fd), &unix.CachestatRange{Off: uint64(offset), Len: uint64(n)}, &found, 0)
	return uint64(to - from), found.Cache, err
}

// readAlign is the least alignment that direct reads of a file demand of offsets, lengths and
// addresses, or directAlignment if the kernel does not say.
func readAlign(f *os.File) int {
	if n := leastAlign(f); n >= 512 && directAlignment%n == 0 {
		return n
	}
	return directAlignment
}
