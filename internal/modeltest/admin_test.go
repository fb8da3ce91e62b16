package modeltest

// Operations on the store as a whole: background jobs, options, tables,
// checkpoints.

import (
	"context"
	"errors"
	"fmt"
	"path"
	"slices"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// step runs a random background job.
func (m *machine) step() {
	pending := m.exec.Pending()
	if len(pending) == 0 {
		return
	}
	i := m.rng.IntN(len(pending))
	if m.rng.IntN(2) == 0 {
		i = 0
	}
	job := pending[i]
	m.doing = func() string { return "background job: " + job.Name }
	before := m.store.Metrics()
	if m.rng.IntN(4) == 0 {
		m.meanwhile(func() { m.exec.Step(i) })
	} else {
		m.atRisk(func() { m.exec.Step(i) })
	}
	if m.after == nil {
		m.observeShape(before, job)
	}
}

// meanwhile does something, a merge perhaps, and has a few other operations
// done in the middle of it: when it comes to write a table file. Table files
// are written without any lock that these operations need. A removal does not
// count: that of a file which a helper still reads comes when that is done.
func (m *machine) meanwhile(do func()) {
	others := []func(*machine){
		(*machine).alter, (*machine).openSnapshot, (*machine).closeSnapshot, (*machine).get, (*machine).getHeld,
		(*machine).beginLongScan, (*machine).stepLongScan, (*machine).advanceClock,
	}
	if m.cfg.options.MemoryBudget == 0 && m.filesInLevel0() < 8 {
		// There is room, so that a write will not wait for the job that waits
		// for it.
		others = append(others, (*machine).update, (*machine).update, (*machine).updateAsync, (*machine).readModifyWrite)
	}
	calls, doing := m.rng.IntN(8), m.doing
	m.faults.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if m.within || c.Op&(vfs.OpMutating&^vfs.OpRemove) == 0 || path.Ext(c.Name) != ".sst" {
			return
		}
		if calls--; calls >= 0 {
			return
		}
		m.within = true
		m.faults.Observe(vfs.Observer{})
		for range 1 + m.rng.IntN(3) {
			m.model.events++
			m.helpers.sometime()
			others[m.rng.IntN(len(others))](m)
			m.seen["operations within background jobs"]++
		}
		m.within = false
	}})
	do()
	m.faults.Observe(vfs.Observer{})
	m.doing = doing
}

func (m *machine) filesInLevel0() (most int) {
	for _, t := range m.store.Metrics().Tables {
		most = max(most, t.Files[0])
	}
	return most
}

// observeShape notes what a background job did to the shape of the trees.
func (m *machine) observeShape(before flagstone.Metrics, job executortest.JobInfo) {
	after := m.store.Metrics()
	for i := range after.Tables {
		levels := 0
		for level, n := range after.Tables[i].Files {
			if n > 0 {
				levels++
				m.seen[fmt.Sprint("level ", level)]++
			}
		}
		m.seen["most levels"] = max(m.seen["most levels"], levels)
		if after.Tables[i].ValueFiles > 0 {
			m.seen["value files"]++
		}
		if after.Tables[i].ValueGarbage > 0 {
			m.seen["garbage in value files"]++
		}
		if i < len(before.Tables) && after.Tables[i].ValueFiles < before.Tables[i].ValueFiles {
			m.seen["value files gone"]++
		}
		if i < len(before.Tables) && !slices.Equal(after.Tables[i].Files, before.Tables[i].Files) {
			m.seen[job.Class.String()+"s that changed files"]++
		}
	}
}

// drain runs background jobs until none is left.
func (m *machine) drain() { m.exec.RunAll() }

func (m *machine) flush() {
	var err error
	m.atRisk(func() { err = m.store.Flush(m.ctx) })
	m.wholeStoreDone("flush", err)
}

func (m *machine) compact() {
	var err error
	m.atRisk(func() { err = m.store.Compact(m.ctx) })
	m.wholeStoreDone("compact", err)
}

// compactRange merges what lies between two keys, or beyond one, of one table.
func (m *machine) compactRange() {
	slot := m.rng.IntN(len(m.model.tables))
	table := m.model.tables[slot]
	if table == nil {
		return
	}
	bound := func() []row.Value {
		if m.rng.IntN(4) == 0 {
			return nil
		}
		return m.keys[slot][m.rng.IntN(len(m.keys[slot]))]
	}
	start, end := bound(), bound()
	var err error
	m.atRisk(func() { err = m.tables[table].Compact(m.ctx, start, end) })
	m.wholeStoreDone("compact a range", err)
}

// settle lets the store rest: what waits until nobody writes is done. It makes
// nothing durable.
func (m *machine) settle() {
	var err error
	m.atRisk(func() { err = m.store.Settle(m.ctx) })
	if err != nil && m.after == nil && !m.excused(err) {
		m.fail("settle: %v", err)
	}
}

// wholeStoreDone notes that everything is durable after an operation on the
// whole store, unless the power failed.
func (m *machine) wholeStoreDone(what string, err error) {
	if err != nil && (m.after != nil || m.excused(err)) {
		return
	}
	if err != nil {
		m.fail("%s: %v", what, err)
	}
	m.durable()
}

// alter changes the options of a table.
func (m *machine) alter() {
	t := m.anyTable()
	if t == nil {
		return
	}
	options := m.tableOptions()
	if m.rng.IntN(2) == 0 {
		// One at a time, mostly.
		one := t.options
		switch m.rng.IntN(3) {
		case 0:
			one.MaxVersions = options.MaxVersions
		case 1:
			one.TTLSeconds = options.TTLSeconds
		case 2:
			one.MaxVersionOffsetSeconds = options.MaxVersionOffsetSeconds
		}
		options = one
	}
	m.alterTo(t, options)
}

func (m *machine) alterTo(t *mtable, options flagstone.TableOptions) {
	m.doing = func() string { return fmt.Sprintf("alter %s from %+v to %+v", t.name, t.options, options) }
	var err error
	m.atRisk(func() {
		err = m.tables[t].Alter(m.ctx, flagstone.TableChange{Options: &options, Annotations: []byte(fmt.Sprint(m.op))})
	})
	if m.after != nil && err != nil {
		m.altered = map[*mtable]flagstone.TableOptions{t: options}
		return
	}
	if m.excused(err) {
		if info := m.tables[t].Info(); info.Options != t.options {
			m.fail("an alter that failed left %+v", info)
		}
		return
	}
	if err != nil {
		m.fail("alter: %v", err)
	}
	m.model.alter(t, options)
	m.trust.observe(m)
	if info := m.tables[t].Info(); info.Options != options || string(info.Annotations) != fmt.Sprint(m.op) {
		m.fail("after alter: %+v", info)
	}
	if m.rng.IntN(3) == 0 {
		m.compareAll()
	}
}

// createTable makes the table of a slot.
func (m *machine) createTable(slot int) {
	t := &mtable{name: schemas[slot].name, key: schemas[slot].key, options: m.tableOptions()}
	spec := flagstone.TableSpec{Name: t.name, Key: t.key, Options: t.options}
	switch m.rng.IntN(3) {
	case 0:
		spec.Stream = m.newStream()
	case 1:
		t.splits = m.splits(slot)
		spec.SplitAt = t.splits
	}
	handle, err := m.store.CreateTable(m.ctx, spec)
	if err != nil {
		m.fail("create table: %v", err)
	}
	t.id = handle.Info().ID
	if splits := handle.Splits(); len(splits) != len(t.splits) || handle.Info().Partitions != len(splits)+1 {
		m.fail("a table that is to be split at %v is split at %v", t.splits, splits)
	}
	m.model.tables[slot], m.tables[t] = t, handle
	if spec.Stream != nil {
		m.streamEnabled(t)
	}
	m.trust.observe(m)
}

// dropTable drops a table; the next time, it is made again.
func (m *machine) dropTable() {
	slot := m.rng.IntN(len(schemas))
	t := m.model.tables[slot]
	m.doing = func() string { return fmt.Sprintf("drop or create table %s", schemas[slot].name) }
	if t == nil {
		m.createTable(slot)
		return
	}
	_, err := m.store.CreateTable(m.ctx, flagstone.TableSpec{Name: t.name, Key: t.key})
	if !errors.Is(err, flagstone.ErrTableExists) {
		m.fail("create a table that exists: %v", err)
	}
	if err := m.store.DropTable(m.ctx, t.name); err != nil {
		m.fail("drop table: %v", err)
	}
	handle := m.tables[t]
	delete(m.tables, t)
	t.dropped, m.model.tables[slot] = true, nil
	key := m.keys[slot][0]
	if _, err := handle.Get(m.ctx, key, flagstone.ReadOptions{}); !errors.Is(err, flagstone.ErrTableNotFound) {
		m.fail("get from a dropped table: %v", err)
	}
	err = handle.Update(m.ctx, key, func(_ context.Context, tx *flagstone.RowTx) error { tx.PutRow(); return nil })
	if !errors.Is(err, flagstone.ErrTableNotFound) {
		m.fail("update of a dropped table: %v", err)
	}
	if _, err := m.store.Table(t.name); !errors.Is(err, flagstone.ErrTableNotFound) {
		m.fail("a dropped table is found: %v", err)
	}
	if m.rng.IntN(2) == 0 {
		m.createTable(slot) // at once, under the same name
	}
}

// splitPoints asks for the pieces of a table.
func (m *machine) splitPoints() {
	t := m.anyTable()
	if t == nil {
		return
	}
	limit := m.rng.IntN(5)
	points, err := m.tables[t].SplitPoints(m.ctx, int64(1+m.rng.IntN(10_000)), limit)
	if err != nil {
		m.fail("split points: %v", err)
	}
	if limit > 0 && len(points) > limit {
		m.fail("%d split points, want at most %d", len(points), limit)
	}
	if !slices.IsSortedFunc(points, compareTuples) {
		m.fail("split points are out of order: %v", points)
	}
	if m.tables[t].ApproximateSize() < 0 {
		m.fail("the table's size is negative")
	}
}

// checkpoint makes a checkpoint, opens it, compares it, compacts it, compares
// it again, and removes it.
func (m *machine) checkpoint() {
	m.checkpoints++
	dir := fmt.Sprint("/checkpoint", m.checkpoints)
	var err error
	m.atRisk(func() { err = m.store.Checkpoint(m.ctx, dir) })
	m.wholeStoreDone("checkpoint", err)
	if m.after != nil || err != nil {
		return
	}
	if at := m.visible(); at != m.model.last {
		m.fail("after a checkpoint mutation %d is visible of %d", at, m.model.last)
	}
	live := *m
	m.exec, m.pending, m.tables = executortest.NewManual(), nil, map[*mtable]*flagstone.Table{}
	if m.store, err = flagstone.Open(dir, m.storeOptions(m.exec)); err != nil {
		m.fail("open the checkpoint: %v", err)
	}
	for t := range live.tables {
		if m.tables[t], err = m.store.Table(t.name); err != nil {
			m.fail("the checkpoint lacks table %s: %v", t.name, err)
		}
	}
	m.compareTables()
	if err := m.store.Compact(m.ctx); err != nil {
		m.fail("compact the checkpoint: %v", err)
	}
	m.exec.RunAll()
	m.compareTables()
	if err := m.store.Close(); err != nil {
		m.fail("close the checkpoint: %v", err)
	}
	m.store, m.exec, m.pending, m.tables = live.store, live.exec, live.pending, live.tables
	m.removeAll(dir)
}

// removeAll removes a directory.
func (m *machine) removeAll(dir string) {
	names, err := m.disk.List(dir)
	for _, name := range names {
		full := path.Join(dir, name)
		info, statErr := m.disk.Stat(full)
		switch {
		case statErr != nil:
			err = statErr
		case info.Dir:
			m.removeAll(full)
		default:
			err = errors.Join(err, m.disk.Remove(full))
		}
	}
	if err = errors.Join(err, m.disk.RemoveDir(dir)); err != nil {
		m.fail("remove %s: %v", dir, err)
	}
}

// compareAll reads every table whole and compares.
func (m *machine) compareAll() {
	if len(m.pending) == 0 {
		if at := m.store.Metrics().VisibleSequence; at != m.model.last {
			m.fail("everything was waited for, and mutation %d is visible of %d", at, m.model.last)
		}
	}
	for _, t := range m.model.tables {
		if t != nil {
			m.trust.check(m, t)
		}
	}
	m.compareTables()
}

func (m *machine) compareTables() {
	m.compareStreams()
	for _, t := range m.model.tables {
		if t == nil {
			continue
		}
		s := &scan{table: t, at: m.view(t)}
		s.rows = m.tables[t].Scan(m.ctx, []row.Value{}, nil, s.opts)
		for m.advance(s) {
		}
		s.rows.Close()
	}
}
