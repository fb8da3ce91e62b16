//go:build linux || darwin

package flagstone

import (
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// TestOpenShutsOthersOutOfAStoreOfAnEarlierVersion, whose files and directories had
// modes 0640 and 0750, and leaves alone what is not the store's.
func TestOpenShutsOthersOutOfAStoreOfAnEarlierVersion(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store")
	reopen := func(opts Options) {
		t.Helper()
		store, err := Open(dir, opts)
		if err != nil {
			t.Fatal(err)
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
	}
	reopen(Options{})
	if err := os.WriteFile(filepath.Join(dir, "notes"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return os.Chmod(name, 0o750)
		}
		return os.Chmod(name, 0o640)
	})
	if err != nil {
		t.Fatal(err)
	}
	modes := func() map[string]fs.FileMode {
		t.Helper()
		entries, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]fs.FileMode{}
		for _, e := range entries {
			info, err := e.Info()
			if err != nil {
				t.Fatal(err)
			}
			found[e.Name()] = info.Mode().Perm()
		}
		return found
	}
	reopen(Options{ReadOnly: true})
	if got := modes(); got["CURRENT"] != 0o640 || got["wal"] != 0o750 {
		t.Errorf("a store that is open to be read: %v", got)
	}
	reopen(Options{})
	got := modes()
	if got["notes"] != 0o640 || len(got) < 5 {
		t.Errorf("modes %v", got)
	}
	delete(got, "notes")
	for name, mode := range got {
		if mode&0o077 != 0 {
			t.Errorf("%s has mode %v", name, mode)
		}
	}
}
