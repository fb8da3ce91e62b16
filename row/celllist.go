package row

import (
	"encoding/binary"
	"fmt"
)

// The encoding of a list of cells, used in batches and memtables:
//
//	cell    = head columnLen column version [valueLen value]
//	head    = 1 byte: kind in the low four bits, value type in the high four;
//	          6 stands for a put whose value is packed
//	lengths = uvarint
//	version = zig-zag varint of the difference to the version of the cell
//	          before; the arithmetic wraps. The first cell of the list and
//	          each SegmentCells-th after it count from 0, so that reading can
//	          begin at any of them
//	value   = only for puts
//
// Cells of one mutation mostly share a version, which then takes one byte. A memtable takes the
// bytes of a new row as they are: a put is encoded once, when its cell is added, and only copied
// after that.

// SegmentCells is the number of cells in a segment. Reading can begin at any segment.
const SegmentCells = 16

// kindPacked is the kind, in a head, of a put whose value is packed.
const kindPacked Kind = 6

// Head returns kind, value type and form of a cell in one byte, the first of its encoding.
func (c *Cell) Head() byte { return headOf(c.Kind, c.Type, c.Packed) }

func headOf(kind Kind, typ Type, packed bool) byte {
	if packed {
		kind = kindPacked
	}
	return byte(kind) | byte(typ)<<4
}

// SetHead is the inverse of Head.
func (c *Cell) SetHead(head byte) {
	c.Kind, c.Type, c.Packed = Kind(head&0x0F), Type(head>>4), false
	if c.Kind == kindPacked {
		c.Kind, c.Packed = KindPut, true
	}
}

// CellList is a list of cells in encoded form. The zero CellList is empty.
type CellList struct {
	data   []byte
	starts []int // where the segments after the first begin
	count  int
	before int64 // version of the last cell
}

// Len returns the number of cells.
func (l *CellList) Len() int { return l.count }

// Bytes returns the encoding, valid until the list is changed.
func (l *CellList) Bytes() []byte { return l.data }

// Starts returns the offsets in Bytes of the segments after the first.
func (l *CellList) Starts() []int { return l.starts }

// Reader returns a reader at the beginning of the list.
func (l *CellList) Reader() CellReader { return NewCellReader(l.data) }

// reset empties the list and keeps its memory.
func (l *CellList) reset() { *l = CellList{data: l.data[:0], starts: l.starts[:0]} }

// begin appends a cell up to its value, and returns the place of its column.
func begin[S string | []byte](l *CellList, column S, version int64, head byte) span {
	if l.count%SegmentCells == 0 {
		if l.before = 0; l.count > 0 {
			l.starts = append(l.starts, len(l.data))
		}
	}
	b := append(l.data, head)
	b = binary.AppendUvarint(b, uint64(len(column)))
	b = append(b, column...)
	l.data = binary.AppendVarint(b, version-l.before)
	l.before = version
	l.count++
	return span{len(b) - len(column), len(b)}
}

// value appends the value of the cell that begin appended.
func (l *CellList) value(v []byte) {
	l.data = append(binary.AppendUvarint(l.data, uint64(len(v))), v...)
}

// CellReader decodes an encoded list of cells. Columns and values share the
// memory of the encoding.
type CellReader struct {
	rest   []byte
	before int64
	left   int // cells to read before versions count from 0 again
}

// NewCellReader returns a reader of the cells encoded in b, which must begin where a list or a
// segment of one begins.
func NewCellReader(b []byte) CellReader { return CellReader{rest: b, left: SegmentCells} }

// Next decodes the next cell into c, except its sequence number. It returns ErrBadMutation if the
// bytes are not a cell. The caller knows the number of cells.
func (r *CellReader) Next(c *Cell) error {
	if len(r.rest) == 0 {
		return fmt.Errorf("%w: cell cut short", ErrBadMutation)
	}
	if r.left == 0 {
		r.left, r.before = SegmentCells, 0
	}
	r.left--
	if c.SetHead(r.rest[0]); !c.Kind.Valid() {
		return fmt.Errorf("%w: unknown cell kind %d", ErrBadMutation, c.Kind)
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

// cutBytes reads a length-prefixed byte string of at most limit bytes.
func cutBytes(b []byte, limit uint64) (data, rest []byte, ok bool) {
	length, n := binary.Uvarint(b)
	if n <= 0 || length > limit || length > uint64(len(b)-n) {
		return nil, b, false
	}
	end := n + int(length)
	return b[n:end:end], b[end:], true
}
