package modeltest

// The machine: a store on a simulated disk, with a clock and an executor that
// the test moves, and the model beside it.

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	storeDir    = "/store"
	startMillis = 1_700_000_000_000
)

// config is one way to set up a store.
type config struct {
	name    string
	options flagstone.Options
	rows    int  // keys per table
	levels  int  // how many levels must hold files at once, some time
	wild    bool // the clock jumps by years, in half of the episodes
	helped  bool // reads have helpers
	sound   bool // no call to the disk fails
	large   bool // some values are so long that helpers take a part of unpacking them
}

// machine runs random operations on the store and on the model.
type machine struct {
	t    testing.TB
	ctx  context.Context
	cfg  config
	seed uint64
	rng  *rand.Rand

	disk   *vfs.Sim
	faults *vfs.Fault // what the store sees of the disk
	clock  *clocktest.Manual
	exec   *executortest.Manual
	ids    *rand.PCG // of files
	store  *flagstone.Store
	tables map[*mtable]*flagstone.Table

	model   model
	keys    [][][]row.Value // by table: those that are used
	values  uint64          // values made so far
	moments []*moment
	scans   []*scan
	pending []*pendingCommit
	haunt   haunt
	helpers *helpers // nil: none

	// kept is the number of the newest mutation that must survive a crash:
	// it was acknowledged, or seen by a reader.
	kept     uint64
	requests []request // those above kept, at least
	issued   int64     // the largest time that older requests were stamped with

	short       bool // data expires soon, and no version lies far ahead
	wild        bool // the clock jumps by years
	trust       trust
	checkpoints int
	hurt        bool                               // calls to the disk failed during the operation
	owed        bool                               // a write whose outcome was unknown is to become visible
	within      bool                               // an operation is done in the middle of a background job
	after       *vfs.Sim                           // what an operation left on the disk during which the power failed
	altered     map[*mtable]flagstone.TableOptions // options that such an operation was to set
	// streamAltered is the table of which such an operation was to change the
	// stream.
	streamAltered *mtable

	op    int
	doing func() string // describes the operation under way
	seen  map[string]int
	trace func(string) // gets a line for each answer, if set
}

// request is one or several mutations that are there all or not at all.
type request struct {
	last   uint64 // the newest of them
	millis int64  // NowMillis when they were made
}

// pendingCommit is a write that was not waited for.
type pendingCommit struct {
	commit *flagstone.Commit
	at     uint64 // the newest mutation it needs
	want   error  // what Wait should return
}

func newMachine(t testing.TB, cfg config, seed uint64) *machine {
	m := &machine{
		t: t, ctx: context.Background(), cfg: cfg, seed: seed,
		rng:    rand.New(rand.NewPCG(seed, 1)),
		disk:   vfs.NewSim(vfs.SimOptions{}),
		clock:  clocktest.NewManual(startMillis),
		ids:    rand.NewPCG(seed, 4),
		tables: map[*mtable]*flagstone.Table{},
		seen:   map[string]int{},
		doing:  func() string { return "open" },
	}
	m.short, m.wild = m.rng.IntN(2) == 0, cfg.wild && m.rng.IntN(2) == 0
	m.model.tables = make([]*mtable, len(schemas))
	m.trust.open(m)
	m.makeKeys()
	if cfg.helped {
		m.helpers = newHelpers(m)
	}
	m.mustOpen()
	for slot := range schemas {
		m.createTable(slot)
	}
	return m
}

// run does so many operations.
func (m *machine) run(ops int) {
	defer func() {
		if r := recover(); r != nil {
			m.t.Errorf("panic: %v\n%s", r, m.context())
			panic(r)
		}
	}()
	total := 0
	for _, a := range actions {
		total += a.weight
	}
	for m.op = 0; m.op < ops; m.op++ {
		n := m.rng.IntN(total)
		reads := m.op < m.haunt.until && m.rng.IntN(2) == 0
		for _, a := range actions {
			if n -= a.weight; !reads && n < 0 || reads && a.name == "get" {
				m.model.events++
				m.doing = func() string { return a.name }
				m.helpers.beginOperation()
				m.seen[a.name]++
				a.do(m)
				break
			}
		}
		if m.after != nil {
			m.recoverFrom(m.after)
		}
		if m.hurt {
			m.heal()
		}
	}
	m.doing = func() string { return "end of the run" }
	m.compareAll()
	m.close()
}

// opened is what Open needs in every case.
func (m *machine) storeOptions(exec executor.Executor) flagstone.Options {
	o := m.cfg.options
	o.Seams.FS, o.Seams.Clock, o.Seams.Executor = m.faults, m.clock, exec
	if m.helpers != nil {
		o.Seams.Helpers = m.helpers.Helpers
	}
	// They go on where the last opening left off, so that what a crash left behind has
	// another one than what comes after it.
	o.Seams.Random = func() (id [16]byte) {
		binary.LittleEndian.PutUint64(id[:], m.ids.Uint64())
		binary.LittleEndian.PutUint64(id[8:], m.ids.Uint64())
		return id
	}
	o.Logger = slog.New(eventCounter{m.seen})
	return o
}

// eventCounter is a log handler that counts what the engine says it did, with
// the reason if it gives one.
type eventCounter struct{ seen map[string]int }

func (eventCounter) Enabled(context.Context, slog.Level) bool { return true }
func (e eventCounter) WithAttrs([]slog.Attr) slog.Handler     { return e }
func (e eventCounter) WithGroup(string) slog.Handler          { return e }

func (e eventCounter) Handle(_ context.Context, r slog.Record) error {
	what := "log: " + r.Message
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "reason" && len(a.Value.String()) < 20 {
			what += ", " + a.Value.String()
		}
		return true
	})
	e.seen[what]++
	return nil
}

func (m *machine) mustOpen() {
	if err := m.open(); err != nil {
		m.fail("open: %v", err)
	}
}

// open opens what is on the disk.
func (m *machine) open() (err error) {
	m.faults = vfs.NewFault(m.disk, m.seed)
	m.exec = executortest.NewManual()
	m.store, err = flagstone.Open(storeDir, m.storeOptions(m.exec))
	return err
}

// reattach gets the handles of all tables after the store was opened again, and
// checks that they are what they were.
func (m *machine) reattach() {
	clear(m.tables)
	names := 0
	for _, t := range m.model.tables {
		if t == nil {
			continue
		}
		names++
		handle, err := m.store.Table(t.name)
		if err != nil {
			m.fail("table %s is lost: %v", t.name, err)
		}
		m.tables[t] = handle
		info := handle.Info()
		if options, ok := m.altered[t]; ok && options == info.Options {
			m.model.alter(t, options)
		}
		m.reattachStream(t)
		if info.ID != t.id || info.Options != t.options || !slices.Equal(info.Key, t.key) {
			m.fail("table %s changed: %+v, want id %d, %+v", t.name, info, t.id, t.options)
		}
	}
	if got := len(m.store.Tables()); got != names {
		m.fail("the store has %d tables, want %d", got, names)
	}
	m.altered, m.streamAltered = nil, nil
	m.trust.open(m)
}

// close ends the run and checks that nothing stays open.
func (m *machine) close() {
	m.releaseMoments()
	m.waitAll()
	if err := m.store.Close(); err != nil {
		m.fail("close: %v", err)
	}
	m.checkNothingOpen()
}

func (m *machine) checkNothingOpen() {
	if files := m.disk.OpenFiles(); len(files) > 0 {
		m.fail("open files after Close: %v", files)
	}
	if n := m.clock.Timers(); n > 0 {
		m.fail("%d timers are waiting after Close", n)
	}
}

// visible is the number of the newest mutation that readers see.
func (m *machine) visible() uint64 {
	if len(m.pending) == 0 || m.cfg.options.Sync == flagstone.SyncNone {
		return m.model.last
	}
	at := m.store.Metrics().VisibleSequence
	if at > m.model.last {
		m.fail("mutation %d is visible, only %d were made", at, m.model.last)
	}
	m.kept = max(m.kept, at)
	return at
}

// view is the present as readers see it.
func (m *machine) view(t *mtable) view { return m.viewAt(t, m.visible()) }

func (m *machine) viewAt(t *mtable, at uint64) view {
	return view{
		at: at, event: m.model.events, limit: t.options.MaxVersions, ttl: t.options.TTLSeconds,
		millis: m.clock.NowMillis(), watermark: m.tables[t].Info().ExpiryWatermark,
	}
}

// acknowledged notes that all mutations up to a number must survive, if the
// store syncs.
func (m *machine) acknowledged(at uint64) {
	if m.cfg.options.Sync == flagstone.SyncAlways {
		m.kept = max(m.kept, at)
	}
}

// durable notes that everything must survive.
func (m *machine) durable() { m.kept = m.model.last }

// waitAll waits for all writes that are under way.
func (m *machine) waitAll() {
	for len(m.pending) > 0 {
		m.wait(len(m.pending) - 1)
	}
}

// wait waits for one of them.
func (m *machine) wait(i int) {
	p := m.pending[i]
	m.pending = slices.Delete(m.pending, i, i+1)
	if err := p.commit.Wait(m.ctx); !sameError(err, p.want) {
		m.fail("Wait for mutation %d: %v, want %v", p.at, err, p.want)
	}
	m.acknowledged(p.at)
}

func sameError(got, want error) bool {
	if want == nil {
		return got == nil
	}
	return errors.Is(got, want)
}

// forgetHistory lets the model go of what nobody will ask about.
func (m *machine) forgetHistory(r *mrow) {
	if len(r.since) < 48 {
		return
	}
	horizon := m.kept
	for _, mo := range m.moments {
		horizon = min(horizon, mo.at)
	}
	for _, s := range m.scans {
		horizon = min(horizon, s.at.at)
	}
	r.forget(horizon)
}

// fail ends the test with all that is needed to run it again.
func (m *machine) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s", fmt.Sprintf(format, args...), m.context())
}

// failRow is fail with the history of a row.
func (m *machine) failRow(r *mrow, v *view, got *flagstone.Row, format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("%s\n%s\n%s", fmt.Sprintf(format, args...), m.context(), m.describeRow(r, v, got))
}

func (m *machine) context() string {
	return fmt.Sprintf("\tconfiguration %s, seed %d, operation %d: %s\n\trun it again: FLAGSTONE_MODEL_SEED=%d FLAGSTONE_MODEL_OPS=%d "+
		"go test -run 'TestModel/%s$' ./internal/modeltest",
		m.cfg.name, m.seed, m.op, m.doing(), m.seed, episodeOps*len(configs()), m.cfg.name)
}

func (m *machine) describeRow(r *mrow, v *view, got *flagstone.Row) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\ttable %s, row %s, table options %+v\n", r.table.name, showKey(r.key), r.table.options)
	if v != nil {
		fmt.Fprintf(&b, "\tview: mutation %d of %d, event %d of %d, limit %d, clock %d, TTL %d, watermark %d; held: %v\n",
			v.at, m.model.last, v.event, m.model.events, v.limit, v.millis, v.ttl, v.watermark, v.known != nil)
		a := r.answer(*v)
		fmt.Fprintf(&b, "\twant: exists %v", a.exists)
		for _, c := range a.columns {
			for i, p := range c.puts {
				fmt.Fprintf(&b, " %.20q@%d=%.40s", c.name, p.version, p.value)
				if !c.sure[i] {
					b.WriteString("(perhaps)")
				}
			}
		}
		b.WriteString("\n")
	}
	if got != nil {
		b.WriteString("\tgot:")
		for i := range got.Cells() {
			fmt.Fprintf(&b, " %s", showCell(&got.Cells()[i]))
		}
		b.WriteString("\n")
	} else {
		b.WriteString("\tgot: no row\n")
	}
	b.WriteString("\thistory:\n")
	for _, mu := range slices.Concat(r.older, r.since) {
		fmt.Fprintf(&b, "\t\t%s\n", mu)
	}
	return b.String()
}
