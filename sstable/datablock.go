package sstable

// A data block, before compression:
//
//	header    flags     1 byte: bit 0  the row continues one of the block before
//	                            bit 1  the row continues in the next block
//	          rows      uvarint, at least 1; exactly 1 if a flag is set
//	          stamps    uvarint
//	          columns   uvarint
//	          cells     uvarint
//	          prefix    uvarint: length of the prefix that all row keys share,
//	                    the whole key if there is one row
//	arrays    (see uints.go)
//	  of rows    keyEnd     end of the row's key suffix among the suffixes
//	             cellEnd    end of its cells; they begin where the row before ends
//	             stampEnd   end of its stamps, less its number and one
//	             rowFlags   its row-level cells, see below
//	  of stamps  seq, version
//	  of columns nameEnd    end of the column's name among the names
//	  of cells   column     number of the column
//	             stamp      number of the stamp, counted from the row's first
//	             kind       bits 0-2 kind, or 6 for a put whose value is in a
//	                        value file; bit 3 version is MaxVersion, bits 4-7
//	                        value type
//	             valueEnd   end of the value among the values
//	padding   8 zero bytes
//	strings   prefix, key suffixes, column names, values: to the block's end
//
// A stamp is a (sequence number, version) that cells of a row share. Cells that
// were written together share one, so a row that was put at once has one stamp
// and its cells none of their own: the stamp array is then all zero and takes
// no space.
//
// Row-level cells. Nearly every row has a delete-row and a marker of one
// mutation, or a marker alone; these take no cell but bits of rowFlags:
//
//	1  delete-row at the sequence number of the row's first stamp
//	2  row marker at the sequence number and version of that stamp
//	4  row marker at that sequence number, version MaxVersion
//
// They come before the row's other cells. Any other set of row-level cells is
// stored as cells of the column with the empty name.
//
// The version of a cell with kind bit 3 is MaxVersion whatever its stamp says;
// so a delete-column does not widen the version array to eight bytes.
//
// Invariants: keys rise strictly; column names rise strictly; the cells of a
// row are in cell order; the empty column has row-level kinds only, and they no
// other; only puts have types and values; ends do not fall and end exactly
// where the strings end. parse checks what memory safety and termination need,
// Reader.Verify the rest.
//
// A worked example is in docs/format-sstable.md.
//
// Rejected: restart points in the row directory (they compress keys better,
// but a row is then reached by decoding its neighbours, and a step back is a
// rescan; the block's common prefix takes most of what there is to take), and
// version and sequence deltas per cell (ten cells, one of them updated alone,
// then pay eight bytes each; stamps pay one).

import (
	"bytes"

	"github.com/flagstone-db/flagstone/row"
)

const (
	blockContinued = 1 << 0
	blockContinues = 1 << 1

	rowDeleted       = 1 << 0
	rowMarked        = 1 << 1
	rowMarkedForever = 1 << 2

	kindMask     = 0x07
	kindSeparate = 0x06 // a put whose value is a row.Reference
	kindAtMax    = 0x08
	kindTypeBits = 4
)

// dataBlock is a parsed data block: where its arrays are, and the block itself.
// It is immutable and shared between iterators. In the cache it lies off the Go
// heap: it must hold no pointer but into data.
type dataBlock struct {
	data                                []byte
	continued, continues                bool
	rows, stamps, columns, cells        int
	keyEnd, cellEnd, stampEnd, rowFlags uints
	seq, version                        uints
	nameEnd                             uints
	column, stamp, kind, valueEnd       uints
	prefix, keys, names, values         []byte

	// Found out by checkPlain: all cells are puts below MaxVersion, no two of one
	// column and version within a row; every row has all the columns, once; every
	// row has one stamp; no row has more versions of a column than that.
	plain, full, oneStamp bool
	versions              int
	// And if so: every row has the same row flags, one of them that of a marker, and
	// none was deleted after a cell of it was put. The bounds of the stamps are known
	// then.
	even                   bool
	minSeq, maxSeq         uint64
	minVersion, maxVersion int64
}

// parse makes b the parsed form of data, which it keeps, and returns what is
// wrong with it, or "".
func (b *dataBlock) parse(data []byte) (bad string) {
	c := cursor{data: data}
	*b = dataBlock{data: data}
	flags := c.byte("flags")
	if flags&^(blockContinued|blockContinues) != 0 {
		c.fail("unknown block flags")
	}
	b.continued, b.continues = flags&blockContinued != 0, flags&blockContinues != 0
	// Elements may take no bytes, so a count is not bounded by what follows; but
	// rows differ in their keys, columns in their names, and cells with one
	// column and stamp only in their kind. This bounds the work of parsing.
	limit := 8 * len(data)
	b.rows = c.count(limit, "row count")
	b.stamps = c.count(limit, "stamp count")
	b.columns = c.count(limit, "column count")
	b.cells = c.count(limit, "cell count")
	prefix := c.count(row.MaxKeyBytes, "key prefix")
	b.keyEnd = c.uints(b.rows, "key ends")
	b.cellEnd = c.uints(b.rows, "cell ends")
	b.stampEnd = c.uints(b.rows, "stamp ends")
	b.rowFlags = c.uints(b.rows, "row flags")
	b.seq = c.uints(b.stamps, "sequence numbers")
	b.version = c.uints(b.stamps, "versions")
	b.nameEnd = c.uints(b.columns, "name ends")
	b.column = c.uints(b.cells, "cell columns")
	b.stamp = c.uints(b.cells, "cell stamps")
	b.kind = c.uints(b.cells, "cell kinds")
	b.valueEnd = c.uints(b.cells, "value ends")
	c.pad()
	if c.bad != "" {
		return c.bad
	}
	b.prefix = c.bytes(prefix, "key prefix")
	b.keys = c.bytes(c.ends(&b.keyEnd, b.rows, c.rest(), "key ends"), "keys")
	b.names = c.bytes(c.ends(&b.nameEnd, b.columns, c.rest(), "name ends"), "column names")
	b.values = c.bytes(c.ends(&b.valueEnd, b.cells, c.rest(), "value ends"), "values")
	if c.rest() != 0 {
		c.fail("bytes after the values")
	}
	if c.ends(&b.cellEnd, b.rows, b.cells, "cell ends") != b.cells {
		c.fail("cells without a row")
	}
	if c.bad != "" {
		return c.bad
	}
	if bad = b.checkRows(); bad != "" {
		return bad
	}
	return b.checkCells()
}

// checkRows checks what belongs to rows.
func (b *dataBlock) checkRows() string {
	if b.rows == 0 || b.rows > 1 && (b.continued || b.continues) {
		return "wrong number of rows for the block's flags"
	}
	if b.rows == 1 && len(b.keys) != 0 {
		return "the prefix is not the key of the only row"
	}
	stampAt := 0
	for i := range b.rows {
		n := b.keyEnd.at(b.data, i) - uint64(b.keyEnd.before(b.data, i))
		if n > row.MaxKeyBytes-uint64(len(b.prefix)) {
			return "row key too long"
		}
		end := b.stampEnd.at(b.data, i)
		if end > uint64(b.stamps) || int(end)+i+1 <= stampAt || int(end)+i+1 > b.stamps {
			return "stamp ends out of order or range"
		}
		stampAt = int(end) + i + 1
		flags := b.rowFlags.at(b.data, i)
		if flags > rowDeleted|rowMarked|rowMarkedForever || flags&(rowMarked|rowMarkedForever) == rowMarked|rowMarkedForever {
			return "unknown row flags"
		}
		if flags == 0 && b.cellsBefore(i) == int(b.cellEnd.at(b.data, i)) || flags != 0 && b.continued {
			return "row without cells, or row flags in a continuation"
		}
	}
	if stampAt != b.stamps {
		return "stamps without a row"
	}
	return ""
}

// checkCells checks what belongs to cells.
func (b *dataBlock) checkCells() string {
	if b.columns > 0 {
		from := uint64(0)
		for i := range b.columns {
			end := b.nameEnd.at(b.data, i)
			if end-from > row.MaxColumnBytes {
				return "column name too long"
			}
			if end == from && i > 0 {
				return "column without a name"
			}
			from = end
		}
	}
	if b.checkPlain() {
		return ""
	}
	at := 0
	for i := range b.rows {
		end := int(b.cellEnd.at(b.data, i))
		stamps := uint64(b.stampsEnd(i) - b.stampsBefore(i))
		for ; at < end; at++ {
			column := b.column.at(b.data, at)
			if column >= uint64(b.columns) {
				return "cell of an unknown column"
			}
			if b.stamp.at(b.data, at) >= stamps {
				return "cell with an unknown stamp"
			}
			k := b.kind.at(b.data, at)
			kind, typ := row.Kind(k&kindMask), row.Type(k>>kindTypeBits)
			if kind == kindSeparate {
				kind = row.KindPut
				if !b.isReference(at) {
					return "reference of the wrong length"
				}
			}
			if k > 0xFF || !kind.Valid() || typ.IsAttributeType() != (kind == row.KindPut) ||
				typ != row.TypeNone && kind != row.KindPut {
				return "unknown cell kind or type"
			}
			if kind.IsRowLevel() != (column == 0 && b.hasEmptyColumn()) {
				return "cell kind does not go with its column"
			}
			if kind != row.KindPut && b.valueEnd.at(b.data, at) != uint64(b.valueEnd.before(b.data, at)) {
				return "cell that is no put has a value"
			}
		}
	}
	return ""
}

// hasEmptyColumn reports whether column 0 is that of explicit row-level cells.
func (b *dataBlock) hasEmptyColumn() bool { return b.columns > 0 && b.nameEnd.at(b.data, 0) == 0 }

func (b *dataBlock) suffix(i int) []byte {
	return b.keys[b.keyEnd.before(b.data, i):b.keyEnd.at(b.data, i)]
}

func (b *dataBlock) name(i int) []byte {
	from, to := b.nameEnd.before(b.data, i), int(b.nameEnd.at(b.data, i))
	return b.names[from:to:to]
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
	return append(append(dst, b.prefix...), b.suffix(i)...)
}

// searchRow returns the first row whose key is at least key, or b.rows, and
// whether that row has exactly this key.
func (b *dataBlock) searchRow(key []byte) (i int, exact bool) {
	p := len(b.prefix)
	if len(key) < p || !bytes.Equal(key[:p], b.prefix) {
		if bytes.Compare(key, b.prefix) < 0 {
			return 0, false
		}
		return b.rows, false
	}
	key = key[p:]
	low, high := 0, b.rows
	for low < high {
		mid := int(uint(low+high) >> 1)
		c := bytes.Compare(b.suffix(mid), key)
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

// searchColumn returns the first column whose name is at least name, or
// b.columns, and whether it is exactly this one.
func (b *dataBlock) searchColumn(name []byte) (i int, exact bool) {
	low, high := 0, b.columns
	for low < high {
		mid := int(uint(low+high) >> 1)
		c := bytes.Compare(b.name(mid), name)
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

// cellVersion is the version of cell i; first is its row's first stamp.
func (b *dataBlock) cellVersion(i, first int) int64 {
	if b.kind.at(b.data, i)&kindAtMax != 0 {
		return row.MaxVersion
	}
	return int64(b.version.at(b.data, first+int(b.stamp.at(b.data, i))))
}

// searchCell returns the first of the cells [low, high), of a row whose first
// stamp is given, that is of a column above name, or of that column with a
// version of at most version; high if there is none.
func (b *dataBlock) searchCell(low, high, first int, name []byte, version int64) int {
	n, exact := b.searchColumn(name)
	column := uint64(n)
	for low < high {
		mid := int(uint(low+high) >> 1)
		c := b.column.at(b.data, mid)
		if c < column || exact && c == column && version < row.MaxVersion && b.cellVersion(mid, first) > version {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// cell fills c with cell i of a row whose first stamp is given.
func (b *dataBlock) cell(c *row.Cell, i, first int) {
	data := b.data
	s := first + int(b.stamp.at(data, i))
	k := b.kind.at(data, i)
	c.Column = b.name(int(b.column.at(data, i)))
	c.Seq = b.seq.at(data, s)
	c.Version = int64(b.version.at(data, s))
	if k&kindAtMax != 0 {
		c.Version = row.MaxVersion
	}
	c.Kind, c.Type, c.Separate = row.Kind(k&kindMask), row.Type(k>>kindTypeBits), false
	if c.Kind == kindSeparate {
		c.Kind, c.Separate = row.KindPut, true
	}
	from, to := b.valueEnd.before(data, i), int(b.valueEnd.at(data, i))
	c.Value = b.values[from:to:to]
}
