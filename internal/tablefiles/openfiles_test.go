package tablefiles

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// numbered is the content of the file with a number.
func numbered(i int) string { return fmt.Sprintf("content of file %06d", i) }

func openNumbered(t *testing.T, limit, n int) (*vfs.Sim, *openFiles, []*reopened) {
	t.Helper()
	sim := vfs.NewSim(vfs.SimOptions{})
	o := &openFiles{fs: sim, limit: limit}
	var files []*reopened
	for i := range n {
		name := fmt.Sprintf("/%d", i)
		w, err := sim.Create(name, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write([]byte(numbered(i))); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Fatal(err)
		}
		f, err := o.file(name, vfs.OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, f.(*reopened))
	}
	return sim, o, files
}

func TestP18_FewFilesAreOpenHoweverManyAreRead(t *testing.T) {
	const limit, readers = 10, 4
	sim, o, files := openNumbered(t, limit, 100)
	var all sync.WaitGroup
	for g := range uint64(readers) {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(g, 1))
			for range 2000 {
				i := rng.IntN(len(files))
				b := make([]byte, len(numbered(i)))
				if _, err := files[i].ReadAt(b, 0); err != nil || string(b) != numbered(i) {
					t.Errorf("file %d: %q, %v", i, b, err)
					return
				}
				// Each reader may be opening one file beyond the limit.
				if n := len(sim.OpenFiles()); n > limit+readers {
					t.Errorf("%d files are open", n)
					return
				}
			}
		})
	}
	all.Wait()
	for _, f := range files {
		if err := f.Close(); err != nil {
			t.Error(err)
		}
		if _, err := f.ReadAt(make([]byte, 1), 0); !errors.Is(err, fs.ErrClosed) {
			t.Errorf("read of a closed file: %v", err)
		}
	}
	if n := len(sim.OpenFiles()); n != 0 || o.count() != 0 {
		t.Errorf("%d files are open at the end, %d counted", n, o.count())
	}
}

func TestAMappingNeedsNoDescriptor(t *testing.T) {
	sim, _, files := openNumbered(t, 1, 2)
	m, err := files[0].Map(10)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := files[1].ReadAt(make([]byte, 1), 0); err != nil {
		t.Fatal(err)
	}
	if open := sim.OpenFiles(); len(open) != 1 {
		t.Errorf("open: %v", open)
	}
	err = m.Access(0, 10, func(data []byte) error {
		if string(data) != numbered(0)[:10] {
			t.Errorf("%q", data)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

func TestFilesThatSpareThePageCacheCountTwice(t *testing.T) {
	sim, _, _ := openNumbered(t, 100, 9)
	o := &openFiles{fs: sim, limit: 6}
	for i := range 9 {
		f, err := o.file(fmt.Sprintf("/%d", i), vfs.OpenOptions{Sparing: true})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(o.open); o.count() != 2*n || n > 3 {
			t.Fatalf("%d files count as %d descriptors", n, o.count())
		}
		defer f.Close()
	}
}

func TestTheLimitLeavesDescriptorsToOthers(t *testing.T) {
	for process, want := range map[int]int{1024: 720, 64: 8, 100: 27, 1: 8} {
		if got := fileLimit(process); got != want {
			t.Errorf("of %d descriptors %d are used for table files, want %d", process, got, want)
		}
	}
	if fileLimit(0) < 1<<30 {
		t.Error("a limit where there is none")
	}
}
