package modeltest

// Restarts: clean ones, killed processes, and power cuts, also in the middle of
// an operation and during recovery. After each, what the store holds must be
// what some prefix of the requests made, and the prefix must contain all that
// was acknowledged or seen.

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// forgetRequests lets go of requests that are sure to survive.
func (m *machine) forgetRequests() {
	n := 0
	for n < len(m.requests) && m.requests[n].last <= m.kept {
		m.issued = max(m.issued, m.requests[n].millis)
		n++
	}
	m.requests = slices.Delete(m.requests, 0, n)
}

// reopen closes the store and opens it again; perhaps read-only in between.
func (m *machine) reopen() {
	readOnly := m.rng.IntN(3) == 0
	wait := m.rng.IntN(2) == 0
	m.doing = func() string { return fmt.Sprintf("reopen, after waiting %v, read-only in between %v", wait, readOnly) }
	m.releaseMoments()
	if wait {
		m.waitAll()
	}
	if err := m.store.Close(); err != nil {
		m.fail("close: %v", err)
	}
	m.durable()
	for _, p := range m.pending {
		if err := p.commit.Wait(m.ctx); !sameError(err, p.want) && !errors.Is(err, flagstone.ErrClosed) {
			m.fail("Wait after Close: %v", err)
		}
	}
	m.pending = nil
	m.checkNothingOpen()
	m.mistakeTime()
	if readOnly {
		m.visitReadOnly()
	}
	m.mustOpen()
	m.reattach()
	m.forgetRequests()
	m.checkIssued()
	m.compareAll()
}

func (m *machine) checkIssued() {
	if now := m.store.NowMillis(); now < m.issued {
		m.fail("NowMillis went back over a restart: it is %d, and a write that is there had %d", now, m.issued)
	}
}

// visitReadOnly opens the store without the right to write, and compares.
func (m *machine) visitReadOnly() {
	options := m.storeOptions(executortest.NewManual())
	options.ReadOnly = true
	var err error
	if m.store, err = flagstone.Open(storeDir, options); err != nil {
		m.fail("open read-only: %v", err)
	}
	m.reattach()
	m.compareAll()
	if t := m.anyTable(); t != nil {
		c := m.makeChange(t)
		err := m.tables[t].Update(m.ctx, c.row.key, func(_ context.Context, tx *flagstone.RowTx) error {
			c.on(&tx.RowChange)
			return nil
		})
		if !errors.Is(err, flagstone.ErrReadOnly) {
			m.fail("a write to a store that is open read-only: %v", err)
		}
	}
	if err := m.store.Close(); err != nil {
		m.fail("close: %v", err)
	}
	m.checkNothingOpen()
}

// losePower ends the process between two operations, by a power cut or a kill.
func (m *machine) losePower() {
	if m.rng.IntN(4) == 0 {
		m.doing = func() string { return "kill the process" }
		m.recoverFrom(m.disk.Kill())
		return
	}
	policy, seed := m.anyPolicy(), m.rng.Uint64()
	m.doing = func() string { return fmt.Sprintf("lose power, %s, seed %d", policy, seed) }
	m.recoverFrom(m.disk.Crash(policy, seed))
}

func (m *machine) anyPolicy() vfs.CrashPolicy {
	policies := vfs.CrashPolicies()
	return policies[m.rng.IntN(len(policies))]
}

// atRisk does something during which the power may fail, or calls to the disk, by which the
// store may be poisoned: then m.after is what is left on the disk.
func (m *machine) atRisk(do func()) {
	n := m.rng.IntN(150)
	if m.within || n > 3 {
		do()
		return
	}
	if n > 0 {
		m.faulty(m.anyFault(), do)
		return
	}
	m.after = m.failing(m.rng.IntN(30), do)
	if m.after != nil {
		m.seen["power cuts within an operation"]++
	}
}

// failing does something and cuts the power before a call that changes the
// disk, after so many others; nil if there were not as many.
func (m *machine) failing(calls int, do func()) (after *vfs.Sim) {
	policy, seed := m.anyPolicy(), m.rng.Uint64()
	before, made := m.doing, 0
	m.doing = func() string {
		return fmt.Sprintf("%s, losing power (%s, seed %d) after %d calls", before(), policy, seed, calls)
	}
	m.faults.Observe(vfs.Observer{Before: func(c vfs.Call) {
		// An error of the copy of the manifest is not one of the operation, which then would go on with a disk that is gone.
		if after == nil && c.Op&vfs.OpMutating != 0 && !strings.Contains(c.Name, "COPY-") {
			if made++; made > calls {
				after = m.disk.Crash(policy, seed)
			}
		}
	}})
	do()
	m.faults.Observe(vfs.Observer{})
	return after
}

// recoverFrom goes on with what is left on the disk.
func (m *machine) recoverFrom(after *vfs.Sim) {
	m.after = nil
	m.visible() // what was seen must survive
	dead := m.store
	for _, p := range m.pending {
		if err := p.commit.Wait(m.ctx); sameError(err, p.want) {
			m.acknowledged(p.at) // so it says
		}
	}
	m.pending = nil
	if m.helpers != nil && len(m.helpers.lent) > 0 {
		m.seen["pieces that were lent over a power cut"] += len(m.helpers.lent)
		m.helpers.sometime()
	}
	m.releaseMoments()
	dead.Close() // only memory is let go: its files are gone
	m.mistakeTime()
	for after != nil {
		m.disk = after
		after = m.openAfterCrash()
	}
	m.reattach()
	m.findSurvivors()
	m.compareAll()
}

// openAfterCrash opens the store: nil, or what is on the disk when that came to nothing, for
// lack of power or for errors of the disk.
func (m *machine) openAfterCrash() (after *vfs.Sim) {
	m.hurt = false
	switch m.rng.IntN(6) {
	case 0, 1:
		if after = m.openFailing(m.rng.IntN(40)); after != nil {
			m.seen["power cuts within recovery"]++
		}
	case 2:
		after = m.openFaulty()
	default:
		if err := m.open(); err != nil {
			m.fail("open after a crash: %v", err)
		}
	}
	return after
}

// openFailing opens the store and cuts the power meanwhile, or comes out with
// an open store.
func (m *machine) openFailing(calls int) *vfs.Sim {
	m.faults = vfs.NewFault(m.disk, m.seed)
	m.exec = executortest.NewManual()
	var store *flagstone.Store
	var err error
	after := m.failing(calls, func() { store, err = flagstone.Open(storeDir, m.storeOptions(m.exec)) })
	switch {
	case after != nil && err == nil:
		store.Close() // it did not notice
	case after == nil && err != nil:
		m.fail("open after a crash: %v", err)
	}
	m.store = store
	return after
}

// findSurvivors finds out which requests the store still knows, and takes back
// the others in the model.
func (m *machine) findSurvivors() {
	points := []uint64{m.kept}
	for _, r := range m.requests {
		if r.last > m.kept {
			points = append(points, r.last)
		}
	}
	possible := make([]bool, len(points))
	for i := range possible {
		possible[i] = true
	}
	for _, t := range m.model.tables {
		if t != nil {
			m.narrowSurvivors(t, points, possible)
		}
	}
	at := m.store.Metrics().VisibleSequence
	first, last := -1, -1
	for i, ok := range possible {
		if ok && points[i] <= at {
			if first < 0 {
				first = i
			}
			last = i
		}
	}
	if m.cfg.options.Sync == flagstone.SyncAlways {
		// The store knows exactly where it stands.
		first = slices.Index(points, at)
		last = first
	}
	if first < 0 || !possible[first] {
		m.fail("mutation %d is the last that is there; what is there is explained by %v of %v", at, possible, points)
	}
	m.seen["requests lost in crashes"] += len(points) - 1 - last
	unsure := m.rowsChanged(points[first], points[last])
	m.model.cut(points[last])
	m.cutStreams(points[first], points[last])
	m.requests = slices.DeleteFunc(m.requests, func(r request) bool { return r.last > points[last] })
	m.kept, m.model.last = points[last], at
	m.forgetRequests()
	m.checkIssued()
	m.kept = at
	m.wipe(unsure)
	if len(unsure) > 0 && m.cfg.options.Sync == flagstone.SyncNone {
		// Or the next crash brings back a past of which only one of several is in the model.
		if err := m.store.Flush(m.ctx); err != nil {
			m.fail("flush after a crash: %v", err)
		}
		m.durable()
	}
}

// narrowSurvivors compares a table with what each possible prefix makes of it.
func (m *machine) narrowSurvivors(t *mtable, points []uint64, possible []bool) {
	got := make([]*flagstone.Row, len(t.rows))
	rows := m.tables[t].Scan(m.ctx, nil, nil, flagstone.ScanOptions{})
	defer rows.Close()
	for rows.Next() {
		i, found := t.find(rows.Row().Key())
		if !found {
			m.fail("after a crash: row %s was never written", showKey(rows.Row().Key()))
		}
		got[i] = rows.Row().Clone()
	}
	if err := rows.Err(); err != nil {
		m.fail("scan after a crash: %v", err)
	}
	v := m.viewAt(t, 0)
	for i, r := range t.rows {
		remaining := slices.Clone(possible)
		var err error
		for p := range points {
			same := p > 0 && !r.changedBetween(points[p-1], points[p])
			if !same {
				v.at = points[p]
				a := r.answer(v)
				_, err = a.explain(got[i].Exists(), got[i].Cells())
			}
			possible[p] = possible[p] && err == nil
		}
		if !slices.Contains(possible, true) {
			m.failRow(r, &v, got[i], "after a crash: no prefix of the requests explains what is there; "+
				"mutations up to %d must be there; before this row it could have been %v of %v", m.kept, remaining, points)
		}
	}
}

// changedBetween reports whether the row has a mutation above after, up to at.
func (r *mrow) changedBetween(after, at uint64) bool {
	return slices.ContainsFunc(r.since, func(mu *mutation) bool { return mu.at > after && mu.at <= at })
}

func (m *machine) rowsChanged(after, at uint64) (rows []*mrow) {
	for _, t := range m.model.tables {
		if t == nil {
			continue
		}
		for _, r := range t.rows {
			if r.changedBetween(after, at) {
				rows = append(rows, r)
			}
		}
	}
	return rows
}

// wipe deletes rows of which the present can be told but not the hidden past:
// several prefixes look the same.
func (m *machine) wipe(rows []*mrow) {
	for _, r := range rows {
		c := &change{row: r, calls: []call{{kind: callDeleteRow}}}
		c.fold()
		err := m.tables[r.table].Update(m.ctx, r.key, func(_ context.Context, tx *flagstone.RowTx) error {
			c.on(&tx.RowChange)
			return nil
		})
		m.wrote([]*change{c}, err, nil)
	}
}
