package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// The layout of a store's directory:
//
//	LOCK                 held while the store is open
//	CURRENT              names the manifest that counts, see current.go
//	MANIFEST-000007      the manifest, see log.go
//	wal/                 segments of the log, named by package wal
//	sst/00/000123.sst    table files, by number
//
// Numbers have at least six decimal digits. The directory of a table file is
// bits 8 to 15 of its number in two hexadecimal digits: 256 files in a row
// share a directory, so that the outputs of one compaction need few directory
// syncs, and no directory holds more than its share of a large store.
const (
	LockName    = "LOCK"
	CurrentName = "CURRENT"
	WALDir      = "wal"
	TablesDir   = "sst"

	currentTempName = "CURRENT.tmp"
	manifestPrefix  = "MANIFEST-"
	tableSuffix     = ".sst"
)

// ManifestName returns the name of a manifest in the store's directory.
func ManifestName(n uint64) string { return fmt.Sprintf("%s%06d", manifestPrefix, n) }

// ParseManifestName is the inverse of ManifestName.
func ParseManifestName(name string) (n uint64, ok bool) {
	digits, found := strings.CutPrefix(name, manifestPrefix)
	n, ok = parseNumber(digits)
	return n, found && ok
}

// TableDir returns the directory of a table file, relative to the store's.
func TableDir(n uint64) string {
	return filepath.Join(TablesDir, tableShard(n))
}

func tableShard(n uint64) string { return fmt.Sprintf("%02x", n>>8&0xFF) }

// TableName returns the path of a table file, relative to the store's
// directory.
func TableName(n uint64) string {
	return filepath.Join(TableDir(n), fmt.Sprintf("%06d%s", n, tableSuffix))
}

// ParseTableName is the inverse of TableName. It also takes slashes.
func ParseTableName(name string) (n uint64, ok bool) {
	slashed := filepath.ToSlash(name)
	digits, found := strings.CutSuffix(path.Base(slashed), tableSuffix)
	n, ok = parseNumber(digits)
	if !found || !ok || slashed != filepath.ToSlash(TableName(n)) {
		return 0, false
	}
	return n, true
}

// parseNumber reads a number as %06d writes it, above 0.
func parseNumber(digits string) (uint64, bool) {
	n, err := strconv.ParseUint(digits, 10, 64)
	if err != nil || n == 0 || n > maxNumber || fmt.Sprintf("%06d", n) != digits {
		return 0, false
	}
	return n, true
}

// Inventory compares the table files of a directory with those of a state.
type Inventory struct {
	// Orphans are the paths, relative to the store's directory, of table files
	// that nothing refers to and that may be deleted: left by a flush or a
	// compaction that did not come to its edit, or not yet deleted after it.
	Orphans []string
	// Missing are the numbers of live files that do not exist.
	Missing []uint64
	// Highest is the largest number of a table file found; file numbers must
	// go on above it, see Log.RaiseFileNumber.
	Highest uint64
}

// TakeInventory lists the table files of a store. The listing function
// returns the names in a directory that is given relative to the store's;
// one that does not exist is taken as empty. Files with unknown names are left
// alone, and so are files with numbers the state has never given out.
func TakeInventory(s *State, list func(dir string) ([]string, error)) (Inventory, error) {
	var inv Inventory
	found := map[uint64]bool{}
	shards, err := listOrNothing(list, TablesDir)
	if err != nil {
		return inv, err
	}
	for _, shard := range shards {
		if v, err := strconv.ParseUint(shard, 16, 8); err != nil || tableShard(v<<8) != shard {
			continue
		}
		names, err := listOrNothing(list, filepath.Join(TablesDir, shard))
		if err != nil {
			return inv, err
		}
		for _, name := range names {
			path := filepath.Join(TablesDir, shard, name)
			n, ok := ParseTableName(path)
			if !ok {
				continue
			}
			inv.Highest = max(inv.Highest, n)
			switch {
			case s.File(n) != nil:
				found[n] = true
			case n < s.NextFile:
				inv.Orphans = append(inv.Orphans, path)
			}
		}
	}
	for _, p := range s.files.pages {
		for _, e := range p.entries {
			if !found[e.number] {
				inv.Missing = append(inv.Missing, e.number)
			}
		}
	}
	slices.Sort(inv.Orphans)
	return inv, nil
}

func listOrNothing(list func(string) ([]string, error), dir string) ([]string, error) {
	names, err := list(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return names, err
}
