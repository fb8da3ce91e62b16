package flagstone

import (
	"context"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// SampledRow is a row that stands for those around it.
type SampledRow struct {
	Key     []row.Value
	Bytes   int64 // about how many of the table's it stands for
	Version int64 // the newest version of its first columns, in milliseconds; 0 if it has no cell
}

// sampledColumns are how many columns of a row are looked at for its version.
const sampledColumns = 8

// Sample returns about n rows, or all if the table has fewer, that are spread
// evenly over its bytes, in the order of their keys. It costs a scan of
// the table while that is smaller than n blocks; beyond, it reads no more than a
// few rows for each that it returns.
func (t *Table) Sample(ctx context.Context, n int) ([]SampledRow, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: a sample of %d rows", ErrInvalid, n)
	}
	snapshot, err := t.store.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snapshot.Close()
	size := t.ApproximateSize()
	apart := max(size/int64(n), 1)
	var anchors partition.Anchors
	for _, tree := range t.partitions().Trees() {
		found, err := tree.Anchors(apart / partition.AnchorShare)
		if err != nil {
			return nil, t.store.describe(err)
		}
		anchors.Append(found)
	}
	if err := t.gone(); err != nil {
		return nil, err
	}
	if anchors.Len() < n {
		return t.sampleAll(ctx, n, size, snapshot)
	}
	return t.sampleAt(ctx, &anchors, apart, snapshot)
}

// sampleOptions are those of a scan that looks for rows, not for their cells.
func sampleOptions(snapshot *Snapshot, patience int64) ScanOptions {
	return ScanOptions{
		ReadOptions: ReadOptions{Snapshot: snapshot, MaxColumns: sampledColumns, MaxVersions: 1},
		MaxExamined: patience,
	}
}

// sampleAll scans the table and keeps every row, or every second, fourth...
func (t *Table) sampleAll(ctx context.Context, n int, size int64, snapshot *Snapshot) ([]SampledRow, error) {
	var sample []SampledRow
	stride, next := 1, 0
	rows := t.Scan(ctx, nil, nil, sampleOptions(snapshot, 0))
	defer rows.Close()
	for i := 0; rows.Next(); i++ {
		if i < next {
			continue
		}
		next = i + stride
		sample = append(sample, sampled(rows.Row()))
		if len(sample) < 2*n {
			continue
		}
		kept := sample[:0]
		for j := 0; j < len(sample); j += 2 {
			kept = append(kept, sample[j])
		}
		sample, stride = kept, stride*2
		next = i - i%stride + stride
	}
	if err := rows.Err(); err != nil {
		return nil, err
	}
	for i := range sample {
		sample[i].Bytes = max(size/int64(len(sample)), 1)
	}
	return sample, nil
}

// sampleAt reads the row at, or behind, each place that lies apart bytes behind
// the one before.
func (t *Table) sampleAt(ctx context.Context, anchors *partition.Anchors, apart int64, snapshot *Snapshot) ([]SampledRow, error) {
	const patience = 10_000 // cells of deleted rows, where a place is given up
	var sample []SampledRow
	var since int64
	for key, bytes := range anchors.All() {
		if since += bytes; since < apart {
			continue
		}
		rows := t.Scan(ctx, nil, nil, sampleOptions(snapshot, patience))
		rows.low = slices.Clone(key)
		if rows.Next() {
			s := sampled(rows.Row())
			s.Bytes = since
			sample = append(sample, s)
			since = 0
		}
		err := rows.Err()
		rows.Close()
		if err != nil {
			return nil, err
		}
	}
	return sample, nil
}

func sampled(r *Row) SampledRow {
	var s SampledRow
	for _, v := range r.Key() {
		s.Key = append(s.Key, v.Clone())
	}
	for i := range r.Cells {
		s.Version = max(s.Version, r.Cells[i].Version)
	}
	return s
}
