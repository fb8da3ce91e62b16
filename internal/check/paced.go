package check

// The reads of a check beside a server. They come from the device, past the page cache: what the cache holds says
// nothing about the device, and a check must not drive out what others read.

import (
	"errors"
	"io"
	"sync"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// pacedChunk is how much is read at once from front to back.
const pacedChunk = 1 << 20

// pacedFS is a file system whose files are read from the device, after pace was asked.
type pacedFS struct {
	vfs.FS
	pace func(bytes int) error
}

// FileLimit leaves the descriptors to the store.
func (p *pacedFS) FileLimit() int { return 1 }

// Open implements vfs.FS.
func (p *pacedFS) Open(name string, opts vfs.OpenOptions) (vfs.File, error) {
	opts.Direct = true
	f, err := p.FS.Open(name, opts)
	if err != nil {
		return nil, err
	}
	size, err := f.Size()
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return &pacedFile{File: f, pace: p.pace, size: size}, nil
}

// pacedFile reads whole blocks into a buffer of its own, so its readers need not align anything.
type pacedFile struct {
	vfs.File
	pace func(bytes int) error
	size int64

	mu     sync.Mutex
	buffer []byte
	window []byte // of buffer: what the file has at start
	start  int64
}

// Alignment implements vfs.File.
func (f *pacedFile) Alignment() int { return 1 }

// WillNeed does nothing: it would read into the page cache.
func (f *pacedFile) WillNeed(int64, int64) {}

// ReadAt implements vfs.File.
func (f *pacedFile) ReadAt(p []byte, off int64) (n int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for n < len(p) {
		at := off + int64(n) - f.start
		if at < 0 || at >= int64(len(f.window)) {
			if err := f.fill(off+int64(n), len(p)-n); err != nil {
				return n, err
			}
			at = off + int64(n) - f.start
		}
		n += copy(p[n:], f.window[at:])
	}
	return n, nil
}

// fill reads a window that begins with the block of off: a whole chunk if reads go from front to back, else the
// blocks of n bytes. The error is io.EOF if the file ends at off.
func (f *pacedFile) fill(off int64, n int) error {
	align := int64(max(f.File.Alignment(), 4096))
	start := off / align * align
	end := off + int64(n)
	if start == f.start+int64(len(f.window)) {
		end = start + pacedChunk
	}
	length := min((min(end, f.size)-start+align-1)/align*align, pacedChunk)
	if length <= 0 {
		return io.EOF
	}
	if int64(len(f.buffer)) < length {
		f.buffer = vfs.AlignedBuffer(int(length))
	}
	f.window = nil
	if err := f.pace(int(length)); err != nil {
		return err
	}
	got, err := f.File.ReadAt(f.buffer[:length], start)
	if err != nil && err != io.EOF {
		return err
	}
	f.window, f.start = f.buffer[:got], start
	if start+int64(got) <= off {
		return io.EOF
	}
	return nil
}
