package outfile

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// ErrNotWritten is matched by every error about bytes that do not read back as they were
// written. These errors are *NotWrittenError values.
var ErrNotWritten = errors.New("outfile: a file does not read back as it was written")

// NotWrittenError says where a file is not what was written.
type NotWrittenError struct {
	File   string
	Offset int64 // of the wrong part of the file, in bytes
	Length int64 // of that part; something in it is wrong
	What   string
}

// Error names file, offset and what is wrong, never content.
func (e *NotWrittenError) Error() string {
	return fmt.Sprintf("outfile: %s does not read back as it was written: offset %d: %s in %d bytes",
		e.File, e.Offset, e.What, e.Length)
}

// Is reports whether target is ErrNotWritten.
func (e *NotWrittenError) Is(target error) bool { return target == ErrNotWritten }

// ReadBack reads the named file from the device and compares it with what it should contain.
// REQUIRES: the file was synced. Errors match ErrNotWritten or are those of the file system.
func (m *Meant) ReadBack(fsys vfs.FS, name string) error {
	if len(m.sums) == 0 {
		return fmt.Errorf("outfile: read back: %s was written without checksums", name)
	}
	file, err := fsys.Open(name, vfs.OpenOptions{Uncached: true})
	if err != nil {
		return fmt.Errorf("outfile: read back: %w", err)
	}
	return errors.Join(m.compare(file, name), file.Close())
}

func (m *Meant) compare(file vfs.File, name string) error {
	size, err := file.Size()
	if err != nil {
		return fmt.Errorf("outfile: read back: %w", err)
	}
	if size != m.Size {
		return &NotWrittenError{name, min(size, m.Size), max(size, m.Size) - min(size, m.Size), "another size"}
	}
	buffer := chunks.Get().(*[]byte)
	defer chunks.Put(buffer)
	var digest xxhash.Digest
	digest.Reset()
	for i, sum := range m.sums {
		offset := int64(i) * chunk
		b, err := readAt(file, name, *buffer, offset, min(chunk, m.Size-offset))
		if err != nil {
			return err
		}
		_, _ = digest.Write(b) // never fails
		if digest.Sum64() != sum {
			return &NotWrittenError{name, offset, int64(len(b)), "other bytes"}
		}
	}
	return nil
}

// readAt reads n bytes at an offset into the buffer. Both are multiples of the alignment, unless
// the n bytes end at the end of the file.
func readAt(file vfs.File, name string, buffer []byte, offset, n int64) ([]byte, error) {
	align := int64(file.Alignment())
	got, err := file.ReadAt(buffer[:(n+align-1)/align*align], offset)
	switch {
	case int64(got) >= n:
		return buffer[:n], nil
	case err == nil || errors.Is(err, io.EOF):
		return nil, &NotWrittenError{name, offset + int64(got), n - int64(got), "the file ends"}
	}
	return nil, fmt.Errorf("outfile: read back: %w", err)
}

// ReadBackAt reads a part of a file from the device and compares it with what was written there.
// file is open uncached; offset is a multiple of every alignment. REQUIRES: the file was synced.
// Errors match ErrNotWritten or are those of the file.
func ReadBackAt(file vfs.File, name string, offset int64, written []byte) error {
	n := int64(len(written))
	b, err := readAt(file, name, vfs.AlignedBuffer(len(written)+file.Alignment()), offset, n)
	if err == nil && !bytes.Equal(b, written) {
		err = &NotWrittenError{name, offset, n, "other bytes"}
	}
	return err
}
