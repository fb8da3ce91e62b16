package flagstone

// Partitions: a table's rows are cut into ranges by the first key column, and each range is an LSM
// tree of its own.

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// Partition describes a partition of a table. It holds the rows whose first key column is at least
// Start and below End; the zero Value is unbounded.
type Partition struct {
	ID         uint64 // never used again
	Start, End row.Value
	// Cut says that a user asked for the cut at Start, with TableSpec.SplitAt or Table.Split: the
	// partition is merged with the one below it only by Table.Merge.
	Cut   bool
	Bytes int64 // about how many it has in memory, table files and value files
	// Reads and Writes are rows read and written per second, ByteRate their bytes, keys and names included and
	// values uncompressed. Units is the capacity units of both: one for every 4 KiB of an operation, rounded up. They
	// are averages in which an operation counts half after 20 seconds, and begin at 0 when the store is opened.
	Reads, Writes, ByteRate, Units float64
	// Busiest is the partition-key value with the most load in a random sample of the operations, cut after 512 bytes,
	// and BusiestUnits its part of Units. The zero Value is none: no value has a tenth of the load, or
	// less than 32 operations were sampled. About one of 64 is.
	Busiest      row.Value
	BusiestUnits float64
	Findings     []Finding
	Epoch        uint64 // rises with every split or merge of the range, and with a change of State
	State        PartitionState
	Reason       string // why the partition is frozen or detached
}

// Holds reports whether rows with a value of the first key column belong to the partition.
func (p *Partition) Holds(value row.Value) bool {
	encoded := func(v row.Value) []byte {
		key, _ := row.AppendKey(nil, 1, v) // of another type than the column's: it sorts somewhere
		return key
	}
	key := encoded(value)
	return (p.Start.Type() == row.TypeNone || bytes.Compare(encoded(p.Start), key) <= 0) &&
		(p.End.Type() == row.TypeNone || bytes.Compare(key, encoded(p.End)) < 0)
}

// PartitionState is what a partition serves.
type PartitionState int

const (
	// PartitionServing: reads and writes.
	PartitionServing = PartitionState(manifest.Serving)
	// PartitionFrozen: reads; writes fail with ErrFrozen.
	PartitionFrozen = PartitionState(manifest.Frozen)
	// PartitionDetached: nothing; reads and writes fail with ErrDetached.
	PartitionDetached = PartitionState(manifest.Detached)
)

// FindingKind is what a Finding says.
type FindingKind int

const (
	// LargeKey: one partition-key value has too many bytes.
	LargeKey = FindingKind(balance.LargeKey)
	// BusyKey: one partition-key value has too much load, or so much of a busy partition that no split
	// divides the load.
	BusyKey = FindingKind(balance.BusyKey)
	// MovingLoad: the partition is busy and no split would help, since its load moves to other keys, or
	// the table was split as often as it may be.
	MovingLoad = FindingKind(balance.MovingLoad)
	// PassedRows: scans pass more than 1,000 rows per second that were deleted or have expired, and ten times as many as
	// reads return, on the average of TableMetrics.PassedRate; one scan over 35,000 of them is enough. Table.Compact
	// drops them.
	PassedRows = FindingKind(balance.PassedRows)
)

// String returns the words that the log has for it.
func (k FindingKind) String() string { return balance.Kind(k).String() }

// Finding is something about a partition that splits cannot mend, as the store found it when it last
// looked. It looks every 10 seconds, unless Options.PartitionSplitSize is negative.
type Finding struct {
	Kind FindingKind
	Key  row.Value // the partition-key value; the zero Value with MovingLoad and PassedRows
	// Figure is about the bytes of the key with LargeKey, and rows passed per second with PassedRows; else it is
	// capacity units per second, of the key or with MovingLoad of the partition. Limit is what it exceeds, 0 if that is
	// no fixed figure.
	Figure, Limit float64
}

// A partition-key value is the busiest of a partition with minPart of its load, in a sample of minSample operations: less
// would be chance.
const minSample, minPart = 32, 0.1

// Partitions lists the partitions of the table in key order.
func (t *Table) Partitions() []Partition {
	var list []Partition
	now, reports := t.store.clock.Elapsed(), t.store.rebalancer.Findings()
	_ = t.core.Steady(func(trees []*partition.Tree) error {
		list = nil
		for _, tree := range trees {
			load, meta := tree.Load().Look(now), tree.Meta()
			p := Partition{
				ID: tree.ID(), Cut: meta.UserCut(), Epoch: meta.Epoch, State: PartitionState(meta.Service), Reason: meta.Reason,
				Bytes: tree.ApproximateSize(),
				Reads: load.Read.Rows, Writes: load.Write.Rows, ByteRate: load.Read.Bytes + load.Write.Bytes, Units: load.Units(),
			}
			start, end := tree.Bounds()
			p.Start = t.partitionValue(start)
			p.End = t.partitionValue(end)
			if sample := tree.Load().Sample(); p.Units >= idleUnits && sample.Len() >= minSample {
				if key, part := sample.Heaviest(); part >= minPart {
					p.Busiest, p.BusiestUnits = t.partitionValue(key), part*p.Units
				}
			}
			for _, r := range reports {
				if r.Table == t.core.ID && r.Partition == p.ID {
					p.Findings = append(p.Findings, t.finding(&r))
				}
			}
			list = append(list, p)
		}
		return nil
	})
	return list
}

// partitionValue is the partition-key value of an encoded bound, the zero Value of none.
func (t *Table) partitionValue(bound []byte) row.Value {
	v, _ := row.PartitionValueAt(bound, len(t.core.Key))
	return v.Clone()
}

func (t *Table) finding(r *balance.Report) Finding {
	f := Finding{Kind: FindingKind(r.Kind), Figure: r.Units, Limit: float64(r.Limit)}
	switch f.Kind {
	case LargeKey:
		f.Figure = float64(r.Bytes)
	case PassedRows:
		f.Figure = r.Passed
	}
	f.Key = t.partitionValue(r.Key)
	return f
}

// Split cuts the partition that holds a value of the first key column in two, so that at begins a
// partition, and marks the cut as the user's: see Partition.Cut. If a partition begins there already,
// Split only marks the cut. At the smallest value of the column's type it does nothing, since the first
// partition begins there. It moves no data: both halves refer to the same files until compactions have
// rewritten them, and memtables are shared. Readers, writers, snapshots, transactions and streams go on.
// Errors match ErrInvalid if at is no value of the first key column.
func (t *Table) Split(ctx context.Context, at row.Value) error {
	key, err := table.Bound(t.core.Key, at)
	if err != nil {
		return t.describe("split", at, err)
	}
	if at.Equal(table.Smallest(at.Type())) {
		return t.describe("split", at, cmp.Or(t.store.mayChange(ctx), t.core.Gone()))
	}
	return t.describe("split", at, t.store.rebalancer.Split(ctx, t.core, key))
}

// Merge joins the two partitions that meet at a value of the first key column, and so takes away a cut
// that a user asked for; if none begins there, Merge does nothing. It first flushes both, and compacts
// them if an earlier split left them with files that reach outside of their range. Readers and writers go
// on. Errors match ErrInvalid if at is no value of the first key column, and ErrConflict if the partitions
// are written so fast that no moment was found at which both are flushed.
func (t *Table) Merge(ctx context.Context, at row.Value) error {
	key, err := table.Bound(t.core.Key, at)
	if err != nil {
		return t.describe("merge", at, err)
	}
	err = t.store.rebalancer.Merge(ctx, t.core, key)
	if errors.Is(err, rebalance.ErrBusy) {
		err = fmt.Errorf("%w: the partitions are being written", ErrConflict)
	}
	return t.describe("merge", at, err)
}

// describe names the table and the place in the error of a split or merge.
func (t *Table) describe(what string, at row.Value, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s table %q at %s: %w", what, t.core.Name, at, err)
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

func (e rebalanceEnv) Detached(t *table.Table, old *partition.Tree) {
	start, _ := old.Bounds()
	e.transactions.End(t, old, t.Writable(t.Find(start)))
}

func (e rebalanceEnv) Oldest() uint64 { return e.views.Oldest() }

func (e rebalanceEnv) Edit(edit *manifest.Edit) (*manifest.State, error) { return e.commitEdit(edit) }
