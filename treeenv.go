package flagstone

// What trees and the registry of their files ask of the store.

import (
	"errors"
	"fmt"
	"path/filepath"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
)

// treeEnv implements partition.Manifest, partition.Retention, partition.Scheduler and
// tablefiles.Owner.
type treeEnv struct{ *Store }

func (s treeEnv) NextFile() uint64 { return s.manifest.NewFileNumber() }

func (s treeEnv) ValueFile(number uint64) (manifest.ValueUsage, bool) {
	return s.state().ValueFile(number)
}

func (s treeEnv) Cancelled() error { return roomsEnv(s).Refuses() }

func (s treeEnv) Yield() {
	s.pipeline.HandOver()
	if s.gate.Pressure() == 0 {
		vfs.YieldThread()
	}
}

func (s treeEnv) ReadsLose(tree *partition.Tree) {
	if !s.opts.ReadOnly {
		s.upkeep.ReadsLose(tree)
	}
}

// Commit commits the outcome of a compaction, unless it would now have to keep more versions
// than it did: the limit was raised, perhaps for a short time, and a delete was made or a
// snapshot opened under it.
func (s treeEnv) Commit(table uint64, kept partition.Kept, e *manifest.Edit) (*manifest.State, error) {
	s.merges.RLock()
	defer s.merges.RUnlock()
	if kept.Versions > 0 && s.views.MaxVersions(table, kept.NewerSeq) > kept.Versions {
		return nil, partition.ErrStale
	}
	state, err := s.commitEdit(e)
	if err != nil && !errors.Is(err, ErrPoisoned) {
		err = fmt.Errorf("%w: %w", partition.ErrRefused, err)
	}
	return state, err
}

// Obsolete schedules the deletion of a table or value file to which nothing refers any more. name
// is relative to the store's directory.
func (s treeEnv) Obsolete(name string) {
	// After a failed write of the manifest it is unknown which files it names on disk. A file
	// that is kept here is an orphan at the next Open.
	if s.pipeline.Failed() != nil {
		return
	}
	s.jobs.Submit(jobs.Kind{Class: executor.Cleanup, Of: name, Name: "remove obsolete file"}, func() error {
		name := filepath.Join(s.dir, name)
		if err := s.fs.Remove(name); err != nil && !s.closed.Load() {
			s.opts.Logger.Warn("cannot remove obsolete file", "file", name, "error", err)
		}
		return nil
	})
}

// Advance raises the table's expiry watermark to the present cutoff of the trusted clock, before a
// compaction begins to drop by it. A view that is opened from then on shows nothing that
// the compaction takes for expired, even if the clock or the table's options change. oldest is
// the smallest version that the compaction will read. The lock keeps the options from changing:
// what a longer Time To Live brings back must not be dropped by a shorter one that was read
// before.
func (s treeEnv) Advance(table uint64, oldest int64) error {
	s.merges.RLock()
	defer s.merges.RUnlock()
	meta := s.state().Table(table)
	if meta == nil {
		return nil
	}
	now := s.trusted.Look().Millis
	if s.external != nil { // the same on every replica at an entry
		now = s.external.MillisToDrop()
	}
	cutoff := mvcc.CutoffAt(now, meta.Options.TTLSeconds)
	if cutoff <= meta.Watermark || oldest/1000 >= cutoff {
		return nil
	}
	// If the wall clock is set back, new cells must not be stamped with an expired time.
	s.issued.Raise(cutoff * 1000)
	_, err := s.commitEdit(&manifest.Edit{Watermarks: []manifest.Watermark{{Table: table, Cutoff: cutoff}}})
	return err
}

func (s treeEnv) Policy(table uint64) mvcc.Policy { return s.views.Policy(table) }

func (s treeEnv) MaxVersions(table, seq uint64) int { return s.views.MaxVersions(table, seq) }
