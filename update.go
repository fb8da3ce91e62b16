package flagstone

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/latency"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// RowTx is a read-modify-write of one row. Update's function reads the newest state of the row
// through it, and nothing else can change the row until the changes made through it are in place.
// It must not be used after that function has returned.
type RowTx struct {
	RowChange

	table   *Table
	latched int  // number of rows, this one included, whose latches the function holds
	long    bool // the function must run again without latches
}

// Get reads the row as it was before this change. ReadOptions.Snapshot must be nil.
func (tx *RowTx) Get(opts ReadOptions) (*Row, error) {
	if tx.of.Err != nil {
		return nil, tx.of.Err
	}
	if opts.Snapshot != nil {
		return nil, errSnapshotWithin
	}
	if tx.latched > 0 {
		return tx.getLatched(opts)
	}
	return tx.table.getEncoded(tx.of.Key(), &opts, tx.of.Written, !tx.of.Unlatched)
}

// updateOf marks the context of an update's function.
type updateOf struct{ store *Store }

// forUpdate makes the context of a function that runs while owner, the store or a transaction,
// waits for it.
func (s *Store) forUpdate(ctx context.Context, owner any) context.Context {
	if owner == s && ctx == context.Background() {
		return s.withinUpdate
	}
	return context.WithValue(ctx, updateOf{s}, owner)
}

// mayChange returns why a context cannot be used to change the store: it has ended, or it belongs
// to an update's function, which the change might wait for.
func (s *Store) mayChange(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if ctx.Value(updateOf{s}) != nil {
		return errWithinUpdate
	}
	return nil
}

// throttle holds a writer back while the store is behind. Errors are those of mayChange and
// pressure.Gate.Pass.
func (s *Store) throttle(ctx context.Context) error {
	if err := s.mayChange(ctx); err != nil {
		return err
	}
	return s.describe(s.gate.Pass(ctx))
}

// errWithinUpdate refuses a call that would wait for itself.
var errWithinUpdate = fmt.Errorf("%w: the function of an update cannot use its context to change the store: "+
	"change the row through its RowTx, and everything else before or after the update", ErrInvalid)

// errWithinTransaction refuses calls of a transaction that waits for the function.
var errWithinTransaction = fmt.Errorf("%w: the function of a transaction's update cannot use its context for other calls of the transaction, "+
	"which waits for it: read the row with RowTx.Get, and everything else before or after the update", ErrInvalid)

// errSnapshotWithin refuses a snapshot where reads see the newest state.
var errSnapshotWithin = fmt.Errorf("%w: a read in an update or a transaction cannot use a snapshot", ErrInvalid)

// Exists reports whether the row exists.
func (tx *RowTx) Exists() (bool, error) {
	r, err := tx.Get(ReadOptions{existsOnly: true})
	return r.Exists(), err
}

// Update changes one row. fn reads the row if it needs to, and says what to change. While fn
// runs, no other change of the row, nor of some other rows, can begin. fn runs again if the table
// was altered meanwhile, and without holding up others if it reads more than a megabyte or some
// thousand cells, deletes a version of a column that has so many, or calls RowTx.Unlatch: then
// writers that change the row all the time make it fail with ErrConflict. If fn returns an error,
// Update returns it and writes nothing. When Update returns nil the change is durable (with
// SyncAlways) and visible to every later read. An fn that reads nothing is a blind write: it costs
// no read, and with context.Background it allocates nothing.
//
// fn gets ctx, marked: calls that would change the store are refused with it (ErrInvalid), since
// they would wait for fn to return, and stay refused after fn has returned. With another context
// such a call waits until that context ends.
func (t *Table) Update(ctx context.Context, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	u := takeUpdate()
	began := u.timed.Begin(t.store.clock)
	err := u.updateRow(ctx, t, key, fn)
	written := u.write.Out.Commit()
	u.give() // log and memtables have copies
	if err == nil {
		err = t.store.wait(ctx, written)
	}
	t.latencies.updates.End(t.store.clock, began)
	return err
}

// UpdateAsync is Update without the wait for durability. The change is ordered before every write
// that begins later; the caller must call Commit.Wait. Wait returns the error of an fn that
// refused, since what fn read may not be durable yet.
func (t *Table) UpdateAsync(ctx context.Context, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) (*Commit, error) {
	u := takeUpdate()
	began := u.timed.Begin(t.store.clock)
	defer u.give()
	if err := u.updateRow(ctx, t, key, fn); err != nil {
		return nil, err
	}
	return &Commit{store: t.store, of: u.write.Out.Commit(), kind: &t.latencies.updates, began: began}, nil
}

// UpdateRowsAsync is UpdateAsync for several rows of a table, which change together or not at
// all. fn gets a RowTx for each key, in the order of keys, and the same one for equal keys. No
// other writer can change the rows until the changes of fn are in place.
func (t *Table) UpdateRowsAsync(ctx context.Context, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) (*Commit, error) {
	u := takeUpdate()
	began := u.timed.Begin(t.store.clock)
	defer u.give()
	var rows []*RowTx
	begin := func() (err error) {
		rows, u.rows, err = t.rowsOf(keys, nil)
		return err
	}
	if err := u.run(ctx, t, begin, func() error { return fn(t.store.forUpdate(ctx, t.store), rows) }); err != nil {
		return nil, err
	}
	return &Commit{store: t.store, of: u.write.Out.Commit(), kind: &t.latencies.updates, began: began}, nil
}

// Put sets one column of a row: an Update with one Put, for tables used as maps from keys to
// values.
func (t *Table) Put(ctx context.Context, key []row.Value, column string, version int64, v row.Value) error {
	return t.Update(ctx, key, func(_ context.Context, tx *RowTx) error {
		tx.Put(column, version, v)
		return nil
	})
}

// Delete deletes a row: an Update with a DeleteRow.
func (t *Table) Delete(ctx context.Context, key []row.Value) error {
	return t.Update(ctx, key, func(_ context.Context, tx *RowTx) error {
		tx.DeleteRow()
		return nil
	})
}

// update is an update of some rows of a table, and the memory for the next one.
type update struct {
	tx      RowTx
	one     [1]*RowTx // tx
	rows    []*RowTx  // that change, each once
	stripes []uint32  // of their latches
	write   change.Write
	timed   latency.Sampler

	outside int    // runs of the function without latches, the present one included
	seen    uint64 // the function sees everything up to this sequence number
}

// updates keeps memory between updates. It is scratch memory: which piece a call gets makes no
// difference.
var updates = sync.Pool{New: func() any { return &update{timed: latency.NewSampler()} }}

func takeUpdate() *update { return updates.Get().(*update) }

func (u *update) give() {
	const keep = 4 << 20 // a value of 1 MiB in fresh memory takes a quarter of a millisecond more
	if u.tx.of.Larger(keep) {
		return
	}
	u.write.Reset()
	u.tx.table = nil
	u.tx.of.Release()
	u.rows, u.outside = nil, 0
	updates.Put(u)
}

// updateRow updates one row.
func (u *update) updateRow(ctx context.Context, t *Table, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	begin := func() error {
		u.one[0], u.rows = &u.tx, u.one[:]
		return u.tx.init(t, key)
	}
	return u.run(ctx, t, begin, func() error { return fn(t.store.forUpdate(ctx, t.store), &u.tx) })
}

// run updates the rows that begin finds. fn changes them.
func (u *update) run(ctx context.Context, t *Table, begin, fn func() error) error {
	if err := t.store.throttle(ctx); err != nil {
		return err
	}
	for {
		err := u.once(ctx, t, begin, fn)
		if err == nil {
			return nil
		}
		if err = u.again(t, err); err != nil {
			return err
		}
		u.write.Reset()
	}
}

// once is run in one era of the table.
func (u *update) once(ctx context.Context, t *Table, begin, fn func() error) (err error) {
	s := t.store
	era, err := t.core.Present(ctx)
	if err == nil {
		err = begin()
	}
	if err != nil {
		return err
	}
	u.stripes = u.stripes[:0]
	for _, tx := range u.rows {
		tx.of.Era = era
		u.stripes = append(u.stripes, commit.StripeOf(tx.of.Hash()))
	}
	var refusal error
	if u.outside > 0 {
		// Reads without latches must see all that was applied.
		if err := s.wait(ctx, s.pipeline.Refuse(nil)); err != nil {
			return err
		}
		u.seen = s.pipeline.Visible()
		if refusal = u.call(fn); refusal == nil {
			if err := u.findTrims(0); err != nil {
				return err
			}
		}
	}
	if u.stripes, err = s.latches.LockAll(ctx, u.stripes); err != nil {
		return err
	}
	defer s.latches.UnlockAll(u.stripes)
	for _, tx := range u.rows {
		tx.of.Expect()
		if err := s.transactions.Admits(&tx.of); err != nil {
			return err
		}
	}
	if u.outside > 0 {
		err = u.unchanged()
	} else if refusal = u.call(fn); refusal == nil {
		err = u.findTrims(cellsEach(len(u.rows)))
	}
	if err != nil {
		return err
	}
	if refusal == errLong {
		return errLong
	}
	for _, tx := range u.rows {
		if refusal == nil && !tx.of.Empty() {
			u.write.Add(&tx.of)
		}
	}
	return u.write.Do(ctx, s.pipeline, s.issued.Micros(), refusal)
}

// init begins the change of a row.
func (tx *RowTx) init(t *Table, key []row.Value) error {
	tx.table = t
	tx.of.Init(t.core, key)
	return tx.of.Err
}

// rowsOf makes a RowTx for each key, the same one for equal keys; distinct lists each once.
// written is what their transaction has written, nil if they are part of none.
func (t *Table) rowsOf(keys [][]row.Value, written *memtable.Memtable) (rows, distinct []*RowTx, err error) {
	rows = make([]*RowTx, len(keys))
	distinct = make([]*RowTx, 0, len(keys))
	byKey := make(map[string]*RowTx, len(keys))
	for i, key := range keys {
		tx := new(RowTx)
		if err := tx.init(t, key); err != nil {
			return nil, nil, err
		}
		encoded := string(tx.of.Key())
		if byKey[encoded] == nil {
			tx.of.Written = written
			byKey[encoded], distinct = tx, append(distinct, tx)
		}
		rows[i] = byKey[encoded]
	}
	return rows, distinct, nil
}

// shareNow gives puts at Now into several rows one time. REQUIRES: no other writer can change the
// rows.
func shareNow(rows []*RowTx) {
	if len(rows) < 2 {
		return // it reads the clock when it needs the time
	}
	now := rows[0].table.store.issued.Millis()
	for _, tx := range rows {
		tx.of.Now = now
	}
}

// Commit is a write on its way to durability.
type Commit struct {
	store  *Store
	of     commit.Commit
	waited atomic.Bool
	kind   *latency.Histogram
	began  time.Duration // for End of kind
}

// Wait returns when the write is durable (with SyncAlways) and visible to every later read, or
// when that failed. If the context ends first, the error matches ErrOutcomeUnknown: the write may
// still become durable. While the store is behind, the first call of Wait then pauses for what the write
// owes, at most a second and at most until the context ends.
func (c *Commit) Wait(ctx context.Context) error {
	of := c.of
	if c.waited.Swap(true) {
		of.Forgive()
	} else {
		defer c.kind.End(c.store.clock, c.began)
	}
	return c.store.wait(ctx, of)
}

// wait waits for a commit. A refusal is an error of the caller's function, and returned as it is.
func (s *Store) wait(ctx context.Context, c commit.Commit) error {
	refusal, err := c.Wait(ctx)
	if err != nil {
		return s.describe(err)
	}
	return refusal
}
