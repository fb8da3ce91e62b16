package manifest

// The care of a store's directory: what an earlier process or version left behind.

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// RefuseForeign returns an error that matches ErrNotStore if dir, which has no CURRENT file, holds
// files that only a store has: then CURRENT was lost, and a new store would destroy the old one.
func RefuseForeign(fsys vfs.FS, dir string) error {
	for _, name := range []string{WALDir, TablesDir, ValuesDir} {
		names, err := fsys.List(filepath.Join(dir, name))
		if err == nil && len(names) > 0 {
			return fmt.Errorf("%w: %s has no %s file but files in %s; restore %s from a copy, or move %s away to begin anew",
				ErrNotStore, dir, CurrentName, name, CurrentName, name)
		}
	}
	return nil
}

// Tighten takes away the permissions that earlier versions gave to users other than the owner. The
// store's directories shut out other users, so the files in them keep their permissions; dir
// belongs to the user, and may hold files for others to read.
func Tighten(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	for _, name := range names {
		_, manifest := ParseManifestName(name)
		if manifest || slices.Contains([]string{LockName, CurrentName, WALDir, TablesDir, ValuesDir, StagingDir}, name) {
			err = errors.Join(err, fsys.Restrict(filepath.Join(dir, name)))
		}
	}
	return err
}

// CheckFiles takes the inventory of a store. An error that matches ErrCorrupt names a table or value
// file that is missing.
func CheckFiles(fsys vfs.FS, dir string, s *State) (Inventory, error) {
	inventory, err := TakeInventory(fsys, dir, s)
	if err == nil && len(inventory.Missing) > 0 {
		err = fmt.Errorf("%w: file %s is missing; restore it from a copy of the store",
			ErrCorrupt, filepath.Join(dir, inventory.Missing[0]))
	}
	return inventory, err
}

// ClearFiles deletes the table and value files that an earlier process left behind: those of an edit
// that was never committed, and obsolete ones. The inventory is that of CheckFiles.
func (l *Log) ClearFiles(inventory Inventory) error {
	l.RaiseFileNumber(inventory.Highest)
	for _, name := range inventory.Orphans {
		if err := l.fs.Remove(filepath.Join(l.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		l.logger.Info("orphan removed", "file", name)
	}
	return nil
}
