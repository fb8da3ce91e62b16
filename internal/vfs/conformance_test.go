package vfs_test

// The conformance suite of this package's file systems: the real one in a temporary directory,
// the simulated one, and a Fault without rules around each.

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// conformance is one property; dir exists and is empty.
type conformance struct {
	name string
	run  func(t *testing.T, fsys vfs.FS, dir string)
}

func TestEveryFileSystemBehavesAlike(t *testing.T) {
	systems := []struct {
		name string
		make func() vfs.FS
	}{
		{"os", vfs.OS},
		{"sim", func() vfs.FS { return vfs.NewSim(vfs.SimOptions{}) }},
		{"sim with 512-byte blocks", func() vfs.FS { return vfs.NewSim(vfs.SimOptions{BlockSize: 512}) }},
		{"sim without direct I/O", func() vfs.FS { return vfs.NewSim(vfs.SimOptions{BlockSize: -1}) }},
		{"fault around os", func() vfs.FS { return vfs.NewFault(vfs.OS(), 1) }},
		{"fault around sim", func() vfs.FS { return vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1) }},
	}
	cases := slices.Concat(fileCases(), transferCases(), directoryCases())
	for _, system := range systems {
		for _, c := range cases {
			t.Run(system.name+"/"+c.name, func(t *testing.T) {
				fsys, dir := system.make(), t.TempDir()
				must(t, fsys.MkdirAll(dir))
				c.run(t, fsys, dir)
				if sim, ok := fsys.(*vfs.Sim); ok && len(sim.OpenFiles()) > 0 {
					t.Errorf("left open: %v", sim.OpenFiles())
				}
			})
		}
	}
}

func fileCases() []conformance {
	return []conformance{
		{"a created file is empty and listed", func(t *testing.T, fsys vfs.FS, dir string) {
			f := create(t, fsys, filepath.Join(dir, "a"))
			wantSize(t, f, 0)
			mustClose(t, f)
			wantList(t, fsys, dir, "a")
		}},
		{"create truncates what is there", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			put(t, fsys, name, "old and long")
			put(t, fsys, name, "new")
			wantContent(t, fsys, name, "new")
		}},
		{"opening what is not there fails with ErrNotExist", func(t *testing.T, fsys vfs.FS, dir string) {
			_, err := fsys.Open(filepath.Join(dir, "a"), vfs.OpenOptions{})
			wantError(t, err, fs.ErrNotExist)
			_, err = fsys.OpenReadWrite(filepath.Join(dir, "a"), vfs.OpenOptions{})
			wantError(t, err, fs.ErrNotExist)
			_, err = fsys.Create(filepath.Join(dir, "missing", "a"), vfs.OpenOptions{})
			wantError(t, err, fs.ErrNotExist)
		}},
		{"a directory cannot be opened as a file", func(t *testing.T, fsys vfs.FS, dir string) {
			_, err := fsys.Open(dir, vfs.OpenOptions{})
			wantPathError(t, err)
			_, err = fsys.Create(dir, vfs.OpenOptions{})
			wantPathError(t, err)
		}},
		{"a closed file refuses everything", func(t *testing.T, fsys vfs.FS, dir string) {
			f := create(t, fsys, filepath.Join(dir, "a"))
			mustClose(t, f)
			_, err := f.Write([]byte("x"))
			wantError(t, err, fs.ErrClosed)
			_, err = f.ReadAt(make([]byte, 1), 0)
			wantError(t, err, fs.ErrClosed)
			wantError(t, f.Sync(), fs.ErrClosed)
			wantError(t, f.SyncData(), fs.ErrClosed)
			wantError(t, f.Truncate(1), fs.ErrClosed)
			wantError(t, f.Close(), fs.ErrClosed)
			_, err = f.Size()
			wantError(t, err, fs.ErrClosed)
		}},
		{"a file open for reading refuses changes", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			put(t, fsys, name, "content")
			f, err := fsys.Open(name, vfs.OpenOptions{Sequential: true})
			must(t, err)
			defer mustClose(t, f)
			_, err = f.WriteAt([]byte("x"), 0)
			wantError(t, err, fs.ErrPermission)
			_, err = f.Write([]byte("x"))
			wantError(t, err, fs.ErrPermission)
			wantError(t, f.Truncate(0), fs.ErrPermission)
			wantError(t, f.Preallocate(10), fs.ErrPermission)
			wantContent(t, fsys, name, "content")
		}},
		{"truncate cuts and fills up with zeros", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			f := create(t, fsys, name)
			write(t, f, "0123456789")
			must(t, f.Truncate(4))
			must(t, f.Truncate(6))
			wantSize(t, f, 6)
			mustClose(t, f)
			wantContent(t, fsys, name, "0123\x00\x00")
		}},
		{"preallocate grows, reads as zeros, and never shrinks", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			f := create(t, fsys, name)
			must(t, f.Preallocate(10000))
			wantSize(t, f, 10000)
			_, err := f.WriteAt([]byte("tail"), 9990)
			must(t, err)
			must(t, f.Preallocate(5000))
			must(t, f.Preallocate(0))
			wantSize(t, f, 10000)
			must(t, f.SyncData())
			mustClose(t, f)
			want := make([]byte, 10000)
			copy(want[9990:], "tail")
			wantContent(t, fsys, name, string(want))
		}},
		{"a removed file can still be used by who has it open", func(t *testing.T, fsys vfs.FS, dir string) {
			if runtime.GOOS == "windows" {
				return // Windows cannot remove an open file
			}
			name := filepath.Join(dir, "a")
			f := create(t, fsys, name)
			write(t, f, "abc")
			must(t, fsys.Remove(name))
			_, err := fsys.Stat(name)
			wantError(t, err, fs.ErrNotExist)
			write(t, f, "def")
			wantRead(t, f, 0, "abcdef")
			mustClose(t, f)
		}},
		{"a lock excludes the second until it is closed", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "LOCK")
			lock, err := fsys.Lock(name, vfs.LockToWrite)
			must(t, err)
			_, err = fsys.Lock(name, vfs.LockToWrite)
			wantError(t, err, vfs.ErrLocked)
			must(t, lock.Close())
			wantError(t, lock.Close(), fs.ErrClosed)
			lock, err = fsys.Lock(name, vfs.LockToWrite)
			must(t, err)
			must(t, lock.Close())
			wantList(t, fsys, dir, "LOCK")
		}},
		{"a lock to read makes nothing and excludes a writer, and the other way round", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "LOCK")
			for _, modes := range [][2]vfs.LockMode{{vfs.LockToRead, vfs.LockToWrite}, {vfs.LockToWrite, vfs.LockToRead}, {vfs.LockToRead, vfs.LockToWrite}} {
				before, err := fsys.List(dir)
				must(t, err)
				lock, err := fsys.Lock(name, modes[0])
				must(t, err)
				if modes[0] == vfs.LockToRead {
					wantList(t, fsys, dir, before...)
				}
				_, err = fsys.Lock(name, modes[1])
				wantError(t, err, vfs.ErrLocked)
				must(t, lock.Close())
				lock, err = fsys.Lock(name, modes[1])
				must(t, err)
				must(t, lock.Close())
			}
		}},
		{"a file of more bytes than expected is not read whole", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "f")
			put(t, fsys, name, "four")
			content, err := vfs.ReadFile(fsys, name, 4)
			must(t, err)
			if string(content) != "four" {
				t.Errorf("it holds %q", content)
			}
			_, err = vfs.ReadFile(fsys, name, 3)
			wantError(t, err, vfs.ErrTooLarge)
			_, err = vfs.ReadFile(fsys, filepath.Join(dir, "absent"), 3)
			wantError(t, err, fs.ErrNotExist)
		}},
	}
}

func transferCases() []conformance {
	return []conformance{
		{"write appends behind what write wrote", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			f := create(t, fsys, name)
			write(t, f, "one")
			_, err := f.WriteAt([]byte("fourfourfour"), 3)
			must(t, err)
			write(t, f, "two")
			mustClose(t, f)
			wantContent(t, fsys, name, "onetworfour"+"four")
		}},
		{"write on an existing file starts at its beginning", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			put(t, fsys, name, "abcdef")
			f, err := fsys.OpenReadWrite(name, vfs.OpenOptions{})
			must(t, err)
			write(t, f, "xy")
			mustClose(t, f)
			wantContent(t, fsys, name, "xycdef")
		}},
		{"a hole reads as zeros", func(t *testing.T, fsys vfs.FS, dir string) {
			name := filepath.Join(dir, "a")
			f := create(t, fsys, name)
			_, err := f.WriteAt([]byte("end"), 100_000)
			must(t, err)
			mustClose(t, f)
			wantContent(t, fsys, name, string(make([]byte, 100_000))+"end")
		}},
		{"reads stop at the end of the file with EOF", func(t *testing.T, fsys vfs.FS, dir string) {
			f := create(t, fsys, filepath.Join(dir, "a"))
			write(t, f, "0123456789")
			for _, c := range []struct {
				off  int64
				size int
				want string
				err  error
			}{
				{0, 10, "0123456789", nil}, {3, 4, "3456", nil}, {8, 5, "89", io.EOF},
				{10, 1, "", io.EOF}, {99, 1, "", io.EOF},
			} {
				buf := make([]byte, c.size)
				n, err := f.ReadAt(buf, c.off)
				if string(buf[:n]) != c.want || err != c.err {
					t.Errorf("ReadAt(%d bytes, %d) = %q, %v; want %q, %v", c.size, c.off, buf[:n], err, c.want, c.err)
				}
			}
			mustClose(t, f)
		}},
		{"negative offsets and sizes are invalid", func(t *testing.T, fsys vfs.FS, dir string) {
			f := create(t, fsys, filepath.Join(dir, "a"))
			_, err := f.ReadAt(make([]byte, 1), -1)
			wantError(t, err, fs.ErrInvalid)
			_, err = f.WriteAt(make([]byte, 1), -1)
			wantError(t, err, fs.ErrInvalid)
			wantPathError(t, f.Truncate(-1))
			mustClose(t, f)
		}},
		{"transfers across page borders come back as written", func(t *testing.T, fsys vfs.FS, dir string) {
			f := create(t, fsys, filepath.Join(dir, "a"))
			want := make([]byte, 40_000)
			for i := range 200 {
				off, size := int64(i*7919%35_000), i*131%5000
				p := bytes.Repeat([]byte{byte(i + 1)}, size)
				copy(want[off:], p)
				_, err := f.WriteAt(p, off)
				must(t, err)
				if i%50 == 0 {
					must(t, f.Sync())
				}
			}
			size, err := f.Size()
			must(t, err)
			wantRead(t, f, 0, string(want[:size]))
			wantRead(t, f, 4095, string(want[4095:8193]))
			mustClose(t, f)
		}},
		{"direct I/O works in aligned blocks and refuses others", directCase},
	}
}

func directCase(t *testing.T, fsys vfs.FS, dir string) {
	name := filepath.Join(dir, "a")
	f, err := fsys.Create(name, vfs.OpenOptions{Direct: true})
	must(t, err)
	align := f.Alignment()
	if align < 1 || 4096%align != 0 {
		t.Fatalf("alignment %d", align)
	}
	block := vfs.AlignedBuffer(4096)
	for i := range block {
		block[i] = byte(i)
	}
	must(t, f.Preallocate(16384))
	for range 2 {
		if n, err := f.Write(block); n != 4096 || err != nil {
			t.Fatalf("Write = %d, %v", n, err)
		}
	}
	must(t, f.SyncData())
	if align > 1 {
		_, err = f.WriteAt(block[:align-1], 0)
		wantError(t, err, fs.ErrInvalid)
		_, err = f.WriteAt(block[:align], 1)
		wantError(t, err, fs.ErrInvalid)
		_, err = f.ReadAt(vfs.AlignedBuffer(align + 1)[1:], 0)
		wantError(t, err, fs.ErrInvalid)
	}
	must(t, f.Truncate(5000))
	must(t, f.Sync())
	mustClose(t, f)

	for _, opts := range []vfs.OpenOptions{{Direct: true}, {Sparing: true}, {Uncached: true}} {
		f, err = fsys.Open(name, opts)
		must(t, err)
		if n := f.Alignment(); n < 1 || 4096%n != 0 {
			t.Fatalf("%+v: alignment %d", opts, n)
		} else if n > 1 {
			_, err = f.ReadAt(vfs.AlignedBuffer(n + 1)[1:], 0)
			wantError(t, err, fs.ErrInvalid)
		}
		// Often enough to go every way there is.
		for range 20 {
			got := vfs.AlignedBuffer(16384)
			n, err := f.ReadAt(got, 0)
			if n != 5000 || err != io.EOF {
				t.Errorf("%+v: ReadAt over the end = %d, %v; want 5000, EOF", opts, n, err)
			}
			if !bytes.Equal(got[:4096], block) || !bytes.Equal(got[4096:5000], block[:904]) {
				t.Errorf("%+v: content differs", opts)
			}
			if n, err := f.ReadAt(got, 8192); n != 0 || err != io.EOF {
				t.Errorf("%+v: ReadAt beyond the end = %d, %v; want 0, EOF", opts, n, err)
			}
		}
		_, err = f.WriteAt(block, 0)
		wantError(t, err, fs.ErrPermission)
		mustClose(t, f)
	}
}

func directoryCases() []conformance {
	return []conformance{
		{"list is sorted and names directories", func(t *testing.T, fsys vfs.FS, dir string) {
			for _, name := range []string{"b", "c", "a"} {
				put(t, fsys, filepath.Join(dir, name), "")
			}
			must(t, fsys.MkdirAll(filepath.Join(dir, "bb", "deep", "deeper")))
			wantList(t, fsys, dir, "a", "b", "bb", "c")
			wantList(t, fsys, filepath.Join(dir, "bb"), "deep")
			_, err := fsys.List(filepath.Join(dir, "missing"))
			wantError(t, err, fs.ErrNotExist)
			_, err = fsys.List(filepath.Join(dir, "a"))
			wantPathError(t, err)
		}},
		{"mkdir is content with what exists and refuses a file", func(t *testing.T, fsys vfs.FS, dir string) {
			must(t, fsys.MkdirAll(filepath.Join(dir, "d")))
			must(t, fsys.MkdirAll(filepath.Join(dir, "d")))
			put(t, fsys, filepath.Join(dir, "f"), "")
			wantPathError(t, fsys.MkdirAll(filepath.Join(dir, "f")))
			wantPathError(t, fsys.MkdirAll(filepath.Join(dir, "f", "g")))
		}},
		{"stat tells files from directories", func(t *testing.T, fsys vfs.FS, dir string) {
			put(t, fsys, filepath.Join(dir, "f"), "12345")
			info, err := fsys.Stat(filepath.Join(dir, "f"))
			must(t, err)
			if info != (vfs.Info{Size: 5}) {
				t.Errorf("file: %+v", info)
			}
			if info, err = fsys.Stat(dir); err != nil || !info.Dir {
				t.Errorf("directory: %+v, %v", info, err)
			}
		}},
		{"remove takes files, removedir empty directories", func(t *testing.T, fsys vfs.FS, dir string) {
			sub, file := filepath.Join(dir, "d"), filepath.Join(dir, "d", "f")
			must(t, fsys.MkdirAll(sub))
			put(t, fsys, file, "x")
			wantPathError(t, fsys.Remove(sub))
			wantPathError(t, fsys.RemoveDir(sub))
			wantPathError(t, fsys.RemoveDir(file))
			must(t, fsys.Remove(file))
			wantError(t, fsys.Remove(file), fs.ErrNotExist)
			must(t, fsys.RemoveDir(sub))
			wantError(t, fsys.RemoveDir(sub), fs.ErrNotExist)
			wantList(t, fsys, dir)
		}},
		{"rename replaces", func(t *testing.T, fsys vfs.FS, dir string) {
			a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			put(t, fsys, a, "from a")
			put(t, fsys, b, "from b")
			must(t, fsys.Rename(a, b))
			wantList(t, fsys, dir, "b")
			wantContent(t, fsys, b, "from a")
			must(t, fsys.Rename(b, b))
			wantContent(t, fsys, b, "from a")
			wantError(t, fsys.Rename(a, b), fs.ErrNotExist)
		}},
		{"rename moves between directories, and directories", func(t *testing.T, fsys vfs.FS, dir string) {
			one, two := filepath.Join(dir, "one"), filepath.Join(dir, "two")
			must(t, fsys.MkdirAll(one))
			must(t, fsys.MkdirAll(two))
			put(t, fsys, filepath.Join(one, "f"), "x")
			must(t, fsys.Rename(filepath.Join(one, "f"), filepath.Join(two, "g")))
			wantList(t, fsys, one)
			must(t, fsys.Rename(two, filepath.Join(one, "sub")))
			wantContent(t, fsys, filepath.Join(one, "sub", "g"), "x")
			wantPathError(t, fsys.Rename(one, filepath.Join(one, "sub", "loop")))
			put(t, fsys, filepath.Join(dir, "f"), "")
			wantPathError(t, fsys.Rename(filepath.Join(dir, "f"), one))
			wantPathError(t, fsys.Rename(one, filepath.Join(dir, "f")))
		}},
		{"a link is a second name for one file", func(t *testing.T, fsys vfs.FS, dir string) {
			a, b := filepath.Join(dir, "a"), filepath.Join(dir, "b")
			put(t, fsys, a, "before")
			must(t, fsys.Link(a, b))
			wantError(t, fsys.Link(a, b), fs.ErrExist)
			wantError(t, fsys.Link(filepath.Join(dir, "c"), filepath.Join(dir, "d")), fs.ErrNotExist)
			f, err := fsys.OpenReadWrite(a, vfs.OpenOptions{})
			must(t, err)
			write(t, f, "after!")
			mustClose(t, f)
			must(t, fsys.Remove(a))
			wantContent(t, fsys, b, "after!")
		}},
		{"directories can be synced, nothing else", func(t *testing.T, fsys vfs.FS, dir string) {
			must(t, fsys.SyncDir(dir))
			wantError(t, fsys.SyncDir(filepath.Join(dir, "missing")), fs.ErrNotExist)
			put(t, fsys, filepath.Join(dir, "f"), "")
			wantPathError(t, fsys.SyncDir(filepath.Join(dir, "f")))
		}},
	}
}

// The helpers below fail the test on any unexpected error.

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func mustClose(t testing.TB, f io.Closer) {
	t.Helper()
	must(t, f.Close())
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("error %v; want one that is %v", err, want)
	}
	wantPathError(t, err)
}

// wantPathError checks that the error names its file.
func wantPathError(t *testing.T, err error) {
	t.Helper()
	var pe *fs.PathError
	if !errors.As(err, &pe) || pe.Path == "" {
		t.Errorf("error %v (%T); want a *PathError that names a file", err, err)
	}
}

func create(t testing.TB, fsys vfs.FS, name string) vfs.File {
	t.Helper()
	f, err := fsys.Create(name, vfs.OpenOptions{})
	must(t, err)
	return f
}

func write(t testing.TB, f vfs.File, s string) {
	t.Helper()
	if n, err := f.Write([]byte(s)); n != len(s) || err != nil {
		t.Fatalf("Write = %d, %v; want %d", n, err, len(s))
	}
}

// put makes a file with that content; neither the content nor the name is synced.
func put(t testing.TB, fsys vfs.FS, name, content string) {
	t.Helper()
	f := create(t, fsys, name)
	write(t, f, content)
	mustClose(t, f)
}

func wantSize(t *testing.T, f vfs.File, want int64) {
	t.Helper()
	if got, err := f.Size(); got != want || err != nil {
		t.Errorf("Size = %d, %v; want %d", got, err, want)
	}
}

func wantRead(t *testing.T, f vfs.File, off int64, want string) {
	t.Helper()
	got := make([]byte, len(want))
	if _, err := f.ReadAt(got, off); err != nil || string(got) != want {
		t.Errorf("ReadAt(%d) differs from what was written (error %v)", off, err)
	}
}

// content reads a whole file.
func content(t testing.TB, fsys vfs.FS, name string) string {
	t.Helper()
	f, err := fsys.Open(name, vfs.OpenOptions{})
	must(t, err)
	defer mustClose(t, f)
	size, err := f.Size()
	must(t, err)
	b := make([]byte, size)
	if _, err := f.ReadAt(b, 0); err != nil && err != io.EOF {
		t.Fatal(err)
	}
	return string(b)
}

func wantContent(t *testing.T, fsys vfs.FS, name, want string) {
	t.Helper()
	if got := content(t, fsys, name); got != want {
		t.Errorf("%s holds %d bytes %.40q; want %d bytes %.40q", name, len(got), got, len(want), want)
	}
}

func wantList(t *testing.T, fsys vfs.FS, dir string, want ...string) {
	t.Helper()
	got, err := fsys.List(dir)
	must(t, err)
	if !slices.Equal(got, want) {
		t.Errorf("%s lists %q; want %q", dir, got, want)
	}
}
