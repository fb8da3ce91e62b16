package ots

// This file writes batches: BatchWriteRow (PROTOCOL 6.7). Each row succeeds or fails by itself.
// The batch applies all changes and then waits for them together, so it costs about one sync of
// the log. Changes that read their rows are applied in parallel, since each may wait for the
// disk; the others are applied in the order of the request. Atomic batches are in atomic.go.

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/row"
)

// BatchWriteRow carries out row changes of several tables.
func (e *Engine) BatchWriteRow(ctx context.Context, instance string, req *BatchWriteRowRequest) (*BatchWriteRowResponse, error) {
	if err := e.limits.checkBatchWrite(req); err != nil {
		return nil, err
	}
	rows := 0
	for i := range req.Tables {
		rows += len(req.Tables[i].Changes)
	}
	for i := range req.Tables {
		for j := range req.Tables[i].Changes {
			if err := takeTurnToWrite(ctx, rows, &req.Tables[i].Changes[j]); err != nil {
				return nil, err
			}
		}
	}
	s, bad := e.take(instance, req.TransactionID)
	if bad != nil {
		return nil, bad
	}
	defer s.leave()
	pending := make([][]pendingWrite, len(req.Tables))
	var readers []*pendingWrite
	for i := range req.Tables {
		changes := req.Tables[i].Changes
		pending[i] = make([]pendingWrite, len(changes))
		t, bad := e.table(instance, req.Tables[i].Table)
		if req.Atomic && bad == nil {
			e.startAtomic(ctx, t, s, changes, pending[i])
			continue
		}
		for j := range changes {
			w := &pending[i][j]
			switch {
			case bad != nil:
				w.err = bad
			case changes[j].reads() && s == nil:
				w.table, w.change = t, &changes[j]
				readers = append(readers, w)
			default:
				*w = e.startWrite(ctx, t, s, &changes[j])
			}
		}
	}
	judged := slices.IndexFunc(readers, func(w *pendingWrite) bool { return w.change.condition.costly() }) >= 0
	inParallel(len(readers), judged, func() func(int) {
		return func(i int) { *readers[i] = e.startWrite(ctx, readers[i].table, nil, readers[i].change) }
	})
	resp := &BatchWriteRowResponse{Tables: make([]TableWriteResults, len(req.Tables))}
	for i := range pending {
		results := make([]RowWriteResult, len(pending[i]))
		for j := range pending[i] {
			results[j] = e.finishWrite(ctx, &pending[i][j])
		}
		resp.Tables[i] = TableWriteResults{Table: req.Tables[i].Table, Rows: results}
	}
	return resp, nil
}

// inParallel runs items 0 to n-1 on up to 8 goroutines and returns when all are done. Each
// goroutine calls worker once for its own do. A few items are not worth a goroutine;
// alone, for items that are expensive to judge, keeps to the one goroutine of its turn.
func inParallel(n int, alone bool, worker func() (do func(i int))) {
	const (
		workers   = 8
		perWorker = 4
	)
	var next atomic.Int64
	var failed atomic.Pointer[any]
	work := func() {
		// The panic is raised again in the caller, which may recover from it.
		defer func() {
			if p := recover(); p != nil {
				failed.CompareAndSwap(nil, &p)
			}
		}()
		do := worker()
		for i := int(next.Add(1)) - 1; i < n; i = int(next.Add(1)) - 1 {
			do(i)
		}
	}
	var others sync.WaitGroup
	if !alone {
		for range min(workers, n/perWorker) - 1 {
			others.Go(work)
		}
	}
	work()
	others.Wait()
	if p := failed.Load(); p != nil {
		panic(*p)
	}
}

// checkBatchWrite checks what does not depend on the tables. An error refuses the whole batch.
func (l *Limits) checkBatchWrite(req *BatchWriteRowRequest) *Error {
	if err := checkTransaction(req.TransactionID); err != nil {
		return err
	}
	if len(req.Tables) == 0 {
		return invalid("No row is specified in BatchWriteRow.")
	}
	if len(req.Tables) > l.BatchWriteRows { // an entry has at least one row, or is refused below
		return TooManyRows(l.BatchWriteRows)
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
		return TooManyRows(l.BatchWriteRows)
	}
	if size > int64(l.BatchWriteBytes) {
		return invalid("The total data size of BatchWriteRow request exceeds the limit, limit size: %d, data size: %d.",
			l.BatchWriteBytes, size)
	}
	reading, conditions := false, newCompiled()
	for i := range req.Tables {
		for j := range req.Tables[i].Changes {
			c := &req.Tables[i].Changes[j]
			c.condition = conditions.copyOf(c.ColumnCondition)
			if err := l.checkWrite(c); err != nil {
				return err
			}
			if err := conditions.keep(c.ColumnCondition, c.condition); err != nil {
				return err
			}
			reading = reading || c.reads()
		}
	}
	if !reading {
		return nil
	}
	return checkRepeatedRows(req, rows)
}

// compiled maps the checked filters of one request to their predicates. The decoder gives equal
// filters of a request as one pointer, so each is compiled once.
type compiled struct {
	known        map[*Filter]*predicate
	spent        *atomic.Int64 // steps of the request
	instructions int64
}

func newCompiled() *compiled {
	return &compiled{known: make(map[*Filter]*predicate), spent: new(atomic.Int64)}
}

// copyOf returns a copy of the predicate of a filter, nil if there is none yet. Each user binds
// its own copy to a table; the expressions are shared.
func (c *compiled) copyOf(f *Filter) *predicate {
	if f == nil || c.known[f] == nil {
		return nil
	}
	p := c.known[f].clone()
	return &p
}

// keep records the predicate of a filter. It bounds all expressions of a request together.
func (c *compiled) keep(f *Filter, p *predicate) *Error {
	if f == nil || c.known[f] != nil {
		return nil
	}
	c.known[f], p.spent = p, c.spent
	if c.instructions += p.instructions(); c.instructions > maxRequestInstructions {
		return invalid("The regexes in the ValueTransferRules of the request are too large: more than %d instructions.", maxRequestInstructions)
	}
	return nil
}

func (p predicate) clone() predicate {
	p.subs = slices.Clone(p.subs)
	for i := range p.subs {
		p.subs[i] = p.subs[i].clone()
	}
	return p
}

// checkRepeatedRows refuses a batch that changes a row more than once if one of these changes
// depends on the row: the outcome would depend on the order in which a service applies them. A
// key that no table can have is left to the check against the schema.
func checkRepeatedRows(req *BatchWriteRowRequest, rows int) *Error {
	before := make(map[string]*RowChange, rows)
	for i := range req.Tables {
		changes := req.Tables[i].Changes
		for j := range changes {
			c := &changes[j]
			id := append([]byte(req.Tables[i].Table), '/')
			id, err := row.AppendKey(id, row.MaxKeyColumns, keyTuple(c.Row.Key)...)
			if err != nil {
				continue
			}
			first := before[string(id)]
			if first == nil {
				before[string(id)] = c
				continue
			}
			if err := mayRepeat(first, c); err != nil {
				return err
			}
		}
	}
	return nil
}

// mayRepeat returns an error if two changes may not change the same row in one batch.
func mayRepeat(a, b *RowChange) *Error {
	switch {
	case a.Existence != ExistenceIgnore || b.Existence != ExistenceIgnore:
		return invalid("Repeated rows do not support row exist expectation check in BatchModify.")
	case a.condition != nil || b.condition != nil:
		return invalid("Repeated rows do not support row condition check in BatchModify.")
	case a.increments() || b.increments():
		return invalid("Repeated rows do not support atomic increment in BatchModify.")
	}
	return nil
}
