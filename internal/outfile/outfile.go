// Package outfile writes files from front to back, and reads them back. Table files,
// value files and copies of them are made by it.
//
// A write can be lost, go astray or change on its way without an error. So the
// checksum of what is to be in the file is made of the bytes as they are handed in,
// before they are copied or written, and after a sync the file is read back from the
// device and compared with it: only then may anything rely on the file.
package outfile

import (
	"fmt"
	"sync"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// chunk is how much is written and read back at a time, in bytes: large enough that
// the cost of a call does not matter, and a multiple of every alignment.
const chunk = 512 << 10

// chunks keeps aligned memory of chunks between files. It has no content between uses.
var chunks = sync.Pool{New: func() any {
	b := vfs.AlignedBuffer(chunk)
	return &b
}}

// Writer gathers a file's bytes and writes them in aligned chunks, so that it serves
// direct files as well. It is used by one goroutine. After an error the file is lost.
type Writer struct {
	file   vfs.File
	buffer *[]byte // a chunk
	used   int
	meant  Meant
	digest xxhash.Digest // of all bytes so far
}

// Meant is what should be in a finished file.
type Meant struct {
	// Size is that of the file in bytes.
	Size int64
	// sums are the checksums of the file up to the end of each chunk.
	sums []uint64
}

// Checksum is the xxhash64 of all bytes of the file.
func (m *Meant) Checksum() uint64 {
	if len(m.sums) == 0 {
		return xxhash.Sum64(nil)
	}
	return m.sums[len(m.sums)-1]
}

// New starts to write f, which must be empty.
func New(f vfs.File) *Writer {
	w := &Writer{file: f, buffer: chunks.Get().(*[]byte)}
	w.digest.Reset()
	return w
}

// Offset is that of the next byte in the file.
func (w *Writer) Offset() int64 { return w.meant.Size }

// Write takes the next bytes of the file. Errors are those of the file.
func (w *Writer) Write(b []byte) (int, error) {
	if err := w.append(b); err != nil {
		return 0, err
	}
	return len(b), nil
}

func (w *Writer) append(b []byte) error {
	w.note(b)
	if w.file.Alignment() == 1 && len(b) >= chunk/2 {
		// Much goes from its memory to the system without a copy.
		if err := w.flush(w.used); err != nil {
			return err
		}
		return w.write(b)
	}
	for len(b) > 0 {
		n := copy((*w.buffer)[w.used:], b)
		w.used += n
		b = b[n:]
		if w.used == chunk {
			if err := w.flush(chunk); err != nil {
				return err
			}
		}
	}
	return nil
}

// note adds to what should be in the file.
func (w *Writer) note(b []byte) {
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

// Finish writes what is left; to sync and close the file is the caller's. A direct file
// takes whole blocks only, so the last one is padded and the padding cut off again.
// The writer is of no use afterwards. Errors are those of the file.
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
	if w.meant.Size%chunk != 0 {
		w.meant.sums = append(w.meant.sums, w.digest.Sum64())
	}
	chunks.Put(w.buffer)
	w.buffer = nil
	return w.meant, nil
}
