package modeltest

// This file holds the steps that write: single rows, batches, transactions.

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// columns are the columns that the steps write; absent is never written.
var (
	columns = []string{"c", "d", "n", "s"}
	absent  = "zz"
)

// big is a value too large for its row's block.
var big = strings.Repeat("a value that is compressed ", 1000)

func (m *machine) value() row.Value {
	switch n := m.random.IntN(200); {
	case n < 150:
		return row.Integer(int64(m.random.IntN(10)))
	case n < 152:
		return row.Integer(math.MaxInt64 - int64(m.random.IntN(3)))
	case n < 153:
		return row.String(big)
	}
	return row.String(pick(m, "", "x", "y", "zzz"))
}

// version returns a version near the clock, often one used before, sometimes one that is not
// allowed.
func (m *machine) version() int64 {
	const grid = 500
	return (m.now/grid + int64(m.random.IntN(40)-24)) * grid
}

// change makes a random, well-formed change of a row.
func (m *machine) change(key id) ots.RowChange {
	c := ots.RowChange{Row: ots.Row{Key: key.encode()}}
	switch n := m.random.IntN(20); {
	case n < 2:
		c.Type = ots.ChangeDelete
		c.Row.DeleteMarker = true
	case n < 6:
		c.Type = ots.ChangePut
		for range m.random.IntN(4) {
			c.Row.Cells = append(c.Row.Cells, m.put())
		}
	default:
		c.Type = ots.ChangeUpdate
		m.fillUpdate(&c)
	}
	if m.chance(4) {
		c.Existence = pick(m, ots.ExistenceExpect, ots.ExistenceExpectNot)
	}
	if m.chance(4) {
		c.ColumnCondition = m.filter(1)
	}
	return c
}

func (m *machine) put() ots.Cell {
	cell := ots.Cell{Name: pick(m, columns...), Value: m.value()}
	if m.chance(2) {
		cell.Version, cell.HasVersion = m.version(), true
	}
	return cell
}

func (m *machine) fillUpdate(c *ots.RowChange) {
	for range 1 + m.random.IntN(3) {
		switch m.random.IntN(8) {
		case 0:
			c.Row.Cells = append(c.Row.Cells, ots.Cell{Name: pick(m, columns...), Op: ots.OpDeleteAllVersion})
		case 1, 2:
			c.Row.Cells = append(c.Row.Cells, ots.Cell{Name: pick(m, columns...), Op: ots.OpDeleteOneVersion, Version: m.version(), HasVersion: true})
		default:
			c.Row.Cells = append(c.Row.Cells, m.put())
		}
	}
	name := pick(m, "n", "n", "n", "c")
	taken := slices.ContainsFunc(c.Row.Cells, func(cell ots.Cell) bool { return cell.Name == name })
	if m.chance(3) && !taken {
		c.Row.Cells = append(c.Row.Cells, ots.Cell{Name: name, Op: ots.OpIncrement, Value: row.Integer(int64(m.random.IntN(7) - 3))})
		c.Return, c.ReturnColumns = ots.ReturnAfterModify, []string{name}
	}
}

// describe formats a change.
func describe(c *ots.RowChange) string {
	s := fmt.Sprintf("%v %v expect %d", c.Type, keyOf(c.Row.Key), c.Existence)
	for _, cell := range c.Row.Cells {
		v := cell.Value.String()
		s += fmt.Sprintf(" [%s op %d %s", cell.Name, cell.Op, v[:min(len(v), 20)])
		if cell.HasVersion {
			s += fmt.Sprintf("@%d", cell.Version)
		}
		s += "]"
	}
	if c.ColumnCondition != nil {
		s += fmt.Sprintf(" if %+v", *c.ColumnCondition)
	}
	return s
}

// target returns where a request goes: usually to the open transaction of the partition key, if
// any.
func (m *machine) target(p string) (tx *string, rows lines) {
	if t := m.open[p]; t != nil && !m.chance(4) {
		return &t.id, t.rows
	}
	return nil, m.rows
}

// codeFor is the error code that the model expects for a write, "" for none.
func (m *machine) codeFor(tx *string, rows lines, key id, c *ots.RowChange) string {
	if tx == nil && m.open[key.p] != nil {
		return ots.CodeRowOperationConflict
	}
	if code := rows.errorOf(&m.settings, key, c); code != "" {
		return code
	}
	if rows.beyond(&m.settings, key, c) {
		return ots.CodeParameterInvalid
	}
	return ""
}

// applied applies a successful change to the model, and checks the content of the answer.
func (m *machine) applied(tx *string, rows lines, key id, c *ots.RowChange, answer *ots.Row) {
	sums := rows.apply(&m.settings, key, c)
	m.remember(tx, key, c, sums)
	if c.Return != ots.ReturnAfterModify {
		return
	}
	if answer == nil || len(answer.Cells) != len(sums) {
		m.fail("the answer to an increment is %s; the model says %v", shown(answer), sums)
	}
	for _, cell := range answer.Cells {
		if sums[cell.Name] != (sum{cell.Value.Int64(), cell.Version}) {
			m.fail("the answer to an increment is %s; the model says %v", shown(answer), sums)
		}
	}
}

func (m *machine) write() {
	key := m.key()
	tx, rows := m.target(key.p)
	c := m.change(key)
	m.note("in transaction %v: %s", tx != nil, describe(&c))
	want := m.codeFor(tx, rows, key, &c)
	r, err := m.WriteRow(context.Background(), instance, &ots.WriteRowRequest{Table: tableName, Change: c, TransactionID: tx})
	m.expect("write", err, want)
	if err == nil {
		m.applied(tx, rows, key, &c, r.Row)
	}
	m.getRow(tx, rows, key, everything())
}

// changes makes changes of different rows, all with partition key p if it is given.
func (m *machine) changes(p *string) (keys []id, changes []ots.RowChange) {
	for range 1 + m.random.IntN(4) {
		key := m.key()
		if p != nil {
			key.p = *p
		}
		if !slices.Contains(keys, key) {
			keys, changes = append(keys, key), append(changes, m.change(key))
			m.note("of a batch: %s", describe(&changes[len(changes)-1]))
		}
	}
	return keys, changes
}

// batch writes rows that succeed or fail by themselves.
func (m *machine) batch() {
	var only *string
	var tx *string
	rows := m.rows
	if m.chance(2) {
		only = ptr(pick(m, partitions...))
		tx, rows = m.target(*only)
	}
	keys, changes := m.changes(only)
	var wants []string
	for i := range changes {
		wants = append(wants, m.codeFor(tx, rows, keys[i], &changes[i]))
	}
	results := m.sendBatch(false, tx, changes)
	for i := range results {
		m.expect("row of a batch", asError(results[i].Err), wants[i])
		if wants[i] == "" {
			m.applied(tx, rows, keys[i], &changes[i], results[i].Row)
		}
	}
	for _, key := range keys {
		m.getRow(tx, rows, key, everything())
	}
}

// atomicBatch writes rows together: they all fail with the error of the first that fails.
func (m *machine) atomicBatch() {
	p := pick(m, partitions...)
	tx, rows := m.target(p)
	keys, changes := m.changes(&p)
	want := ""
	if tx == nil && m.open[p] != nil {
		want = ots.CodeRowOperationConflict
	}
	for i := range changes {
		if want == "" {
			want = rows.errorOf(&m.settings, keys[i], &changes[i])
		}
	}
	for i := range changes {
		if want == "" && rows.beyond(&m.settings, keys[i], &changes[i]) {
			want = ots.CodeParameterInvalid
		}
	}
	results := m.sendBatch(true, tx, changes)
	for i := range results {
		m.expect("row of an atomic batch", asError(results[i].Err), want)
		if want == "" {
			m.applied(tx, rows, keys[i], &changes[i], results[i].Row)
		}
	}
	for _, key := range keys {
		m.getRow(tx, rows, key, everything())
	}
}

func asError(e *ots.Error) error {
	if e == nil {
		return nil
	}
	return e
}

func (m *machine) sendBatch(atomic bool, tx *string, changes []ots.RowChange) []ots.RowWriteResult {
	r, err := m.BatchWriteRow(context.Background(), instance, &ots.BatchWriteRowRequest{
		Atomic: atomic, TransactionID: tx, Tables: []ots.TableChanges{{Table: tableName, Changes: changes}},
	})
	if err != nil || len(r.Tables) != 1 || len(r.Tables[0].Rows) != len(changes) {
		m.fail("batch: %+v, %v", r, err)
	}
	return r.Tables[0].Rows
}

// begin starts a transaction.
func (m *machine) begin() {
	p := pick(m, partitions...)
	m.note("begin %q", p)
	want := ""
	if m.open[p] != nil {
		want = ots.CodeRowOperationConflict
	}
	name, err := m.StartLocalTransaction(context.Background(), instance, &ots.StartTransactionRequest{
		Table: tableName, Row: ots.Row{Key: []ots.KeyValue{{Name: "p", Value: row.String(p)}}},
	})
	m.expect("start", err, want)
	if err == nil {
		m.open[p] = &transaction{id: name, rows: m.rows.clone(p), deadline: m.clock.Elapsed() + lifetime}
	}
}

// end commits or aborts a transaction.
func (m *machine) end() {
	p := pick(m, partitions...)
	if m.open[p] == nil {
		return
	}
	m.finish(p)
}

func (m *machine) finish(p string) {
	tx := m.open[p]
	delete(m.open, p)
	if m.chance(3) {
		m.note("abort %q", p)
		m.expect("abort", m.AbortTransaction(context.Background(), instance, tx.id), "")
	} else {
		m.note("commit %q", p)
		m.expect("commit", m.CommitTransaction(context.Background(), instance, tx.id), "")
		m.rows.replace(p, tx.rows)
	}
	for _, k := range numbers {
		m.getRow(nil, m.rows, id{p, k}, everything())
	}
}

// misuse names transactions that do not exist, or that do not cover the row.
func (m *machine) misuse() {
	name, want := strings.Repeat("0", 32), ots.CodeSessionNotExist
	key := m.key()
	for p, tx := range m.open {
		if p != key.p {
			name, want = tx.id, ots.CodeDataOutOfRange
		}
	}
	m.note("misuse of a transaction at %v", key)
	c := m.change(key)
	_, err := m.WriteRow(context.Background(), instance, &ots.WriteRowRequest{Table: tableName, Change: c, TransactionID: &name})
	m.expect("write in a transaction that is not its own", err, want)
	sel := everything()
	sel.TransactionID = &name
	_, err = m.GetRow(context.Background(), instance, &ots.GetRowRequest{Table: tableName, Row: ots.Row{Key: key.encode()}, Selection: sel})
	m.expect("read in a transaction that is not its own", err, want)
}
