//go:build linux || darwin

package vfs_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestOnlyRegularFilesAreOpened: an attacker may have planted what a name in a store's directory
// leads to.
func TestOnlyRegularFilesAreOpened(t *testing.T) {
	dir := t.TempDir()
	precious := filepath.Join(dir, "precious")
	plant := map[string]func(name string) error{
		"a symbolic link":          func(name string) error { return os.Symlink(precious, name) },
		"a dangling link":          func(name string) error { return os.Symlink(precious+"-not", name) },
		"a link to an endless one": func(name string) error { return os.Symlink("/dev/zero", name) },
		"a pipe":                   func(name string) error { return syscall.Mkfifo(name, 0o600) },
		"a socket": func(name string) error {
			fd, err := syscall.Socket(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
			if err != nil {
				return err
			}
			defer syscall.Close(fd)
			return syscall.Bind(fd, &syscall.SockaddrUnix{Name: name})
		},
	}
	calls := map[string]func(name string) error{
		"Open":          func(name string) error { return closed(vfs.OS().Open(name, vfs.OpenOptions{})) },
		"Open direct":   func(name string) error { return closed(vfs.OS().Open(name, vfs.OpenOptions{Direct: true})) },
		"Open sparing":  func(name string) error { return closed(vfs.OS().Open(name, vfs.OpenOptions{Sparing: true})) },
		"OpenReadWrite": func(name string) error { return closed(vfs.OS().OpenReadWrite(name, vfs.OpenOptions{})) },
		"Create":        func(name string) error { return closed(vfs.OS().Create(name, vfs.OpenOptions{})) },
		"Lstat":         func(name string) error { _, err := vfs.OS().Lstat(name); return err },
		"ReadFile":      func(name string) error { _, err := vfs.ReadFile(vfs.OS(), name, 1<<20); return err },
		"Lock to read":  func(name string) error { _, err := vfs.OS().Lock(name, vfs.LockToRead); return err },
		"Lock to write": func(name string) error { _, err := vfs.OS().Lock(name, vfs.LockToWrite); return err },
	}
	for what, make := range plant {
		for call, do := range calls {
			must(t, os.WriteFile(precious, []byte("precious"), 0o600))
			name := filepath.Join(t.TempDir(), "f") // short enough for a socket
			must(t, make(name))
			wantError(t, do(name), vfs.ErrNotRegular)
			if content, err := os.ReadFile(precious); err != nil || string(content) != "precious" {
				t.Errorf("%s of %s: the file it leads to holds %q, %v", call, what, content, err)
			}
			if _, err := os.Lstat(precious + "-not"); err == nil {
				t.Errorf("%s of %s made the file it leads to", call, what)
				must(t, os.Remove(precious+"-not"))
			}
		}
	}
	name := filepath.Join(dir, "pipe")
	must(t, syscall.Mkfifo(name, 0o600))
	_, err := vfs.OS().List(name)
	wantError(t, err, syscall.ENOTDIR)
}

func closed(f vfs.File, err error) error {
	if err == nil {
		f.Close()
	}
	return err
}

func TestFilesAndFoldersAreTheirOwnersAlone(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "store", "wal")
	must(t, vfs.OS().MkdirAll(dir))
	put(t, vfs.OS(), filepath.Join(dir, "f"), "x")
	lock, err := vfs.OS().Lock(filepath.Join(dir, "LOCK"), vfs.LockToWrite)
	must(t, err)
	defer mustClose(t, lock)
	for name, want := range map[string]os.FileMode{
		dir: 0o700, filepath.Dir(dir): 0o700, filepath.Join(dir, "f"): 0o600, filepath.Join(dir, "LOCK"): 0o600,
	} {
		st, err := os.Stat(name)
		must(t, err)
		if st.Mode().Perm() != want {
			t.Errorf("%s has mode %v, want %v", name, st.Mode().Perm(), want)
		}
	}
	// Files of earlier versions keep their permissions until they are restricted.
	must(t, os.Chmod(filepath.Join(dir, "f"), 0o640))
	f, err := vfs.OS().OpenReadWrite(filepath.Join(dir, "f"), vfs.OpenOptions{})
	must(t, err)
	mustClose(t, f)
}

func TestWhatOthersMayReadIsRestrictedButNotThroughALink(t *testing.T) {
	root := t.TempDir()
	dir, file, link := filepath.Join(root, "d"), filepath.Join(root, "f"), filepath.Join(root, "link")
	must(t, os.Mkdir(dir, 0o700))
	must(t, os.Chmod(dir, 0o2750))
	must(t, os.WriteFile(file, nil, 0o600))
	must(t, os.Chmod(file, 0o644))
	must(t, os.Symlink(dir, link))
	mode := func(name string) os.FileMode {
		st, err := os.Stat(name)
		must(t, err)
		return st.Mode().Perm()
	}
	if err := vfs.OS().Restrict(link); err == nil || mode(dir) != 0o750 {
		t.Errorf("the link: %v, its target has mode %v", err, mode(dir))
	}
	must(t, vfs.OS().Restrict(dir))
	must(t, vfs.OS().Restrict(file))
	must(t, vfs.OS().Restrict(link)) // leads to a file that only its owner may use
	if mode(dir) != 0o700 || mode(file) != 0o600 {
		t.Errorf("modes %v and %v", mode(dir), mode(file))
	}
	wantError(t, vfs.OS().Restrict(filepath.Join(root, "absent")), fs.ErrNotExist)
}

// TestALockLeavesContentAloneThatIsNoNote: a second name of a file cannot be told from its
// first.
func TestALockLeavesContentAloneThatIsNoNote(t *testing.T) {
	dir := t.TempDir()
	precious, name := filepath.Join(dir, "precious"), filepath.Join(dir, "LOCK")
	must(t, os.WriteFile(precious, []byte("precious"), 0o600))
	must(t, os.Link(precious, name))
	for _, mode := range []vfs.LockMode{vfs.LockToRead, vfs.LockToWrite} {
		lock, err := vfs.OS().Lock(name, mode)
		must(t, err)
		_, err = vfs.OS().Lock(name, mode)
		wantError(t, err, vfs.ErrLocked)
		mustClose(t, lock)
	}
	if content, err := os.ReadFile(precious); err != nil || string(content) != "precious" {
		t.Errorf("the file holds %q, %v", content, err)
	}
}
