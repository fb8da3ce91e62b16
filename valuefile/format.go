package valuefile

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/row"
)

const (
	headSize      = 20
	footerSize    = 72
	formatVersion = 2 // version 1 has no records of kind kindPieces
	magic         = "flagVAL\n"

	kindRaw    = 0
	kindBlock  = 1 // one S2 block, see block.go
	kindPieces = 2 // see pieces.go

	// maxStored bounds the content of a record: a value that compression does not shorten is
	// stored raw.
	maxStored = row.MaxValueBytes
)

// ErrCorrupt matches every error about bytes that are not what the writer wrote.
var ErrCorrupt = errors.New("valuefile: corrupt value file")

// errVersion reports a file written in a newer format than this package knows.
var errVersion = errors.New("valuefile: value file of a newer format version")

// Corrupt returns the error that says what is wrong with the record or footer at an offset of a file.
// It names no content.
func Corrupt(file string, offset int64, what string) error {
	return fmt.Errorf("%w %s: offset %d: %s", ErrCorrupt, file, offset, what)
}

// head is the decoded head of a record.
type head struct {
	stored, raw uint32
	kind        byte
	checksum    uint64
}

// put encodes the head without its checksum.
func (h *head) put(b []byte) {
	binary.LittleEndian.PutUint32(b, h.stored)
	binary.LittleEndian.PutUint32(b[4:], h.raw)
	binary.LittleEndian.PutUint32(b[8:], uint32(h.kind))
}

// parseHead decodes a head; bad says what is wrong, or is "".
func parseHead(b []byte) (h head, bad string) {
	h = head{
		stored: binary.LittleEndian.Uint32(b), raw: binary.LittleEndian.Uint32(b[4:]),
		kind: b[8], checksum: binary.LittleEndian.Uint64(b[12:]),
	}
	switch {
	case b[8] > kindPieces || b[9]|b[10]|b[11] != 0:
		return h, "unknown kind of record"
	case h.raw > row.MaxValueBytes || h.stored > maxStored:
		return h, "record longer than the largest value"
	case h.kind == kindRaw && h.stored != h.raw:
		return h, "record of a raw value has another length than the value"
	case h.kind != kindRaw && h.stored >= h.raw:
		return h, "compressed record is not shorter than its value"
	}
	return h, ""
}

// headFor decodes the head of the record that ref was made for; bad says what is wrong, or is "".
func headFor(b []byte, ref row.Reference) (h head, bad string) {
	if h, bad = parseHead(b); bad == "" && (h.checksum != ref.Checksum || h.raw != ref.Raw || h.stored+headSize != ref.Stored) {
		bad = "record is not the one that is referred to"
	}
	return h, bad
}

// covered returns the part of a record's content that its own checksum covers: for pieces only
// the directory, which has their checksums.
func (h *head) covered(content []byte) []byte {
	if h.kind == kindPieces {
		return content[:directorySize(content)]
	}
	return content
}

// recordChecksum returns the checksum of a record at its place.
func recordChecksum(head, covered []byte, id *[16]byte, offset int64) uint64 {
	var place [24]byte
	copy(place[:], id[:])
	binary.LittleEndian.PutUint64(place[16:], uint64(offset))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(head[:12])
	_, _ = d.Write(covered)
	_, _ = d.Write(place[:])
	return d.Sum64()
}

// check verifies the record of ref, head and content, and decodes its head. For pieces it verifies
// the directory; the caller verifies the pieces by it.
func check(record []byte, id *[16]byte, ref row.Reference) (h head, bad string) {
	if h, bad = parseHead(record); bad != "" {
		return h, bad
	}
	switch content := record[headSize:]; {
	case len(content) != int(h.stored):
		return h, "record has another length than its head says"
	case recordChecksum(record, h.covered(content), id, int64(ref.Offset)) != h.checksum:
		return h, "record checksum does not match"
	}
	return headFor(record, ref)
}

// resize returns the buffer with n bytes, whose content is undefined.
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

// info describes the file that ends with the footer.
func (f *footer) info() Info {
	return Info{
		UniqueID: f.uniqueID, Size: f.fileSize, Checksum: f.checksum,
		Values: f.values, Bytes: uint64(f.fileSize - footerSize),
	}
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
		return footer{}, Corrupt(file, fileSize-footerSize, what)
	}
	if string(b[64:72]) != magic {
		return bad("no value file: magic number missing at the end")
	}
	sum := binary.LittleEndian.Uint64(b[56:])
	if xxhash.Sum64(b[:56]) != sum {
		return bad("footer checksum does not match")
	}
	if v := binary.LittleEndian.Uint32(b[48:]); v > formatVersion {
		return footer{}, fmt.Errorf("%w: %s has version %d, this program reads up to %d", errVersion, file, v, formatVersion)
	} else if v == 0 {
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
