package table

import (
	"context"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/manifest"
)

// Era is a time in which a table's options and its stream stay as they are. A write reads and
// works out everything in one era. It takes its place in the log in the same era, or begins
// again. So an alteration holds up no writer while it waits, and while it is committed only the
// writers of its own table.
type Era struct {
	Options manifest.TableOptions
	// next is nil in an era. Between two eras it is a channel that is closed when the next one
	// begins.
	next chan struct{}
}

// ErrAltered says that a write must be worked out again. Users of the store never get it.
var ErrAltered = commit.ErrAgain

// Present returns the era of the table. While an alteration is being committed it waits for the
// next era; an error is the context's.
func (t *Table) Present(ctx context.Context) (*Era, error) {
	for {
		e := t.Era.Load()
		if e.next == nil {
			return e, nil
		}
		select {
		case <-e.next:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// NewEra begins another era with the same options: what was worked out before it must be worked out again.
// REQUIRES: the caller is a function of commit.Pipeline.Between, and nothing else changes the table.
func (t *Table) NewEra() { t.Era.Store(&Era{Options: t.Era.Load().Options}) }

// EndEra ends the era of the table: no write of it takes a place in the log until begin is
// called. REQUIRES: nothing else changes the table.
func (t *Table) EndEra() (begin func()) {
	gap := &Era{Options: t.Meta().Options, next: make(chan struct{})}
	t.Pipeline.Between(func() { t.Era.Store(gap) })
	return func() {
		t.Era.Store(&Era{Options: t.Meta().Options})
		close(gap.next)
	}
}
