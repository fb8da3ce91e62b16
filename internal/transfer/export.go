package transfer

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"slices"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// fragmentName is the file of an export that has the fragment.
const fragmentName = "FRAGMENT"

// File is a file of an export.
type File struct {
	Name              string
	Size              int64
	Checksum          uint64      // xxhash64 of all bytes
	Smallest, Largest []row.Value // primary keys in a table file; nil for a value file
}

// Exported says what of a table is exported.
type Exported struct {
	Start, End row.Value // of the keys, Start included, End excluded: see table.Range
	Base       []byte    // a fragment whose files are left out, or nil
	As         string    // the name of the table in the fragment; its own if empty
}

// Export makes dir an export of a table. dir must be empty or not exist; it is complete or empty at every moment.
// Files are linked, or copied if the file system cannot link them. Errors match commit.ErrInvalid and
// table.ErrDetached.
func (m *Mover) Export(ctx context.Context, t *table.Table, dir string, what Exported) (fragment []byte, files []File, err error) {
	low, high, err := table.Range(t.Key, what.Start, what.End)
	if err == nil && (dir == "" || vfs.Within(m.Trees.Dir, dir)) {
		err = fmt.Errorf("%w: the directory %q is in the store, or none", commit.ErrInvalid, dir)
	}
	if err != nil {
		return nil, nil, fmt.Errorf("export of table %q: %w", t.Name, err)
	}
	has := map[string]bool{}
	if what.Base != nil {
		f, err := manifest.DecodeFragment(what.Base)
		if err != nil {
			return nil, nil, fmt.Errorf("export of table %q: the base: %w", t.Name, err)
		}
		for _, name := range names(f) {
			has[name] = true
		}
	}
	err = m.Env.Work(func() error {
		state, release, err := m.Env.Flushed(ctx)
		if err != nil {
			return err
		}
		defer release()
		if err := t.Gone(); err != nil {
			return err
		}
		f, detached := state.Fragment(t.ID, low, high)
		if detached != nil {
			return fmt.Errorf("%w: table %q, partition %d: %s", table.ErrDetached, t.Name, detached.ID, detached.Reason)
		}
		f.Table.Name = cmp.Or(what.As, f.Table.Name)
		fragment = f.Append(nil)
		if _, err := manifest.DecodeFragment(fragment); err != nil {
			return fmt.Errorf("%w: no store would take this of table %q, export a smaller range: %v", commit.ErrInvalid, t.Name, err)
		}
		return vfs.BuildDir(m.Trees.FS, dir, func(partial string) error {
			x := export{m: m, ctx: ctx, dir: partial, has: has}
			err := x.all(f, fragment)
			files = x.files
			return err
		})
	})
	if errors.Is(err, fs.ErrExist) {
		err = fmt.Errorf("%w: export into %s: %w", commit.ErrInvalid, dir, err)
	}
	return fragment, files, err
}

// export is an export that is being made.
type export struct {
	m     *Mover
	ctx   context.Context
	dir   string
	has   map[string]bool // names to leave out
	files []File
}

func (x *export) all(f *manifest.Fragment, fragment []byte) error {
	columns := len(f.Table.Key)
	for _, t := range f.Files() {
		file := File{Name: name(t.UniqueID, tableSuffix), Size: t.Size, Checksum: t.Checksum}
		var err error
		if file.Smallest, err = row.DecodeKey(t.Smallest, columns); err == nil {
			file.Largest, err = row.DecodeKey(t.Largest, columns)
		}
		if err == nil {
			err = x.add(file, manifest.TableName(t.Number))
		}
		if err != nil {
			return err
		}
	}
	for _, v := range f.Values {
		file, path := File{Name: name(v.UniqueID, valueSuffix), Size: v.Size}, manifest.ValueName(v.Number)
		if x.has[file.Name] {
			continue
		}
		var err error
		if file.Checksum, err = checksum(x.m.Trees.FS, filepath.Join(x.m.Trees.Dir, path)); err == nil {
			err = x.add(file, path)
		}
		if err != nil {
			return err
		}
	}
	_, err := outfile.WriteFile(x.m.Trees.FS, filepath.Join(x.dir, fragmentName), bytes.NewReader(fragment))
	return err
}

// add adds a file of the store.
func (x *export) add(file File, path string) error {
	if err := x.ctx.Err(); err != nil || x.has[file.Name] {
		return err
	}
	x.files, x.has[file.Name] = append(x.files, file), true // the store may have it under two numbers
	return outfile.Link(x.m.Trees.FS, filepath.Join(x.m.Trees.Dir, path), filepath.Join(x.dir, file.Name))
}

// Release deletes an export, if it exists.
func Release(fsys vfs.FS, dir string) error {
	names, err := fsys.List(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	names = slices.DeleteFunc(names, func(s string) bool { return checkName(s) != nil && s != fragmentName })
	return errors.Join(err, removeFiles(fsys, dir, names), fsys.RemoveDir(dir))
}

// checksum is the xxhash64 of a file.
func checksum(fsys vfs.FS, path string) (uint64, error) {
	f, err := Open(fsys, path)
	if err != nil {
		return 0, err
	}
	digest := xxhash.New()
	_, err = io.Copy(digest, f)
	return digest.Sum64(), errors.Join(err, f.Close())
}

// Open opens a file for reading from front to back.
func Open(fsys vfs.FS, path string) (io.ReadCloser, error) {
	f, err := fsys.Open(path, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return struct {
		io.Reader
		io.Closer
	}{io.NewSectionReader(f, 0, size), f}, nil
}
