package sstable

// A data block is a head, which says what the block holds and where, and the values. The
// values are cut between rows into segments, each compressed and verified by itself. To
// read one row, a reader decodes the head, which caches keep, and one segment.
//
//	segments   each a block (blocktrailer.go): the values of some rows
//	head       a block, see below
//	length     4 bytes: of the head as stored
//
// The head, before compression:
//
//	header    flags     1 byte: bit 0  the row continues one of the block before
//	                            bit 1  the row continues in the next block
//	                            bit 2  every row has a cell of every column, in
//	                                   order: the array column is left empty
//	          rows      uvarint, at least 1; exactly 1 if bit 0 or 1 is set
//	          stamps    uvarint
//	          columns   uvarint
//	          cells     uvarint
//	          segments  uvarint, 1 to 8 and no more than rows
//	          prefix    uvarint: length of the prefix that all row keys share,
//	                    the whole key if there is one row
//	arrays    (see uints.go; those marked * are ends)
//	  of rows     keyEnd*    end of the row's key suffix among the suffixes
//	              cellEnd*   end of its cells; they begin where the row before ends
//	              stampEnd   end of its stamps, less its number and one
//	              rowFlags   its row-level cells, see below
//	  of stamps   seq, version
//	  of columns  nameEnd*   end of the column's name among the names
//	  of cells    column     number of the column
//	              stamp      number of the stamp, counted from the row's first
//	              kind       bits 0-2 kind, or 6 for a put whose value is in a
//	                         value file; bit 3 version is MaxVersion, bits 4-7
//	                         value type
//	              valueEnd*  end of the value among the values
//	  of segments rowEnd*    end of the rows whose values it has
//	              partEnd*   end of the segment, as stored, in the block
//	padding   8 zero bytes
//	strings   prefix, key suffixes, column names: to the head's end
//
// In files of versions 1 and 2 a data block is one block: a head without segments, bit 2
// and steps, with the values after the names.
//
// A stamp is a (sequence number, version) that cells of a row share. Cells that were
// written together share one. So a row that was put at once has one stamp, and its stamp
// array is all zero and takes no space.
//
// Row-level cells. Nearly every row has a delete-row and a marker of one mutation, or
// only a marker. These are stored as bits of rowFlags, without a cell:
//
//	1  delete-row at the sequence number of the row's first stamp
//	2  row marker at the sequence number and version of that stamp
//	4  row marker at that sequence number, version MaxVersion
//
// They come before the row's other cells. Any other set of row-level cells is stored as
// cells of the column with the empty name.
//
// The version of a cell with kind bit 3 is MaxVersion, whatever its stamp says. So a
// delete-column does not widen the version array to eight bytes.
//
// Invariants: keys rise strictly; column names rise strictly; the cells of a row are in
// cell order; the empty column has all cells of row-level kinds and no others; only puts
// have types and values; ends do not fall, and end exactly where the strings end. parse
// checks what memory safety and termination need, Reader.Verify the rest.
//
// A worked example is in docs/format-sstable.md.
//
// Rejected: restart points in the row directory (they compress keys better, but a row is
// then reached by decoding its neighbours, and a step back is a rescan; the common prefix
// of the block already takes most of the gain), and version and sequence deltas per cell
// (if one of ten cells is updated alone, each pays eight bytes; with stamps it is one).

import (
	"bytes"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/row"
)

const (
	blockContinued = 1 << 0
	blockContinues = 1 << 1
	blockOrdered   = 1 << 2

	maxSegments    = cache.MaxParts
	headLengthSize = 4
	// maxCells bounds the work of parsing. A builder counts more than one byte for each cell.
	maxCells = MaxBlockSize

	rowDeleted       = 1 << 0
	rowMarked        = 1 << 1
	rowMarkedForever = 1 << 2

	kindMask     = 0x07
	kindSeparate = 0x06 // a put whose value is a row.Reference
	kindAtMax    = 0x08
	kindTypeBits = 4
)

// dataBlock is a parsed data block: where its arrays are, and the head itself, or the
// whole block in the versions before segments. It is immutable and shared between
// iterators. In the cache it lies off the Go heap, so it must hold no pointer except
// into data.
type dataBlock struct {
	data                         []byte
	rows, stamps, columns, cells int
	segments                     int // 0: the values are in data

	continued, continues, ordered bool

	// Set by checkPlain. plain: all cells are puts below MaxVersion, no two of one column
	// and version in a row; versions bounds those of a column in a row. full: every row
	// has every column, once. oneStamp: every row has one stamp.
	plain, full, oneStamp bool
	// even, in a plain block: all rows have the same row flags, with a marker, and no
	// delete-row is newer than a put of its row. The bounds of the stamps are known.
	even bool

	// Where the parts of the strings begin. Each part ends where the next one begins.
	prefixAt, keysAt, namesAt, valuesFrom uint32

	keyEnd, cellEnd, stampEnd, rowFlags uints
	seq, version                        uints
	nameEnd                             uints
	column, stamp, kind, valueEnd       uints
	rowEnd, partEnd                     uints

	versions               int
	minSeq, maxSeq         uint64
	minVersion, maxVersion int64
}

// shift adds an offset to the sequence numbers of a block that was just parsed.
func (b *dataBlock) shift(offset uint64) {
	b.seq.base, b.minSeq, b.maxSeq = b.seq.base+offset, b.minSeq+offset, b.maxSeq+offset
}

// prefix is the beginning of all row keys, keys their suffixes, names the column names.
func (b *dataBlock) prefix() []byte { return b.data[b.prefixAt:b.keysAt:b.keysAt] }
func (b *dataBlock) keys() []byte   { return b.data[b.keysAt:b.namesAt:b.namesAt] }
func (b *dataBlock) names() []byte  { return b.data[b.namesAt:b.valuesFrom:b.valuesFrom] }

// columnOf is the number of the column of cell i.
func (b *dataBlock) columnOf(i int) uint64 {
	if b.ordered {
		return uint64(uint32(i) % uint32(b.columns))
	}
	return b.column.at(b.data, i)
}

// segmentOf returns the segment that has the values of a row.
func (b *dataBlock) segmentOf(row int) (k int) {
	for int(b.rowEnd.at(b.data, k)) <= row {
		k++
	}
	return k
}

// valuesBefore is where the values of a row begin. For row == b.rows it is where all
// values end.
func (b *dataBlock) valuesBefore(row int) int { return b.valueEnd.before(b.data, b.cellsBefore(row)) }

// segmentLength is how many bytes the values in segment k take.
func (b *dataBlock) segmentLength(k int) int {
	return b.valuesBefore(int(b.rowEnd.at(b.data, k))) - b.valuesBefore(b.rowEnd.before(b.data, k))
}

// rawSize is the number of bytes before compression.
func (b *dataBlock) rawSize() int {
	if b.segments == 0 {
		return len(b.data)
	}
	return len(b.data) + b.valuesBefore(b.rows)
}

// hasEmptyColumn reports whether column 0 is the one of explicit row-level cells.
func (b *dataBlock) hasEmptyColumn() bool { return b.columns > 0 && b.nameEnd.at(b.data, 0) == 0 }

func (b *dataBlock) suffix(i int) []byte {
	from, to := b.keyEnd.before(b.data, i), int(b.keyEnd.at(b.data, i))
	return b.data[int(b.keysAt)+from : int(b.keysAt)+to]
}

func (b *dataBlock) name(i int) []byte {
	from, to := int(b.namesAt)+b.nameEnd.before(b.data, i), int(b.namesAt)+int(b.nameEnd.at(b.data, i))
	return b.data[from:to:to]
}

func (b *dataBlock) cellsBefore(i int) int { return b.cellEnd.before(b.data, i) }
func (b *dataBlock) cellsEnd(i int) int    { return int(b.cellEnd.at(b.data, i)) }

func (b *dataBlock) stampsEnd(i int) int { return int(b.stampEnd.at(b.data, i)) + i + 1 }
func (b *dataBlock) stampsBefore(i int) int {
	if i == 0 {
		return 0
	}
	return b.stampsEnd(i - 1)
}

// appendKey appends the key of row i.
func (b *dataBlock) appendKey(dst []byte, i int) []byte {
	return append(append(dst, b.prefix()...), b.suffix(i)...)
}

// behindPrefix returns the key without a prefix. If the key has another prefix, order says on
// which side of all keys with this one it sorts: -1 before, 1 after them.
func behindPrefix(prefix, key []byte) (suffix []byte, order int) {
	if suffix, ok := bytes.CutPrefix(key, prefix); ok {
		return suffix, 0
	}
	return nil, bytes.Compare(key, prefix)
}

// searchRow returns the first row whose key is at least key, or b.rows. exact means that
// the row has this key.
func (b *dataBlock) searchRow(key []byte) (i int, exact bool) {
	suffix, order := behindPrefix(b.prefix(), key)
	if order > 0 {
		return b.rows, false
	} else if order < 0 {
		return 0, false
	}
	return b.search(&b.keyEnd, b.keysAt, 0, b.rows, suffix)
}

// searchAfter returns the first row after row i whose key is at least key, or b.rows. Rows
// near i take few comparisons. REQUIRES: the key of row i is below key.
func (b *dataBlock) searchAfter(i int, key []byte) int {
	suffix, order := behindPrefix(b.prefix(), key)
	if order != 0 {
		return b.rows
	}
	low, high := i+1, b.rows
	for step := 1; low+step <= high; step *= 2 {
		if bytes.Compare(b.suffix(low+step-1), suffix) >= 0 {
			high = low + step - 1
			break
		}
		low += step
	}
	i, _ = b.search(&b.keyEnd, b.keysAt, low, high, suffix)
	return i
}

// searchColumn returns the first column whose name is at least name, or b.columns. exact
// means that the column has this name.
func (b *dataBlock) searchColumn(name []byte) (i int, exact bool) {
	return b.search(&b.nameEnd, b.namesAt, 0, b.columns, name)
}

// search returns the first of the strings [low, high) that is at least s, or high. exact means
// that it is s. The strings begin at an offset of the data, and ends says where each ends.
func (b *dataBlock) search(ends *uints, at uint32, low, high int, s []byte) (i int, exact bool) {
	from := b.data[at:]
	for low < high {
		mid := int(uint(low+high) >> 1)
		c := bytes.Compare(from[ends.before(b.data, mid):ends.at(b.data, mid)], s)
		if c == 0 {
			return mid, true
		}
		if c < 0 {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low, false
}

// cellVersion is the version of cell i. first is the first stamp of its row.
func (b *dataBlock) cellVersion(i, first int) int64 {
	if b.kind.at(b.data, i)&kindAtMax != 0 {
		return row.MaxVersion
	}
	return int64(b.version.at(b.data, first+int(b.stamp.at(b.data, i))))
}

// searchCell returns the first of the cells [low, high) of a row that is of a column above
// name, or of column name with at most this version; high if there is none. first is the
// first stamp of the row.
func (b *dataBlock) searchCell(low, high, first int, name []byte, version int64) int {
	n, exact := b.searchColumn(name)
	column := uint64(n)
	for low < high {
		mid := int(uint(low+high) >> 1)
		c := b.columnOf(mid)
		if c < column || exact && c == column && version < row.MaxVersion && b.cellVersion(mid, first) > version {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// cell fills c with cell i of a row, and returns where its value is. It does not set the
// value. first is the first stamp of the row.
func (b *dataBlock) cell(c *row.Cell, i, first int) (from, to int) {
	data := b.data
	s := first + int(b.stamp.at(data, i))
	k := b.kind.at(data, i)
	c.Column = b.name(int(b.columnOf(i)))
	c.Seq = b.seq.at(data, s)
	c.Version = int64(b.version.at(data, s))
	if k&kindAtMax != 0 {
		c.Version = row.MaxVersion
	}
	c.Kind, c.Type, c.Separate = row.Kind(k&kindMask), row.Type(k>>kindTypeBits), false
	if c.Kind == kindSeparate {
		c.Kind, c.Separate = row.KindPut, true
	}
	return b.valueEnd.before(data, i), int(b.valueEnd.at(data, i))
}
