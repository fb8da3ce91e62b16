package txn

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/share"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// rig is the transactions of a table in memory, whose log lies on a simulated disk.
type rig struct {
	*Set
	t      *testing.T
	table  table.Table
	meta   *manifest.Table
	clock  *clocktest.Manual
	exec   *executortest.Manual
	closed atomic.Bool
}

const startMillis = 1_000_000

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, exec: executortest.NewManual(), clock: clocktest.NewManual(startMillis)}
	env := &partition.Env{
		Settings: partition.Settings{MemtableSize: 1 << 20}, Random: func() [16]byte { return [16]byte{1} },
	}
	r.meta = &manifest.Table{
		ID: 1, Name: "t", Key: []manifest.KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		Options:   manifest.TableOptions{MaxVersions: 3, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 1},
		Watermark: manifest.NoWatermark,
	}
	background := jobs.New(r.exec, r.clock, func(string, error) bool { return false })
	gate := pressure.NewGate(storeEnv{r}, r.clock, 1<<20)
	pipeline := commit.New(storeEnv{r}, gate, background, commit.Options{
		Sync: true, SegmentSize: 64 << 10, LogBound: 1 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	opts := wal.Options{FS: vfs.NewSim(vfs.SimOptions{}), Dir: "/log", SegmentSize: 64 << 10, Sync: true}
	found, err := wal.Recover(opts, 0, nil)
	must(t, err)
	log, err := wal.NewWriter(opts, found)
	must(t, err)
	pipeline.Recovered(0, 0)
	pipeline.Start(log)
	t.Cleanup(func() {
		background.Stop()
		must(t, log.Close())
	})
	r.Set = NewSet(Parts{Latches: new(commit.Latches), Pipeline: pipeline, Gate: gate, Memory: share.NewPool(1 << 20)})
	r.table.Init(&table.Env{
		State:    func() *manifest.State { return &manifest.State{Tables: []*manifest.Table{r.meta}} },
		Pipeline: pipeline, Clock: r.clock, Issued: storeclock.NewIssued(r.clock), Closed: &r.closed,
	}, r.meta, []*partition.Tree{partition.NewTree(env, 1, &manifest.Partition{ID: 7})})
	return r
}

// storeEnv is what the pipeline and the gate need of their store.
type storeEnv struct{ *rig }

func (e storeEnv) Refuses() error           { return nil }
func (e storeEnv) Writable() error          { return nil }
func (e storeEnv) Trees() []*partition.Tree { return e.table.Trees() }
func (e storeEnv) FlushDue(*partition.Tree) {}
func (e storeEnv) FlushLargest()            {}
func (e storeEnv) Await(ctx context.Context, event <-chan struct{}) error {
	return e.exec.Await(ctx, event, nil)
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantError(t *testing.T, what string, got, want error) {
	t.Helper()
	if !errors.Is(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// begin begins a transaction of a partition key.
func (r *rig) begin(pk string, opts Options) *Transaction {
	r.t.Helper()
	tx := new(Transaction)
	must(r.t, tx.Begin(r.t.Context(), r.Set, &r.table, prefix(r.t, pk), opts))
	return tx
}

// update changes a row in a transaction.
func (r *rig) update(tx *Transaction, pk string, fn func(c *change.Change)) error {
	must(r.t, tx.Enter(r.t.Context()))
	defer tx.Leave()
	return tx.Update(func(written *memtable.Memtable) ([]*change.Change, error) {
		c := new(change.Change)
		c.Init(&r.table, []row.Value{row.String(pk), row.Integer(1)})
		c.Written = written
		if err := tx.Holds(c.Key()); err != nil {
			return nil, err
		}
		fn(c)
		return []*change.Change{c}, nil
	})
}

// put puts a version of the column c.
func put(version int64) func(*change.Change) {
	return func(c *change.Change) { c.Put("c", version, row.Integer(version)) }
}

// commit commits a transaction.
func (r *rig) commit(tx *Transaction) error {
	must(r.t, tx.Enter(r.t.Context()))
	defer tx.Leave()
	c, err := tx.Commit(r.t.Context())
	if err == nil {
		_, err = c.Wait(r.t.Context())
	}
	return err
}

// versions are those of the column c of a row, as written and the table have them.
func (r *rig) versions(pk string, written *memtable.Memtable) int {
	r.t.Helper()
	list, _, err := r.table.Versions(key(r.t, row.String(pk), row.Integer(1)), []byte("c"), written, nil)
	must(r.t, err)
	return len(list)
}

func TestATransactionIsAppliedAsAWhole(t *testing.T) {
	r := newRig(t)
	ended := 0
	tx := r.begin("p", Options{Ended: func() { ended++ }})
	wantError(t, "another transaction", new(Transaction).Begin(t.Context(), r.Set, &r.table, prefix(t, "p"), Options{}), ErrConflict)
	must(t, r.update(tx, "p", put(1)))
	must(t, r.update(tx, "p", put(2)))
	wantError(t, "another partition key", r.update(tx, "q", put(1)), ErrOutOfPartition)
	if alone, merged := r.versions("p", nil), r.versions("p", tx.written); alone != 0 || merged != 2 {
		t.Errorf("before the commit others see %d versions, the transaction %d", alone, merged)
	}
	must(t, r.commit(tx))
	if n := r.versions("p", nil); n != 2 || ended != 1 || tx.Open() || r.Memory.Used() != 0 {
		t.Errorf("%d versions; ended %d times; open %v; %d bytes held", n, ended, tx.Open(), r.Memory.Used())
	}
	wantError(t, "an update after the commit", r.update(tx, "p", put(3)), ErrEnded)
	wantError(t, "another commit", r.commit(tx), ErrEnded)
}

// TestATransactionWorksItsTrimsOutAgain deletes the newest of three versions. Under the limit that
// then holds, the delete must hide the others, which a reader has never seen.
func TestATransactionWorksItsTrimsOutAgain(t *testing.T) {
	r := newRig(t)
	tx := r.begin("p", Options{})
	for v := range int64(3) {
		must(t, r.update(tx, "p", put(v)))
	}
	must(t, r.commit(tx))
	tx = r.begin("p", Options{})
	must(t, r.update(tx, "p", func(c *change.Change) { c.DeleteVersion("c", 2) }))
	changed := *r.meta
	begin := r.table.EndEra()
	changed.Options.MaxVersions = 1
	r.meta = &changed
	begin()
	must(t, r.commit(tx))
	if n := r.versions("p", nil); n != 0 {
		t.Errorf("%d versions came back", n)
	}
}

func TestATransactionEndsInTime(t *testing.T) {
	r := newRig(t)
	tx := r.begin("p", Options{Lifetime: time.Second})
	must(t, r.update(tx, "p", put(1)))
	r.clock.Advance(time.Second)
	if tx.Open() || r.Memory.Used() != 0 {
		t.Error("it is still open")
	}
	wantError(t, "a commit", r.commit(tx), ErrEnded)
	must(t, r.commit(r.begin("p", Options{})))
}

// TestAFunctionMayEndItsTransaction aborts a transaction in the function of an update, which must
// not wait for itself.
func TestAFunctionMayEndItsTransaction(t *testing.T) {
	r := newRig(t)
	tx := r.begin("p", Options{})
	err := r.update(tx, "p", func(c *change.Change) {
		tx.Abort()
		if r.Memory.Used() == 0 {
			t.Error("the key was given back while the function runs")
		}
		put(1)(c)
	})
	wantError(t, "the update", err, ErrEnded)
	if r.Memory.Used() != 0 || len(r.All()) != 0 || r.versions("p", nil) != 0 {
		t.Error("something is left")
	}
}

func TestATransactionEndsWithItsTable(t *testing.T) {
	r := newRig(t)
	tx := r.begin("p", Options{})
	r.table.Dropped.Store(true)
	wantError(t, "an update", r.update(tx, "p", put(1)), table.ErrNotFound)
	r.table.Dropped.Store(false)
	wantError(t, "a commit", r.commit(tx), table.ErrNotFound)
	r.closed.Store(true)
	wantError(t, "a new one", new(Transaction).Begin(t.Context(), r.Set, &r.table, prefix(t, "p"), Options{}), table.ErrClosed)
	if len(r.All()) != 0 {
		t.Error("the partition key is still held")
	}
}
