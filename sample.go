package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"iter"
	"math"
	"slices"

	"github.com/flagstone-db/flagstone/internal/sample"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// SampledRow is a row that represents the rows around it.
type SampledRow struct {
	Key     []row.Value
	Bytes   int64 // about how many of the table's bytes it represents, in memory, table files and value files
	Version int64 // the newest version of its first columns, in milliseconds; 0 if it has no cell
	Own     int64 // about how many bytes its key and its first columns have, with values as they were put
}

const (
	// sampledColumns is how many columns of a row are read for its version and its size.
	sampledColumns = 8
	// sampledScan is how many times as much as a sample of a large table a scan may read, if it
	// finds all rows.
	sampledScan = 16
	// sampledBytes is how much memory the cells of a row may take that is looked at. What a larger
	// row has beyond it does not count.
	sampledBytes = 4 << 20
)

// Sample returns about n rows, or all if the table has fewer, spread evenly over its bytes, in
// key order. It scans a table that is smaller than n blocks, or smaller than 16n blocks if it has
// at most 2n rows. For a larger table it reads at most the rows of one block for each row that it
// returns. It reads no value file, and does not count as load. Of a row it looks at what takes
// 4 MiB of memory, so larger rows may count for less than they are.
func (t *Table) Sample(ctx context.Context, n int) ([]SampledRow, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: a sample of %d rows", ErrInvalid, n)
	}
	snapshot, err := t.store.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snapshot.Close()
	size, scanned, count := t.sizes()
	if err := t.core.Gone(); err != nil {
		return nil, err
	}
	blocks := int64(n) * t.store.opts.BlockSize
	read := t.sampleAt
	if scanned < blocks || count <= 2*int64(n) && scanned < sampledScan*blocks {
		read = t.sampleAll
	}
	found, err := read(ctx, n, size, snapshot)
	if err != nil {
		return nil, err
	}
	return t.sampled(found)
}

// SampleKey is Sample of the rows with a value of the first of several key columns. It looks at the first 16n of them, or
// fewer if they and the deleted rows among them have more than 128n cells. Each row has the same Bytes.
func (t *Table) SampleKey(ctx context.Context, value row.Value, n int) ([]SampledRow, error) {
	left := sampledScan * n
	rows := t.scanSizes(ctx, []row.Value{value}, []row.Value{value, row.Max()}, nil, sampledColumns,
		ScanOptions{MaxExamined: int64(left) * sampledColumns})
	defer rows.Close()
	found := sample.OfAll(func(yield func(sample.Row) bool) {
		for r := range rows.sizes() {
			if left--; left < 0 || !yield(r) {
				return
			}
		}
	}, n, 0)
	if err := rows.Err(); err != nil {
		return nil, err
	}
	return t.sampled(found)
}

func (t *Table) sampled(found []sample.Row) (rows []SampledRow, err error) {
	rows = make([]SampledRow, len(found))
	for i, r := range found {
		rows[i] = SampledRow{Bytes: r.Bytes, Version: r.Version, Own: r.Own}
		if rows[i].Key, err = decodeKey(nil, r.Key, len(t.core.Key)); err != nil {
			return nil, err
		}
	}
	return rows, nil
}

// sizes is about how many bytes the table takes, how many of them a scan reads without value files, and
// how many rows it has.
func (t *Table) sizes() (size, scanned, count int64) {
	_ = t.core.Steady(func(trees []*partition.Tree) error {
		size, scanned, count = 0, 0, 0
		for _, tree := range trees {
			bytes, rows, values := tree.Sizes()
			size, scanned, count = size+bytes+values, scanned+bytes, count+rows
		}
		return nil
	})
	return size, scanned, count
}

// scanSizes scans the keys, versions and sizes of rows from start to end without reading value files. columns is
// ScanOptions.MaxColumns.
func (t *Table) scanSizes(ctx context.Context, start, end []row.Value, snapshot *Snapshot, columns int, opts ScanOptions) *Rows {
	opts.Snapshot, opts.MaxColumns, opts.MaxBytes = snapshot, columns, sampledBytes
	rows := t.Scan(ctx, start, end, opts)
	rows.walk.Sampling = true
	return rows
}

// sampleAll scans the table.
func (t *Table) sampleAll(ctx context.Context, n int, size int64, snapshot *Snapshot) ([]sample.Row, error) {
	rows := t.scanSizes(ctx, nil, nil, snapshot, 0, ScanOptions{})
	defer rows.Close()
	return sample.OfAll(rows.sizes(), n, size), rows.Err()
}

// sampleAt reads the rows at, or before, places at equal distances.
func (t *Table) sampleAt(ctx context.Context, n int, size int64, snapshot *Snapshot) ([]sample.Row, error) {
	var anchors partition.Anchors
	step := max(size/int64(n), 1) / partition.AnchorShare
	err := t.core.Steady(func(trees []*partition.Tree) error {
		anchors = partition.Anchors{}
		for _, tree := range trees {
			found, err := tree.Anchors(step)
			if err != nil {
				return t.store.describe(err)
			}
			anchors.Append(found)
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return sample.At(anchors.All(), n, size, step, func(place []byte, since, apart int64, many bool) ([]sample.Row, error) {
		const patience = 10_000 // cells of deleted rows after which a place is given up
		columns := sampledColumns
		if many {
			columns = 0
		}
		rows := t.scanSizes(ctx, nil, nil, snapshot, columns, ScanOptions{Reverse: true, MaxExamined: patience})
		defer rows.Close()
		rows.walk.High = append(slices.Clone(place), 0) // the smallest string above it
		rows.walk.Visit()
		return sample.Before(rows.sizes(), since, apart, many), rows.Err()
	})
}

// sizes walks the rows of a scan as rows of a sample.
func (r *Rows) sizes() iter.Seq[sample.Row] {
	return func(yield func(sample.Row) bool) {
		for r.Next() && yield(sample.Of(r.Row().rowKey, r.Row().cells)) {
		}
	}
}

// SplitPoints returns keys that divide the table into pieces of about splitBytes each: n points
// make n+1 pieces. A point holds a value of the first key column only, the partition key, which
// is never divided between two pieces. limit bounds the number of points; 0 is no limit.
//
// The answer comes from the indexes of the table files and a sample of the memtables; no data block is
// read. Sizes are those on disk, compressed, with values in value files. A piece is larger or smaller than
// splitBytes by at most an eighth of it, and one block of each table file, or of each level above level 0,
// that overlaps its start or its end. It is smaller by up to one partition key, where that would have made
// it too large; a partition key larger than splitBytes makes a piece as large. What is in memtables is
// estimated from some 512 rows or more for each piece: in 95 of 100 pieces that is wrong by less than an eighth if
// rows are of about the same size. The last piece is what is left.
func (t *Table) SplitPoints(ctx context.Context, splitBytes int64, limit int) ([][]row.Value, error) {
	if splitBytes < 1 || limit < 0 {
		return nil, fmt.Errorf("%w: split points of %d bytes, at most %d", ErrInvalid, splitBytes, limit)
	}
	cutter, err := t.cut(ctx, nil, nil, splitBytes, cmp.Or(limit, math.MaxInt))
	if err != nil {
		return nil, err
	}
	values := cutter.Points()
	points := make([][]row.Value, len(values))
	for i := range values {
		points[i] = values[i : i+1 : i+1]
	}
	return points, nil
}

// cut cuts what lies between two keys into pieces.
func (t *Table) cut(ctx context.Context, low, high []byte, pieceBytes int64, limit int) (cutter *partition.Cutter, err error) {
	err = t.core.Steady(func([]*partition.Tree) error {
		cutter = partition.NewCutter(len(t.core.Key), low, high, pieceBytes, limit)
		for _, tree := range t.core.Partitions.Load().Between(low, high) {
			if err := ctx.Err(); err != nil {
				return err
			}
			if err := tree.Cut(cutter); err != nil {
				return t.store.describe(err)
			}
			if err := t.core.Gone(); err != nil {
				return err
			}
		}
		return nil
	})
	return cutter, err
}

// ApproximateSize is about how many bytes the table takes, in memory and on
// disk.
func (t *Table) ApproximateSize() int64 {
	size, _, _ := t.sizes()
	return size
}
