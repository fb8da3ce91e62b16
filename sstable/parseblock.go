package sstable

// Parsing a data block. The parser checks once what memory safety and termination need, so
// that later reads need no checks.

import "github.com/flagstone-db/flagstone/row"

// wholeBlock is where the head of a block without segments was stored: there is none.
const wholeBlock = -1

// anyPlace is where the head was stored of a block of which only the end is known.
const anyPlace = -2

// parse makes b the parsed form of data, and keeps data: of a head, which was stored at offset
// at in its block, or of a block of version 1 or 2. It returns what is wrong, or "".
func (b *dataBlock) parse(data []byte, at int) (bad string) {
	whole, most := at == wholeBlock, at
	if at == anyPlace {
		most = maxStoredBlock
	}
	c := cursor{data: data, noSteps: whole}
	*b = dataBlock{data: data}
	flags := c.byte("flags")
	if flags&^(blockContinued|blockContinues|blockOrdered) != 0 || whole && flags&blockOrdered != 0 {
		c.fail("unknown block flags")
	}
	b.continued, b.continues = flags&blockContinued != 0, flags&blockContinues != 0
	b.ordered = flags&blockOrdered != 0
	// Elements may take no bytes, so the bytes that follow do not bound a count. But
	// rows differ in their keys, columns in their names, and cells of one column and
	// stamp in their kind. This bounds the work of parsing. The cells of a head may
	// differ only in their values, which are elsewhere.
	limit := 8 * len(data)
	b.rows = c.count(limit, "row count")
	b.stamps = c.count(limit, "stamp count")
	b.columns = c.count(limit, "column count")
	if whole {
		b.cells = c.count(limit, "cell count")
	} else {
		b.cells = c.count(maxCells, "cell count")
		b.segments = c.count(min(maxSegments, b.rows), "segment count")
	}
	prefix := c.count(row.MaxKeyBytes, "key prefix")
	b.keyEnd = c.steps(b.rows, len(data), "key ends")
	b.cellEnd = c.steps(b.rows, b.cells, "cell ends")
	b.stampEnd = c.uints(b.rows, "stamp ends")
	b.rowFlags = c.uints(b.rows, "row flags")
	b.seq = c.uints(b.stamps, "sequence numbers")
	b.version = c.uints(b.stamps, "versions")
	b.nameEnd = c.steps(b.columns, len(data), "name ends")
	withColumn := b.cells
	if b.ordered {
		withColumn = 0
	}
	b.column = c.uints(withColumn, "cell columns")
	b.stamp = c.uints(b.cells, "cell stamps")
	b.kind = c.uints(b.cells, "cell kinds")
	b.valueEnd = c.steps(b.cells, maxRawBlock, "value ends")
	if !whole {
		b.rowEnd = c.steps(b.segments, b.rows, "segment rows")
		b.partEnd = c.steps(b.segments, most, "segment ends")
	}
	c.pad()
	b.parseStrings(&c, prefix)
	values := c.ends(&b.valueEnd, b.cells, maxRawBlock, "value ends")
	if whole {
		c.bytes(values, "values")
	} else if end := c.ends(&b.partEnd, b.segments, most, "segment ends"); end != at && at != anyPlace ||
		c.ends(&b.rowEnd, b.segments, b.rows, "segment rows") != b.rows {
		c.fail("segments do not end where rows and block do")
	}
	return b.check(&c)
}

// parseStrings finds the prefix, the key suffixes and the names.
func (b *dataBlock) parseStrings(c *cursor, prefix int) {
	b.prefixAt = uint32(c.at)
	c.bytes(prefix, "key prefix")
	b.keysAt = uint32(c.at)
	c.bytes(c.ends(&b.keyEnd, b.rows, c.rest(), "key ends"), "keys")
	b.namesAt = uint32(c.at)
	c.bytes(c.ends(&b.nameEnd, b.columns, c.rest(), "name ends"), "column names")
	b.valuesFrom = uint32(c.at)
}

// check checks rows, segments and cells, and that no bytes are left over.
func (b *dataBlock) check(c *cursor) (bad string) {
	if c.ends(&b.cellEnd, b.rows, b.cells, "cell ends") != b.cells {
		c.fail("cells without a row")
	}
	if bad = c.end(); bad == "" {
		bad = b.checkRows()
	}
	if bad != "" {
		return bad
	}
	for k := range b.segments {
		if b.rowEnd.at(b.data, k)-uint64(b.rowEnd.before(b.data, k)) == 0 || b.partEnd.at(b.data, k)-uint64(b.partEnd.before(b.data, k)) < trailerSize {
			return "segment without rows or a trailer"
		}
	}
	return b.checkCells()
}

// checkRows checks the arrays of rows.
func (b *dataBlock) checkRows() string {
	if b.rows == 0 || b.rows > 1 && (b.continued || b.continues) {
		return "wrong number of rows for the block's flags"
	}
	if b.rows == 1 && b.keysAt != b.namesAt {
		return "the prefix is not the key of the only row"
	}
	stampAt := 0
	for i := range b.rows {
		end, flags := b.stampEnd.at(b.data, i), b.rowFlags.at(b.data, i)
		switch {
		case b.keyEnd.at(b.data, i)-uint64(b.keyEnd.before(b.data, i)) > row.MaxKeyBytes-uint64(b.keysAt-b.prefixAt):
			return "row key too long"
		case end > uint64(b.stamps) || int(end)+i+1 <= stampAt || int(end)+i+1 > b.stamps:
			return "stamp ends out of order or range"
		case flags > rowDeleted|rowMarked|rowMarkedForever || flags&(rowMarked|rowMarkedForever) == rowMarked|rowMarkedForever:
			return "unknown row flags"
		case flags == 0 && b.cellEnd.length(b.data, i) == 0 || flags != 0 && b.continued:
			return "row without cells, or row flags in a continuation"
		case b.ordered && (b.cellEnd.at(b.data, i) != uint64(i+1)*uint64(b.columns) || b.columns == 0):
			return "rows of an ordered block differ in their cells"
		}
		stampAt = int(end) + i + 1
	}
	if stampAt != b.stamps {
		return "stamps without a row"
	}
	return ""
}

// checkCells checks the arrays of cells, and the column names.
func (b *dataBlock) checkCells() string {
	for i := range b.columns {
		switch n := b.nameEnd.at(b.data, i) - uint64(b.nameEnd.before(b.data, i)); {
		case n > row.MaxColumnBytes:
			return "column name too long"
		case n == 0 && i > 0:
			return "column without a name"
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
			column, k := b.columnOf(at), b.kind.at(b.data, at)
			kind, typ := row.Kind(k&kindMask), row.Type(k>>kindTypeBits)
			separate := kind == kindSeparate
			if separate {
				kind = row.KindPut
			}
			switch put := kind == row.KindPut; {
			case column >= uint64(b.columns):
				return "cell of an unknown column"
			case b.stamp.at(b.data, at) >= stamps:
				return "cell with an unknown stamp"
			case separate && !b.isReference(at):
				return "reference of the wrong length"
			case k > 0xFF || !kind.Valid() || typ.IsAttributeType() != put || typ != row.TypeNone && !put:
				return "unknown cell kind or type"
			case kind.IsRowLevel() != (column == 0 && b.hasEmptyColumn()):
				return "cell kind does not go with its column"
			case !put && b.valueEnd.length(b.data, at) != 0:
				return "cell that is no put has a value"
			}
		}
	}
	return ""
}
