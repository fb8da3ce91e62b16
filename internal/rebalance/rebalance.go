package rebalance

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/load"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

var (
	// ErrBusy: two partitions were written so much that they were never flushed at one moment.
	ErrBusy = errors.New("rebalance: the partitions are being written")
	// ErrCancelled ends the event of a merge that is not to be done any more, or is planned anew. No method returns it.
	ErrCancelled = errors.New("rebalance: the merge was cancelled")
)

// Rebalancer splits and merges the partitions of a store's tables. Its methods are safe for concurrent
// use.
type Rebalancer struct {
	Parts
	splitBytes     int64
	balancer       *balance.Balancer // used by one job at a time
	splits, merges atomic.Int64
	pause          atomic.Int64 // the longest, in nanoseconds
	findings       atomic.Pointer[[]balance.Report]
}

// Env is what a rebalancer needs of its store.
type Env interface {
	// Change calls f while no table is made, changed or dropped.
	Change(ctx context.Context, f func() error) error
	// Work calls f, which changes files, unless the store takes no writes.
	Work(f func() error) error
	// Tables are the tables that can be split, without change logs.
	Tables() []*table.Table
	// Detached tells the store that a partition has lost its rows. It must not block.
	Detached(t *table.Table, old *partition.Tree)
	// Oldest is at most the sequence number of every open snapshot.
	Oldest() uint64
	// Edit makes an edit of the manifest durable.
	Edit(e *manifest.Edit) (*manifest.State, error)
}

// Parts are the objects of the store that a rebalancer works with.
type Parts struct {
	Env      Env
	Trees    *partition.Env
	Pipeline *commit.Pipeline
	Upkeep   *upkeep.Upkeep
	Jobs     *jobs.Jobs
	Clock    clock.Clock
	Logger   *slog.Logger
	// Propose, if not nil, hands a change of a table's partitions to the owner of an external log, and
	// returns when it was carried out.
	Propose func(ctx context.Context, t *table.Table, c Change) error
}

// Change is what is to be done to partitions of a table: a split of the one that holds a key, or a merge of
// those that meet at it, or what a partition is to serve.
type Change struct {
	At    []byte
	Asked bool // by a user
	Merge bool
	Serve *manifest.ServiceChange // nil: a split or merge
}

// New returns a rebalancer that does nothing by itself before Start. It splits partitions with more
// than settings.SplitBytes bytes.
func New(parts Parts, settings balance.Settings) *Rebalancer {
	return &Rebalancer{Parts: parts, splitBytes: settings.SplitBytes, balancer: balance.New(settings)}
}

// Stats is what a rebalancer has done since it was made.
type Stats struct {
	Splits, Merges int64
	LongestPause   time.Duration // in which no write was ordered
}

// Stats returns the present figures.
func (r *Rebalancer) Stats() Stats {
	return Stats{r.splits.Load(), r.merges.Load(), time.Duration(r.pause.Load())}
}

// Split cuts the partition of a table that holds a key in two for a user, so that one begins at the key.
// If one does already, Split only marks the cut as the user's. REQUIRES: the key is the smallest one of a
// partition key.
func (r *Rebalancer) Split(ctx context.Context, t *table.Table, at []byte) error {
	return r.do(ctx, t, Change{At: at, Asked: true})
}

// Merge joins the two partitions of a table that meet at a key. It does nothing if none begins there. It
// first flushes both, and compacts them until no file reaches outside of either. Errors match ErrBusy.
func (r *Rebalancer) Merge(ctx context.Context, t *table.Table, at []byte) error {
	return r.do(ctx, t, Change{At: at, Asked: true, Merge: true})
}

// do carries out a change, or proposes it if the log is external.
func (r *Rebalancer) do(ctx context.Context, t *table.Table, c Change) error {
	if r.Propose != nil {
		return r.Propose(ctx, t, c)
	}
	return r.CarryOut(ctx, t, c)
}

// CarryOut does what a method asks for, or the balancer. A merge that it asks for leaves a cut that a user
// asked for meanwhile.
func (r *Rebalancer) CarryOut(ctx context.Context, t *table.Table, c Change) error {
	switch {
	case c.Serve != nil && c.Serve.Service == manifest.Detached:
		return r.detach(ctx, t, c.Serve)
	case c.Serve != nil:
		return r.serve(ctx, t, c.Serve)
	case c.Merge:
		return r.mergeAt(ctx, t, c.At, c.Asked)
	}
	return r.split(ctx, t, c.At, c.Asked)
}

func (r *Rebalancer) split(ctx context.Context, t *table.Table, at []byte, asked bool) error {
	return r.Env.Change(ctx, func() error {
		if err := t.Gone(); err != nil {
			return err
		}
		tree := t.Find(at)
		if start, _ := tree.Bounds(); bytes.Equal(start, at) {
			if !asked || tree.Meta().UserCut() {
				return nil
			}
			return tree.NoteCut()
		}
		if err := t.Writable(tree); err != nil {
			return err
		}
		job := r.begin(event.Split, t, tree)
		err := r.rebalance(t, job, []*partition.Tree{tree}, func(old []*manifest.Partition, id, _ uint64) []*manifest.Partition {
			halves := old[0].Divide(at, id, id+1)
			halves[1].Cut = asked
			return halves
		})
		job.End(err)
		return err
	})
}

// mergeAttempts is how often a merge prepares two partitions that are written meanwhile.
const mergeAttempts = 8

func (r *Rebalancer) mergeAt(ctx context.Context, t *table.Table, at []byte, asked bool) (err error) {
	var job *event.Job
	defer func() {
		switch {
		case job == nil:
		case err == nil && job.Made == nil:
			job.End(fmt.Errorf("%w: there is nothing left to merge", ErrCancelled))
		case !asked && errors.Is(err, ErrBusy):
			job.End(fmt.Errorf("%w: %w", ErrCancelled, err))
		default:
			job.End(err)
		}
	}()
	for range mergeAttempts {
		if err := t.Gone(); err != nil {
			return err
		}
		low, high := neighbours(t, at)
		if high == nil || !asked && high.Meta().UserCut() {
			return nil
		}
		if err := cmp.Or(t.Writable(low), t.Writable(high)); err != nil {
			return err
		}
		if job == nil {
			job = r.begin(event.Merge, t, low, high)
		}
		if err := r.Env.Work(func() error { return r.prepare(ctx, low, high) }); err != nil {
			return err
		}
		if err := r.Env.Change(ctx, func() error { return r.merge(t, job, at, asked) }); !errors.Is(err, ErrBusy) {
			return err
		}
	}
	return ErrBusy
}

// neighbours returns the partitions that meet at a key, nils if none begins there.
func neighbours(t *table.Table, at []byte) (low, high *partition.Tree) {
	trees := t.Partitions.Load()
	high = trees.Find(at)
	if start, _ := high.Bounds(); len(at) == 0 || !bytes.Equal(start, at) {
		return nil, nil
	}
	return trees.Below(at), high
}

// prepare makes two partitions ready to be merged.
func (r *Rebalancer) prepare(ctx context.Context, low, high *partition.Tree) error {
	err := r.Upkeep.Flush(ctx, low, high)
	if err == nil {
		err = r.Upkeep.Trim(ctx, low)
	}
	if err == nil {
		err = r.Upkeep.Trim(ctx, high)
	}
	return err
}

// merge merges the partitions that meet at a key. It is ErrBusy if they are not ready.
func (r *Rebalancer) merge(t *table.Table, job *event.Job, at []byte, asked bool) error {
	low, high := neighbours(t, at)
	switch {
	case high == nil, !asked && high.Meta().UserCut():
		return nil
	case !low.Trimmed() || !high.Trimmed():
		return ErrBusy
	}
	if err := cmp.Or(t.Writable(low), t.Writable(high)); err != nil {
		return err
	}
	return r.rebalance(t, job, []*partition.Tree{low, high}, func(old []*manifest.Partition, id, _ uint64) []*manifest.Partition {
		return []*manifest.Partition{manifest.Join(old[0], old[1], id)}
	})
}

// divide makes the manifest entries of new partitions, with ids from id on, from those that they replace.
// The new ones get the mutations behind the sequence number after.
type divide func(old []*manifest.Partition, id, after uint64) []*manifest.Partition

// exchange is a replacement of neighbouring partitions of a table.
type exchange struct {
	table  *table.Table
	old    []*partition.Tree
	divide divide
	edit   manifest.Edit // what is committed with it
	since  uint64        // of the new trees: see partition.Tree.Since
	begin  func()        // called between two writes, once the table has the new trees; it must not block

	made  []*partition.Tree
	pause time.Duration // in which no write was ordered
}

// begin hands over the beginning of a job on partitions.
func (r *Rebalancer) begin(kind event.Kind, t *table.Table, trees ...*partition.Tree) *event.Job {
	return r.Trees.Events.Begin(event.Event{Kind: kind, Table: t.ID, Partitions: ids(trees)})
}

// rebalance splits or merges partitions, and notes in the job what it made. REQUIRES: no table is made, changed or dropped meanwhile.
func (r *Rebalancer) rebalance(t *table.Table, job *event.Job, old []*partition.Tree, divide divide) error {
	x := exchange{table: t, old: old, divide: divide, begin: func() {}}
	for _, tree := range old {
		x.since = max(x.since, tree.Since())
	}
	err := r.replace(&x)
	if err == nil {
		job.Partitions, job.Made = ids(old), ids(x.made)
		r.note(t, old, x.made, x.pause)
	}
	return err
}

// replace replaces partitions. REQUIRES: no table is made, changed or dropped meanwhile.
func (r *Rebalancer) replace(x *exchange) error {
	t, old := x.table, x.old
	if err := t.Gone(); err != nil {
		return err
	}
	err := partition.Alone(old, func() error {
		if err := r.level(old); err != nil {
			return err
		}
		err := r.Pipeline.Cut(0, func(after uint64) error { return r.commit(x, after) }, func() {
			began := r.Clock.Elapsed()
			r.Pipeline.Replace(old, x.made)
			t.Partitions.Store(t.Partitions.Load().With(old, x.made))
			x.begin()
			x.pause = r.Clock.Elapsed() - began
		})
		if err != nil {
			return err
		}
		for _, tree := range old {
			tree.Leave(t.State())
		}
		return nil
	})
	for _, tree := range append(old, x.made...) {
		r.Upkeep.NoteFiles(tree)
		r.Upkeep.CompactionDue(tree) // of an old one if this failed: its compactions ended early
	}
	return err
}

// note counts and logs a split or a merge.
func (r *Rebalancer) note(t *table.Table, old, made []*partition.Tree, pause time.Duration) {
	what, count := "partitions merged", &r.merges
	if len(made) > len(old) {
		what, count = "partition split", &r.splits
	}
	count.Add(1)
	r.pause.Store(max(r.pause.Load(), int64(pause)))
	pair := made
	if len(old) > 1 {
		pair = old
	}
	at, _ := pair[1].Bounds()
	r.Logger.Info(what, "table", t.Name, "old", ids(old), "new", ids(made), "at", readable(t, at), "pause", pause)
}

// level raises the sequence numbers up to which the partitions' files are complete to the same one: the log
// must not bring back to a merged partition what its files hold. It is ErrBusy if one was flushed behind
// the oldest write that another one has in memory. REQUIRES: partition.Alone.
func (r *Rebalancer) level(trees []*partition.Tree) error {
	if len(trees) == 1 {
		return nil
	}
	complete, flushed := r.Pipeline.Renew(trees), uint64(0)
	for _, tree := range trees {
		complete, flushed = min(complete, tree.Complete()), max(flushed, tree.FlushedSeq())
	}
	if complete < flushed {
		return ErrBusy
	}
	for _, tree := range trees {
		if err := tree.NoteComplete(complete); err != nil {
			return err
		}
	}
	return nil
}

// commit makes the replacement of partitions durable, from the mutation behind a sequence number on, and
// makes the trees of the new ones.
func (r *Rebalancer) commit(x *exchange, after uint64) error {
	state := x.table.State()
	replacement := &manifest.Replacement{Table: x.table.ID, Old: ids(x.old), After: after}
	var were []*manifest.Partition
	for _, id := range replacement.Old {
		_, p := state.Partition(id)
		were = append(were, p)
	}
	replacement.New = x.divide(were, state.NextPartition, after)
	x.edit.Replaced = []*manifest.Replacement{replacement}
	state, err := r.Env.Edit(&x.edit)
	if err != nil {
		return err
	}
	meters := r.meters(x, replacement.New)
	for i, p := range replacement.New {
		_, meta := state.Partition(p.ID)
		tree := partition.NewTree(r.Trees, x.table.ID, meta)
		tree.Measure(meters[i])
		tree.CameAt(x.since)
		x.made = append(x.made, tree)
	}
	return nil
}

// meters returns the meters of new partitions. After a split or a merge they begin with the load of those
// that they replace.
func (r *Rebalancer) meters(x *exchange, made []*manifest.Partition) []*load.Meter {
	now := r.Clock.Elapsed()
	switch {
	case len(x.old) == 2 && len(made) == 1:
		return []*load.Meter{load.Join(x.old[0].Load(), x.old[1].Load(), now)}
	case len(x.old) == 1 && len(made) == 2:
		low, high := x.old[0].Load().Divide(made[1].Start, now)
		return []*load.Meter{low, high}
	}
	meters := make([]*load.Meter, len(made))
	for i := range made {
		meters[i] = load.New(len(x.table.Key), now)
	}
	return meters
}

// readable is the partition key at a bound, for people.
func readable(t *table.Table, bound []byte) string {
	v, _ := row.PartitionValueAt(bound, len(t.Key))
	if v.Type() == row.TypeInteger || v.Type() == row.TypeBinary {
		return v.String()
	}
	return v.Text()
}

func ids(trees []*partition.Tree) (list []uint64) {
	for _, tree := range trees {
		list = append(list, tree.ID())
	}
	return list
}
