package rowstore

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DropPageCache makes the kernel forget the contents of all files below dir. This
// process may have them open and mapped; no other may have them mapped, since the
// kernel keeps pages that are. It needs no privilege, unlike
// /proc/sys/vm/drop_caches.
func DropPageCache(dir string) error {
	if err := unmapPages(dir); err != nil {
		return err
	}
	return EachFile(dir, func(f *os.File) error {
		// Dirty pages are not dropped, so write them first.
		if err := f.Sync(); err != nil {
			return err
		}
		return unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
	})
}

// EachFile calls do with each file below dir, but for those that vanish meanwhile: a store that
// is open removes what it does not need any more.
func EachFile(dir string, do func(*os.File) error) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) && path != dir {
			return nil
		}
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		return errors.Join(do(f), f.Close())
	})
}

// WritePageCache writes all that the kernel has to write of the file system of dir, and
// waits until the device has it.
func WritePageCache(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = unix.Syncfs(int(f.Fd()))
	return errors.Join(err, f.Close())
}

// unmapPages takes the pages of files below dir out of the mappings of this
// process. They come back, from the page cache or the file, when they are touched;
// changes of a shared mapping are the page cache's by then.
func unmapPages(dir string) error {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return err
	}
	maps, err := os.ReadFile("/proc/self/maps")
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(maps)) {
		// address perms offset dev inode path
		fields := strings.Fields(line)
		if len(fields) < 6 || !strings.HasPrefix(fields[5], dir+"/") || !strings.HasSuffix(fields[1], "s") {
			continue
		}
		var from, to uintptr
		if _, err := fmt.Sscanf(fields[0], "%x-%x", &from, &to); err != nil {
			return err
		}
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, from, to-from, unix.MADV_DONTNEED)
		if errno != 0 && errno != unix.ENOMEM { // which says that it was unmapped meanwhile
			return errno
		}
	}
	return nil
}
