// Package valuefetch replaces the references and packed values among the cells of a row by the
// plain values.
package valuefetch

import (
	"errors"

	"github.com/flagstone-db/flagstone/row"
)

// ErrTooLarge: the cells of a row take more memory than the reader allows.
var ErrTooLarge = errors.New("valuefetch: the cells of a row are too large together")

// Files reads values into a buffer, which is grown as needed.
type Files interface {
	// Value reads the value that an encoded reference leads to.
	Value(buffer *[]byte, reference []byte) ([]byte, error)
	// Unpack returns a packed value.
	Unpack(buffer *[]byte, packed []byte) ([]byte, error)
}

// Values are the values of a row that were fetched. Each has memory of its own, so that a value of
// a megabyte is not copied when the row's other memory grows. The next row uses this memory again.
type Values struct {
	buffers [][]byte
	cells   []int // indexes of the cells whose values are in the buffers
}

// Fetch makes the values of cells plain. It reads these cells' values only, so a projection without
// large values never touches value files. If the cells take more than most bytes (0: no limit), the
// error is ErrTooLarge. REQUIRES: what the cells were read from is pinned.
func (v *Values) Fetch(cells []row.Cell, files Files, most int64) error {
	v.cells = v.cells[:0]
	size := int64(0)
	if most > 0 {
		for i := range cells {
			size += cells[i].Memory() // with references and packed values
		}
		if size > most {
			return ErrTooLarge
		}
	}
	for i := range cells {
		c := &cells[i]
		if !c.Separate && !c.Packed {
			continue
		}
		n := len(v.cells)
		if n == len(v.buffers) {
			v.buffers = append(v.buffers, nil)
		}
		var value []byte
		var err error
		if c.Packed {
			value, err = files.Unpack(&v.buffers[n], c.Value)
		} else {
			value, err = files.Value(&v.buffers[n], c.Value)
		}
		if err != nil {
			return err
		}
		if c.Packed { // the others are counted
			if size += int64(len(value)); most > 0 && size > most {
				return ErrTooLarge
			}
		}
		c.Value, c.Separate, c.Packed = value, false, false
		v.cells = append(v.cells, i)
	}
	return nil
}

// Release lets go of the memory of values, if there is any.
func (v *Values) Release() {
	if len(v.buffers) > 0 {
		*v = Values{}
	}
}

// TakeOut takes the fetched values out of the row's cells, which then can be copied without them.
func (v *Values) TakeOut(cells []row.Cell) (values [][]byte) {
	if len(v.cells) == 0 {
		return nil
	}
	values = make([][]byte, len(v.cells))
	for n, i := range v.cells {
		values[n], cells[i].Value = cells[i].Value, nil
	}
	return values
}

// PutInto gives a copy of the cells what TakeOut returned. The next row does not use this memory.
func (v *Values) PutInto(cells []row.Cell, values [][]byte) {
	if len(values) == 0 {
		return
	}
	for n, i := range v.cells {
		cells[i].Value = values[n]
	}
	*v = Values{}
}
