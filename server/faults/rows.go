package faults

import (
	"context"

	"github.com/flagstone-db/flagstone/ots"
)

// Rows is a service of which single rows of batches fail. Atomic batches, whose
// rows do not fare by themselves, are left alone.
func Rows(service ots.Service, in *Injector) ots.Service {
	return &rowService{Service: service, injector: in}
}

type rowService struct {
	ots.Service
	injector *Injector
}

// row decides about a row of a batch.
func (s *rowService) row(operation, instance, table string) *ots.Error {
	return s.injector.next(operation, instance, []string{table}, true).Err
}

// BatchWriteRow leaves out the rows that are to fail.
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

// BatchGetRow leaves out the rows that are to fail.
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

// plan remembers which rows of a batch fail, and where the others are in the
// batch without them.
type plan struct {
	rows    [][]rowPlan // by table entry
	place   []int       // of a table entry among those that are left
	left    int
	failing bool
}

type rowPlan struct {
	err   *ots.Error // nil: carried out
	index int        // among the rows of its entry that are left
}

func newPlan(tables int) *plan {
	return &plan{rows: make([][]rowPlan, tables), place: make([]int, tables)}
}

// decide notes the next row of a table entry and reports whether it is carried
// out.
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

// keep notes that rows of a table entry are left.
func (p *plan) keep(table int) {
	p.place[table] = p.left
	p.left++
}
