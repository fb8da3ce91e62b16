package flagstone

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// SampledRow is a row that represents the rows around it.
type SampledRow struct {
	Key     []row.Value
	Bytes   int64 // about how many of the table's bytes it represents, in memory, table files and value files
	Version int64 // the newest version of its first columns, in milliseconds; 0 if it has no cell

	rowKey []byte
}

const (
	// sampledColumns is how many columns of a row are read for its version.
	sampledColumns = 8
	// sampledScan is how many times as much as a sample of a large table a scan may read, if it
	// finds all rows.
	sampledScan = 16
)

// Sample returns about n rows, or all if the table has fewer, spread evenly over its bytes, in
// key order. It scans a table that is smaller than n blocks, or smaller than 16n blocks if it has
// at most 2n rows. For a larger table it reads at most the rows of one block for each row that it
// returns. It reads no value file.
func (t *Table) Sample(ctx context.Context, n int) ([]SampledRow, error) {
	if n < 1 {
		return nil, fmt.Errorf("%w: a sample of %d rows", ErrInvalid, n)
	}
	snapshot, err := t.store.Snapshot()
	if err != nil {
		return nil, err
	}
	defer snapshot.Close()
	var size, scanned, rows int64
	for _, tree := range t.partitions().Trees() {
		size += tree.ApproximateSize()
		bytes, count := tree.ScanSize()
		scanned, rows = scanned+bytes, rows+count
	}
	if err := t.gone(); err != nil {
		return nil, err
	}
	blocks := int64(n) * sstable.DefaultBlockSize
	if scanned < blocks || rows <= 2*int64(n) && scanned < sampledScan*blocks {
		return t.sampleAll(ctx, n, size, snapshot)
	}
	return t.sampleAt(ctx, n, size, snapshot)
}

// scanSizes scans the keys, versions and sizes of rows without reading value files. columns is
// ScanOptions.MaxColumns.
func (t *Table) scanSizes(ctx context.Context, snapshot *Snapshot, columns int, opts ScanOptions) *Rows {
	opts.Snapshot, opts.MaxColumns = snapshot, columns
	rows := t.Scan(ctx, nil, nil, opts)
	rows.unfetched = true
	return rows
}

// sampleAll scans the table. It keeps one of every 1, 2, 4, ... rows, and a large row with higher
// probability.
func (t *Table) sampleAll(ctx context.Context, n int, size int64, snapshot *Snapshot) ([]SampledRow, error) {
	rng := rand.New(rand.NewPCG(1, 2)) // the same table has the same sample
	join := func(a, b SampledRow) SampledRow {
		kept, sum := a, a.Bytes+b.Bytes
		if rng.Int64N(sum) < b.Bytes {
			kept = b
		}
		kept.Bytes = sum
		return kept
	}
	var sample []SampledRow
	var total int64
	stride, joined := 1, 0 // rows that one kept row represents, and those that the last one represents so far
	for r, err := range t.scanSizes(ctx, snapshot, 0, ScanOptions{}).All() {
		if err != nil {
			return nil, err
		}
		s := sampled(r)
		total += s.Bytes
		if last := len(sample) - 1; joined > 0 {
			sample[last] = join(sample[last], s)
		} else {
			sample = append(sample, s)
		}
		if joined++; joined < stride {
			continue
		}
		joined = 0
		if len(sample) == 2*n {
			for i := range n {
				sample[i] = join(sample[2*i], sample[2*i+1])
			}
			sample, stride = sample[:n], 2*stride
		}
	}
	scale(sample, total, size)
	return sample, nil
}

// scale scales weights that add up to sum, so that they add up to about size.
func scale(sample []SampledRow, sum, size int64) {
	for i := range sample {
		sample[i].Bytes = max(int64(float64(sample[i].Bytes)*float64(size)/float64(sum)), 1)
	}
}

// sampleAt reads the row at, or before, places at equal distances of about size/n bytes.
func (t *Table) sampleAt(ctx context.Context, n int, size int64, snapshot *Snapshot) (sample []SampledRow, err error) {
	var anchors partition.Anchors
	apart := max(size/int64(n), 1)
	step := apart / partition.AnchorShare
	for _, tree := range t.partitions().Trees() {
		found, err := tree.Anchors(step)
		if err != nil {
			return nil, t.store.describe(err)
		}
		anchors.Append(found)
	}
	// Large rows around an anchor make one place, however many bytes they have. Their bytes
	// beyond apart must not increase the distance elsewhere.
	for range 4 {
		var spread int64
		for _, bytes := range anchors.All() {
			spread += min(bytes, apart)
		}
		apart = max(spread/int64(n), 1)
	}
	var since int64
	for key, bytes := range anchors.All() {
		if since += bytes; since < apart {
			continue
		}
		found, err := t.sampleBefore(ctx, key, since, apart, since >= 2*max(apart, step), snapshot)
		if err != nil {
			return nil, err
		}
		if len(found) > 0 {
			sample = append(sample, found...)
			since = 0
		}
	}
	// Where several runs overlap, a row can be found twice.
	slices.SortStableFunc(sample, func(a, b SampledRow) int { return bytes.Compare(a.rowKey, b.rowKey) })
	distinct := sample[:0]
	for _, s := range sample {
		if last := len(distinct) - 1; last >= 0 && bytes.Equal(distinct[last].rowKey, s.rowKey) {
			distinct[last].Bytes += s.Bytes
			continue
		}
		distinct = append(distinct, s)
	}
	return distinct, nil
}

// sampleBefore finds the row at a place, or before it, which represents the bytes since the last
// place. If these are many, rows or values are large: then it reads all rows that these bytes
// belong to. They are few, since no anchor lies between them: the rows of a block, or one row in
// memory.
func (t *Table) sampleBefore(ctx context.Context, place []byte, since, apart int64, many bool, snapshot *Snapshot) (sample []SampledRow, err error) {
	const patience = 10_000 // cells of deleted rows after which a place is given up
	columns := sampledColumns
	if many {
		columns = 0
	}
	rows := t.scanSizes(ctx, snapshot, columns, ScanOptions{Reverse: true, MaxExamined: patience})
	defer rows.Close()
	rows.high = append(slices.Clone(place), 0) // the smallest string above it
	var total, left int64                      // of all rows, of those that no sampled row represents
	for total < since && rows.Next() {
		s := sampled(rows.Row())
		if !many {
			s.Bytes = since
			return []SampledRow{s}, nil
		}
		total, left = total+s.Bytes, left+s.Bytes
		if left >= apart || len(sample) == 0 {
			s.Bytes, left = left, 0
			sample = append(sample, s)
		}
	}
	scale(sample, max(total-left, 1), since)
	return sample, rows.Err()
}

func sampled(r *Row) SampledRow {
	s := SampledRow{rowKey: slices.Clone(r.rowKey), Bytes: int64(len(r.rowKey))}
	for _, v := range r.Key() {
		s.Key = append(s.Key, v.Clone())
	}
	for i := range r.cells {
		c := &r.cells[i]
		s.Version = max(s.Version, c.Version)
		s.Bytes += int64(len(c.Column) + len(c.Value))
		if c.Separate {
			if ref, err := row.ParseReference(c.Value); err == nil { // else reading the value reports it
				s.Bytes += int64(ref.Stored)
			}
		}
	}
	return s
}
