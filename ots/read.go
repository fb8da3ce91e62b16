package ots

// This file reads single rows: GetRow and BatchGetRow, and the column selection that GetRange
// shares with them (PROTOCOL section 5).

import (
	"context"
	"slices"
	"sync/atomic"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const (
	versionMissing      = "No version condition is specified."
	versionMissingBatch = "No version condition is specified while querying row."
)

// projection is a checked selection on one table.
type projection struct {
	table   *table
	session *session // the transaction that the read is part of, or nil
	options flagstone.ReadOptions
	// cellsOnly: the request names only attributes, so a row without any of them is not
	// returned.
	cellsOnly bool
	// keyColumns[i] reports whether columns_to_get names key column i; nil if it names nothing.
	keyColumns []bool
	filter     *predicate // nil: none
}

// on resolves the names of a selection against a table's key.
func (r reading) on(t *table, s *session) projection {
	p := projection{table: t, session: s, options: r.options, filter: r.filter}
	if p.filter != nil {
		p.filter.bind(t.key)
	}
	if r.columns != nil {
		p.cellsOnly = true
		p.keyColumns = make([]bool, len(t.key))
		p.options.Columns = make([]string, 0, len(r.columns)) // empty means no columns, nil all
		for _, name := range r.columns {
			i := slices.IndexFunc(t.key, func(k flagstone.KeyColumn) bool { return k.Name == name })
			if i < 0 {
				p.options.Columns = append(p.options.Columns, name)
				continue
			}
			p.keyColumns[i] = true
			p.cellsOnly = false
		}
	}
	if o := &p.options; o.EndColumn != "" && o.StartColumn >= o.EndColumn {
		o.Columns, o.StartColumn, o.EndColumn = []string{}, "", "" // an empty range of names selects nothing
	}
	return p
}

// size is the size of a row in bytes, as reads are charged: its key and its selected cells.
func (p *projection) size(r *flagstone.Row) int64 {
	var size int64
	for i, v := range r.Key() {
		size += int64(len(p.table.key[i].Name) + v.Size())
	}
	for _, c := range r.Cells() {
		size += int64(len(c.Column) + len(c.Value))
	}
	return size
}

// selects reports whether an existing row belongs into the answer, and which of its cells. The
// filter sees the selected cells only.
func (p *projection) selects(ctx context.Context, r *flagstone.Row) (_ []row.Cell, ok bool, err error) {
	cells := r.Cells()
	switch {
	case p.cellsOnly && len(cells) == 0:
		return nil, false, nil
	case p.filter == nil:
		return cells, true, nil
	case p.filter.filter.Type == FilterPagination:
		return p.filter.filter.page(cells), true, nil
	}
	ok, err = p.filter.judge(ctx, r)
	return cells, ok, err
}

// convert makes the cells of an answer. Their values share memory with the selected ones.
func convert(selected []row.Cell, names interner) ([]Cell, error) {
	if len(selected) == 0 {
		return nil, nil
	}
	cells := make([]Cell, len(selected))
	for i := range selected {
		c := &selected[i]
		v, err := row.PayloadValue(c.Type, c.Value)
		if err != nil {
			return nil, err
		}
		cells[i] = Cell{Value: v, Version: c.Version, HasVersion: true}
		if i > 0 && cells[i-1].Name == string(c.Column) {
			cells[i].Name = cells[i-1].Name
		} else {
			cells[i].Name = names.name(c.Column)
		}
	}
	return cells, nil
}

// interner makes strings of column names, one string per name: the rows of an answer mostly
// have the same columns. A nil interner remembers nothing, which suits a single row.
type interner map[string]string

// maxInterned bounds an interner, for tables where every row has columns of its own.
const maxInterned = 1024

func (n interner) name(column []byte) string {
	if s, ok := n[string(column)]; ok {
		return s
	}
	s := string(column)
	if n != nil && len(n) < maxInterned {
		n[s] = s
	}
	return s
}

// checkReadRow checks the row of a read request: a key and nothing else.
func (l *Limits) checkReadRow(r *Row) *Error {
	if r.DeleteMarker {
		return invalid("Delete marker cannot be given.")
	}
	if len(r.Cells) > 0 {
		return invalid("Attribute column cannot be given while reading data.")
	}
	return l.checkKey(r.Key, keyOfRead)
}

// GetRow reads one row (PROTOCOL 5).
func (e *Engine) GetRow(ctx context.Context, instance string, req *GetRowRequest) (*ReadResult, error) {
	if err := e.limits.checkTableName(req.Table); err != nil {
		return nil, err
	}
	if err := e.limits.checkReadRow(&req.Row); err != nil {
		return nil, err
	}
	sel, bad := e.limits.checkSelection(&req.Selection, versionMissing)
	if bad != nil {
		return nil, bad
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
	if err := takeTurn(ctx, 1, sel.filter); err != nil {
		return nil, err
	}
	p := sel.on(t, s)
	result, bad := e.readRow(ctx, &p, &req.Row, nil)
	if bad != nil {
		return nil, bad
	}
	return &result, nil
}

// readRow reads one row, whose key values were checked, and charges the cost.
func (e *Engine) readRow(ctx context.Context, p *projection, key *Row, names interner) (ReadResult, *Error) {
	if err := matchKey(p.table.key, key.Key); err != nil {
		return ReadResult{}, err
	}
	if err := p.session.covers(p.table, key.Key); err != nil {
		return ReadResult{}, err
	}
	if err := e.admit(p.table, key.Key[0].Value, reads); err != nil {
		return ReadResult{}, err
	}
	result, err := e.findRow(ctx, p, key, names)
	e.chargeRow(p.table, key.Key[0].Value, result.Consumed)
	return result, err
}

func (e *Engine) findRow(ctx context.Context, p *projection, key *Row, names interner) (ReadResult, *Error) {
	found, err := p.get(ctx, &e.limits, key)
	if err != nil {
		return ReadResult{}, e.asError(err, "get row", p.table.name, false)
	}
	if !found.Exists() {
		return ReadResult{Consumed: readCost(0)}, nil
	}
	size := p.size(found)
	selected, ok, err := p.selects(ctx, found)
	if !ok {
		RoomOf(ctx).Give(answerCopies * cellsMemory(found.Cells()))
	}
	var cells []Cell
	if ok {
		cells, err = convert(selected, names)
	}
	switch {
	case err != nil:
		return ReadResult{}, e.asError(err, "get row", p.table.name, false)
	case !ok && p.filter != nil:
		return ReadResult{Consumed: readCost(0)}, nil
	case !ok:
		return ReadResult{Consumed: readCost(size)}, nil
	}
	return ReadResult{
		Row: &Row{Key: nameKey(p.table.key, found.Key()), Cells: cells}, Consumed: readCost(size),
	}, nil
}

// BatchGetRow reads rows of several tables (PROTOCOL 5.7). It reads the rows of a table in
// parallel, since each may wait for the disk. An error that does not depend on the tables
// refuses the whole request; other errors refuse single rows.
func (e *Engine) BatchGetRow(ctx context.Context, instance string, req *BatchGetRowRequest) (*BatchGetRowResponse, error) {
	selections, bad := e.limits.checkBatchGet(req)
	if bad != nil {
		return nil, bad
	}
	rows := 0
	for i := range req.Tables {
		rows += len(req.Tables[i].Rows)
	}
	for i := range selections {
		if err := takeTurn(ctx, rows, selections[i].filter); err != nil {
			return nil, err
		}
	}
	var size atomic.Int64
	resp := &BatchGetRowResponse{Tables: make([]TableReadResults, len(req.Tables))}
	for i := range req.Tables {
		gets := &req.Tables[i]
		results := make([]RowReadResult, len(gets.Rows))
		resp.Tables[i] = TableReadResults{Table: gets.Table, Rows: results}
		t, bad := e.table(instance, gets.Table)
		if bad != nil {
			for j := range results {
				results[j].Err = bad
			}
			continue
		}
		p := selections[i].on(t, nil)
		inParallel(len(gets.Rows), p.filter.costly(), func() func(int) {
			names := interner{}
			return func(j int) {
				if size.Load() > e.limits.BatchGetBytes {
					results[j].Err = &Error{Code: CodeServerBusy, Message: "Server is busy."}
					return
				}
				results[j].ReadResult, results[j].Err = e.readRow(ctx, &p, &gets.Rows[j], names)
				size.Add(results[j].size())
			}
		})
	}
	return resp, nil
}

// checkBatchGet checks a batch and returns the selection of each table entry.
func (l *Limits) checkBatchGet(req *BatchGetRowRequest) ([]reading, *Error) {
	rows := 0
	for i := range req.Tables {
		rows += len(req.Tables[i].Rows)
	}
	if rows == 0 {
		return nil, invalid("No row specified in the request of BatchGetRow.")
	}
	// Entries without rows are allowed; each costs a selection.
	if rows > l.BatchGetRows || len(req.Tables) > l.BatchGetRows {
		return nil, TooManyRows(l.BatchGetRows)
	}
	filters := newCompiled()
	selections := make([]reading, len(req.Tables))
	for i := range req.Tables {
		gets := &req.Tables[i]
		if err := l.checkTableName(gets.Table); err != nil {
			return nil, err
		}
		known, filter := filters.copyOf(gets.Filter), gets.Filter
		if known != nil {
			filter = nil
		}
		selection := gets.Selection
		selection.Filter = filter
		sel, err := l.checkSelection(&selection, versionMissingBatch)
		if err != nil {
			return nil, err
		}
		if known != nil {
			sel.filter = known
		}
		if err := filters.keep(gets.Filter, sel.filter); err != nil {
			return nil, err
		}
		selections[i] = sel
		for j := range gets.Rows {
			if err := l.checkReadRow(&gets.Rows[j]); err != nil {
				return nil, err
			}
		}
	}
	return selections, nil
}

// size is about the size of a row in an answer, in bytes.
func (r *RowReadResult) size() (size int64) {
	if r.Row == nil {
		return 0
	}
	for i := range r.Row.Cells {
		c := &r.Row.Cells[i]
		size += int64(len(c.Name) + c.Value.Size())
	}
	return size
}
