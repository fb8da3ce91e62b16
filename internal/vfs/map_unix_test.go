//go:build unix

package vfs_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

func mapped(t *testing.T, content []byte) (name string, m *vfs.Mapping) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, content, 0o600); err != nil {
		t.Fatal(err)
	}
	f, err := vfs.OS().Open(name, vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	m, err = f.Map(int64(len(content)))
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := m.Close(); err != nil {
			t.Error(err)
		}
	})
	return name, m
}

func TestAMappingOutlivesItsFile(t *testing.T) {
	content := bytes.Repeat([]byte("mapped "), 10_000)
	_, m := mapped(t, content)
	err := m.Access(0, int64(len(content)), func(data []byte) error {
		if !bytes.Equal(data, content) {
			t.Error("another content")
		}
		return errors.ErrUnsupported
	})
	if err != errors.ErrUnsupported {
		t.Errorf("%v instead of the error of the function", err)
	}
}

func TestAPageThatCannotBeReadIsAnErrorOfTheAccess(t *testing.T) {
	name, m := mapped(t, make([]byte, 1<<20))
	if err := os.Truncate(name, 64<<10); err != nil {
		t.Fatal(err)
	}
	sum := byte(0)
	for range 2 {
		err := m.Access(1, 1<<20-1, func(data []byte) error {
			for _, x := range data {
				sum += x
			}
			return nil
		})
		if !errors.Is(err, vfs.ErrFault) {
			t.Fatalf("%v", err)
		}
	}
	if err := m.Access(0, 1, func(data []byte) error { sum += data[0]; return nil }); err != nil {
		t.Errorf("a page that is there: %v", err)
	}
}

func TestOtherPanicsGoThroughAnAccess(t *testing.T) {
	_, m := mapped(t, make([]byte, 10))
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	var p *int
	_ = m.Access(0, 1, func([]byte) error { *p = 1; return nil })
}
