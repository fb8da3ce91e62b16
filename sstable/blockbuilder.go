package sstable

import (
	"bytes"
	"encoding/binary"

	"github.com/flagstone-db/flagstone/row"
)

// blockBuilder collects rows and encodes them as a data block. Blocks reuse its memory.
type blockBuilder struct {
	keys   []byte // full keys, one after the other
	rows   []builderRow
	cells  []builderCell
	values []byte
	stored []byte // values that another table has compressed, by row
	away   uint64 // bytes in value files that all rows refer to

	// The dictionary: names in order of arrival, and their numbers in order of the
	// names. A Go map would allocate a string per name, a million for a row of a
	// million columns. And rows of a table mostly have the same few columns.
	names    []byte
	nameEnds []int
	sorted   []int
	guess    int // number of the column that probably comes next

	arrays [13][]uint64 // scratch, in the order of the format
	ranks  []int        // scratch: column number in the block, by dictionary number
	stamps []stamp      // scratch
}

type builderRow struct {
	keyAt, keyEnd   int
	cellAt, cellEnd int
	away            uint64 // bytes in value files that its cells refer to

	// The values as another table stored them, if known: a range of stored, the form,
	// and the compression that was tried.
	storedFrom, storedEnd int
	form, tried           Compression
}

type builderCell struct {
	version  int64
	seq      uint64
	column   int // in the dictionary
	valueEnd int
	kind     row.Kind
	typ      row.Type
	separate bool
}

// stamp is a (sequence number, version) of the block being encoded. The version is
// open while only cells at MaxVersion use the stamp.
type stamp struct {
	seq     uint64
	version int64
	open    bool
}

// What a row, a cell and a column add to the size estimate, beside their bytes.
const (
	rowOverhead    = 16
	cellOverhead   = 5
	columnOverhead = 2
)

func (b *blockBuilder) reset() {
	b.keys, b.rows, b.cells, b.values = b.keys[:0], b.rows[:0], b.cells[:0], b.values[:0]
	b.names, b.nameEnds, b.sorted, b.guess = b.names[:0], b.nameEnds[:0], b.sorted[:0], 0
	b.stored, b.away = b.stored[:0], 0
}

// addStored notes how another table stored the values of the last row.
func (b *blockBuilder) addStored(s row.Stored) {
	last := &b.rows[len(b.rows)-1]
	last.form, last.tried = Compression(s.Form), Compression(s.Tried)
	last.storedFrom = len(b.stored)
	b.stored = append(b.stored, s.Bytes...)
	last.storedEnd = len(b.stored)
}

// storedRow returns the form and bytes in which another table stored the values of row
// i, if that table used this kind of compression.
func (b *blockBuilder) storedRow(i int, kind Compression) (form Compression, body []byte) {
	r := &b.rows[i]
	if r.form == kind || r.form == CompressNone && r.tried == kind {
		return r.form, b.stored[r.storedFrom:r.storedEnd]
	}
	return 0, nil
}

// awayBytes returns how many bytes in value files the first n rows refer to.
func (b *blockBuilder) awayBytes(n int) (away uint64) {
	for i := range b.rows[:n] {
		away += b.rows[i].away
	}
	return away
}

// size estimates the encoded size.
func (b *blockBuilder) size() int {
	return len(b.keys) + len(b.rows)*rowOverhead + len(b.cells)*cellOverhead +
		len(b.names) + len(b.nameEnds)*columnOverhead + len(b.values)
}

func (b *blockBuilder) startRow(key []byte) {
	at, cells := len(b.keys), len(b.cells)
	b.keys = append(b.keys, key...)
	b.rows = append(b.rows, builderRow{keyAt: at, keyEnd: len(b.keys), cellAt: cells, cellEnd: cells})
	b.guess = 0
}

// rowCells is how many cells the last row has.
func (b *blockBuilder) rowCells() int { return len(b.cells) - b.rows[len(b.rows)-1].cellAt }

func (b *blockBuilder) key(i int) []byte { return b.keys[b.rows[i].keyAt:b.rows[i].keyEnd] }

func (b *blockBuilder) name(i int) []byte {
	from := 0
	if i > 0 {
		from = b.nameEnds[i-1]
	}
	return b.names[from:b.nameEnds[i]]
}

// addCell adds a cell to the last row.
func (b *blockBuilder) addCell(c *row.Cell) {
	b.values = append(b.values, c.Value...)
	b.cells = append(b.cells, builderCell{
		version: c.Version, seq: c.Seq, column: b.intern(c.Column),
		valueEnd: len(b.values), kind: c.Kind, typ: c.Type, separate: c.Separate,
	})
	last := &b.rows[len(b.rows)-1]
	last.cellEnd = len(b.cells)
	if c.Separate {
		ref, _ := row.ParseReference(c.Value) // the writer refuses malformed ones
		last.away += uint64(ref.Stored)
		b.away += uint64(ref.Stored)
	}
}

// intern returns the dictionary number of a column name, and adds the name if it is new.
// It first tries the number after the last one, which is right for all rows that have
// the columns of the first.
func (b *blockBuilder) intern(name []byte) int {
	if b.guess < len(b.nameEnds) && bytes.Equal(b.name(b.guess), name) {
		b.guess++
		return b.guess - 1
	}
	low, high := 0, len(b.sorted)
	if high > 0 && bytes.Compare(b.name(b.sorted[high-1]), name) < 0 {
		low = high
	}
	for low < high {
		mid := int(uint(low+high) >> 1)
		switch c := bytes.Compare(b.name(b.sorted[mid]), name); {
		case c == 0:
			b.guess = b.sorted[mid] + 1
			return b.sorted[mid]
		case c < 0:
			low = mid + 1
		default:
			high = mid
		}
	}
	n := len(b.nameEnds)
	b.names = append(b.names, name...)
	b.nameEnds = append(b.nameEnds, len(b.names))
	b.sorted = append(b.sorted, 0)
	copy(b.sorted[low+1:], b.sorted[low:])
	b.sorted[low] = n
	b.guess = n + 1
	return n
}

// moveLastRow starts next with a copy of b's last row.
func (b *blockBuilder) moveLastRow(next *blockBuilder) {
	next.reset()
	last := len(b.rows) - 1
	next.startRow(b.key(last))
	at := b.valuesEnd(last)
	for _, c := range b.cells[b.rows[last].cellAt:] {
		next.addCell(&row.Cell{
			Column: b.name(c.column), Version: c.version, Seq: c.seq,
			Kind: c.kind, Type: c.typ, Separate: c.separate, Value: b.values[at:c.valueEnd],
		})
		at = c.valueEnd
	}
}

// rowLevel decides how the first, row-level cells of row i are stored. It returns flags
// and the number of cells that they replace, or (0, 0) to store them as cells.
func (b *blockBuilder) rowLevel(i int) (flags uint64, cells int) {
	run := b.cells[b.rows[i].cellAt:b.rows[i].cellEnd]
	for cells < len(run) && run[cells].kind.IsRowLevel() {
		cells++
	}
	if cells == 0 || cells > 2 {
		return 0, 0
	}
	first, last := &run[0], &run[cells-1]
	if first.kind == row.KindDeleteRow && first.version == row.MaxVersion {
		flags = rowDeleted
		if cells == 1 {
			return flags, 1
		}
	} else if cells == 2 {
		return 0, 0
	}
	switch {
	case last.kind != row.KindRowMarker || last.seq != first.seq:
		return 0, 0
	case last.version == row.MaxVersion:
		return flags | rowMarkedForever, cells
	}
	return flags | rowMarked, cells
}

// addStamp returns the number, counted from the row's first stamp, of a stamp for (seq,
// version). It looks only at the first stamp and the newest few, so that a row of n
// stamps takes linear time. So a stamp may occur twice.
func (b *blockBuilder) addStamp(first int, seq uint64, version int64) uint64 {
	const lookBack = 6
	open := version == row.MaxVersion
	n := len(b.stamps)
	try := func(i int) bool {
		s := &b.stamps[i]
		if s.seq != seq || !open && !s.open && s.version != version {
			return false
		}
		if s.open && !open {
			s.version, s.open = version, false
		}
		return true
	}
	if first < n && try(first) {
		return 0
	}
	for i := n - 1; i > first && i >= n-lookBack; i-- {
		if try(i) {
			return uint64(i - first)
		}
	}
	b.stamps = append(b.stamps, stamp{seq: seq, version: version, open: open})
	return uint64(n - first)
}

// The arrays of a block in the order of the format.
const (
	arrKeyEnd = iota
	arrCellEnd
	arrStampEnd
	arrRowFlags
	arrSeq
	arrVersion
	arrNameEnd
	arrColumn
	arrStamp
	arrKind
	arrValueEnd
	arrRowEnd
	arrPartEnd
)

// areEnds says which of the arrays are encoded as ends.
var areEnds = [...]bool{
	arrKeyEnd: true, arrCellEnd: true, arrNameEnd: true, arrValueEnd: true, arrRowEnd: true, arrPartEnd: true,
}

// valuesEnd is where the values of the first n rows end. Cells that became flags have no
// values, so the values are contiguous.
func (b *blockBuilder) valuesEnd(n int) int {
	if n == 0 || b.rows[n-1].cellEnd == 0 {
		return 0
	}
	return b.cells[b.rows[n-1].cellEnd-1].valueEnd
}

// cut divides the values of the first n rows into segments of about the given size. It
// returns, for each segment, the number of rows before its end.
func (b *blockBuilder) cut(n, size int) []uint64 {
	ends := b.arrays[arrRowEnd][:0]
	size = max(size, b.valuesEnd(n)/maxSegments)
	from := 0
	for i := 1; i < n && len(ends) < maxSegments-1; i++ {
		at, next := b.valuesEnd(i), b.valuesEnd(i+1)
		if (at+next)/2-from > size { // nearer to size than with the next row
			ends = append(ends, uint64(i))
			from = at
		}
	}
	b.arrays[arrRowEnd] = append(ends, uint64(n))
	return b.arrays[arrRowEnd]
}

// encode appends the head of the block of the first n rows. parts says where each
// segment ends, as stored.
func (b *blockBuilder) encode(dst []byte, n int, continued, continues bool, parts []uint64) []byte {
	a := &b.arrays
	for i := range a[:arrRowEnd] {
		a[i] = a[i][:0]
	}
	a[arrPartEnd] = append(a[arrPartEnd][:0], parts...)
	prefix := row.CommonPrefix(b.key(0), b.key(n-1))
	if n == 1 {
		prefix = len(b.key(0))
	}
	b.rankColumns(n, continued)
	b.stamps = b.stamps[:0]
	suffixes := 0
	for i := range n {
		b.encodeRow(i, !continued)
		suffixes += len(b.key(i)) - prefix
		a[arrKeyEnd] = append(a[arrKeyEnd], uint64(suffixes))
	}
	b.encodeStamps()

	flags := byte(0)
	if continued {
		flags |= blockContinued
	}
	if continues {
		flags |= blockContinues
	}
	cells := len(a[arrColumn])
	if b.ordered(n) {
		flags |= blockOrdered
		a[arrColumn] = a[arrColumn][:0]
	}
	dst = append(dst, flags)
	for _, count := range []int{n, len(a[arrSeq]), len(a[arrNameEnd]), cells, len(parts), prefix} {
		dst = binary.AppendUvarint(dst, uint64(count))
	}
	for i := range a {
		if areEnds[i] {
			dst = appendEnds(dst, a[i])
		} else {
			dst = appendUints(dst, a[i])
		}
	}
	dst = append(dst, make([]byte, arrayPad)...)
	dst = append(dst, b.key(0)[:prefix]...)
	for i := range n {
		dst = append(dst, b.key(i)[prefix:]...)
	}
	for _, number := range b.sorted {
		if b.ranks[number] >= 0 {
			dst = append(dst, b.name(number)...)
		}
	}
	return dst
}

// ordered reports whether each of the n encoded rows has exactly one cell of every
// column, in order.
func (b *blockBuilder) ordered(n int) bool {
	columns := b.arrays[arrColumn]
	width := len(b.arrays[arrNameEnd])
	if len(columns) == 0 || len(columns) != n*width {
		return false
	}
	for i := 0; i < len(columns); i += width {
		for j, c := range columns[i : i+width] {
			if c != uint64(j) {
				return false
			}
		}
	}
	// The columns repeat in full; rows match them if each has as many cells.
	for i, end := range b.arrays[arrCellEnd] {
		if end != uint64((i+1)*width) {
			return false
		}
	}
	return true
}

// rankColumns numbers the columns of the first n rows' cells in the order of their names.
// Other columns get rank -1.
func (b *blockBuilder) rankColumns(n int, continued bool) {
	b.ranks = b.ranks[:0]
	for range b.nameEnds {
		b.ranks = append(b.ranks, -1)
	}
	for i := range n {
		from := b.rows[i].cellAt
		if !continued {
			_, flagged := b.rowLevel(i)
			from += flagged
		}
		for j := from; j < b.rows[i].cellEnd; j++ {
			b.ranks[b.cells[j].column] = 0
		}
	}
	rank, end := 0, 0
	for _, number := range b.sorted {
		if b.ranks[number] < 0 {
			continue
		}
		b.ranks[number] = rank
		rank++
		end += len(b.name(number))
		b.arrays[arrNameEnd] = append(b.arrays[arrNameEnd], uint64(end))
	}
}

// encodeRow fills the arrays of row i and of its cells.
func (b *blockBuilder) encodeRow(i int, flagsAllowed bool) {
	a := &b.arrays
	from, first := b.rows[i].cellAt, len(b.stamps)
	flags, flagged := uint64(0), 0
	if flagsAllowed {
		flags, flagged = b.rowLevel(i)
	}
	if flagged > 0 {
		b.addStamp(first, b.cells[from].seq, b.cells[from+flagged-1].version)
	}
	for j := from + flagged; j < b.rows[i].cellEnd; j++ {
		c := &b.cells[j]
		kind := uint64(c.kind) | uint64(c.typ)<<kindTypeBits
		if c.separate {
			kind = kindSeparate | uint64(c.typ)<<kindTypeBits
		}
		if c.version == row.MaxVersion {
			kind |= kindAtMax
		}
		a[arrColumn] = append(a[arrColumn], uint64(b.ranks[c.column]))
		a[arrStamp] = append(a[arrStamp], b.addStamp(first, c.seq, c.version))
		a[arrKind] = append(a[arrKind], kind)
		a[arrValueEnd] = append(a[arrValueEnd], uint64(c.valueEnd))
	}
	a[arrCellEnd] = append(a[arrCellEnd], uint64(len(a[arrColumn])))
	a[arrStampEnd] = append(a[arrStampEnd], uint64(len(b.stamps)-i-1))
	a[arrRowFlags] = append(a[arrRowFlags], flags)
}

// encodeStamps fills the arrays of stamps. An open version is never read; it repeats
// another version, so that it does not widen the array.
func (b *blockBuilder) encodeStamps() {
	a := &b.arrays
	version := int64(0)
	for i := range b.stamps {
		if !b.stamps[i].open {
			version = b.stamps[i].version
			break
		}
	}
	for i := range b.stamps {
		if s := &b.stamps[i]; !s.open {
			version = s.version
		}
		a[arrSeq] = append(a[arrSeq], b.stamps[i].seq)
		a[arrVersion] = append(a[arrVersion], uint64(version))
	}
}
