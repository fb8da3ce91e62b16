package backup

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/valuefile"
)

// Files beside the store that belong to a server.
const (
	registryFile    = "instances"
	credentialsFile = "credentials"
	digestFile      = "digest" // what the tables held
)

// kind is what a file is. It is written.
type kind byte

const (
	tableFile kind = 1
	valueFile kind = 2
	otherFile kind = 3 // made anew for each checkpoint
)

// file is what is known of a file before it is read.
type file struct {
	kind   kind
	unique [16]byte // of a table or value file, its unique id; else random
	size   int64
	// sum is the checksum that the manifest has: of a table file the xxhash64 of all its bytes, of a value file the
	// checksum in its footer. It is 0 for other files.
	sum uint64
}

// identity returns 16 bytes that differ for any two files, and tell nothing of them.
func (f *file) identity() string {
	b := append([]byte("flagstone backup object 1"), byte(f.kind))
	b = append(b, f.unique[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(f.size))
	b = binary.LittleEndian.AppendUint64(b, f.sum)
	hash := sha256.Sum256(b)
	return hex.EncodeToString(hash[:16])
}

// entry is a file of a backup.
type entry struct {
	path string // within the directory, with slashes
	file
	suffix [8]byte // the random end of the object's name
	source *source // nil of an entry that was read from a description
}

// source is where a create reads a file.
type source struct {
	name  string
	value valuefile.Info // what the footer of a value file must say
}

// object returns the name of the object that has the file.
func (e *entry) object() string { return objectName(e.identity(), hex.EncodeToString(e.suffix[:])) }

func objectName(identity, suffix string) string {
	return objectsPrefix + identity[:2] + "/" + identity + "-" + suffix
}

// parseObject is the inverse of objectName, behind the prefix. It refuses other names.
func parseObject(name string) (identity string, suffix [8]byte, ok bool) {
	identity, end, _ := strings.Cut(path.Base(name), "-")
	b, err := hex.DecodeString(end)
	if err != nil || len(b) != len(suffix) || len(identity) != 32 || objectsPrefix+name != objectName(identity, end) {
		return "", suffix, false
	}
	return identity, [8]byte(b), true
}

// checkPath refuses a path that no home of a server has.
func checkPath(p string) error {
	within := p
	if first, rest, ok := strings.Cut(p, "/"); ok && first != manifest.TablesDir && first != manifest.ValuesDir {
		if !isWord(first) {
			return fmt.Errorf("%w: a file %q", ErrDamaged, p)
		}
		within = rest
	}
	_, isTable := manifest.ParseTableName(within)
	_, isValue := manifest.ParseValueName(within)
	_, isManifest := manifest.ParseManifestName(within)
	if isTable || isValue || isManifest || within == manifest.CurrentName || p == registryFile || p == credentialsFile || p == digestFile {
		return nil
	}
	return fmt.Errorf("%w: a file %q", ErrDamaged, p)
}

// isWord reports whether a directory within a home may have a name: at most 32 lower-case letters.
func isWord(name string) bool {
	return name != "" && len(name) <= 32 && strings.Trim(name, "abcdefghijklmnopqrstuvwxyz") == ""
}

// listSource lists the files of a checkpoint of a store, of those in directories of it, and the files beside, by path.
// The id is that of the store that made the checkpoint.
func listSource(fsys vfs.FS, dir string, beside []string) (entries []entry, origins []origin, store [16]byte, err error) {
	list, err := fsys.List(dir)
	if err != nil {
		return nil, nil, store, err
	}
	if entries, origins, store, err = listStore(fsys, dir, ""); err != nil {
		return nil, nil, store, err
	}
	if slices.Contains(list, registryFile) {
		beside = append(slices.Clone(beside), filepath.Join(dir, registryFile))
	}
	for _, from := range beside {
		e, err := otherEntry(fsys, from, filepath.Base(from))
		if err == nil {
			err = e.check()
		}
		if err != nil {
			return nil, nil, store, err
		}
		entries = append(entries, e)
	}
	for _, name := range list {
		if _, err := fsys.Stat(filepath.Join(dir, name, manifest.CurrentName)); err != nil || !isWord(name) {
			continue
		}
		inner, its, _, err := listStore(fsys, dir, name)
		if err != nil {
			return nil, nil, store, err
		}
		entries, origins = append(entries, inner...), append(origins, its...)
	}
	slices.SortFunc(entries, func(a, b entry) int { return strings.Compare(a.path, b.path) })
	return entries, origins, store, nil
}

// listStore lists the files of the store in a directory within dir, and where its log goes on, if it was kept. The id is
// that of the store that made the checkpoint.
func listStore(fsys vfs.FS, dir, within string) (entries []entry, origins []origin, store [16]byte, err error) {
	at := filepath.Join(dir, within)
	state, report, err := manifest.Load(fsys, at)
	if err != nil {
		return nil, nil, store, fmt.Errorf("%w: %w", ErrSource, err)
	}
	if state.NewestLog != (manifest.LogEnd{}) {
		return nil, nil, store, fmt.Errorf("%w: the store in %s has a log; make a checkpoint of it", ErrSource, at)
	}
	inventory, err := manifest.TakeInventory(fsys, at, state)
	if err != nil {
		return nil, nil, store, err
	}
	if len(inventory.Missing) > 0 {
		return nil, nil, store, fmt.Errorf("%w: %s is missing", ErrSource, filepath.Join(at, inventory.Missing[0]))
	}
	if o := state.Origin; o.Segment != 0 {
		origins = []origin{{within, o.StoreID, o.Segment, o.Changes, max(state.IssuedMillis, 0)*1000 + 999}}
	}
	add := func(name string, f file, value valuefile.Info) {
		entries = append(entries, entry{path: path.Join(within, filepath.ToSlash(name)), file: f, source: &source{filepath.Join(at, name), value}})
	}
	seen := map[uint64]bool{}
	for _, t := range state.Tables {
		for _, p := range t.Partitions {
			for _, f := range slices.Concat(p.Levels[:]...) {
				if !seen[f.Number] {
					seen[f.Number] = true
					add(manifest.TableName(f.Number), file{tableFile, f.UniqueID, f.Size, f.Checksum}, valuefile.Info{})
				}
			}
		}
	}
	for v := range state.ValueFiles() {
		add(manifest.ValueName(v.Number), file{valueFile, v.UniqueID, v.Size, v.Checksum},
			valuefile.Info{UniqueID: v.UniqueID, Size: v.Size, Checksum: v.Checksum, Values: v.Values, Bytes: v.Bytes})
	}
	for _, name := range []string{filepath.Base(report.Name), manifest.CurrentName} {
		e, err := otherEntry(fsys, filepath.Join(at, name), path.Join(within, name))
		if err != nil {
			return nil, nil, store, err
		}
		entries = append(entries, e)
	}
	return entries, origins, state.Origin.StoreID, nil
}

// otherEntry describes a file that is made anew for each checkpoint.
func otherEntry(fsys vfs.FS, from, name string) (entry, error) {
	info, err := fsys.Stat(from)
	if err == nil && info.Dir {
		err = fmt.Errorf("%w: %s is a directory", ErrSource, from)
	}
	e := entry{path: name, file: file{kind: otherFile, size: info.Size}, source: &source{name: from}}
	rand.Read(e.unique[:])
	return e, err
}
