package upkeep

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"sync"
	"time"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/wal"
)

// Upkeep is the background work on the trees of a store. Its methods are safe for concurrent use.
// Errors of its methods are those of trees, of the pipeline, and of the context.
type Upkeep struct {
	Parts
	opts  Options
	log   *wal.Writer // set by Start; nil if the log is external
	quiet quiet

	// flushing is held, shared, while a tree is flushed; AtOneMoment takes it exclusively, so
	// that no table file holds later writes than its moment.
	flushing sync.RWMutex
}

// Env is what upkeep needs of its store.
type Env interface {
	// Trees returns the trees of all tables.
	Trees() []*partition.Tree
	// LogTrees returns the trees for which the log is kept: those of all tables, and of tables
	// that are being dropped.
	LogTrees() []*partition.Tree
	// Flushed tells the store that a tree was flushed. It must not block.
	Flushed(tree *partition.Tree)
	// MinLog is the oldest log segment that the manifest needs.
	MinLog() uint64
	// DurableIndex is up to which entry of an external log the manifest needs nothing any more.
	DurableIndex() uint64
	// Commit makes an edit of the manifest durable.
	Commit(e *manifest.Edit) error
}

// Parts are the objects of the store that upkeep works with.
type Parts struct {
	Env      Env
	Pipeline *commit.Pipeline
	Gate     *pressure.Gate
	Jobs     *jobs.Jobs
	Executor executor.Executor
	Clock    clock.Clock
}

// Options are the settings of upkeep.
type Options struct {
	MemtableSize int64 // in bytes
	Compaction   compaction.Config
	Logger       *slog.Logger
}

// IdlePeriod is how often trees without writes are checked for expired data, and how long a tree
// has no writes before it counts as idle.
const IdlePeriod = time.Minute

// New returns upkeep that does nothing by itself before Start.
func New(parts Parts, opts Options) *Upkeep {
	return &Upkeep{Parts: parts, opts: opts, quiet: newQuiet()}
}

// Start begins the background work of an open store. REQUIRES: no flush was due before.
func (u *Upkeep) Start(log *wal.Writer) {
	u.log = log
	for _, tree := range u.Env.Trees() {
		u.NoteFiles(tree)
		u.CompactionDue(tree)
	}
	u.Pipeline.BoundLog()                  // flushes need the log from here on
	if err := u.releaseLog(); err != nil { // the next flush tries again
		u.opts.Logger.Warn("cannot release the log of earlier runs", "error", err)
	}
	u.Jobs.After(IdlePeriod, u.lookAtIdle)
}

// lookAtIdle lets every tree look for expired data, and notes which trees have no writes.
func (u *Upkeep) lookAtIdle() {
	trees := u.Env.Trees()
	u.quiet.noteIdle(trees)
	for _, tree := range trees {
		u.CompactionDue(tree)
	}
	u.Jobs.After(IdlePeriod, u.lookAtIdle)
}

// NoteFiles tells the gate how far the compactions of a tree are behind.
func (u *Upkeep) NoteFiles(tree *partition.Tree) {
	tree.Levels() // may open files, and must not under the gate's lock
	u.Gate.NoteTree(tree, func() (depth int, debt float64) {
		levels := tree.Levels()
		base := compaction.LargestBase(u.opts.Compaction)
		return compaction.Depth(levels[0]), float64(compaction.Debt(levels, u.opts.Compaction)) / float64(base)
	})
}

// maxCompactions bounds the compactions of one tree that run at once.
const maxCompactions = 8

// compactions are the names of the jobs that compact one tree.
var compactions = [maxCompactions]string{
	"compaction", "compaction 2", "compaction 3", "compaction 4", "compaction 5", "compaction 6", "compaction 7", "compaction 8",
}

// CompactionDue schedules the compactions of a tree that are due. Once a job has chosen one,
// another job beside it looks for the next.
func (u *Upkeep) CompactionDue(tree *partition.Tree) { u.nthCompactionDue(tree, 0) }

func (u *Upkeep) nthCompactionDue(tree *partition.Tree, n int) {
	u.Jobs.Submit(jobs.Kind{Class: executor.Compaction, Of: tree, Name: compactions[n]}, func() error {
		did, err := tree.Compact(u.quiet.activity(tree), func() {
			if n+1 < maxCompactions {
				u.nthCompactionDue(tree, n+1)
			}
		})
		if errors.Is(err, partition.ErrStale) {
			u.nthCompactionDue(tree, n)
			return nil
		}
		if errors.Is(err, partition.ErrReplaced) {
			did, err = false, nil // the call that replaces the tree, or fails to, schedules what follows
		}
		if did && err == nil {
			u.NoteFiles(tree)
			u.nthCompactionDue(tree, n)
		}
		u.Gate.NoteCompaction(tree, err)
		return err
	})
}

// Compact compacts the keys from start to end (nil for unbounded) of trees down to one level. The
// context ends it between two compactions.
func (u *Upkeep) Compact(ctx context.Context, trees []*partition.Tree, start, end []byte) error {
	for _, tree := range trees {
		err := compact(ctx, tree, start, end)
		if next := tree.Successors(); errors.Is(err, partition.ErrReplaced) && next != nil {
			err = u.Compact(ctx, next, start, end)
		}
		u.NoteFiles(tree)
		u.CompactionDue(tree) // background compactions of the tree did nothing meanwhile
		if err != nil {
			return err
		}
	}
	return nil
}

// Trim does the compactions of a tree that are due until no file reaches outside of its range.
func (u *Upkeep) Trim(ctx context.Context, tree *partition.Tree) error {
	for waited := false; !tree.Trimmed(); {
		did, err := false, ctx.Err()
		if err == nil {
			did, err = tree.Compact(partition.Trimmed, nil)
		}
		switch {
		case errors.Is(err, partition.ErrReplaced):
			return nil
		case err != nil && !errors.Is(err, partition.ErrStale):
			return err
		case !did && err == nil && waited:
			return nil
		case !did && err == nil:
			tree.AwaitCompactions() // one of them may have the file
		}
		waited = !did && err == nil
	}
	return nil
}

func compact(ctx context.Context, tree *partition.Tree, start, end []byte) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		_, more, err := tree.CompactRange(start, end)
		switch {
		case errors.Is(err, partition.ErrReplaced) && tree.Successors() == nil:
			tree.AwaitAlone()
		case !errors.Is(err, partition.ErrStale) && (err != nil || !more):
			return err
		}
	}
}

// Settle returns when no memtable waits to be flushed, no compaction is due, and the files that
// compactions replaced are deleted, except for those that readers hold. An error says why that
// cannot be reached now; a file that could not be deleted is only logged. Settle leaves the mutable
// memtables as they are: see Flush. While other goroutines write it may wait for long.
func (u *Upkeep) Settle(ctx context.Context) error {
	// Trees count as quiet only once all is flushed: a compaction that begins before would have
	// to be done again.
	for {
		if err := u.await(ctx, executor.Flush); err != nil {
			return err
		}
		trees := u.Env.Trees()
		for _, tree := range trees {
			u.rest(tree)
		}
		if err := u.await(ctx, executor.Flush, executor.Compaction); err != nil {
			return err
		}
		busy := func(tree *partition.Tree) bool { return u.quiet.activity(tree) == partition.Busy }
		if !slices.ContainsFunc(trees, busy) {
			return u.await(ctx, executor.Cleanup)
		}
	}
}

// await returns when no job of these classes is queued or running. It returns the error of flushes
// and compactions that failed.
func (u *Upkeep) await(ctx context.Context, classes ...executor.Class) error {
	for {
		if err := u.Pipeline.Writable(); err != nil {
			return err
		}
		busy, ended := u.Jobs.Busy(classes...)
		if !busy {
			return u.Gate.Failure()
		}
		if err := u.Jobs.Await(ctx, ended); err != nil {
			return err
		}
	}
}
