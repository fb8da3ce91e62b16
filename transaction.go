package flagstone

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/internal/txn"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// TransactionOptions are the limits and the owner of a transaction.
type TransactionOptions struct {
	// Lifetime is the time, by the monotonic clock, after which an open transaction is aborted; 0
	// is never.
	Lifetime time.Duration
	// Owner, if not empty, names the account of the transaction's memory. Open transactions of
	// one owner leave as much of the memory of transactions free as they take: see
	// ErrTransactionMemory.
	Owner string
	// Ended, if not nil, is called once when the transaction has ended for any reason. It must
	// not use the transaction.
	Ended func()
}

// Transaction reads and changes the rows of one partition key. Until it is committed or aborted,
// other writes to these rows fail with ErrConflict, and other reads see the rows as they were
// before. Several goroutines may call its methods, which run one after the other.
type Transaction struct {
	table *Table
	of    txn.Transaction
}

// transactionShare divides Options.MemoryBudget: open transactions together may take that part, in
// addition to the budget.
const transactionShare = 4

// Begin begins a transaction of the rows whose first key column has a value. ErrConflict says
// that another transaction holds that partition key. The caller must commit or abort it. Begin
// waits, within ctx, for all functions of updates of any rows that hold latches when it is
// called: a function that takes long should use RowTx.Unlatch.
func (t *Table) Begin(ctx context.Context, partition row.Value, opts TransactionOptions) (*Transaction, error) {
	s := t.store
	if !partition.Type().IsKeyType() || opts.Lifetime < 0 {
		return nil, fmt.Errorf("%w: a transaction of partition key %s, lifetime %v", ErrInvalid, partition, opts.Lifetime)
	}
	prefix, err := t.core.EncodeBound(nil, []row.Value{partition})
	if err := cmp.Or(err, s.mayChange(ctx), s.pipeline.Writable(), t.core.Gone()); err != nil {
		return nil, err
	}
	tx := &Transaction{table: t}
	if err := tx.of.Begin(ctx, s.transactions, t.core, prefix, txn.Options(opts)); err != nil {
		return nil, s.describe(err)
	}
	return tx, nil
}

// enter locks the transaction, unless the context ends first or belongs to the function for which
// it is locked.
func (tx *Transaction) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Value(updateOf{tx.table.store}) == any(tx) {
		return errWithinTransaction
	}
	return tx.of.Enter(ctx)
}

// Abort drops what the transaction has written. On a transaction that has ended it does nothing.
// A function of Update may call it. While such a function runs, Abort marks the transaction as
// ended and returns; when the function has returned, Update releases the partition key and
// returns ErrTransactionEnded, or the error of the function.
func (tx *Transaction) Abort() { tx.of.Abort() }

// Open reports whether the transaction has not ended.
func (tx *Transaction) Open() bool { return tx.of.Open() }

// Get is Table.Get in the transaction: it sees what the transaction has written.
// ReadOptions.Snapshot must be nil.
func (tx *Transaction) Get(ctx context.Context, key []row.Value, opts ReadOptions) (*Row, error) {
	if opts.Snapshot != nil {
		return nil, errSnapshotWithin
	}
	encoded, err := tx.table.core.EncodeKey(nil, key)
	if err == nil {
		err = tx.of.Holds(encoded)
	}
	if err == nil {
		err = tx.enter(ctx)
	}
	if err != nil {
		return nil, err
	}
	defer tx.of.Leave()
	written, err := tx.of.Written()
	if err != nil {
		return nil, tx.table.store.describe(err)
	}
	return tx.table.getEncoded(encoded, &opts, written, true)
}

// Scan is Table.Scan in the transaction: it sees what the transaction had written when the scan
// began, and perhaps what it writes meanwhile. It ends with the transaction. Bounds must lie
// within the partition key; an empty bound is the start or end of its rows.
func (tx *Transaction) Scan(ctx context.Context, start, end []row.Value, opts ScanOptions) *Rows {
	return tx.table.scan(ctx, tx, start, end, &opts)
}

// Update is Table.Update in the transaction: the transaction sees the change at once, others see
// it after the commit. An error leaves the transaction unchanged and open, unless it is
// ErrTransactionEnded. The function must read through RowTx.Get: other calls of the transaction
// with its context are refused (ErrInvalid), since the transaction waits for the function. They
// stay refused after the function has returned.
func (tx *Transaction) Update(ctx context.Context, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	return tx.UpdateRows(ctx, [][]row.Value{key}, func(ctx context.Context, rows []*RowTx) error { return fn(ctx, rows[0]) })
}

// UpdateRows is Update of several rows, which change together or not at all; see
// Table.UpdateRowsAsync.
func (tx *Transaction) UpdateRows(ctx context.Context, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) error {
	s := tx.table.store
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	if err := tx.enter(ctx); err != nil {
		return err
	}
	defer tx.of.Leave()
	var refusal error
	err := tx.of.Update(func(written *memtable.Memtable) ([]*change.Change, error) {
		rows, distinct, err := tx.table.rowsOf(keys, written)
		changes := make([]*change.Change, len(distinct))
		for i, r := range distinct {
			changes[i] = &r.of
			if err == nil {
				err = tx.of.Holds(r.of.Key())
			}
		}
		if err != nil {
			return nil, err
		}
		shareNow(distinct)
		refusal = fn(s.forUpdate(ctx, tx), rows)
		return changes, refusal
	})
	if refusal != nil {
		return refusal
	}
	return s.describe(err)
}

// Commit applies what the transaction has written as one batch. When it returns nil, all of it is
// durable (with SyncAlways) and visible to every later read. After ErrPoisoned or
// ErrOutcomeUnknown the transaction has ended, and its writes may be durable. After any other
// error nothing was written; unless it is ErrTransactionEnded, ErrTableNotFound or ErrClosed, the
// transaction is still open and may be committed again or aborted.
func (tx *Transaction) Commit(ctx context.Context) error {
	c, err := tx.CommitAsync(ctx)
	if err != nil {
		return err
	}
	return c.Wait(ctx)
}

// CommitAsync is Commit without the wait for durability; the caller must call Commit.Wait. With a
// nil error the transaction has ended.
func (tx *Transaction) CommitAsync(ctx context.Context) (*Commit, error) {
	s := tx.table.store
	began := latency.Begin(s.clock)
	if err := s.mayChange(ctx); err != nil {
		return nil, err
	}
	if err := tx.enter(ctx); err != nil {
		return nil, err
	}
	defer tx.of.Leave()
	c, err := tx.of.Commit(ctx)
	if err != nil {
		return nil, s.describe(err)
	}
	return &Commit{store: s, of: c, kind: &tx.table.latencies.commits, began: began}, nil
}
