package outfile_test

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

const chunk = 512 << 10

// write makes a synced file from pieces of random bytes, and returns its content.
func write(t *testing.T, fsys vfs.FS, name string, direct bool, pieces ...int) (content []byte, meant outfile.Meant) {
	t.Helper()
	f, err := fsys.Create(name, vfs.OpenOptions{Direct: direct})
	if err != nil {
		t.Fatal(err)
	}
	w, rng := outfile.New(f), rand.New(rand.NewPCG(1, uint64(len(pieces))))
	for _, n := range pieces {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		if _, err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		content = append(content, b...)
		if w.Offset() != int64(len(content)) {
			t.Fatalf("offset %d after %d bytes", w.Offset(), len(content))
		}
		clear(b) // it was copied or written
	}
	meant, err = w.Finish()
	if err = errors.Join(err, f.Sync(), f.Close()); err != nil {
		t.Fatal(err)
	}
	return content, meant
}

// sizes are the pieces in which files are written.
var sizes = [][]int{
	nil, {0}, {1}, {4096}, {4095, 2}, {chunk}, {chunk - 1, 1}, {chunk + 1}, {chunk / 2, chunk/2 - 1, 7},
	{100, 3*chunk + 5, 100}, {chunk, chunk, chunk}, {300_000, 300_000, 300_000, 1},
}

func TestAFileHasWhatWasWrittenAndReadsBack(t *testing.T) {
	dir := t.TempDir()
	for name, fsys := range map[string]vfs.FS{
		"real": vfs.OS(), "simulated": vfs.NewSim(vfs.SimOptions{}), "without direct I/O": vfs.NewSim(vfs.SimOptions{BlockSize: -1}),
	} {
		if err := fsys.MkdirAll(dir); err != nil {
			t.Fatal(err)
		}
		for i, pieces := range sizes {
			for _, direct := range []bool{false, true} {
				path := filepath.Join(dir, fmt.Sprint(i, direct))
				content, meant := write(t, fsys, path, direct, pieces...)
				if meant.Size != int64(len(content)) || meant.Checksum() != xxhash.Sum64(content) {
					t.Errorf("%s: %d: says %d bytes and checksum %x", name, pieces, meant.Size, meant.Checksum())
				}
				if err := meant.ReadBack(fsys, path); err != nil {
					t.Errorf("%s: %d: %v", name, pieces, err)
				}
				f, err := fsys.Open(path, vfs.OpenOptions{})
				if err != nil {
					t.Fatal(err)
				}
				got := make([]byte, len(content)+1)
				if n, _ := f.ReadAt(got, 0); !bytes.Equal(got[:n], content) {
					t.Errorf("%s: %d: has %d other bytes", name, pieces, n)
				}
				if err := f.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

func TestEveryPartOfAFileThatChangedIsFoundAndNamed(t *testing.T) {
	for _, pieces := range sizes[2:] {
		sim := vfs.NewSim(vfs.SimOptions{})
		content, meant := write(t, sim, "f", false, pieces...)
		for _, at := range []int{0, len(content) / 2, len(content) - 1} {
			flip := func() {
				if err := sim.FlipByte("f", int64(at), 1); err != nil {
					t.Fatal(err)
				}
			}
			flip()
			var wrong *outfile.NotWrittenError
			err := meant.ReadBack(sim, "f")
			if !errors.Is(err, outfile.ErrNotWritten) || !errors.As(err, &wrong) || wrong.File != "f" ||
				int64(at) < wrong.Offset || int64(at) >= wrong.Offset+wrong.Length {
				t.Errorf("%d: byte %d: %v", pieces, at, err)
			}
			flip()
		}
		for _, size := range []int{0, len(content) - 1, len(content) + 1} {
			if err := sim.Edit("f", func([]byte) []byte { return append(content[:len(content):len(content)], 0)[:size] }); err != nil {
				t.Fatal(err)
			}
			if err := meant.ReadBack(sim, "f"); !errors.Is(err, outfile.ErrNotWritten) {
				t.Errorf("%d: cut to %d: %v", pieces, size, err)
			}
		}
		if err := sim.Edit("f", func([]byte) []byte { return content }); err != nil {
			t.Fatal(err)
		}
		if err := meant.ReadBack(sim, "f"); err != nil {
			t.Errorf("%d: once it is right again: %v", pieces, err)
		}
	}
}

// TestWhatIsMeantIsWhatWasHandedIn: a chunk that changes between the copy and the write is
// noticed.
func TestWhatIsMeantIsWhatWasHandedIn(t *testing.T) {
	for _, size := range []int{100, chunk / 2, 2 * chunk} {
		sim := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(sim, 1)
		fault.Add(vfs.Rule{Ops: vfs.OpWrite, Action: vfs.FlipBit()})
		_, meant := write(t, fault, "f", false, size)
		if err := meant.ReadBack(fault, "f"); !errors.Is(err, outfile.ErrNotWritten) {
			t.Errorf("%d bytes: %v", size, err)
		}
	}
}

func TestAFileThatCannotBeReadBackIsNotSaidToBeWrong(t *testing.T) {
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	_, meant := write(t, fault, "f", false, 5000)
	for _, op := range []vfs.Op{vfs.OpOpen, vfs.OpSize, vfs.OpReadAt, vfs.OpClose} {
		fault.Add(vfs.Rule{Ops: op, Action: vfs.FailWith(syscall.EIO)})
		if err := meant.ReadBack(fault, "f"); !errors.Is(err, syscall.EIO) || errors.Is(err, outfile.ErrNotWritten) {
			t.Errorf("%v: %v", op, err)
		}
	}
	if err := meant.ReadBack(fault, "g"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a file that is missing: %v", err)
	}
	if err := meant.ReadBack(fault, "f"); err != nil {
		t.Error(err)
	}
}

func TestWritesThatFailAreReported(t *testing.T) {
	for _, rule := range []vfs.Rule{
		{Ops: vfs.OpWrite, Action: vfs.FailWith(syscall.ENOSPC)}, {Ops: vfs.OpWrite, Nth: 2, Action: vfs.FailWith(syscall.ENOSPC)},
		{Ops: vfs.OpTruncate, Action: vfs.FailWith(syscall.ENOSPC)},
	} {
		fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
		fault.Add(rule)
		f, err := fault.Create("f", vfs.OpenOptions{Direct: true})
		if err != nil {
			t.Fatal(err)
		}
		w := outfile.New(f)
		if _, err = w.Write(make([]byte, chunk+10)); err == nil {
			_, err = w.Finish()
		}
		if !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%+v: %v", rule, err)
		}
		f.Close()
	}
}

// TestALinkNeverWritesToTheOriginal: a file that cannot be linked is copied. A link that is
// reported as failed may have been made, as over a network; then the copy is not written through it.
func TestALinkNeverWritesToTheOriginal(t *testing.T) {
	for what, action := range map[string]vfs.Action{
		"linked": {}, "not linked": vfs.FailWith(syscall.ENOTSUP), "linked, and an error": vfs.FailAfter(syscall.EIO),
	} {
		sim := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(sim, 1)
		content, _ := write(t, fault, "original", false, chunk, 5000)
		if what != "linked" {
			fault.Add(vfs.Rule{Ops: vfs.OpLink, Action: action})
		}
		fault.Observe(vfs.Observer{After: func(c vfs.Call, _ error) {
			if now, err := sim.ReadFile("original"); err != nil || !bytes.Equal(now, content) {
				t.Errorf("%s: after %v %s the original has %d bytes, %v", what, c.Op, c.Name, len(now), err)
			}
		}})
		if err := outfile.Link(fault, "original", "second"); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if got, err := sim.ReadFile("second"); err != nil || !bytes.Equal(got, content) {
			t.Errorf("%s: the second file has %d bytes, %v", what, len(got), err)
		}
	}
}

func TestABadCopyIsFound(t *testing.T) {
	for _, c := range []struct {
		op     vfs.Op
		action vfs.Action
		want   error
	}{
		{vfs.OpWrite, vfs.FlipBit(), outfile.ErrNotWritten}, {vfs.OpSync, vfs.FailWith(syscall.EIO), syscall.EIO},
		{vfs.OpCreate, vfs.FailWith(syscall.ENOSPC), syscall.ENOSPC}, {vfs.OpClose, vfs.FailWith(syscall.EIO), syscall.EIO},
	} {
		fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
		write(t, fault, "original", false, 5000)
		fault.Add(vfs.Rule{Ops: vfs.OpLink, Action: vfs.FailWith(syscall.EPERM)})
		fault.Add(vfs.Rule{Glob: "second", Ops: c.op, Action: c.action})
		if err := outfile.Link(fault, "original", "second"); !errors.Is(err, c.want) {
			t.Errorf("%v: %v, want %v", c.op, err, c.want)
		}
	}
}
