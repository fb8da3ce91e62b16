package wal

// The byte layout of a segment. All integers are little-endian; docs/format-wal.md has a worked
// example that a test checks.
//
//	block 0     header
//	block 1 ..  group, group, ..., group [, trailer group]
//	rest        zeros, or what an earlier use of the file left there
//
//	header (96 bytes, the rest of its block is not used)
//	     0   8  magic "FLAGWAL\n"
//	     8   4  format version: 4 if the segment before may be durable later, see lazy.go;
//	            else 3, or 2 if there are no compressed groups; 1 is read, and has no
//	            bundles either
//	    12   4  block size, 4096
//	    16  16  store id
//	    32   8  number of this segment
//	    40   8  number of the segment before it, 0 if there is none; of that one:
//	    48   8    offset at which it ends
//	    56   8    records up to there
//	    64   8    chain up to there
//	    72   8  size of this file when the segment began; it is never shorter
//	            while the segment is the last one
//	    80   8  zero
//	    88   8  xxhash64 of bytes 0 to 87; called the seed of the segment
//
//	frame (32 bytes + payload + 0 to 7 zeros up to a multiple of 8)
//	     0   8  checksum: xxhash64 of the whole frame, zeros included, with
//	            this field set to seed XOR offset of the frame in the file
//	     8   3  payload length
//	    11   1  type: 1 full, 2 first, 3 middle, 4 last, 5 padding, 6 trailer,
//	            7 bundle, 8 compressed
//	    12   4  stream
//	    16   8  position of the record in its stream; of a bundle, of its first;
//	            of a compressed group, the bytes of the group
//	    24   8  durable offset: up to here this segment was known to be
//	            durable when the frame was made
//	    32      payload
//
//	bundle payload: small records of one stream, then zeros
//	     uvarint  step: 1 + what the position lies above that of the record
//	              before, for the first one above that in the header: so 1
//	     uvarint  length of the record
//	              the record
//
//	compressed payload: the frames of a group, in parts; see compress.go
//	     0   4  length of the part
//	     4      the part, an S2 block
//
//	trailer payload
//	     0   8  records in the segment
//	     8   8  chain
//
// The chain is a running checksum over frames: it starts at 0, and each frame, padding included,
// makes it xxhash64(chain, checksum of the frame). A record is in a bundle, or is one full frame,
// or a first, any number of middle and a last one; padding may come between them. A group ends in
// padding unless it fills its last block; zeros at the end of a bundle serve as well.
//
// A separate frame costs a small record 32 bytes and up to 7 zeros: a fifth of an update of a
// column of 100 bytes. In a bundle the record costs three.
//
// Invariants:
//   - the checksum covers offset, segment number, store and the end of the previous
//     segment (all in the seed), so stale, moved or foreign bytes do not pass;
//   - durable offsets are multiples of the block, and lie at the start of a frame that
//     does not continue a record;
//   - no two files ever carry frames under the same seed: see continueFrom, adoptSpares and settle;
//   - bytes 0 to 11 and 88 to 95 of the header mean the same in every later format
//     version, so that an unknown version can be told from damage.

import (
	"encoding/binary"
	"fmt"

	"github.com/cespare/xxhash/v2"
)

const (
	// formatVersion is the latest format version. All from 1 on can be read. A segment is written in the first version
	// that has what it has.
	formatVersion = lazyVersion
	// blockSize is the unit of writing: large enough for every device that
	// vfs offers direct I/O on, and the page of the page cache.
	blockSize = 4096
	// MaxRecordSize bounds the payload of one record.
	MaxRecordSize = 256 << 20

	magic           = "FLAGWAL\n"
	headerSize      = 96
	frameHeaderSize = 32
	// maxFrameSize bounds what a reader must hold and hash to check one frame that is not compressed.
	maxFrameSize   = 256 << 10
	maxPayload     = maxFrameSize - frameHeaderSize
	trailerPayload = 16

	plainVersion      = 1 // no bundles
	bundleVersion     = 2 // no compressed groups
	compressedVersion = 3 // the segment before is durable
	lazyVersion       = 4

	// maxBundled is the largest record that goes into a bundle. The frame of a larger record is
	// less than a five hundredth of it.
	maxBundled = 16 << 10
	// bundleSize is the size at which a bundle ends. A bundle is hashed in one go, which delays
	// one writer: 16 KiB take a microsecond. A torn tail loses a bundle as a whole.
	bundleSize = 16 << 10
	// maxStep bounds the distance of two positions in a bundle, and so entryHeader.
	maxStep     = 1 << 32
	entryHeader = 8 // at most: a step of 5 bytes and a length of 3
)

type frameType uint8

const (
	frameFull frameType = iota + 1
	frameFirst
	frameMiddle
	frameLast
	framePadding
	frameTrailer
	frameBundle
	frameCompressed
)

// seal is the end of a segment, or some point inside it.
type seal struct {
	Offset  int64
	Records uint64 // that end at or before Offset
	Chain   uint64 // over the frames before Offset
}

// add moves s past a frame.
func (s *seal) add(size int64, checksum uint64) {
	var b [16]byte
	binary.LittleEndian.PutUint64(b[0:], s.Chain)
	binary.LittleEndian.PutUint64(b[8:], checksum)
	s.Chain = xxhash.Sum64(b[:])
	s.Offset += size
}

// header is the first block of a segment, up to its checksum: its fields are those of the file, in
// their order.
type header struct {
	Magic    [8]byte
	Version  uint32
	Block    uint32 // blockSize
	Store    [16]byte
	Number   uint64
	Previous uint64 // 0: none
	Sealed   seal   // of the previous segment
	Size     int64  // of this file, at least
	Reserved uint64
}

// encode fills the first block of a segment and returns the segment's seed.
func (h *header) encode(block []byte) uint64 {
	copy(h.Magic[:], magic)
	h.Block = blockSize
	clear(block[:blockSize])
	_, _ = binary.Encode(block, binary.LittleEndian, h) // fails only for a shorter block
	seed := xxhash.Sum64(block[:88])
	binary.LittleEndian.PutUint64(block[88:], seed)
	return seed
}

// bad is why bytes that were read are not what the format says.
type bad string

func (b bad) Error() string { return string(b) }

// decodeHeader reads a header and the segment's seed. The error is bad or, for a later version,
// matches errNewerFormat.
func decodeHeader(b []byte) (h header, seed uint64, err error) {
	switch {
	case len(b) < headerSize:
		return h, 0, bad("the file is shorter than a segment header")
	case string(b[:8]) != magic:
		return h, 0, bad("the segment header does not start with the magic number")
	}
	if seed = binary.LittleEndian.Uint64(b[88:]); xxhash.Sum64(b[:88]) != seed {
		return h, 0, bad("the checksum of the segment header does not match")
	}
	_, _ = binary.Decode(b, binary.LittleEndian, &h) // fails only for fewer bytes
	switch {
	case h.Version > formatVersion:
		err = fmt.Errorf("%w %d, this program knows up to %d", errNewerFormat, h.Version, formatVersion)
	case h.Version == 0:
		err = bad("the format version is 0")
	case h.Block != blockSize:
		err = bad("the block size is not 4096")
	case h.Reserved != 0:
		err = bad("reserved bytes of the segment header are not zero")
	case h.Size < blockSize:
		err = bad("the segment header states an impossible file size")
	case h.Previous == 0 && h.Sealed != seal{}:
		err = bad("the segment header seals a segment that it does not name")
	case h.Previous != 0 && (h.Sealed.Offset < blockSize || h.Sealed.Offset%blockSize != 0):
		err = bad("the segment header seals its predecessor at an impossible offset")
	}
	if err != nil {
		return header{}, 0, err
	}
	return h, seed, nil
}

// frame is one decoded frame; the payload aliases the reader's buffer.
type frame struct {
	kind     frameType
	stream   uint32
	position uint64
	durable  int64
	payload  []byte
	size     int64 // in the segment
	checksum uint64
}

// paddedSize is the size of a frame with n bytes of payload.
func paddedSize(n int) int { return frameHeaderSize + (n+7)&^7 }

// recordSize is the most that a record of n bytes takes, including the zeros that end the bundle
// before it.
func recordSize(n int) int64 {
	if n <= maxBundled {
		n += entryHeader
	}
	frames := (n + maxPayload - 1) / maxPayload // maxPayload is a multiple of 8
	return 7 + int64((n+7)&^7+frames*frameHeaderSize)
}

// putFrameHeader fills in the header of the frame b and returns the checksum. The payload of n
// bytes and the zeros behind it are already in place.
func putFrameHeader(b []byte, n int, f frame, seed uint64, offset int64) uint64 {
	binary.LittleEndian.PutUint64(b[0:], seed^uint64(offset))
	binary.LittleEndian.PutUint32(b[8:], uint32(n)|uint32(f.kind)<<24)
	binary.LittleEndian.PutUint32(b[12:], f.stream)
	binary.LittleEndian.PutUint64(b[16:], f.position)
	binary.LittleEndian.PutUint64(b[24:], uint64(f.durable))
	sum := xxhash.Sum64(b)
	binary.LittleEndian.PutUint64(b[0:], sum)
	return sum
}

// frameSize reads the length of a frame from its header; the error is bad if this cannot be one.
func frameSize(head []byte) (int, error) {
	word := binary.LittleEndian.Uint32(head[8:])
	n, kind := int(word&0xffffff), frameType(word>>24)
	most := maxPayload
	if kind == frameCompressed {
		most = maxCompressed
	}
	if kind < frameFull || kind > frameCompressed || n > most {
		return 0, bad("there is no frame header")
	}
	return paddedSize(n), nil
}

// decodeFrame decodes the frame b, which is as long as frameSize said; the error is bad if its
// checksum does not match. It uses the checksum field of b as scratch, and restores it.
func decodeFrame(b []byte, seed uint64, offset int64) (frame, error) {
	checksum := binary.LittleEndian.Uint64(b)
	binary.LittleEndian.PutUint64(b, seed^uint64(offset))
	sum := xxhash.Sum64(b)
	binary.LittleEndian.PutUint64(b, checksum)
	if sum != checksum {
		return frame{}, bad("the checksum of the frame does not match")
	}
	word := binary.LittleEndian.Uint32(b[8:])
	f := frame{
		kind:     frameType(word >> 24),
		stream:   binary.LittleEndian.Uint32(b[12:]),
		position: binary.LittleEndian.Uint64(b[16:]),
		durable:  int64(binary.LittleEndian.Uint64(b[24:])),
		payload:  b[frameHeaderSize : frameHeaderSize+int(word&0xffffff)],
		size:     int64(len(b)), checksum: checksum,
	}
	if f.kind == frameCompressed {
		f.size = int64(f.position)
	}
	return f, nil
}
