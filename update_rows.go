package flagstone

import (
	"bytes"
	"context"
	"errors"

	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

// UpdateRowsAsync is UpdateAsync for several rows of a table, which change
// together or not at all. fn gets a RowTx for each key, in their order, the
// same one for the same key; none of the rows can change until its own changes
// are in place.
func (t *Table) UpdateRowsAsync(ctx context.Context, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) (*Commit, error) {
	if err := t.store.throttle(ctx); err != nil {
		return nil, err
	}
	for {
		commit, err := t.updateRowsOnce(ctx, keys, fn)
		if !errors.Is(err, errAltered) {
			return commit, err
		}
	}
}

// updateRowsOnce is UpdateRowsAsync in one era of the table.
func (t *Table) updateRowsOnce(ctx context.Context, keys [][]row.Value, fn func(ctx context.Context, rows []*RowTx) error) (*Commit, error) {
	s := t.store
	present, err := t.present(ctx)
	if err != nil {
		return nil, err
	}
	rows, distinct, err := t.rowsOf(keys, nil)
	if err != nil {
		return nil, err
	}
	for _, tx := range distinct {
		tx.era = present
	}
	stripes := make([]uint32, len(distinct))
	for i, tx := range distinct {
		stripes[i] = stripeOf(rowHash(t.id, tx.change.Key))
	}
	if stripes, err = s.latches.lockAll(ctx, stripes); err != nil {
		return nil, err
	}
	defer s.latches.unlockAll(stripes)
	for _, tx := range distinct {
		if err := s.transactions.admits(t, tx.change.Key); err != nil {
			return nil, err
		}
	}
	commit, err := s.updateLatched(ctx, rows, distinct, fn)
	if err != nil {
		return nil, err
	}
	return &commit, nil
}

// rowsOf makes a RowTx for each key, the same one for the same key, and lists
// each once. written is what the transaction has written that they are part of,
// if they are.
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
		hash := rowHash(t.id, tx.change.Key)
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

// updateLatched is the part of UpdateRowsAsync under the latches.
func (s *Store) updateLatched(ctx context.Context, rows, distinct []*RowTx, fn func(ctx context.Context, rows []*RowTx) error) (Commit, error) {
	if err := fn(s.forUpdate(ctx, s), rows); err != nil {
		return s.refuse(err), nil
	}
	var w write
	changes := 0
	for _, tx := range distinct {
		if !tx.empty() {
			w.add(&tx.RowChange)
			changes++
		}
	}
	if changes == 0 {
		return s.refuse(nil), nil
	}
	return s.write(ctx, &w)
}
