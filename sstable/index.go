package sstable

// The index block, before compression:
//
//	header    groups  uvarint
//	          blocks  uvarint
//	          prefix  uvarint: length of the prefix that all separators share
//	arrays    (see uints.go)
//	  of groups  sepEnd      end of the separator's suffix among the suffixes
//	             firstBlock  number of the group's first block, less the group's
//	  of blocks  blockEnd    where the block, with its trailer, ends in the file
//	             columnEnd   end of the block's column among the columns
//	             version     where in the column's versions the block begins
//	             tie         1 if the block before ends in a cell of the very
//	                         same column and version
//	             awayEnd     index kind 2 only: bytes of the records in value files
//	                         that this block and those before refer to
//	padding   8 zero bytes
//	strings   prefix, separator suffixes, columns: to the block's end
//
// A group is one block of whole rows, or the two or more blocks of one long row. Its
// separator is the shortest string above every key of the group before, and at most its
// own first key. The separator of the first group is the smallest key of the file. Data
// blocks are adjacent and begin at offset 0, so their ends say where they lie. The ends
// are also the cumulative sizes that split points and size estimates need, so these read
// only the index, no data.
//
// The second and later blocks of a long row have the column and version of their first
// cell. The first block, and blocks of whole rows, have an empty column and version 0. In
// a file without long rows those arrays are all zero and take no space.
//
// Sizes count values in value files like those in blocks, hence awayEnd.
//
// Invariants: separators rise strictly; block ends rise strictly and end at the data
// length; every group has a block.
//
// In memory, the first eight bytes of every separator suffix stand in an array of their
// own, big endian. A search looks into this array, and compares strings only among equal numbers.

import (
	"bytes"
	"encoding/binary"
	"sort"

	"github.com/flagstone-db/flagstone/row"
)

// index is a parsed index block.
type index struct {
	data                     []byte
	groups, blocks           int
	sepEnd, firstBlockLess   uints
	blockEnd                 uints
	columnEnd, version, tie  uints
	awayEnd                  uints // all zero in index kind 1
	prefix, separators, cols []byte
	heads                    []uint64
}

// parse makes x the parsed form of data, which it keeps. The data blocks of the file take
// dataLength bytes. It returns what is wrong, or "".
func (x *index) parse(data []byte, dataLength int64, kind byte) (bad string) {
	if bad = x.decode(data, kind); bad != "" {
		return bad
	}
	x.heads = make([]uint64, x.groups)
	return x.check(dataLength)
}

// decode is parse for what the reader has made itself.
func (x *index) decode(data []byte, kind byte) (bad string) {
	c := cursor{data: data}
	*x = index{data: data}
	x.groups = c.count(len(data), "group count") // separators are distinct
	x.blocks = c.count(len(data), "block count") // block ends are distinct
	prefix := c.count(row.MaxKeyBytes, "separator prefix")
	x.sepEnd = c.uints(x.groups, "separator ends")
	x.firstBlockLess = c.uints(x.groups, "group blocks")
	x.blockEnd = c.uints(x.blocks, "block ends")
	x.columnEnd = c.uints(x.blocks, "column ends")
	x.version = c.uints(x.blocks, "versions")
	x.tie = c.uints(x.blocks, "ties")
	if kind == indexWithValues {
		x.awayEnd = c.uints(x.blocks, "bytes of values")
	}
	c.pad()
	x.prefix = c.bytes(prefix, "separator prefix")
	x.separators = c.bytes(c.ends(&x.sepEnd, x.groups, c.rest(), "separator ends"), "separators")
	x.cols = c.bytes(c.ends(&x.columnEnd, x.blocks, c.rest(), "column ends"), "columns")
	return c.end()
}

// check checks the order of everything, and fills heads. It returns what is wrong, or "". The
// index is small, so unlike a data block it is checked in full when it is read.
func (x *index) check(dataLength int64) string {
	if (x.groups == 0) != (x.blocks == 0) {
		return "groups without blocks"
	}
	end, away := uint64(0), uint64(0)
	for i := range x.blocks {
		before, awayBefore := end, away
		end, away = x.blockEnd.at(x.data, i), x.awayEnd.at(x.data, i)
		switch {
		case end <= before || end > uint64(dataLength) || end-before < trailerSize:
			return "block ends out of order or range"
		case end-before > maxRawBlock+maxBlockTrailers:
			return "block too large"
		case away < awayBefore || away > 1<<62:
			return "bytes of values fall"
		}
	}
	if end != uint64(dataLength) {
		return "blocks do not end where the data ends"
	}
	for g := range x.groups {
		switch first := x.firstBlockLess.at(x.data, g); {
		case g > 0 && bytes.Compare(x.suffix(g-1), x.suffix(g)) >= 0:
			return "separators out of order"
		case first > uint64(x.blocks) || int(first)+g >= x.blocks || g == 0 && first != 0 ||
			g > 0 && int(first)+g <= x.firstBlock(g-1):
			return "group blocks out of order or range"
		}
		x.heads[g] = head(x.suffix(g))
	}
	return ""
}

// firstBlock is the number of the first block of group g. For g == groups it is the number
// of blocks.
func (x *index) firstBlock(g int) int {
	if g == x.groups {
		return x.blocks
	}
	return int(x.firstBlockLess.at(x.data, g)) + g
}

// blockRange is where block i lies in the file, trailer included.
func (x *index) blockRange(i int) (from, to int64) {
	return int64(x.blockEnd.before(x.data, i)), int64(x.blockEnd.at(x.data, i))
}

func (x *index) suffix(g int) []byte {
	return x.separators[x.sepEnd.before(x.data, g):x.sepEnd.at(x.data, g)]
}

// column is the column at which block i begins, if it is a later block of a long row.
func (x *index) column(i int) []byte {
	return x.cols[x.columnEnd.before(x.data, i):x.columnEnd.at(x.data, i)]
}

// appendSeparator appends the separator of group g.
func (x *index) appendSeparator(dst []byte, g int) []byte {
	return append(append(dst, x.prefix...), x.suffix(g)...)
}

// head is the first eight bytes of s as a number that sorts as s does.
func head(s []byte) uint64 {
	if len(s) >= 8 {
		return binary.BigEndian.Uint64(s)
	}
	var b [8]byte
	copy(b[:], s)
	return binary.BigEndian.Uint64(b[:])
}

// search returns the last group whose separator is at most key, which is the only one that
// can hold it. It returns -1 if key is below the smallest key.
func (x *index) search(key []byte) int {
	key, order := behindPrefix(x.prefix, key)
	switch {
	case order < 0:
		return -1
	case order > 0:
		return x.groups - 1
	}
	h := head(key)
	low := sort.Search(len(x.heads), func(g int) bool { return x.heads[g] > h })
	// Among equal heads the strings decide. Mostly there is only one.
	if low == 0 || x.heads[low-1] != h || bytes.Compare(x.suffix(low-1), key) <= 0 {
		return low - 1
	}
	return sort.Search(low-1, func(g int) bool { return x.heads[g] >= h && bytes.Compare(x.suffix(g), key) > 0 }) - 1
}

// searchCell returns the block of group g in which the search for the first
// cell at or after (name, version) must begin.
func (x *index) searchCell(g int, name []byte, version int64) int {
	// This is the block before the first one, after the group's first, that begins above the
	// target. A block that begins in a tie counts as above: the block before may hold the
	// first of the equal cells.
	first := x.firstBlock(g)
	return first + sort.Search(x.firstBlock(g+1)-first-1, func(i int) bool {
		i += first + 1
		c, v := bytes.Compare(x.column(i), name), int64(x.version.at(x.data, i))
		return c > 0 || c == 0 && (v < version || v == version && x.tie.at(x.data, i) != 0)
	})
}

// indexBuilder collects the index while blocks are written.
type indexBuilder struct {
	separators []byte
	arrays     [7][]uint64 // in the order of the format
	away       uint64      // bytes in value files so far
	columns    []byte
	first      []byte // the first separator, and
	last       []byte // the last: all share their common prefix
}

const (
	idxSepEnd = iota
	idxFirstBlock
	idxBlockEnd
	idxColumnEnd
	idxVersion
	idxTie
	idxAwayEnd
)

// addGroup begins a group with the next block. before is the largest key of the group
// before, nil for the first group; key is the smallest key of this group.
func (x *indexBuilder) addGroup(before, key []byte) {
	a := &x.arrays
	if before != nil {
		key = key[:row.CommonPrefix(before, key)+1]
	} else {
		x.first = append(x.first[:0], key...)
	}
	x.last = append(x.last[:0], key...)
	x.separators = append(x.separators, key...)
	a[idxFirstBlock] = append(a[idxFirstBlock], uint64(len(a[idxBlockEnd])-len(a[idxFirstBlock])))
	a[idxSepEnd] = append(a[idxSepEnd], uint64(len(x.separators)))
}

// addBlock adds a block to the last group. column and version are those of the first cell
// if it is a later block of a long row, and otherwise nil and 0. away is how many bytes in
// value files it refers to.
func (x *indexBuilder) addBlock(end int64, column []byte, version int64, tie bool, away uint64) {
	a := &x.arrays
	x.columns = append(x.columns, column...)
	x.away += away
	for i, v := range []uint64{uint64(end), uint64(len(x.columns)), uint64(version), bit(tie), x.away} {
		a[idxBlockEnd+i] = append(a[idxBlockEnd+i], v)
	}
}

// reset empties the index and keeps its memory.
func (x *indexBuilder) reset() {
	for i := range x.arrays {
		x.arrays[i] = x.arrays[i][:0]
	}
	x.separators, x.columns, x.first, x.last, x.away = x.separators[:0], x.columns[:0], x.first[:0], x.last[:0], 0
}

// size estimates the encoded size.
func (x *indexBuilder) size() int {
	return len(x.separators) + len(x.columns) + 6*len(x.arrays[idxBlockEnd])
}

// encode returns the index block.
func (x *indexBuilder) encode() []byte {
	a := &x.arrays
	groups := len(a[idxSepEnd])
	prefix := row.CommonPrefix(x.first, x.last)
	ends := make([]uint64, groups)
	for g := range ends {
		ends[g] = a[idxSepEnd][g] - uint64((g+1)*prefix)
	}
	dst := make([]byte, 0, x.size()+64)
	for _, n := range []int{groups, len(a[idxBlockEnd]), prefix} {
		dst = binary.AppendUvarint(dst, uint64(n))
	}
	dst = appendUints(dst, ends)
	for _, values := range a[idxFirstBlock:] {
		dst = appendUints(dst, values)
	}
	dst = append(dst, make([]byte, arrayPad)...)
	dst = append(dst, x.first[:prefix]...)
	from := uint64(0)
	for _, end := range a[idxSepEnd] {
		dst = append(dst, x.separators[from+uint64(prefix):end]...)
		from = end
	}
	return append(dst, x.columns...)
}

// offset is where group g begins in the file, plus the values in value files before it.
func (x *index) offset(g int) int64 {
	i := x.firstBlock(g)
	return int64(x.blockEnd.before(x.data, i) + x.awayEnd.before(x.data, i))
}

// groupFrom returns the first group, from low on, whose offset is at least offset. It is fast if
// that is a group near guess.
func (x *index) groupFrom(low, guess int, offset int64) int {
	for reach := 1; ; reach *= 4 {
		from, to := max(low, min(guess, x.groups)-reach), min(guess+reach, x.groups)
		if (from == low || x.offset(from-1) < offset) && (to == x.groups || x.offset(to) >= offset) {
			return from + sort.Search(to-from, func(i int) bool { return x.offset(from+i) >= offset })
		}
	}
}
