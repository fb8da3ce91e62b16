package row

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
)

// Mutation is all that one request does to one row. It is applied at one
// sequence number; its own deletes hide only what is older, so a mutation with
// DeleteRow and puts replaces the row.
type Mutation struct {
	Table uint64 // id of the table in the manifest
	Key   []byte // encoded row key, see AppendKey

	// DeleteRow hides everything the row held before.
	DeleteRow bool
	// PutRow says that the row exists afterwards although no cell is put.
	// Mutations that put cells make the row exist anyway.
	PutRow bool
	// Cells are attribute cells: puts, trims, deletes of single versions.
	// Their sequence number is ignored; it is the mutation's.
	Cells []Cell
}

// Marker returns the version of the row marker that the mutation leaves, and
// whether it leaves one: a row exists as long as its newest put could be
// visible, or for ever if it was put without attributes.
func (m *Mutation) Marker() (version int64, ok bool) {
	for i := range m.Cells {
		if c := &m.Cells[i]; c.Kind == KindPut {
			if !ok || c.Version > version {
				version = c.Version
			}
			ok = true
		}
	}
	if !ok && m.PutRow {
		return MaxVersion, true
	}
	return version, ok
}

// ErrBadMutation reports a mutation that breaks the rules of the model, or
// bytes that are not the encoding of a batch.
var ErrBadMutation = errors.New("row: malformed mutation")

// Normalize sorts the cells into cell order, lets the last of several puts and
// deletes of one (column, version) win, and checks the mutation against the
// limits of the model. Errors are ErrBadMutation.
func (m *Mutation) Normalize() error {
	if len(m.Key) == 0 || len(m.Key) > MaxKeyBytes {
		return fmt.Errorf("%w: row key of %d bytes, want 1 to %d", ErrBadMutation, len(m.Key), MaxKeyBytes)
	}
	sorted := true
	for i := range m.Cells {
		c := &m.Cells[i]
		if err := c.check(); err != nil {
			return err
		}
		c.Seq = 0
		if i > 0 && sorted && !inOrder(&m.Cells[i-1], c) {
			sorted = false
		}
	}
	if sorted {
		return nil
	}
	slices.SortStableFunc(m.Cells, func(a, b Cell) int {
		if c := bytes.Compare(a.Column, b.Column); c != 0 {
			return c
		}
		switch {
		case a.Version != b.Version:
			if a.Version > b.Version {
				return -1
			}
			return 1
		case (a.Kind == KindTrim) != (b.Kind == KindTrim):
			if a.Kind == KindTrim {
				return -1
			}
			return 1
		}
		return 0
	})
	kept := m.Cells[:0]
	for _, c := range m.Cells {
		if n := len(kept); n > 0 {
			last := &kept[n-1]
			if last.Version == c.Version && (last.Kind == KindTrim) == (c.Kind == KindTrim) &&
				bytes.Equal(last.Column, c.Column) {
				*last = c
				continue
			}
		}
		kept = append(kept, c)
	}
	m.Cells = kept
	return nil
}

// inOrder reports whether b may follow a in a normal mutation: it comes later
// in cell order, and is not a second put or delete of a's (column, version),
// of which one mutation has at most one.
func inOrder(a, b *Cell) bool {
	if CompareCells(a, b) >= 0 {
		return false
	}
	return a.Version != b.Version || a.Kind == KindTrim || !bytes.Equal(a.Column, b.Column)
}

func (c *Cell) check() error {
	switch {
	case len(c.Column) == 0 || len(c.Column) > MaxColumnBytes:
		return fmt.Errorf("%w: column name of %d bytes, want 1 to %d", ErrBadMutation, len(c.Column), MaxColumnBytes)
	case c.Version < 0:
		return fmt.Errorf("%w: column %q has negative version %d", ErrBadMutation, c.Column, c.Version)
	}
	switch c.Kind {
	case KindTrim:
	case KindDeleteVersion, KindPut:
		if c.Version == MaxVersion {
			return fmt.Errorf("%w: column %q: version %d is reserved", ErrBadMutation, c.Column, c.Version)
		}
	default:
		return fmt.Errorf("%w: column %q: %s is no attribute cell", ErrBadMutation, c.Column, c.Kind)
	}
	if c.Kind != KindPut {
		if c.Type != TypeNone || len(c.Value) != 0 {
			return fmt.Errorf("%w: column %q: %s with a value", ErrBadMutation, c.Column, c.Kind)
		}
		return nil
	}
	if len(c.Value) > MaxValueBytes {
		return fmt.Errorf("%w: column %q: value of %d bytes, at most %d", ErrBadMutation, c.Column, len(c.Value), MaxValueBytes)
	}
	if _, err := PayloadValue(c.Type, c.Value); err != nil {
		return fmt.Errorf("%w: column %q: %w", ErrBadMutation, c.Column, err)
	}
	return nil
}

// The encoding of a list of cells, used in batches and memtables:
//
//	cell    = head columnLen column version [valueLen value]
//	head    = 1 byte: kind in the low four bits, value type in the high four
//	lengths = uvarint
//	version = zig-zag varint of the difference to the version of the cell
//	          before (0 before the first); the arithmetic wraps
//	value   = only for puts
//
// Cells of one mutation mostly share a version, which then takes one byte.

// AppendCells appends the encoding of cells.
func AppendCells(dst []byte, cells []Cell) []byte {
	var before int64
	for i := range cells {
		c := &cells[i]
		dst = append(dst, byte(c.Kind)|byte(c.Type)<<4)
		dst = binary.AppendUvarint(dst, uint64(len(c.Column)))
		dst = append(dst, c.Column...)
		dst = binary.AppendVarint(dst, c.Version-before)
		before = c.Version
		if c.Kind == KindPut {
			dst = binary.AppendUvarint(dst, uint64(len(c.Value)))
			dst = append(dst, c.Value...)
		}
	}
	return dst
}

// CellReader decodes what AppendCells wrote. Columns and values share the
// memory of the encoding.
type CellReader struct {
	rest   []byte
	before int64
}

// NewCellReader reads the cells encoded at the beginning of b.
func NewCellReader(b []byte) CellReader { return CellReader{rest: b} }

// Next decodes the next cell into c, leaving its sequence number alone. It
// returns ErrBadMutation if the bytes are no cell. The caller knows how many
// cells there are.
func (r *CellReader) Next(c *Cell) error {
	if len(r.rest) == 0 {
		return fmt.Errorf("%w: cell cut short", ErrBadMutation)
	}
	head := r.rest[0]
	c.Kind, c.Type = Kind(head&0x0F), Type(head>>4)
	if !c.Kind.Valid() {
		return fmt.Errorf("%w: unknown cell kind %d", ErrBadMutation, head&0x0F)
	}
	b := r.rest[1:]
	var ok bool
	if c.Column, b, ok = cutBytes(b, MaxColumnBytes); !ok {
		return fmt.Errorf("%w: column name cut short", ErrBadMutation)
	}
	delta, n := binary.Varint(b)
	if n <= 0 {
		return fmt.Errorf("%w: version cut short", ErrBadMutation)
	}
	b = b[n:]
	c.Version = r.before + delta
	r.before = c.Version
	c.Value = nil
	if c.Kind == KindPut {
		if c.Value, b, ok = cutBytes(b, MaxValueBytes); !ok {
			return fmt.Errorf("%w: value cut short", ErrBadMutation)
		}
	}
	r.rest = b
	return nil
}

// Rest returns the bytes after the last decoded cell.
func (r *CellReader) Rest() []byte { return r.rest }

// cutBytes reads a length-prefixed byte string of at most limit bytes.
func cutBytes(b []byte, limit uint64) (data, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > limit || length > uint64(len(b)-n) {
		return nil, b, false
	}
	end := n + int(length)
	return b[n:end:end], b[end:], true
}
