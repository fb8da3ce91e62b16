package flagstone

import (
	"context"
	"fmt"
	"sync"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/row"
)

// RowTx is a read-modify-write of one row. Update's function reads the newest state of the row
// through it, and nothing else can change the row until the changes made through it are in place.
// It must not be used after that function has returned.
type RowTx struct {
	RowChange

	latched int  // number of rows, this one included, whose latches the function holds
	long    bool // the function must run again without latches
}

// Get reads the row as it was before this change. ReadOptions.Snapshot must be nil.
func (tx *RowTx) Get(opts ReadOptions) (*Row, error) {
	if tx.err != nil {
		return nil, tx.err
	}
	if opts.Snapshot != nil {
		return nil, errSnapshotWithin
	}
	if tx.latched > 0 {
		return tx.getLatched(opts)
	}
	return tx.table.getEncoded(tx.change.Key, &opts, tx.written, !tx.unlatched)
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
// was altered meanwhile, and without holding up others if it reads more than a megabyte or calls
// RowTx.Unlatch. If fn returns an error, Update returns it and writes nothing. When Update
// returns nil the change is durable (with SyncAlways) and visible to every later read. An fn that
// reads nothing is a blind write: it costs no read, and with context.Background it allocates
// nothing.
//
// fn gets ctx, marked: calls that would change the store are refused with it (ErrInvalid), since
// they would wait for fn to return, and stay refused after fn has returned. With another context
// such a call waits until that context ends.
func (t *Table) Update(ctx context.Context, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	u := takeUpdate()
	err := t.update(ctx, u, key, fn)
	written := u.write.out.Commit()
	u.give() // log and memtables have copies
	if err != nil {
		return err
	}
	return t.store.wait(ctx, written)
}

// UpdateAsync is Update without the wait for durability. The change is ordered before every write
// that begins later; the caller must call Commit.Wait. Wait returns the error of an fn that
// refused, since what fn read may not be durable yet.
func (t *Table) UpdateAsync(ctx context.Context, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) (*Commit, error) {
	u := takeUpdate()
	defer u.give()
	if err := t.update(ctx, u, key, fn); err != nil {
		return nil, err
	}
	return u.write.take(t.store), nil
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

func (t *Table) update(ctx context.Context, u *update, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	if err := t.store.throttle(ctx); err != nil {
		return err
	}
	for r := new(tries); ; u.write.reset() {
		again, err := r.again(t, t.updateOnce(ctx, r, u, key, fn))
		if !again {
			return err
		}
	}
}

// updateOnce is update in one era of the table.
func (t *Table) updateOnce(ctx context.Context, r *tries, u *update, key []row.Value, fn func(ctx context.Context, tx *RowTx) error) error {
	s, tx := t.store, &u.tx
	present, err := t.present(ctx)
	if err != nil {
		return err
	}
	if tx.init(t, key); tx.err != nil {
		return tx.err
	}
	tx.era, u.rows = present, [1]*RowTx{tx}
	call := func() error { return fn(s.forUpdate(ctx, s), tx) }
	var refusal error
	if r.outside > 0 {
		if err := r.observe(ctx, s); err != nil {
			return err
		}
		refusal = r.run(u.rows[:], call)
	}
	latch := s.latches.Of(commit.RowHash(t.id, tx.change.Key))
	if err := latch.Lock(ctx); err != nil {
		return err
	}
	defer latch.Unlock()
	if err := t.admits(tx.change.Key); err != nil {
		return err
	}
	if r.outside == 0 {
		refusal = r.run(u.rows[:], call)
	} else if err := r.unchanged(u.rows[:]); err != nil {
		return err
	}
	switch {
	case refusal == errLong:
		return errLong
	case refusal != nil || tx.empty():
		u.write.refuse(s, refusal)
		return nil
	}
	u.write.add(&tx.RowChange)
	return s.write(ctx, &u.write)
}

// update is the memory of one call of Update.
type update struct {
	tx    RowTx
	rows  [1]*RowTx // tx
	write write
}

// updates keeps that memory between calls. It is scratch memory: which piece a call gets makes no
// difference.
var updates = sync.Pool{New: func() any { return new(update) }}

func takeUpdate() *update { return updates.Get().(*update) }

func (u *update) give() {
	if u.tx.large() {
		return
	}
	u.write.reset()
	u.tx.table, u.tx.era, u.tx.err = nil, nil, nil
	updates.Put(u)
}
