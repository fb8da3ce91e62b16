package flagstone

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/row"
)

// Batch is a list of changes of any rows and tables that is applied as a whole: after a crash,
// and for every reader, all of it is there or nothing. One goroutine uses a Batch at a time.
// After Reset it is used again without allocations.
type Batch struct {
	rows    []*batchRow // beyond its length: rows to use again
	byHash  map[uint64]*batchRow
	stripes []uint32
	write   change.Write
}

// batchRow is the change of a row in a batch.
type batchRow struct {
	RowChange
	hash uint64
	next *batchRow // with the same hash
}

// NewBatch makes an empty batch.
func (s *Store) NewBatch() *Batch {
	return &Batch{byHash: make(map[uint64]*batchRow)}
}

// Row returns the change of a row in this batch, the same one for the same row: its calls act one
// after the other.
func (b *Batch) Row(t *Table, key []row.Value) *RowChange {
	n := len(b.rows)
	if n == cap(b.rows) || b.rows[:n+1][n] == nil {
		b.rows = append(b.rows, new(batchRow))
	} else {
		b.rows = b.rows[:n+1]
	}
	r := b.rows[n]
	r.of.Unlatched = true
	if r.of.Init(t.core, key); r.of.Err != nil {
		return &r.RowChange
	}
	r.hash = r.of.Hash()
	first := b.byHash[r.hash]
	for earlier := first; earlier != nil; earlier = earlier.next {
		if earlier.of.Table == t.core && bytes.Equal(earlier.of.Key(), r.of.Key()) {
			b.rows = b.rows[:n]
			return &earlier.RowChange
		}
	}
	r.next, b.byHash[r.hash] = first, r
	return &r.RowChange
}

// dropLast takes the last row out again.
func (b *Batch) dropLast() {
	r := b.rows[len(b.rows)-1]
	if b.byHash[r.hash] = r.next; r.next == nil {
		delete(b.byHash, r.hash)
	}
	b.rows = b.rows[:len(b.rows)-1]
}

// Len returns the number of rows that the batch touches.
func (b *Batch) Len() int { return len(b.rows) }

// Reset empties the batch and keeps its memory for the next use. The changes
// that Row returned must not be used any more.
func (b *Batch) Reset() {
	for i, r := range b.rows {
		if r.of.Larger(1 << 20) {
			b.rows[i] = nil
		}
		r.of.Release()
	}
	b.rows = b.rows[:0]
	clear(b.byHash)
	b.write.Reset()
}

// Apply writes a batch. When it returns nil the batch is durable (with SyncAlways) and visible to
// every later read. On an error nothing of it was written, with two exceptions: after
// ErrOutcomeUnknown it may still become durable and visible, and after ErrPoisoned that is
// unknown until the store is opened again.
func (s *Store) Apply(ctx context.Context, b *Batch) error {
	began := latency.Begin(s.clock)
	defer s.batches.End(s.clock, began)
	if err := b.applyTo(ctx, s); err != nil {
		return err
	}
	return s.wait(ctx, b.write.Out.Commit())
}

// ApplyAsync is Apply without the wait for durability. The batch is ordered before every write
// that begins later; the caller must call Commit.Wait. The batch may be used again at once.
func (s *Store) ApplyAsync(ctx context.Context, b *Batch) (*Commit, error) {
	began := latency.Begin(s.clock)
	if err := b.applyTo(ctx, s); err != nil {
		return nil, err
	}
	return &Commit{store: s, of: b.write.Out.Commit(), kind: &s.batches, began: began}, nil
}

func (b *Batch) applyTo(ctx context.Context, s *Store) error {
	if err := s.throttle(ctx); err != nil {
		return err
	}
	for {
		if err := b.applyOnce(ctx, s); !errors.Is(err, table.ErrAltered) {
			return s.describe(err)
		}
	}
}

// applyOnce is applyTo in one era of each table.
func (b *Batch) applyOnce(ctx context.Context, s *Store) (err error) {
	b.write.Reset()
	b.stripes = b.stripes[:0]
	for _, r := range b.rows {
		if r.of.Err != nil {
			return r.of.Err
		}
		if r.of.Table.Env != &s.tableEnv {
			return fmt.Errorf("%w: a batch with table %q of another store", ErrInvalid, r.of.Table.Name)
		}
		if !r.of.Empty() {
			if r.of.Era, err = r.of.Table.Present(ctx); err != nil {
				return err
			}
			b.write.Add(&r.of)
			b.stripes = append(b.stripes, commit.StripeOf(r.hash))
		}
	}
	if b.stripes, err = s.latches.LockAll(ctx, b.stripes); err != nil {
		return err
	}
	defer s.latches.UnlockAll(b.stripes)
	for _, c := range b.write.Changes {
		c.Expect()
		if err := s.transactions.Admits(c); err != nil {
			return err
		}
	}
	return b.write.Do(ctx, s.pipeline, s.issued.Micros(), nil)
}
