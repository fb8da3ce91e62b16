package row

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// The encoding of a batch, which is what the log carries:
//
//	batch    = format time count mutation*
//	format   = 1 byte, 1
//	time     = 8 bytes little endian: the clock reading, in milliseconds, at
//	           which the batch was made
//	count    = 4 bytes little endian: number of mutations
//	mutation = table flags keyLen key cellCount cell*
//	table, keyLen, cellCount = uvarint
//	flags    = 1 byte: bit 0 delete-row, bit 1 put-row, others zero
//	cell     = see AppendCells
//
// Applying a batch reads nothing but these bytes. Mutation i of a batch gets
// the sequence number of the batch plus i.

const (
	batchFormat     = 1
	batchHeaderSize = 1 + 8 + 4

	flagDeleteRow = 1 << 0
	flagPutRow    = 1 << 1
)

// Batch is an ordered list of mutations in encoded form. The zero Batch is
// empty and ready to use; Reset makes a used one so again and keeps its memory.
type Batch struct {
	data []byte
}

// Reset empties the batch.
func (b *Batch) Reset() { b.data = b.data[:0] }

// Cap is the size of the memory that the batch keeps, in bytes.
func (b *Batch) Cap() int { return cap(b.data) }

// Empty reports whether no mutation was added.
func (b *Batch) Empty() bool { return len(b.data) <= batchHeaderSize }

// Len returns the number of mutations.
func (b *Batch) Len() int {
	if len(b.data) < batchHeaderSize {
		return 0
	}
	return int(binary.LittleEndian.Uint32(b.data[9:]))
}

// Add normalizes the mutation (see Mutation.Normalize, which reorders its
// cells) and appends it. The mutation is copied.
func (b *Batch) Add(m *Mutation) error {
	if err := m.Normalize(); err != nil {
		return err
	}
	if len(b.data) == 0 {
		b.data = append(b.data, make([]byte, batchHeaderSize)...)
		b.data[0] = batchFormat
	}
	binary.LittleEndian.PutUint32(b.data[9:], uint32(b.Len()+1))
	var flags byte
	if m.DeleteRow {
		flags |= flagDeleteRow
	}
	if m.PutRow {
		flags |= flagPutRow
	}
	b.data = slices.Grow(b.data, encodedBound(m))
	b.data = binary.AppendUvarint(b.data, m.Table)
	b.data = append(b.data, flags)
	b.data = binary.AppendUvarint(b.data, uint64(len(m.Key)))
	b.data = append(b.data, m.Key...)
	b.data = binary.AppendUvarint(b.data, uint64(len(m.Cells)))
	b.data = AppendCells(b.data, m.Cells)
	return nil
}

// encodedBound is at least the size of a mutation's encoding.
func encodedBound(m *Mutation) int {
	size := 1 + 3*binary.MaxVarintLen64 + len(m.Key)
	for i := range m.Cells {
		size += 1 + 3*binary.MaxVarintLen64 + len(m.Cells[i].Column) + len(m.Cells[i].Value)
	}
	return size
}

// SetTime stamps the batch with a clock reading in milliseconds.
func (b *Batch) SetTime(ms int64) {
	if len(b.data) >= batchHeaderSize {
		binary.LittleEndian.PutUint64(b.data[1:], uint64(ms))
	}
}

// Bytes returns the encoding, valid until the batch is changed. An empty batch
// has no bytes.
func (b *Batch) Bytes() []byte { return b.data }

// BatchReader decodes a batch, mutation by mutation.
type BatchReader struct {
	rest  []byte
	count int
	time  int64
}

// NewBatchReader checks the header of an encoded batch. Errors are
// ErrBadMutation.
func NewBatchReader(data []byte) (BatchReader, error) {
	if len(data) < batchHeaderSize {
		return BatchReader{}, fmt.Errorf("%w: batch of %d bytes", ErrBadMutation, len(data))
	}
	if data[0] != batchFormat {
		return BatchReader{}, fmt.Errorf("%w: batch format %d, this version reads %d", ErrBadMutation, data[0], batchFormat)
	}
	r := BatchReader{
		rest:  data[batchHeaderSize:],
		count: int(binary.LittleEndian.Uint32(data[9:])),
		time:  int64(binary.LittleEndian.Uint64(data[1:])),
	}
	return r, nil
}

// Count returns the number of mutations not yet read.
func (r *BatchReader) Count() int { return r.count }

// Time returns the clock reading that the batch was stamped with.
func (r *BatchReader) Time() int64 { return r.time }

// Next decodes the next mutation into m, reusing its Cells slice; keys,
// columns and values share memory with the batch. It returns false at the end
// of the batch. Errors are ErrBadMutation: the batch is damaged or not one,
// and nothing of it may be applied.
func (r *BatchReader) Next(m *Mutation) (bool, error) {
	if r.count == 0 {
		if len(r.rest) != 0 {
			return false, fmt.Errorf("%w: %d bytes after the last mutation", ErrBadMutation, len(r.rest))
		}
		return false, nil
	}
	b := r.rest
	table, n := binary.Uvarint(b)
	if n <= 0 || n >= len(b) {
		return false, fmt.Errorf("%w: table id cut short", ErrBadMutation)
	}
	flags := b[n]
	if flags&^(flagDeleteRow|flagPutRow) != 0 {
		return false, fmt.Errorf("%w: unknown flags %#02x", ErrBadMutation, flags)
	}
	key, b, ok := cutBytes(b[n+1:], MaxKeyBytes)
	if !ok || len(key) == 0 {
		return false, fmt.Errorf("%w: row key cut short", ErrBadMutation)
	}
	count, n := binary.Uvarint(b)
	const smallestCell = 4 // head, length, one byte of name, version
	if n <= 0 || count > uint64(len(b)-n)/smallestCell {
		return false, fmt.Errorf("%w: %d cells in %d bytes", ErrBadMutation, count, len(b))
	}
	m.Table, m.Key = table, key
	m.DeleteRow, m.PutRow = flags&flagDeleteRow != 0, flags&flagPutRow != 0
	if cap(m.Cells) < int(count) {
		m.Cells = make([]Cell, count)
	}
	m.Cells = m.Cells[:count]
	cells := NewCellReader(b[n:])
	for i := range m.Cells {
		c := &m.Cells[i]
		if err := cells.Next(c); err != nil {
			return false, err
		}
		c.Seq = 0
		if err := c.check(); err != nil {
			return false, err
		}
		if i > 0 && !inOrder(&m.Cells[i-1], c) {
			return false, fmt.Errorf("%w: cells out of order", ErrBadMutation)
		}
	}
	r.rest = cells.Rest()
	r.count--
	return true, nil
}
