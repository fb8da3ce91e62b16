package vfs_test

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestFilesAreReplacedAsAWhole replaces files, fails meanwhile, and finds a file or a directory in its place.
func TestFilesAreReplacedAsAWhole(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "file")
	check := func(what, want string) {
		t.Helper()
		content, err := os.ReadFile(name)
		if err != nil || string(content) != want {
			t.Errorf("%s: %q, %v", what, content, err)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%s: left %v, %v", what, left, err)
		}
	}
	fill := func(text string, end error) func(io.Writer) error {
		return func(out io.Writer) error {
			_, err := io.WriteString(out, text)
			return errors.Join(err, end)
		}
	}
	if err := os.WriteFile(name+".tmp", []byte("of a process that was killed"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := vfs.ReplaceFile(name, []byte("one")); err != nil {
		t.Fatal(err)
	}
	check("replaced", "one")
	if err := vfs.MakeFile(name, false, fill("two", nil)); !errors.Is(err, fs.ErrExist) {
		t.Errorf("a file that exists: %v", err)
	}
	check("not overwritten", "one")
	if err := vfs.MakeFile(name, true, fill("two", io.ErrClosedPipe)); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
	check("failed", "one")
	if err := vfs.MakeFile(name, true, fill("two", nil)); err != nil {
		t.Error(err)
	}
	check("overwritten", "two")
	if err := errors.Join(os.Remove(name), os.Mkdir(name, 0o700)); err != nil {
		t.Fatal(err)
	}
	if err := vfs.MakeFile(name, true, fill("two", nil)); !errors.Is(err, vfs.ErrNotRegular) {
		t.Errorf("a directory: %v", err)
	}
	if err := vfs.ReplaceFile(name, nil); !errors.Is(err, vfs.ErrNotRegular) {
		t.Errorf("a directory: %v", err)
	}
}
