package valuefile

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/outfile"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// WriterOptions configure one file.
type WriterOptions struct {
	// Number is the file's number, which references to it carry.
	Number uint64
	// UniqueID identifies the file. It must differ between any two files.
	UniqueID [16]byte
	// Compress packs values if that saves an eighth.
	Compress bool
	// ReadBack makes the checksums that Meant needs.
	ReadBack bool
}

// Info describes a finished file.
type Info struct {
	UniqueID [16]byte
	Size     int64  // of the file in bytes
	Checksum uint64 // of the footer, which covers the whole file
	Values   uint64
	Bytes    uint64 // of all records: the sum of Stored of all references
}

// Writer writes one value file. One goroutine uses it. After an error every call returns that
// error, and the caller must remove the file.
type Writer struct {
	opts       WriterOptions
	out        *outfile.Writer
	meant      outfile.Meant // once finished
	heads      xxhash.Digest
	compressed []byte // scratch
	directory  []byte // of pieces, with their checksums; scratch
	values     uint64
	rawBytes   uint64
	err        error
}

// NewWriter starts a value file in f, which must be empty.
func NewWriter(f vfs.File, opts WriterOptions) *Writer {
	w := &Writer{opts: opts, out: outfile.New(f)}
	if !opts.ReadBack {
		w.out.OmitSums()
	}
	w.heads.Reset()
	return w
}

// Add stores a value and returns the reference to it.
func (w *Writer) Add(value []byte) (row.Reference, error) {
	if len(value) > row.MaxValueBytes {
		return row.Reference{}, w.fail(fmt.Errorf("valuefile: value of %d bytes, at most %d", len(value), row.MaxValueBytes))
	}
	if w.opts.Compress {
		if packed, ok := pack(&w.compressed, value); ok {
			return w.AddPacked(packed)
		}
	}
	return w.add(head{raw: uint32(len(value)), kind: kindRaw}, value, nil)
}

// AddPacked stores a value in packed form, from Pack or from an older version.
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

// Copy stores a record of another file as it is.
func (w *Writer) Copy(r Record) (row.Reference, error) {
	h := head{raw: r.raw, kind: r.kind}
	covered := h.covered(r.content)
	return w.add(h, covered, r.content[len(covered):])
}

// add writes a record. Its content is covered followed by rest; its checksum covers only covered.
func (w *Writer) add(h head, covered, rest []byte) (row.Reference, error) {
	if w.err != nil {
		return row.Reference{}, w.err
	}
	h.stored = uint32(len(covered) + len(rest))
	var b [headSize]byte
	h.put(b[:])
	h.checksum = recordChecksum(b[:], covered, &w.opts.UniqueID, w.out.Offset())
	binary.LittleEndian.PutUint64(b[12:], h.checksum)
	ref := row.Reference{
		File: w.opts.Number, Offset: uint64(w.out.Offset()),
		Stored: headSize + h.stored, Raw: h.raw, Checksum: h.checksum,
	}
	_, _ = w.heads.Write(b[:])
	for _, part := range [][]byte{b[:], covered, rest} {
		if _, err := w.out.Write(part); err != nil {
			return ref, w.fail(err)
		}
	}
	w.values++
	w.rawBytes += uint64(h.raw)
	return ref, nil
}

func (w *Writer) fail(err error) error {
	w.err = cmp.Or(w.err, err)
	return w.err
}

// Size returns the size of the file if it were finished now.
func (w *Writer) Size() int64 { return w.out.Offset() + footerSize }

// Finish completes the file and hands all of it to the operating system; the caller syncs and
// closes it. The writer cannot be used afterwards.
func (w *Writer) Finish() (Info, error) {
	if w.err != nil {
		return Info{}, w.err
	}
	f := footer{
		uniqueID: w.opts.UniqueID, values: w.values, rawBytes: w.rawBytes,
		fileSize: w.out.Offset() + footerSize, headsHash: w.heads.Sum64(),
	}
	if _, err := w.out.Write(f.append(nil)); err != nil {
		return Info{}, w.fail(err)
	}
	var err error
	if w.meant, err = w.out.Finish(); err != nil {
		return Info{}, w.fail(err)
	}
	w.err = errors.New("valuefile: writer is finished")
	return f.info(), nil
}

// Meant returns the expected content of the file, to read it back. REQUIRES: WriterOptions.ReadBack was set,
// and Finish succeeded.
func (w *Writer) Meant() outfile.Meant { return w.meant }
