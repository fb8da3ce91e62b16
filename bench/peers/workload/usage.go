package workload

// This file asks the kernel and the runtime what the process has used.

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/flagstone-db/flagstone/bench/peers/rowstore"
)

// usage is what the process had used at one moment.
type usage struct {
	written, read       int64
	cpu                 float64
	mallocs, allocBytes uint64
}

func usageNow() usage {
	var u usage
	if text, err := os.ReadFile("/proc/self/io"); err == nil {
		u.written, u.read = field(text, "write_bytes:"), field(text, "read_bytes:")
		// Truncated pages that were counted as written and never were.
		u.written -= field(text, "cancelled_write_bytes:")
	}
	var r syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &r) == nil {
		u.cpu = time.Duration(r.Utime.Nano() + r.Stime.Nano()).Seconds()
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	u.mallocs, u.allocBytes = m.Mallocs, m.TotalAlloc
	return u
}

// field returns the number after a name in a /proc file, 0 if it is not there.
func field(text []byte, name string) int64 {
	_, after, ok := bytes.Cut(text, []byte(name))
	if !ok {
		return 0
	}
	after = bytes.TrimLeft(after, " \t")
	end := 0
	for end < len(after) && after[end] >= '0' && after[end] <= '9' {
		end++
	}
	n, err := strconv.ParseInt(string(after[:end]), 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// memoryWatch samples the process's resident memory. The kernel keeps a peak of
// the whole only; mapped files, which it can take back, are a part of it that
// says little about what an engine needs.
type memoryWatch struct {
	mu             sync.Mutex
	rss, anon, fil int64
	stop, done     chan struct{}
}

func watchMemory() *memoryWatch {
	w := &memoryWatch{stop: make(chan struct{}), done: make(chan struct{})}
	status, err := os.Open("/proc/self/status")
	if err != nil {
		close(w.done)
		return w
	}
	go func() {
		defer close(w.done)
		defer status.Close()
		buf := make([]byte, 4096)
		tick := time.NewTicker(20 * time.Millisecond)
		defer tick.Stop()
		for {
			w.sample(status, buf)
			select {
			case <-tick.C:
			case <-w.stop:
				return
			}
		}
	}()
	return w
}

func (w *memoryWatch) sample(status *os.File, buf []byte) {
	n, _ := status.ReadAt(buf, 0) // io.EOF with what there is
	text := buf[:n]
	w.mu.Lock()
	defer w.mu.Unlock()
	w.rss = max(w.rss, field(text, "VmHWM:")<<10)
	w.anon = max(w.anon, field(text, "RssAnon:")<<10)
	w.fil = max(w.fil, field(text, "RssFile:")<<10)
}

// peaks returns the largest resident memory so far, its anonymous part and its
// file part (each at its own moment).
func (w *memoryWatch) peaks() (rss, anon, file int64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.rss, w.anon, w.fil
}

func (w *memoryWatch) close() {
	close(w.stop)
	<-w.done
}

// space is what the store's files take on the disk, and what those of its log take of
// that. Files that vanish meanwhile count nothing.
func (e *env) space() (all, log int64) {
	_ = filepath.WalkDir(e.Dir, func(_ string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.Type().IsRegular() {
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			all += st.Blocks * 512
			if e.engine.IsLog != nil && e.engine.IsLog(entry.Name()) {
				log += st.Blocks * 512
			}
		}
		return nil
	})
	return all, log
}

// readFiles reads all files below dir, so that the page cache holds them.
func readFiles(dir string) error {
	buf := make([]byte, 1<<20)
	return rowstore.EachFile(dir, func(f *os.File) error {
		for {
			if _, err := f.Read(buf); err != nil {
				return nil // the end, or a page that will be missed later
			}
		}
	})
}
