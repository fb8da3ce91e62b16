package table

// Where a table is cut into partitions.

import (
	"bytes"
	"fmt"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// MaxSplits bounds the values of Divide.
const MaxSplits = 1000

// Bound encodes a value of the first of the key columns, at which a partition begins. Errors match
// commit.ErrInvalid.
func Bound(key []manifest.KeyColumn, at row.Value) ([]byte, error) {
	if len(key) > 0 && at.Type() != key[0].Type {
		return nil, fmt.Errorf("%w: a partition cannot begin at %s (%s), the first key column is of type %s",
			commit.ErrInvalid, at, at.Type(), key[0].Type)
	}
	b, err := row.AppendKey(nil, len(key), at)
	if err != nil {
		return nil, fmt.Errorf("%w: the start of a partition: %w", commit.ErrInvalid, err)
	}
	return b, nil
}

// Range encodes a range of values of the first of the key columns. The zero Value is unbounded, and so is the
// smallest one as the start, where the first partition begins. Errors are commit.ErrInvalid.
func Range(key []manifest.KeyColumn, start, end row.Value) (low, high []byte, err error) {
	if start.Type() != 0 {
		low, err = Bound(key, start)
		if start.Equal(Smallest(start.Type())) {
			low = nil
		}
	}
	if err == nil && end.Type() != 0 {
		high, err = Bound(key, end)
	}
	if err == nil && high != nil && (bytes.Compare(low, high) >= 0 || end.Equal(Smallest(end.Type()))) {
		err = fmt.Errorf("%w: the range from %s to %s", commit.ErrInvalid, start, end)
	}
	return low, high, err
}

// Smallest is the smallest value of a type of key columns.
func Smallest(of row.Type) row.Value {
	switch of {
	case row.TypeInteger:
		return row.Integer(math.MinInt64)
	case row.TypeString:
		return row.String("")
	}
	return row.Binary(nil)
}

// Divide describes the partitions of a new table that is cut at values, with ids from 0 on. Errors match
// commit.ErrInvalid.
func Divide(key []manifest.KeyColumn, at []row.Value) ([]*manifest.Partition, error) {
	if len(at) > MaxSplits {
		return nil, fmt.Errorf("%w: SplitAt has %d values, at most %d are allowed", commit.ErrInvalid, len(at), MaxSplits)
	}
	bounds := make([][]byte, 0, len(at)+1)
	for _, v := range at {
		b, err := Bound(key, v)
		if err != nil {
			return nil, fmt.Errorf("SplitAt: %w", err)
		}
		bounds = append(bounds, b)
	}
	slices.SortFunc(bounds, bytes.Compare)
	partitions := []*manifest.Partition{{}}
	for i, b := range bounds {
		last := partitions[i]
		if bytes.Equal(last.Start, b) {
			v, _ := row.PartitionValueAt(b, len(key))
			return nil, fmt.Errorf("%w: SplitAt has %v twice", commit.ErrInvalid, v)
		}
		last.End = b
		partitions = append(partitions, &manifest.Partition{ID: uint64(i) + 1, Start: b, Cut: true})
	}
	return partitions, nil
}

// Divided describes partitions of a new table like those that t has, with their marks and with ids from 0 on.
func (t *Table) Divided() (like []*manifest.Partition, err error) {
	meta := t.Meta()
	if meta == nil {
		return nil, t.Gone()
	}
	for i, p := range meta.Partitions {
		// In epoch 0 every cut counts as the user's: see UserCut.
		like = append(like, &manifest.Partition{ID: uint64(i), Start: p.Start, End: p.End, Epoch: 1, Cut: p.UserCut()})
	}
	return like, nil
}
