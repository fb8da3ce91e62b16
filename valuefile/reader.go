package valuefile

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// ReaderOptions describe a file before it is opened.
type ReaderOptions struct {
	FileName string // for errors
	// Want is the file's entry in the manifest; Open refuses another file.
	Want Info
	// Mapped maps the file, if it can be mapped and VerifyInterval and Elapsed are set. Values
	// verified within VerifyInterval are then read through the mapping while they are in the page
	// cache.
	Mapped bool
	// VerifyInterval is how long the verification of a value is trusted, from the beginning of
	// the read that verified it. 0: every read verifies.
	VerifyInterval time.Duration
	// Elapsed is a monotonic clock.
	Elapsed func() time.Duration
}

// Reader reads one value file. It is safe for concurrent use. It caches nothing: one call reads a
// large value, from the page cache if it is there. In the block cache it would evict hundreds of
// blocks.
type Reader struct {
	file   vfs.File
	name   string
	footer footer
	mapped *mapped // nil: not mapped
}

// Open opens a value file and takes ownership of f, unless it returns an error. f must not be
// direct: a value is read straight into memory of the caller.
func Open(f vfs.File, opts ReaderOptions) (*Reader, error) {
	r := &Reader{file: f, name: opts.FileName}
	size, err := f.Size()
	if err != nil {
		return nil, fmt.Errorf("valuefile: size of %s: %w", r.name, err)
	}
	if size != opts.Want.Size || size < footerSize {
		return nil, r.corrupt(0, fmt.Sprintf("file has %d bytes, want %d", size, opts.Want.Size))
	}
	var end [footerSize]byte
	if err := r.readAt(end[:], size-footerSize); err != nil {
		return nil, err
	}
	if r.footer, err = parseFooter(end[:], r.name, size); err != nil {
		return nil, err
	}
	if r.footer.info() != opts.Want {
		return nil, r.corrupt(size-footerSize, fmt.Sprintf("another file than expected: it has id %x, want %x",
			r.footer.uniqueID, opts.Want.UniqueID))
	}
	if opts.Mapped && opts.VerifyInterval > 0 && opts.Elapsed != nil {
		// Map fails if the system has no mappings, or if they or the address space are used up.
		// Values are then read by calls.
		if mapping, err := f.Map(size); err == nil {
			r.mapped = &mapped{
				mapping: mapping, elapsed: opts.Elapsed, interval: opts.VerifyInterval,
				verified: map[uint64]time.Duration{},
			}
		}
	}
	return r, nil
}

// OpenDamaged is Open for a file of which parts may be damaged. It does without the footer: a reference says where
// its record is, and what its checksum is. The reader is for Value alone.
func OpenDamaged(f vfs.File, opts ReaderOptions) *Reader {
	return &Reader{file: f, name: opts.FileName, footer: footer{uniqueID: opts.Want.UniqueID, fileSize: opts.Want.Size}}
}

// Close closes the file. REQUIRES: no read is under way.
func (r *Reader) Close() error {
	if r.mapped != nil {
		return errors.Join(r.mapped.mapping.Close(), r.file.Close())
	}
	return r.file.Close()
}

// corrupt returns the error that says what is wrong at an offset, or nil if what is "".
func (r *Reader) corrupt(offset int64, what string) error {
	if what == "" {
		return nil
	}
	return Corrupt(r.name, offset, what)
}

// readAt fills b from the file.
func (r *Reader) readAt(b []byte, offset int64) error {
	n, err := r.file.ReadAt(b, offset)
	switch {
	case n == len(b):
		return nil
	case err == nil || errors.Is(err, io.EOF):
		return r.corrupt(offset, fmt.Sprintf("file ends after %d of %d bytes", n, len(b)))
	}
	return fmt.Errorf("valuefile: read %s at %d: %w", r.name, offset, err)
}

// place checks that a reference lies inside the file, before memory is allocated for it.
func (r *Reader) place(ref row.Reference) error {
	end := uint64(r.footer.fileSize - footerSize)
	if ref.Stored < headSize || ref.Raw > row.MaxValueBytes || ref.Stored > headSize+maxStored ||
		ref.Offset > end || uint64(ref.Stored) > end-ref.Offset {
		return r.corrupt(int64(ref.Offset&(1<<62-1)), "reference to a place outside of the records")
	}
	return nil
}

// Value reads the value that ref refers to into buffer, which is grown as needed. The value is
// valid until the next use of the buffer.
func (r *Reader) Value(buffer *[]byte, ref row.Reference) ([]byte, error) {
	m := r.mapped
	if m == nil {
		return r.verified(buffer, ref)
	}
	began := m.elapsed()
	if m.believes(ref.Offset, began) {
		return r.believed(buffer, ref, began)
	}
	value, err := r.verified(buffer, ref)
	if err == nil {
		m.note(ref.Offset, began)
	}
	return value, err
}

// verified is Value by a call; it verifies the copy.
func (r *Reader) verified(buffer *[]byte, ref row.Reference) ([]byte, error) {
	if ref.Stored == headSize+ref.Raw { // raw: read straight into the caller's buffer
		record, err := r.readRecord(buffer, ref)
		return record.content, err
	}
	scratch := scratches.Get().(*[]byte)
	defer giveScratch(scratch)
	record, err := r.readRecord(scratch, ref)
	if err != nil {
		return nil, err
	}
	value, bad := record.unpack(buffer, false)
	if bad != "" {
		return nil, r.corrupt(int64(ref.Offset), bad)
	}
	return value, nil
}

// Record is a value in its stored form.
type Record struct {
	content []byte
	raw     uint32
	kind    byte
}

// unpack unpacks the value into the buffer. Pieces that are not known to be right are verified;
// bad says what is wrong, or is "".
func (r *Record) unpack(buffer *[]byte, known bool) (value []byte, bad string) {
	switch r.kind {
	case kindBlock:
		return unpackBlock(buffer, int(r.raw), r.content)
	case kindPieces:
		p, raw, bad := parsePieces(r.content)
		if bad == "" && raw != int(r.raw) {
			bad = "pieces do not have the declared length"
		}
		if bad != "" {
			return nil, bad
		}
		return p.unpack(buffer, raw, known)
	}
	value = resize(buffer, int(r.raw))
	copy(value, r.content)
	return value, ""
}

// ReadRecord reads and verifies the record that ref refers to, for Writer.Copy, into buffer,
// which is grown as needed. The record is valid until the next use of the buffer.
func (r *Reader) ReadRecord(buffer *[]byte, ref row.Reference) (Record, error) {
	record, err := r.readRecord(buffer, ref)
	if err != nil || record.kind != kindPieces {
		return record, err
	}
	p, _, bad := parsePieces(record.content)
	if bad == "" {
		bad = p.verify()
	}
	return record, r.corrupt(int64(ref.Offset), bad)
}

// readRecord is ReadRecord without verifying pieces.
func (r *Reader) readRecord(buffer *[]byte, ref row.Reference) (Record, error) {
	if err := r.place(ref); err != nil {
		return Record{}, err
	}
	record := resize(buffer, int(ref.Stored))
	if err := r.readAt(record, int64(ref.Offset)); err != nil {
		return Record{}, err
	}
	h, bad := check(record, &r.footer.uniqueID, ref)
	if bad != "" {
		return Record{}, r.corrupt(int64(ref.Offset), bad)
	}
	return Record{content: record[headSize:], raw: h.raw, kind: h.kind}, nil
}

// CheckReference verifies by the head alone that ref leads to a record. Together with Verify,
// which verifies all records, it proves that the value can be read.
func (r *Reader) CheckReference(ref row.Reference) error {
	if err := r.place(ref); err != nil {
		return err
	}
	var b [headSize]byte
	if err := r.readAt(b[:], int64(ref.Offset)); err != nil {
		return err
	}
	_, bad := headFor(b[:], ref)
	return r.corrupt(int64(ref.Offset), bad)
}

// Verify reads the whole file and checks every record, that records follow each other without a
// gap, and that the footer is right. It calls stopped before each record; an error of that ends it. sum is the
// xxhash64 of all bytes of the file, as they were verified.
func (r *Reader) Verify(stopped func() error) (sum uint64, err error) {
	var buffer, value []byte
	heads, all := xxhash.New(), xxhash.New()
	var values, rawBytes uint64
	end := r.footer.fileSize - footerSize
	for offset := int64(0); offset < end; {
		if err := stopped(); err != nil {
			return 0, err
		}
		h, err := r.verifyRecord(&buffer, &value, offset, end)
		if err != nil {
			return 0, err
		}
		_, _ = heads.Write(buffer[:headSize])
		_, _ = all.Write(buffer)
		values++
		rawBytes += uint64(h.raw)
		offset += headSize + int64(h.stored)
	}
	if values != r.footer.values || rawBytes != r.footer.rawBytes || heads.Sum64() != r.footer.headsHash {
		return 0, r.corrupt(end, fmt.Sprintf("footer says %d values of %d bytes, the file has %d of %d",
			r.footer.values, r.footer.rawBytes, values, rawBytes))
	}
	f := r.footer
	_, _ = all.Write(f.append(nil))
	return all.Sum64(), nil
}

// verifyRecord checks the record at offset. It leaves the record in the buffer, and what is
// unpacked of it in value.
func (r *Reader) verifyRecord(buffer, value *[]byte, offset, end int64) (head, error) {
	if end-offset < headSize {
		return head{}, r.corrupt(offset, "record shorter than its head")
	}
	var b [headSize]byte
	if err := r.readAt(b[:], offset); err != nil {
		return head{}, err
	}
	h, bad := parseHead(b[:])
	if bad == "" && int64(h.stored) > end-offset-headSize {
		bad = "record reaches beyond the records"
	}
	if bad != "" {
		return h, r.corrupt(offset, bad)
	}
	ref := row.Reference{Offset: uint64(offset), Stored: headSize + h.stored, Raw: h.raw, Checksum: h.checksum}
	record, err := r.readRecord(buffer, ref)
	if err != nil {
		return h, err
	}
	if record.kind != kindRaw {
		_, bad = record.unpack(value, false)
	}
	return h, r.corrupt(offset, bad)
}

// scratches has memory for compressed records and packed values, without content between uses.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

// giveScratch puts memory back. A rare larger buffer must not stay in memory.
func giveScratch(buffer *[]byte) {
	if cap(*buffer) <= 4<<20 {
		scratches.Put(buffer)
	}
}
