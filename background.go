package flagstone

// Background work, and what the rooms that do it need of the store.

import (
	"context"
	"errors"
	"strings"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
)

// logFactor bounds the log, and with it the time of a recovery: a memtable of any size is flushed
// before the log behind it exceeds this multiple of the memory budget.
const logFactor = 2

// start begins the background work of an open store.
func (s *Store) start() {
	s.issued.WarnIfAhead(s.opts.Logger, s.dir)
	if s.opts.ReadOnly {
		return
	}
	s.dropEndedLogs()
	s.upkeep.Start(s.log)
	if s.opts.PartitionSplitSize > 0 {
		s.rebalancer.Start()
	}
	s.jobs.After(storeclock.LookPeriod, s.lookAtClocks)
}

// lookAtClocks observes the wall clock from time to time. What it finds out is made durable: without
// that, a store that runs for minutes at a time would never complete a probation.
func (s *Store) lookAtClocks() {
	s.jobs.After(storeclock.LookPeriod, s.lookAtClocks)
	s.issued.WarnIfAhead(s.opts.Logger, s.dir)
	if s.trusted.Unsaved() {
		s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Name: "saving the clock"}, func() error {
			if s.pipeline.Failed() != nil {
				return nil // nothing is written any more
			}
			_, err := s.commitEdit(new(manifest.Edit))
			return err
		})
	}
}

// Settle returns when no memtable waits to be flushed, no compaction is due, and the files that
// compactions replaced are deleted, except for those that readers hold. An error says why that
// cannot be reached now; a file that could not be deleted is only logged. Settle leaves the mutable
// memtables as they are: see Flush. While other goroutines write it may wait for long.
func (s *Store) Settle(ctx context.Context) error { return s.describe(s.upkeep.Settle(ctx)) }

// work does work of a caller that changes files, unless the store takes no writes. Close waits for
// the work.
func (s *Store) work(f func() error) error {
	if err := s.pipeline.Writable(); err != nil {
		return err
	}
	if !s.jobs.Begin() {
		return ErrClosed
	}
	defer s.jobs.End()
	return s.describe(f())
}

// jobFailed logs and reports that a job failed, and returns whether it may succeed later.
func (s *Store) jobFailed(job string, err error) (again bool) {
	if errors.Is(err, ErrClosed) || s.closed.Load() {
		return false
	}
	s.opts.Logger.Error(job+" failed", "error", err)
	kind := strings.TrimRight(job, " 0123456789") // several compactions of one tree are numbered
	s.events.Note(event.Event{Kind: event.Failure, Reason: kind, Err: err})
	return s.pipeline.Failed() == nil
}

// roomsEnv implements pressure.Env, commit.Env and upkeep.Env.
type roomsEnv struct{ *Store }

func (e roomsEnv) Writable() error { return e.pipeline.Writable() }

func (e roomsEnv) Await(ctx context.Context, event <-chan struct{}) error {
	return e.jobs.Await(ctx, event)
}

func (e roomsEnv) FlushLargest() { e.pipeline.RotateLargest() }

func (e roomsEnv) Refuses() error {
	if e.closed.Load() {
		return ErrClosed
	}
	if e.opts.ReadOnly {
		return ErrReadOnly
	}
	return nil
}

func (e roomsEnv) FlushDue(t *partition.Tree) { e.upkeep.FlushDue(t) }

func (e roomsEnv) Flushed(tree *partition.Tree) {
	if e.opts.PartitionSplitSize > 0 {
		e.rebalancer.Grown(tree)
	}
}

func (e roomsEnv) Trees() []*partition.Tree { return e.tables.trees(false) }

func (e roomsEnv) LogTrees() []*partition.Tree { return e.tables.trees(true) }

func (e roomsEnv) MinLog() uint64 { return e.state().MinLog }

func (e roomsEnv) Commit(edit *manifest.Edit) error {
	_, err := e.commitEdit(edit)
	return err
}
