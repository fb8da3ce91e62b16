package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

// ErrCorrupt reports bytes that are not a manifest, or a damaged one. The error names the file
// and the offset.
var ErrCorrupt = errors.New("manifest: corrupt")

// errNewer reports a file or record that a newer version of Flagstone wrote and this one cannot
// read. Nothing was changed.
var errNewer = errors.New("manifest: written by a newer version of Flagstone")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrCorrupt}, args...)...)
}

// message reads the fields of one message. The first error ends it and is kept.
type message struct {
	what string // for errors
	rest []byte
	last uint64 // the tag read before
	err  error
}

// payload begins to read the fields of a payload.
func payload(b []byte, what string) message {
	m := message{what: what}
	switch {
	case len(b) == 0:
		m.err = corrupt("%s without a format", what)
	case b[0] > encodingFormat:
		m.err = fmt.Errorf("%w: %s of format %d, this version reads %d", errNewer, what, b[0], encodingFormat)
	case b[0] != encodingFormat:
		m.err = corrupt("%s of format %d", what, b[0])
	default:
		m.rest = b[1:]
	}
	return m
}

func (m *message) fail(format string, args ...any) {
	if m.err == nil {
		m.err = corrupt("%s: "+format, append([]any{m.what}, args...)...)
	}
}

// next reads a field. It returns false at the end and after an error. The caller must then read
// the field's whole body with the methods of field.
func (m *message) next() (field, bool) {
	if m.err != nil || len(m.rest) == 0 {
		return field{}, false
	}
	c := field{m: m, body: m.rest}
	tag, length := c.uvarint(), c.uvarint()
	c.tag = tag
	switch {
	case m.err != nil:
	case length > uint64(len(c.body)):
		m.fail("field %d of %d bytes, %d are left", tag, length, len(c.body))
	case tag == 0 || tag < m.last:
		m.fail("field %d after field %d", tag, m.last)
	case tag == m.last:
		c.repeated = true
	}
	if m.err != nil {
		return field{}, false
	}
	m.last = tag
	m.rest = c.body[length:]
	c.body = c.body[:length:length]
	return c, true
}

// field is the body of a field that is being read.
type field struct {
	m        *message
	tag      uint64
	repeated bool
	body     []byte
}

// unknown handles a tag that this version does not know.
func (c *field) unknown() {
	if c.tag&ignorableBit == 0 && c.m.err == nil {
		c.m.err = fmt.Errorf("%w: %s has a field %d", errNewer, c.m.what, c.tag)
	}
}

// once refuses a second field of the same tag.
func (c *field) once() {
	if c.repeated {
		c.m.fail("field %d twice", c.tag)
	}
}

// end refuses bytes after what was read.
func (c *field) end() {
	if len(c.body) != 0 {
		c.m.fail("field %d has %d bytes too many", c.tag, len(c.body))
	}
}

// uvarint reads a number from the body; more may follow.
func (c *field) uvarint() uint64 {
	v, n := binary.Uvarint(c.body)
	if n <= 0 || n > 1 && c.body[n-1] == 0 {
		c.m.fail("field %d: malformed number", c.tag)
		c.body = nil
		return 0
	}
	c.body = c.body[n:]
	return v
}

func (c *field) varint() int64 { return unzigzag(c.uvarint()) }

// level reads a level number.
func (c *field) level() int {
	v := c.uvarint()
	if v >= NumLevels {
		c.m.fail("field %d: level %d", c.tag, v)
		return 0
	}
	return int(v)
}

// uint reads a body that is one number, not zero.
func (c *field) uint() uint64 {
	c.once()
	v := c.uvarint()
	c.end()
	if v == 0 {
		c.m.fail("field %d is zero, which is left out", c.tag)
	}
	return v
}

func (c *field) int() int64 { return unzigzag(c.uint()) }

// bytes copies a body, which must not be empty.
func (c *field) bytes() []byte {
	c.once()
	if len(c.body) == 0 {
		c.m.fail("field %d is empty, which is left out", c.tag)
	}
	return bytes.Clone(c.body)
}

// fixed returns a body of a known length, which must not be all zeros.
func (c *field) fixed(length int) []byte {
	c.once()
	if len(c.body) != length {
		c.m.fail("field %d has %d bytes, want %d", c.tag, len(c.body), length)
		return make([]byte, length)
	}
	for _, b := range c.body {
		if b != 0 {
			return c.body
		}
	}
	c.m.fail("field %d is zero, which is left out", c.tag)
	return c.body
}

// nested begins to read a message inside this one; join takes over its error.
func (c *field) nested(what string) message {
	return message{what: what, rest: c.body}
}

func (m *message) join(inner message) {
	if m.err == nil {
		m.err = inner.err
	}
}

// decodeEdit is the inverse of appendEdit. Errors match ErrCorrupt or errNewer. Apply may still
// refuse the edit.
func decodeEdit(b []byte) (*Edit, error) {
	m := payload(b, "edit")
	e := &Edit{}
	for c, ok := m.next(); ok; c, ok = m.next() {
		switch c.tag {
		case editNextFile:
			e.nextFile = c.uint()
		case editMinLog:
			e.minLog = c.uint()
		case editLastSeq:
			e.lastSeq = c.uint()
		case editIssued:
			c.once()
			issued := c.varint()
			c.end()
			e.issued = &issued
		case editSeqTime:
			e.seqTimes = append(e.seqTimes, c.seqTime())
		case editCreated:
			e.created = append(e.created, c.table())
		case editAltered:
			a := alteration{table: c.uvarint(), options: c.options()}
			a.annotations = append([]byte(nil), c.body...)
			e.altered = append(e.altered, a)
		case editDropped:
			e.dropped = append(e.dropped, c.uvarint())
			c.end()
		case editReplaced:
			e.replaced = append(e.replaced, c.replacement())
		case editDeleted:
			e.deleted = append(e.deleted, deletion{partition: c.uvarint(), level: c.level(), number: c.uvarint()})
			c.end()
		case editAdded:
			e.added = append(e.added, addition{partition: c.uvarint(), level: c.level(), file: c.file()})
		case editFlushed:
			e.flushed = append(e.flushed, flush{partition: c.uvarint(), seq: c.uvarint()})
			c.end()
		case editWatermark:
			e.watermarks = append(e.watermarks, watermark{table: c.uvarint(), cutoff: c.varint()})
			c.end()
		case editPastLimit:
			e.pastLimits = append(e.pastLimits, pastLimit{
				table: c.uvarint(), limit: PastLimit{MaxVersions: c.varint(), LastSeq: c.uvarint()},
			})
			c.end()
		case editValueFile:
			e.values = append(e.values, valueAddition{table: c.uvarint(), file: c.valueFile()})
		case editLogEnd:
			e.ended = append(e.ended, logEnd{log: c.uvarint(), until: c.uvarint()})
			c.end()
		case editClock:
			clock := c.clock()
			e.clock = &clock
		case editNewestLog:
			e.newest = c.newestLog()
		default:
			c.unknown()
		}
	}
	if m.err != nil {
		return nil, m.err
	}
	return e, nil
}

func (c *field) newestLog() LogEnd {
	c.once()
	end := LogEnd{Segment: c.uvarint(), Offset: int64(c.uvarint()), Records: c.uvarint(), Chain: c.uvarint()}
	c.end()
	if end.Segment == 0 {
		c.m.fail("field %d names no log segment", c.tag)
	}
	return end
}

// decodeSnapshot is the inverse of appendSnapshot, and checks the state against all rules.
// Errors match ErrCorrupt or errNewer.
func decodeSnapshot(b []byte, storeID [16]byte) (*State, error) {
	m := payload(b, "snapshot")
	s := &State{StoreID: storeID}
	var tables []*Table
	var values []valueAddition
	for c, ok := m.next(); ok; c, ok = m.next() {
		switch c.tag {
		case stateNextFile:
			s.NextFile = c.uint()
		case stateNextTable:
			s.NextTable = c.uint()
		case stateNextPartition:
			s.NextPartition = c.uint()
		case stateMinLog:
			s.MinLog = c.uint()
		case stateLastSeq:
			s.LastSeq = c.uint()
		case stateIssued:
			s.IssuedMillis = c.int()
		case stateSeqTime:
			s.SeqTimes = append(s.SeqTimes, c.seqTime())
		case stateTable:
			tables = append(tables, c.table())
		case stateValueFile:
			values = append(values, valueAddition{table: c.uvarint(), file: c.valueFile()})
		case stateClock:
			if s.Clock = c.clock(); s.Clock == (TrustedClock{}) {
				m.fail("field %d is zero, which is left out", c.tag)
			}
		case stateNewestLog:
			s.NewestLog = c.newestLog()
		default:
			c.unknown()
		}
	}
	if m.err != nil {
		return nil, m.err
	}
	return assemble(s, tables, values)
}

// assemble builds and checks a state from the parts of a snapshot.
func assemble(s *State, tables []*Table, values []valueAddition) (*State, error) {
	for i, p := range s.SeqTimes {
		if i > 0 && (p.Seq <= s.SeqTimes[i-1].Seq || p.Millis <= s.SeqTimes[i-1].Millis) || p.Seq > s.LastSeq {
			return nil, corrupt("snapshot: point %d of the map from sequence numbers to time is out of order", i)
		}
	}
	if s.NextFile == 0 || s.NextTable == 0 || s.NextPartition == 0 {
		return nil, corrupt("snapshot: a counter is missing")
	}
	if len(s.SeqTimes) > MaxSeqTimes {
		return nil, corrupt("snapshot: %d points of sequence numbers and time", len(s.SeqTimes))
	}
	a := newApplier(s)
	for i, v := range values {
		if i > 0 && v.file.Number <= values[i-1].file.Number {
			return nil, corrupt("snapshot: value file %d after value file %d", v.file.Number, values[i-1].file.Number)
		}
		if err := a.addValueFile(v.table, v.file); err != nil {
			return nil, corrupt("snapshot: %w", err)
		}
	}
	for i, t := range tables {
		if i > 0 && t.ID <= tables[i-1].ID {
			return nil, corrupt("snapshot: table %d after table %d", t.ID, tables[i-1].ID)
		}
		if err := a.addTable(t); err != nil {
			return nil, corrupt("snapshot: %w", err)
		}
	}
	next, err := a.finish()
	if err != nil {
		return nil, corrupt("snapshot: %w", err)
	}
	// Adding tables raises the counters to their least valid values.
	if next.NextTable != s.NextTable || next.NextPartition != s.NextPartition || next.LastSeq != s.LastSeq {
		return nil, corrupt("snapshot: counters below what is in use")
	}
	return next, nil
}

func (c *field) clock() TrustedClock {
	c.once()
	t := TrustedClock{Millis: c.varint(), Ahead: c.varint(), Stood: c.varint()}
	c.end()
	return t
}

func (c *field) seqTime() SeqTime {
	p := SeqTime{Seq: c.uvarint(), Millis: c.varint()}
	c.end()
	return p
}

func (c *field) options() TableOptions {
	return TableOptions{MaxVersions: c.varint(), TTLSeconds: c.varint(), MaxVersionOffsetSeconds: c.varint()}
}

func (c *field) table() *Table {
	m := c.nested("table")
	t := &Table{}
	complete := false
	for f, ok := m.next(); ok; f, ok = m.next() {
		switch f.tag {
		case tableID:
			t.ID = f.uint()
		case tableName:
			t.Name = string(f.bytes())
		case tableKeyColumn:
			if len(f.body) < 2 || f.body[1] > 1 {
				m.fail("malformed key column")
				break
			}
			t.Key = append(t.Key, KeyColumn{
				Name: string(f.body[2:]), Type: row.Type(f.body[0]), AutoIncrement: f.body[1] == 1,
			})
		case tableOptions:
			f.once()
			t.Options = f.options()
			f.end()
			complete = true
		case tableLargestOffset:
			t.LargestOffset = f.int()
		case tableWatermark:
			t.Watermark = f.int()
		case tableCreated:
			t.CreatedMillis = f.int()
		case tableAnnotations:
			t.Annotations = f.bytes()
		case tablePartition:
			t.Partitions = append(t.Partitions, f.partition())
		case tablePastLimit:
			t.PastLimits = append(t.PastLimits, PastLimit{MaxVersions: f.varint(), LastSeq: f.uvarint()})
			f.end()
		case tableLog:
			t.Log = f.changeLog()
		default:
			f.unknown()
		}
	}
	if !complete {
		m.fail("no options")
	}
	c.m.join(m)
	return t
}

func (c *field) partition() *Partition {
	m := c.nested("partition")
	p := &Partition{}
	last := 0
	for f, ok := m.next(); ok; f, ok = m.next() {
		switch f.tag {
		case partitionID:
			p.ID = f.uint()
		case partitionStart:
			p.Start = f.bytes()
		case partitionEnd:
			p.End = f.bytes()
		case partitionEpoch:
			p.Epoch = f.uint()
		case partitionFlushed:
			p.FlushedSeq = f.uint()
		case partitionFile:
			level := f.level()
			if level < last {
				m.fail("level %d after level %d", level, last)
			}
			last = level
			p.Levels[level] = append(p.Levels[level], f.file())
		default:
			f.unknown()
		}
	}
	c.m.join(m)
	return p
}

func (c *field) replacement() replacement {
	m := c.nested("replacement")
	r := replacement{}
	for f, ok := m.next(); ok; f, ok = m.next() {
		switch f.tag {
		case replacementTable:
			r.table = f.uint()
		case replacementOld:
			r.old = append(r.old, f.uvarint())
			f.end()
		case replacementNew:
			r.new = append(r.new, f.partition())
		default:
			f.unknown()
		}
	}
	c.m.join(m)
	return r
}

func (c *field) file() *FileMeta {
	m := c.nested("file")
	f := &FileMeta{}
	for v, ok := m.next(); ok; v, ok = m.next() {
		switch v.tag {
		case fileNumber:
			f.Number = v.uint()
		case fileUniqueID:
			copy(f.UniqueID[:], v.fixed(len(f.UniqueID)))
		case fileSize:
			f.Size = v.int()
		case fileChecksum:
			f.Checksum = binary.LittleEndian.Uint64(v.fixed(8))
		case fileSmallest:
			f.Smallest = v.bytes()
		case fileLargest:
			f.Largest = v.bytes()
		case filePermanent:
			if f.Permanent = v.uint() == 1; !f.Permanent {
				m.fail("field %d is not 1", v.tag)
			}
		case fileValues:
			f.Values = append(f.Values, ValueUse{File: v.uvarint(), Values: v.uvarint(), Bytes: v.uvarint()})
			v.end()
		default:
			v.fileCounter(f)
		}
	}
	c.m.join(m)
	return f
}

func (c *field) valueFile() *ValueFile {
	m := c.nested("value file")
	f := &ValueFile{}
	for v, ok := m.next(); ok; v, ok = m.next() {
		switch v.tag {
		case valueNumber:
			f.Number = v.uint()
		case valueUniqueID:
			copy(f.UniqueID[:], v.fixed(len(f.UniqueID)))
		case valueSize:
			f.Size = v.int()
		case valueChecksum:
			f.Checksum = binary.LittleEndian.Uint64(v.fixed(8))
		case valueValues:
			f.Values = v.uint()
		case valueBytes:
			f.Bytes = v.uint()
		case valueCreated:
			f.CreatedMillis = v.int()
		default:
			v.unknown()
		}
	}
	c.m.join(m)
	return f
}

// fileCounter reads the fields of a file that are plain numbers.
func (c *field) fileCounter(f *FileMeta) {
	switch c.tag {
	case fileSmallestSeq:
		f.SmallestSeq = c.uint()
	case fileLargestSeq:
		f.LargestSeq = c.uint()
	case fileMinVersion:
		f.MinVersion = c.int()
	case fileMaxVersion:
		f.MaxVersion = c.int()
	case fileNewestTombstone:
		f.NewestTombstone = c.uint()
	case fileRows:
		f.Rows = c.uint()
	case fileCells:
		f.Cells = c.uint()
	case filePuts:
		f.Puts = c.uint()
	case fileTombstones:
		f.Tombstones = c.uint()
	case fileCreated:
		f.CreatedMillis = c.int()
	default:
		c.unknown()
	}
}
