package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"syscall"
)

// partialSuffix ends the name of a directory that BuildDir has not finished.
const partialSuffix = ".partial"

// BuildDir makes a directory, which must not exist or be empty. build is called with another
// name, under which it puts the content and makes it durable. So dir itself is complete or empty
// at every moment. After an error BuildDir removes what was built. The error matches fs.ErrExist
// if dir is not empty, or if a process that died left an unfinished directory.
func BuildDir(fsys FS, dir string, build func(partial string) error) error {
	names, err := fsys.List(dir)
	empty := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) > 0 {
		return pathError("make", dir, fmt.Errorf("%w: it is not empty", fs.ErrExist))
	}
	if empty { // before the work: a mount point, for one, cannot be replaced
		if err := fsys.RemoveDir(dir); err != nil {
			return pathError("make", dir, fmt.Errorf("it cannot be replaced, as a mount point cannot; name a directory within it, as %s: %w", filepath.Join(dir, "store"), err))
		}
		if err := fsys.MkdirAll(dir); err != nil {
			return err
		}
	}
	partial := filepath.Clean(dir) + partialSuffix
	if _, err := fsys.Stat(partial); err == nil {
		return pathError("make", partial, fmt.Errorf("%w: an unfinished copy: delete it", fs.ErrExist))
	}
	err = MakeDir(fsys, "", partial)
	if err == nil {
		err = build(partial)
	}
	if err == nil {
		err = fsys.SyncDir(partial)
	}
	if err == nil && empty { // not every system replaces an empty directory
		err = fsys.RemoveDir(dir)
	}
	if err == nil {
		err = fsys.Rename(partial, dir)
	}
	if err != nil {
		if left := removeTree(fsys, partial); left != nil {
			return fmt.Errorf("%w; an unfinished copy is left in %s, delete it: %w", err, partial, left)
		}
		return err
	}
	return fsys.SyncDir(filepath.Dir(partial))
}

// removeTree removes a directory with all its content.
func removeTree(fsys FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	for _, name := range names {
		name = filepath.Join(dir, name)
		info, failed := fsys.Stat(name)
		switch {
		case failed != nil:
		case info.Dir:
			failed = removeTree(fsys, name)
		default:
			failed = fsys.Remove(name)
		}
		err = errors.Join(err, failed)
	}
	return errors.Join(err, fsys.RemoveDir(dir))
}

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

// Within reports whether name is dir or lies in it.
func Within(dir, name string) bool {
	dir, outer := filepath.Abs(dir)
	name, inner := filepath.Abs(name)
	rel, err := filepath.Rel(dir, name)
	return errors.Join(outer, inner, err) == nil && filepath.IsLocal(rel)
}
