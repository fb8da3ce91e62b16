package flagstone

import (
	"bytes"
	"cmp"
	"context"
	"fmt"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/spread"
	"github.com/flagstone-db/flagstone/row"
)

// ParallelWrite says how Table.WriteParallel works.
type ParallelWrite struct {
	Workers int // goroutines that write batches; 0 is one for each processor, and at least 8 with SyncAlways
	// Refused, if not nil, is told of each change that can never be written (ErrInvalid,
	// ErrVersionOutOfRange); the others go on. If it is nil, such an error ends the writer.
	Refused func(key []row.Value, err error)
	// Progress, if not nil, is told after each batch how many changes were written so far, and the bytes
	// of their keys and cells. One call of Refused and Progress runs at a time; neither may call the writer.
	Progress func(rows, bytes int64)
}

// ParallelWriter is what Table.WriteParallel returns. Its methods are safe for concurrent use.
type ParallelWriter struct {
	table *Table
	of    *spread.Writer[*writerBatch]
}

// WriteParallel begins to write many changes into a table in use. Several workers write them in batches of at most
// 200, to all partitions at once. The changes of one row are written in the order in which they were given,
// those of other rows in any order. A change whose row a transaction or a bulk load holds is tried again
// until ctx ends, which ends all work of the writer. The caller must call Close.
//
// The first error ends the writer. All calls return it then, and changes since the last Flush may be written or not.
func (t *Table) WriteParallel(ctx context.Context, p ParallelWrite) (*ParallelWriter, error) {
	s := t.store
	workers := cmp.Or(p.Workers, spread.Workers(s.opts.Sync == SyncAlways))
	if workers < 0 {
		return nil, fmt.Errorf("%w: a parallel write by %d workers", ErrInvalid, workers)
	}
	if err := cmp.Or(s.mayChange(ctx), s.pipeline.Writable(), t.core.Gone()); err != nil {
		return nil, err
	}
	return &ParallelWriter{t, spread.New(ctx, spread.Options[*writerBatch]{
		Workers: workers, Bytes: min(s.opts.WALSegmentSize/4, s.opts.MemoryBudget/8/int64(workers)), Clock: s.clock,
		New:  func() *writerBatch { return &writerBatch{Batch: s.NewBatch(), store: s} },
		Held: ErrConflict, Never: []error{ErrInvalid, ErrVersionOutOfRange}, Closed: ErrClosed,
		Refused: func(b *writerBatch, n int, err error) error {
			key := t.core.DecodeKey(bytes.Clone(b.rows[n].of.Key()))
			if p.Refused == nil {
				return fmt.Errorf("row %v: %w", key, err)
			}
			p.Refused(key, err)
			return nil
		},
		Progress: p.Progress, Sync: func() error { return s.describe(s.pipeline.SyncVisible()) },
	})}, nil
}

// CheckVersion returns why a put of a column at a version would be refused now, with ErrVersionOutOfRange; nil if it would
// not. It is for a caller that wants to judge changes before it gives them to a writer.
func (t *Table) CheckVersion(column string, version int64) error {
	return change.CheckVersion(t.core, column, version, t.store.clock.NowMillis())
}

// Write takes a change of a row, which the function change makes; it must not call the writer. Write returns before
// the change is written, and waits while the workers are behind. If the key does not fit the table, the error
// matches ErrInvalid, the change is left out, and the writer goes on.
func (w *ParallelWriter) Write(key []row.Value, change func(c *RowChange)) error {
	encoded, err := w.table.core.EncodeKey(make([]byte, 0, 64), key)
	if err != nil {
		return err
	}
	// Workers that share no latch do not wait for each other.
	stripe := commit.StripeOf(commit.RowHash(w.table.core.ID, encoded))
	return w.of.Add(stripe, func(b *writerBatch) bool {
		n := b.Len()
		c := b.Row(w.table, key)
		if b.Len() == n {
			return false
		}
		whole := false
		defer func() {
			if !whole { // change panicked
				b.dropLast()
			}
		}()
		change(c)
		whole = true
		return true
	})
}

// Flush returns when all changes that were given before are written and durable, also with SyncNone.
func (w *ParallelWriter) Flush() error { return w.of.Flush() }

// Close is Flush, and ends the writer. It does nothing if it was called before.
func (w *ParallelWriter) Close() error { return w.of.Close() }

// writerBatch implements spread.Batch.
type writerBatch struct {
	*Batch
	part  Batch // what is being written of it
	store *Store
}

func (b *writerBatch) Bytes(n int) int64 { return b.rows[n].of.Bytes() }

func (b *writerBatch) Write(ctx context.Context, from, to int) (spread.Commit, error) {
	b.part.rows = b.rows[from:to]
	return b.store.ApplyAsync(ctx, &b.part)
}
