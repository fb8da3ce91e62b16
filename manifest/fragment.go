package manifest

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/row"
)

// A fragment, integers little endian:
//
//	 0  8   magic "flagfrag"
//	 8  4   format version, 1
//	12  4   length of the payload
//	16      payload, see codec.go
//	    8   xxhash64 of everything before it
//
// docs/format-fragment.md explains it.
const (
	fragmentMagic      = "flagfrag"
	fragmentHeaderSize = 16
	// MaxFragmentBytes, maxFragmentItems and maxFragmentParts bound what a fragment costs its receiver before
	// it has seen a file: with 250,000 files, or with 255 that 1001 partitions share, less than 400 MiB of
	// memory and a few seconds of one processor. A new table may have as many partitions.
	MaxFragmentBytes = 64 << 20
	maxFragmentItems = 1 << 18
	maxFragmentParts = 1001
	// maxFragmentCopies bounds how often a receiver reads a file, and writes it anew.
	maxFragmentCopies = 64
	// maxFragmentSeq bounds the sequence numbers of a fragment, so that a store that takes its files over
	// has most of all numbers left.
	maxFragmentSeq = row.MaxSequence / 4
)

// Fragment is what another store needs to know, besides the table files themselves, to take over a key range
// of a table. File numbers and ids are those of the store that it was made from.
type Fragment struct {
	// Table has the partitions of the range, which serve all.
	Table *Table
	// Values are the value files to which the table files refer.
	Values []*ValueFile
	// LastSeq is at least every sequence number in the files, and IssuedMillis at least the time of every
	// write in them.
	LastSeq      uint64
	IssuedMillis int64
}

// Fragment describes the keys of a table from start, included, to end, excluded; nil is unbounded. Files that reach
// beyond count with their rows inside. A detached partition in the range has no files: it is returned instead.
// REQUIRES: the table is in the state, and neither bound lies inside of a partition key.
func (s *State) Fragment(table uint64, start, end []byte) (f *Fragment, detached *Partition) {
	t := *s.Table(table)
	f = &Fragment{Table: &t, LastSeq: s.LastSeq, IssuedMillis: s.IssuedMillis}
	t.Partitions, t.Log = nil, nil
	values := map[uint64]bool{}
	for _, p := range s.Table(table).Partitions {
		if !endsAbove(p.End, start) || !endsAbove(end, p.Start) {
			continue
		}
		if p.detached() {
			return nil, p
		}
		part := &Partition{ID: p.ID, Start: p.Start, End: p.End, Epoch: p.Epoch, Cut: p.UserCut()}
		if bytes.Compare(part.Start, start) < 0 {
			part.Start = start
			part.Cut = false
		}
		if len(end) > 0 && endsAbove(part.End, end) {
			part.End = end
		}
		for level, files := range p.Levels {
			part.Levels[level] = filesIn(part, files)
			for _, file := range part.Levels[level] {
				for _, use := range file.Values {
					values[use.File] = true
				}
			}
		}
		t.Partitions = append(t.Partitions, part)
	}
	for number := range values {
		u, _ := s.ValueFile(number)
		f.Values = append(f.Values, u.ValueFile)
	}
	slices.SortFunc(f.Values, func(a, b *ValueFile) int { return cmp.Compare(a.Number, b.Number) })
	return f, nil
}

// Range is the range of row keys of the fragment: end is excluded, and nil if unbounded.
func (f *Fragment) Range() (start, end []byte) {
	return f.Table.Partitions[0].Start, f.Table.Partitions[len(f.Table.Partitions)-1].End
}

// Files returns the table files, each once, in ascending order of their numbers.
func (f *Fragment) Files() (files []*FileMeta) {
	for _, p := range f.Table.Partitions {
		files = append(files, slices.Concat(p.Levels[:]...)...)
	}
	slices.SortFunc(files, func(a, b *FileMeta) int { return cmp.Compare(a.Number, b.Number) })
	return slices.CompactFunc(files, func(a, b *FileMeta) bool { return a.Number == b.Number })
}

func (f *Fragment) fields(c *codec) {
	c.room = maxFragmentItems
	c.field(1, f.Table != nil, func() { message(c, "table", &f.Table, (*Table).fields) })
	messages(c, 2, "value file", &f.Values, (*ValueFile).fields)
	c.uint(3, &f.LastSeq)
	c.int(4, &f.IssuedMillis)
}

// Append appends the encoding of the fragment.
func (f *Fragment) Append(dst []byte) []byte {
	start := len(dst)
	dst = append(dst, fragmentMagic...)
	dst = binary.LittleEndian.AppendUint32(dst, formatVersion)
	dst = append(dst, 0, 0, 0, 0)
	dst = encode(dst, f.fields)
	binary.LittleEndian.PutUint32(dst[start+12:], uint32(len(dst)-start-fragmentHeaderSize))
	return binary.LittleEndian.AppendUint64(dst, xxhash.Sum64(dst[start:]))
}

// DecodeFragment is the inverse of Append. A fragment that it returns obeys all rules of a State, whoever
// made it; what it says about files is not verified. Errors match ErrCorrupt or errNewer.
func DecodeFragment(b []byte) (*Fragment, error) {
	switch {
	case len(b) < fragmentHeaderSize+8 || string(b[:8]) != fragmentMagic:
		return nil, corrupt("%d bytes are not a fragment", len(b))
	case len(b) > MaxFragmentBytes:
		return nil, corrupt("fragment of %d bytes, at most %d", len(b), MaxFragmentBytes)
	case binary.LittleEndian.Uint32(b[8:]) > formatVersion:
		return nil, fmt.Errorf("%w: fragment of version %d", errNewer, binary.LittleEndian.Uint32(b[8:]))
	}
	end := len(b) - 8
	switch {
	case binary.LittleEndian.Uint32(b[8:]) != formatVersion, uint64(binary.LittleEndian.Uint32(b[12:])) != uint64(end-fragmentHeaderSize):
		return nil, corrupt("fragment: malformed header")
	case binary.LittleEndian.Uint64(b[end:]) != xxhash.Sum64(b[:end]):
		return nil, corrupt("fragment: wrong checksum")
	}
	f := new(Fragment)
	if err := decode(b[fragmentHeaderSize:end], "fragment", f.fields); err != nil {
		return nil, err
	}
	if err := f.check(); err != nil {
		return nil, corrupt("fragment: %s", strings.TrimPrefix(err.Error(), "manifest: "))
	}
	return f, nil
}

// check applies the rules of a State to the fragment, as the only table of one.
func (f *Fragment) check() error {
	const maxSeconds = math.MaxInt64 / 1000
	t := f.Table
	switch {
	case t == nil || len(t.Partitions) == 0 || len(t.Partitions) > maxFragmentParts:
		return invalid("no table, no partition, or more than %d", maxFragmentParts)
	case t.Log != nil:
		return invalid("table %q is a change log", t.Name)
	case f.LastSeq > maxFragmentSeq:
		return invalid("sequence number %d, at most %d are taken over", f.LastSeq, uint64(maxFragmentSeq))
	case t.Watermark > maxSeconds || t.Watermark > f.IssuedMillis/1000:
		return invalid("table %q: expiry watermark %d behind the last write, at %d ms", t.Name, t.Watermark, f.IssuedMillis)
	case t.LargestOffset > maxSeconds:
		return invalid("table %q: version offset %d", t.Name, t.LargestOffset)
	}
	next, err := f.state()
	if err == nil && next.LastSeq > f.LastSeq {
		err = invalid("a sequence number above the last one, %d", f.LastSeq)
	}
	for _, l := range t.PastLimits {
		if err == nil && l.LastSeq > f.LastSeq {
			err = invalid("a past limit up to sequence number %d, above the last one, %d", l.LastSeq, f.LastSeq)
		}
	}
	return cmp.Or(err, f.checkIDs())
}

// state is a State with the fragment's table alone.
func (f *Fragment) state() (*State, error) {
	whole := *f.Table
	whole.Partitions = nil
	add := func(p Partition) {
		p.ID = uint64(len(whole.Partitions) + 1)
		whole.Partitions = append(whole.Partitions, &p)
	}
	start, end := f.Range()
	if len(start) > 0 {
		add(Partition{End: start})
	}
	for _, p := range f.Table.Partitions {
		if p.Service != Serving {
			return nil, invalid("partition %d does not serve", p.ID)
		}
		add(*p)
	}
	if len(end) > 0 {
		add(Partition{Start: end})
	}
	s := NewState([16]byte{})
	s.NextFile = maxNumber // any file number may have been given out
	e := &Edit{Created: []*Table{&whole}}
	for _, v := range f.Values {
		e.Values = append(e.Values, ValueAddition{Table: whole.ID, File: v})
	}
	return s.Apply(e)
}

// checkIDs checks that files with the same id have the same bytes. A store has such files after it has ingested
// two ranges that shared a file.
func (f *Fragment) checkIDs() error {
	type content struct {
		size     int64
		checksum uint64
		values   bool
	}
	seen, copies := map[[16]byte]content{}, map[[16]byte]int{}
	check := func(id [16]byte, number uint64, c content) error {
		other, twice := seen[id]
		if twice && other != c {
			return invalid("file %d has the same id as another one, and other bytes", number)
		}
		if copies[id]++; copies[id] > maxFragmentCopies {
			return invalid("more than %d files have the same id as file %d", maxFragmentCopies, number)
		}
		seen[id] = c
		return nil
	}
	for _, t := range f.Files() {
		if err := check(t.UniqueID, t.Number, content{t.Size, t.Checksum, false}); err != nil {
			return err
		}
	}
	for _, v := range f.Values {
		if err := check(v.UniqueID, v.Number, content{v.Size, v.Checksum, true}); err != nil {
			return err
		}
	}
	return nil
}
