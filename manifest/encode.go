package manifest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

// The fields of edits and snapshots, with their tags. docs/format-manifest.md says what they
// mean, codec.go has the form of a field and what drives the lists in both directions.
//
// Worked example: an edit that raises LastSeq to 300 and drops table 7:
//
//	01   03 02 AC02   08 01 07

// AppendEdit appends the encoding of an edit. A command in an external log is one, too.
func AppendEdit(dst []byte, e *Edit) []byte { return encode(dst, e.fields) }

// DecodeEdit is the inverse of AppendEdit. Errors match ErrCorrupt, or say that the encoding is newer.
// Apply may still refuse the edit.
func DecodeEdit(b []byte) (*Edit, error) {
	e := &Edit{}
	if err := decode(b, "edit", e.fields); err != nil {
		return nil, err
	}
	return e, nil
}

func (e *Edit) fields(c *codec) {
	c.uint(1, &e.nextFile)
	c.uint(2, &e.MinLog)
	c.uint(3, &e.LastSeq)
	c.field(4, e.Issued != nil, func() { c.numbers(made(c, &e.Issued)) })
	list(c, 5, &e.SeqTimes, c.seqTime)
	messages(c, 6, "table", &e.Created, (*Table).fields)
	list(c, 7, &e.Altered, func(a *Alteration) {
		c.numbers(&a.Table)
		c.options(&a.Options)
		rest(c, &a.Annotations)
	})
	list(c, 8, &e.Dropped, func(id *uint64) { c.numbers(id) })
	messages(c, 9, "replacement", &e.Replaced, (*Replacement).fields)
	list(c, 10, &e.Deleted, func(d *Deletion) { c.numbers(&d.Partition, &d.Level, &d.Number) })
	list(c, 11, &e.Added, func(a *Addition) {
		c.numbers(&a.Partition, &a.Level)
		message(c, "file", &a.File, (*FileMeta).fields)
	})
	list(c, 12, &e.Flushed, func(f *Flush) { c.numbers(&f.Partition, &f.Seq) })
	list(c, 13, &e.Watermarks, func(w *Watermark) { c.numbers(&w.Table, &w.Cutoff) })
	list(c, 14, &e.PastLimits, func(p *TableLimit) { c.numbers(&p.Table, &p.MaxVersions, &p.LastSeq) })
	list(c, 15, &e.Values, c.valueAddition)
	list(c, 16, &e.Ended, func(end *LogEnding) { c.numbers(&end.Log, &end.Until) })
	c.field(17, e.Clock != nil, func() { c.clock(made(c, &e.Clock)) })
	c.newestLog(19, &e.NewestLog)
	c.external(20, &e.External)
	list(c, 21, &e.Services, func(s *ServiceChange) {
		c.numbers(&s.Partition)
		c.service(&s.Service, &s.Reason)
	})
	list(c, 22, &e.Cuts, func(id *uint64) { c.numbers(id) })
	c.field(ignorableBit+1, e.Keep != nil, func() {
		k := made(c, &e.Keep)
		c.numbers(&k.From, &k.Limit, &k.Noted)
	})
}

// snapshot is a state without its StoreID, which is in the file's header.
type snapshot struct {
	*State
	values []ValueAddition
}

// appendSnapshot appends the encoding of a state.
func appendSnapshot(dst []byte, s *State) []byte {
	x := snapshot{State: s}
	for u := range s.ValueFiles() {
		x.values = append(x.values, ValueAddition{Table: u.Table, File: u.ValueFile})
	}
	return encode(dst, x.fields)
}

// decodeSnapshot is the inverse of appendSnapshot, and checks the state against all rules.
// Errors match ErrCorrupt or errNewer.
func decodeSnapshot(b []byte, storeID [16]byte) (*State, error) {
	x := snapshot{State: &State{StoreID: storeID}}
	if err := decode(b, "snapshot", x.fields); err != nil {
		return nil, err
	}
	s, err := x.assemble()
	if err != nil {
		return nil, corrupt("snapshot: %w", err)
	}
	return s, nil
}

func (s *snapshot) fields(c *codec) {
	c.uint(1, &s.NextFile)
	c.uint(2, &s.NextTable)
	c.uint(3, &s.NextPartition)
	c.uint(4, &s.MinLog)
	c.uint(5, &s.LastSeq)
	c.int(6, &s.IssuedMillis)
	list(c, 7, &s.SeqTimes, c.seqTime)
	messages(c, 8, "table", &s.Tables, (*Table).fields)
	list(c, 9, &s.values, c.valueAddition)
	value(c, 10, &s.Clock, func() { c.clock(&s.Clock) })
	c.newestLog(12, &s.NewestLog)
	c.external(13, &s.External)
	value(c, ignorableBit+1, &s.Origin, func() { c.origin(&s.Origin) })
	c.field(ignorableBit+2, s.Kept.From != 0 || s.Kept.Changes != 0, func() { c.numbers(&s.Kept.From, &s.Kept.Limit, &s.Kept.Changes) })
	messages(c, ignorableBit+3, "note", &s.Kept.Notes, (*LogNote).fields)
}

// assemble builds a state from what was decoded, as an edit would, and so checks it.
func (s *snapshot) assemble() (*State, error) {
	for i, p := range s.SeqTimes {
		if i > 0 && (p.Seq <= s.SeqTimes[i-1].Seq || p.Millis <= s.SeqTimes[i-1].Millis) || p.Seq > s.LastSeq {
			return nil, fmt.Errorf("point %d of the map from sequence numbers to time is out of order", i)
		}
	}
	for i := 1; i < len(s.values); i++ {
		if last, next := s.values[i-1].File.Number, s.values[i].File.Number; next <= last {
			return nil, fmt.Errorf("value file %d after value file %d", next, last)
		}
	}
	names := map[string]bool{}
	for i, t := range s.Tables {
		switch {
		case i > 0 && t.ID <= s.Tables[i-1].ID:
			return nil, fmt.Errorf("table %d after table %d", t.ID, s.Tables[i-1].ID)
		case names[t.Name]:
			return nil, invalid("table %q exists", t.Name)
		}
		names[t.Name] = true
	}
	switch {
	case s.NextFile == 0 || s.NextTable == 0 || s.NextPartition == 0:
		return nil, errors.New("a counter is missing")
	case s.External != nil && s.External.check(s.LastSeq) != nil:
		return nil, s.External.check(s.LastSeq)
	case len(s.SeqTimes) > MaxSeqTimes:
		return nil, fmt.Errorf("%d points of sequence numbers and time", len(s.SeqTimes))
	}
	tables := s.Tables
	s.Tables = nil
	a := newApplier(s.State)
	each(a, s.values, a.addValueFile)
	each(a, tables, a.addTable)
	next, err := a.finish()
	if err != nil {
		return nil, err
	}
	// Adding tables raises the counters to their least valid values.
	if next.NextTable != s.NextTable || next.NextPartition != s.NextPartition || next.LastSeq != s.LastSeq {
		return nil, errors.New("counters below what is in use")
	}
	return next, nil
}

func (c *codec) seqTime(p *SeqTime) { c.numbers(&p.Seq, &p.Millis) }

func (c *codec) clock(t *TrustedClock) { c.numbers(&t.Millis, &t.Ahead, &t.Stood) }

func (c *codec) newestLog(tag uint64, end *LogEnd) {
	known := c.field(tag, *end != LogEnd{}, func() {
		offset := uint64(end.Offset)
		c.numbers(&end.Segment, &offset, &end.Records, &end.Chain)
		if c.decoding {
			end.Offset = int64(offset)
		}
	})
	if known && end.Segment == 0 {
		c.fail("field %d names no log segment", tag)
	}
}

// origin is the id of the store in two halves, each a big-endian number, and the other fields.
func (c *codec) origin(o *LogOrigin) {
	high, low := binary.BigEndian.Uint64(o.StoreID[:]), binary.BigEndian.Uint64(o.StoreID[8:])
	c.numbers(&high, &low, &o.Segment, &o.Changes)
	if c.decoding {
		binary.BigEndian.PutUint64(o.StoreID[:], high)
		binary.BigEndian.PutUint64(o.StoreID[8:], low)
	}
}

func (n *LogNote) fields(c *codec) {
	c.uint(1, &n.Number)
	c.int(2, &n.Micros)
	text(c, 3, &n.What)
	text(c, 4, &n.Edit)
}

func (c *codec) external(tag uint64, x **External) {
	c.field(tag, *x != nil, func() {
		x := made(c, x)
		c.numbers(&x.Index, &x.Seq, &x.Micros, &x.Fence, &x.Highest)
	})
}

func (c *codec) valueAddition(a *ValueAddition) {
	c.numbers(&a.Table)
	message(c, "value file", &a.File, (*ValueFile).fields)
}

func (r *Replacement) fields(c *codec) {
	c.uint(1, &r.Table)
	list(c, 2, &r.Old, func(id *uint64) { c.numbers(id) })
	messages(c, 3, "partition", &r.New, (*Partition).fields)
	c.uint(4, &r.After)
}

func (t *Table) fields(c *codec) {
	c.uint(1, &t.ID)
	text(c, 2, &t.Name)
	list(c, 3, &t.Key, c.keyColumn)
	complete := c.field(4, true, func() { c.options(&t.Options) })
	c.int(5, &t.LargestOffset)
	c.int(6, &t.Watermark)
	c.int(7, &t.CreatedMillis)
	text(c, 8, &t.Annotations)
	messages(c, 9, "partition", &t.Partitions, (*Partition).fields)
	list(c, 10, &t.PastLimits, func(p *PastLimit) { c.numbers(&p.MaxVersions, &p.LastSeq) })
	c.field(11, t.Log != nil, func() { message(c, "change log", &t.Log, (*ChangeLog).fields) })
	c.end()
	if !complete {
		c.fail("no options")
	}
}

// keyColumn is the type in 1 byte, 1 or 0 for auto-increment, and the name.
func (c *codec) keyColumn(k *KeyColumn) {
	body := []byte{byte(k.Type), 0}
	if k.AutoIncrement {
		body[1] = 1
	}
	body = append(body, k.Name...)
	rest(c, &body)
	switch {
	case !c.decoding:
	case len(body) < 2 || body[1] > 1:
		c.fail("malformed key column")
	default:
		*k = KeyColumn{Name: string(body[2:]), Type: row.Type(body[0]), AutoIncrement: body[1] == 1}
	}
}

func (c *codec) options(o *TableOptions) {
	c.numbers(&o.MaxVersions, &o.TTLSeconds, &o.MaxVersionOffsetSeconds)
}

func (l *ChangeLog) fields(c *codec) {
	c.uint(1, &l.Of)
	c.uint(2, &l.After)
	c.uint(3, &l.Until)
	list(c, 4, &l.Before, func(column *string) { rest(c, column) })
	messages(c, 5, "shard", (*[]*Shard)(&l.Shards), (*Shard).fields)
}

func (s *Shard) fields(c *codec) {
	c.uint(1, &s.ID)
	list(c, 2, &s.Parents, func(id *uint64) { c.numbers(id) })
	text(c, 3, &s.Start)
	text(c, 4, &s.End)
	c.uint(5, &s.After)
}

func (p *Partition) fields(c *codec) {
	c.uint(1, &p.ID)
	text(c, 2, &p.Start)
	text(c, 3, &p.End)
	c.uint(4, &p.Epoch)
	c.uint(5, &p.FlushedSeq)
	var files []Addition
	for level := range p.Levels {
		for _, f := range p.Levels[level] {
			files = append(files, Addition{Level: level, File: f})
		}
	}
	last := 0
	list(c, 6, &files, func(a *Addition) {
		c.numbers(&a.Level)
		if a.Level < last {
			c.fail("level %d after level %d", a.Level, last)
		}
		last = a.Level
		message(c, "file", &a.File, (*FileMeta).fields)
		if c.decoding {
			p.Levels[a.Level] = append(p.Levels[a.Level], a.File)
		}
	})
	c.flag(7, &p.Cut)
	if c.field(8, p.Service != Serving, func() { c.service(&p.Service, &p.Reason) }) && p.Service == Serving {
		c.fail("field 8 says nothing")
	}
}

func (f *FileMeta) fields(c *codec) {
	c.uint(1, &f.Number)
	c.uniqueID(2, &f.UniqueID)
	c.int(3, &f.Size)
	c.checksum(4, &f.Checksum)
	text(c, 5, &f.Smallest)
	text(c, 6, &f.Largest)
	c.uint(7, &f.SmallestSeq)
	c.uint(8, &f.LargestSeq)
	c.int(9, &f.MinVersion)
	c.int(10, &f.MaxVersion)
	c.flag(11, &f.Permanent)
	c.uint(12, &f.NewestTombstone)
	c.uint(13, &f.Rows)
	c.uint(14, &f.Cells)
	c.uint(15, &f.Puts)
	c.uint(16, &f.Tombstones)
	c.int(17, &f.CreatedMillis)
	list(c, 18, &f.Values, func(u *ValueUse) { c.numbers(&u.File, &u.Values, &u.Bytes) })
	c.uint(19, &f.SeqOffset)
}

func (f *ValueFile) fields(c *codec) {
	c.uint(1, &f.Number)
	c.uniqueID(2, &f.UniqueID)
	c.int(3, &f.Size)
	c.checksum(4, &f.Checksum)
	c.uint(5, &f.Values)
	c.uint(6, &f.Bytes)
	c.int(7, &f.CreatedMillis)
}

// service is what a partition serves, and why.
func (c *codec) service(s *Service, reason *string) {
	n := uint64(*s)
	c.unsigned(&n)
	if c.decoding {
		if *s = Service(n); n > uint64(Detached) {
			c.fail("field %d: service %d", c.tag, n)
		}
	}
	rest(c, reason)
}

// equal compares the stored form of two descriptions.
func (f *FileMeta) equal(g *FileMeta) bool {
	return f == g || bytes.Equal(encode(nil, f.fields), encode(nil, g.fields))
}
