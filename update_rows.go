package flagstone

import (
	"bytes"
	"context"

	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// UpdateRowsAsync is UpdateAsync for several rows of a table, which change together or not at
// all. fn gets a RowTx for each key, in the order of keys, and the same one for equal keys. No
// other writer can change the rows until the changes of fn are in place.
func (t *Table) UpdateRowsAsync(ctx context.Context, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) (*Commit, error) {
	if err := t.store.throttle(ctx); err != nil {
		return nil, err
	}
	for r := new(tries); ; {
		var w write
		again, err := r.again(t, t.updateRowsOnce(ctx, r, &w, keys, fn))
		switch {
		case again:
		case err != nil:
			return nil, err
		default:
			return w.take(t.store), nil
		}
	}
}

// updateRowsOnce is UpdateRowsAsync in one era of the table.
func (t *Table) updateRowsOnce(ctx context.Context, r *tries, w *write, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) error {
	s := t.store
	present, err := t.present(ctx)
	if err != nil {
		return err
	}
	rows, distinct, err := t.rowsOf(keys, nil)
	if err != nil {
		return err
	}
	stripes := make([]uint32, len(distinct))
	for i, tx := range distinct {
		tx.era = present
		stripes[i] = commit.StripeOf(commit.RowHash(t.id, tx.change.Key))
	}
	call := func() error { return fn(s.forUpdate(ctx, s), rows) }
	var refusal error
	if r.outside > 0 {
		if err := r.observe(ctx, s); err != nil {
			return err
		}
		refusal = r.run(distinct, call)
	}
	if stripes, err = s.latches.LockAll(ctx, stripes); err != nil {
		return err
	}
	defer s.latches.UnlockAll(stripes)
	for _, tx := range distinct {
		if err := t.admits(tx.change.Key); err != nil {
			return err
		}
	}
	if r.outside == 0 {
		refusal = r.run(distinct, call)
	} else if err := r.unchanged(distinct); err != nil {
		return err
	}
	switch {
	case refusal == errLong:
		return errLong
	case refusal != nil:
		w.refuse(s, refusal)
		return nil
	}
	return t.writeRows(ctx, w, distinct)
}

// rowsOf makes a RowTx for each key, the same one for equal keys; distinct lists each once.
// written is what their transaction has written, nil if they are part of none.
func (t *Table) rowsOf(keys [][]row.Value, written *memtable.Memtable) (rows, distinct []*RowTx, err error) {
	rows = make([]*RowTx, len(keys))
	distinct = make([]*RowTx, 0, len(keys))
	byHash := make(map[uint64][]*RowTx, len(keys))
next:
	for i, key := range keys {
		tx := new(RowTx)
		if tx.init(t, key); tx.err != nil {
			return nil, nil, tx.err
		}
		tx.written = written
		hash := commit.RowHash(t.id, tx.change.Key)
		for _, earlier := range byHash[hash] {
			if bytes.Equal(earlier.change.Key, tx.change.Key) {
				rows[i] = earlier
				continue next
			}
		}
		byHash[hash] = append(byHash[hash], tx)
		rows[i], distinct = tx, append(distinct, tx)
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
		tx.now = now
	}
}

// writeRows writes the changes of rows whose latches are held.
func (t *Table) writeRows(ctx context.Context, w *write, distinct []*RowTx) error {
	s := t.store
	changes := 0
	for _, tx := range distinct {
		if !tx.empty() {
			w.add(&tx.RowChange)
			changes++
		}
	}
	if changes == 0 {
		w.refuse(s, nil)
		return nil
	}
	return s.write(ctx, w)
}
