package flagstone

import (
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/row"
)

// Batch is a list of changes of any rows and tables that is applied as a
// whole: after a crash, and for every reader, all of it is there or nothing.
// A Batch is used by one goroutine at a time.
type Batch struct {
	store   *Store
	changes []*RowChange
	byRow   map[batchRow]*RowChange
}

type batchRow struct {
	table uint64
	key   string
}

// NewBatch makes an empty batch.
func (s *Store) NewBatch() *Batch {
	return &Batch{store: s, byRow: make(map[batchRow]*RowChange)}
}

// Row returns the change of a row in this batch. Asking for the same row again
// returns the same change: its calls act one after the other.
func (b *Batch) Row(t *Table, key []row.Value) *RowChange {
	c := new(RowChange)
	c.init(t, key)
	if c.err == nil {
		id := batchRow{t.id, string(c.mutation.Key)}
		if earlier := b.byRow[id]; earlier != nil {
			return earlier
		}
		b.byRow[id] = c
	}
	b.changes = append(b.changes, c)
	return c
}

// Len returns the number of rows that the batch touches.
func (b *Batch) Len() int { return len(b.changes) }

// Apply writes a batch. When it returns nil the batch is durable (with
// SyncAlways) and visible to every later read; on an error nothing of it was
// written, except after ErrPoisoned or an error of ctx, when its outcome is
// unknown until the store is opened again.
func (s *Store) Apply(ctx context.Context, b *Batch) error {
	c, err := s.ApplyAsync(ctx, b)
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

// ApplyAsync is Apply without the wait for durability. The batch is ordered
// before every write that is begun later; Commit.Wait must be called.
func (s *Store) ApplyAsync(ctx context.Context, b *Batch) (*Commit, error) {
	if err := s.throttle(ctx); err != nil {
		return nil, err
	}
	changes := make([]*RowChange, 0, len(b.changes))
	stripes := make([]uint32, 0, len(b.changes))
	for _, c := range b.changes {
		if c.err != nil {
			return nil, c.err
		}
		if c.table.store != s {
			return nil, fmt.Errorf("%w: a batch with table %q of another store", ErrInvalid, c.table.name)
		}
		if !c.empty() {
			changes = append(changes, c)
			stripes = append(stripes, latchOf(c.table.id, c.mutation.Key))
		}
	}
	if len(changes) == 0 {
		return s.refuse(nil), nil
	}
	stripes = s.latches.lockAll(stripes)
	defer s.latches.unlockAll(stripes)
	return s.writeChanges(ctx, changes)
}
