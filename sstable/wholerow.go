package sstable

// Rows that are read as a whole: see row.Extent. What is needed to know of a
// block for that is found out when it is parsed.

import (
	"encoding/binary"

	"github.com/flagstone-db/flagstone/row"
)

// checkPlain checks the cells of a block in which all are puts below
// MaxVersion, of distinct columns within a row. It returns false for any other
// block, damaged ones included. For most blocks it takes the place of
// checkCells, at a quarter of the cost.
func (b *dataBlock) checkPlain() bool {
	b.plain, b.full, b.even, b.oneStamp = false, false, false, b.stamps == b.rows
	data := b.data
	if b.hasEmptyColumn() || b.kind.width == 0 && b.cells > 0 && !plainKind(b.kind.base) {
		return false
	}
	at := 0
	column := int(b.column.off)
	for i := range b.rows {
		end, before := int(b.cellEnd.at(data, i)), uint64(0) // one more than the column before
		for ; at < end; at++ {
			c := b.column.base + binary.LittleEndian.Uint64(data[column:])&b.column.mask
			column += int(b.column.width)
			if c < before || c >= uint64(b.columns) {
				return false
			}
			before = c + 1
			if b.kind.width != 0 || b.kind.base&kindMask == kindSeparate {
				k := b.kind.at(data, at)
				if !plainKind(k) || k&kindMask == kindSeparate && !b.isReference(at) {
					return false
				}
			}
			if (b.stamp.width != 0 || b.stamp.base != 0) &&
				b.stamp.at(data, at) >= uint64(b.stampsEnd(i)-b.stampsBefore(i)) {
				return false
			}
		}
	}
	b.plain, b.full = true, b.cells == b.rows*b.columns
	b.even = b.oneStamp && b.rowFlags.width == 0 && b.rowFlags.base&(rowMarked|rowMarkedForever) != 0
	if b.even {
		b.boundStamps()
	}
	return true
}

// boundStamps finds the bounds of all stamps.
func (b *dataBlock) boundStamps() {
	b.minSeq, b.maxSeq = b.seq.at(b.data, 0), b.seq.at(b.data, 0)
	b.minVersion, b.maxVersion = int64(b.version.at(b.data, 0)), int64(b.version.at(b.data, 0))
	for i := range b.stamps {
		seq, version := b.seq.at(b.data, i), int64(b.version.at(b.data, i))
		b.minSeq, b.maxSeq = min(b.minSeq, seq), max(b.maxSeq, seq)
		b.minVersion, b.maxVersion = min(b.minVersion, version), max(b.maxVersion, version)
	}
}

// plainKind reports whether a cell kind is that of a put below MaxVersion.
func plainKind(k uint64) bool {
	kind := k & (kindMask | kindAtMax)
	return k <= 0xFF && (kind == uint64(row.KindPut) || kind == kindSeparate) && row.Type(k>>kindTypeBits).IsAttributeType()
}

// isReference reports whether the value of cell i has the length of a reference.
func (b *dataBlock) isReference(i int) bool {
	return b.valueEnd.at(b.data, i)-uint64(b.valueEnd.before(b.data, i)) == row.ReferenceBytes
}

// Extent describes the current row, if it is one of a plain block.
func (it *Iterator) Extent(e *row.Extent) bool {
	b := it.block
	if !it.onRow || !b.plain || it.long {
		return false
	}
	it.onCell = false
	it.openRow()
	data := b.data
	seq, version := b.seq.at(data, it.stamp), int64(b.version.at(data, it.stamp))
	e.Cells = it.high - it.low
	e.Deleted, e.DeleteSeq = it.flags&rowDeleted != 0, seq
	e.Marked, e.MarkerSeq, e.MarkerVersion = it.flags&(rowMarked|rowMarkedForever) != 0, seq, version
	if it.flags&rowMarkedForever != 0 {
		e.MarkerVersion = row.MaxVersion
	}
	e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = seq, seq, version, version
	if b.oneStamp {
		return true
	}
	for i, end := it.stamp+1, b.stampsEnd(it.row); i < end; i++ {
		seq, version := b.seq.at(data, i), int64(b.version.at(data, i))
		e.MinSeq, e.MaxSeq = min(e.MinSeq, seq), max(e.MaxSeq, seq)
		e.MinVersion, e.MaxVersion = min(e.MinVersion, version), max(e.MaxVersion, version)
	}
	return true
}

// Stretch describes the current row and those after it in the block that lie
// below the limit, if there are any and the block is even.
func (it *Iterator) Stretch(limit []byte, s *row.Stretch) bool {
	b := it.block
	if !it.onRow || !b.even || it.long {
		return false
	}
	it.onCell = false
	end := b.rows
	if limit != nil && end-it.row > 1 {
		end, _ = b.searchRow(limit)
	}
	if end-it.row < 2 {
		return false
	}
	*s = row.Stretch{
		Rows: end - it.row, MinSeq: b.minSeq, MaxSeq: b.maxSeq, MinVersion: b.minVersion, MaxVersion: b.maxVersion,
		Permanent: b.rowFlags.base&rowMarkedForever != 0,
	}
	return true
}

// Collect appends the wanted cells of the row. REQUIRES: Extent or Stretch
// described it.
func (it *Iterator) Collect(dst *row.Collector, p *row.Projection) {
	it.openRow()
	if p.All() {
		it.collect(dst, it.low, it.high)
		return
	}
	it.resolve(p)
	if len(p.Columns) == 0 {
		from := it.cellOf(it.firstColumn, it.low)
		it.collect(dst, from, it.cellOf(it.endColumn, from))
		return
	}
	at := it.low
	for _, column := range it.columns {
		if at = it.cellOf(column, at); at == it.high {
			return
		}
		if it.block.column.at(it.block.data, at) == uint64(column) {
			it.collect(dst, at, at+1)
			at++
		}
	}
}

// resolve finds out which columns of the block a projection means, unless that
// is known.
func (it *Iterator) resolve(p *row.Projection) {
	if it.projection == p && it.change == p.Change {
		return
	}
	it.projection, it.change = p, p.Change
	b := it.block
	it.firstColumn, it.endColumn = 0, b.columns
	if len(p.Start) > 0 {
		it.firstColumn, _ = b.searchColumn(p.Start)
	}
	if len(p.End) > 0 {
		it.endColumn, _ = b.searchColumn(p.End)
	}
	it.columns = it.columns[:0]
	for _, name := range p.Columns {
		if i, ok := b.searchColumn(name); ok && i >= it.firstColumn && i < it.endColumn {
			it.columns = append(it.columns, i)
		}
	}
}

// cellOf returns the first of the row's cells from at on whose column is at
// least the given one, or the end of the cells.
func (it *Iterator) cellOf(column, at int) int {
	b := it.block
	if b.full {
		return min(it.low+column, it.high)
	}
	low, high := at, it.high
	for low < high {
		mid := int(uint(low+high) >> 1)
		if b.column.at(b.data, mid) < uint64(column) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// collect appends copies of the cells [from, to), in bulk: the values lie one
// behind the other, and so do the names of columns that follow each other.
func (it *Iterator) collect(dst *row.Collector, from, to int) {
	if from >= to {
		return
	}
	b, data := it.block, it.block.data
	at := b.valueEnd.before(data, from)
	values := dst.Copy(b.values[at:b.valueEnd.at(data, to-1)])
	first, last := int(b.column.at(data, from)), int(b.column.at(data, to-1))
	nameAt := b.nameEnd.before(data, first)
	names := b.names[nameAt:b.nameEnd.at(data, last)]
	// A row with few of the columns of a block has each name copied for itself.
	sparse := last-first > 2*(to-from)
	if !sparse {
		names = dst.Copy(names)
	}
	seq, version := b.seq.at(data, it.stamp), int64(b.version.at(data, it.stamp))
	value, column := 0, first
	for i, cells := from, dst.Extend(to-from); i < to; i++ {
		c := &cells[i-from]
		if !b.full {
			column = int(b.column.at(data, i))
		}
		name := names[b.nameEnd.before(data, column)-nameAt : int(b.nameEnd.at(data, column))-nameAt]
		if sparse {
			name = dst.Copy(name)
		}
		column++
		if !b.oneStamp {
			s := it.stamp + int(b.stamp.at(data, i))
			seq, version = b.seq.at(data, s), int64(b.version.at(data, s))
		}
		end := int(b.valueEnd.at(data, i)) - at
		c.Column, c.Value = name[:len(name):len(name)], values[value:end:end]
		c.Version, c.Seq = version, seq
		kind := b.kind.at(data, i)
		c.Kind, c.Type, c.Separate = row.KindPut, row.Type(kind>>kindTypeBits), kind&kindMask == kindSeparate
		value = end
	}
}
