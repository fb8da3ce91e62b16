package sstable

import (
	"errors"
	"fmt"
	"io"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// startingFile is a file whose reads can be started. What they read comes as late as it may: when they are waited for.
type startingFile struct {
	vfs.File
	fails, refuses bool
	running, begun int
}

func (f *startingFile) Alignment() int { return 512 }

func (f *startingFile) StartRead(p []byte, off int64) (vfs.Started, bool) {
	if f.refuses {
		return nil, false
	}
	f.running++
	f.begun++
	return &startedRead{f, p, off}, true
}

type startedRead struct {
	of  *startingFile
	p   []byte
	off int64
}

func (r *startedRead) Wait() bool {
	r.of.running--
	if _, err := r.of.File.ReadAt(r.p, r.off); err != nil && !errors.Is(err, io.EOF) { // the last sector is not whole
		return false
	}
	if r.of.fails {
		for i := range r.p {
			r.p[i] ^= 0xff // some of it may have come
		}
	}
	return !r.of.fails
}

// TestStartedReadsGiveTheRows gets rows whose blocks are read ahead, by a read that succeeds, fails, or is refused, and
// closes iterators whose read is under way.
func TestStartedReadsGiveTheRows(t *testing.T) {
	const rows = 400
	fsys := vfs.NewSim(vfs.SimOptions{})
	file, err := fsys.Create("/t", vfs.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(file, WriterOptions{BlockSize: 1024})
	for i := range rows {
		if err := addRow(w, fmt.Appendf(nil, "key%05d", i), []row.Cell{put("a", 5, 9, fmt.Append(nil, "value ", i))}, row.Stored{}); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	for name, set := range map[string]func(*startingFile){
		"succeed": func(*startingFile) {}, "fail": func(f *startingFile) { f.fails = true }, "refused": func(f *startingFile) { f.refuses = true },
	} {
		t.Run(name, func(t *testing.T) {
			opened, err := fsys.Open("/t", vfs.OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f := &startingFile{File: opened}
			set(f)
			now := time.Duration(0)
			r, err := Open(f, ReaderOptions{
				Cache: NewBlockCache(cache.Options{Capacity: 8 << 10}), Elapsed: func() time.Duration { now += time.Millisecond; return now },
			})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			var it Iterator
			for n := range rows {
				i := n * 7 % rows
				key := fmt.Appendf(nil, "key%05d", i)
				it.Init(r, IterOptions{})
				begun := it.StartRead(key)
				if begun != (f.running == 1) || begun && f.refuses {
					t.Fatalf("row %d: begun %v, %d reads run", i, begun, f.running)
				}
				if n%5 > 0 {
					if !it.SeekRowExact(key) || !it.FirstCell() || string(it.Cell().Value) != fmt.Sprint("value ", i) {
						t.Fatalf("row %d: %v", i, it.Error())
					}
					if reads := it.Reads(); begun && !f.fails && reads.Far != 1 || begun && f.running > 0 {
						t.Errorf("row %d: %+v, %d reads run", i, reads, f.running)
					}
				}
				it.Close()
				if f.running != 0 {
					t.Fatalf("row %d: a closed iterator reads", i)
				}
			}
			if f.refuses != (f.begun == 0) || !f.refuses && !r.Far([]byte("key00007")) && f.begun < rows/4 {
				t.Errorf("%d reads were begun", f.begun)
			}
			if it.Init(r, IterOptions{}); it.StartRead([]byte("a")) || r.Far([]byte("a")) {
				t.Error("a read for a key below all rows")
			}
			it.Close()
		})
	}
}
