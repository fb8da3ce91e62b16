package vfs

import (
	"errors"
	"os"
	"sync/atomic"
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

const admitEvery = 8

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
