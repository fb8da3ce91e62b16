package ots

// This file writes batches: BatchWriteRow (PROTOCOL 6.7). A batch is a way to
// send many row changes at once, not a transaction: each row succeeds or fails
// by itself. The changes are applied in the order of the request and then waited
// for together, so that a batch costs about one sync of the log.

import (
	"context"

	"github.com/flagstone-db/flagstone/row"
)

// BatchWriteRow carries out row changes of several tables.
func (e *Engine) BatchWriteRow(ctx context.Context, instance string, req *BatchWriteRowRequest) (*BatchWriteRowResponse, error) {
	if err := e.limits.checkBatchWrite(req); err != nil {
		return nil, err
	}
	pending := make([][]pendingWrite, len(req.Tables))
	for i := range req.Tables {
		changes := req.Tables[i].Changes
		pending[i] = make([]pendingWrite, len(changes))
		t, bad := e.table(instance, req.Tables[i].Table)
		for j := range changes {
			if bad != nil {
				pending[i][j].err = bad
				continue
			}
			pending[i][j] = e.startWrite(ctx, t, &changes[j])
		}
	}
	resp := &BatchWriteRowResponse{Tables: make([]TableWriteResults, len(req.Tables))}
	for i := range pending {
		results := make([]RowWriteResult, len(pending[i]))
		for j := range pending[i] {
			results[j] = e.finishWrite(ctx, pending[i][j])
		}
		resp.Tables[i] = TableWriteResults{Table: req.Tables[i].Table, Rows: results}
	}
	return resp, nil
}

// checkBatchWrite checks what is wrong with a batch whatever its tables are
// like; that refuses all of it.
func (l *Limits) checkBatchWrite(req *BatchWriteRowRequest) *Error {
	if req.TransactionID != nil && *req.TransactionID != "" {
		return unsupported("Local transactions are")
	}
	if req.Atomic {
		return unsupported("Atomic batches (is_atomic) are")
	}
	if len(req.Tables) == 0 {
		return invalid("No row is specified in BatchWriteRow.")
	}
	rows, size := 0, int64(0)
	for i := range req.Tables {
		changes := req.Tables[i].Changes
		if err := l.checkTableName(req.Tables[i].Table); err != nil {
			return err
		}
		if len(changes) == 0 {
			return invalid("No operation is specified for table: '%s'.", req.Tables[i].Table)
		}
		rows += len(changes)
		for j := range changes {
			size += changeSize(&changes[j].Row)
		}
	}
	if rows > l.BatchWriteRows {
		return invalid("Rows count exceeds the upper limit: %d.", l.BatchWriteRows)
	}
	if size > int64(l.BatchWriteBytes) {
		return invalid("The total data size of BatchWriteRow request exceeds the limit, limit size: %d, data size: %d.",
			l.BatchWriteBytes, size)
	}
	for i := range req.Tables {
		for j := range req.Tables[i].Changes {
			if err := l.checkWrite(&req.Tables[i].Changes[j]); err != nil {
				return err
			}
		}
	}
	return checkRepeatedRows(req, rows)
}

// checkRepeatedRows refuses a batch in which a row occurs more than once and
// one of its changes expects something of it: the outcome would depend on the
// order in which a service applies them. Keys that are no key of any table are
// left to the check against the schema.
func checkRepeatedRows(req *BatchWriteRowRequest, rows int) *Error {
	if !hasExpectations(req) {
		return nil
	}
	expecting := make(map[string]bool, rows) // row -> one of its changes has an expectation
	for i := range req.Tables {
		changes := req.Tables[i].Changes
		for j := range changes {
			id := append([]byte(req.Tables[i].Table), '/')
			id, err := row.AppendKey(id, row.MaxKeyColumns, keyTuple(changes[j].Row.Key)...)
			if err != nil {
				continue
			}
			expects := changes[j].Existence != ExistenceIgnore
			before, repeated := expecting[string(id)]
			if repeated && (before || expects) {
				return invalid("Repeated rows do not support row exist expectation check in BatchModify.")
			}
			expecting[string(id)] = before || expects
		}
	}
	return nil
}

func hasExpectations(req *BatchWriteRowRequest) bool {
	for i := range req.Tables {
		for j := range req.Tables[i].Changes {
			if req.Tables[i].Changes[j].Existence != ExistenceIgnore {
				return true
			}
		}
	}
	return false
}
