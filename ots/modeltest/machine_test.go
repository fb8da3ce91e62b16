package modeltest

// This file holds the store under test, its clock and disk, and the steps of a run.

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

const (
	instance  = "model"
	tableName = "t"
	// startMillis is the start of the clock; no version is negative.
	startMillis = 1_700_000_000_000
	lifetime    = 60 * time.Second
)

// partitions and numbers make the keys of the rows: few, so that each row gets a history.
var (
	partitions = []string{"", "a", "b"}
	numbers    = []int64{-1, 0, 1, 7}
)

// machine is a service over a small store, and its model.
type machine struct {
	t      testing.TB
	random *rand.Rand
	fs     *vfs.Sim
	clock  *clocktest.Manual
	store  *flagstone.Store
	ots.Service

	settings
	rows     lines
	open     map[string]*transaction // by partition key
	requests int                     // answered and compared
	recent   []string                // the last steps, for failure messages
	counts   map[string]int          // of answers, by kind
}

// transaction is an open local transaction.
type transaction struct {
	id       string
	rows     lines // of its partition key, as the transaction sees them
	done     []deed
	deadline time.Duration
}

// madeWith are the partitions that the table is made with.
var madeWith = [][]ots.PartitionRange{
	nil,
	{{Begin: row.Min(), End: row.String("a")}, {Begin: row.String("a"), End: row.String("b")}, {Begin: row.String("b"), End: row.Max()}},
}

func newMachine(t testing.TB, seed uint64) *machine {
	m := &machine{
		t: t, random: rand.New(rand.NewPCG(seed, 0)), clock: clocktest.NewManual(startMillis),
		fs: vfs.NewSim(vfs.SimOptions{}), rows: lines{}, open: map[string]*transaction{}, counts: map[string]int{},
		settings: settings{versions: 2, ttl: -1, offset: 10, now: startMillis},
	}
	m.start()
	err := m.CreateTable(context.Background(), instance, &ots.CreateTableRequest{
		Table:      tableName,
		PrimaryKey: []ots.KeyColumn{{Name: "p", Type: row.TypeString}, {Name: "k", Type: row.TypeInteger}},
		Options: &ots.TableOptions{
			TimeToLive: ptr(int32(m.ttl)), MaxVersions: ptr(int32(m.versions)), MaxVersionOffset: ptr(m.offset),
		},
		Partitions: madeWith[seed%uint64(len(madeWith))],
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// start opens the small store and the service over it.
func (m *machine) start() {
	var err error
	m.store, err = flagstone.Open("/store", flagstone.Options{
		MemtableSize: 16 << 10, TableFileSize: 16 << 10, WALSegmentSize: 64 << 10, CacheSize: 1 << 20,
		Seams: seams.Seams{FS: m.fs, Clock: m.clock},
	})
	if err == nil {
		m.Service, err = ots.New(m.store, ots.Options{
			Instances: []string{instance}, Logger: slog.New(slog.NewTextHandler(m.t.Output(), nil)),
		})
	}
	if err != nil {
		m.fail("open: %v", err)
	}
	clear(m.open) // no transaction outlives its server
}

// stop closes the store at the end.
func (m *machine) stop() {
	if err := m.store.Close(); err != nil {
		m.t.Error(err)
	}
}

func (m *machine) fail(format string, args ...any) {
	m.t.Helper()
	m.t.Fatalf("request %d: %s\n%+v\nlast steps:\n%s", m.requests, fmt.Sprintf(format, args...), m.settings, strings.Join(m.recent, "\n"))
}

// note records a step.
func (m *machine) note(format string, args ...any) {
	const kept = 40
	if len(m.recent) == kept {
		m.recent = m.recent[1:]
	}
	m.recent = append(m.recent, fmt.Sprintf("%d at %d: ", m.requests, m.now)+fmt.Sprintf(format, args...))
}

// steps are the steps of a run, with the weights for choosing them.
var steps = []struct {
	weight int
	do     func(*machine)
}{
	{3000, (*machine).write},
	{400, (*machine).batch},
	{300, (*machine).atomicBatch},
	{3000, (*machine).get},
	{600, (*machine).getRange},
	{200, (*machine).batchGet},
	{250, (*machine).begin},
	{200, (*machine).end},
	{30, (*machine).misuse},
	{20, (*machine).alter},
	{4, (*machine).flush},
	{2, (*machine).compact},
	{2, (*machine).reopen},
	{2, (*machine).losePower},
}

// step moves the clock and performs a random step.
func (m *machine) step() {
	m.advance()
	total := 0
	for _, s := range steps {
		total += s.weight
	}
	at := m.random.IntN(total)
	for _, s := range steps {
		if at -= s.weight; at < 0 {
			s.do(m)
			return
		}
	}
}

// advance moves the clock: usually not at all, sometimes by minutes.
func (m *machine) advance() {
	var d time.Duration
	switch m.random.IntN(100) {
	case 0:
		d = time.Duration(m.random.IntN(90_000)) * time.Millisecond
	case 1, 2, 3:
		d = time.Duration(m.random.IntN(5000)) * time.Millisecond
	default:
		d = time.Duration(m.random.IntN(2)*m.random.IntN(20)) * time.Millisecond
	}
	m.clock.Advance(d)
	m.now = m.clock.NowMillis()
	for p, tx := range m.open {
		if m.clock.Elapsed() >= tx.deadline {
			m.note("transaction of %q is over", p)
			delete(m.open, p)
		}
	}
}

// expect compares the error code of an answer.
func (m *machine) expect(what string, err error, code string) {
	m.t.Helper()
	m.requests++
	got := codeOf(err)
	m.counts[got]++
	if got != code {
		m.fail("%s: answered %v; the model says %q", what, err, code)
	}
}

// codeOf is the code of an error, "" for none.
func codeOf(err error) string {
	var own *ots.Error
	switch {
	case err == nil:
		return ""
	case errors.As(err, &own):
		return own.Code
	}
	return err.Error()
}

func (m *machine) flush() {
	m.note("flush")
	if err := m.store.Flush(context.Background()); err != nil {
		m.fail("flush: %v", err)
	}
}

func (m *machine) compact() {
	m.note("compact")
	table, err := m.store.Table(instance + "/" + tableName)
	if err == nil {
		err = table.Compact(context.Background(), nil, nil)
	}
	if err != nil {
		m.fail("compact: %v", err)
	}
}

func (m *machine) reopen() {
	m.note("reopen")
	m.stop()
	m.start()
	m.compareAll()
}

// losePower cuts the power: data that is not durable may be lost, acknowledged data may not.
func (m *machine) losePower() {
	m.note("lose power")
	old := m.store
	policies := []vfs.CrashPolicy{vfs.CrashLoseAll, vfs.CrashKeepAll, vfs.CrashPrefix, vfs.CrashSubset}
	m.fs = m.fs.Crash(policies[m.random.IntN(len(policies))], m.random.Uint64())
	old.Close() // its files are gone: this only releases memory
	m.start()
	m.compareAll()
}

// compareAll reads every row with all its visible cells.
func (m *machine) compareAll() {
	for _, p := range partitions {
		for _, k := range numbers {
			m.getRow(nil, m.rows, id{p, k}, everything())
		}
	}
}

func everything() ots.Selection { return ots.Selection{MaxVersions: ptr(int32(1 << 30))} }

func ptr[T any](v T) *T { return &v }

// pick returns one of its arguments.
func pick[T any](m *machine, from ...T) T { return from[m.random.IntN(len(from))] }

// chance is true with probability 1/n.
func (m *machine) chance(n int) bool { return m.random.IntN(n) == 0 }

func (m *machine) key() id { return id{pick(m, partitions...), pick(m, numbers...)} }

func (key id) encode() []ots.KeyValue {
	return []ots.KeyValue{{Name: "p", Value: row.String(key.p)}, {Name: "k", Value: row.Integer(key.k)}}
}
