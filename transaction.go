package flagstone

// Transactions of one partition key: changes that are gathered over several
// calls, seen meanwhile by the transaction alone, and applied as one batch.
//
// The writes of a transaction lie in a memtable of its own, under sequence numbers above all that
// the store assigns. Its reads merge that memtable with the tree like any other run, so the
// rule-book decides what it sees of its own writes. Nothing of it is in the log before the
// commit, so a crash leaves all of it or nothing. An open transaction holds its partition key
// (internal/txn): no other writer changes those rows, so all its reads see the same state.

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/share"
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
	table    *Table
	prefix   []byte // the partition key, encoded
	end      []byte // above the keys of all its rows
	lifetime time.Duration
	hold     *txn.Hold[*Transaction]
	ended    func()

	mu        commit.Latch
	written   *memtable.Memtable // by this transaction; nil before the first write
	changes   []prepared         // in order; a row may have several
	era       *era               // of the table, in which they were worked out
	deadline  time.Duration
	stopTimer func() bool
	over      atomic.Pointer[error] // why it has ended
	// asked is why it has to end; the holder of mu ends it. running is set while mu is held for a
	// function of Update: terminate does not wait for that function.
	asked   atomic.Pointer[error]
	running atomic.Bool
}

const (
	// transactionShare divides Options.MemoryBudget: open transactions together may take that
	// part, in addition to the budget.
	transactionShare = 4
	// ownSequence is the sequence number of a transaction's first change in its own memtable:
	// above every real one, below row.MaxSequence.
	ownSequence = row.MaxSequence/2 + 1
	// transactionBytes and changeBytes are charged for a transaction and for each of its changes,
	// besides the data and what columns held before.
	transactionBytes = 4 << 10
	changeBytes      = 512
)

// errTransactionOver makes the reasons why a transaction has ended.
func errTransactionOver(how string) error {
	return fmt.Errorf("%w: it was %s", ErrTransactionEnded, how)
}

// Begin begins a transaction of the rows whose first key column has a value. ErrConflict says
// that another transaction holds that partition key. The caller must commit or abort it. Begin
// waits, within ctx, for all functions of updates of any rows that hold latches when it is
// called: a function that takes long should use RowTx.Unlatch.
func (t *Table) Begin(ctx context.Context, partition row.Value, opts TransactionOptions) (*Transaction, error) {
	s := t.store
	if !partition.Type().IsKeyType() || opts.Lifetime < 0 {
		return nil, fmt.Errorf("%w: a transaction of partition key %s, lifetime %v", ErrInvalid, partition, opts.Lifetime)
	}
	prefix, err := t.encodeBound(nil, []row.Value{partition})
	if err == nil {
		err = s.mayChange(ctx)
	}
	if err == nil {
		err = s.pipeline.Writable()
	}
	if err == nil {
		err = t.gone()
	}
	if err != nil {
		return nil, err
	}
	tx := &Transaction{
		table: t, prefix: prefix, end: row.Successor(prefix), lifetime: opts.Lifetime, era: t.era.Load(),
	}
	if t.columns == 1 { // the prefix is the whole key, and another key may begin with it
		tx.end = append(bytes.Clone(prefix), 0)
	}
	tx.hold = s.transactions.Hold(tx, t.id, prefix, share.User{Group: opts.Owner})
	if err := tx.hold.Take(transactionBytes); errors.Is(err, txn.ErrHeld) {
		return nil, t.conflict()
	} else if err != nil {
		return nil, ErrTransactionMemory
	}
	// Writers that did not see the lock still hold latches. Once these writers are done and what
	// they wrote is durable, the transaction sees what every reader sees.
	err = s.latches.Pass(ctx)
	last := s.pipeline.Refuse(nil)
	_ = tx.mu.Lock(context.Background()) // never fails with this context
	defer tx.mu.Unlock()
	if err == nil {
		err = s.wait(ctx, last)
	}
	if err == nil && s.closed.Load() { // Close may not have seen tx
		err = ErrClosed
	}
	if over := tx.over.Load(); over != nil { // Close has seen tx
		return nil, *over
	}
	if err != nil {
		tx.finish(err)
		return nil, err
	}
	tx.ended = opts.Ended
	tx.deadline = s.clock.Elapsed() + tx.lifetime
	if tx.lifetime > 0 {
		tx.stopTimer = s.clock.AfterFunc(tx.lifetime, func() { tx.terminate(errTransactionOver("not ended in time")) })
	}
	return tx, nil
}

// admits returns ErrConflict if a transaction holds the partition key of a row. REQUIRES: the
// caller holds the row's latch, and keeps it until its write is applied.
func (t *Table) admits(key []byte) error {
	if t.store.transactions.Admits(t.id, key, t.columns) {
		return nil
	}
	return t.conflict()
}

func (t *Table) conflict() error {
	return fmt.Errorf("%w: a transaction of table %q holds the partition key", ErrConflict, t.name)
}

// usable returns nil or the reason why the transaction cannot go on. REQUIRES:
// mu is held.
func (tx *Transaction) usable() error {
	tx.heed()
	if tx.over.Load() == nil && tx.lifetime > 0 && tx.table.store.clock.Elapsed() >= tx.deadline {
		tx.finish(errTransactionOver("not ended in time"))
	}
	if over := tx.over.Load(); over != nil {
		return *over
	}
	if err := tx.table.gone(); err != nil {
		tx.finish(err)
		return err
	}
	return nil
}

// ready is usable, and works out the changes again if the table's limit of versions has changed.
// REQUIRES: mu is held.
func (tx *Transaction) ready() error {
	if err := tx.usable(); err != nil {
		return err
	}
	if present := tx.table.era.Load(); present != tx.era {
		return tx.workOutAgain(present)
	}
	return nil
}

// finish ends the transaction and releases everything. REQUIRES: mu is held, and it has not
// ended.
func (tx *Transaction) finish(why error) {
	tx.over.Store(&why)
	tx.hold.Release()
	tx.written, tx.changes = nil, nil
	if tx.stopTimer != nil {
		tx.stopTimer()
	}
	if tx.ended != nil {
		tx.ended()
	}
}

// terminate ends the transaction unless it has ended. It does not wait for a function of Update,
// which may be its caller: then Update ends the transaction.
func (tx *Transaction) terminate(why error) {
	tx.asked.CompareAndSwap(nil, &why)
	if tx.running.Load() { // Update looks at asked after it has reset running
		return
	}
	_ = tx.mu.Lock(context.Background()) // never fails with this context; an Update that locks mu first sees asked, and runs nothing
	defer tx.mu.Unlock()
	tx.heed()
}

// heed ends the transaction if asked is set. REQUIRES: mu is held.
func (tx *Transaction) heed() {
	if why := tx.asked.Load(); why != nil && tx.over.Load() == nil {
		tx.finish(*why)
	}
}

// enter locks mu, unless the context ends first or belongs to the function for which mu is held.
func (tx *Transaction) enter(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Value(updateOf{tx.table.store}) == any(tx) {
		return errWithinTransaction
	}
	return tx.mu.Lock(ctx)
}

// Abort drops what the transaction has written. On a transaction that has ended it does nothing.
// A function of Update may call it. While such a function runs, Abort marks the transaction as
// ended and returns; when the function has returned, Update releases the partition key and
// returns ErrTransactionEnded, or the error of the function.
func (tx *Transaction) Abort() { tx.terminate(errTransactionOver("aborted")) }

// Open reports whether the transaction has not ended.
func (tx *Transaction) Open() bool { return tx.over.Load() == nil && tx.asked.Load() == nil }

// holds returns an error unless the key has the transaction's partition key.
func (tx *Transaction) holds(key []byte) error {
	if bytes.Compare(key, tx.prefix) < 0 || bytes.Compare(key, tx.end) >= 0 {
		return fmt.Errorf("%w: table %q", ErrOutOfPartition, tx.table.name)
	}
	return nil
}

// Get is Table.Get in the transaction: it sees what the transaction has written.
// ReadOptions.Snapshot must be nil.
func (tx *Transaction) Get(ctx context.Context, key []row.Value, opts ReadOptions) (*Row, error) {
	if opts.Snapshot != nil {
		return nil, errSnapshotWithin
	}
	encoded, err := tx.table.encodeKey(nil, key)
	if err != nil {
		return nil, err
	}
	if err := tx.holds(encoded); err != nil {
		return nil, err
	}
	if err := tx.enter(ctx); err != nil {
		return nil, err
	}
	defer tx.mu.Unlock()
	if err := tx.ready(); err != nil {
		return nil, err
	}
	return tx.table.getEncoded(encoded, &opts, tx.written, true)
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
	tx.running.Store(true) // before ready looks at asked
	defer func() {
		tx.running.Store(false)
		tx.heed()
		tx.mu.Unlock()
	}()
	if err := tx.ready(); err != nil {
		return err
	}
	if tx.written == nil {
		tx.written = memtable.New(memtable.Options{SlabSize: 1})
	}
	rows, distinct, err := tx.table.rowsOf(keys, tx.written)
	if err != nil {
		return err
	}
	for _, r := range distinct {
		if err := tx.holds(r.change.Key); err != nil {
			return err
		}
	}
	shareNow(distinct)
	if err := fn(s.forUpdate(ctx, tx), rows); err != nil {
		return err
	}
	return tx.add(distinct)
}

// add appends changes and lets the transaction see them. If the table is altered
// meanwhile, it begins again. REQUIRES: mu is held.
func (tx *Transaction) add(rows []*RowTx) error {
	if err := tx.ready(); err != nil {
		return err
	}
	for _, r := range rows {
		r.written = tx.written // other than it was, if all was worked out again
	}
	s := tx.table.store
	now := s.issued.Millis()
	from, size := len(tx.changes), int64(0)
	added := tx.changes
	for _, r := range rows {
		if r.empty() {
			continue
		}
		p, err := r.prepare(now)
		if err != nil {
			return err
		}
		size += p.size + int64(r.change.Cap()) + changeBytes + int64(len(p.before))
		if size > s.transactionMemory.Total() { // prepare no more of them
			return ErrTransactionMemory
		}
		added = append(added, p)
	}
	if tx.table.era.Load() != tx.era {
		return tx.add(rows)
	}
	if tx.hold.Charge(size) != nil {
		return ErrTransactionMemory
	}
	tx.changes = added
	for i := from; i < len(added); i++ {
		tx.written.Apply(ownSequence+uint64(i), added[i].change)
	}
	return nil
}

// otherStream reports whether the table's stream was enabled or disabled after a change was made.
// REQUIRES: mu is held.
func (tx *Transaction) otherStream() bool {
	log := tx.table.log.Load()
	return slices.ContainsFunc(tx.changes, func(p prepared) bool { return p.beforeFor != log })
}

// workOutAgain works out all changes again if another era of the table affects them: under its
// limit of versions a compaction may have dropped versions on which the trims rely, and its
// stream may record other columns. Between two eras the result is good only until the next one
// begins. REQUIRES: mu is held.
func (tx *Transaction) workOutAgain(present *era) error {
	again := tx.otherStream()
	for i := range tx.changes {
		again = again || tx.changes[i].from.change.DeletesVersions()
	}
	if again {
		if err := tx.prepareAgain(); err != nil {
			return err
		}
	}
	tx.era = present
	return nil
}

// prepareAgain works out all changes again, and takes the memory they need now; an error leaves
// them as they were. REQUIRES: mu is held.
func (tx *Transaction) prepareAgain() (err error) {
	grown := int64(0)
	defer func() {
		if err != nil {
			tx.hold.Charge(-grown)
		}
	}()
	written := memtable.New(memtable.Options{SlabSize: 1})
	changes := make([]prepared, len(tx.changes))
	for i := range tx.changes {
		p, from := &changes[i], tx.changes[i].from
		from.written = written
		if err = from.workOut(p); err != nil {
			return err
		}
		more := int64(len(p.before) - len(tx.changes[i].before))
		if tx.hold.Charge(more) != nil {
			return ErrTransactionMemory
		}
		grown += more
		written.Apply(ownSequence+uint64(i), p.change)
	}
	tx.written, tx.changes = written, changes
	return nil
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
	if err := tx.table.store.mayChange(ctx); err != nil {
		return nil, err
	}
	if err := tx.enter(ctx); err != nil {
		return nil, err
	}
	defer tx.mu.Unlock()
	if err := tx.usable(); err != nil {
		return nil, err
	}
	var w write
	if err := tx.apply(ctx, &w); err != nil {
		if errors.Is(err, ErrTableNotFound) || errors.Is(err, ErrPoisoned) {
			tx.finish(err)
		}
		return nil, err
	}
	tx.finish(errTransactionOver("committed"))
	return w.take(tx.table.store), nil
}

// apply sends the changes through the pipeline. REQUIRES: mu is held.
func (tx *Transaction) apply(ctx context.Context, w *write) error {
	s := tx.table.store
	if len(tx.changes) == 0 {
		w.refuse(s, nil)
		return nil
	}
	if err := s.throttle(ctx); err != nil {
		return err
	}
	for {
		if err := tx.applyOnce(ctx, w); !errors.Is(err, errAltered) {
			return err
		}
	}
}

// applyOnce is apply in one era of the table. It takes no latches: no other writer can change
// rows of the partition key.
func (tx *Transaction) applyOnce(ctx context.Context, w *write) error {
	present, err := tx.table.present(ctx)
	if err != nil {
		return err
	}
	if present != tx.era {
		if err := tx.workOutAgain(present); err != nil {
			return err
		}
	}
	w.reset()
	for i := range tx.changes {
		tx.changes[i].from.era = present
		if err := w.addPrepared(&tx.changes[i]); err != nil {
			return err
		}
	}
	s := tx.table.store
	return s.describe(s.pipeline.Write(ctx, &w.out, s.issued.Micros()))
}
