package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

const tableSuffix, valueSuffix = ".sst", ".val"

// name is the name of a file in an export and in a staging directory.
func name(id [16]byte, suffix string) string { return hex.EncodeToString(id[:]) + suffix }

// names are the names of the files of a fragment.
func names(f *manifest.Fragment) (list []string) {
	for _, t := range f.Files() {
		list = append(list, name(t.UniqueID, tableSuffix))
	}
	for _, v := range f.Values {
		list = append(list, name(v.UniqueID, valueSuffix))
	}
	return list
}

// checkName refuses what name does not make.
func checkName(s string) error {
	suffix := filepath.Ext(s)
	id, err := hex.DecodeString(s[:len(s)-len(suffix)])
	if err != nil || len(id) != 16 || suffix != tableSuffix && suffix != valueSuffix || s != name([16]byte(id), suffix) {
		return refused("%q is no name of an exported file", s)
	}
	return nil
}

// staged is the path of a staged file, or of the staging directory.
func (m *Mover) staged(name string) string {
	return filepath.Join(m.Trees.Dir, manifest.StagingDir, name)
}

// removeFiles removes files of a directory, if they exist.
func removeFiles(fsys vfs.FS, dir string, names []string) (err error) {
	for _, name := range names {
		if failed := fsys.Remove(filepath.Join(dir, name)); !errors.Is(failed, fs.ErrNotExist) {
			err = errors.Join(err, failed)
		}
	}
	return err
}

const partialSuffix = ".partial"

// Clear deletes all staged files. REQUIRES: neither Stage nor Ingest runs.
func (m *Mover) Clear() error {
	names, err := m.Trees.FS.List(m.staged(""))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names = slices.DeleteFunc(names, func(s string) bool { return checkName(s) != nil && filepath.Ext(s) != partialSuffix })
	return errors.Join(err, removeFiles(m.Trees.FS, m.staged(""), names))
}

// Stage receives a file. When it returns nil the file has this size and checksum and is durable, together with
// its name. Errors match ErrRefused or are those of the content or the file system; then no file of that name
// was made or changed.
func (m *Mover) Stage(name string, size int64, checksum uint64, content io.Reader) error {
	if err := checkName(name); err != nil {
		return err
	}
	fsys := m.Trees.FS
	if err := vfs.MakeDir(fsys, m.Trees.Dir, m.staged("")); err != nil {
		return err
	}
	partial, digest := fmt.Sprint(m.partial.Add(1), partialSuffix), xxhash.New()
	_, err := outfile.WriteFile(fsys, m.staged(partial), io.TeeReader(io.LimitReader(content, size+1), digest))
	var info vfs.Info
	if err == nil {
		info, err = fsys.Stat(m.staged(partial))
	}
	if err == nil && (info.Size != size || digest.Sum64() != checksum) {
		err = refused("the first %d bytes have the checksum %x; want %d bytes with %x", info.Size, digest.Sum64(), size, checksum)
	}
	if err == nil {
		err = fsys.Rename(m.staged(partial), m.staged(name))
	}
	if err != nil {
		err = fmt.Errorf("stage %s: %w", name, err)
		return errors.Join(err, removeFiles(fsys, m.staged(""), []string{partial}))
	}
	return fsys.SyncDir(m.staged(""))
}
