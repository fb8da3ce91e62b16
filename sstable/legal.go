package sstable

// What is checked of rows and cells that are added to a table file.

import (
	"bytes"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

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
	if bad := w.keyFault(key); bad != "" {
		return w.fail(fmt.Errorf("%w: %s", errOrder, bad))
	}
	return nil
}

// keyFault returns why no row with this key may come next, or "".
func (w *Writer) keyFault(key []byte) string {
	if len(key) == 0 || len(key) > row.MaxKeyBytes {
		return fmt.Sprintf("row key of %d bytes", len(key))
	}
	if w.props.Rows > 0 && bytes.Compare(key, w.key) <= 0 {
		return fmt.Sprintf("row key %x after %x", key, w.key)
	}
	return ""
}

// Check reports whether a cell of the row with this key may come next, and whether StartRow has to be
// called before. The writer stays usable after an error, which matches ErrCorrupt.
func (w *Writer) Check(key []byte, c *row.Cell) (newRow bool, err error) {
	bad := ""
	if newRow = !w.inRow || !bytes.Equal(key, w.key); !newRow {
		bad = w.checkCell(c)
	} else if bad = w.keyFault(key); bad == "" {
		bad = checkLegal(c)
	}
	if bad != "" {
		return newRow, fmt.Errorf("%w: a cell of row key %x: %s", ErrCorrupt, key, bad)
	}
	return newRow, nil
}
