package sstable

import (
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// outputChunk is how much is written at a time: large enough that the cost of
// a call does not matter, and a multiple of every alignment.
const outputChunk = 512 << 10

// output gathers a file's bytes and writes them in aligned chunks, so that it
// serves direct files as well; it keeps the checksum of all of them.
type output struct {
	file     vfs.File
	buffer   []byte // a chunk, aligned
	used     int
	offset   int64 // of the next byte in the file
	checksum xxhash.Digest
}

// newOutput begins a file. buffer is an aligned chunk.
func newOutput(f vfs.File, buffer []byte) *output {
	o := &output{file: f, buffer: buffer}
	o.checksum.Reset()
	return o
}

// append takes the next bytes of the file. After an error the file is lost.
func (o *output) append(b []byte) error {
	_, _ = o.checksum.Write(b)
	o.offset += int64(len(b))
	for len(b) > 0 {
		n := copy(o.buffer[o.used:], b)
		o.used += n
		b = b[n:]
		if o.used == len(o.buffer) {
			if _, err := o.file.Write(o.buffer); err != nil {
				return fmt.Errorf("sstable: write table file: %w", err)
			}
			o.used = 0
		}
	}
	return nil
}

// finish writes what is left. A direct file takes whole blocks only, so the
// last one is padded and the padding cut off again.
func (o *output) finish() error {
	align := o.file.Alignment()
	padded := (o.used + align - 1) / align * align
	clear(o.buffer[o.used:padded])
	if padded > 0 {
		if _, err := o.file.Write(o.buffer[:padded]); err != nil {
			return fmt.Errorf("sstable: write table file: %w", err)
		}
	}
	if padded != o.used {
		if err := o.file.Truncate(o.offset); err != nil {
			return fmt.Errorf("sstable: cut padding off table file: %w", err)
		}
	}
	o.used = 0
	return nil
}
