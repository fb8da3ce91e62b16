package valuefile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// chunk is how much is written at a time: large enough that the cost of a call
// does not matter, and a multiple of every alignment.
const chunk = 512 << 10

// WriterOptions configure one file.
type WriterOptions struct {
	// Number is the file's number, which references to it carry.
	Number uint64
	// UniqueID names the file for ever. It must differ between any two files.
	UniqueID [16]byte
	// Compress values that it makes smaller by an eighth.
	Compress bool
}

// Info says what a finished file holds.
type Info struct {
	UniqueID [16]byte
	Size     int64  // of the file in bytes
	Checksum uint64 // that of the footer, which covers everything
	Values   uint64
	Bytes    uint64 // of all records: what the references to them add up to
}

// Writer writes one value file. It is used by one goroutine. After an error
// every call returns that error, and the file is to be removed.
type Writer struct {
	opts       WriterOptions
	file       vfs.File
	buffer     []byte // a chunk, aligned
	used       int
	offset     int64 // of the next record
	heads      xxhash.Digest
	compressed []byte // scratch
	directory  []byte // of pieces, with their checksums; scratch
	values     uint64
	rawBytes   uint64
	err        error
}

// NewWriter starts a value file in f, which must be empty.
func NewWriter(f vfs.File, opts WriterOptions) *Writer {
	w := &Writer{opts: opts, file: f, buffer: vfs.AlignedBuffer(chunk)}
	w.heads.Reset()
	return w
}

// Add stores a value and returns the reference to it.
func (w *Writer) Add(value []byte) (row.Reference, error) {
	if len(value) > row.MaxValueBytes {
		return row.Reference{}, w.fail(fmt.Errorf("valuefile: value of %d bytes, at most %d", len(value), row.MaxValueBytes))
	}
	h := head{raw: uint32(len(value)), kind: kindRaw}
	if w.opts.Compress {
		if packed, ok := Pack(&w.compressed, value); ok {
			return w.AddPacked(packed)
		}
	}
	return w.add(h, value, nil)
}

// AddPacked stores a value in the form that Pack gave it, or an older version's.
func (w *Writer) AddPacked(packed []byte) (row.Reference, error) {
	p, raw, bad := parsePacked(packed)
	if bad != "" {
		return row.Reference{}, w.fail(fmt.Errorf("%w: packed value: %s", ErrCorrupt, bad))
	}
	if p.entries == nil {
		return w.add(head{raw: uint32(raw), kind: kindBlock}, packed, nil)
	}
	w.directory = append(w.directory[:0], packed[:len(packed)-len(p.contents)]...)
	if bad := p.seal(w.directory); bad != "" {
		return row.Reference{}, w.fail(fmt.Errorf("%w: packed value: %s", ErrCorrupt, bad))
	}
	return w.add(head{raw: uint32(raw), kind: kindPieces}, w.directory, p.contents)
}

// Copy stores a value as it is stored in another file.
func (w *Writer) Copy(r Record) (row.Reference, error) {
	covered := len(r.content)
	if r.kind == kindPieces {
		covered = directorySize(r.content)
	}
	return w.add(head{raw: r.raw, kind: r.kind}, r.content[:covered], r.content[covered:])
}

// add writes a record. Its content is what its checksum covers, and the rest.
func (w *Writer) add(h head, covered, rest []byte) (row.Reference, error) {
	if w.err != nil {
		return row.Reference{}, w.err
	}
	h.stored = uint32(len(covered) + len(rest))
	var b [headSize]byte
	h.put(b[:])
	h.checksum = recordChecksum(b[:], covered, &w.opts.UniqueID, w.offset)
	binary.LittleEndian.PutUint64(b[12:], h.checksum)
	ref := row.Reference{
		File: w.opts.Number, Offset: uint64(w.offset),
		Stored: headSize + h.stored, Raw: h.raw, Checksum: h.checksum,
	}
	_, _ = w.heads.Write(b[:])
	if err := w.append(b[:]); err != nil {
		return ref, w.fail(err)
	}
	for _, part := range [][]byte{covered, rest} {
		if err := w.append(part); err != nil {
			return ref, w.fail(err)
		}
	}
	w.values++
	w.rawBytes += uint64(h.raw)
	return ref, nil
}

func (w *Writer) fail(err error) error {
	if w.err == nil {
		w.err = err
	}
	return w.err
}

// append takes the next bytes of the file.
func (w *Writer) append(b []byte) error {
	w.offset += int64(len(b))
	if w.file.Alignment() == 1 && len(b) >= chunk/2 {
		// A large value goes from its memory to the system without a copy.
		if err := w.flush(w.used); err != nil {
			return err
		}
		return w.write(b)
	}
	for len(b) > 0 {
		n := copy(w.buffer[w.used:], b)
		w.used += n
		b = b[n:]
		if w.used == len(w.buffer) {
			if err := w.flush(w.used); err != nil {
				return err
			}
		}
	}
	return nil
}

// flush writes the first n bytes of the buffer and empties it.
func (w *Writer) flush(n int) error {
	w.used = 0
	if n == 0 {
		return nil
	}
	return w.write(w.buffer[:n])
}

func (w *Writer) write(b []byte) error {
	if _, err := w.file.Write(b); err != nil {
		return fmt.Errorf("valuefile: write value file: %w", err)
	}
	return nil
}

// Size is the size of the file if it were finished now.
func (w *Writer) Size() int64 { return w.offset + footerSize }

// Finish completes the file and hands all of it to the operating system; to
// sync and close it is the caller's. The writer is of no use afterwards.
func (w *Writer) Finish() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	f := footer{
		uniqueID: w.opts.UniqueID, values: w.values, rawBytes: w.rawBytes,
		fileSize: w.offset + footerSize, headsHash: w.heads.Sum64(),
	}
	if err := w.append(f.append(nil)); err != nil {
		return Info{}, w.fail(err)
	}
	// A direct file takes whole blocks only, so the last one is padded and the
	// padding cut off again.
	align := w.file.Alignment()
	used, padded := w.used, (w.used+align-1)/align*align
	clear(w.buffer[used:padded])
	if err := w.flush(padded); err != nil {
		return Info{}, w.fail(err)
	}
	if padded != used {
		if err := w.file.Truncate(w.offset); err != nil {
			return Info{}, w.fail(fmt.Errorf("valuefile: cut padding off value file: %w", err))
		}
	}
	w.err = errors.New("valuefile: writer is finished")
	return Info{
		UniqueID: w.opts.UniqueID, Size: w.offset, Checksum: f.checksum,
		Values: w.values, Bytes: uint64(w.offset - footerSize),
	}, nil
}
