package wal

// Reading the frames of one segment, and judging a bad frame.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// readChunk is how much of a segment is read at once, or the whole of a compressed frame that is larger. It holds
// any other frame, wherever in a block that begins.
const readChunk = 1 << 20

// segmentReader reads frames of an open segment by offset.
type segmentReader struct {
	file   vfs.File
	name   string // path
	size   int64
	header header
	seed   uint64
	unfit  error // of decodeHeader; header is zero then
	// window is the part of the file in memory, beginning at windowOff.
	window    []byte
	windowOff int64
	buf       []byte // backs window
	// narrow is where reads of whole chunks begin: below it a read takes only the blocks it needs.
	narrow int64
}

// openSegment opens a segment for reading, past the page cache if direct is set and that is possible, and
// checks its header.
func openSegment(opts *Options, number uint64, direct bool) (*segmentReader, error) {
	return openSegmentFor(opts, number, vfs.OpenOptions{Direct: direct, Sequential: true})
}

// openSegmentFor is openSegment for another way of reading.
func openSegmentFor(opts *Options, number uint64, how vfs.OpenOptions) (*segmentReader, error) {
	r, err := openFile(opts, segmentName(number), how)
	if err != nil {
		return nil, err
	}
	switch why, isBad := r.unfit.(bad); {
	case isBad:
		err = r.corrupt(0, "%s", why)
	case r.unfit != nil:
		err = fmt.Errorf("%s: %w", r.name, r.unfit)
	case r.header.Store != opts.StoreID:
		err = fmt.Errorf("%w: %s has store id %x, expected %x", errWrongStore, r.name, r.header.Store, opts.StoreID)
	case r.header.Number != number:
		err = r.corrupt(32, "the header says segment %d", r.header.Number)
	}
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	return r, nil
}

// openFile opens a segment or a spare and reads its header, whatever that says.
func openFile(opts *Options, base string, how vfs.OpenOptions) (r *segmentReader, err error) {
	r = &segmentReader{name: filepath.Join(opts.Dir, base)}
	if r.file, err = opts.FS.Open(r.name, how); err != nil {
		return nil, err
	}
	var block []byte
	if r.size, err = r.file.Size(); err == nil {
		// Only a whole header can be judged; decodeHeader rejects that of a shorter file.
		block, err = r.bytes(0, int(min(headerSize, r.size)))
	}
	if err != nil {
		return nil, errors.Join(err, r.file.Close())
	}
	r.header, r.seed, r.unfit = decodeHeader(block)
	return r, nil
}

func (r *segmentReader) corrupt(offset int64, format string, args ...any) error {
	return corrupt(r.name, offset, fmt.Sprintf(format, args...))
}

// bytes returns n bytes of the file at off, valid until the next call. n is at most the size of the largest frame.
// The error is bad if the file is shorter.
func (r *segmentReader) bytes(off int64, n int) ([]byte, error) {
	if int64(n) > r.size-off {
		return nil, bad("the file ends where a frame should be")
	}
	if at := off - r.windowOff; at >= 0 && at+int64(n) <= int64(len(r.window)) {
		return r.window[at : at+int64(n)], nil
	}
	start := off &^ (blockSize - 1) // whole blocks, as direct I/O demands
	skip := int(off - start)
	want := int(nextBlock(off+int64(n)-1) - start)
	if off > 0 && off >= r.narrow { // at 0 a spare is fit for use whatever can be read behind its header
		want = max(want, int(min(readChunk, nextBlock(r.size-1)-start)))
	}
	if len(r.buf) < want {
		r.buf = vfs.AlignedBuffer(want)
	}
	r.window = nil
	got, err := r.file.ReadAt(r.buf[:want], start)
	if err != nil && err != io.EOF {
		return nil, err
	}
	if got < skip+n {
		return nil, r.corrupt(start+int64(got), "the file became shorter while it was read")
	}
	r.window, r.windowOff = r.buf[:got], start
	return r.window[skip : skip+n], nil
}

// frameAt reads the frame at off. The error is bad if there is no good frame; any other one is of
// a failed read.
func (r *segmentReader) frameAt(off int64) (frame, error) {
	head, err := r.bytes(off, frameHeaderSize)
	if err != nil {
		return frame{}, err
	}
	size, err := frameSize(head)
	if err == nil && frameType(head[11]) == frameCompressed {
		err = r.checkGroup(head, size, off)
	}
	if err != nil {
		return frame{}, err
	}
	b, err := r.bytes(off, size)
	if err != nil {
		return frame{}, err
	}
	return decodeFrame(b, r.seed, off)
}

// scanner walks the frames of one segment.
type scanner struct {
	r  *segmentReader
	at seal // before the next frame
	// end is the last point that no record spans.
	end seal
	// durable is the largest durable offset that a frame stated, as a seal; marks are the later
	// points at which a group may have begun, ascending.
	durable seal
	marks   []seal
	closed  bool // a trailer was read

	positions map[uint32]uint64 // last of each stream, over all segments
	inRecord  bool
	record    Record // the record whose fragments are being gathered
	gathered  []byte // their payloads
	inner     []byte // the frames of the last compressed group
	group     int64  // where the compressed group around the frame begins; 0 if there is none
	fn        func(Record) error
}

func newScanner(r *segmentReader, from seal, positions map[uint32]uint64, fn func(Record) error) *scanner {
	return &scanner{r: r, at: from, end: from, durable: from, positions: positions, fn: fn}
}

// corrupt is the error of damage in the frame at s.at.
func (s *scanner) corrupt(format string, args ...any) error {
	return s.r.corrupt(s.at.Offset, format, args...)
}

// scan takes frames up to limit or the trailer. The error is bad if there is no good frame.
func (s *scanner) scan(limit int64) error {
	for s.at.Offset < limit && !s.closed {
		f, err := s.r.frameAt(s.at.Offset)
		switch {
		case err != nil:
		case f.kind == frameCompressed:
			err = s.takeCompressed(f, s.take)
		default:
			err = s.take(f)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// scanSealed reads up to limit, and fails unless the segment ends exactly there.
func (s *scanner) scanSealed(limit seal) error {
	err := s.scan(limit.Offset)
	if why, isBad := err.(bad); isBad {
		return s.corrupt("%s, but the segment ends at %d", why, limit.Offset)
	}
	if err == nil && (s.inRecord || s.at != limit) {
		return s.corrupt("found %d records and chain %016x, expected %d and %016x at offset %d",
			s.at.Records, s.at.Chain, limit.Records, limit.Chain, limit.Offset)
	}
	return err
}

// scanLazy reads up to limit, where the segment ends, or up to the first frame that a power cut took: it returns what is bad
// there.
func (s *scanner) scanLazy(limit seal) (torn bad, err error) {
	if torn, err = s.untilTorn(limit.Offset); torn == "" && err == nil {
		err = s.scanSealed(limit)
	}
	return torn, err
}

// scanOpen reads the last segment, up to its trailer or up to the torn tail, of which it returns
// what is bad there.
func (s *scanner) scanOpen() (torn bad, err error) { return s.untilTorn(math.MaxInt64) }

// untilTorn reads up to limit, the trailer, or the torn tail.
func (s *scanner) untilTorn(limit int64) (torn bad, err error) {
	err = s.scan(limit)
	if why, isBad := err.(bad); isBad {
		return why, s.judge(why)
	}
	return "", err
}

// judge decides whether the bad frame at s.at is a torn tail or damage. It is damage if a good
// frame behind it says that the place had been durable. Groups begin at blocks, so judge looks
// for good frames there.
func (s *scanner) judge(why bad) error {
	for off := nextBlock(s.at.Offset); off < s.r.size; {
		f, err := s.r.frameAt(off)
		if _, isBad := err.(bad); isBad {
			off = nextBlock(off)
			continue
		}
		if err != nil {
			return err
		}
		if f.durable > s.at.Offset {
			return s.corrupt("%s, but the frame at %d says that %d bytes were durable", why, off, f.durable)
		}
		off += f.size
	}
	return nil
}

// nextBlock returns the first block boundary after off.
func nextBlock(off int64) int64 { return off&^(blockSize-1) + blockSize }

// take accepts a frame with a good checksum: any other error in it is damage, not a torn tail.
func (s *scanner) take(f frame) error {
	if s.at.Offset%blockSize == 0 && !s.inRecord && (s.group == 0 || s.group == s.at.Offset) {
		s.marks = append(s.marks, s.at)
	}
	if err := s.takeDurable(f.durable); err != nil {
		return err
	}
	next := s.at
	next.add(f.size, f.checksum)
	var records uint64
	var err error
	switch f.kind {
	case framePadding:
		if f.stream != 0 || f.position != 0 || next.Offset%blockSize != 0 {
			err = s.corrupt("malformed padding")
		}
	case frameTrailer:
		s.closed = true
		return s.checkTrailer(f) // the trailer's place is the end
	case frameBundle:
		records, err = s.takeBundle(f)
	default:
		records, err = s.takeFragment(f)
	}
	if err != nil {
		return err
	}
	next.Records += records
	s.at = next
	if !s.inRecord {
		s.end = next
	}
	return nil
}

// takeDurable records the durable offset that the frame at s.at states.
func (s *scanner) takeDurable(durable int64) error {
	if durable < blockSize || durable > s.at.Offset || durable%blockSize != 0 {
		return s.corrupt("impossible durable offset %d", durable)
	}
	if durable <= s.durable.Offset {
		return nil
	}
	for len(s.marks) > 0 && s.marks[0].Offset < durable {
		s.marks = s.marks[1:]
	}
	if len(s.marks) == 0 || s.marks[0].Offset != durable {
		return s.corrupt("durable offset %d is not where a group begins", durable)
	}
	s.durable = s.marks[0]
	return nil
}

func (s *scanner) checkTrailer(f frame) error {
	if f.stream != 0 || f.position != 0 || len(f.payload) != trailerPayload || f.durable != s.at.Offset || s.inRecord {
		return s.corrupt("malformed trailer")
	}
	records := binary.LittleEndian.Uint64(f.payload)
	chain := binary.LittleEndian.Uint64(f.payload[8:])
	if records != s.at.Records || chain != s.at.Chain {
		return s.corrupt("found %d records and chain %016x, the trailer says %d and %016x",
			s.at.Records, s.at.Chain, records, chain)
	}
	return nil
}

// takeBundle accepts a bundle, delivers its records, and returns their number.
func (s *scanner) takeBundle(f frame) (n uint64, err error) {
	if s.r.header.Version <= plainVersion {
		return 0, s.corrupt("a bundle in a segment of format version %d", s.r.header.Version)
	}
	rest, record := f.payload, frame{kind: frameFull, stream: f.stream, position: f.position}
	for ; len(rest) > 0 && rest[0] != 0; n++ {
		step, k := binary.Uvarint(rest)
		if k <= 0 || step == 0 || n == 0 && step != 1 || record.position+(step-1) < record.position {
			return 0, s.corrupt("malformed position of record %d of a bundle", n)
		}
		size, l := binary.Uvarint(rest[k:])
		if l <= 0 || size > uint64(len(rest)-k-l) {
			return 0, s.corrupt("malformed length of record %d of a bundle", n)
		}
		record.position += step - 1
		record.payload, rest = rest[k+l:k+l+int(size)], rest[k+l+int(size):]
		if _, err := s.takeFragment(record); err != nil {
			return 0, err
		}
	}
	if n == 0 || len(bytes.TrimLeft(rest, "\x00")) > 0 {
		return 0, s.corrupt("malformed end of a bundle of %d records", n)
	}
	return n, nil
}

// takeFragment accepts a frame of a record, delivers the record at its last frame, and returns how
// many records ended.
func (s *scanner) takeFragment(f frame) (ended uint64, err error) {
	if f.kind == frameFull || f.kind == frameFirst {
		if s.inRecord {
			return 0, s.corrupt("a record begins inside another one")
		}
		if last, ok := s.positions[f.stream]; ok && f.position <= last {
			return 0, s.corrupt("position %d of stream %d follows position %d", f.position, f.stream, last)
		}
		s.record = Record{Stream: f.stream, Position: f.position, Segment: s.r.header.Number, Offset: s.at.Offset, Payload: f.payload, Compressed: s.group != 0}
		s.gathered = s.gathered[:0]
	} else if !s.inRecord || f.stream != s.record.Stream || f.position != s.record.Position {
		return 0, s.corrupt("a fragment does not belong to the record before it")
	}
	if f.kind != frameFull {
		if len(f.payload) > MaxRecordSize-len(s.gathered) {
			return 0, s.corrupt("a record exceeds %d bytes", MaxRecordSize)
		}
		s.gathered = append(s.gathered, f.payload...)
		s.record.Payload = s.gathered
	}
	s.inRecord = f.kind == frameFirst || f.kind == frameMiddle
	if s.inRecord {
		return 0, nil
	}
	s.positions[f.stream] = f.position
	return 1, s.fn(s.record)
}
