package ots

// This file writes single rows: PutRow, UpdateRow, DeleteRow (PROTOCOL section
// 6). Everything that depends on the row or on the time happens inside the
// function that the engine runs under the row's latch: the existence check and
// the write are one step, and versions that the server assigns never decrease
// along the history of a row. A write that expects nothing of the row reads
// nothing.

import (
	"context"

	flagstone "github.com/flagstone-db/flagstone"
)

// checkWrite checks a row change as far as it goes without a table.
func (l *Limits) checkWrite(c *RowChange) *Error {
	if err := l.checkKey(c.Row.Key, keyOfWrite); err != nil {
		return err
	}
	return l.checkChange(c)
}

// checkChangeSize checks the size of a PutRow or UpdateRow of its own; the rows
// of a batch are only limited together.
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

// WriteRow carries out a PutRow, UpdateRow or DeleteRow. When it returns
// without an error the change is durable.
func (e *Engine) WriteRow(ctx context.Context, instance string, req *WriteRowRequest) (*WriteResult, error) {
	if err := e.limits.checkTableName(req.Table); err != nil {
		return nil, err
	}
	if req.TransactionID != nil && *req.TransactionID != "" {
		return nil, unsupported("Local transactions are")
	}
	if err := e.limits.checkWrite(&req.Change); err != nil {
		return nil, err
	}
	if err := e.limits.checkChangeSize(&req.Change); err != nil {
		return nil, err
	}
	t, bad := e.table(instance, req.Table)
	if bad != nil {
		return nil, bad
	}
	write := e.startWrite(ctx, t, &req.Change)
	result := e.finishWrite(ctx, write)
	if result.Err != nil {
		return nil, result.Err
	}
	return &result.WriteResult, nil
}

// pendingWrite is a row change that was applied and may not be durable yet, or
// that failed.
type pendingWrite struct {
	table  *table
	change *RowChange
	commit *flagstone.Commit // nil if err is set
	err    *Error
}

// startWrite applies a change that was checked. Changes of one row that are
// started one after the other are applied in that order. Every write that was
// started must be finished.
func (e *Engine) startWrite(ctx context.Context, t *table, c *RowChange) pendingWrite {
	w := pendingWrite{table: t, change: c}
	if w.err = matchKey(t.key, c.Row.Key); w.err != nil {
		return w
	}
	if c.Type == ChangeUpdate && !t.AllowUpdate {
		w.err = invalid("UpdateRow is not allowed on table '%s': its option allow_update is false.", t.name)
		return w
	}
	commit, err := t.engine.UpdateAsync(ctx, keyTuple(c.Row.Key), func(tx *flagstone.RowTx) error {
		return t.change(tx, c, e.store.NowMillis())
	})
	if err != nil {
		w.err = e.asError(err, "write row", t.name, false)
		return w
	}
	w.commit = commit
	return w
}

// finishWrite waits until a change is durable, and says what it cost.
func (e *Engine) finishWrite(ctx context.Context, w pendingWrite) RowWriteResult {
	if w.err == nil {
		if err := w.commit.Wait(ctx); err != nil {
			w.err = e.asError(err, "write row", w.table.name, true)
		}
	}
	if w.err != nil {
		result := RowWriteResult{Err: w.err}
		if w.err.Code == CodeConditionCheckFail {
			result.Consumed = refusedCost()
		}
		return result
	}
	result := RowWriteResult{WriteResult: WriteResult{Consumed: writeCost(w.change)}}
	if w.change.Return == ReturnPK {
		result.Row = &Row{Key: w.change.Row.Key}
	}
	return result
}

// change carries out a row change at the given time, under the row's latch.
func (t *table) change(tx *flagstone.RowTx, c *RowChange, nowMillis int64) error {
	if err := t.checkWindow(c.Row.Cells, nowMillis); err != nil {
		return err
	}
	if c.Existence != ExistenceIgnore {
		exists, err := tx.Exists()
		if err != nil {
			return err
		}
		if exists != (c.Existence == ExistenceExpect) {
			return conditionFailed()
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
	return nil
}

// changeCells carries out the cells of a put or update. Deletes of columns act
// on what the row held before, wherever they stand in the request; of the
// other operations on one version of a column, the last one wins.
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

// checkWindow checks the versions that the client chose, in whole seconds:
// not older than Max Version Offset or time to live allow, and below now plus
// Max Version Offset (PROTOCOL 6.3).
func (t *table) checkWindow(cells []Cell, nowMillis int64) error {
	now := nowMillis / 1000
	oldest := now - t.options.MaxVersionOffsetSeconds
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
