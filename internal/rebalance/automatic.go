package rebalance

// What is split and merged without being asked for.

import (
	"context"
	"errors"
	"iter"
	"slices"
	"time"

	"github.com/flagstone-db/flagstone/internal/balance"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/partition"
)

// Start begins to look at the partitions now and then.
func (r *Rebalancer) Start() { r.Jobs.After(balance.Interval, r.look) }

func (r *Rebalancer) look() {
	r.due()
	r.Jobs.After(balance.Interval, r.look)
}

// Grown is told that a tree has been flushed: it may be too large now.
func (r *Rebalancer) Grown(tree *partition.Tree) {
	if tree.Load() != nil && tree.ApproximateSize() > r.splitBytes {
		r.due()
	}
}

// due schedules a look at all partitions.
func (r *Rebalancer) due() {
	r.Jobs.Submit(jobs.Kind{Class: executor.Compaction, Name: "balancing partitions"}, func() error {
		tables := map[uint64]*table.Table{}
		var shown []balance.Table
		for _, t := range r.Env.Tables() {
			tables[t.ID] = t
			shown = append(shown, show(t, r.Env.Oldest()))
		}
		plan := r.balancer.Plan(r.Clock.Elapsed(), shown)
		r.findings.Store(&plan.Reports)
		for i := range plan.Reports {
			r.report(tables[plan.Reports[i].Table], &plan.Reports[i])
		}
		r.carryOut(tables, plan)
		return nil // the next look plans again what failed
	})
}

// show describes the partitions of a table, while the oldest snapshot has a sequence number. That does not read a
// partition that came later: a merge would take the rows of the other one from it too.
func show(t *table.Table, oldest uint64) balance.Table {
	shown := balance.Table{ID: t.ID, Columns: len(t.Key)}
	for _, tree := range t.Trees() {
		start, end := tree.Bounds()
		meta := tree.Meta()
		shown.Partitions = append(shown.Partitions, balance.Partition{
			ID: tree.ID(), Epoch: meta.Epoch, Start: start, End: end, Bytes: tree.ApproximateSize(), Load: tree.Load(),
			Cut: meta.UserCut(), NoSplit: tree.Held() != nil, NoMerge: tree.Held() != nil || tree.Since() > oldest,
			Anchors: func(apart int64) iter.Seq2[[]byte, int64] {
				anchors, err := tree.Anchors(apart)
				if err != nil { // a reader of the tree reports it
					return func(func([]byte, int64) bool) {}
				}
				return anchors.All()
			},
		})
	}
	return shown
}

// answerTime is how long the balancer waits for the owner of an external log. Other stores may need the worker
// that it waits with, and Close waits for it.
const answerTime = 5 * time.Second

// carryOut does what was planned, as far as that is possible.
func (r *Rebalancer) carryOut(tables map[uint64]*table.Table, plan balance.Plan) {
	ctx := context.Background()
	if r.Propose != nil {
		within, cancel := context.WithTimeout(ctx, answerTime)
		defer cancel()
		ctx = within
	}
	for _, s := range plan.Splits {
		t := tables[s.Table]
		r.failed(t, s.Partition, s.Why, r.do(ctx, t, Change{At: s.Key}))
	}
	for _, m := range plan.Merges {
		t := tables[m.Table]
		for _, tree := range t.Trees() {
			if tree.ID() == m.Right {
				at, _ := tree.Bounds()
				r.failed(t, m.Right, m.Why, r.do(ctx, t, Change{At: at, Merge: true}))
			}
		}
	}
}

// expected are the errors of a planned split or merge that users of the table or the store have made impossible
// meanwhile.
var expected = []error{ErrBusy, table.ErrFrozen, table.ErrDetached, table.ErrNotFound, table.ErrClosed}

// failed logs why a split or merge failed that was planned for a reason, unless that was to be expected, or the
// owner of an external log has refused it: only one of the replicas may write to it.
func (r *Rebalancer) failed(t *table.Table, partition uint64, why string, err error) {
	if err != nil && r.Propose == nil && !slices.ContainsFunc(expected, func(e error) bool { return errors.Is(err, e) }) {
		r.Logger.Error("cannot split or merge a partition", "table", t.Name, "partition", partition, "why", why, "error", err)
	}
}

// report logs what splits cannot mend.
func (r *Rebalancer) report(t *table.Table, found *balance.Report) {
	switch {
	case !found.New:
	case found.Kind == balance.PassedRows:
		r.Logger.Warn("reads pass over deleted rows; a compaction of the table drops them", "table", t.Name,
			"partition", found.Partition, "rows/s", found.Passed)
	default:
		r.Logger.Warn("splits do not help a partition", "table", t.Name, "partition", found.Partition, "why", found.Kind.String(),
			"key", readable(t, found.Key), "bytes", found.Bytes, "units/s", found.Units, "limit", found.Limit)
	}
}

// Findings are what the last look found and splits cannot mend.
func (r *Rebalancer) Findings() []balance.Report {
	if found := r.findings.Load(); found != nil {
		return *found
	}
	return nil
}
