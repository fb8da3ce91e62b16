package row

import (
	"encoding/binary"
	"fmt"
)

// The encoding of a batch, which is what the log carries:
//
//	batch    = format time count mutation*
//	format   = 1 byte, 5
//	time     = 8 bytes little endian: the time of the commit, in microseconds
//	           since the epoch; it does not fall from one batch to the next
//	count    = 4 bytes little endian: number of mutations
//	mutation = table flags keyLen key cellCount cell*
//	table, keyLen, cellCount = uvarint
//	flags    = 1 byte: bit 0 delete-row, bit 1 put-row, others zero
//	cell     = see CellList
//
// Formats 1 to 4 can still be read. In 4 no value is packed in pieces (package valuefile); in 1
// to 3 no value is packed at all. The times of 1 and 2 are in milliseconds, and may fall a little
// from one batch to the next. In format 1, versions count from 0 only at the first cell of a
// mutation.
//
// Applying a batch needs only these bytes. Mutation i of a batch gets the sequence number of the
// batch plus i.

const (
	batchFormat     = 5
	plainFormat     = 3 // the last one without packed values
	milliFormat     = 2 // the last one whose time is in milliseconds
	oldBatchFormat  = 1
	batchHeaderSize = 1 + 8 + 4

	flagDeleteRow = 1 << 0
	flagPutRow    = 1 << 1
)

// LogStream is the log stream of batches. The position of a batch's record is its first sequence
// number.
const LogStream = 0

// Batch is an ordered list of mutations in encoded form. The zero Batch is empty and ready to
// use; Reset empties a used one and keeps its memory.
//
// Small changes are copied into the batch. The cells of large ones are not, so they must not
// change until the batch is reset.
type Batch struct {
	data   []byte
	large  []largeCells
	pieces [][]byte
}

// largeCells are cells to insert into a batch's data at offset at.
type largeCells struct {
	at    int
	cells []byte
}

// copyLimit is the size up to which cells are copied into the batch: such a copy costs less than
// one more piece costs the log.
const copyLimit = 256

// Reset empties the batch.
func (b *Batch) Reset() {
	b.data = b.data[:0]
	clear(b.large)
	b.large = b.large[:0]
	clear(b.pieces)
	b.pieces = b.pieces[:0]
}

// Len returns the number of mutations.
func (b *Batch) Len() int {
	if len(b.data) < batchHeaderSize {
		return 0
	}
	return int(binary.LittleEndian.Uint32(b.data[9:]))
}

// Add normalizes the change and appends it. Errors are ErrBadMutation, and leave the batch
// unchanged.
func (b *Batch) Add(c *Change) error {
	if err := c.Normalize(); err != nil {
		return err
	}
	if len(b.data) == 0 {
		b.data = append(b.data, batchFormat, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0)
	}
	binary.LittleEndian.PutUint32(b.data[9:], uint32(b.Len()+1))
	data := c.appendHead(binary.AppendUvarint(b.data, c.Table))
	if cells := c.cells.data; len(cells) <= copyLimit {
		data = append(data, cells...)
	} else {
		b.large = append(b.large, largeCells{len(data), cells})
	}
	b.data = data
	return nil
}

// appendHead appends the encoding of the change behind its table and before its cells.
func (c *Change) appendHead(dst []byte) []byte {
	var flags byte
	if c.DeleteRow {
		flags |= flagDeleteRow
	}
	if c.PutRow {
		flags |= flagPutRow
	}
	dst = binary.AppendUvarint(append(dst, flags), uint64(len(c.Key)))
	dst = append(dst, c.Key...)
	return binary.AppendUvarint(dst, uint64(c.cells.count))
}

// SetTime sets the time of the batch's commit, in microseconds.
func (b *Batch) SetTime(micros int64) {
	if len(b.data) >= batchHeaderSize {
		binary.LittleEndian.PutUint64(b.data[1:], uint64(micros))
	}
}

// Pieces returns the encoding, which is the concatenation of the pieces. It is valid until the
// batch or a change in it is changed. An empty batch has none.
func (b *Batch) Pieces() [][]byte {
	b.pieces = b.pieces[:0]
	from := 0
	for i := range b.large {
		l := &b.large[i]
		b.pieces = append(b.pieces, b.data[from:l.at], l.cells)
		from = l.at
	}
	if from < len(b.data) {
		b.pieces = append(b.pieces, b.data[from:])
	}
	return b.pieces
}

// BatchReader decodes a batch, mutation by mutation.
type BatchReader struct {
	rest  []byte
	count int
	time  int64 // microseconds
	old   bool  // the batch has format 1
	plain bool  // the batch has a format without packed values
	cell  Cell  // the last one read
}

// NewBatchReader checks the header of an encoded batch. Errors are
// ErrBadMutation.
func NewBatchReader(data []byte) (BatchReader, error) {
	if len(data) < batchHeaderSize {
		return BatchReader{}, fmt.Errorf("%w: batch of %d bytes", ErrBadMutation, len(data))
	}
	if data[0] < oldBatchFormat || data[0] > batchFormat {
		return BatchReader{}, fmt.Errorf("%w: batch format %d, this version reads up to %d", ErrBadMutation, data[0], batchFormat)
	}
	r := BatchReader{
		rest:  data[batchHeaderSize:],
		count: int(binary.LittleEndian.Uint32(data[9:])),
		time:  int64(binary.LittleEndian.Uint64(data[1:])),
		old:   data[0] == oldBatchFormat,
		plain: data[0] <= plainFormat,
	}
	if data[0] <= milliFormat {
		r.time *= 1000
	}
	return r, nil
}

// Time returns the batch's commit time, in microseconds.
func (r *BatchReader) Time() int64 { return r.time }

// Next decodes the next mutation into c, reusing its memory; key and cells may share memory with
// the batch. It returns false at the end of the batch. Errors are ErrBadMutation: the bytes are
// damaged or not a batch, and the caller must apply nothing of them.
func (r *BatchReader) Next(c *Change) (bool, error) {
	if r.count == 0 {
		if len(r.rest) != 0 {
			return false, fmt.Errorf("%w: %d bytes after the last mutation", ErrBadMutation, len(r.rest))
		}
		return false, nil
	}
	b := r.rest
	table, n := binary.Uvarint(b)
	if n <= 0 {
		return false, fmt.Errorf("%w: table id cut short", ErrBadMutation)
	}
	head, count, cells, err := cutHead(b[n:])
	if err != nil {
		return false, err
	}
	c.Table, c.Key, c.DeleteRow, c.PutRow = table, head.Key, head.DeleteRow, head.PutRow
	if err := r.cells(c, cells, count); err != nil {
		return false, err
	}
	r.count--
	return true, nil
}

// cutHead reads what appendHead wrote: a mutation without its cells, and their number.
func cutHead(b []byte) (m Mutation, count int, rest []byte, err error) {
	if len(b) == 0 || b[0]&^(flagDeleteRow|flagPutRow) != 0 {
		return m, 0, nil, fmt.Errorf("%w: no flags, or unknown ones: %#x", ErrBadMutation, b[:min(len(b), 1)])
	}
	m.DeleteRow, m.PutRow = b[0]&flagDeleteRow != 0, b[0]&flagPutRow != 0
	var ok bool
	if m.Key, rest, ok = cutBytes(b[1:], MaxKeyBytes); !ok || len(m.Key) == 0 {
		return m, 0, nil, fmt.Errorf("%w: row key cut short", ErrBadMutation)
	}
	count, rest, err = cutCount(rest)
	return m, count, rest, err
}

// cutCount reads the number of cells that follow.
func cutCount(b []byte) (count int, rest []byte, err error) {
	n, size := binary.Uvarint(b)
	const smallestCell = 4 // head, length, one byte of name, version
	if size <= 0 || n > uint64(len(b)-size)/smallestCell {
		return 0, nil, fmt.Errorf("%w: %d cells in %d bytes", ErrBadMutation, n, len(b))
	}
	return int(n), b[size:], nil
}

// AppendTo appends the change as it stands in a batch, without its table.
func (c *Change) AppendTo(dst []byte) []byte { return append(c.appendHead(dst), c.cells.data...) }

// DecodeMutation is the inverse of Change.AppendTo. The mutation shares memory with b, and its
// cells are in the order of b, whatever that is. Errors are ErrBadMutation.
func DecodeMutation(b []byte) (Mutation, error) {
	m, count, cells, err := cutHead(b)
	if err == nil {
		m.Cells, err = decodeCells(cells, count)
	}
	return m, err
}

// DecodeCells decodes a number of cells and these cells, up to the end of b. They share memory with
// b. Errors are ErrBadMutation.
func DecodeCells(b []byte) ([]Cell, error) {
	count, rest, err := cutCount(b)
	if err != nil {
		return nil, err
	}
	return decodeCells(rest, count)
}

func decodeCells(b []byte, count int) ([]Cell, error) {
	cells, r := make([]Cell, count), NewCellReader(b)
	for i := range cells {
		if err := r.Next(&cells[i]); err != nil {
			return nil, err
		}
	}
	if len(r.rest) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last cell", ErrBadMutation, len(r.rest))
	}
	return cells, nil
}

// cells checks the cells at the beginning of b and gives them to c.
func (r *BatchReader) cells(c *Change, b []byte, count int) error {
	c.cells = CellList{starts: c.cells.starts[:0]}
	c.DropCells()
	reader := NewCellReader(b)
	renew := r.old && count > SegmentCells // encode the cells anew
	var cells []Cell
	if renew {
		reader.left = count
	}
	for i := range count {
		if i > 0 && i%SegmentCells == 0 {
			c.cells.starts = append(c.cells.starts, len(b)-len(reader.rest))
		}
		before := r.cell
		if err := reader.Next(&r.cell); err != nil {
			return err
		}
		if err := r.cell.check(); err != nil {
			return err
		}
		if r.cell.Packed && r.plain {
			return fmt.Errorf("%w: packed value in a batch of an older format", ErrBadMutation)
		}
		if i > 0 && !inOrder(&before, &r.cell) {
			return fmt.Errorf("%w: cells out of order", ErrBadMutation)
		}
		c.note(r.cell.Kind, r.cell.Version)
		if renew {
			cells = append(cells, r.cell)
		}
	}
	r.rest = reader.rest
	if renew {
		c.encode(cells)
		return nil
	}
	size := len(b) - len(reader.rest)
	c.cells.data, c.cells.count = b[:size:size], count
	return nil
}
