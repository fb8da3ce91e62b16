package rebalance

// What is done to partitions whose rows move to another store or come from one.

import (
	"bytes"
	"context"
	"fmt"
	"slices"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

// Freeze refuses all later writes to a partition of a table, for a reason; they fail with table.ErrFrozen.
// Everything that was written before is durable and visible when Freeze returns. Errors match commit.ErrInvalid if the
// table has no such partition, and table.ErrDetached.
func (r *Rebalancer) Freeze(ctx context.Context, t *table.Table, id uint64, reason string) error {
	return r.ask(ctx, t, id, manifest.Frozen, reason)
}

// Unfreeze lets a partition take writes again. Errors are those of Freeze.
func (r *Rebalancer) Unfreeze(ctx context.Context, t *table.Table, id uint64) error {
	return r.ask(ctx, t, id, manifest.Serving, "")
}

// ask asks for another service of a partition.
func (r *Rebalancer) ask(ctx context.Context, t *table.Table, id uint64, service manifest.Service, reason string) error {
	if len(reason) > manifest.MaxReasonBytes {
		return fmt.Errorf("%w: a reason of %d bytes, at most %d", commit.ErrInvalid, len(reason), manifest.MaxReasonBytes)
	}
	return r.do(ctx, t, Change{Serve: &manifest.ServiceChange{Partition: id, Service: service, Reason: reason}})
}

// serve freezes a partition, or ends that.
func (r *Rebalancer) serve(ctx context.Context, t *table.Table, c *manifest.ServiceChange) error {
	return r.Env.Change(ctx, func() error {
		tree, err := find(t, c.Partition)
		if err != nil {
			return err
		}
		before, after := tree.Held(), (*partition.Held)(nil)
		if before != nil && before.Service == manifest.Detached {
			return t.Writable(tree)
		}
		hold := func(h *partition.Held) { r.Pipeline.Between(func() { tree.Hold(h) }) }
		if c.Service == manifest.Frozen {
			// From here on, writes that were checked before find out when they are ordered.
			after = &partition.Held{Service: c.Service, Reason: c.Reason}
			hold(after)
			_, _, err = r.Pipeline.Barrier(ctx, 0)
		}
		if err == nil {
			err = tree.NoteService(c.Service, c.Reason)
		}
		if err != nil {
			after = before
		}
		hold(after)
		if err == nil {
			r.Logger.Info("partition frozen or unfrozen", "table", t.Name, "partition", c.Partition, "frozen", after != nil, "reason", c.Reason)
		}
		return err
	})
}

// find returns a partition of a table.
func find(t *table.Table, id uint64) (*partition.Tree, error) {
	if err := t.Gone(); err != nil {
		return nil, err
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
	return r.ask(ctx, t, id, manifest.Detached, reason)
}

func (r *Rebalancer) detach(ctx context.Context, t *table.Table, c *manifest.ServiceChange) error {
	return r.Env.Change(ctx, func() error {
		tree, err := find(t, c.Partition)
		if err != nil {
			return err
		}
		if held := tree.Held(); held == nil || held.Service != manifest.Frozen {
			return fmt.Errorf("%w: table %q: partition %d is not frozen", commit.ErrInvalid, t.Name, c.Partition)
		}
		job := r.begin(event.Detach, t, tree)
		// Nothing of it is in memory then, since no write came since it was frozen.
		if err = r.Upkeep.Flush(ctx, tree); err == nil {
			err = r.replace(&exchange{
				table: t, old: []*partition.Tree{tree}, begin: func() {},
				divide: func(old []*manifest.Partition, id, after uint64) []*manifest.Partition {
					return []*manifest.Partition{detached(old[0], id, after, c.Reason)}
				},
			})
		}
		job.End(err)
		if err == nil {
			r.Env.Detached(t, tree)
			r.Logger.Info("partition detached", "table", t.Name, "partition", c.Partition, "reason", c.Reason)
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

// Arrival is neighbouring partitions of another store, whose files are in place under numbers of this one.
type Arrival struct {
	Partitions []*manifest.Partition // in ascending order; ids and epochs do not matter
	Since      uint64                // views below it do not show them: see table.Readable
	Edit       manifest.Edit         // what is committed with them
}

// Receive makes partitions of another store the table's, by one edit. They replace detached partitions, of which
// the rest stays. REQUIRES: everything up to Since is visible, and it is at least every sequence number in the
// files; their range is detached; no table is made, changed or dropped meanwhile.
func (r *Rebalancer) Receive(t *table.Table, a *Arrival) error {
	start, end := a.Partitions[0].Start, a.Partitions[len(a.Partitions)-1].End
	x := &exchange{
		table: t, old: slices.Clone(t.Partitions.Load().Between(start, end)), divide: a.divide, edit: a.Edit, since: a.Since,
		// What was worked out before, from other rows or an earlier time, is worked out again.
		begin: func() { t.Era.Store(&table.Era{Options: t.Era.Load().Options}) },
	}
	err := r.replace(x)
	if err == nil {
		r.Logger.Info("partitions received", "table", t.Name, "old", ids(x.old), "new", ids(x.made))
	}
	return err
}

// Cover makes the entries of a new table with the partitions, with ids from id on. It is detached outside of
// them. Files are complete up to the sequence number flushed.
func (a *Arrival) Cover(id, flushed uint64) []*manifest.Partition {
	return a.divide([]*manifest.Partition{{Service: manifest.Detached, Reason: "it was never in this store"}}, id, flushed)
}

// divide makes the entries of the partitions, and of what is left of the detached ones on both sides. Epochs of
// another store mean nothing here.
func (a *Arrival) divide(old []*manifest.Partition, id, after uint64) (made []*manifest.Partition) {
	first, last, epoch := old[0], old[len(old)-1], uint64(0)
	for _, p := range old {
		epoch = max(epoch, p.Epoch)
	}
	add := func(p *manifest.Partition) {
		p.ID, p.Epoch, p.FlushedSeq = id+uint64(len(made)), epoch+1, after
		made = append(made, p)
	}
	low, high := a.Partitions[0].Start, a.Partitions[len(a.Partitions)-1].End
	if !bytes.Equal(first.Start, low) {
		rest := detached(first, 0, 0, first.Reason)
		rest.End = low
		add(rest)
	}
	for _, p := range a.Partitions {
		arrived := *p
		arrived.Cut = p.Cut || bytes.Equal(p.Start, first.Start) && first.UserCut()
		add(&arrived)
	}
	if !bytes.Equal(last.End, high) {
		rest := detached(last, 0, 0, last.Reason)
		rest.Start, rest.Cut = high, false
		add(rest)
	}
	return made
}
