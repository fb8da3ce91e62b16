package rebalance

// What is done to partitions whose rows move to another store or come from one.

import (
	"context"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

// Freeze refuses all later writes to a partition of a table, for a reason; they fail with table.ErrFrozen.
// Everything that was written before is durable and visible when Freeze returns. Errors match commit.ErrInvalid if the
// table has no such partition, and table.ErrDetached.
func (r *Rebalancer) Freeze(ctx context.Context, t *table.Table, id uint64, reason string) error {
	return r.serve(ctx, t, id, manifest.Frozen, reason)
}

// Unfreeze lets a partition take writes again. Errors are those of Freeze.
func (r *Rebalancer) Unfreeze(ctx context.Context, t *table.Table, id uint64) error {
	return r.serve(ctx, t, id, manifest.Serving, "")
}

func (r *Rebalancer) serve(ctx context.Context, t *table.Table, id uint64, service manifest.Service, reason string) error {
	return r.Env.Change(ctx, func() error {
		tree, err := find(t, id, reason)
		if err != nil {
			return err
		}
		before, after := tree.Held(), (*partition.Held)(nil)
		if before != nil && before.Service == manifest.Detached {
			return t.Writable(tree)
		}
		hold := func(h *partition.Held) { r.Pipeline.Between(func() { tree.Hold(h) }) }
		if service == manifest.Frozen {
			// From here on, writes that were checked before find out when they are ordered.
			after = &partition.Held{Service: service, Reason: reason}
			hold(after)
			_, _, err = r.Pipeline.Barrier(ctx, 0)
		}
		if err == nil {
			err = tree.NoteService(service, reason)
		}
		if err != nil {
			after = before
		}
		hold(after)
		if err == nil {
			r.Logger.Info("partition frozen or unfrozen", "table", t.Name, "partition", id, "frozen", after != nil, "reason", reason)
		}
		return err
	})
}

// find returns a partition of a table, of which something is to be done for a reason.
func find(t *table.Table, id uint64, reason string) (*partition.Tree, error) {
	if err := t.Gone(); err != nil {
		return nil, err
	}
	if len(reason) > manifest.MaxReasonBytes {
		return nil, fmt.Errorf("%w: a reason of %d bytes, at most %d", commit.ErrInvalid, len(reason), manifest.MaxReasonBytes)
	}
	trees := t.Trees()
	at := slices.IndexFunc(trees, func(tree *partition.Tree) bool { return tree.ID() == id })
	if at < 0 {
		return nil, fmt.Errorf("%w: table %q has no partition %d", commit.ErrInvalid, t.Name, id)
	}
	return trees[at], nil
}

// Detach removes the rows of a frozen partition, for a reason, by one edit. A partition with another id takes
// its place, whose reads and writes fail with table.ErrDetached. Reads that have pinned the rows go on. Errors
// match commit.ErrInvalid if the table has no such partition, or it is not frozen.
func (r *Rebalancer) Detach(ctx context.Context, t *table.Table, id uint64, reason string) error {
	return r.Env.Change(ctx, func() error {
		tree, err := find(t, id, reason)
		if err != nil {
			return err
		}
		if held := tree.Held(); held == nil || held.Service != manifest.Frozen {
			return fmt.Errorf("%w: table %q: partition %d is not frozen", commit.ErrInvalid, t.Name, id)
		}
		// Nothing of it is in memory then, since no write came since it was frozen.
		if err := r.Upkeep.Flush(ctx, tree); err != nil {
			return err
		}
		err = r.replace(&exchange{
			table: t, old: []*partition.Tree{tree}, begin: func() {},
			divide: func(old []*manifest.Partition, id, after uint64) []*manifest.Partition {
				return []*manifest.Partition{detached(old[0], id, after, reason)}
			},
		})
		if err == nil {
			r.Env.Detached(t, tree)
			r.Logger.Info("partition detached", "table", t.Name, "partition", id, "reason", reason)
		}
		return err
	})
}

// detached is the partition without rows that takes the place of another one.
func detached(p *manifest.Partition, id, after uint64, reason string) *manifest.Partition {
	return &manifest.Partition{
		ID: id, Start: p.Start, End: p.End, Epoch: p.Epoch + 1, FlushedSeq: after, Cut: p.UserCut(),
		Service: manifest.Detached, Reason: reason,
	}
}
