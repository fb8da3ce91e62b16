package outfile

import (
	"errors"
	"io"
	"io/fs"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// Link gives the file named from a second name, or copies it if the link fails. A copy is synced
// and read back; the caller syncs the directory. Errors match ErrNotWritten or are those of the
// file system.
func Link(fsys vfs.FS, from, to string) error {
	if fsys.Link(from, to) == nil {
		return nil
	}
	// A link that is reported as failed may still have been made: then the copy would overwrite
	// the original.
	if err := fsys.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return copyFile(fsys, from, to)
}

// copyFile copies a file, syncs the copy and reads it back.
func copyFile(fsys vfs.FS, from, to string) (err error) {
	in, err := fsys.Open(from, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := fsys.Create(to, vfs.OpenOptions{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	size, err := in.Size()
	if err != nil {
		return err
	}
	w := New(out)
	if _, err := io.Copy(w, io.NewSectionReader(in, 0, size)); err != nil {
		return err
	}
	copied, err := w.Finish()
	if err == nil {
		err = out.Sync()
	}
	if err != nil {
		return err
	}
	return copied.ReadBack(fsys, to)
}
