package flagstone

import (
	"context"

	"github.com/flagstone-db/flagstone/internal/commit"
)

// Commit is a write on its way to durability.
type Commit struct {
	store *Store
	of    commit.Commit
}

// Wait returns when the write is durable (with SyncAlways) and visible to every later read, or
// when that failed. If the context ends first, the error matches ErrOutcomeUnknown: the write may
// still become durable.
func (c *Commit) Wait(ctx context.Context) error { return c.store.wait(ctx, c.of) }

// wait waits for a commit. A refusal is an error of the caller's function, and returned as it is.
func (s *Store) wait(ctx context.Context, c commit.Commit) error {
	refusal, err := c.Wait(ctx)
	if err != nil {
		return s.describe(err)
	}
	return refusal
}

// write is a set of changes on its way through the pipeline, and the memory for the next one.
type write struct {
	changes []*RowChange // for Store.write, which turns them into mutations
	out     commit.Write
}

// add adds a change to a write.
func (w *write) add(c *RowChange) { w.changes = append(w.changes, c) }

// reset empties the write, so that its memory holds nothing alive.
func (w *write) reset() {
	clear(w.changes)
	w.changes = w.changes[:0]
	w.out.Reset()
}

// take returns the commit, so that the write's memory can serve the next one.
func (w *write) take(s *Store) *Commit { return &Commit{s, w.out.Commit()} }

// refuse makes the write one that changes nothing; see commit.Pipeline.Refuse.
func (w *write) refuse(s *Store, refusal error) { w.out.Refused(s.pipeline.Refuse(refusal)) }
