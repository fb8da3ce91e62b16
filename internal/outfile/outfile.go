// Package outfile writes files from front to back, and reads them back. Table files, value files
// and copies of them are written with it.
//
// A write can be lost, go astray or change on its way without an error. So the writer makes the
// checksum from the bytes as they are handed in, before they are copied or written. After a
// sync, the file is read back from the device and compared with the checksum; nothing may rely
// on the file before. Where that is not wanted, no checksum is made (OmitSums).
package outfile

import (
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// chunk is how many bytes are written and read back at a time. It is large enough to hide the
// cost of a call, and a multiple of every alignment.
const chunk = 512 << 10

// chunks keeps aligned buffers of a chunk between files. They have no content between uses.
var chunks = sync.Pool{New: func() any {
	b := vfs.AlignedBuffer(chunk)
	return &b
}}

// Writer gathers a file's bytes and writes them in aligned chunks, so it can write direct files
// too. One goroutine uses it. After an error the file is lost.
type Writer struct {
	file   vfs.File
	buffer *[]byte // a chunk
	used   int
	meant  Meant
	digest xxhash.Digest // of all bytes so far
	noSums bool
}

// Meant is what a finished file should contain.
type Meant struct {
	// Size is the file's size in bytes.
	Size int64
	// sums are the checksums of the file up to the end of each chunk. An empty file has one. There
	// are none after OmitSums.
	sums []uint64
}

// Checksum is the xxhash64 of all bytes of the file.
func (m *Meant) Checksum() uint64 { return m.sums[len(m.sums)-1] }

// New starts to write f, which must be empty.
func New(f vfs.File) *Writer {
	w := &Writer{file: f, buffer: chunks.Get().(*[]byte)}
	w.digest.Reset()
	return w
}

// OmitSums says that the file will not be read back, nor asked for its checksum. REQUIRES: nothing was
// written yet.
func (w *Writer) OmitSums() { w.noSums = true }

// Offset is the file offset of the next byte.
func (w *Writer) Offset() int64 { return w.meant.Size }

// Write takes the next bytes of the file. Errors are those of the file.
func (w *Writer) Write(b []byte) (int, error) {
	w.note(b)
	if w.file.Alignment() == 1 && len(b) >= chunk/2 {
		// A large piece goes to the system without a copy.
		if err := w.flush(w.used); err != nil {
			return 0, err
		}
		return len(b), w.write(b)
	}
	for rest := b; len(rest) > 0; {
		n := copy((*w.buffer)[w.used:], rest)
		w.used += n
		rest = rest[n:]
		if w.used == chunk {
			if err := w.flush(chunk); err != nil {
				return 0, err
			}
		}
	}
	return len(b), nil
}

// note adds bytes to what the file should contain.
func (w *Writer) note(b []byte) {
	if w.noSums {
		w.meant.Size += int64(len(b))
		return
	}
	for len(b) > 0 {
		n := min(len(b), chunk-int(w.meant.Size%chunk))
		_, _ = w.digest.Write(b[:n]) // never fails
		w.meant.Size += int64(n)
		b = b[n:]
		if w.meant.Size%chunk == 0 {
			w.meant.sums = append(w.meant.sums, w.digest.Sum64())
		}
	}
}

// flush writes the first n bytes of the buffer and empties it.
func (w *Writer) flush(n int) error {
	w.used = 0
	if n == 0 {
		return nil
	}
	return w.write((*w.buffer)[:n])
}

func (w *Writer) write(b []byte) error {
	if _, err := w.file.Write(b); err != nil {
		return fmt.Errorf("outfile: write: %w", err)
	}
	return nil
}

// Finish writes the rest; the caller syncs and closes the file. A direct file takes whole blocks
// only, so the last one is padded and the padding cut off again. The writer must not be used
// afterwards. Errors are those of the file.
func (w *Writer) Finish() (Meant, error) {
	align := w.file.Alignment()
	used, padded := w.used, (w.used+align-1)/align*align
	clear((*w.buffer)[used:padded])
	if err := w.flush(padded); err != nil {
		return Meant{}, err
	}
	if padded != used {
		if err := w.file.Truncate(w.meant.Size); err != nil {
			return Meant{}, fmt.Errorf("outfile: cut padding off: %w", err)
		}
	}
	if !w.noSums && (w.meant.Size%chunk != 0 || w.meant.Size == 0) {
		w.meant.sums = append(w.meant.sums, w.digest.Sum64())
	}
	chunks.Put(w.buffer)
	w.buffer = nil
	return w.meant, nil
}
