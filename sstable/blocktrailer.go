package sstable

// How a block lies in the file:
//
//	stored bytes   the raw block, or its compressed form (below)
//	type           1 byte: 0 raw, 1 S2, 2 zstd
//	checksum       8 bytes little endian
//
//	compressed form = raw length (4 bytes little endian), compressed bytes
//
// The checksum is xxhash64 over: stored bytes, type, unique id of the file (16 bytes),
// offset of the block in the file (8 bytes little endian). Id and offset are not stored
// here. They bind the block to its place: a block that was swapped, misdirected or left
// over from another file fails as surely as a damaged one. The id is the one in the
// footer, not the file's number, because files move between stores.

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sync"

	"github.com/cespare/xxhash/v2"
	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"

	"github.com/flagstone-db/flagstone/row"
)

// Compression says how blocks are compressed. The numbers are the block types of the format.
type Compression uint8

const (
	CompressNone Compression = 0
	CompressS2   Compression = 1 // fast
	CompressZstd Compression = 2 // dense
)

// String names the compression.
func (c Compression) String() string {
	if c <= CompressZstd {
		return [...]string{"none", "s2", "zstd"}[c]
	}
	return fmt.Sprintf("compression(%d)", uint8(c))
}

const (
	trailerSize   = 1 + 8
	rawLengthSize = 4
	// maxBlockTrailers is the most that the stored parts of a data block take beside
	// their raw bytes. Parts that compression does not shrink are stored raw.
	maxBlockTrailers = (1+maxSegments)*trailerSize + headLengthSize

	// MaxBlockSize bounds WriterOptions.BlockSize.
	MaxBlockSize = 1 << 20
	// maxRawBlock bounds the raw length of a block: the largest value, or a block of
	// whole rows, with names and directory.
	maxRawBlock = row.MaxValueBytes + 4*MaxBlockSize
	// maxRawSection bounds the raw length of the filter, the index and the properties.
	maxRawSection = 256 << 20
)

// blockChecksum computes the checksum of a block. stored ends with the type byte.
func blockChecksum(stored []byte, id *[16]byte, offset int64) uint64 {
	var place [16 + 8]byte
	copy(place[:], id[:])
	binary.LittleEndian.PutUint64(place[16:], uint64(offset))
	var d xxhash.Digest
	d.Reset()
	_, _ = d.Write(stored)
	_, _ = d.Write(place[:])
	return d.Sum64()
}

// compressor turns raw blocks into stored blocks. Each writer has its own.
type compressor struct {
	kind Compression
	zstd *zstd.Encoder
}

// appendStored appends block and trailer to dst. If compression does not save an eighth,
// the block is stored raw, so that readers need not decompress it for so little.
func (c *compressor) appendStored(dst, raw []byte, id *[16]byte, offset int64) []byte {
	from := len(dst)
	kind := c.kind
	switch kind {
	case CompressS2:
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(raw)))
		body := len(dst)
		dst = slices.Grow(dst, s2.MaxEncodedLen(len(raw)))
		dst = dst[:body+len(s2.Encode(dst[body:cap(dst)], raw))]
	case CompressZstd:
		if c.zstd == nil {
			c.zstd, _ = zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
				zstd.WithEncoderCRC(false), zstd.WithEncoderLevel(zstd.SpeedFastest)) // fails only for wrong options
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(len(raw)))
		dst = c.zstd.EncodeAll(raw, dst)
	}
	if kind == CompressNone || len(dst)-from > len(raw)-len(raw)/8 {
		dst, kind = append(dst[:from], raw...), CompressNone
	}
	return appendTrailer(dst, len(dst)-from, kind, id, offset)
}

// appendTrailer completes a stored block. Its n stored bytes are the end of dst.
func appendTrailer(dst []byte, n int, kind Compression, id *[16]byte, offset int64) []byte {
	dst = append(dst, byte(kind))
	return binary.LittleEndian.AppendUint64(dst, blockChecksum(dst[len(dst)-n-1:], id, offset))
}

// storedBlock is a stored block without its trailer.
type storedBlock struct {
	kind Compression
	body []byte
	raw  int // its length before compression
}

// checkStored verifies a stored block and splits it. bad is what is wrong, or "".
func checkStored(stored []byte, id *[16]byte, offset int64, limit int) (s storedBlock, bad string) {
	n := len(stored) - trailerSize
	if n >= 0 && blockChecksum(stored[:n+1], id, offset) != binary.LittleEndian.Uint64(stored[n+1:]) {
		return s, "block checksum does not match"
	}
	return splitStored(stored, limit)
}

// splitStored splits a stored block without verifying it. A compressed block declares at most
// limit raw bytes, so no caller allocates more than that for it.
func splitStored(stored []byte, limit int) (s storedBlock, bad string) {
	n := len(stored) - trailerSize
	if n < 0 {
		return s, "block shorter than its trailer"
	}
	s = storedBlock{kind: Compression(stored[n]), body: stored[:n], raw: n}
	switch {
	case s.kind == CompressNone:
		return s, ""
	case s.kind > CompressZstd:
		return s, fmt.Sprintf("unknown block type %d", s.kind)
	case n < rawLengthSize:
		return s, "compressed block cut short"
	}
	declared := binary.LittleEndian.Uint32(stored)
	if uint64(declared) > uint64(limit) {
		return s, "compressed block declares more than the largest block"
	}
	s.raw = int(declared)
	return s, ""
}

// expand fills dst from a stored block. It returns what is wrong, or "". REQUIRES: dst has the
// raw length.
func (s *scratch) expand(dst []byte, b storedBlock) (bad string) {
	switch b.kind {
	case CompressNone:
		copy(dst, b.body)
	case CompressS2:
		return decodeS2(dst, b.body)
	case CompressZstd:
		if s.zstd == nil {
			s.zstd, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true),
				zstd.WithDecoderMaxMemory(maxRawSection), zstd.WithDecodeAllCapLimit(true)) // fails only for wrong options
		}
		out, err := s.zstd.DecodeAll(b.body[rawLengthSize:], dst[:0:len(dst)])
		if err != nil || len(out) != len(dst) {
			return "zstd block does not decompress to its declared length"
		}
	}
	return ""
}

// decodeSlack is how much memory should follow a segment. The S2 decoder copies a match
// that overlaps itself byte by byte if it ends less than so much before the end of the
// memory: a segment of a kilobyte, with a last value that ends in a run of half of it,
// took 1.1 us instead of 0.1.
const (
	decodeSlack = len(slack)
	slack       = "beyond the end.\n"
)

// decodeS2 is expand for an S2 block. If dst and body have room after them, it extends
// the block for a moment by a literal, slack, so that the last match ends before the end
// of the memory. If slack does not come out at the end, the block is damaged. REQUIRES: no
// other goroutine uses the memory after dst and body.
func decodeS2(dst, body []byte) (bad string) {
	const tag = byte(decodeSlack-1) << 2 // of the literal
	n, end := len(dst), len(body)
	declared, header := binary.Uvarint(body[rawLengthSize:])
	if header <= 0 || declared != uint64(n) {
		return "S2 block does not have its declared length"
	}
	if cap(dst)-n < decodeSlack || cap(body)-end < 1+decodeSlack {
		if _, err := s2.Decode(dst, body[rawLengthSize:]); err != nil {
			return "S2 block does not decompress"
		}
		return ""
	}
	dst, body = dst[:n+decodeSlack], body[:end+1+decodeSlack]
	var length [binary.MaxVarintLen64]byte
	size := binary.PutUvarint(length[:], uint64(len(dst)))
	front := rawLengthSize + header - size // the new length takes at most the bytes of the raw length
	var before, behind [1 + decodeSlack]byte
	copy(before[:size], body[front:])
	copy(behind[:], body[end:])
	copy(body[front:], length[:size])
	body[end] = tag
	copy(body[end+1:], slack)
	_, err := s2.Decode(dst, body[front:])
	copy(body[front:], before[:size])
	copy(body[end:], behind[:])
	if err != nil || string(dst[n:]) != slack {
		return "S2 block does not decompress"
	}
	return ""
}

// scratch is memory for reading a compressed block: the stored bytes, and a zstd decoder,
// whose tables cost far more to make than a block costs to decode.
type scratch struct {
	stored []byte
	zstd   *zstd.Decoder
}

// scratches is shared state of the package. It holds only working memory, without content
// between uses. A pool per reader would keep a decoder alive for each open file.
var scratches = sync.Pool{New: func() any { return new(scratch) }}

func takeScratch() *scratch { return scratches.Get().(*scratch) }

func (s *scratch) give() {
	if cap(s.stored) > MaxBlockSize {
		s.stored = nil // do not keep the memory of a rare large value
	}
	scratches.Put(s)
}
