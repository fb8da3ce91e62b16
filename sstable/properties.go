package sstable

// The properties block, before compression. Integers are uvarints unless it says otherwise:
//
//	rows cells puts tombstones
//	smallest seq, largest seq, newest tombstone seq
//	smallest version, largest version     zig-zag varints
//	flags                                 1 byte: bit 0 permanent
//	data blocks, raw bytes, key bytes, value bytes
//	smallest key                          length, bytes
//	largest key                           length, bytes
//	from version 2 on:
//	value files                           count, in version 2 at least 1; then for
//	                                      each, in ascending order of numbers:
//	                                      number, references, bytes
//
// Nothing follows. Only a new format version adds fields.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/row"
)

// Properties say what a file holds.
type Properties struct {
	UniqueID [16]byte
	FileSize int64 // bytes
	// FileChecksum is the xxhash64 of the whole file. Only Finish sets it; it is not in the file.
	FileChecksum uint64

	Rows       uint64
	Cells      uint64 // of all kinds, including row-level ones
	Puts       uint64
	Tombstones uint64 // cells whose Kind.IsTombstone

	SmallestKey, LargestKey []byte // row keys in the file; nil without rows
	// SmallestSeq and LargestSeq bound the sequence numbers of all cells.
	SmallestSeq, LargestSeq uint64
	// MinVersion and MaxVersion bound the versions of all cells except those at
	// row.MaxVersion (delete-row, delete-column, never-expiring marker). Without any
	// other cell they are math.MaxInt64 and math.MinInt64.
	MinVersion, MaxVersion int64
	// Permanent says that some row has a marker that never expires.
	Permanent bool
	// NewestTombstone is the largest sequence number of a tombstone, or 0 without one.
	NewestTombstone uint64

	DataBlocks uint64
	RawBytes   uint64 // of data blocks before compression
	KeyBytes   uint64 // of row keys
	ValueBytes uint64 // of values in the blocks, including references

	// ValueFiles are the value files that cells refer to, in ascending order of numbers.
	ValueFiles []ValueFile
}

// ValueFile says how much of a value file the cells of a table file refer to.
type ValueFile struct {
	Number uint64
	Values uint64
	Bytes  uint64 // of their records in the value file
}

// emptyProperties are those of a file without cells.
func emptyProperties() Properties {
	return Properties{SmallestSeq: math.MaxUint64, MinVersion: math.MaxInt64, MaxVersion: math.MinInt64}
}

// addCell counts a cell. It returns what is wrong with its reference, or "".
func (p *Properties) addCell(c *row.Cell) (bad string) {
	p.Cells++
	p.ValueBytes += uint64(len(c.Value))
	p.SmallestSeq = min(p.SmallestSeq, c.Seq)
	p.LargestSeq = max(p.LargestSeq, c.Seq)
	if c.Version != row.MaxVersion {
		p.MinVersion = min(p.MinVersion, c.Version)
		p.MaxVersion = max(p.MaxVersion, c.Version)
	}
	switch {
	case c.Kind == row.KindPut:
		p.Puts++
	case c.Kind.IsTombstone():
		p.Tombstones++
		p.NewestTombstone = max(p.NewestTombstone, c.Seq)
	case c.Version == row.MaxVersion:
		p.Permanent = true
	}
	if c.Separate {
		ref, err := row.ParseReference(c.Value)
		if err != nil {
			return "malformed reference to a value"
		}
		p.addReference(&ref)
	}
	return ""
}

// addReference counts a reference. A search of the list is cheap, because a table refers to
// few value files.
func (p *Properties) addReference(ref *row.Reference) {
	at, found := slices.BinarySearchFunc(p.ValueFiles, ref.File, func(f ValueFile, number uint64) int {
		return cmp.Compare(f.Number, number)
	})
	if !found {
		p.ValueFiles = slices.Insert(p.ValueFiles, at, ValueFile{Number: ref.File})
	}
	p.ValueFiles[at].Values++
	p.ValueFiles[at].Bytes += uint64(ref.Stored)
}

// count is one of the properties that are plain numbers.
type count struct {
	what  string
	value *uint64
}

// counts returns the properties that are plain numbers, in the order of the format: those
// before the versions, and those after the flags.
func (p *Properties) counts() (cells, sizes []count) {
	return []count{
			{"rows", &p.Rows}, {"cells", &p.Cells}, {"puts", &p.Puts}, {"tombstones", &p.Tombstones},
			{"smallest sequence number", &p.SmallestSeq}, {"largest sequence number", &p.LargestSeq},
			{"newest tombstone", &p.NewestTombstone},
		}, []count{
			{"data blocks", &p.DataBlocks}, {"raw bytes", &p.RawBytes}, {"key bytes", &p.KeyBytes}, {"value bytes", &p.ValueBytes},
		}
}

func (p *Properties) encode() []byte {
	var dst []byte
	cells, sizes := p.counts()
	for _, c := range cells {
		dst = binary.AppendUvarint(dst, *c.value)
	}
	dst = binary.AppendVarint(dst, p.MinVersion)
	dst = binary.AppendVarint(dst, p.MaxVersion)
	flags := byte(0)
	if p.Permanent {
		flags = 1
	}
	dst = append(dst, flags)
	for _, c := range sizes {
		dst = binary.AppendUvarint(dst, *c.value)
	}
	for _, key := range [][]byte{p.SmallestKey, p.LargestKey} {
		dst = binary.AppendUvarint(dst, uint64(len(key)))
		dst = append(dst, key...)
	}
	dst = binary.AppendUvarint(dst, uint64(len(p.ValueFiles)))
	for _, f := range p.ValueFiles {
		for _, v := range []uint64{f.Number, f.Values, f.Bytes} {
			dst = binary.AppendUvarint(dst, v)
		}
	}
	return dst
}

// parse decodes the properties block of a file of the given format version. It returns what
// is wrong, or "".
func (p *Properties) parse(data []byte, version uint32) (bad string) {
	c := cursor{data: data}
	cells, sizes := p.counts()
	for _, n := range cells {
		*n.value = c.uvarint(n.what)
	}
	p.MinVersion = c.varint("smallest version")
	p.MaxVersion = c.varint("largest version")
	flags := c.byte("flags")
	p.Permanent = flags == 1
	if flags > 1 {
		c.fail("unknown flags")
	}
	for _, n := range sizes {
		*n.value = c.uvarint(n.what)
	}
	for _, key := range []*[]byte{&p.SmallestKey, &p.LargestKey} {
		if n := c.count(row.MaxKeyBytes, "key length"); n > 0 {
			*key = bytes.Clone(c.bytes(n, "key"))
		}
	}
	if version > 1 {
		p.parseValueFiles(&c)
		if version == 2 && c.bad == "" && len(p.ValueFiles) == 0 {
			c.fail("no value files in a version that has them")
		}
	}
	if c.bad == "" && c.rest() != 0 {
		c.fail("bytes after the last property")
	}
	return c.bad
}

func (p *Properties) parseValueFiles(c *cursor) {
	last := uint64(0)
	for range c.count(c.rest(), "number of value files") {
		f := ValueFile{Number: c.uvarint("value file"), Values: c.uvarint("references"), Bytes: c.uvarint("referenced bytes")}
		if c.bad == "" && (f.Number <= last || f.Number > row.MaxSequence || f.Values == 0 || f.Bytes == 0) {
			c.fail("value files out of order or without references")
		}
		if c.bad != "" {
			return
		}
		last = f.Number
		p.ValueFiles = append(p.ValueFiles, f)
	}
}
