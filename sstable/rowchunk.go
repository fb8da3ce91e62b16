package sstable

// Reading several rows at once: see row.Chunk.

import (
	"encoding/binary"

	"github.com/flagstone-db/flagstone/internal/prefetch"
	"github.com/flagstone-db/flagstone/row"
)

// CollectRows adds the current row and those after it: at most rows of them, while dst has a
// budget. It moves to the last of them and returns their number, at least 1. A nil projection
// wants no columns. REQUIRES: Extent described the rows.
//
// What all rows of a block have in common is looked up once: the widths of its integers, the
// names of its columns. Names and values are borrowed, not copied, if they stay in place
// until the iterator moves. Values in the iterator's own memory do not if the chunk goes on
// with another segment.
func (it *Iterator) CollectRows(dst *row.Chunk, rows int, p *row.Projection) int {
	l, b := &it.blocks.loadedBlock, it.blocks.block
	perRow := (b.rawSize() + b.rows - 1) / b.rows
	rows = max(min(rows, dst.Budget/perRow), 1)
	from := it.row
	to := from + rows
	if p == nil {
		for i := from; i < to; i++ {
			dst.AddKey(b.prefix(), b.suffix(i))
			dst.EndRow(len(dst.Cells))
		}
		it.setRow(it.group, to-1)
		return rows
	}
	w := &it.columns
	w.resolve(l, p)
	all := w.count == b.columns && !p.Cuts(b.versions)
	alike := b.full && b.oneStamp && b.kind.width() == 0
	for it.row < to && it.openValues() {
		end := min(to, l.valueRows)
		dst.Borrow = l.shared || end == to
		switch {
		case alike:
			l.collectValues(dst, w, it.row, end)
		case all:
			l.collectRows(dst, it.row, end)
		default:
			for ; it.row < end; it.row++ {
				dst.AddKey(b.prefix(), b.suffix(it.row))
				it.Collect(&dst.Collector, p)
				dst.EndRow(len(dst.Cells))
			}
		}
		it.row = end
	}
	// If values cannot be read, the chunk ends before their row, and the next movement gets
	// the error again. Those of the first row are open already.
	it.err = nil
	dst.Borrow = false
	if to = it.row; to == b.rows {
		it.blocks.expectNext()
	}
	switch {
	case alike:
		b.addAlike(dst, w, from, to)
		b.addKeys(dst, from, to, uints{base: uint64(w.count), form: uint32(w.count) << widthBits})
	case all:
		b.addKeys(dst, from, to, b.cellEnd)
	}
	it.setRow(it.group, to-1)
	return to - from
}

// expectValues prefetches the values of a chunk, which its reader will look at soon. Values
// that were decoded just now are in the processor's caches already.
func (l *loadedBlock) expectValues(values []byte) {
	if l.shared {
		prefetch.Bytes(values)
	}
}

// collectValues adds the wanted cells of the rows [from, to) of one segment. The rows of the block
// differ only in keys, values and one stamp each, as most do. addAlike and addKeys do the rest, for
// the rows of all segments.
func (l *loadedBlock) collectValues(dst *row.Chunk, w *wantedColumns, from, to int) {
	b := l.block
	cells := dst.Extend((to - from) * w.count)
	if len(cells) == 0 {
		return
	}
	all := row.Cell{
		Column: b.name(w.spans[0].first), Kind: row.KindPut, Type: row.Type(b.kind.base >> kindTypeBits), Separate: b.kind.base&kindMask == kindSeparate,
	}
	spans := w.spans
	if w.count == b.columns { // the cells of all rows follow each other
		spans = []columnSpan{{0, len(cells)}}
	}
	data, ends := b.data, b.valueEnd
	for first := from * b.columns; len(cells) > 0; first += b.columns {
		for _, s := range spans {
			at := first + s.first
			beside := cells[:s.end-s.first] // their values are, too
			cells = cells[len(beside):]
			valueFrom := ends.before(data, at)
			values := dst.Copy(l.values[valueFrom-l.valuesAt : int(ends.at(data, first+s.end-1))-l.valuesAt])
			l.expectValues(values)
			value := 0
			for i := range beside {
				end := int(ends.at(data, at+i)) - valueFrom
				beside[i] = all
				beside[i].Value = values[value:end:end]
				value = end
			}
		}
	}
}

// addAlike completes the cells that collectValues added: stamps, and names if there are several.
func (b *dataBlock) addAlike(dst *row.Chunk, w *wantedColumns, from, to int) {
	data, columns := b.data, w.count
	cells := dst.Cells[len(dst.Cells)-(to-from)*columns:]
	n := 0
	for _, s := range w.spans {
		for column := s.first; column < s.end; column++ {
			if n > 0 { // else collectValues has set it
				name := b.name(column)
				for i := n; i < len(cells); i += columns {
					cells[i].Column = name
				}
			}
			n++
		}
	}
	seqs := stride{off: int(b.seq.off) + from*b.seq.width(), width: b.seq.width(), mask: b.seq.mask()}
	versions := stride{off: int(b.version.off) + from*b.version.width(), width: b.version.width(), mask: b.version.mask()}
	for i := 0; i < len(cells); i += columns {
		seq, version := b.seq.base+seqs.next(data), int64(b.version.base+versions.next(data))
		for n := i; n < i+columns; n++ {
			cells[n].Seq, cells[n].Version = seq, version
		}
	}
}

// addKeys adds the keys and the ends of the rows [from, to), whose cells were added last. cellEnd
// has the ends of the rows' cells, of those that were added.
func (b *dataBlock) addKeys(dst *row.Chunk, from, to int, cellEnd uints) {
	data := b.data
	ended := len(dst.Cells) - int(cellEnd.at(data, to-1))
	key, end := b.keyEnd.before(data, from), int(b.keyEnd.at(data, to-1))
	ends, keys, keyed := dst.AddRows(to-from, (to-from)*int(b.keysAt-b.prefixAt)+end-key)
	prefix, suffixes, filled := b.prefix(), b.keys(), 0
	var first [row.KeySlack]byte
	short := copy(first[:], prefix) == len(prefix)
	word := binary.LittleEndian.Uint64(first[:])
	keyEnds := b.keyEnd
	for i := range ends {
		end := int(keyEnds.at(data, from+i))
		if short { // the suffix or the next key overwrites what is too much
			binary.LittleEndian.PutUint64(keys[filled:], word)
		} else {
			copy(keys[filled:], prefix)
		}
		filled += len(prefix)
		suffix := suffixes[key:end]
		if n := len(suffix); n >= 8 && n <= 16 {
			head, tail := binary.LittleEndian.Uint64(suffix), binary.LittleEndian.Uint64(suffix[n-8:])
			binary.LittleEndian.PutUint64(keys[filled:], head)
			binary.LittleEndian.PutUint64(keys[filled+n-8:], tail)
		} else {
			copy(keys[filled:], suffix)
		}
		filled += len(suffix)
		key = end
		ends[i] = row.RowEnd{Key: uint32(keyed + filled), Cell: uint32(ended + int(cellEnd.at(data, from+i)))}
	}
}

// collectRows adds the cells of the rows [from, to) of an even block, of one segment.
func (l *loadedBlock) collectRows(dst *row.Chunk, from, to int) {
	b := l.block
	data := b.data
	at, end := b.cellsBefore(from), b.cellsEnd(to-1)
	valueAt := b.valueEnd.before(data, at)
	values := dst.Copy(l.values[valueAt-l.valuesAt : b.valueEnd.before(data, end)-l.valuesAt])
	l.expectValues(values)
	first := rowCells{row: from, high: b.cellsEnd(from), stamp: b.stampsBefore(from)}
	b.fill(dst.Extend(end-at), first, at, -1, b.names(), 0, values, valueAt, nil)
}

// stride walks an array of integers, without their base.
type stride struct {
	off, width int
	mask       uint64
}

// next returns the current element less the base, and moves to the next one.
func (s *stride) next(data []byte) uint64 {
	x := binary.LittleEndian.Uint64(data[s.off:]) & s.mask
	s.off += s.width
	return x
}
