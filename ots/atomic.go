package ots

// This file applies atomic batches: the rows of a table entry must share a partition key, and
// change together or not at all (PROTOCOL 6.7).

import (
	"context"
	"fmt"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// startAtomic applies the changes of one table entry as a whole. If one fails, all get its
// error.
func (e *Engine) startAtomic(ctx context.Context, t *table, s *session, changes []RowChange, pending []pendingWrite) {
	var bad *Error
	for i := range changes {
		pending[i] = e.newWrite(t, s, &changes[i])
		pending[i].others = len(changes) - 1
		if bad == nil {
			bad = pending[i].err
		}
	}
	if bad == nil {
		bad = outOfScope(pending)
	}
	if bad == nil {
		bad = e.applyAtomic(ctx, t, s, pending)
	}
	if bad != nil {
		for i := range pending {
			pending[i].err = bad
		}
	}
}

// outOfScope refuses rows of different partition keys.
func outOfScope(pending []pendingWrite) *Error {
	first := pending[0].key[0].Value
	for i := range pending {
		if v := pending[i].key[0].Value; compareValues(first, v) != 0 {
			return &Error{Code: CodeDataOutOfRange, Message: printable(fmt.Sprintf(
				"Data out of scope of atomic. Atomic PartKey:%s. Data PartKey:%s", partitionText(first), partitionText(v)))}
		}
	}
	return nil
}

// partitionText shows a partition key in a message.
func partitionText(v row.Value) string {
	if v.Type() == row.TypeString {
		return v.Text()
	}
	return v.String()
}

// applyAtomic generates missing key values and applies the changes. It starts over with new
// values if a generated key is taken.
func (e *Engine) applyAtomic(ctx context.Context, t *table, s *session, pending []pendingWrite) (bad *Error) {
	if s != nil {
		var cancel func()
		if cancel, bad = s.reserve(&e.limits, pending...); bad != nil {
			return bad
		}
		defer func() {
			if bad != nil {
				cancel()
			}
		}()
	}
	for i := range pending {
		if generatedColumn(pending[i].key) >= 0 {
			generation := e.generation(t, pending[i].key[0].Value) // they share the partition key
			if bad := generation.enter(ctx); bad != nil {
				return bad
			}
			defer generation.leave()
			break
		}
	}
	for {
		keys := make([][]row.Value, len(pending))
		for i := range pending {
			w := &pending[i]
			if column := generatedColumn(w.change.Row.Key); column >= 0 {
				var bad *Error
				if w.key, bad = e.generate(ctx, t, w.change.Row.Key, column); bad != nil {
					return bad
				}
			}
			keys[i] = keyTuple(w.key)
		}
		taken := false
		update := func(ctx context.Context, rows []*flagstone.RowTx) error {
			return e.applyAll(ctx, pending, rows, &taken)
		}
		var commit *flagstone.Commit
		var err error
		if s != nil {
			err = s.tx.UpdateRows(ctx, keys, update)
		} else {
			commit, err = t.engine.UpdateRowsAsync(ctx, keys, update)
		}
		if taken {
			continue
		}
		if err != nil {
			return e.asError(err, "write rows", t.name, false)
		}
		for i := range pending {
			pending[i].commit = commit
		}
		return nil
	}
}

// applyAll applies all changes at one clock value, inside the function of an update.
func (e *Engine) applyAll(ctx context.Context, pending []pendingWrite, rows []*flagstone.RowTx, taken *bool) error {
	now := e.store.NowMillis()
	*taken = false // the engine may run this function again
	for i := range pending {
		w := &pending[i]
		if generatedColumn(w.change.Row.Key) >= 0 {
			exists, err := rows[i].Exists()
			if err != nil {
				return err
			}
			if exists {
				*taken = true
				return errTaken
			}
		}
		if err := w.apply(ctx, e, rows[i], now); err != nil {
			return err
		}
	}
	return nil
}
