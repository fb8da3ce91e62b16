package flagstone

import (
	"context"
	"errors"

	"github.com/flagstone-db/flagstone/manifest"
)

// era is a time in which a table's options and its stream stay as they are. A write reads and
// works out everything in one era. It takes its place in the log in the same era, or begins
// again. So an alteration holds up no writer while it waits, and while it is committed only the
// writers of its own table.
type era struct {
	options manifest.TableOptions
	// next is nil in an era. Between two eras it is a channel that is closed when the next one
	// begins.
	next chan struct{}
}

// errAltered says that a write must be worked out again. It is never returned to users of the
// package.
var errAltered = errors.New("flagstone: the table was altered meanwhile")

// present returns the era of the table. While an alteration is being committed it waits for the
// next era; an error is the context's.
func (t *Table) present(ctx context.Context) (*era, error) {
	for {
		e := t.era.Load()
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

// endEra ends the era of the table: no write of it takes a place in the log until
// begin is called. REQUIRES: tables is held.
func (t *Table) endEra() (begin func()) {
	gap := &era{options: t.meta().Options, next: make(chan struct{})}
	t.store.pipeline.Between(func() { t.era.Store(gap) })
	return func() {
		t.era.Store(&era{options: t.meta().Options})
		close(gap.next)
	}
}
