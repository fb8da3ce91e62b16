package vfs

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// PartialSuffix ends the name of a directory that BuildDir has not finished.
const PartialSuffix = ".partial"

// BuildDir makes a directory, which must not exist or be empty, with what build puts
// there and makes durable. Until all of it is there it has another name, which build
// is called with: dir itself is complete or has nothing in it, whatever happens. After
// an error what was built is removed. What a process that died has left matches
// fs.ErrExist, and so does a directory that is not empty.
func BuildDir(fsys FS, dir string, build func(partial string) error) error {
	names, err := fsys.List(dir)
	empty := err == nil
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(names) > 0 {
		return pathError("make", dir, fmt.Errorf("%w: it is not empty", fs.ErrExist))
	}
	partial := filepath.Clean(dir) + PartialSuffix
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
	if err == nil && empty { // not every system replaces it
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

// removeTree removes a directory with all that is in it.
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
