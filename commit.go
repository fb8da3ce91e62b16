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
