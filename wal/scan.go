package wal

// Reading the frames of one segment, and judging a bad frame.

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/vfs"
)

// readChunk is how much of a segment is read at once. It holds a whole frame, wherever in a block
// the frame begins.
const readChunk = 1 << 20

// segmentReader reads frames of an open segment by offset.
type segmentReader struct {
	file   vfs.File
	name   string // path
	size   int64
	header header
	seed   uint64
	// window is the part of the file in memory, beginning at windowOff.
	window    []byte
	windowOff int64
	buf       []byte // backs window
}

// openSegment opens a segment for reading and checks its header. It reads the last segment past
// the page cache where possible: the cache may hold pages that a sync failed to write and that
// count as clean. Older segments were synced in full before their successors began.
func openSegment(opts *Options, number uint64, last bool) (*segmentReader, error) {
	name := filepath.Join(opts.Dir, segmentName(number))
	f, err := opts.FS.Open(name, vfs.OpenOptions{Direct: last, Sequential: true})
	if err != nil {
		return nil, err
	}
	r := &segmentReader{file: f, name: name}
	if err := r.init(opts.StoreID, number); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return r, nil
}

func (r *segmentReader) init(store [16]byte, number uint64) error {
	var err error
	if r.size, err = r.file.Size(); err != nil {
		return err
	}
	// Only a whole header can be judged; decodeHeader rejects that of a shorter file.
	block, err := r.bytes(0, int(min(headerSize, r.size)))
	if err != nil {
		return err
	}
	h, seed, reason, err := decodeHeader(block)
	switch {
	case err != nil:
		return fmt.Errorf("%s: %w", r.name, err)
	case reason != "":
		return r.corrupt(0, "%s", reason)
	case h.store != store:
		return fmt.Errorf("%w: %s has store id %x, expected %x", errWrongStore, r.name, h.store, store)
	case h.number != number:
		return r.corrupt(32, "the header says segment %d", h.number)
	}
	r.header, r.seed = h, seed
	return nil
}

func (r *segmentReader) corrupt(offset int64, format string, args ...any) error {
	return &CorruptError{File: r.name, Offset: offset, Reason: fmt.Sprintf(format, args...)}
}

// bytes returns n bytes of the file at off, valid until the next call, or nil if the file is
// shorter. n is at most maxFrameSize.
func (r *segmentReader) bytes(off int64, n int) ([]byte, error) {
	if off > r.size || int64(n) > r.size-off {
		return nil, nil
	}
	if at := off - r.windowOff; at >= 0 && at+int64(n) <= int64(len(r.window)) {
		return r.window[at : at+int64(n)], nil
	}
	start := off &^ (blockSize - 1) // whole blocks, as direct I/O demands
	skip := int(off - start)
	want := int(min(readChunk, nextBlock(r.size-1)-start))
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

// frameAt reads the frame at off. A reason that is not empty says why there is no good frame; err
// is a failed read.
func (r *segmentReader) frameAt(off int64) (f frame, reason string, err error) {
	head, err := r.bytes(off, frameHeaderSize)
	if err != nil {
		return f, "", err
	}
	if head == nil {
		return f, "the file ends", nil
	}
	size, reason := frameSize(head)
	if reason != "" {
		return f, reason, nil
	}
	b, err := r.bytes(off, size)
	if err != nil {
		return f, "", err
	}
	if b == nil {
		return f, "the file ends inside a frame", nil
	}
	f, reason = decodeFrame(b, r.seed, off)
	return f, reason, nil
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
	fn        func(Record) error
}

func newScanner(r *segmentReader, from seal, positions map[uint32]uint64, fn func(Record) error) *scanner {
	return &scanner{r: r, at: from, end: from, durable: from, positions: positions, fn: fn}
}

// scanSealed reads up to limit, and fails unless the segment ends exactly there.
func (s *scanner) scanSealed(limit seal) error {
	for s.at.offset < limit.offset && !s.closed {
		f, reason, err := s.r.frameAt(s.at.offset)
		if err != nil {
			return err
		}
		if reason != "" {
			return s.r.corrupt(s.at.offset, "%s, but the segment ends at %d", reason, limit.offset)
		}
		if err := s.take(f); err != nil {
			return err
		}
	}
	if s.inRecord || s.at != limit {
		return s.r.corrupt(s.at.offset,
			"found %d records and chain %016x, expected %d and %016x at offset %d",
			s.at.records, s.at.chain, limit.records, limit.chain, limit.offset)
	}
	return nil
}

// scanOpen reads the last segment, up to its trailer (then the reason is empty) or up to the torn
// tail.
func (s *scanner) scanOpen() (reason string, err error) {
	for !s.closed {
		f, reason, err := s.r.frameAt(s.at.offset)
		if err != nil {
			return "", err
		}
		if reason != "" {
			return reason, s.judge(reason)
		}
		if err := s.take(f); err != nil {
			return "", err
		}
	}
	return "", nil
}

// judge decides whether the bad frame at s.at is a torn tail or damage. It is damage if a good
// frame behind it says that the place had been durable. Groups begin at blocks, so judge looks
// for good frames there.
func (s *scanner) judge(reason string) error {
	bad := s.at.offset
	for off := nextBlock(bad); off < s.r.size; off = nextBlock(off) {
		for {
			f, why, err := s.r.frameAt(off)
			if err != nil {
				return err
			}
			if why != "" {
				break
			}
			if f.durable > bad {
				return s.r.corrupt(bad, "%s, but the frame at %d says that %d bytes were durable",
					reason, off, f.durable)
			}
			off += f.size
		}
	}
	return nil
}

// nextBlock returns the first block boundary after off.
func nextBlock(off int64) int64 { return off&^(blockSize-1) + blockSize }

// take accepts a frame with a good checksum: any other error in it is damage, not a torn tail.
func (s *scanner) take(f frame) error {
	off := s.at.offset
	if off%blockSize == 0 && !s.inRecord {
		s.marks = append(s.marks, s.at)
	}
	if err := s.takeDurable(f.durable); err != nil {
		return err
	}
	next := s.at
	next.add(f.size, f.checksum)
	switch f.kind {
	case framePadding:
		if f.stream != 0 || f.position != 0 || next.offset%blockSize != 0 {
			return s.r.corrupt(off, "malformed padding")
		}
	case frameTrailer:
		if err := s.checkTrailer(f); err != nil {
			return err
		}
		s.closed = true
		return nil // the trailer's place is the end
	case frameBundle:
		n, err := s.takeBundle(f)
		if err != nil {
			return err
		}
		next.records += n
	default:
		ended, err := s.takeFragment(f)
		if err != nil {
			return err
		}
		if ended {
			next.records++
		}
	}
	s.at = next
	if !s.inRecord {
		s.end = next
	}
	return nil
}

// takeDurable records the durable offset that the frame at s.at states.
func (s *scanner) takeDurable(durable int64) error {
	if durable < blockSize || durable > s.at.offset || durable%blockSize != 0 {
		return s.r.corrupt(s.at.offset, "impossible durable offset %d", durable)
	}
	if durable <= s.durable.offset {
		return nil
	}
	for len(s.marks) > 0 && s.marks[0].offset < durable {
		s.marks = s.marks[1:]
	}
	if len(s.marks) == 0 || s.marks[0].offset != durable {
		return s.r.corrupt(s.at.offset, "durable offset %d is not where a group begins", durable)
	}
	s.durable = s.marks[0]
	return nil
}

func (s *scanner) checkTrailer(f frame) error {
	off := s.at.offset
	if f.stream != 0 || f.position != 0 || len(f.payload) != trailerPayload || f.durable != off || s.inRecord {
		return s.r.corrupt(off, "malformed trailer")
	}
	records := binary.LittleEndian.Uint64(f.payload)
	chain := binary.LittleEndian.Uint64(f.payload[8:])
	if records != s.at.records || chain != s.at.chain {
		return s.r.corrupt(off, "found %d records and chain %016x, the trailer says %d and %016x",
			s.at.records, s.at.chain, records, chain)
	}
	return nil
}

// takeBundle accepts a bundle, delivers its records, and returns their number.
func (s *scanner) takeBundle(f frame) (n uint64, err error) {
	if s.r.header.version <= plainVersion {
		return 0, s.r.corrupt(s.at.offset, "a bundle in a segment of format version %d", s.r.header.version)
	}
	rest, record := f.payload, frame{kind: frameFull, stream: f.stream, position: f.position}
	for len(rest) > 0 && rest[0] != 0 {
		step, k := binary.Uvarint(rest)
		if k <= 0 || step == 0 || n == 0 && step != 1 || record.position+(step-1) < record.position {
			return 0, s.r.corrupt(s.at.offset, "malformed position of record %d of a bundle", n)
		}
		size, l := binary.Uvarint(rest[k:])
		if l <= 0 || size > uint64(len(rest)-k-l) {
			return 0, s.r.corrupt(s.at.offset, "malformed length of record %d of a bundle", n)
		}
		record.position += step - 1
		record.payload, rest = rest[k+l:k+l+int(size)], rest[k+l+int(size):]
		if _, err := s.takeFragment(record); err != nil {
			return 0, err
		}
		n++
	}
	if n == 0 || len(bytes.TrimLeft(rest, "\x00")) > 0 {
		return 0, s.r.corrupt(s.at.offset, "malformed end of a bundle of %d records", n)
	}
	return n, nil
}

// takeFragment accepts a frame of a record, and delivers the record at its last frame.
func (s *scanner) takeFragment(f frame) (ended bool, err error) {
	off := s.at.offset
	if begins := f.kind == frameFull || f.kind == frameFirst; begins {
		if s.inRecord {
			return false, s.r.corrupt(off, "a record begins inside another one")
		}
		if last, ok := s.positions[f.stream]; ok && f.position <= last {
			return false, s.r.corrupt(off, "position %d of stream %d follows position %d", f.position, f.stream, last)
		}
		s.record = Record{Stream: f.stream, Position: f.position, Segment: s.r.header.number, Offset: off, Payload: f.payload}
	} else if !s.inRecord || f.stream != s.record.Stream || f.position != s.record.Position {
		return false, s.r.corrupt(off, "a fragment does not belong to the record before it")
	}
	if f.kind != frameFull {
		if f.kind == frameFirst {
			s.gathered = s.gathered[:0]
		}
		if len(f.payload) > MaxRecordSize-len(s.gathered) {
			return false, s.r.corrupt(off, "a record exceeds %d bytes", MaxRecordSize)
		}
		s.gathered = append(s.gathered, f.payload...)
		s.record.Payload = s.gathered
	}
	s.inRecord = f.kind == frameFirst || f.kind == frameMiddle
	if s.inRecord {
		return false, nil
	}
	s.positions[f.stream] = f.position
	return true, s.fn(s.record)
}
