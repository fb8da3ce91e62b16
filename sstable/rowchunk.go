package sstable

// Rows that are read several at once: see row.Chunk.

import "github.com/flagstone-db/flagstone/row"

// CollectRows adds the current row and those after it, at most so many and as
// many as dst has a budget for, and moves to the last of them. It returns their
// number, at least 1. nil wants no columns. REQUIRES: Stretch described the rows.
//
// What is the same for all rows of a block is looked up once: the widths of its
// integers, the names of its columns. Values that lie one behind the other are
// copied in one piece.
func (it *Iterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	b := it.block
	perRow := (b.rawSize() + b.rows - 1) / b.rows
	rows = max(min(rows, dst.Budget/perRow), 1)
	from := it.row
	to := from + rows
	switch {
	case p == nil:
		for i := from; i < to; i++ {
			dst.AddKey(b.prefix, b.suffix(i))
			dst.EndRow(len(dst.Cells))
		}
	case p.All() && !p.Cuts(b.versions) && len(b.names) <= dst.Budget:
		names := dst.Copy(b.names)
		for it.row < to && it.moreValues() {
			end := min(to, it.valueRows)
			it.collectRows(dst, names, it.row, end)
			it.row = end
		}
		to = it.row
	default:
		for ; it.row < to && it.moreValues(); it.row++ {
			dst.AddKey(b.prefix, b.suffix(it.row))
			it.Collect(&dst.Collector, p)
			dst.EndRow(len(dst.Cells))
		}
		to = it.row
	}
	it.setRow(it.group, to-1)
	return to - from
}

// moreValues opens the values of the current row of a chunk, those of the first
// being open. If they cannot be read, the chunk ends before: the next movement
// meets the error again.
func (it *Iterator) moreValues() bool {
	if !it.openValues() {
		it.err = nil
		return false
	}
	return true
}

// collectRows adds the rows [from, to) of an even block, of one segment, with all
// their cells. It is Iterator.collect with a loop around it.
func (it *Iterator) collectRows(dst *row.Chunk, names []byte, from, to int) {
	b := it.block
	data := b.data
	at, end := b.cellsBefore(from), b.cellsEnd(to-1)
	valueFrom := b.valueEnd.before(data, at)
	valuesEnd := valueFrom
	if end > at {
		valuesEnd = int(b.valueEnd.at(data, end-1))
	}
	values := dst.Copy(it.values[valueFrom-it.valuesAt : valuesEnd-it.valuesAt])
	ended := len(dst.Cells) - at
	cells := dst.Extend(end - at)
	keyEnd, cellEnd, seqs, versions := b.keyEnd, b.cellEnd, b.seq, b.version
	columns, kinds, valueEnd := b.column, b.kind, b.valueEnd
	var name []byte
	key, value, named := b.keyEnd.before(data, from), 0, -1
	for i := from; i < to; i++ {
		keyTo := int(keyEnd.at(data, i))
		dst.AddKey(b.prefix, b.keys[key:keyTo])
		key = keyTo
		rowEnd := int(cellEnd.at(data, i))
		dst.EndRow(ended + rowEnd)
		first := i // of the row's stamps
		if !b.oneStamp {
			first = b.stampsBefore(i)
		}
		seq, version := seqs.at(data, first), int64(versions.at(data, first))
		for n, cellsOf := 0, rowEnd-at; n < cellsOf; n++ {
			c := &cells[0]
			cells = cells[1:]
			column := n
			if !b.full {
				column = int(columns.at(data, at))
			}
			if column != named {
				nameFrom, nameTo := b.nameEnd.before(data, column), int(b.nameEnd.at(data, column))
				name, named = names[nameFrom:nameTo:nameTo], column
			}
			if !b.oneStamp {
				s := first + int(b.stamp.at(data, at))
				seq, version = seqs.at(data, s), int64(versions.at(data, s))
			}
			valueTo := int(valueEnd.at(data, at)) - valueFrom
			kind := kinds.at(data, at)
			c.Column, c.Value = name, values[value:valueTo:valueTo]
			c.Version, c.Seq = version, seq
			c.Kind, c.Type = row.KindPut, row.Type(kind>>kindTypeBits)
			c.Separate, c.Packed = kind&kindMask == kindSeparate, false
			value = valueTo
			at++
		}
	}
}
