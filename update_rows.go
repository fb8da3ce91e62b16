package flagstone

import (
	"context"

	"github.com/flagstone-db/flagstone/row"
)

// UpdateRowsAsync is UpdateAsync for several rows of a table, which change
// together or not at all. fn gets a RowTx for each key, in their order, the
// same one for the same key, and can rely on none of the rows changing until
// its own changes are in place.
func (t *Table) UpdateRowsAsync(ctx context.Context, keys [][]row.Value, fn func(rows []*RowTx) error) (*Commit, error) {
	s := t.store
	if err := s.throttle(ctx); err != nil {
		return nil, err
	}
	rows := make([]*RowTx, len(keys))
	byKey := make(map[string]*RowTx, len(keys))
	stripes := make([]uint32, 0, len(keys))
	distinct := make([]*RowTx, 0, len(keys))
	for i, key := range keys {
		tx := new(RowTx)
		if tx.init(t, key); tx.err != nil {
			return nil, tx.err
		}
		if earlier := byKey[string(tx.mutation.Key)]; earlier != nil {
			rows[i] = earlier
			continue
		}
		byKey[string(tx.mutation.Key)] = tx
		rows[i], distinct = tx, append(distinct, tx)
		stripes = append(stripes, latchOf(t.id, tx.mutation.Key))
	}
	stripes = s.latches.lockAll(stripes)
	defer s.latches.unlockAll(stripes)
	if err := fn(rows); err != nil {
		return s.refuse(err), nil
	}
	changes := make([]*RowChange, 0, len(distinct))
	for _, tx := range distinct {
		if tx.err != nil || !tx.empty() {
			changes = append(changes, &tx.RowChange)
		}
	}
	if len(changes) == 0 {
		return s.refuse(nil), nil
	}
	return s.writeChanges(ctx, changes)
}
