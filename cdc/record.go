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

	timeAt   = 1
	changeAt = timeAt + 8
)

// errBadRecord reports bytes that are not a record.
var errBadRecord = errors.New("cdc: malformed record")

// record is a decoded record. It shares memory with the encoding.
type record struct {
	Micros int64 // of the commit, since the epoch
	row.Mutation
}

// appendRecord appends the record of a change; the caller sets its time with setTime.
func appendRecord(dst []byte, c *row.Change) []byte {
	return c.AppendTo(append(dst, format, 0, 0, 0, 0, 0, 0, 0, 0))
}

// setTime sets the commit time of a record that appendRecord made.
func setTime(b []byte, micros int64) {
	binary.LittleEndian.PutUint64(b[timeAt:], uint64(micros))
}

// decode reads a record. Errors are errBadRecord.
func decode(b []byte) (r record, err error) {
	if err := checkFormat(b, changeAt); err != nil {
		return r, err
	}
	r.Micros = int64(binary.LittleEndian.Uint64(b[timeAt:]))
	r.Mutation, err = row.DecodeMutation(b[changeAt:])
	return r, bad(err)
}

// AppendBefore appends the puts that columns held before a change. It sorts them into cell order.
func AppendBefore(dst []byte, cells []row.Cell) ([]byte, error) {
	var c row.Change
	if err := c.Set(&row.Mutation{Key: []byte{0}, Cells: cells}); err != nil {
		return nil, err
	}
	dst = binary.AppendUvarint(append(dst, format), uint64(c.Cells().Len()))
	return append(dst, c.Cells().Bytes()...), nil
}

// decodeBefore reads what AppendBefore wrote. Errors are errBadRecord.
func decodeBefore(b []byte) ([]row.Cell, error) {
	if err := checkFormat(b, 1); err != nil {
		return nil, err
	}
	cells, err := row.DecodeCells(b[1:])
	return cells, bad(err)
}

// checkFormat checks that there are at least so many bytes, of which the first is a known format.
func checkFormat(b []byte, size int) error {
	switch {
	case len(b) < size:
		return fmt.Errorf("%w: %d bytes", errBadRecord, len(b))
	case b[0] < oldFormat || b[0] > format:
		return fmt.Errorf("%w: format %d, this version reads up to %d", errBadRecord, b[0], format)
	}
	return nil
}

// bad says that an error is of bytes that are not a record.
func bad(err error) error {
	if err != nil {
		err = fmt.Errorf("%w: %w", errBadRecord, err)
	}
	return err
}
