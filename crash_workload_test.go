package flagstone

// The workload of crash_test.go and fault_test.go: a script over the whole life of a store, and
// an oracle, a naive map, that knows what the store must hold after each step. The oracle shares
// no code with the engine.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	scriptDir    = "/store"
	scriptBackup = "/backup"
)

// scriptOptions make many small files of a small workload.
func scriptOptions(sync SyncMode) Options {
	return Options{
		Sync: sync, eagerSegments: 1, MemtableSize: 3 << 9, MemoryBudget: 12 << 10,
		TableFileSize: 4 << 10, WALSegmentSize: 16 << 10, CacheSize: 64 << 10,
	}
}

// withValues lets a third of the values of the workload go to value files.
func withValues(o Options) Options {
	o.Seams.ValueThreshold = 40
	return o
}

// oracle is what a store should show: rows by table and key.
type oracle struct{ tables map[string]*oracleTable }

type oracleTable struct {
	maxVersions int64
	notes       string
	rows        map[string]oracleRow // by pk/n
}

// oracleRow holds the values of a row by column and version.
type oracleRow map[string]map[int64]string

func newOracle() *oracle { return &oracle{tables: map[string]*oracleTable{}} }

func (o *oracle) clone() *oracle {
	c := newOracle()
	for name, t := range o.tables {
		ct := &oracleTable{maxVersions: t.maxVersions, notes: t.notes, rows: map[string]oracleRow{}}
		for key, r := range t.rows {
			ct.rows[key] = r.clone()
		}
		c.tables[name] = ct
	}
	return c
}

func (r oracleRow) clone() oracleRow {
	c := oracleRow{}
	for column, versions := range r {
		c[column] = maps.Clone(versions)
	}
	return c
}

// trim forgets versions beyond the table's limit. Trimming at each write is right as long as no
// limit is raised.
func (t *oracleTable) trim() {
	for _, r := range t.rows {
		for column, versions := range r {
			sorted := slices.Sorted(maps.Keys(versions))
			for len(sorted) > int(t.maxVersions) {
				delete(versions, sorted[0])
				sorted = sorted[1:]
			}
			if len(sorted) == 0 {
				delete(r, column)
			}
		}
	}
}

// text is the canonical form of a state; states are compared by it.
func (o *oracle) text() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(o.tables)) {
		t := o.tables[name]
		fmt.Fprintf(&b, "table %s max %d notes %q\n", name, t.maxVersions, t.notes)
		for _, key := range slices.Sorted(maps.Keys(t.rows)) {
			fmt.Fprintf(&b, "%s:", key)
			r := t.rows[key]
			for _, column := range slices.Sorted(maps.Keys(r)) {
				versions := slices.Sorted(maps.Keys(r[column]))
				for _, v := range slices.Backward(versions) {
					fmt.Fprintf(&b, " %s@%d=%s", column, v, r[column][v])
				}
			}
			b.WriteByte('\n')
		}
	}
	return b.String()
}

// difference lists the lines by which two texts differ.
func difference(want, got string) string {
	var b strings.Builder
	wants, gots := strings.Split(want, "\n"), strings.Split(got, "\n")
	for _, line := range wants {
		if !slices.Contains(gots, line) {
			fmt.Fprintf(&b, "- %s\n", line)
		}
	}
	for _, line := range gots {
		if !slices.Contains(wants, line) {
			fmt.Fprintf(&b, "+ %s\n", line)
		}
	}
	return b.String()
}

// readAll reads a whole store, in one moment, in the form of oracle.text.
func readAll(s *Store) (string, error) {
	sn, err := s.Snapshot()
	if err != nil {
		return "", err
	}
	defer sn.Close()
	var b strings.Builder
	for _, t := range s.Tables() {
		info := t.Info()
		fmt.Fprintf(&b, "table %s max %d notes %q\n", t.Name(), info.Options.MaxVersions, info.Annotations)
		rows := t.Scan(context.Background(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}})
		for rows.Next() {
			r := rows.Row()
			fmt.Fprintf(&b, "%s:", scriptRowName(r))
			for i := range r.Cells() {
				c := &r.Cells()[i]
				v, err := row.PayloadValue(c.Type, c.Value)
				if err != nil {
					rows.Close()
					return "", err
				}
				fmt.Fprintf(&b, " %s@%d=%s", c.Column, c.Version, v.Text())
			}
			b.WriteByte('\n')
		}
		if err := errors.Join(rows.Err(), rows.Close()); err != nil {
			return "", fmt.Errorf("scan of table %s: %w", t.Name(), err)
		}
	}
	return b.String(), nil
}

func scriptRowName(r *Row) string {
	return fmt.Sprintf("%s/%02d", r.Key()[0].Text(), r.Key()[1].Int64())
}

func rowName(pk string, n int) string { return fmt.Sprintf("%s/%02d", pk, n) }

// script is a run of the workload. Steps append to states what the store may
// hold before they ask it to: after a crash, or an error that leaves the
// outcome open, it holds one of states[acked:].
type script struct {
	fs    vfs.FS
	clock *clocktest.Manual
	exec  *executortest.Manual
	opts  Options
	store *Store
	rng   *rand.Rand
	ids   atomic.Uint64 // made by random

	states  []*oracle
	acked   int  // index of the state that holds all that was acknowledged
	saved   int  // index of the state that the checkpoint holds, 0 if there is none
	unknown bool // the outcome of some write is: a store without space may not show it
	version int64
	step    string

	// outcome judges the error of a step, and reports whether to go on.
	outcome func(err error) bool
}

func newScript(fs vfs.FS, opts Options, seed uint64) *script {
	s := &script{
		fs: fs, opts: opts, clock: clocktest.NewManual(startMillis), version: startMillis,
		rng: rand.New(rand.NewPCG(seed, 7)), states: []*oracle{newOracle()},
		outcome: func(error) bool { return false },
	}
	s.ids.Store(seed << 32)
	return s
}

// random makes identities. The seeds of memtables, which are their first halves, are the same in
// every run; the second halves keep files of different runs apart.
func (s *script) random() (id [16]byte) {
	binary.LittleEndian.PutUint64(id[:], s.ids.Add(1))
	binary.LittleEndian.PutUint64(id[8:], rand.Uint64())
	return id
}

func (s *script) now() *oracle { return s.states[len(s.states)-1] }

// open opens the store with a new executor.
func (s *script) open() (err error) {
	opts := s.opts
	opts.Seams = s.seams()
	s.store, err = Open(scriptDir, opts)
	return err
}

func (s *script) seams() Seams {
	s.exec = executortest.NewManual()
	return Seams{FS: s.fs, Clock: s.clock, Executor: s.exec, Random: s.random, ValueThreshold: s.opts.Seams.ValueThreshold}
}

// attempt announces the state after a change, makes the change, and settles
// which of the two holds. A SyncNone store acknowledges only by a barrier.
func (s *script) attempt(change func(o *oracle), do func() error) bool {
	next := s.now().clone()
	change(next)
	for _, t := range next.tables {
		t.trim()
	}
	s.states = append(s.states, next)
	return s.settle(len(s.states)-1, do())
}

// settle takes the outcome of the change that leads to a state.
func (s *script) settle(state int, err error) bool {
	switch {
	case err == nil:
		if s.opts.Sync == SyncAlways {
			s.acked = state
		}
		return true
	case !errors.Is(err, ErrPoisoned) && !errors.Is(err, vfs.ErrCrashed) && !errors.Is(err, ErrOutcomeUnknown):
		// Refused: nothing of it happened.
		s.states = slices.Delete(s.states, state, state+1)
	}
	s.unknown = s.unknown || errors.Is(err, ErrOutcomeUnknown)
	return s.outcome(err)
}

// barrier notes that everything so far is durable.
func (s *script) barrier(err error) bool {
	if err != nil {
		return s.outcome(err)
	}
	s.acked = len(s.states) - 1
	return true
}

func (s *script) table(name string) *Table {
	t, err := s.store.Table(name)
	if err != nil {
		return nil
	}
	return t
}

// nextVersion is a new version for cells; it also advances the clock.
func (s *script) nextVersion() int64 {
	s.version++
	s.clock.Advance(1e6)
	return s.version
}

// The steps.

// catalogue makes a change of the catalogue, which is durable with all that was
// written before it, in both modes.
func (s *script) catalogue(change func(o *oracle), do func() error) bool {
	return s.attempt(change, func() error {
		err := do()
		if err == nil {
			s.acked = len(s.states) - 1
		}
		return err
	})
}

// create makes a table; of the two, only a has several partitions.
func (s *script) create(name string, maxVersions int64) bool {
	s.step = "create " + name
	var splits []row.Value
	if name == "a" {
		splits = Key("p2", "p1", "pair")
	}
	return !s.lacks(name) || s.catalogue(func(o *oracle) {
		o.tables[name] = &oracleTable{maxVersions: maxVersions, rows: map[string]oracleRow{}}
	}, func() error {
		_, err := s.store.CreateTable(context.Background(), TableSpec{
			Name: name, Options: TableOptions{MaxVersions: maxVersions}, SplitAt: splits,
			Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		})
		return err
	})
}

func (s *script) drop(name string) bool {
	s.step = "drop " + name
	return s.lacks(name) || s.catalogue(func(o *oracle) { delete(o.tables, name) }, func() error {
		return s.store.DropTable(context.Background(), name)
	})
}

// lacks reports that a table could not be made earlier: then the script skips steps that need it.
func (s *script) lacks(name string) bool { return s.now().tables[name] == nil }

func (s *script) alter(name string, maxVersions int64, notes string) bool {
	s.step = "alter " + name
	return s.lacks(name) || s.catalogue(func(o *oracle) {
		o.tables[name].maxVersions, o.tables[name].notes = maxVersions, notes
	}, func() error {
		return s.table(name).Alter(context.Background(), TableChange{
			Options: &TableOptions{MaxVersions: maxVersions}, Annotations: []byte(notes),
		})
	})
}

// edit is a change of one row, for the oracle and for the store.
type edit struct {
	table  string
	pk     string
	n      int
	oracle func(r oracleRow) oracleRow // nil in and out: no such row
	tx     func(c *RowChange)
}

func (e *edit) apply(o *oracle) {
	t := o.tables[e.table]
	key := rowName(e.pk, e.n)
	if r := e.oracle(t.rows[key]); r != nil {
		t.rows[key] = r
	} else {
		delete(t.rows, key)
	}
}

// randomEdit makes a change of a random row.
func (s *script) randomEdit(table string) *edit {
	e := &edit{table: table, pk: fmt.Sprint("p", s.rng.IntN(3)), n: s.rng.IntN(14)}
	column := string(rune('a' + s.rng.IntN(4)))
	version := s.nextVersion()
	value := fmt.Sprintf("%d-%s", version-startMillis, strings.Repeat("x", s.rng.IntN(60)))
	var existing []int64
	if r := s.now().tables[table].rows[rowName(e.pk, e.n)]; r != nil {
		existing = slices.Sorted(maps.Keys(r[column]))
	}
	switch k := s.rng.IntN(20); {
	case k < 2:
		e.oracle = func(oracleRow) oracleRow { return nil }
		e.tx = func(c *RowChange) { c.DeleteRow() }
	case k < 6:
		e.oracle = func(oracleRow) oracleRow { return oracleRow{column: {version: value}, "z": {version: "new"}} }
		e.tx = func(c *RowChange) {
			c.PutRow()
			c.Put(column, version, row.String(value))
			c.Put("z", version, row.String("new"))
		}
	case k < 8 && len(existing) > 0:
		e.oracle = func(r oracleRow) oracleRow { delete(r, column); return r }
		e.tx = func(c *RowChange) { c.DeleteColumn(column) }
	case k < 11 && len(existing) > 0:
		gone := existing[s.rng.IntN(len(existing))]
		e.oracle = func(r oracleRow) oracleRow { delete(r[column], gone); return r }
		e.tx = func(c *RowChange) { c.DeleteVersion(column, gone) }
	default:
		e.oracle = func(r oracleRow) oracleRow {
			if r == nil {
				r = oracleRow{}
			}
			if r[column] == nil {
				r[column] = map[int64]string{}
			}
			r[column][version] = value
			return r
		}
		e.tx = func(c *RowChange) { c.Put(column, version, row.String(value)) }
	}
	return e
}

func (s *script) update(table string) bool {
	if s.lacks(table) {
		return true
	}
	e := s.randomEdit(table)
	s.step = fmt.Sprintf("update %s %s", table, rowName(e.pk, e.n))
	return s.attempt(e.apply, func() error {
		return s.table(table).Update(context.Background(), Key(e.pk, e.n), func(_ context.Context, tx *RowTx) error {
			e.tx(&tx.RowChange)
			return nil
		})
	})
}

// batch changes rows of both tables as one.
func (s *script) batch() bool {
	s.step = "batch"
	stamp, version := fmt.Sprintf("pair-%d", s.version), s.nextVersion()
	n := s.rng.IntN(14)
	return s.attempt(func(o *oracle) {
		for _, t := range o.tables {
			t.rows[rowName("pair", n)] = oracleRow{"stamp": {version: stamp}}
		}
	}, func() error {
		b := s.store.NewBatch()
		for _, name := range slices.Sorted(maps.Keys(s.now().tables)) {
			c := b.Row(s.table(name), Key("pair", n))
			c.PutRow()
			c.Put("stamp", version, row.String(stamp))
		}
		return s.store.Apply(context.Background(), b)
	})
}

// group begins three writes before it waits for any, so that one sync of the
// log carries them.
func (s *script) group(table string) bool {
	if s.lacks(table) {
		return true
	}
	s.step = "group " + table
	type begun struct {
		state  int
		commit *Commit
	}
	var group []begun
	var failure error
	for range 3 {
		e := s.randomEdit(table)
		next := s.now().clone()
		e.apply(next)
		next.tables[table].trim()
		s.states = append(s.states, next)
		c, err := s.table(table).UpdateAsync(context.Background(), Key(e.pk, e.n), func(_ context.Context, tx *RowTx) error {
			e.tx(&tx.RowChange)
			return nil
		})
		if err != nil {
			if !errors.Is(err, ErrPoisoned) {
				s.states = s.states[:len(s.states)-1]
			}
			failure = err
			break
		}
		group = append(group, begun{len(s.states) - 1, c})
	}
	waited := error(nil)
	for _, g := range group {
		switch err := g.commit.Wait(context.Background()); {
		case err != nil:
			waited = err
		case waited != nil && !errors.Is(waited, ErrOutcomeUnknown):
			panic(fmt.Sprintf("a write is acknowledged after an earlier one failed: %v", waited))
		case s.opts.Sync == SyncAlways:
			s.acked = g.state
		}
	}
	if failure = errors.Join(waited, failure); failure != nil {
		s.unknown = s.unknown || errors.Is(failure, ErrOutcomeUnknown)
		return s.outcome(failure)
	}
	return true
}

func (s *script) background(jobs int) bool {
	s.step = "background"
	for range jobs {
		if n := len(s.exec.Pending()); n > 0 {
			s.exec.Step(s.rng.IntN(n))
		}
	}
	return true
}

func (s *script) flush() bool {
	s.step = "flush"
	return s.barrier(s.store.Flush(context.Background()))
}

func (s *script) compact() bool {
	s.step = "compact"
	return s.barrier(s.store.Compact(context.Background()))
}

// split splits a table before a partition key, and merge undoes that; neither changes what readers see.
func (s *script) split(table, at string) bool {
	s.step = "split " + table
	t := s.table(table)
	if t == nil {
		return true
	}
	err := t.Split(context.Background(), row.String(at))
	return err == nil || s.outcome(err)
}

func (s *script) merge(table, at string) bool {
	s.step = "merge " + table
	t := s.table(table)
	if t == nil {
		return true
	}
	err := t.Merge(context.Background(), row.String(at))
	return err == nil || s.outcome(err)
}

func (s *script) checkpoint() bool {
	s.step = "checkpoint"
	if err := s.store.Checkpoint(context.Background(), scriptBackup); err != nil {
		return s.outcome(err)
	}
	s.saved = len(s.states) - 1
	return true
}

func (s *script) reopen() bool {
	s.step = "close"
	if !s.barrier(s.store.Close()) {
		return false
	}
	s.step = "open"
	if err := s.open(); err != nil {
		return s.outcome(err)
	}
	return true
}

// scan compares what the store shows with what was acknowledged.
func (s *script) scan() bool {
	s.step = "scan"
	got, err := readAll(s.store)
	if err != nil {
		return s.outcome(err)
	}
	from := len(s.states) - 1
	if s.unknown {
		from = s.acked
	}
	if want := s.now().text(); !slices.ContainsFunc(s.states[from:], func(o *oracle) bool { return o.text() == got }) {
		panic("the store does not show what was acknowledged:\n" + difference(want, got))
	}
	return true
}

// run runs the whole workload, or until a step stops it.
func (s *script) run() bool {
	s.step = "open"
	if err := s.open(); err != nil {
		return s.outcome(err)
	}
	return s.create("a", 3) && s.create("b", 1) &&
		s.work(40) && s.flush() && s.work(15) && s.split("a", "p1") &&
		s.alter("a", 2, "fewer versions") && s.work(25) && s.scan() && s.split("b", "p2") && s.split("a", "p2") &&
		s.drop("b") && s.create("b", 2) && s.work(20) &&
		s.checkpoint() && s.work(10) && s.split("b", "p1") && s.compact() && s.work(10) && s.merge("a", "p1") &&
		s.reopen() && s.work(20) && s.merge("b", "p1") && s.flush() && s.background(100) && s.scan() &&
		s.closeAtEnd()
}

func (s *script) closeAtEnd() bool {
	s.step = "close"
	return s.barrier(s.store.Close())
}

// work makes changes of all kinds, and runs background work between them.
func (s *script) work(changes int) bool {
	for range changes {
		var ok bool
		table := string(rune('a' + s.rng.IntN(2)))
		switch k := s.rng.IntN(12); {
		case k < 2:
			ok = s.batch()
		case k < 4:
			ok = s.group(table)
		default:
			ok = s.update(table)
		}
		if !ok || s.rng.IntN(4) == 0 && !s.background(1+s.rng.IntN(3)) {
			return false
		}
	}
	return true
}
