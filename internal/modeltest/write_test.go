package modeltest

// Operations that write.

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"

	"github.com/flagstone-db/flagstone"
)

// errRefused is what a read-modify-write returns that decides not to write.
var errRefused = errors.New("refused by the test")

// update changes one row without reading it.
func (m *machine) update() {
	t := m.anyTable()
	if t == nil {
		return
	}
	c := m.makeChange(t)
	m.doing = func() string { return "update " + c.String() }
	m.foresee(c)
	var err error
	m.atRisk(func() {
		err = m.tables[t].Update(m.ctx, c.row.key, func(_ context.Context, tx *flagstone.RowTx) error {
			c.on(&tx.RowChange)
			return nil
		})
	})
	m.wrote([]*change{c}, err, nil)
}

// updateAsync changes one row and does not wait for it to be durable.
func (m *machine) updateAsync() {
	t := m.anyTable()
	if t == nil {
		return
	}
	if len(m.pending) >= 8 {
		m.waitAll()
	}
	c := m.makeChange(t)
	m.doing = func() string { return "update, asynchronously, " + c.String() }
	m.foresee(c)
	commit, err := m.tables[t].UpdateAsync(m.ctx, c.row.key, func(_ context.Context, tx *flagstone.RowTx) error {
		c.on(&tx.RowChange)
		return nil
	})
	m.wrote([]*change{c}, err, commit)
	m.perhapsLosePower()
}

// perhapsLosePower loses power now and then while writes are under way, before
// the next write makes them durable.
func (m *machine) perhapsLosePower() {
	if m.within || len(m.pending) == 0 || m.rng.IntN(150) > 0 {
		return
	}
	if t := m.anyTable(); t != nil && m.rng.IntN(2) == 0 {
		m.get()
	}
	m.losePower()
}

// waitSome waits for one or all of the writes that are under way, in any order.
func (m *machine) waitSome() {
	switch {
	case len(m.pending) == 0:
	case m.rng.IntN(3) == 0:
		m.waitAll()
	default:
		m.wait(m.rng.IntN(len(m.pending)))
	}
}

// readModifyWrite reads a row while it is latched, checks what it reads, and
// writes, refuses, or does nothing.
func (m *machine) readModifyWrite() {
	t := m.anyTable()
	if t == nil {
		return
	}
	c := m.makeChange(t)
	outcome := m.rng.IntN(4) // 0: nothing, 1: refuse, else write
	async := m.rng.IntN(2) == 0
	opts := m.readOptions(c.row)
	m.doing = func() string {
		return fmt.Sprintf("read-modify-write, outcome %d, async %v, reading %s, %s", outcome, async, showOptions(&opts), c)
	}
	m.foresee(c)
	commit, err := m.tables[t].UpdateAsync(m.ctx, c.row.key, func(_ context.Context, tx *flagstone.RowTx) error {
		v := m.viewAt(t, m.model.last)
		exists, err := tx.Exists()
		if err != nil {
			return err
		}
		if want := c.row.answer(v).exists; exists != want {
			m.failRow(c.row, &v, nil, "RowTx.Exists is %v, want %v", exists, want)
		}
		m.checkGet(c.row, &v, opts, tx.Get)
		switch outcome {
		case 0:
			return nil
		case 1:
			return errRefused
		}
		c.on(&tx.RowChange)
		return nil
	})
	if outcome > 1 {
		m.wrote([]*change{c}, err, commit)
	} else if err != nil {
		m.fail("a read-modify-write that writes nothing: %v", err)
	} else {
		p := &pendingCommit{commit: commit, at: m.model.last}
		if outcome == 1 {
			p.want = errRefused
			m.seen["refused by a read"]++
		}
		m.pending = append(m.pending, p)
	}
	if !async && len(m.pending) > 0 && err == nil {
		m.wait(len(m.pending) - 1)
	}
	m.perhapsLosePower()
}

// batch changes several rows of several tables at once.
func (m *machine) batch() {
	batch := m.store.NewBatch()
	changes := []*change{}
	rows := map[*mrow]bool{}
	for range 1 + m.rng.IntN(6) {
		t := m.anyTable()
		if t == nil {
			return
		}
		c := m.makeChange(t)
		if rows[c.row] {
			continue
		}
		rows[c.row] = true
		m.foresee(c)
		changes = append(changes, c)
	}
	async := m.rng.IntN(4) == 0
	m.doing = func() string {
		parts := []string{fmt.Sprintf("batch, async %v", async)}
		for _, c := range changes {
			parts = append(parts, c.String())
		}
		return strings.Join(parts, "; ")
	}
	for _, c := range changes {
		// The calls come in two parts: asking for the row again continues it.
		rest := *c
		half := len(c.calls) / 2
		rest.calls = c.calls[:half]
		rest.on(batch.Row(m.tables[c.row.table], c.row.key))
		rest.calls = c.calls[half:]
		rest.on(batch.Row(m.tables[c.row.table], c.row.key))
	}
	if batch.Len() != len(changes) {
		m.fail("the batch has %d rows, want %d", batch.Len(), len(changes))
	}
	if async {
		commit, err := m.store.ApplyAsync(m.ctx, batch)
		m.wrote(changes, err, commit)
		return
	}
	var err error
	m.atRisk(func() { err = m.store.Apply(m.ctx, batch) })
	m.wrote(changes, err, nil)
}

// deleteAndLower deletes versions that are shown, and then lowers the limit:
// what was deleted under the larger limit counts on more versions below it than
// the smaller one shows.
func (m *machine) deleteAndLower() {
	t := m.anyTable()
	if t == nil || t.options.MaxVersions == 1 {
		return
	}
	for range 1 + m.rng.IntN(10) {
		c := &change{row: m.anyRow(t)}
		if name, version, ok := m.presentCell(c.row); ok {
			c.calls = []call{{kind: callDeleteVersion, column: name, version: version}}
			m.doing = func() string { return "before the limit is lowered: " + c.String() }
			m.foresee(c)
			err := m.tables[t].Update(m.ctx, c.row.key, func(_ context.Context, tx *flagstone.RowTx) error {
				c.on(&tx.RowChange)
				return nil
			})
			m.wrote([]*change{c}, err, nil)
		}
	}
	options := t.options
	options.MaxVersions = 1 + m.rng.Int64N(min(options.MaxVersions-1, 5))
	m.alterTo(t, options)
	if m.rng.IntN(2) == 0 {
		m.drain()
	}
}

// foresee folds a change and makes sure that the model can tell which trims its
// deletes of single versions need: uncertain versions of such a column are
// settled by a read; if that does not help, the whole column is deleted
// instead.
func (m *machine) foresee(c *change) {
	c.fold()
	if c.mutation.deleteRow {
		return
	}
	unclear := map[string]bool{}
	for _, col := range c.mutation.columns {
		if len(col.removed) > 0 && !m.trimIsClear(c.row, col.name) {
			unclear[col.name] = true
		}
	}
	if len(unclear) == 0 {
		return
	}
	m.waitAll()
	v := m.view(c.row.table)
	m.checkGet(c.row, &v, flagstone.ReadOptions{}, m.getter(c.row))
	changed := false
	for i := range c.calls {
		name := c.calls[i].column
		if c.calls[i].kind == callDeleteVersion && unclear[name] && !m.trimIsClear(c.row, name) {
			c.calls[i].kind = callDeleteColumn
			changed = true
		}
	}
	if changed {
		c.fold()
	}
}

func (m *machine) trimIsClear(r *mrow, name string) bool {
	shown := r.trimView(name, m.tables[r.table].Info().ExpiryWatermark)
	a := answer{columns: []columnAnswer{shown}}
	return a.exact()
}

// wrote checks how the engine took changes, all or none, and carries them out
// in the model. commit is that of an asynchronous write.
func (m *machine) wrote(changes []*change, err error, commit *flagstone.Commit) {
	now := m.store.NowMillis()
	var want error
	for _, c := range changes {
		if c.stamp(now); want == nil {
			want = c.refusal(firstRefused(now, c.row.table.options.MaxVersionOffsetSeconds))
		}
	}
	if m.after != nil && err != nil {
		if want == nil {
			m.carryOut(changes, now) // which may survive, or not
		}
		return
	}
	if m.excused(err) {
		if errors.Is(err, flagstone.ErrOutcomeUnknown) { // it is kept until there is space
			m.carryOut(changes, now)
			m.owed = true
		}
		return
	}
	if !sameError(err, want) {
		m.fail("got the error %v, want %v; NowMillis is %d", err, want, now)
	}
	if want != nil {
		m.seen["refused by the engine"]++
		return
	}
	m.carryOut(changes, now)
	if commit != nil {
		m.pending = append(m.pending, &pendingCommit{commit: commit, at: m.model.last})
	} else {
		m.acknowledged(m.model.last)
	}
}

// carryOut makes the changes in the model.
func (m *machine) carryOut(changes []*change, now int64) {
	for _, c := range changes {
		c.trim(m.tables[c.row.table].Info().ExpiryWatermark)
		for _, col := range c.mutation.columns {
			if col.trim != noTrim {
				m.seen["trims"]++
			}
		}
		m.forgetHistory(c.row)
	}
	m.model.issue(changes)
	m.recordChanges(changes, now)
	m.requests = append(m.requests, request{m.model.last, now})
	if len(m.requests) > 4096 {
		m.forgetRequests()
	}
}

// firstRefused is the first version that a write made now may not have.
func firstRefused(now, offsetSeconds int64) int64 {
	if offsetSeconds > (math.MaxInt64-now)/1000 {
		return math.MaxInt64
	}
	return now + 1000*offsetSeconds
}
