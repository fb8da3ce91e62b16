// Package ingest brings table files that were made elsewhere into a table: into a range of keys that has no row,
// by one edit of the manifest. Writer makes such files of sorted rows. Package partition knows how the files
// become part of trees.
package ingest

import (
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/scan"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
)

var (
	// ErrNotEmpty: the range has a row.
	ErrNotEmpty = errors.New("ingest: the range is not empty")
	// ErrStream: an installation writes no records of a stream.
	ErrStream = errors.New("flagstone: the table has a stream")
	// errInMemory: a memtable has cells of the range, and must be flushed.
	errInMemory = errors.New("ingest: a memtable has cells of the range")
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
// visible row. While Install runs, other writers of the range fail; those of other rows go on. When it
// returns nil, the rows are durable and visible to every later read, and a view that was opened before
// sees none of them. Errors match ErrNotEmpty, ErrStream, partition.ErrOccupied, those of Env, and of
// commit.Pipeline.Barrier, after which the files are installed and will become visible. After other errors the files are
// deleted, unless the manifest may name them.
func (in *Installer) Install(ctx context.Context, t *table.Table, load *partition.Load) error {
	named, err := in.hold(ctx, t, load)
	if err == nil || named {
		return err
	}
	// After the end of the store its files may be those of the next one.
	return errors.Join(err, in.Env.Work(func() error {
		load.Discard(in.Trees)
		return nil
	}))
}

// hold is Install. named says that the manifest may name the files.
func (in *Installer) hold(ctx context.Context, t *table.Table, load *partition.Load) (named bool, err error) {
	low, end := load.Range()
	// What is in memory is flushed before other writers are kept away, since that may take long.
	if err := in.flush(ctx, t, low, end); err != nil {
		return false, err
	}
	release, err := in.Env.HoldRange(ctx, t, low, end)
	if err != nil {
		return false, err
	}
	defer release()
	if err := in.checkEmpty(ctx, t, low, end); err != nil {
		return false, err
	}
	for {
		if err := in.flush(ctx, t, low, end); err != nil {
			return false, err
		}
		err := in.Env.Change(ctx, func() (err error) {
			named, err = in.install(ctx, t, load, low, end)
			return err
		})
		if err != errInMemory { // a split has handed it over meanwhile
			return named, err
		}
	}
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

// checkEmpty returns ErrNotEmpty if a range has a row that the newest reader sees.
func (in *Installer) checkEmpty(ctx context.Context, t *table.Table, low, end []byte) error {
	view, err := t.View(nil, true)
	if err != nil {
		return err
	}
	var w scan.Walk
	w.Request = scan.Request{
		Ctx: ctx, Table: t, View: view, Sel: mvcc.Selection{NoCells: true}, Low: low, High: end,
	}
	w.Visit()
	if w.Next() {
		err = fmt.Errorf("%w: table %q has row %x", ErrNotEmpty, t.Name, w.Key)
	}
	return errors.Join(err, w.Release())
}

// install is Install while no table changes and nothing is written to the range. It is errInMemory if
// the trees must be flushed first.
func (in *Installer) install(ctx context.Context, t *table.Table, load *partition.Load, low, end []byte) (named bool, err error) {
	if err := t.Gone(); err != nil {
		return false, err
	}
	if t.Log.Load() != nil {
		return false, fmt.Errorf("%w: table %q", ErrStream, t.Name)
	}
	trees := t.Partitions.Load().Between(low, end)
	err = partition.Alone(trees, func() error {
		for _, tree := range trees {
			if tree.InMemory(low, end) {
				return errInMemory
			}
		}
		placed, err := load.Place(trees)
		if err != nil {
			return err
		}
		err = in.Pipeline.Cut(load.LargestSeq(), func(after uint64) error {
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
		return err
	})
	for _, tree := range trees {
		in.Upkeep.NoteFiles(tree)
		in.Upkeep.CompactionDue(tree) // also if this failed: its compactions ended early
		in.Env.Grown(tree)
	}
	return named, err
}
