package faults

import (
	"context"

	"github.com/flagstone-db/flagstone/ots"
)

// Rows wraps a service so that single rows of batches fail. It leaves atomic batches alone,
// since their rows cannot fail by themselves.
func Rows(service ots.Service, in *Injector) ots.Service {
	return &rowService{Service: service, injector: in}
}

type rowService struct {
	ots.Service
	injector *Injector
}

// row returns the fault of one row of a batch.
func (s *rowService) row(operation, instance, table string) *ots.Error {
	return s.injector.next(operation, instance, []string{table}, true).Err
}

// BatchWriteRow performs the batch without the rows that should fail.
func (s *rowService) BatchWriteRow(ctx context.Context, instance string, req *ots.BatchWriteRowRequest) (*ots.BatchWriteRowResponse, error) {
	if req.Atomic {
		return s.Service.BatchWriteRow(ctx, instance, req)
	}
	rest := *req
	rest.Tables = nil
	plan := newPlan(len(req.Tables))
	for i, t := range req.Tables {
		kept := t
		kept.Changes = nil
		for j := range t.Changes {
			if plan.decide(i, s.row("BatchWriteRow", instance, t.Table)) {
				kept.Changes = append(kept.Changes, t.Changes[j])
			}
		}
		if len(kept.Changes) > 0 || len(t.Changes) == 0 {
			rest.Tables = append(rest.Tables, kept)
			plan.keep(i)
		}
	}
	if !plan.failing {
		return s.Service.BatchWriteRow(ctx, instance, req)
	}
	done := new(ots.BatchWriteRowResponse)
	if len(rest.Tables) > 0 {
		var err error
		if done, err = s.Service.BatchWriteRow(ctx, instance, &rest); err != nil {
			return nil, err
		}
	}
	resp := &ots.BatchWriteRowResponse{Tables: make([]ots.TableWriteResults, len(req.Tables))}
	for i, t := range req.Tables {
		results := ots.TableWriteResults{Table: t.Table}
		for _, at := range plan.rows[i] {
			if at.err != nil {
				results.Rows = append(results.Rows, ots.RowWriteResult{Err: at.err})
			} else {
				results.Rows = append(results.Rows, done.Tables[plan.place[i]].Rows[at.index])
			}
		}
		resp.Tables[i] = results
	}
	return resp, nil
}

// BatchGetRow performs the batch without the rows that should fail.
func (s *rowService) BatchGetRow(ctx context.Context, instance string, req *ots.BatchGetRowRequest) (*ots.BatchGetRowResponse, error) {
	rest := *req
	rest.Tables = nil
	plan := newPlan(len(req.Tables))
	for i, t := range req.Tables {
		kept := t
		kept.Rows = nil
		for j := range t.Rows {
			if plan.decide(i, s.row("BatchGetRow", instance, t.Table)) {
				kept.Rows = append(kept.Rows, t.Rows[j])
			}
		}
		if len(kept.Rows) > 0 || len(t.Rows) == 0 {
			rest.Tables = append(rest.Tables, kept)
			plan.keep(i)
		}
	}
	if !plan.failing {
		return s.Service.BatchGetRow(ctx, instance, req)
	}
	done := new(ots.BatchGetRowResponse)
	if len(rest.Tables) > 0 {
		var err error
		if done, err = s.Service.BatchGetRow(ctx, instance, &rest); err != nil {
			return nil, err
		}
	}
	resp := &ots.BatchGetRowResponse{Tables: make([]ots.TableReadResults, len(req.Tables))}
	for i, t := range req.Tables {
		results := ots.TableReadResults{Table: t.Table}
		for _, at := range plan.rows[i] {
			if at.err != nil {
				results.Rows = append(results.Rows, ots.RowReadResult{Err: at.err})
			} else {
				results.Rows = append(results.Rows, done.Tables[plan.place[i]].Rows[at.index])
			}
		}
		resp.Tables[i] = results
	}
	return resp, nil
}

// plan records which rows of a batch fail, and the positions of the others in the reduced
// batch.
type plan struct {
	rows    [][]rowPlan // by table entry
	place   []int       // position of a table entry in the reduced batch
	left    int
	failing bool
}

type rowPlan struct {
	err   *ots.Error // nil: performed
	index int        // position in the reduced table entry
}

func newPlan(tables int) *plan {
	return &plan{rows: make([][]rowPlan, tables), place: make([]int, tables)}
}

// decide records the next row of a table entry and reports whether it is performed.
func (p *plan) decide(table int, err *ots.Error) bool {
	if err != nil {
		p.failing = true
		p.rows[table] = append(p.rows[table], rowPlan{err: err})
		return false
	}
	index := 0
	for _, r := range p.rows[table] {
		if r.err == nil {
			index++
		}
	}
	p.rows[table] = append(p.rows[table], rowPlan{index: index})
	return true
}

// keep records that a table entry has rows to perform.
func (p *plan) keep(table int) {
	p.place[table] = p.left
	p.left++
}
