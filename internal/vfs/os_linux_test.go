package vfs_test

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func TestWhatIsNeededComesIntoThePageCache(t *testing.T) {
	const size = 1 << 20
	for _, c := range []struct {
		what   string
		opts   vfs.OpenOptions
		mapped bool
	}{
		{what: "mapped", opts: vfs.OpenOptions{Random: true}, mapped: true},
		{what: "called", opts: vfs.OpenOptions{Random: true}},
		{what: "sparing", opts: vfs.OpenOptions{Random: true, Sparing: true}},
	} {
		name := filepath.Join(t.TempDir(), "file") // another one: pages that are being read stay
		must(t, os.WriteFile(name, make([]byte, size), 0o600))
		f, err := os.Open(name)
		must(t, err)
		defer f.Close()
		cached := func() (pages uint64, err error) {
			var found unix.Cachestat_t
			err = unix.Cachestat(uint(f.Fd()), &unix.CachestatRange{Len: size}, &found, 0)
			return found.Cache, err
		}
		must(t, f.Sync())
		must(t, unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED))
		if n, err := cached(); n > 0 || err != nil {
			t.Logf("nothing to be seen here: %d pages are kept, or the kernel does not tell: %v", n, err)
			return
		}
		file, err := vfs.OS().Open(name, c.opts)
		must(t, err)
		willNeed, end := file.WillNeed, file.Close
		if c.mapped {
			m, err := file.Map(size)
			must(t, err)
			must(t, file.Close())
			willNeed, end = m.WillNeed, m.Close
		}
		willNeed(5000, 256<<10)
		pages := uint64((5000+256<<10+os.Getpagesize()-1)/os.Getpagesize() - 5000/os.Getpagesize())
		if n, err := cached(); err != nil || n < pages || n == size/uint64(os.Getpagesize()) {
			t.Errorf("%s: %d pages came in, want %d: %v", c.what, n, pages, err)
		}
		must(t, end())
	}
}

// allocatedBytes returns the space that a file takes on the disk. ok is false if the file system
// does not reserve space; those that compress or copy on write report other numbers.
func allocatedBytes(t *testing.T, name string) (size int64, ok bool) {
	t.Helper()
	const ext, xfs, tmpfs = 0xEF53, 0x58465342, 0x01021994
	var st syscall.Statfs_t
	must(t, syscall.Statfs(name, &st))
	if st.Type != ext && st.Type != xfs && st.Type != tmpfs {
		return 0, false
	}
	info, err := os.Stat(name)
	must(t, err)
	return info.Sys().(*syscall.Stat_t).Blocks * 512, true
}
