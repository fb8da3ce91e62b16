package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"math"

	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// SplitPoints returns keys that divide the table into pieces of about splitBytes each: n points
// make n+1 pieces. A point holds a value of the first key column only, the partition key, which
// is never divided between two pieces. limit bounds the number of points; 0 is no limit.
//
// The answer comes from the indexes of the table files and estimates of the memtables; no data is
// read. Sizes are those on disk, compressed. For each table file that overlaps its end, a piece
// can be too large by a sixteenth of splitBytes, or by a block if that is more; it can also be
// too large by one partition key.
func (t *Table) SplitPoints(ctx context.Context, splitBytes int64, limit int) ([][]row.Value, error) {
	if splitBytes < 1 || limit < 0 {
		return nil, fmt.Errorf("%w: split points of %d bytes, at most %d", ErrInvalid, splitBytes, limit)
	}
	cutter := partition.NewCutter(len(t.core.Key), splitBytes, cmp.Or(limit, math.MaxInt))
	for _, tree := range t.core.Trees() {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := tree.Cut(cutter); err != nil {
			return nil, t.store.describe(err)
		}
		if err := t.core.Gone(); err != nil {
			return nil, err
		}
	}
	values := cutter.Points()
	points := make([][]row.Value, len(values))
	for i := range values {
		points[i] = values[i : i+1 : i+1]
	}
	return points, nil
}

// ApproximateSize is about how many bytes the table takes, in memory and on
// disk.
func (t *Table) ApproximateSize() (size int64) {
	for _, tree := range t.core.Trees() {
		size += tree.ApproximateSize()
	}
	return size
}
