package flagstone

// Partitions that move to another store: see docs/moving.md.

import "context"

// Freeze refuses all later writes to a partition, whatever way they come: they fail with ErrFrozen, which
// names the table, the range and the reason. Reads go on; the partition is not split or merged. It stays frozen
// when the store is opened again, until Unfreeze. What was written before is durable and visible when Freeze
// returns. reason is at most 512 bytes. Errors match ErrInvalid if the table has no such partition, and
// ErrDetached.
func (t *Table) Freeze(ctx context.Context, partition uint64, reason string) error {
	return t.store.describe(t.store.rebalancer.Freeze(ctx, t.core, partition, reason))
}

// Unfreeze lets a frozen partition take writes again. Errors are those of Freeze.
func (t *Table) Unfreeze(ctx context.Context, partition uint64) error {
	return t.store.describe(t.store.rebalancer.Unfreeze(ctx, t.core, partition))
}

// Detach removes the rows of a frozen partition by one edit, because another store has them. Afterwards every
// read and write of its range, and every scan that reaches it, fails with ErrDetached, also through earlier
// snapshots. Scans that have begun to read the partition go on; transactions of its rows end. The range gets a
// partition with another id. Errors match ErrInvalid if the table has no such partition or it is not frozen.
func (t *Table) Detach(ctx context.Context, partition uint64, reason string) error {
	return t.store.describe(t.store.rebalancer.Detach(ctx, t.core, partition, reason))
}
