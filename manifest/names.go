package manifest

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// The layout of a store's directory:
//
//	LOCK                 held while the store is open
//	CURRENT              names the manifest that is valid, see current.go
//	MANIFEST-000007      the manifest, see log.go
//	wal/                 segments of the log, named by package wal
//	sst/00/000123.sst    table files, by number
//	val/00/000124.val    value files, by number
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

	currentTempName = "CURRENT.tmp"
	manifestPrefix  = "MANIFEST-"
	tableSuffix     = ".sst"
	valueSuffix     = ".val"
)

// manifestName returns the name of a manifest in the store's directory.
func manifestName(n uint64) string { return fmt.Sprintf("%s%06d", manifestPrefix, n) }

// ParseManifestName is the inverse of manifestName.
func ParseManifestName(name string) (n uint64, ok bool) {
	digits, found := strings.CutPrefix(name, manifestPrefix)
	n, ok = parseNumber(digits)
	return n, found && ok
}

func shard(n uint64) string { return fmt.Sprintf("%02x", n>>8&0xFF) }

// TableName returns the path of a table file, relative to the store's directory.
func TableName(n uint64) string {
	return filepath.Join(TablesDir, shard(n), fmt.Sprintf("%06d%s", n, tableSuffix))
}

// ValueName returns the path of a value file, relative to the store's directory.
func ValueName(n uint64) string {
	return filepath.Join(ValuesDir, shard(n), fmt.Sprintf("%06d%s", n, valueSuffix))
}

// ParseTableName is the inverse of TableName. It also accepts slashes.
func ParseTableName(name string) (n uint64, ok bool) { return parseName(name, tableSuffix, TableName) }

// ParseValueName is the inverse of ValueName. It also accepts slashes.
func ParseValueName(name string) (n uint64, ok bool) { return parseName(name, valueSuffix, ValueName) }

func parseName(name, suffix string, inverse func(uint64) string) (n uint64, ok bool) {
	slashed := filepath.ToSlash(name)
	digits, found := strings.CutSuffix(path.Base(slashed), suffix)
	n, ok = parseNumber(digits)
	if !found || !ok || slashed != filepath.ToSlash(inverse(n)) {
		return 0, false
	}
	return n, true
}

// parseNumber reads a number above 0 in the form of %06d.
func parseNumber(digits string) (uint64, bool) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > maxNumber || fmt.Sprintf("%06d", n) != digits {
		return 0, false
	}
	return n, true
}

// Inventory compares the table and value files of a directory with a state.
type Inventory struct {
	// Orphans are the paths, relative to the store's directory, of files that nothing refers to
	// and that may be deleted: a flush or compaction failed before its edit, or did not delete
	// them after it.
	Orphans []string
	// Missing are the paths of live files that do not exist.
	Missing []string
	// Highest is the largest file number found. New file numbers must be above it, see
	// Log.RaiseFileNumber.
	Highest uint64
}

// TakeInventory lists the table and value files of a store. list returns the names in a
// directory, given relative to the store's; one that does not exist counts as empty. Files with
// unknown names, or with numbers that the state has not given out, are ignored.
func TakeInventory(s *State, list func(dir string) ([]string, error)) (Inventory, error) {
	inv := inventory{state: s, list: list}
	err := inv.take(TablesDir, ParseTableName, func(n uint64) bool { return s.File(n) != nil })
	if err != nil {
		return inv.Inventory, err
	}
	for _, p := range s.files.pages {
		for _, e := range p.entries {
			inv.require(TableName(e.number), e.number)
		}
	}
	err = inv.take(ValuesDir, ParseValueName, func(n uint64) bool { _, live := s.ValueFile(n); return live })
	if err != nil {
		return inv.Inventory, err
	}
	for u := range s.ValueFiles() {
		inv.require(ValueName(u.Number), u.Number)
	}
	slices.Sort(inv.Orphans)
	return inv.Inventory, nil
}

type inventory struct {
	Inventory
	state *State
	list  func(dir string) ([]string, error)
	found map[uint64]bool // of the kind taken last
}

// take lists the files of one kind.
func (inv *inventory) take(dir string, parse func(string) (uint64, bool), live func(uint64) bool) error {
	inv.found = map[uint64]bool{}
	shards, err := listOrNothing(inv.list, dir)
	if err != nil {
		return err
	}
	for _, name := range shards {
		if v, err := strconv.ParseUint(name, 16, 8); err != nil || shard(v<<8) != name {
			continue
		}
		names, err := listOrNothing(inv.list, filepath.Join(dir, name))
		if err != nil {
			return err
		}
		for _, file := range names {
			path := filepath.Join(dir, name, file)
			n, ok := parse(path)
			if !ok {
				continue
			}
			inv.Highest = max(inv.Highest, n)
			switch {
			case live(n):
				inv.found[n] = true
			case n < inv.state.NextFile:
				inv.Orphans = append(inv.Orphans, path)
			}
		}
	}
	return nil
}

func (inv *inventory) require(path string, number uint64) {
	if !inv.found[number] {
		inv.Missing = append(inv.Missing, path)
	}
}

func listOrNothing(list func(string) ([]string, error), dir string) ([]string, error) {
	names, err := list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}

// LinkFiles puts the table and value files of a state from one directory into another, for
// CreateFrom. It copies those that cannot be linked. It ends early with ctx.
func LinkFiles(ctx context.Context, fsys vfs.FS, from, to string, s *State) error {
	var names []string
	for _, p := range s.files.pages {
		for _, e := range p.entries {
			names = append(names, TableName(e.number))
		}
	}
	for u := range s.ValueFiles() {
		names = append(names, ValueName(u.Number))
	}
	dirs := map[string]bool{to: true}
	for _, name := range names {
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
		if err := vfs.MakeDir(fsys, to, dir); err != nil {
			return err
		}
		if err := fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}
