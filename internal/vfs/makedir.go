package vfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"syscall"
)

// MakeDir makes a directory below base, and what is missing in between, and makes
// all of these names durable. It syncs the parents of directories that exist as
// well: the process that made them may have ended before it did so. An empty base
// stands for the root. A parent that the process may not sync, or that its file
// system cannot sync, is left to the process that made it.
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

// cannotSync reports whether a sync was refused, rather than tried in vain.
func cannotSync(err error) bool {
	return errors.Is(err, fs.ErrPermission) || errors.Is(err, errors.ErrUnsupported) ||
		errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.EROFS)
}
