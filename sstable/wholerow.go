package sstable

// Reading rows as a whole: see row.Extent. Parsing a block finds out what this needs to know.

import (
	"encoding/binary"

	"github.com/flagstone-db/flagstone/row"
)

// checkPlain checks the cells of a plain block: all are puts below MaxVersion, no two of one
// column and version in a row. It returns false for any other block, including damaged ones.
// For most blocks it replaces checkCells, at a quarter of the cost.
func (b *dataBlock) checkPlain() bool {
	b.plain, b.full, b.even, b.oneStamp = false, false, false, b.stamps == b.rows
	data := b.data
	if b.hasEmptyColumn() || b.kind.width() == 0 && b.cells > 0 && !plainKind(b.kind.base) {
		return false
	}
	oneKind := b.kind.width() == 0 && b.kind.base&kindMask != kindSeparate
	at, most := 0, 1
	if b.ordered && oneKind && b.stamp.width() == 0 && b.stamp.base == 0 {
		at = b.cells // nothing differs from cell to cell
	}
	column, mask := int(b.column.off), b.column.mask()
	for i := range b.rows {
		end, before := int(b.cellEnd.at(data, i)), uint64(0) // before is one more than the column before
		versions := 0
		for ; at < end; at++ {
			c := before
			if !b.ordered {
				c = b.column.base + binary.LittleEndian.Uint64(data[column:])&mask
				column += b.column.width()
				if c+1 < before || c >= uint64(b.columns) {
					return false
				}
			}
			if !oneKind {
				k := b.kind.at(data, at)
				if !plainKind(k) || k&kindMask == kindSeparate && !b.isReference(at) {
					return false
				}
			}
			if (b.stamp.width() != 0 || b.stamp.base != 0) &&
				b.stamp.at(data, at) >= uint64(b.stampsEnd(i)-b.stampsBefore(i)) {
				return false
			}
			if versions++; c+1 != before {
				before, versions = c+1, 1
			} else if first := b.stampsBefore(i); b.cellVersion(at, first) >= b.cellVersion(at-1, first) {
				return false
			}
			most = max(most, versions)
		}
	}
	b.plain, b.versions, b.full = true, most, most == 1 && b.cells == b.rows*b.columns
	b.even = b.rowFlags.width() == 0 && b.rowFlags.base&(rowMarked|rowMarkedForever) != 0 &&
		(b.oneStamp || b.rowFlags.base&rowDeleted == 0)
	if b.even {
		b.minSeq, b.maxSeq, b.minVersion, b.maxVersion = b.stampBounds(0, b.stamps)
	}
	return true
}

// plainRow describes the cells [low, high) of a row of a block that is not plain, if they are
// as in a plain block. first is the row's first stamp. A delete-row and a marker may be among
// the cells; those that are flags are not described. REQUIRES: the block was checked when it
// was parsed.
func (b *dataBlock) plainRow(e *row.Extent, low, high, first int) bool {
	e.Deleted, e.Marked, e.Versions = false, false, 0
	puts := b.afterRowLevel(low, high)
	if puts-low > 2 {
		return false
	}
	var c row.Cell
	for i := low; i < puts; i++ {
		if b.cell(&c, i, first); c.Kind == row.KindDeleteRow && !e.Marked && !e.Deleted {
			e.Deleted, e.DeleteSeq = true, c.Seq
		} else if c.Kind == row.KindRowMarker && !e.Marked {
			e.Marked, e.MarkerSeq, e.MarkerVersion = true, c.Seq, c.Version
		} else {
			return false
		}
	}
	e.Cells = high - puts
	versions, before := 0, uint64(0)
	for i := puts; i < high; i++ {
		column := b.columnOf(i)
		if versions++; i == puts || column > before {
			versions = 1
		} else if column < before || b.cellVersion(i, first) >= b.cellVersion(i-1, first) {
			return false
		}
		if !plainKind(b.kind.at(b.data, i)) {
			return false
		}
		e.Versions, before = max(e.Versions, versions), column
	}
	return true
}

// afterRowLevel returns the first of a row's cells that is not row-level.
func (b *dataBlock) afterRowLevel(low, high int) int {
	if !b.plain && b.hasEmptyColumn() {
		for low < high && b.columnOf(low) == 0 {
			low++
		}
	}
	return low
}

// stampBounds returns the bounds of the stamps [from, to).
func (b *dataBlock) stampBounds(from, to int) (minSeq, maxSeq uint64, minVersion, maxVersion int64) {
	minSeq, minVersion = b.seq.at(b.data, from), int64(b.version.at(b.data, from))
	maxSeq, maxVersion = minSeq, minVersion
	for i := from + 1; i < to; i++ {
		seq, version := b.seq.at(b.data, i), int64(b.version.at(b.data, i))
		minSeq, maxSeq = min(minSeq, seq), max(maxSeq, seq)
		minVersion, maxVersion = min(minVersion, version), max(maxVersion, version)
	}
	return minSeq, maxSeq, minVersion, maxVersion
}

// wholeCells is the most cells of a row that Extent examines, in a block that is not plain, to
// tell whether it can describe the row. A reader may want only few of them.
const wholeCells = 128

// plainKind reports whether k is the kind of a put below MaxVersion.
func plainKind(k uint64) bool {
	kind := k & (kindMask | kindAtMax)
	return k <= 0xFF && (kind == uint64(row.KindPut) || kind == kindSeparate) && row.Type(k>>kindTypeBits).IsAttributeType()
}

// isReference reports whether the value of cell i has the length of a reference.
func (b *dataBlock) isReference(i int) bool {
	return b.valueEnd.at(b.data, i)-uint64(b.valueEnd.before(b.data, i)) == row.ReferenceBytes
}

// Extent describes the current row, if it lies in one block and is as in a plain block, and
// with it the rows after it in the block, if the block is even.
func (it *Iterator) Extent(ask row.Ask, e *row.Extent) (newer row.Cursor, ok bool) {
	if !it.onRow || it.long {
		return nil, false
	}
	it.onCell = false
	e.Rows = 0
	if ask.Rows && it.blocks.block.even {
		return nil, it.describeMany(ask.Limit, e)
	}
	if !it.openValues() {
		return nil, false
	}
	it.openRow()
	b, data := it.blocks.block, it.blocks.block.data
	e.Cells, e.Versions = it.high-it.low, b.versions
	if !b.plain && (e.Cells > wholeCells || !b.plainRow(e, it.low, it.high, it.stamp)) {
		return nil, false
	}
	seq, version := b.seq.at(data, it.stamp), int64(b.version.at(data, it.stamp))
	if b.plain || it.flags != 0 {
		if e.Cells < it.high-it.low {
			return nil, false // row-level cells besides the flags
		}
		e.Deleted, e.DeleteSeq = it.flags&rowDeleted != 0, seq
		e.Marked, e.MarkerSeq, e.MarkerVersion = it.flags&(rowMarked|rowMarkedForever) != 0, seq, version
		if it.flags&rowMarkedForever != 0 {
			e.MarkerVersion = row.MaxVersion
		}
	}
	e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = seq, seq, version, version
	if !b.oneStamp {
		e.MinSeq, e.MaxSeq, e.MinVersion, e.MaxVersion = b.stampBounds(it.stamp, b.stampsEnd(it.row))
	}
	return nil, true
}

// describeMany describes the current row and those after it in an even block that lie below
// limit. It returns false if it cannot open the values.
func (it *Iterator) describeMany(limit []byte, e *row.Extent) bool {
	b := it.blocks.block
	end := b.rows
	if limit != nil {
		end = b.searchAfter(it.row, limit)
	}
	it.blocks.described = end
	if !it.openValues() {
		return false
	}
	*e = row.Extent{
		Rows: end - it.row, Deleted: b.rowFlags.base&rowDeleted != 0, DeleteSeq: b.minSeq, Marked: true, MarkerSeq: b.minSeq, MarkerVersion: b.maxVersion, Versions: b.versions,
		MinSeq: b.minSeq, MaxSeq: b.maxSeq, MinVersion: b.minVersion, MaxVersion: b.maxVersion,
	}
	if b.rowFlags.base&rowMarkedForever != 0 {
		e.MarkerVersion = row.MaxVersion
	}
	return true
}

// Collect appends the wanted cells of the row. REQUIRES: Extent described it.
func (it *Iterator) Collect(dst *row.Collector, p *row.Projection) {
	it.openRow()
	l, c := &it.blocks.loadedBlock, &it.rowCells
	b, at := l.block, l.block.afterRowLevel(it.low, it.high)
	it.columns.resolve(l, p)
	from := at // of cells that were found and lie side by side
	for _, s := range it.columns.spans {
		if next := b.cellOf(c, s.first, at); next != at {
			l.collectNewest(dst, c, from, at, p)
			from, at = next, next
		}
		at = b.cellOf(c, s.end, at)
	}
	l.collectNewest(dst, c, from, at, p)
}

// Stored tells how the values of the row that Extent described last are stored. They were
// verified. It returns the zero value if they share a segment with those of another row,
// or come from the cache.
func (it *Iterator) Stored() row.Stored {
	b := &it.blocks
	if len(b.stored.Bytes) == 0 || b.valueRows-b.valueRow != 1 {
		return row.Stored{}
	}
	return b.stored
}

// collectNewest collects the newest cells of each column among the cells [from, to), as many
// as the projection wants.
func (l *loadedBlock) collectNewest(dst *row.Collector, c *rowCells, from, to int, p *row.Projection) {
	b := l.block
	if b.plain && !p.Cuts(b.versions) {
		l.collect(dst, c, from, to)
		return
	}
	for from < to {
		end := to // where the column ends
		if column := b.columnOf(from); b.columnOf(to-1) != column {
			end = b.cellOf(c, int(column)+1, from+1)
		}
		wanted := end
		if p.Cuts(end - from) {
			wanted = from + p.Versions
		}
		l.collect(dst, c, from, wanted)
		from = end
	}
}

// wantedColumns are the columns of a block that a projection wants.
type wantedColumns struct {
	projection *row.Projection // at its change, for the block with this number
	change     uint64
	number     int
	spans      []columnSpan // in ascending order, not touching
	count      int          // of their columns
}

// columnSpan is the columns [first, end) of a block.
type columnSpan struct{ first, end int }

// resolve finds out which columns of a block a projection wants, unless it knows already.
func (w *wantedColumns) resolve(l *loadedBlock, p *row.Projection) {
	if w.projection == p && w.change == p.Change && w.number == l.number {
		return
	}
	w.projection, w.change, w.number = p, p.Change, l.number
	b := l.block
	first, end := 0, b.columns
	if len(p.Start) > 0 {
		first, _ = b.searchColumn(p.Start)
	}
	if len(p.End) > 0 {
		end, _ = b.searchColumn(p.End)
	}
	w.spans, w.count = w.spans[:0], 0
	if len(p.Columns) == 0 && first < end {
		w.spans, w.count = append(w.spans, columnSpan{first, end}), end-first
	}
	for _, name := range p.Columns {
		i, ok := b.searchColumn(name)
		if !ok || i < first || i >= end {
			continue
		}
		w.count++
		if n := len(w.spans); n > 0 && w.spans[n-1].end == i {
			w.spans[n-1].end++
		} else {
			w.spans = append(w.spans, columnSpan{i, i + 1})
		}
	}
}

// cellOf returns the first of a row's cells, from at on, whose column is at least the given
// one, or the end of the cells. Cells near at take few steps.
func (b *dataBlock) cellOf(c *rowCells, column, at int) int {
	switch {
	case column == b.columns:
		return c.high
	case b.full:
		return c.low + column
	}
	low, high := at, c.high
	for step := 1; low+step <= high; step *= 2 {
		if b.columnOf(low+step-1) >= uint64(column) {
			high = low + step - 1
			break
		}
		low += step
	}
	for low < high {
		mid := int(uint(low+high) >> 1)
		if b.columnOf(mid) < uint64(column) {
			low = mid + 1
		} else {
			high = mid
		}
	}
	return low
}

// collect appends copies of the cells [from, to) in bulk: the values are contiguous, and so
// are the names of consecutive columns.
func (l *loadedBlock) collect(dst *row.Collector, r *rowCells, from, to int) {
	if from >= to {
		return
	}
	b, data := l.block, l.block.data
	at := b.valueEnd.before(data, from)
	values := dst.Copy(l.values[at-l.valuesAt : int(b.valueEnd.at(data, to-1))-l.valuesAt])
	first, last := from-r.low, to-1-r.low
	if !b.full {
		first, last = int(b.columnOf(from)), int(b.columnOf(to-1))
	}
	nameAt := b.nameEnd.before(data, first)
	names := b.names()[nameAt:b.nameEnd.at(data, last)]
	copyNames := dst // if a row has few of the columns of a block, each name is copied by itself
	if last-first <= 2*(to-from) {
		names, copyNames = dst.Copy(names), nil
	}
	b.fill(dst.Extend(to-from), *r, from, first-1, names, nameAt, values, at, copyNames)
}

// fill makes cells of those of the block from cell at on: of the row r, then of the rows after it.
// column is the column before that of the first cell, if the block is full, or any before that.
// names has the names from nameAt on, values the values from valueAt on. copyNames, if not nil,
// copies each name. REQUIRES: nameAt is 0, if there are several rows.
//
// The loop loads as little as it can. The end of a name is the beginning of the next column's
// name, and what all cells of the block have in common is loaded before.
func (b *dataBlock) fill(cells []row.Cell, r rowCells, at, column int, names []byte, nameAt int, values []byte, valueAt int, copyNames *row.Collector) {
	data := b.data
	nameEnd, valueEnd, stamps, kinds := b.nameEnd, b.valueEnd, b.stamp, b.kind
	full, oneStamp, kind := b.full, b.oneStamp, kinds.base
	seq, version := b.seq.at(data, r.stamp), int64(b.version.at(data, r.stamp))
	value, nameFrom, nameTo := valueEnd.before(data, at)-valueAt, 0, 0
	var name []byte
	for i := range cells {
		for at == r.high {
			r.row++
			r.high, r.stamp = b.cellsEnd(r.row), b.stampsBefore(r.row)
			seq, version = b.seq.at(data, r.stamp), int64(b.version.at(data, r.stamp))
			column, nameTo = -1, 0
		}
		next := column + 1
		if !full {
			next = int(b.columnOf(at))
		}
		if next != column {
			if nameFrom = nameTo; next != column+1 {
				nameFrom = nameEnd.before(data, next) - nameAt
			}
			nameTo = int(nameEnd.at(data, next)) - nameAt
			name = names[nameFrom:nameTo:nameTo]
			if copyNames != nil {
				name = copyNames.Copy(name)
			}
			column = next
		}
		if !oneStamp {
			s := r.stamp + int(stamps.at(data, at))
			seq, version = b.seq.at(data, s), int64(b.version.at(data, s))
		}
		if kinds.width() != 0 {
			kind = kinds.at(data, at)
		}
		end := int(valueEnd.at(data, at)) - valueAt
		c := &cells[i]
		c.Column, c.Value = name, values[value:end:end]
		c.Version, c.Seq = version, seq
		c.Kind, c.Type = row.KindPut, row.Type(kind>>kindTypeBits)
		c.Separate, c.Packed = kind&kindMask == kindSeparate, false
		value = end
		at++
	}
}
