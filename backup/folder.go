package backup

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Folder is a Repository in a folder. An object is a file, which is written under another name in the folder partial,
// synced and renamed. Symbolic links below the folder are refused.
type Folder struct {
	fs    vfs.FS
	dir   string
	clock clock.Clock

	mu   sync.Mutex
	made map[string]bool // directories that this process has made, or found, and made durable
}

// NewFolder returns the repository in a folder, which Put makes if it does not exist. fsys is that of the machine
// if nil.
func NewFolder(fsys vfs.FS, dir string) *Folder {
	return &Folder{fs: orMachine(fsys), dir: dir, clock: clock.System(), made: map[string]bool{}}
}

// orMachine returns the file system of the machine in place of none.
func orMachine(fsys vfs.FS) vfs.FS {
	if fsys == nil {
		return vfs.OS()
	}
	return fsys
}

// path returns the file of an object. No directory on the way to it is a link to elsewhere.
func (r *Folder) path(name string) (string, error) {
	if !filepath.IsLocal(filepath.FromSlash(name)) {
		return "", fmt.Errorf("backup: %q is no name of an object", name)
	}
	for i, c := range name {
		if c != '/' {
			continue
		}
		if _, err := r.fs.Lstat(r.local(name[:i])); ignoreMissing(err) != nil {
			return "", fmt.Errorf("backup: below a repository: %w", err)
		}
	}
	return r.local(name), nil
}

func (r *Folder) local(name string) string { return filepath.Join(r.dir, filepath.FromSlash(name)) }

// Put implements Repository.
func (r *Folder) Put(ctx context.Context, name string, write func(io.Writer) error) error {
	file, err := r.path(name)
	if err != nil {
		return err
	}
	temp, err := r.path(partialPrefix + dated(rand.Text(), r.clock.NowMillis()))
	if err != nil {
		return err
	}
	for _, dir := range []string{filepath.Dir(temp), filepath.Dir(file)} {
		if err := r.makeDir(dir); err != nil {
			return err
		}
	}
	if err := r.write(temp, write); err != nil { // also a disk that is full
		return errors.Join(fmt.Errorf("%w: %w", errNotPut, err), ignoreMissing(r.fs.Remove(temp)))
	}
	if err := ctx.Err(); err != nil {
		return errors.Join(fmt.Errorf("%w: %w", errNotPut, err), r.fs.Remove(temp))
	}
	if err := r.fs.Rename(temp, file); isMissing(err) {
		return fmt.Errorf("backup: a prune has taken this put for abandoned: %w", err)
	} else if err != nil {
		return err
	}
	return r.fs.SyncDir(filepath.Dir(file))
}

// makeDir makes a directory with its parents, durably. It does so once: each takes a sync of every parent.
func (r *Folder) makeDir(dir string) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.made[dir] {
		return nil
	}
	err := vfs.MakeDir(r.fs, "", dir)
	r.made[dir] = err == nil
	return err
}

// write makes a file, durably.
func (r *Folder) write(file string, write func(io.Writer) error) error {
	f, err := r.fs.Create(file, vfs.OpenOptions{WriteBehind: true})
	if err != nil {
		return err
	}
	w := bufio.NewWriterSize(f, 64<<10)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

// Get implements Repository.
func (r *Folder) Get(_ context.Context, name string) (io.ReadCloser, error) {
	file, err := r.path(name)
	if err != nil {
		return nil, err
	}
	f, err := r.fs.Open(file, vfs.OpenOptions{Sequential: true})
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

// List implements Repository.
func (r *Folder) List(ctx context.Context, prefix string, each func(name string, size int64) error) error {
	within := prefix[:strings.LastIndexByte(prefix, '/')+1]
	if _, err := r.path(within + "x"); err != nil {
		return err
	}
	return r.walk(ctx, within, func(name string, size int64) error {
		if !strings.HasPrefix(name, prefix) {
			return nil
		}
		return each(name, size)
	})
}

// walk calls each for the files below a directory, whose name ends in a slash or is empty.
func (r *Folder) walk(ctx context.Context, within string, each func(name string, size int64) error) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	list, err := r.fs.List(r.local(within))
	if isMissing(err) {
		return nil
	}
	if err != nil {
		return err
	}
	for _, entry := range list {
		name := within + entry
		info, err := r.fs.Lstat(r.local(name))
		switch {
		case isMissing(err): // deleted meanwhile
		case err != nil:
			return fmt.Errorf("backup: below a repository: %w", err)
		case info.Dir:
			err = r.walk(ctx, name+"/", each)
		default:
			err = each(name, info.Size)
		}
		if err != nil && !isMissing(err) {
			return err
		}
	}
	return nil
}

// Sync implements Repository. It syncs each directory once.
func (r *Folder) Sync(_ context.Context, names []string) error {
	var dirs []string
	for _, name := range names {
		file, err := r.path(name)
		if err != nil {
			return err
		}
		dirs = append(dirs, filepath.Dir(file))
	}
	slices.Sort(dirs)
	for _, dir := range slices.Compact(dirs) {
		if err := errors.Join(r.makeDir(dir), r.fs.SyncDir(dir)); err != nil {
			return err
		}
	}
	return nil
}

// Delete implements Repository. The folder is synced, so that an object is not gone after a power cut while the
// description that was deleted before it is back. That is so also if the file has gone: the process that removed it
// may have died before its sync.
func (r *Folder) Delete(_ context.Context, name string) error {
	file, err := r.path(name)
	if err != nil {
		return err
	}
	if err := ignoreMissing(r.fs.Remove(file)); err != nil {
		return err
	}
	return ignoreMissing(r.fs.SyncDir(filepath.Dir(file)))
}

func ignoreMissing(err error) error {
	if isMissing(err) {
		return nil
	}
	return err
}
