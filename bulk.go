package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"runtime"

	"github.com/flagstone-db/flagstone/internal/ingest"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// BulkOptions say how a bulk load works.
type BulkOptions struct {
	// Workers is how many goroutines build table files beside the caller. 0 is one for each processor, but
	// not so many that their share of memory makes small files.
	Workers int
}

// BulkCell is a cell of a row of a bulk load: see RowChange.Put. Now, as the version, is the time of
// BulkWriter.Put.
type BulkCell struct {
	Column  string
	Version int64
	Value   row.Value
}

// BulkWriter writes sorted rows into a range of keys that has no row, past log and memtables. One goroutine uses
// it.
type BulkWriter struct {
	store *Store
	of    *ingest.Writer
}

// bulkShare divides Options.MemoryBudget: a bulk load takes about that part, in addition to the budget.
const bulkShare = 2

// BulkLoad begins a bulk load: rows that come in ascending key order become table files, which the commit adds
// to the table as a whole. That takes a fraction of the time of as many puts, and each byte is written once.
// The range from the first row to the last one must have no row at the commit. Other work goes on meanwhile;
// nothing shows the rows before the commit. The caller must commit or abort the load. A commit ends the
// compactions that run in the partitions of its range, which begin again: make few large loads, not many
// small ones.
//
// A bulk load writes no records of a stream: with ErrStreamExists it refuses a table that has one. Rows are
// gathered in memory, up to half of Options.MemoryBudget in addition to it. A store with an external log refuses
// a bulk load with ErrExternal, since the rows would not be in the log.
func (t *Table) BulkLoad(ctx context.Context, opts BulkOptions) (*BulkWriter, error) {
	s := t.store
	if s.external != nil {
		return nil, fmt.Errorf("%w: a bulk load of table %q", ErrExternal, t.core.Name)
	}
	if opts.Workers < 0 {
		return nil, fmt.Errorf("%w: a bulk load with %d workers", ErrInvalid, opts.Workers)
	}
	if err := cmp.Or(s.mayChange(ctx), s.pipeline.Writable()); err != nil {
		return nil, err
	}
	most := max(1, 4*s.opts.MemoryBudget/bulkShare/s.opts.TableFileSize-1)
	workers := cmp.Or(opts.Workers, min(runtime.GOMAXPROCS(0), int(most)))
	piece := min(s.opts.TableFileSize, s.opts.MemoryBudget/bulkShare/int64(workers+1))
	w, err := ingest.NewWriter(s.installer, t.core, workers, int(piece))
	if err != nil {
		return nil, err
	}
	return &BulkWriter{s, w}, nil
}

// Put adds a row, whose key must be above that of the row before. It exists afterwards even without
// cells. Put copies what it is given. Errors match ErrInvalid, also for a key out of order, and
// ErrVersionOutOfRange: then the row is left out, and the load may go on. Any other error ends the load,
// and all later calls return it.
func (w *BulkWriter) Put(key []row.Value, cells ...BulkCell) error {
	c := w.of.Row(key)
	for i := range cells {
		c.Put(cells[i].Column, cells[i].Version, cells[i].Value)
	}
	return w.store.describe(w.of.Add())
}

// Commit adds the rows to the table, all of them or, with an error, none. When it returns nil they are durable and
// visible to every later read; snapshots and scans that were open see none of them. While the files are added,
// mostly for milliseconds, other writes to rows between the first and the last one fail with ErrConflict.
//
// Commit fails with ErrConflict if the range has a row (an expired one counts until compactions may drop
// it, see TableInfo.ExpiryWatermark), or a transaction holds a partition key of it, with ErrStreamExists if
// the table was given a stream, and with ErrFrozen or ErrDetached. After ErrPoisoned it is unknown whether the
// rows are there until the store is opened again, and after ErrOutcomeUnknown they will be visible. A crash
// that keeps the rows keeps all that was acknowledged before Commit was called, also with SyncNone. A load
// whose commit failed is over, and must be written anew; only if ctx had ended before, it is as it was.
func (w *BulkWriter) Commit(ctx context.Context) error {
	if err := w.store.mayChange(ctx); err != nil {
		return err
	}
	return w.store.describe(w.of.Commit(ctx))
}

// Abort ends the load and deletes what it has written. It does nothing after Commit.
func (w *BulkWriter) Abort() error { return w.store.describe(w.of.Abort()) }

// ingestEnv implements ingest.Env.
type ingestEnv struct{ rebalanceEnv }

func (e ingestEnv) HoldRange(ctx context.Context, t *table.Table, low, end []byte) (release func(), err error) {
	return e.transactions.HoldRange(ctx, t, low, end)
}

func (e ingestEnv) Grown(tree *partition.Tree) { roomsEnv{e.Store}.Flushed(tree) }
