//go:build linux

package sstable

import (
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// BenchmarkLoadDropped loads blocks of a file of 110 MB that is not in the page cache, each
// once before the cache is dropped again. The figure is per block and includes the device's
// latency. It is measured with one reader and with eight.
func BenchmarkLoadDropped(b *testing.B) {
	f := &memFile{}
	sortedBenchTable(100_000).write(b, f, WriterOptions{Compression: CompressNone})
	name := filepath.Join(b.TempDir(), "000001.sst")
	if err := os.WriteFile(name, f.data, 0o600); err != nil {
		b.Fatal(err)
	}
	for _, way := range []string{"adaptive", "mapped", "direct"} {
		for _, readers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/readers=%d", way, readers), func(b *testing.B) {
				file, err := os.Open(name)
				if err != nil {
					b.Fatal(err)
				}
				defer file.Close()
				opened, err := vfs.OS().Open(name, vfs.OpenOptions{})
				if err != nil {
					b.Fatal(err)
				}
				start := time.Now()
				opts := ReaderOptions{FileName: name, Mapped: way != "direct"}
				if way == "adaptive" {
					opts.Elapsed = func() time.Duration { return time.Since(start) }
				}
				r, err := Open(opened, opts)
				if err != nil {
					b.Fatal(err)
				}
				defer r.Close()
				var next atomic.Int64
				drop := func() {
					if err := file.Sync(); err != nil {
						b.Fatal(err)
					}
					if err := unix.Fadvise(int(file.Fd()), 0, 0, unix.FADV_DONTNEED); err != nil {
						b.Fatal(err)
					}
				}
				drop()
				b.ResetTimer()
				var all sync.WaitGroup
				for range readers {
					all.Go(func() {
						it := r.blockByBlock()
						defer it.Close()
						for {
							i := next.Add(1)
							if i > int64(b.N) {
								return
							}
							if !it.enter(int(i*1009)%r.index.groups, false) {
								b.Error(it.Error())
							}
							if i%2000 == 0 {
								drop()
							}
						}
					})
				}
				all.Wait()
			})
		}
	}
}
