package sstable

// Adding a row with all its cells at once.

import (
	"bytes"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

// AddRow does what StartRow and AddCell do for all cells of a row, in cell order, if the
// row fits in a block and refers to no value file. Otherwise it does nothing and returns
// false. Errors are those of StartRow and AddCell.
//
// stored says how another table stores the values of exactly these cells; it is zero if
// unknown. If the values get a segment of their own here too, and this table compresses
// alike, those bytes become the segment. So a compaction need not compress the values of
// wide rows again.
func (w *Writer) AddRow(key []byte, cells []row.Cell, stored row.Stored) (bool, error) {
	if w.err != nil {
		return false, w.err
	}
	need := len(key) + rowOverhead + len(cells)*cellOverhead
	for i := range cells {
		c := &cells[i]
		if c.Separate {
			return false, nil
		}
		need += len(c.Value)
		if len(w.block.rows) == 0 { // later rows have mostly the same names
			need += len(c.Column) + columnOverhead
		}
	}
	if need > w.opts.BlockSize || len(cells) == 0 {
		return false, nil
	}
	if err := w.checkKey(key); err != nil {
		return false, err
	}
	if err := w.endRow(); err != nil {
		return false, err
	}
	if w.block.size()+need > w.opts.BlockSize {
		if err := w.flushBlock(); err != nil {
			return false, err
		}
	}
	w.startRow(key)
	for i := range cells {
		c := &cells[i]
		bad := checkLegal(c)
		if bad == "" && i > 0 && row.CompareCells(&cells[i-1], c) >= 0 {
			bad = "not in cell order"
		}
		if bad != "" {
			return false, w.fail(fmt.Errorf("%w: row key %x: %s: %s", errOrder, w.key, c.Kind, bad))
		}
		w.props.addCell(c)
	}
	w.block.addCells(cells)
	w.block.addStored(stored)
	w.noteLast(&cells[len(cells)-1])
	return true, nil
}

// checkLegal returns what is wrong with the cell by itself, or "".
func checkLegal(c *row.Cell) string {
	switch {
	case !c.Kind.Valid() || c.Seq > row.MaxSequence:
		return "unknown kind or sequence number too large"
	case len(c.Column) > row.MaxColumnBytes || len(c.Value) > row.MaxValueBytes:
		return "column or value too long"
	case c.Kind.IsRowLevel() != (len(c.Column) == 0):
		return "kind does not go with its column"
	case c.Kind == row.KindDeleteRow && c.Version != row.MaxVersion:
		return "version is not MaxVersion"
	case c.Kind != row.KindPut && (c.Type != row.TypeNone || len(c.Value) != 0):
		return "has a value"
	case c.Kind == row.KindPut && !c.Type.IsAttributeType():
		return "value of a type that is no attribute type"
	case c.Separate && (c.Kind != row.KindPut || len(c.Value) != row.ReferenceBytes):
		return "reference that is none, or of a cell that is no put"
	case c.Packed:
		return "is packed"
	}
	return ""
}

// checkKey checks that a row with this key may come next.
func (w *Writer) checkKey(key []byte) error {
	if len(key) == 0 || len(key) > row.MaxKeyBytes {
		return w.fail(fmt.Errorf("%w: row key of %d bytes", errOrder, len(key)))
	}
	if w.props.Rows > 0 && bytes.Compare(key, w.key) <= 0 {
		return w.fail(fmt.Errorf("%w: row key %x after %x", errOrder, key, w.key))
	}
	return nil
}

// startRow begins a row. REQUIRES: the key was checked, and the row before was ended.
func (w *Writer) startRow(key []byte) {
	w.key = append(w.key[:0], key...)
	w.inRow, w.rowHas = true, false
	w.block.startRow(key)
	if w.opts.FilterBitsPerKey > 0 {
		w.hashes = append(w.hashes, Hash(key))
	}
	if w.props.Rows == 0 {
		w.props.SmallestKey = bytes.Clone(key)
	}
	w.props.Rows++
	w.props.KeyBytes += uint64(len(key))
}
