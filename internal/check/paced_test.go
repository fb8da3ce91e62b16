package check

import (
	"errors"
	"io"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestPacedReadsAreThoseOfTheFile compares reads at random places, and from front to back, with the content.
func TestPacedReadsAreThoseOfTheFile(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for _, size := range []int{0, 1, 4096, 4097, 3*pacedChunk + 5} {
		fs := vfs.NewSim(vfs.SimOptions{})
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(random.Uint32())
		}
		w := create(t, fs, "file")
		_, err := w.Write(content)
		must(t, errors.Join(err, w.Close()))
		asked := 0
		f, err := (&pacedFS{fs, func(n int) error { asked += n; return nil }}).Open(dir+"/file", vfs.OpenOptions{})
		must(t, err)
		compare := func(off, n int) {
			t.Helper()
			p := make([]byte, n)
			got, err := f.ReadAt(p, int64(off))
			want := content[min(off, size):min(off+n, size)]
			if got != len(want) || string(p[:got]) != string(want) || (err == nil) != (got == n) || err != nil && err != io.EOF {
				t.Fatalf("%d bytes at %d of %d: %d, %v", n, off, size, got, err)
			}
		}
		for range 300 {
			compare(random.IntN(size+10), random.IntN(9000))
		}
		compare(0, size+1)
		asked = 0
		for off := 0; off < size; off += 1000 {
			compare(off, min(1000, size-off))
		}
		if asked > size+2*4096 {
			t.Errorf("%d bytes were read, the file has %d", asked, size)
		}
		must(t, f.Close())
	}
}
