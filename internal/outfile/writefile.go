package outfile

import (
	"errors"
	"io"
	"io/fs"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// WriteFile makes a file with this content, syncs it and reads it back; the caller syncs the
// directory. Errors match ErrNotWritten or are those of the content or of the file system.
// unsynced says that the error is that of the sync, after which the device may hold anything.
func WriteFile(fsys vfs.FS, name string, content io.Reader) (unsynced bool, err error) {
	f, err := fsys.Create(name, vfs.OpenOptions{})
	if err != nil {
		return false, err
	}
	w := New(f)
	_, err = io.Copy(w, content)
	meant, unwritten := w.Finish()
	if err = errors.Join(err, unwritten); err != nil {
		return false, errors.Join(err, f.Close())
	}
	if err := errors.Join(f.Sync(), f.Close()); err != nil {
		return true, err
	}
	return false, meant.ReadBack(fsys, name)
}

// Link gives the file named from a second name, or copies it with WriteFile if the link fails.
func Link(fsys vfs.FS, from, to string) error {
	if fsys.Link(from, to) == nil {
		return nil
	}
	// A link that is reported as failed may still have been made: then the copy would overwrite
	// the original.
	if err := fsys.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	in, err := fsys.Open(from, vfs.OpenOptions{Sequential: true})
	if err != nil {
		return err
	}
	defer in.Close()
	size, err := in.Size()
	if err == nil {
		_, err = WriteFile(fsys, to, io.NewSectionReader(in, 0, size))
	}
	return err
}
