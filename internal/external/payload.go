package external

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/manifest"
)

// The payload of an entry; docs/format-external.md describes it:
//
//	payload  = format kind writer fence body checksum
//	format   = 1 byte, 1
//	kind     = 1 byte
//	writer   = 8 bytes little endian: random, another one whenever a store is opened
//	fence    = uvarint: index of the last command or fence that its writer had applied; 0 in a fence
//	body     = a batch (package row), or the time of a command and an edit or a fragment (package manifest)
//	time     = 8 bytes little endian, in microseconds since the epoch
//	checksum = 8 bytes little endian: xxhash64 of all before it
const (
	payloadFormat = 1
	checksumBytes = 8
	writerBytes   = 8
	timeBytes     = 8
)

// Kind is what an entry does.
type Kind byte

// The kinds of entries. An edit says what is made or changed; see Log.Env.
const (
	Batch  Kind = 1
	Create Kind = 2 // Created: the table, and then its change log if it has a stream
	Alter  Kind = 3 // Altered: one; Created or Ended: the change log, if that changes
	Drop   Kind = 4 // Dropped: one
	Split  Kind = 5 // Replaced: the table, and one new partition with the start of the upper half
	Merge  Kind = 6 // the same with the place where the partitions meet
	Fence  Kind = 7 // nothing
	Serve  Kind = 8 // Services: one, which freezes, unfreezes or detaches a partition
	Ingest Kind = 9 // no edit, but the fragment of an export
)

// ErrEntry says that an entry cannot be applied: it is damaged, or of a version that is not known.
var ErrEntry = errors.New("external: an entry of the log cannot be applied")

// payload is a decoded payload. It shares memory with the encoded one.
type payload struct {
	kind   Kind
	writer uint64
	fence  uint64
	batch  []byte         // of a Batch
	micros int64          // of a command
	edit   *manifest.Edit // of a command

	fragment *manifest.Fragment // of an Ingest, instead of an edit
}

// AppendBatch makes the payload of a batch, which comes in pieces.
func AppendBatch(writer, fence uint64, pieces [][]byte) []byte {
	size := 2 + writerBytes + binary.MaxVarintLen64 + checksumBytes
	for _, b := range pieces {
		size += len(b)
	}
	dst := head(make([]byte, 0, size), Batch, writer, fence)
	for _, b := range pieces {
		dst = append(dst, b...)
	}
	return seal(dst)
}

// AppendCommand makes the payload of a command at a time in microseconds. body is an edit or a fragment.
func AppendCommand(kind Kind, writer, fence uint64, micros int64, body []byte) []byte {
	dst := binary.LittleEndian.AppendUint64(head(nil, kind, writer, fence), uint64(micros))
	return seal(append(dst, body...))
}

func head(dst []byte, kind Kind, writer, fence uint64) []byte {
	dst = binary.LittleEndian.AppendUint64(append(dst, payloadFormat, byte(kind)), writer)
	return binary.AppendUvarint(dst, fence)
}

func seal(b []byte) []byte { return binary.LittleEndian.AppendUint64(b, xxhash.Sum64(b)) }

// decode is the inverse of AppendBatch and AppendCommand, but does not look into a batch. Errors match ErrEntry.
func decode(b []byte) (p payload, err error) {
	if len(b) < 2+writerBytes+checksumBytes {
		return p, fmt.Errorf("%w: a payload of %d bytes", ErrEntry, len(b))
	}
	if b[0] != payloadFormat {
		return p, fmt.Errorf("%w: format %d, this version reads %d", ErrEntry, b[0], payloadFormat)
	}
	body, sum := b[:len(b)-checksumBytes], binary.LittleEndian.Uint64(b[len(b)-checksumBytes:])
	if got := xxhash.Sum64(body); got != sum {
		return p, fmt.Errorf("%w: checksum %016x, want %016x", ErrEntry, got, sum)
	}
	p.kind, p.writer, body = Kind(body[1]), binary.LittleEndian.Uint64(body[2:]), body[2+writerBytes:]
	fence, n := binary.Uvarint(body)
	if n <= 0 {
		return p, fmt.Errorf("%w: no fence", ErrEntry)
	}
	p.fence, body = fence, body[n:]
	switch {
	case p.kind == Batch:
		p.batch = body
		return p, nil
	case p.kind < Create || p.kind > Ingest:
		return p, fmt.Errorf("%w: kind %d is not known to this version", ErrEntry, p.kind)
	case len(body) < timeBytes:
		return p, fmt.Errorf("%w: no time", ErrEntry)
	}
	p.micros, body = int64(binary.LittleEndian.Uint64(body)), body[timeBytes:]
	if p.kind == Ingest {
		p.fragment, err = manifest.DecodeFragment(body)
	} else if p.edit, err = manifest.DecodeEdit(body); err == nil {
		err = p.check()
	}
	if err != nil {
		err = fmt.Errorf("%w: %w", ErrEntry, err)
	}
	return p, err
}

// check refuses a command without what its kind needs, or with anything else.
func (p *payload) check() error {
	e := p.edit
	var only manifest.Edit
	ok := true
	switch p.kind {
	case Create:
		only.Created = e.Created
		ok = len(e.Created) == 1 || len(e.Created) == 2 && e.Created[1].Log != nil
	case Alter:
		only.Altered, only.Created, only.Ended = e.Altered, e.Created, e.Ended
		ok = len(e.Altered) == 1 && len(e.Created)+len(e.Ended) <= 1 && (len(e.Created) == 0 || e.Created[0].Log != nil)
	case Drop:
		only.Dropped = e.Dropped
		ok = len(e.Dropped) == 1
	case Split, Merge:
		only.Replaced = e.Replaced
		ok = len(e.Replaced) == 1 && len(e.Replaced[0].New) == 1 && len(e.Replaced[0].New[0].Start) > 0
	case Serve:
		only.Services = e.Services
		ok = len(e.Services) == 1
	}
	if !ok || !bytes.Equal(manifest.AppendEdit(nil, &only), manifest.AppendEdit(nil, e)) {
		return fmt.Errorf("a command of kind %d without what it needs, or with more", p.kind)
	}
	return nil
}
