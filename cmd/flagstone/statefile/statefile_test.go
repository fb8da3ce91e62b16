package statefile

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestOneProcessHasAState takes the lock twice.
func TestOneProcessHasAState(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state")
	first, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Lock(path); !errors.Is(err, vfs.ErrLocked) {
		t.Error(err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	second, err := Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := second.Close(); err != nil {
		t.Error(err)
	}
}

// TestADamagedFileIsRefused changes each byte of a file, cuts it at each place, and asks for another kind.
func TestADamagedFileIsRefused(t *testing.T) {
	type state struct{ A, B int }
	path := filepath.Join(t.TempDir(), "state")
	var got state
	if err := Read(path, "a state 1", &got); !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	if err := Write(path, "a state 1", &state{1, 2}); err != nil {
		t.Fatal(err)
	}
	if err := Read(path, "a state 1", &got); err != nil || got != (state{1, 2}) {
		t.Fatalf("%v, %v", got, err)
	}
	if err := Read(path, "a state 2", &got); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("another kind: %v", err)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range content {
		if err := Parse(content[:i], "a state 1", &got); err == nil {
			t.Errorf("%d bytes of it are taken", i)
		}
		content[i] ^= 1
		if err := Parse(content, "a state 1", &got); err == nil {
			t.Errorf("another byte %d is taken", i)
		}
		content[i] ^= 1
	}
}
