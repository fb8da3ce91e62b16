package rowstore

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// DropPageCache makes the kernel forget the contents of all files below dir.
// Nobody may have them open or mapped: the kernel keeps mapped pages. It needs
// no privilege, unlike /proc/sys/vm/drop_caches.
func DropPageCache(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return err
		}
		f, err := os.Open(path)
		if err != nil {
			return err
		}
		// Dirty pages are not dropped, so write them first.
		err = f.Sync()
		if err == nil {
			err = unix.Fadvise(int(f.Fd()), 0, 0, unix.FADV_DONTNEED)
		}
		return errors.Join(err, f.Close())
	})
}
