package valuefile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/row"
)

const (
	headSize      = 20
	footerSize    = 72
	formatVersion = 1
	magic         = "flagVAL\n"

	kindRaw = 0
	kindS2  = 1

	// maxStored bounds the content of a record: what is not smaller compressed
	// is stored raw.
	maxStored = row.MaxValueBytes
)

// ErrCorrupt is matched by every error that reports bytes which are not what
// the writer wrote. The errors are *CorruptError values.
var ErrCorrupt = errors.New("valuefile: corrupt value file")

// ErrVersion reports a file written in a newer format than this package knows.
var ErrVersion = errors.New("valuefile: value file of a newer format version")

// CorruptError says where a file is corrupt.
type CorruptError struct {
	File   string
	Offset int64 // of the record or footer in the file
	What   string
}

// Error names file, offset and what is wrong, never content.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("valuefile: corrupt value file %s: offset %d: %s", e.File, e.Offset, e.What)
}

// Is reports whether target is ErrCorrupt.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }

// head is the decoded head of a record.
type head struct {
	stored, raw uint32
	kind        byte
	checksum    uint64
}

// put encodes the head but for its checksum.
func (h *head) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.stored)
	binary.LittleEndian.PutUint32(b[4:], h.raw)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.kind))
}

// parseHead decodes a head and returns what is wrong with it, or "".
func parseHead(b []byte) (h head, bad string) {
	h = head{
		stored: binary.LittleEndian.Uint32(b), raw: binary.LittleEndian.Uint32(b[4:]),
		kind: b[8], checksum: binary.LittleEndian.Uint64(b[12:]),
	}
	switch {
	case b[8] > kindS2 || b[9]|b[10]|b[11] != 0:
		return h, "unknown kind of record"
	case h.raw > row.MaxValueBytes || h.stored > maxStored:
		return h, "record longer than the largest value"
	case h.kind == kindRaw && h.stored != h.raw:
		return h, "record of a raw value has another length than the value"
	case h.kind == kindS2 && h.stored >= h.raw:
		return h, "compressed record is not shorter than its value"
	}
	return h, ""
}

// recordChecksum is the checksum of a record at its place.
func recordChecksum(head, content []byte, id *[16]byte, offset int64) uint64 {
	var place [24]byte
	copy(place[:], id[:])
	binary.LittleEndian.PutUint64(place[16:], uint64(offset))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head[:12])
	_, _ = d.Write(content)
	_, _ = d.Write(place[:])
	return d.Sum64()
}

// check verifies a record, head and content, that lies at offset, and decodes
// its head.
func check(record []byte, id *[16]byte, offset int64) (h head, bad string) {
	if h, bad = parseHead(record); bad != "" {
		return h, bad
	}
	switch {
	case len(record)-headSize != int(h.stored):
		return h, "record has another length than its head says"
	case recordChecksum(record, record[headSize:], id, offset) != h.checksum:
		return h, "record checksum does not match"
	}
	return h, ""
}

// guard follows the value in what is compressed.
const guard = "\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f\x10"

// Pack returns the compressed form of a value, as a record of kind S2 holds it,
// for Writer.AddPacked and Unpack; false if it does not save an eighth. A value
// is packed once, before it is logged, and takes this form wherever it goes. It
// lies in the buffer, which is grown as needed.
func Pack(buffer *[]byte, value []byte) (packed []byte, ok bool) {
	packed = compress(buffer, value)
	return packed, len(packed) < len(value)-len(value)/8
}

// Unpack makes buffer hold the value that Pack was given, and returns it.
func Unpack(buffer *[]byte, packed []byte) ([]byte, error) {
	raw, bad := packedLength(packed)
	if bad == "" {
		var value []byte
		if value, bad = decompress(buffer, raw, packed); bad == "" {
			return value, nil
		}
	}
	return nil, fmt.Errorf("%w: packed value: %s", ErrCorrupt, bad)
}

// packedLength returns the length of the value with the packed form.
func packedLength(packed []byte) (raw int, bad string) {
	n, err := s2.DecodedLen(packed)
	if err != nil || n < len(guard) || n-len(guard) > row.MaxValueBytes || n-len(guard) <= len(packed) {
		return 0, "its length is not that of a value"
	}
	return n - len(guard), ""
}

// compress returns the compressed form of a value, in the buffer, which it may
// grow.
func compress(buffer *[]byte, value []byte) []byte {
	const lengthSize = binary.MaxVarintLen32
	dst := resize(buffer, lengthSize+s2.MaxEncodedLen(len(value))+1+len(guard))
	// An S2 block is a length and a sequence of elements: the guard is one more
	// element, a literal, behind those of the value.
	block := s2.Encode(dst[lengthSize:], value)
	_, n := binary.Uvarint(block)
	block = append(append(block, byte(len(guard)-1)<<2), guard...)
	// The length takes its place before the elements, where it may have become a
	// byte longer.
	var length [lengthSize]byte
	m := binary.PutUvarint(length[:], uint64(len(value)+len(guard)))
	from := lengthSize + n - m
	copy(dst[from:], length[:m])
	return dst[from : lengthSize+len(block)]
}

// decompress makes buffer hold the value that content is the compressed form of,
// raw bytes, and returns it and what is wrong, or "".
func decompress(buffer *[]byte, raw int, content []byte) (value []byte, bad string) {
	if n, err := s2.DecodedLen(content); err != nil || n != raw+len(guard) {
		return nil, "S2 record does not have its declared length"
	}
	out, err := s2.Decode(resize(buffer, raw+len(guard)), content)
	if err != nil || string(out[raw:]) != guard {
		return nil, "S2 record does not decompress"
	}
	return out[:raw:raw], ""
}

// resize makes the buffer one of n bytes, whatever they are.
func resize(buffer *[]byte, n int) []byte {
	if cap(*buffer) < n {
		*buffer = make([]byte, n)
	}
	*buffer = (*buffer)[:n]
	return *buffer
}

// footer is the decoded footer.
type footer struct {
	uniqueID  [16]byte
	values    uint64
	rawBytes  uint64
	fileSize  int64
	headsHash uint64
	checksum  uint64 // of the footer itself
}

// append encodes the footer and sets its checksum.
func (f *footer) append(dst []byte) []byte {
	from := len(dst)
	dst = append(dst, f.uniqueID[:]...)
	for _, v := range []uint64{f.values, f.rawBytes, uint64(f.fileSize), f.headsHash, formatVersion} {
		dst = binary.LittleEndian.AppendUint64(dst, v)
	}
	f.checksum = xxhash.Sum64(dst[from:])
	dst = binary.LittleEndian.AppendUint64(dst, f.checksum)
	return append(dst, magic...)
}

// parseFooter decodes the last footerSize bytes of a file of fileSize bytes.
func parseFooter(b []byte, file string, fileSize int64) (footer, error) {
	bad := func(what string) (footer, error) {
		return footer{}, &CorruptError{File: file, Offset: fileSize - footerSize, What: what}
	}
	if string(b[64:72]) != magic {
		return bad("no value file: magic number missing at the end")
	}
	sum := binary.LittleEndian.Uint64(b[56:])
	if xxhash.Sum64(b[:56]) != sum {
		return bad("footer checksum does not match")
	}
	if v := binary.LittleEndian.Uint32(b[48:]); v > formatVersion {
		return footer{}, fmt.Errorf("%w: %s has version %d, this program reads up to %d", ErrVersion, file, v, formatVersion)
	} else if v != formatVersion {
		return bad(fmt.Sprintf("unknown format version %d", v))
	}
	f := footer{
		values: binary.LittleEndian.Uint64(b[16:]), rawBytes: binary.LittleEndian.Uint64(b[24:]),
		fileSize: int64(binary.LittleEndian.Uint64(b[32:])), headsHash: binary.LittleEndian.Uint64(b[40:]),
		checksum: sum,
	}
	copy(f.uniqueID[:], b)
	switch {
	case f.fileSize != fileSize:
		return bad(fmt.Sprintf("file has %d bytes, its footer says %d", fileSize, f.fileSize))
	case binary.LittleEndian.Uint32(b[52:]) != 0:
		return bad("reserved bytes are not zero")
	case f.values > uint64(fileSize-footerSize)/headSize:
		return bad("more records than the file has room for")
	}
	return f, nil
}
