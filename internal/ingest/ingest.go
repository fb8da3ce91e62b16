// Package ingest brings table files that were made elsewhere into a table: into a range of keys that has no row,
// by one edit of the manifest. Writer makes such files of sorted rows. Package partition knows how the files
// become part of trees.
package ingest

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/scan"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/internal/views"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
)

var (
	// ErrNotEmpty: the range has a row.
	ErrNotEmpty = errors.New("ingest: the range is not empty")
	// ErrStream: an installation writes no records of a stream.
	ErrStream = errors.New("flagstone: the table has a stream")
	// errChanged: the range may have been written since it was examined.
	errChanged = errors.New("ingest: the range was written meanwhile")
)

// Env is what an installer needs of its store.
type Env interface {
	// Change calls f while no table is made, changed or dropped.
	Change(ctx context.Context, f func() error) error
	// Work calls f, which changes files, unless the store takes no writes.
	Work(f func() error) error
	// HoldRange keeps other writers from the rows of a table from low, included, to end, excluded, until
	// release is called. When it returns, all that was ever written to these rows is applied.
	HoldRange(ctx context.Context, t *table.Table, low, end []byte) (release func(), err error)
	// Edit makes an edit of the manifest durable. After an error that matches commit.ErrPoisoned, the edit may be
	// durable.
	Edit(e *manifest.Edit) (*manifest.State, error)
	// Grown is told that a tree has more files. It must not block.
	Grown(tree *partition.Tree)
}

// Installer installs files. Its methods are safe for concurrent use.
type Installer struct {
	Env      Env
	Trees    *partition.Env
	Pipeline *commit.Pipeline
	Upkeep   *upkeep.Upkeep
}

// Install makes the files of a load part of a table, by one edit of the manifest. Their range must have no
// visible row. While the files are added, other writers of the range fail; those of other rows go on. When it
// returns nil, the rows are durable and visible to every later read, and a view that was opened before
// sees none of them. A crash that keeps them keeps all that was acknowledged before the call. Errors match
// ErrNotEmpty, ErrStream, those of table.Table.Writable, of Env, and of commit.Pipeline.Barrier, after which
// the files are installed and will become visible. After other errors the files are deleted, unless the
// manifest may name them.
func (in *Installer) Install(ctx context.Context, t *table.Table, load *partition.Load) error {
	job := in.Trees.Events.Begin(event.Event{Kind: event.Load, Table: t.ID, Files: len(load.Files), Input: load.Size()})
	named, err := in.hold(ctx, t, load)
	job.End(err)
	if err == nil || named {
		return err
	}
	// After the end of the store its files may be those of the next one, which has deleted these.
	_ = in.Env.Work(func() error {
		load.Discard(in.Trees)
		return nil
	})
	return err
}

// unheldAttempts is how often the range is examined while others go on writing to it. If they changed it each
// time, they are kept away while it is examined.
const unheldAttempts = 4

// hold is Install. named says that the manifest may name the files.
func (in *Installer) hold(ctx context.Context, t *table.Table, load *partition.Load) (named bool, err error) {
	low, end := load.Range()
	attempt := func(hold func(f func() error) error) error {
		seen, err := in.examine(ctx, t, low, end)
		if err != nil {
			return err
		}
		return in.Env.Change(ctx, func() error {
			return hold(func() (err error) {
				named, err = in.install(ctx, t, load, low, end, seen)
				return err
			})
		})
	}
	held := func(f func() error) error {
		release, err := in.Env.HoldRange(ctx, t, low, end)
		if err != nil {
			return err
		}
		defer release()
		return f()
	}
	for range unheldAttempts {
		if err = attempt(held); err != errChanged {
			return named, err
		}
	}
	err = held(func() error {
		for {
			// A split may still hand over what was in memory.
			if err := attempt(func(f func() error) error { return f() }); err != errChanged {
				return err
			}
		}
	})
	return named, err
}

// examine flushes what memtables have of a range, and makes durable what a reader may have seen, so that the
// same takes no time while others wait. It returns ErrNotEmpty if the range has a row; otherwise everything up to
// the sequence number seen was looked at.
//
// A row that has expired counts as absent once it is below the watermark. Otherwise a longer Time To Live, or a
// clock that is set back, would show its cells again, among those of the load. The cells of a deleted row never
// come back, since its tombstone stays as long as they do.
func (in *Installer) examine(ctx context.Context, t *table.Table, low, end []byte) (seen uint64, err error) {
	if err := in.flush(ctx, t, low, end); err != nil {
		return 0, err
	}
	if err := in.Pipeline.SyncVisible(); err != nil {
		return 0, err
	}
	if err := in.Trees.Retention.Advance(t.ID, 0); err != nil {
		return 0, err
	}
	seen = in.Pipeline.Visible()
	meta := t.Meta()
	if meta == nil {
		return 0, fmt.Errorf("%w: %q was dropped", table.ErrNotFound, t.Name)
	}
	var w scan.Walk
	w.Request = scan.Request{
		Ctx: ctx, Table: t, View: views.Of(meta, views.Latest, 0), Sel: mvcc.Selection{NoCells: true}, Low: low, High: end,
	}
	w.Visit()
	if w.Next() {
		err = fmt.Errorf("%w: table %q has row %v", ErrNotEmpty, t.Name, t.DecodeKey(w.Key))
	}
	return seen, errors.Join(err, w.Release())
}

// flush flushes the trees that have something of a range in memory.
func (in *Installer) flush(ctx context.Context, t *table.Table, low, end []byte) error {
	var due []*partition.Tree
	for _, tree := range t.Partitions.Load().Between(low, end) {
		if tree.InMemory(low, end) {
			due = append(due, tree)
		}
	}
	if due == nil {
		return nil
	}
	return in.Env.Work(func() error { return in.Upkeep.Flush(ctx, due...) })
}

// install is Install while no table changes and nothing is written to the range. It is errChanged if the range
// may have been written after seen.
func (in *Installer) install(ctx context.Context, t *table.Table, load *partition.Load, low, end []byte, seen uint64) (named bool, err error) {
	if err := t.Gone(); err != nil {
		return false, err
	}
	if t.Log.Load() != nil {
		return false, fmt.Errorf("%w: table %q", ErrStream, t.Name)
	}
	trees := t.Partitions.Load().Between(low, end)
	for _, tree := range trees {
		if err := t.Writable(tree); err != nil {
			return false, err
		}
	}
	err = partition.Alone(trees, func() error {
		for _, tree := range trees {
			if changed, err := tree.Changed(low, end, seen); changed || err != nil {
				return cmp.Or(err, errChanged)
			}
		}
		// Without this sync, a crash could keep the load and lose what was acknowledged before it.
		if err := in.Pipeline.SyncVisible(); err != nil {
			return err
		}
		placed, err := load.Place(trees)
		if err != nil {
			return err
		}
		err = in.Pipeline.Cut(0, func(after uint64) error {
			state, err := in.Env.Edit(placed.Edit(after))
			named = err == nil || errors.Is(err, commit.ErrPoisoned)
			if err == nil {
				placed.Open(state)
			}
			return err
		}, placed.Show)
		if err != nil {
			return err
		}
		// Compactions go on only once the rows are visible: see mvcc.Policy.
		_, _, err = in.Pipeline.Barrier(ctx, 0)
		if err != nil && !errors.Is(err, commit.ErrPoisoned) && !errors.Is(err, commit.ErrOutcomeUnknown) {
			err = fmt.Errorf("%w: %v", commit.ErrOutcomeUnknown, err) // a full disk, for example
		}
		return err
	})
	for _, tree := range trees {
		in.Upkeep.NoteFiles(tree)
		in.Upkeep.CompactionDue(tree) // also if this failed: its compactions ended early
		in.Env.Grown(tree)
	}
	return named, err
}
