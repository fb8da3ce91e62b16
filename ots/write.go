package ots

// This file writes single rows: PutRow, UpdateRow, DeleteRow (PROTOCOL section 6). All that
// depends on the row or on the time happens inside the function that the engine runs while no
// other writer changes the row. So check and write are one step, and versions that the server
// assigns never decrease along the history of a row. A write without a condition reads nothing.

import (
	"context"
	"errors"
	"math"
	"slices"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// checkWrite checks a row change as far as possible without a table.
func (l *Limits) checkWrite(c *RowChange) *Error {
	if err := l.checkKey(c.Row.Key, keyOfWrite); err != nil {
		return err
	}
	return l.checkChange(c)
}

// checkChangeSize checks the size of a single PutRow or UpdateRow. The rows of a batch have
// only a common limit.
func (l *Limits) checkChangeSize(c *RowChange) *Error {
	if l.WriteRowBytes == 0 || c.Type == ChangeDelete {
		return nil
	}
	if size := changeSize(&c.Row); size > int64(l.WriteRowBytes) {
		operation := "PutRow"
		if c.Type == ChangeUpdate {
			operation = "UpdateRow"
		}
		return invalid("The total data size of %s request exceeds the limit, limit size: %d, data size: %d.",
			operation, l.WriteRowBytes, size)
	}
	return nil
}

// WriteRow carries out a PutRow, UpdateRow or DeleteRow. The change is durable when it returns
// without an error.
func (e *Engine) WriteRow(ctx context.Context, instance string, req *WriteRowRequest) (*WriteResult, error) {
	if err := e.limits.checkTableName(req.Table); err != nil {
		return nil, err
	}
	if err := checkTransaction(req.TransactionID); err != nil {
		return nil, err
	}
	if err := e.limits.checkWrite(&req.Change); err != nil {
		return nil, err
	}
	if err := e.limits.checkChangeSize(&req.Change); err != nil {
		return nil, err
	}
	if err := takeTurnToWrite(ctx, 1, &req.Change); err != nil {
		return nil, err
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return nil, bad
	}
	s, bad := e.take(instance, req.TransactionID)
	if bad != nil {
		return nil, bad
	}
	defer s.leave()
	write := e.startWrite(ctx, t, s, &req.Change)
	result := e.finishWrite(ctx, &write)
	if result.Err != nil {
		return nil, result.Err
	}
	return &result.WriteResult, nil
}

// pendingWrite is a row change that failed, or was applied and may not be durable yet.
type pendingWrite struct {
	table   *table
	session *session // the transaction of the change, or nil
	others  int      // number of other changes under the same latches
	change  *RowChange
	key     []KeyValue        // the change's key, with generated values
	after   []Cell            // results of the increments
	commit  *flagstone.Commit // nil if the change failed or is part of a transaction
	err     *Error
}

// newWrite begins a change: it checks what depends only on the table.
func (e *Engine) newWrite(t *table, s *session, c *RowChange) pendingWrite {
	w := pendingWrite{table: t, session: s, change: c, key: c.Row.Key}
	if w.err = matchKey(t.key, c.Row.Key); w.err == nil {
		w.err = s.covers(t, c.Row.Key)
	}
	switch {
	case w.err != nil:
	case c.Type == ChangeUpdate && !t.AllowUpdate:
		w.err = invalid("UpdateRow is not allowed on table '%s': its option allow_update is false.", t.name)
	default:
		w.err = e.admit(t, w.key[0].Value, writes)
	}
	return w
}

// startWrite applies a change that was checked. Changes of one row are applied in the order of
// their calls. Every started write must be finished.
func (e *Engine) startWrite(ctx context.Context, t *table, s *session, c *RowChange) (w pendingWrite) {
	w = e.newWrite(t, s, c)
	if w.err != nil {
		return w
	}
	if s != nil {
		cancel, bad := s.reserve(&e.limits, w)
		if w.err = bad; bad != nil {
			return w
		}
		defer func() {
			if w.err != nil {
				cancel()
			}
		}()
	}
	if generated := generatedColumn(c.Row.Key); generated >= 0 {
		e.startGenerated(ctx, &w, generated)
		return w
	}
	w.update(ctx, e, keyTuple(c.Row.Key), func(ctx context.Context, tx *flagstone.RowTx) error {
		return w.apply(ctx, e, tx, e.store.NowMillis())
	})
	return w
}

// update runs fn on a row, in the transaction if there is one, and records the outcome.
func (w *pendingWrite) update(ctx context.Context, e *Engine, key []row.Value, fn func(_ context.Context, tx *flagstone.RowTx) error) {
	if w.session != nil {
		w.started(e, nil, w.session.tx.Update(ctx, key, fn))
		return
	}
	commit, err := w.table.engine.UpdateAsync(ctx, key, fn)
	w.started(e, commit, err)
}

// started records the outcome of an update in the engine.
func (w *pendingWrite) started(e *Engine, commit *flagstone.Commit, err error) {
	if err != nil {
		w.err = e.asError(err, "write row", w.table.name, false)
		return
	}
	w.commit = commit
}

// finishWrite waits until a change is durable, unless it is part of a transaction, and charges
// its cost.
func (e *Engine) finishWrite(ctx context.Context, w *pendingWrite) RowWriteResult {
	if w.err == nil && w.commit != nil {
		turnOf(ctx).Leave() // other requests compute while this one waits for the disk
		if err := w.commit.Wait(ctx); err != nil {
			w.err = e.asError(err, "write row", w.table.name, true)
		}
	}
	if w.err != nil {
		result := RowWriteResult{Err: w.err}
		if w.err.Code == CodeConditionCheckFail {
			result.Consumed = refusedCost()
			e.chargeRow(w.table, w.key[0].Value, result.Consumed)
		}
		return result
	}
	result := RowWriteResult{WriteResult: WriteResult{Consumed: writeCost(w.change, w.key)}}
	e.chargeRow(w.table, w.key[0].Value, result.Consumed)
	switch w.change.Return {
	case ReturnPK:
		result.Row = &Row{Key: w.key}
	case ReturnAfterModify:
		result.Row = &Row{Key: w.key}
		wanted := slices.Sorted(slices.Values(w.change.ReturnColumns))
		for _, cell := range w.after {
			if _, found := slices.BinarySearch(wanted, cell.Name); found {
				result.Row.Cells = append(result.Row.Cells, cell)
			}
		}
	}
	return result
}

// reads reports whether the outcome of a change depends on the row. A batch has no other change
// of such a row.
func (c *RowChange) reads() bool {
	return c.Existence != ExistenceIgnore || c.condition != nil || c.increments()
}

func (c *RowChange) increments() bool {
	return slices.ContainsFunc(c.Row.Cells, func(cell Cell) bool { return cell.Op == OpIncrement })
}

// apply carries out the change at the given time, inside the function of an update.
func (w *pendingWrite) apply(ctx context.Context, e *Engine, tx *flagstone.RowTx, nowMillis int64) error {
	c := w.change
	if err := w.table.checkWindow(c.Row.Cells, nowMillis); err != nil {
		return err
	}
	if c.reads() {
		if err := w.examine(ctx, e, tx, nowMillis); err != nil {
			return err
		}
	}
	switch c.Type {
	case ChangeDelete:
		tx.DeleteRow()
		return nil
	case ChangePut:
		tx.PutRow()
	}
	changeCells(tx, c.Row.Cells, nowMillis)
	for _, cell := range w.after {
		tx.Put(cell.Name, cell.Version, cell.Value)
	}
	return nil
}

// examine reads the row of a change once: it checks the conditions and computes the increments.
func (w *pendingWrite) examine(ctx context.Context, e *Engine, tx *flagstone.RowTx, nowMillis int64) error {
	c := w.change
	opts := flagstone.ReadOptions{Columns: []string{}, MaxVersions: 1, MaxBytes: e.limits.ReadRowBytes, MaxCells: rowSteps}
	if c.condition != nil {
		var newest bool
		c.condition.bind(w.table.key)
		if opts.Columns, newest = c.condition.attributes(opts.Columns); !newest {
			opts.MaxVersions = 0
		}
	}
	for i := range c.Row.Cells {
		if c.Row.Cells[i].Op == OpIncrement {
			opts.Columns = append(opts.Columns, c.Row.Cells[i].Name)
		}
	}
	found, err := tx.Get(opts)
	if err != nil {
		return err
	}
	if c.Existence != ExistenceIgnore && found.Exists() != (c.Existence == ExistenceExpect) {
		return conditionFailed()
	}
	if c.condition != nil {
		ok, err := c.condition.passes(found, &effort{ctx: ctx, left: latchedSteps / int64(1+w.others)})
		if errors.Is(err, errEffort) {
			if err := tx.Unlatch(); err != nil {
				return err
			}
			ok, err = c.condition.judge(ctx, found)
		}
		if err != nil {
			return err
		}
		if !ok {
			return conditionFailed()
		}
	}
	return w.increment(found, nowMillis)
}

// increment computes the cells that the increments of a change put, in column order. It
// replaces a version ahead of the clock: a new value below that version would be invisible, and
// the next increment would add to the wrong value.
func (w *pendingWrite) increment(found *flagstone.Row, nowMillis int64) error {
	w.after = nil
	for i := range w.change.Row.Cells {
		cell := &w.change.Row.Cells[i]
		if cell.Op != OpIncrement {
			continue
		}
		sum, version := cell.Value, nowMillis
		if present := columnOf(found.Cells(), cell.Name); len(present) > 0 {
			before, err := row.PayloadValue(present[0].Type, present[0].Value)
			if err != nil {
				return err
			}
			var bad *Error
			if sum, bad = add(cell.Name, before, sum); bad != nil {
				return bad
			}
			version = max(version, present[0].Version)
		}
		w.after = append(w.after, Cell{Name: cell.Name, Value: sum, Version: version, HasVersion: true})
	}
	slices.SortFunc(w.after, func(a, b Cell) int {
		if a.Name < b.Name {
			return -1
		}
		return 1 // names differ
	})
	return nil
}

// add returns the sum of a column's value and an increment.
func add(column string, before, by row.Value) (row.Value, *Error) {
	if before.Type() != by.Type() {
		return row.Value{}, invalid("Column '%s' cannot be incremented: its type is %s, not %s.", column, typeName(before.Type()), typeName(by.Type()))
	}
	if by.Type() == row.TypeDouble {
		if sum := before.Float64() + by.Float64(); !math.IsInf(sum, 0) {
			return row.Double(sum), nil
		}
	} else if a, b := before.Int64(), by.Int64(); !(b > 0 && a > math.MaxInt64-b || b < 0 && a < math.MinInt64-b) {
		return row.Integer(a + b), nil
	}
	return row.Value{}, invalid("Column '%s' cannot be incremented: the sum exceeds the range of %s.", column, typeName(by.Type()))
}

// changeCells carries out the cells of a put or update except increments. Deletes of columns
// act on what the row held before, wherever they stand in the request. If other operations name
// the same version of a column, the last one wins.
func changeCells(tx *flagstone.RowTx, cells []Cell, nowMillis int64) {
	for i := range cells {
		if cells[i].Op == OpDeleteAllVersion {
			tx.DeleteColumn(cells[i].Name)
		}
	}
	for i := range cells {
		switch cell := &cells[i]; cell.Op {
		case OpPut:
			version := nowMillis
			if cell.HasVersion {
				version = cell.Version
			}
			tx.Put(cell.Name, version, cell.Value)
		case OpDeleteOneVersion:
			tx.DeleteVersion(cell.Name, cell.Version)
		}
	}
}

// checkWindow checks the versions that the client chose, in whole seconds: at least the bound
// of Max Version Offset and time to live, and below now plus Max Version Offset (PROTOCOL 6.3).
// It also refuses versions that an earlier, shorter time to live has expired for good: no read
// would return them.
func (t *table) checkWindow(cells []Cell, nowMillis int64) error {
	now := nowMillis / 1000
	oldest := max(now-t.options.MaxVersionOffsetSeconds, t.info.ExpiryWatermark)
	if t.options.TTLSeconds >= 0 {
		oldest = max(oldest, now-t.options.TTLSeconds)
	}
	for i := range cells {
		cell := &cells[i]
		if cell.Op != OpPut || !cell.HasVersion {
			continue
		}
		if s := cell.Version / 1000; s < oldest || s >= now+t.options.MaxVersionOffsetSeconds {
			return invalid("Invalid timestamp. Cell:%s.", cell.Name)
		}
	}
	return nil
}
