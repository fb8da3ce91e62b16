package cdc

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

const (
	format    = 2
	oldFormat = 1

	flagDeleteRow = 1 << 0
	flagPutRow    = 1 << 1

	timeAt     = 1
	headerSize = 1 + 8 + 1
)

// errBadRecord reports bytes that are not a record.
var errBadRecord = errors.New("cdc: malformed record")

// record is a decoded record. It shares memory with the encoding.
type record struct {
	Micros int64 // of the commit, since the epoch
	// DeleteRow and PutRow are those of the mutation.
	DeleteRow, PutRow bool
	Key               []byte // encoded row key
	Cells             []row.Cell
}

// appendRecord appends the record of a change; the caller sets its time with setTime.
func appendRecord(dst []byte, c *row.Change) []byte {
	var flags byte
	if c.DeleteRow {
		flags |= flagDeleteRow
	}
	if c.PutRow {
		flags |= flagPutRow
	}
	dst = append(dst, format, 0, 0, 0, 0, 0, 0, 0, 0, flags)
	dst = binary.AppendUvarint(dst, uint64(len(c.Key)))
	dst = append(dst, c.Key...)
	return appendCells(dst, c.Cells())
}

// setTime sets the commit time of a record that appendRecord made.
func setTime(b []byte, micros int64) {
	binary.LittleEndian.PutUint64(b[timeAt:], uint64(micros))
}

func appendCells(dst []byte, cells *row.CellList) []byte {
	dst = binary.AppendUvarint(dst, uint64(cells.Len()))
	return append(dst, cells.Bytes()...)
}

// decode reads a record. Errors are errBadRecord.
func decode(b []byte) (record, error) {
	if len(b) < headerSize {
		return record{}, fmt.Errorf("%w: %d bytes", errBadRecord, len(b))
	}
	if err := checkFormat(b[0]); err != nil {
		return record{}, err
	}
	flags := b[headerSize-1]
	if flags&^(flagDeleteRow|flagPutRow) != 0 {
		return record{}, fmt.Errorf("%w: unknown flags %#02x", errBadRecord, flags)
	}
	r := record{
		Micros:    int64(binary.LittleEndian.Uint64(b[timeAt:])),
		DeleteRow: flags&flagDeleteRow != 0, PutRow: flags&flagPutRow != 0,
	}
	b = b[headerSize:]
	length, n := binary.Uvarint(b)
	if n <= 0 || length == 0 || length > row.MaxKeyBytes || length > uint64(len(b)-n) {
		return record{}, fmt.Errorf("%w: row key cut short", errBadRecord)
	}
	end := n + int(length)
	r.Key = b[n:end:end]
	var err error
	r.Cells, err = decodeCells(b[end:])
	return r, err
}

// AppendBefore appends the puts that columns held before a change. It sorts them into cell order.
func AppendBefore(dst []byte, cells []row.Cell) ([]byte, error) {
	var c row.Change
	if err := c.Set(&row.Mutation{Key: []byte{0}, Cells: cells}); err != nil {
		return nil, err
	}
	return appendCells(append(dst, format), c.Cells()), nil
}

// decodeBefore reads what AppendBefore wrote. Errors are errBadRecord.
func decodeBefore(b []byte) ([]row.Cell, error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: no bytes", errBadRecord)
	}
	if err := checkFormat(b[0]); err != nil {
		return nil, err
	}
	return decodeCells(b[1:])
}

func checkFormat(f byte) error {
	if f < oldFormat || f > format {
		return fmt.Errorf("%w: format %d, this version reads up to %d", errBadRecord, f, format)
	}
	return nil
}

// decodeCells reads cells up to the end of b.
func decodeCells(b []byte) ([]row.Cell, error) {
	count, n := binary.Uvarint(b)
	const smallestCell = 4 // head, length, one byte of name, version
	if n <= 0 || count > uint64(len(b)-n)/smallestCell {
		return nil, fmt.Errorf("%w: %d cells in %d bytes", errBadRecord, count, len(b))
	}
	cells := make([]row.Cell, count)
	r := row.NewCellReader(b[n:])
	for i := range cells {
		if err := r.Next(&cells[i]); err != nil {
			return nil, fmt.Errorf("%w: %w", errBadRecord, err)
		}
	}
	if len(r.Rest()) > 0 {
		return nil, fmt.Errorf("%w: %d bytes after the last cell", errBadRecord, len(r.Rest()))
	}
	return cells, nil
}
