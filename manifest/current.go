package manifest

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// CURRENT is one line of text that names the valid manifest:
//
//	MANIFEST-000007 fb547ac225ac8043\n
//
// The digits are the xxhash64 of the name. The file is replaced as a whole, in this order, so
// that it names a complete manifest at every moment:
//
//	new manifest written, synced and read back -> directory synced -> CURRENT.tmp
//	written, synced and read back -> renamed to CURRENT -> directory synced -> old
//	one deleted
//
// The first sync of the directory ensures that a power loss does not keep the rename but lose
// the name of the new manifest.

// ErrNotStore reports a directory without a store, or one whose creation did not finish. It also
// matches fs.ErrNotExist.
var ErrNotStore = errors.New("manifest: not a Flagstone store")

// errExists reports a directory that already holds a store. It also matches
// fs.ErrExist.
var errExists = errors.New("manifest: there is a store already")

// maxCurrentBytes is above the length of every valid CURRENT.
const maxCurrentBytes = 64

func currentLine(manifest string) string {
	return fmt.Sprintf("%s %016x\n", manifest, xxhash.Sum64String(manifest))
}

// readCurrent returns the number of the manifest that CURRENT names.
func readCurrent(fsys vfs.FS, dir string) (uint64, error) {
	name := filepath.Join(dir, CurrentName)
	content, err := vfs.ReadFile(fsys, name, maxCurrentBytes)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return 0, explainMissing(fsys, dir, err)
	case errors.Is(err, vfs.ErrTooLarge):
		return 0, corrupt("%s does not hold the name of a manifest and its checksum: %w", name, err)
	case err != nil:
		return 0, fmt.Errorf("manifest: read %s: %w", name, err)
	}
	manifest, _, _ := strings.Cut(string(content), " ")
	number, ok := ParseManifestName(manifest)
	if !ok || string(content) != currentLine(manifest) {
		return 0, corrupt("%s does not hold the name of a manifest and its checksum, but %q", name, content)
	}
	return number, nil
}

// explainMissing distinguishes a directory without a store from a store that lost its CURRENT.
// An unfinished creation leaves at most manifest 1.
func explainMissing(fsys vfs.FS, dir string, cause error) error {
	numbers, err := listManifests(fsys, dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, n := range numbers {
		if n != firstManifest {
			return corrupt("%s holds %s, but no %s", dir, manifestName(n), CurrentName)
		}
	}
	return fmt.Errorf("%w: %s: %w", ErrNotStore, dir, cause)
}

// listManifests returns the numbers of the manifests in a directory.
func listManifests(fsys vfs.FS, dir string) ([]uint64, error) {
	return listNumbers(fsys, dir, manifestName)
}

// listNumbers returns the numbers of the files in a directory that have names of one kind.
func listNumbers(fsys vfs.FS, dir string, name func(uint64) string) (numbers []uint64, err error) {
	names, err := fsys.List(dir)
	if err != nil {
		return nil, fmt.Errorf("manifest: list %s: %w", dir, err)
	}
	for _, found := range names {
		if n, ok := parseName(found, name); ok {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}

// stageCurrent writes CURRENT.tmp, syncs it and reads it back. unsynced says that an error came
// from the sync.
//
// A power cut during an earlier switch can leave CURRENT.tmp as a second name of CURRENT's file.
// So it is removed, not truncated.
func stageCurrent(fsys vfs.FS, dir string, number uint64) (unsynced bool, err error) {
	name := filepath.Join(dir, currentTempName)
	if err := fsys.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return false, err
	}
	return outfile.WriteFile(fsys, name, strings.NewReader(currentLine(manifestName(number))))
}

// switchCurrent renames CURRENT.tmp to CURRENT. switched says that an error came after that,
// from the sync.
func switchCurrent(fsys vfs.FS, dir string) (switched bool, err error) {
	if err := fsys.Rename(filepath.Join(dir, currentTempName), filepath.Join(dir, CurrentName)); err != nil {
		return false, err
	}
	return true, fsys.SyncDir(dir)
}
