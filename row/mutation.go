package row

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"
)

// Mutation is everything that one request does to one row. It is applied at one sequence number;
// its own deletes hide only older cells, so a mutation with DeleteRow and puts replaces the row.
// This is the decoded form; see Change.
type Mutation struct {
	Table uint64 // id of the table in the manifest
	Key   []byte // encoded row key, see AppendKey

	// DeleteRow hides everything that the row held before.
	DeleteRow bool
	// PutRow makes the row exist afterwards although no cell is put. Mutations that put cells
	// make the row exist anyway.
	PutRow bool
	// Cells are attribute cells: puts, trims, deletes of single versions. Their sequence numbers
	// are ignored; the mutation has its own.
	Cells []Cell
}

// ErrBadMutation reports a mutation that breaks the rules of the model, or bytes that do not
// encode a batch.
var ErrBadMutation = errors.New("row: malformed mutation")

// Normalize sorts the cells, keeps the last of several puts and deletes of one (column, version),
// and checks the mutation against the limits of the model. Errors are ErrBadMutation.
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
		if c := cmp.Or(bytes.Compare(a.Column, b.Column), cmp.Compare(b.Version, a.Version)); c != 0 {
			return c
		}
		return cmp.Compare(min(a.Kind, KindTrim+1), min(b.Kind, KindTrim+1)) // trims before all others
	})
	kept := m.Cells[:0]
	for _, c := range m.Cells {
		if n := len(kept); n > 0 && overrides(&c, &kept[n-1]) {
			kept = kept[:n-1]
		}
		kept = append(kept, c)
	}
	m.Cells = kept
	return nil
}

// inOrder reports whether b may follow a in a normal mutation: b comes later in cell order, and
// they are not two puts or deletes of the same (column, version).
func inOrder(a, b *Cell) bool { return CompareCells(a, b) < 0 && !overrides(b, a) }

// overrides reports whether two cells are of the same (column, version), and both are trims or
// neither is.
func overrides(a, b *Cell) bool {
	return a.Version == b.Version && (a.Kind == KindTrim) == (b.Kind == KindTrim) && bytes.Equal(a.Column, b.Column)
}

func (c *Cell) check() error {
	if err := checkCell(c.Column, c.Version, c.Kind); err != nil {
		return err
	}
	if c.Kind != KindPut {
		if c.Type != TypeNone || len(c.Value) != 0 || c.Packed {
			return fmt.Errorf("%w: column %q: %s with a value", ErrBadMutation, c.Column, c.Kind)
		}
		return nil
	}
	if len(c.Value) > MaxValueBytes {
		return tooLarge(c.Column, len(c.Value))
	}
	if c.Packed && c.Type != TypeString && c.Type != TypeBinary {
		return fmt.Errorf("%w: column %q: packed %s", ErrBadMutation, c.Column, c.Type)
	}
	if _, err := PayloadValue(c.Type, c.Value); err != nil {
		return fmt.Errorf("%w: column %q: %w", ErrBadMutation, c.Column, err)
	}
	return nil
}

// checkCell checks an attribute cell except for its value.
func checkCell[S string | []byte](column S, version int64, kind Kind) error {
	switch {
	case len(column) == 0 || len(column) > MaxColumnBytes:
		return fmt.Errorf("%w: column name of %d bytes, want 1 to %d", ErrBadMutation, len(column), MaxColumnBytes)
	case version < 0:
		return fmt.Errorf("%w: column %q has negative version %d", ErrBadMutation, string(column), version)
	case kind < KindTrim || kind > KindPut:
		return fmt.Errorf("%w: column %q: %s is no attribute cell", ErrBadMutation, string(column), kind)
	case version == MaxVersion && kind != KindTrim:
		return fmt.Errorf("%w: column %q: version %d is reserved", ErrBadMutation, string(column), version)
	}
	return nil
}

func tooLarge[S string | []byte](column S, size int) error {
	return fmt.Errorf("%w: column %q: value of %d bytes, at most %d", ErrBadMutation, string(column), size, MaxValueBytes)
}
