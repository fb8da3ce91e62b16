package vfs

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
)

// ReplaceFile replaces a file of the operating system as a whole, durably; only its owner may read it. It replaces regular
// files alone. Until all is written the content is in NAME.tmp, so one process at a time may replace a file.
func ReplaceFile(name string, content []byte) error {
	temp := name + ".tmp"
	if err := os.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	return publish(f, name, true, func(out io.Writer) error {
		_, err := out.Write(content)
		return err
	})
}

// MakeFile makes a file of the operating system that fill writes, durably; only its owner may read it. Until all is written
// the content is in a file with a name of its own in the same directory. With overwrite it replaces a regular
// file; otherwise the error matches fs.ErrExist if there is one at the end.
func MakeFile(name string, overwrite bool, fill func(out io.Writer) error) error {
	f, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".*.part")
	if err != nil {
		return err
	}
	return publish(f, name, overwrite, fill)
}

// publish fills a file, makes it durable and gives it its name. After an error it removes the file.
func publish(f *os.File, name string, overwrite bool, fill func(out io.Writer) error) (err error) {
	temp := f.Name()
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(temp))
		}
	}()
	if err = fill(f); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return err // of the file, which it names, or of fill
	}
	return NameFile(temp, name, overwrite)
}

// NameFile gives a durable file of the operating system, which has the name temp in the same directory, its name, durably.
// With overwrite it replaces a regular file; otherwise the error matches fs.ErrExist if there is one.
func NameFile(temp, name string, overwrite bool) (err error) {
	if !overwrite {
		err = reserve(name)
	} else if st, missing := os.Lstat(name); missing == nil && !st.Mode().IsRegular() {
		err = pathError("replace", name, notRegular(st))
	}
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		return err
	}
	return syncDir(filepath.Dir(name))
}

// reserve makes an empty file of a name that no file has. It does what a link would, also on file systems without links.
func reserve(name string) error {
	f, err := os.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, filePerm)
	if err != nil {
		return err
	}
	return f.Close()
}
