package backup

import (
	"bufio"
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
)

// Restore makes dir, which must be empty or not exist, a copy of what a backup has, and verifies all of it. Until
// all is there, the directory has another name, with ".partial" appended, and is no store. After an error nothing
// is left, unless the process died: then the next Restore asks to delete it. fsys is that of the machine if nil.
// Errors match ErrDamaged or fs.ErrExist, or are those of the repository or the file system.
func (a *Archive) Restore(ctx context.Context, backup string, fsys vfs.FS, dir string, progress func(Progress)) error {
	d, err := a.description(ctx, backup)
	if err != nil {
		return err
	}
	return a.restore(ctx, d, nil, 0, fsys, dir, progress, "")
}

// restore restores a backup, and then brings stores of it to a moment. Then it drops all tables of dir but the named one;
// no name drops none.
func (a *Archive) restore(ctx context.Context, d *description, stores []storePlan, micros int64, fsys vfs.FS, dir string, progress func(Progress), table string) error {
	fsys = orMachine(fsys)
	done := Progress{AllFiles: len(d.entries), AllBytes: d.info().Bytes}
	for _, s := range stores {
		done.AllFiles += len(s.parts)
		for _, part := range s.parts {
			done.AllBytes += part.size
		}
	}
	// The file CURRENT makes a directory a store: those come last, and that of the directory itself after all others.
	entries := d.entries
	slices.SortStableFunc(entries, func(a, b entry) int { return cmp.Compare(a.last(), b.last()) })
	return vfs.BuildDir(fsys, dir, func(partial string) error {
		r := restorer{a, d.name, fsys, partial, done, progress}
		for i := range entries {
			if err := r.file(ctx, &entries[i]); err != nil {
				return err
			}
		}
		err := r.check(entries)
		for i := range stores {
			if err == nil {
				err = r.replay(ctx, &stores[i], micros)
			}
		}
		if err == nil && table != "" {
			err = dropOthers(fsys, partial, table)
		}
		return err
	})
}

// RestoreTable makes dir, which must be empty or not exist, a store with one table of a backup, and verifies all of it. It
// reads the files of that table only. The table, which has its name from before, comes without its stream. Until all is
// there, the directory has another name: see Restore. Errors are those of Restore, or match ErrNoTable.
func (a *Archive) RestoreTable(ctx context.Context, backup string, fsys vfs.FS, dir, table string, progress func(Progress)) error {
	d, err := a.description(ctx, backup)
	if err != nil {
		return err
	}
	fsys = orMachine(fsys)
	return vfs.BuildDir(fsys, dir, func(partial string) error {
		r := restorer{archive: a, backup: backup, fs: fsys, dir: partial}
		for i := range d.entries {
			within, isStore := strings.CutSuffix(d.entries[i].path, manifest.CurrentName)
			if !isStore {
				continue
			}
			state, err := r.state(ctx, d.entries, within)
			if err != nil {
				return err
			}
			if others := otherTables(state, table); others != nil {
				if state, err = state.Apply(others); err != nil {
					return err
				}
				r.progress = progress
				return r.table(ctx, d.entries, within, state)
			}
		}
		return fmt.Errorf("%w: backup %s, table %q", ErrNoTable, backup, table)
	})
}

// state reads the manifest of a store of a backup, and leaves no file of it. within is the store's directory, "" or with
// a slash at its end.
func (r *restorer) state(ctx context.Context, entries []entry, within string) (*manifest.State, error) {
	var made []string
	for _, e := range entries {
		path, ours := strings.CutPrefix(e.path, within)
		_, isManifest := manifest.ParseManifestName(path)
		if !ours || !isManifest && path != manifest.CurrentName {
			continue
		}
		e.path = path
		if err := r.file(ctx, &e); err != nil {
			return nil, err
		}
		made = append(made, filepath.Join(r.dir, e.path))
	}
	state, _, err := manifest.Load(r.fs, r.dir)
	for _, name := range made {
		err = errors.Join(err, r.fs.Remove(name))
	}
	return state, err
}

// otherTables returns the edit that drops all tables but one, also its change log; nil if there is no such table.
func otherTables(state *manifest.State, table string) *manifest.Edit {
	var others manifest.Edit
	for _, t := range state.Tables {
		if t.Name != table || t.Log != nil {
			others.Dropped = append(others.Dropped, t.ID)
		}
	}
	if len(others.Dropped) == len(state.Tables) {
		return nil
	}
	return &others
}

// dropOthers drops all tables of a store but one, also its change log. The next opening deletes their files.
func dropOthers(fsys vfs.FS, dir, table string) (err error) {
	log, state, err := manifest.Open(fsys, dir, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, log.Close()) }()
	others := otherTables(state, table)
	if others == nil {
		return fmt.Errorf("%w: table %q", ErrNoTable, table)
	}
	_, err = log.Commit(others)
	return err
}

// table makes a store of a state, with files of a store of a backup.
func (r *restorer) table(ctx context.Context, entries []entry, within string, state *manifest.State) error {
	needed := map[string]bool{}
	for _, p := range state.Tables[0].Partitions {
		for _, f := range slices.Concat(p.Levels[:]...) {
			needed[filepath.ToSlash(manifest.TableName(f.Number))] = true
		}
	}
	for v := range state.ValueFiles() {
		needed[filepath.ToSlash(manifest.ValueName(v.Number))] = true
	}
	var files []entry
	r.done = Progress{}
	for _, e := range entries {
		path, ours := strings.CutPrefix(e.path, within)
		if ours && needed[path] {
			e.path = path
			files = append(files, e)
			r.done.AllFiles, r.done.AllBytes = r.done.AllFiles+1, r.done.AllBytes+e.size
		}
	}
	if len(files) != len(needed) {
		return fmt.Errorf("%w: backup %s has %d of %d files of the table", ErrDamaged, r.backup, len(files), len(needed))
	}
	for i := range files {
		if err := r.file(ctx, &files[i]); err != nil {
			return err
		}
	}
	made := *state
	rand.Read(made.StoreID[:])
	return manifest.Create(r.fs, r.dir, &made)
}

// last orders files: those that make a directory a store come behind all others.
func (e *entry) last() int {
	switch {
	case e.path == manifest.CurrentName:
		return 2
	case path.Base(e.path) == manifest.CurrentName:
		return 1
	}
	return 0
}

// restorer restores one backup.
type restorer struct {
	archive  *Archive
	backup   string
	fs       vfs.FS
	dir      string
	done     Progress
	progress func(Progress)
}

// file makes a file, durably.
func (r *restorer) file(ctx context.Context, e *entry) (err error) {
	name := filepath.Join(r.dir, filepath.FromSlash(e.path))
	if err := vfs.MakeDir(r.fs, r.dir, filepath.Dir(name)); err != nil {
		return err
	}
	f, err := r.fs.Create(name, vfs.OpenOptions{WriteBehind: true})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, chunk)
	err = readObject(ctx, r.archive.repo, r.archive.unsealer, e, io.MultiWriter(w, r))
	if err != nil {
		return fmt.Errorf("file %s of backup %s: %w", e.path, r.backup, err)
	}
	if err := errors.Join(w.Flush(), f.Sync()); err != nil {
		return err
	}
	r.done.Files++
	return r.fs.SyncDir(filepath.Dir(name))
}

// Write counts bytes of a file.
func (r *restorer) Write(p []byte) (int, error) {
	r.count(int64(len(p)))
	return len(p), nil
}

func (r *restorer) count(bytes int64) {
	r.done.Bytes += bytes
	if r.progress != nil {
		r.progress(r.done)
	}
}

// check compares each store with its manifest: that there are all files that it names.
func (r *restorer) check(entries []entry) error {
	for i := range entries {
		within, isStore := strings.CutSuffix(entries[i].path, manifest.CurrentName)
		if !isStore {
			continue
		}
		if _, _, _, err := listStore(r.fs, r.dir, path.Clean(within)); err != nil {
			return fmt.Errorf("%w: backup %s: %w", ErrDamaged, r.backup, err)
		}
	}
	return nil
}
