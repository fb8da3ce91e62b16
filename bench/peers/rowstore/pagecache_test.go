package rowstore_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// TestAFileThatVanishesIsNoError: Pebble removes its old OPTIONS file some time after it was opened.
func TestAFileThatVanishesIsNoError(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"a", "b/file", "c"} {
		if err := os.MkdirAll(filepath.Dir(filepath.Join(dir, name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	var met []string
	err := rowstore.EachFile(dir, func(f *os.File) error {
		met = append(met, filepath.Base(f.Name()))
		return os.RemoveAll(filepath.Join(dir, "b"))
	})
	if err != nil || len(met) != 2 || met[1] != "c" {
		t.Errorf("met %v: %v", met, err)
	}
	if err := rowstore.EachFile(filepath.Join(dir, "none"), nil); err == nil {
		t.Error("a directory that is not there has no files, and no error")
	}
}
