package flagstone

import (
	"bytes"
	"context"

	"github.com/flagstone-db/flagstone/row"
)

// UpdateRowsAsync is UpdateAsync for several rows of a table, which change
// together or not at all. fn gets a RowTx for each key, in their order, the
// same one for the same key; none of the rows can change until its own changes
// are in place.
func (t *Table) UpdateRowsAsync(ctx context.Context, keys [][]row.Value, fn func(rows []*RowTx) error) (*Commit, error) {
	s := t.store
	if err := s.throttle(ctx); err != nil {
		return nil, err
	}
	rows := make([]*RowTx, len(keys))
	distinct := make([]*RowTx, 0, len(keys))
	byHash := make(map[uint64][]*RowTx, len(keys))
	stripes := make([]uint32, 0, len(keys))
next:
	for i, key := range keys {
		tx := new(RowTx)
		if tx.init(t, key); tx.err != nil {
			return nil, tx.err
		}
		hash := rowHash(t.id, tx.change.Key)
		for _, earlier := range byHash[hash] {
			if bytes.Equal(earlier.change.Key, tx.change.Key) {
				rows[i] = earlier
				continue next
			}
		}
		byHash[hash] = append(byHash[hash], tx)
		rows[i], distinct = tx, append(distinct, tx)
		stripes = append(stripes, stripeOf(hash))
	}
	stripes = s.latches.lockAll(stripes)
	defer s.latches.unlockAll(stripes)
	commit, err := s.updateLatched(ctx, rows, distinct, fn)
	if err != nil {
		return nil, err
	}
	return &commit, nil
}

// updateLatched is the part of UpdateRowsAsync under the latches.
func (s *Store) updateLatched(ctx context.Context, rows, distinct []*RowTx, fn func(rows []*RowTx) error) (Commit, error) {
	if err := fn(rows); err != nil {
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
