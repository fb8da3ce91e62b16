package wal

// Compressed groups. A group is compressed as it is written, and becomes one
// compressed frame at the place of the group. The rest of the place keeps what it held before: the device has less to
// write, and the segment is as long as ever. Offsets, durable offsets and the chain stay those of the frames
// inside. A reader decompresses them and takes them as if they had stood in the file.

import (
	"encoding/binary"
	"slices"

	"github.com/klauspost/compress/s2"
)

const (
	// compressPart is how much is compressed at once. The compressor does not give its processor back
	// before, which took 40 us for text beside random bytes (28 November, two processors).
	compressPart = 64 << 10
	// maxCompressed bounds the groups that are compressed, and so what a reader must hold. Only the group of a
	// single record can be larger than that.
	maxCompressed = maxGroup
	// partHeader is the length of the compressed part behind it.
	partHeader = 4
)

// Compression says which segments of a log are compressed: which have groups that are, where that saves blocks.
type Compression int

const (
	// CompressSlow tries it where callers wait for the device, and goes on while that is faster: see slow.go. A log
	// with Options.Sync stays plain.
	CompressSlow Compression = iota
	CompressAlways
	CompressNever
)

// compressNext reports whether the segment that begins behind one of some bytes is compressed. Callers hold mu.
func (w *Writer) compressNext(bytes int64) bool {
	if w.opts.Compress == CompressSlow && !w.opts.Sync {
		return w.slow.next(w.opts.Elapsed(), bytes)
	}
	return w.opts.Compress == CompressAlways
}

// compressible reports whether a group of n bytes may be compressed: one block cannot become less.
func (w *Writer) compressible(n int) bool {
	return w.cur.compress && n > blockSize && n <= maxCompressed
}

// compress returns the blocks that are written for a group: one compressed frame in g.compressed, or the group as it is
// if it has no such buffer, or would not take fewer blocks.
func (w *Writer) compress(g *group) []byte {
	if g.compressed == nil {
		return g.buf
	}
	parts := (len(g.buf) + compressPart - 1) / compressPart
	most := frameHeaderSize + parts*(partHeader+s2.MaxEncodedLen(min(len(g.buf), compressPart))) + blockSize
	if cap(g.compressed) < most {
		size := minBuffer
		for size < most {
			size *= 2 // other sizes of the pool are not aligned for direct I/O
		}
		w.freeBuffer(g.compressed)
		g.compressed = w.newBuffer(size)
	}
	out := g.compressed[:frameHeaderSize]
	for part := range slices.Chunk(g.buf, compressPart) {
		n := len(s2.Encode(out[len(out)+partHeader:cap(out)], part))
		out = binary.LittleEndian.AppendUint32(out, uint32(n))
		out = out[:len(out)+n]
	}
	n := len(out) - frameHeaderSize
	frameEnd, end := paddedSize(n), int(nextBlock(int64(len(out))-1))
	if end >= len(g.buf) {
		return g.buf
	}
	clear(out[len(out):end])
	f := frame{kind: frameCompressed, position: uint64(len(g.buf)), durable: g.durable}
	putFrameHeader(out[:frameEnd], n, f, g.seed, g.at)
	return out[:end]
}

// decompress returns the frames of a compressed group, in a buffer that is used again. The error is bad.
func decompress(buf []byte, f frame) ([]byte, error) {
	rest := f.payload
	for buf = buf[:0]; len(rest) > 0; {
		if len(rest) < partHeader {
			return nil, bad("a part of a compressed group has no length")
		}
		n := binary.LittleEndian.Uint32(rest)
		if rest = rest[partHeader:]; int64(n) > int64(len(rest)) {
			return nil, bad("a part of a compressed group is longer than the frame")
		}
		size, err := s2.DecodedLen(rest[:n])
		if err != nil || int64(size) > f.size-int64(len(buf)) {
			return nil, bad("a part of a compressed group has an impossible length")
		}
		buf = slices.Grow(buf, size)
		if _, err := s2.Decode(buf[len(buf):len(buf)+size], rest[:n]); err != nil {
			return nil, bad("a part of a compressed group cannot be decompressed")
		}
		buf, rest = buf[:len(buf)+size], rest[n:]
	}
	if int64(len(buf)) != f.size {
		return nil, bad("a compressed group is shorter than it says")
	}
	return buf, nil
}

// checkGroup returns what is bad about the header of a compressed frame of some size at off. It is asked before the frame is
// read, which may be large.
func (r *segmentReader) checkGroup(head []byte, size int, off int64) error {
	group := binary.LittleEndian.Uint64(head[16:])
	switch {
	case r.header.Version < compressedVersion:
		return bad("there is a compressed group, which this format version does not have")
	case off%blockSize != 0 || group%blockSize != 0 || group > maxCompressed || group < uint64(size):
		return bad("the size or place of a compressed group is impossible")
	}
	return nil
}

// takeCompressed calls take for each frame of a compressed group. A group is durable as a whole: no offset inside
// counts as one at which a group may begin, and no record spans it.
func (s *scanner) takeCompressed(f frame, take func(frame) error) (err error) {
	if f.stream != 0 || f.durable < blockSize || f.durable > s.at.Offset || f.durable%blockSize != 0 || s.inRecord {
		return s.corrupt("malformed header of a compressed group, or a record that is not whole before it")
	}
	if s.inner, err = decompress(s.inner, f); err != nil {
		return s.corrupt("%v", err)
	}
	group := s.at.Offset
	s.group = group
	defer func() { s.group = 0 }()
	for at := 0; at < len(s.inner); {
		inner, err := innerFrame(s.inner[at:], s.r.seed, group+int64(at))
		if err != nil {
			return s.corrupt("%v at %d of a compressed group", err, at)
		}
		if err := take(inner); err != nil {
			return err
		}
		at += int(inner.size)
	}
	if s.inRecord {
		return s.corrupt("a record is not whole at the end of a compressed group")
	}
	return nil
}

// innerFrame decodes the first frame of b, which stood in a compressed group. The error is bad.
func innerFrame(b []byte, seed uint64, offset int64) (frame, error) {
	if len(b) < frameHeaderSize {
		return frame{}, bad("there is no whole frame")
	}
	size, err := frameSize(b)
	if err != nil {
		return frame{}, err
	}
	if size > len(b) {
		return frame{}, bad("there is no whole frame")
	}
	f, err := decodeFrame(b[:size], seed, offset)
	if err == nil && (f.kind == frameCompressed || f.kind == frameTrailer) {
		return frame{}, bad("there is a frame of a type that is never compressed")
	}
	return f, err
}
