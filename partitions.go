package flagstone

// Partitions: a table's rows are cut into ranges by the first key column, and each range is an LSM
// tree of its own.

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// Partition describes a partition of a table. It holds the rows whose first key column is at least
// Start and below End; the zero Value is unbounded.
type Partition struct {
	ID         uint64 // never used again
	Start, End row.Value
	Bytes      int64 // about how many it has in memory, table files and value files
}

// Partitions lists the partitions of the table in key order.
func (t *Table) Partitions() []Partition {
	var list []Partition
	for _, tree := range t.core.Trees() {
		p := Partition{ID: tree.ID(), Bytes: tree.ApproximateSize()}
		start, end := tree.Bounds()
		p.Start, _ = row.PartitionValueAt(start, len(t.core.Key))
		p.End, _ = row.PartitionValueAt(end, len(t.core.Key))
		list = append(list, p)
	}
	return list
}

// Split cuts the partition that holds a value of the first key column in two, so that at begins a
// partition; if it does already, Split does nothing. It moves no data: both halves refer to the same
// files until compactions have rewritten them, and memtables are shared. Readers, writers, snapshots,
// transactions and streams go on. Errors match ErrInvalid if at is no value of the first key column.
func (t *Table) Split(ctx context.Context, at row.Value) error {
	key, err := t.boundary(at)
	if err != nil {
		return err
	}
	return t.store.rebalancer.Split(ctx, t.core, key)
}

// Merge joins the two partitions that meet at a value of the first key column; if none begins there,
// Merge does nothing. It first flushes both, and compacts them if an earlier split left them with files
// that reach outside of their range. Readers and writers go on. Errors match ErrInvalid if at is no
// value of the first key column, and ErrConflict if the partitions are written so fast that no moment was
// found at which both are flushed.
func (t *Table) Merge(ctx context.Context, at row.Value) error {
	key, err := t.boundary(at)
	if err != nil {
		return err
	}
	err = t.store.rebalancer.Merge(ctx, t.core, key)
	if errors.Is(err, rebalance.ErrBusy) {
		err = fmt.Errorf("%w: the partitions of table %q that meet at %s are being written", ErrConflict, t.core.Name, at)
	}
	return err
}

// boundary encodes a value of the first key column.
func (t *Table) boundary(at row.Value) ([]byte, error) {
	if !at.Type().IsKeyType() {
		return nil, fmt.Errorf("%w: table %q: a partition cannot begin at %s", ErrInvalid, t.core.Name, at)
	}
	return t.core.EncodeBound(nil, []row.Value{at})
}

// rebalanceEnv implements rebalance.Env.
type rebalanceEnv struct{ *Store }

func (e rebalanceEnv) Change(ctx context.Context, f func() error) error { return e.change(ctx, f) }

func (e rebalanceEnv) Work(f func() error) error { return e.work(f) }

func (e rebalanceEnv) Tables() (list []*table.Table) {
	for _, t := range e.tables.but(func(t *Table) bool { return t.core.LogOf != 0 || t.core.Dropped.Load() }) {
		list = append(list, t.core)
	}
	return list
}

func (e rebalanceEnv) Edit(edit *manifest.Edit) (*manifest.State, error) { return e.commitEdit(edit) }
