package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// MakeDir makes a directory below base, with missing parents, and makes all of these names
// durable. It syncs the parents of existing directories too: the process that made them may have
// ended before it did so. An empty base means the root. MakeDir skips a parent that the process
// may not sync or the file system cannot sync.
func MakeDir(fsys FS, base, dir string) error {
	if err := fsys.MkdirAll(dir); err != nil {
		return err
	}
	if base != "" {
		base = filepath.Clean(base)
	}
	for dir = filepath.Clean(dir); dir != base; {
		parent := filepath.Dir(dir)
		if parent == dir {
			return nil
		}
		if err := fsys.SyncDir(parent); err != nil && !cannotSync(err) {
			return err
		}
		dir = parent
	}
	return nil
}

// cannotSync reports whether a sync was refused, and did not fail.
func cannotSync(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS)
}
