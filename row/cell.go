package row

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
)

// Kind is what a cell does. The numbers are part of the on-disk format and of the cell order: at
// equal column, version and sequence number a smaller kind sorts first.
type Kind uint8

const (
	// KindDeleteRow hides every cell of the row with a smaller sequence
	// number. Its column is empty and its version is MaxVersion.
	KindDeleteRow Kind = 1
	// KindRowMarker says that the row exists, until a delete-row hides it or
	// its version expires; version MaxVersion never expires (a row that was
	// put without attributes). Its column is empty.
	KindRowMarker Kind = 2
	// KindTrim hides the cells of its column whose version is at most the
	// trim's version and whose sequence number is smaller. With version
	// MaxVersion it is a delete of the column. See package mvcc for the trims
	// that pruning and deletes of single versions leave.
	KindTrim Kind = 3
	// KindDeleteVersion hides the cell of exactly its version.
	KindDeleteVersion Kind = 4
	// KindPut carries a value.
	KindPut Kind = 5
)

// String returns the name of the kind.
func (k Kind) String() string {
	if !k.Valid() {
		return fmt.Sprintf("kind(%d)", uint8(k))
	}
	return [...]string{"", "delete-row", "row-marker", "trim", "delete-version", "put"}[k]
}

// Valid reports whether k is a known kind.
func (k Kind) Valid() bool { return k >= KindDeleteRow && k <= KindPut }

// IsTombstone reports whether a cell of this kind hides others.
func (k Kind) IsTombstone() bool {
	return k == KindDeleteRow || k == KindTrim || k == KindDeleteVersion
}

// IsRowLevel reports whether a cell of this kind has an empty column.
func (k Kind) IsRowLevel() bool { return k == KindDeleteRow || k == KindRowMarker }

const (
	// MaxVersion is above every version that a put can have. It is the
	// version of delete-row cells, of column deletes, and of markers that
	// never expire.
	MaxVersion int64 = math.MaxInt64
	// MaxSequence is above every sequence number that is ever assigned. A read at it sees the
	// newest cells. It fits 56 bits, so that formats may pack it.
	MaxSequence uint64 = 1<<56 - 1
	// MaxColumnBytes bounds the length of a column name.
	MaxColumnBytes = 1024
	// MaxValueBytes bounds the length of one value.
	MaxValueBytes = 64 << 20
)

// Cell is one (column, version) entry of a row, or a row-level entry with an
// empty column. Versions are milliseconds, 0 or above.
type Cell struct {
	Column  []byte
	Version int64
	Seq     uint64
	Kind    Kind
	Type    Type // of the value; TypeNone unless Kind is KindPut
	// Separate means that the value is in a value file, and Value is an encoded Reference to it.
	// Only for puts, and only in cells of table files.
	Separate bool
	// Packed means that package valuefile has compressed the value. Only for puts of strings and
	// binaries, and only in the log, in memtables and in records of package cdc.
	Packed bool
	Value  []byte // payload, see Value.AppendPayload; empty unless KindPut
}

// Memory returns about how many bytes the cell takes in the memory of a reader: its name, its
// value as fetched, and the Cell itself. It counts the packed length of a packed value.
func (c *Cell) Memory() int64 {
	const perCell = 96
	size := perCell + int64(len(c.Column)+len(c.Value))
	if c.Separate {
		if ref, err := ParseReference(c.Value); err == nil {
			size += int64(ref.Raw)
		}
	}
	return size
}

// CompareCells orders cells of one row: column ascending, version descending,
// sequence number descending, kind ascending.
func CompareCells(a, b *Cell) int {
	if c := bytes.Compare(a.Column, b.Column); c != 0 {
		return c
	}
	switch {
	case a.Version != b.Version:
		return cmp.Compare(b.Version, a.Version)
	case a.Seq != b.Seq:
		return cmp.Compare(b.Seq, a.Seq)
	}
	return cmp.Compare(a.Kind, b.Kind)
}

// Clone returns a copy of the cell that shares no memory with it.
func (c Cell) Clone() Cell {
	c.Column = bytes.Clone(c.Column)
	c.Value = bytes.Clone(c.Value)
	return c
}

// String formats the cell for test failures and tools.
func (c *Cell) String() string {
	version := fmt.Sprint(c.Version)
	if c.Version == MaxVersion {
		version = "max"
	}
	s := fmt.Sprintf("%s@%s#%d:%s", c.Column, version, c.Seq, c.Kind)
	if c.Separate {
		if r, err := ParseReference(c.Value); err == nil {
			return fmt.Sprintf("%s=%s of %d bytes in file %d at %d", s, c.Type, r.Raw, r.File, r.Offset)
		}
		return s + "=?"
	}
	if c.Packed {
		return fmt.Sprintf("%s=%s packed as %x", s, c.Type, c.Value)
	}
	if c.Kind == KindPut {
		if v, err := PayloadValue(c.Type, c.Value); err == nil {
			return s + "=" + v.String()
		}
		return s + "=?"
	}
	return s
}
