package sstable

// Benchmarks of loading blocks from real files of 55 MB: 50,000 rows of ten
// columns of 100 half-compressible bytes, blocks of 8 KiB.

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// BenchmarkLoadFromFile loads blocks far apart that are only in the page cache: through a
// mapping, or by calls.
func BenchmarkLoadFromFile(b *testing.B) {
	for _, compression := range []Compression{CompressNone, CompressS2} {
		f := &memFile{}
		sortedBenchTable(50_000).write(b, f, WriterOptions{Compression: compression})
		name := filepath.Join(b.TempDir(), "000001.sst")
		if err := os.WriteFile(name, f.data, 0o600); err != nil {
			b.Fatal(err)
		}
		f.data = nil
		for _, mapped := range []bool{true, false} {
			b.Run(fmt.Sprintf("%v/mapped=%v", compression, mapped), func(b *testing.B) {
				file, err := vfs.OS().Open(name, vfs.OpenOptions{})
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				r, err := Open(file, ReaderOptions{FileName: name, Mapped: mapped, Elapsed: func() time.Duration { return time.Since(start) }})
				if err != nil {
					b.Fatal(err)
				}
				it := r.blockByBlock()
				g := 0
				for range r.index.groups { // the first touch of a page is not measured
					it.enter(g, false)
					g = (g + 1009) % r.index.groups
				}
				b.ReportAllocs()
				for b.Loop() {
					if !it.enter(g, false) {
						b.Fatal(it.Error())
					}
					g = (g + 1009) % r.index.groups
				}
				b.SetBytes(DefaultBlockSize)
				it.Close()
				if err := r.Close(); err != nil {
					b.Fatal(err)
				}
			})
		}
	}
}
