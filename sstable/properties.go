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
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"reflect"
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

// shift adds an offset to the sequence numbers.
func (p *Properties) shift(offset uint64) {
	if p.Cells > 0 {
		p.SmallestSeq, p.LargestSeq = p.SmallestSeq+offset, p.LargestSeq+offset
	}
	if p.NewestTombstone > 0 {
		p.NewestTombstone += offset
	}
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

// field is a property as the file has it. value points to a uint64, an int64, a bool, a []byte
// or a []ValueFile.
type field struct {
	what  string
	value any
}

// fields returns the properties that the file has, in the order of the format.
func (p *Properties) fields() []field {
	return []field{
		{"rows", &p.Rows}, {"cells", &p.Cells}, {"puts", &p.Puts}, {"tombstones", &p.Tombstones},
		{"smallest sequence number", &p.SmallestSeq}, {"largest sequence number", &p.LargestSeq},
		{"newest tombstone", &p.NewestTombstone},
		{"smallest version", &p.MinVersion}, {"largest version", &p.MaxVersion},
		{"flags", &p.Permanent},
		{"data blocks", &p.DataBlocks}, {"raw bytes", &p.RawBytes}, {"key bytes", &p.KeyBytes}, {"value bytes", &p.ValueBytes},
		{"smallest key", &p.SmallestKey}, {"largest key", &p.LargestKey},
		{"value files", &p.ValueFiles},
	}
}

func (p *Properties) encode() []byte {
	var dst []byte
	for _, f := range p.fields() {
		switch v := f.value.(type) {
		case *uint64:
			dst = binary.AppendUvarint(dst, *v)
		case *int64:
			dst = binary.AppendVarint(dst, *v)
		case *bool:
			dst = append(dst, byte(bit(*v)))
		case *[]byte:
			dst = append(binary.AppendUvarint(dst, uint64(len(*v))), *v...)
		case *[]ValueFile:
			dst = binary.AppendUvarint(dst, uint64(len(*v)))
			for _, file := range *v {
				for _, n := range []uint64{file.Number, file.Values, file.Bytes} {
					dst = binary.AppendUvarint(dst, n)
				}
			}
		}
	}
	return dst
}

// parse decodes the properties block of a file of the given format version. It returns what
// is wrong, or "".
func (p *Properties) parse(data []byte, version uint32) (bad string) {
	c := cursor{data: data}
	for _, f := range p.fields() {
		switch v := f.value.(type) {
		case *uint64:
			*v = c.uvarint(f.what)
		case *int64:
			*v = c.varint(f.what)
		case *bool:
			*v = c.count(1, f.what) == 1
		case *[]byte:
			key := c.bytes(c.count(row.MaxKeyBytes, f.what), f.what)
			*v = append([]byte(nil), key...) // nil if it is empty
		case *[]ValueFile:
			if version > 1 {
				*v = c.valueFiles()
			}
		}
	}
	if version == 2 && len(p.ValueFiles) == 0 {
		c.fail("no value files in a version that has them")
	}
	return c.end()
}

func (c *cursor) valueFiles() (files []ValueFile) {
	last := uint64(0)
	for range c.count(c.rest(), "number of value files") {
		f := ValueFile{Number: c.uvarint("value file"), Values: c.uvarint("references"), Bytes: c.uvarint("referenced bytes")}
		if f.Number <= last || f.Number > row.MaxSequence || f.Values == 0 || f.Bytes == 0 {
			c.fail("value files out of order or without references")
			break
		}
		last = f.Number
		files = append(files, f)
	}
	return files
}

// compare returns the first difference between the properties that a file has and those that
// were counted in its data, or "".
func (p *Properties) compare(counted *Properties) string {
	got := counted.fields()
	for i, want := range p.fields() {
		if reflect.DeepEqual(want.value, got[i].value) {
			continue
		}
		if say, has := reflect.ValueOf(want.value).Elem(), reflect.ValueOf(got[i].value).Elem(); say.CanInt() || say.CanUint() {
			return fmt.Sprintf("properties say %v %s, the data has %v", say, want.what, has)
		}
		return "properties and data differ in " + want.what
	}
	return ""
}
