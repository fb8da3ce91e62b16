package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// The layout of a store's directory:
//
//	LOCK                 held while the store is open
//	CURRENT              names the manifest that is valid, see current.go
//	MANIFEST-000007      the manifest, see log.go
//	COPY-000007          a copy of it, see copy.go
//	wal/                 segments of the log, named by package wal
//	sst/00/000123.sst    table files, by number
//	val/00/000124.val    value files, by number
//	staging/             files of another store that are to become files of this one
//
// Numbers have at least six decimal digits, and no two files have the same. The directory of a
// table or value file is bits 8 to 15 of its number in two hexadecimal digits. So 256
// consecutive files share a directory, the outputs of one compaction need few directory syncs,
// and no directory holds too much of a large store.
const (
	LockName    = "LOCK"
	CurrentName = "CURRENT"
	WALDir      = "wal"
	TablesDir   = "sst"
	ValuesDir   = "val"
	StagingDir  = "staging"

	currentTempName = "CURRENT.tmp"
)

// manifestName returns the name of a manifest in the store's directory.
func manifestName(n uint64) string { return fmt.Sprintf("MANIFEST-%06d", n) }

// ParseManifestName is the inverse of manifestName.
func ParseManifestName(name string) (n uint64, ok bool) { return parseName(name, manifestName) }

func shard(n uint64) string { return fmt.Sprintf("%02x", n>>8&0xFF) }

// TableName returns the path of a table file, relative to the store's directory.
func TableName(n uint64) string {
	return filepath.Join(TablesDir, shard(n), fmt.Sprintf("%06d.sst", n))
}

// ValueName returns the path of a value file, relative to the store's directory.
func ValueName(n uint64) string {
	return filepath.Join(ValuesDir, shard(n), fmt.Sprintf("%06d.val", n))
}

// ParseTableName is the inverse of TableName. It also accepts slashes.
func ParseTableName(name string) (n uint64, ok bool) { return parseName(name, TableName) }

// ParseValueName is the inverse of ValueName. It also accepts slashes.
func ParseValueName(name string) (n uint64, ok bool) { return parseName(name, ValueName) }

// parseName returns the number for which inverse gives the name.
func parseName(name string, inverse func(uint64) string) (n uint64, ok bool) {
	n, ok = vfs.ParseNumber(name, inverse)
	return n, ok && n <= maxNumber
}

// Inventory compares the table and value files of a directory with a state.
type Inventory struct {
	// Orphans are the paths, relative to the store's directory, of files that nothing refers to
	// and that may be deleted: a flush or compaction failed before its edit, or did not delete
	// them after it.
	Orphans []string
	// Ahead are the paths of files with numbers that the state has not given out: a flush or compaction
	// failed before its edit, or the end of the manifest is lost.
	Ahead []string
	// Missing are the paths of live files that do not exist.
	Missing []string
	// Highest is the largest file number found. New file numbers must be above it, see
	// Log.RaiseFileNumber.
	Highest uint64
}

// TakeInventory lists the table and value files of the store in dir. A directory that does not
// exist counts as empty. Files with unknown names are ignored.
func TakeInventory(fsys vfs.FS, dir string, s *State) (inv Inventory, err error) {
	live := s.fileNames()
	found := make(map[string]bool, len(live))
	for _, name := range live {
		found[name] = false
	}
	paths, err := listFiles(fsys, dir, TablesDir, ValuesDir)
	if err != nil {
		return inv, err
	}
	for _, path := range paths {
		n, known := ParseTableName(path)
		if !known {
			n, known = ParseValueName(path)
		}
		if !known {
			continue
		}
		inv.Highest = max(inv.Highest, n)
		if _, live := found[path]; live {
			found[path] = true
		} else if n < s.NextFile {
			inv.Orphans = append(inv.Orphans, path)
		} else {
			inv.Ahead = append(inv.Ahead, path)
		}
	}
	slices.Sort(inv.Orphans)
	slices.Sort(inv.Ahead)
	inv.Missing = slices.DeleteFunc(live, func(name string) bool { return found[name] })
	return inv, nil
}

// fileNames returns the paths of the live table files and then of the live value files, relative
// to the store's directory.
func (s *State) fileNames() []string {
	var names []string
	for f := range s.files.all() {
		names = append(names, TableName(f.meta.Number))
	}
	for u := range s.ValueFiles() {
		names = append(names, ValueName(u.Number))
	}
	return names
}

// listFiles returns the paths of all files in the numbered directories of these directories of root,
// relative to root.
func listFiles(fsys vfs.FS, root string, dirs ...string) (paths []string, err error) {
	for _, dir := range dirs {
		shards, err := fsys.List(filepath.Join(root, dir))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		for _, name := range shards {
			if v, err := strconv.ParseUint(name, 16, 8); err != nil || shard(v<<8) != name {
				continue
			}
			files, err := fsys.List(filepath.Join(root, dir, name))
			if err != nil && !errors.Is(err, fs.ErrNotExist) {
				return nil, err
			}
			for _, file := range files {
				paths = append(paths, filepath.Join(dir, name, file))
			}
		}
	}
	return paths, nil
}

// LinkFiles puts the table and value files of a state from one directory into another, for
// Create. It copies those that cannot be linked. It ends early with ctx.
func LinkFiles(ctx context.Context, fsys vfs.FS, from, to string, s *State) error {
	dirs := map[string]bool{to: true}
	for _, name := range s.fileNames() {
		if err := ctx.Err(); err != nil {
			return err
		}
		dir := filepath.Dir(filepath.Join(to, name))
		dirs[dir] = true
		if err := fsys.MkdirAll(dir); err != nil {
			return err
		}
		if err := outfile.Link(fsys, filepath.Join(from, name), filepath.Join(to, name)); err != nil {
			return err
		}
	}
	for dir := range dirs {
		if err := errors.Join(vfs.MakeDir(fsys, to, dir), fsys.SyncDir(dir)); err != nil {
			return err
		}
	}
	return nil
}
