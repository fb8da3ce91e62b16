package flagstone

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// Seams is a short name for the tests of this package.
type Seams = seams.Seams

// rig is a store on a simulated disk, with a clock and an executor that the
// test steps by hand.
type rig struct {
	t     *testing.T
	fs    *vfs.Sim
	clock *clocktest.Manual
	exec  *executortest.Manual
	opts  Options
	store *Store
}

const startMillis = 1_700_000_000_000

func newRig(t *testing.T, opts Options) *rig {
	t.Helper()
	r := &rig{t: t, fs: vfs.NewSim(vfs.SimOptions{}), clock: clocktest.NewManual(startMillis), opts: opts}
	r.open()
	t.Cleanup(func() { r.store.Close() })
	return r
}

func (r *rig) open() {
	r.t.Helper()
	r.openOn(r.fs)
}

// openOn opens the store on a disk, which stays that of the rig only if it is one.
func (r *rig) openOn(fs vfs.FS) {
	r.t.Helper()
	if sim, ok := fs.(*vfs.Sim); ok {
		r.fs = sim
	}
	r.exec = executortest.NewManual()
	opts := r.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = fs, r.clock, r.exec
	store, err := Open("/store", opts)
	if err != nil {
		r.t.Fatalf("open: %v", err)
	}
	r.store = store
}

// ok ends the test if there is an error.
func (r *rig) ok(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// reopen closes the store and opens it again.
func (r *rig) reopen() {
	r.t.Helper()
	if err := r.store.Close(); err != nil {
		r.t.Fatalf("close: %v", err)
	}
	r.open()
}

// crash loses power and opens what is left.
func (r *rig) crash(policy vfs.CrashPolicy, seed uint64) {
	r.t.Helper()
	old := r.store
	r.fs = r.fs.Crash(policy, seed)
	old.Close() // its files are gone: this only frees memory
	r.open()
}

// believeClock lets a store run until it believes its clock: a new one drops
// nothing as expired before.
func believeClock(c *clocktest.Manual) { c.Advance(storeclock.Probation) }

func (r *rig) table(name string, options TableOptions) *Table {
	r.t.Helper()
	table, err := r.store.Table(name)
	if errors.Is(err, ErrTableNotFound) {
		table, err = r.store.CreateTable(context.Background(), TableSpec{
			Name: name, Options: options,
			Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}},
		})
	}
	if err != nil {
		r.t.Fatal(err)
	}
	return table
}

func put(t *testing.T, table *Table, pk string, n int, column string, version int64, value string) {
	t.Helper()
	err := table.Update(context.Background(), Key(pk, n), func(_ context.Context, tx *RowTx) error {
		tx.Put(column, version, row.String(value))
		return nil
	})
	if err != nil {
		t.Fatalf("put %s %d: %v", pk, n, err)
	}
}

// show prints a row as column@version=value.
func show(t *testing.T, table *Table, pk string, n int) string {
	t.Helper()
	r, err := table.Get(context.Background(), Key(pk, n), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if r == nil {
		return "absent"
	}
	return cells(r)
}

func cells(r *Row) string {
	s := ""
	for i := range r.Cells() {
		c := &r.Cells()[i]
		v, err := row.PayloadValue(c.Type, c.Value)
		if err != nil {
			return err.Error()
		}
		s += fmt.Sprintf("%s@%d=%s ", c.Column, c.Version, v.Text())
	}
	return s
}

func TestWritesAreReadBackAcrossFlushCompactionAndReopening(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 8 << 10, WALSegmentSize: 32 << 10})
	table := r.table("t", TableOptions{MaxVersions: 2})
	const rows = 500
	for round := range 3 {
		for i := range rows {
			put(t, table, fmt.Sprint("p", i%7), i, "c", int64(startMillis+round), fmt.Sprint(round, ".", i))
			if i%50 == 0 {
				r.exec.RunAll()
			}
		}
	}
	check := func() {
		t.Helper()
		for i := range rows {
			want := fmt.Sprintf("c@%d=2.%d c@%d=1.%d ", startMillis+2, i, startMillis+1, i)
			if got := show(t, table, fmt.Sprint("p", i%7), i); got != want {
				t.Fatalf("row %d: got %q, want %q", i, got, want)
			}
		}
		n := 0
		scan := table.Scan(context.Background(), nil, nil, ScanOptions{})
		defer scan.Close()
		for scan.Next() {
			n++
		}
		if scan.Err() != nil || n != rows {
			t.Fatalf("scan found %d rows, want %d: %v", n, rows, scan.Err())
		}
	}
	check()
	r.exec.RunAll()
	check()
	r.reopen()
	table = r.table("t", TableOptions{})
	check()
	if err := r.store.Compact(context.Background()); err != nil {
		t.Fatal(err)
	}
	check()
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	check()
}

func TestP01_AcknowledgedWritesSurvivePowerLoss(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10, WALSegmentSize: 32 << 10})
	table := r.table("t", TableOptions{})
	for i := range 300 {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint(i))
		if i%20 == 0 {
			r.exec.RunAll()
		}
		if i%40 == 39 {
			r.crash(vfs.CrashLoseAll, uint64(i))
			table = r.table("t", TableOptions{})
			for j := range i + 1 {
				if got, want := show(t, table, "p", j), fmt.Sprintf("c@%d=%d ", startMillis, j); got != want {
					t.Fatalf("after the crash at %d, row %d: got %q, want %q", i, j, got, want)
				}
			}
		}
	}
}

func TestP14_AnIdleTableDoesNotHoldBackTheLog(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 64 << 10, MemtableSize: 8 << 10, WALSegmentSize: 16 << 10})
	idle, busy := r.table("idle", TableOptions{}), r.table("busy", TableOptions{})
	put(t, idle, "p", 1, "c", startMillis, "kept")
	value := string(make([]byte, 1000))
	for i := range 1000 {
		put(t, busy, "p", i, "c", startMillis, value)
		if i%5 == 0 {
			r.exec.RunAll()
		}
		m := r.store.Metrics()
		// One segment more for the flush that is under way, one for rounding.
		if segments := m.LogSegment - m.OldestSegment; segments > logFactor*64/16+2 {
			t.Fatalf("after %d writes the log has %d segments of 16 KiB, with a memory budget of 64 KiB", i, segments)
		}
	}
	r.reopen()
	if got, want := show(t, r.table("idle", TableOptions{}), "p", 1), fmt.Sprintf("c@%d=kept ", startMillis); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

// TestABatchTellsTablesOfTwoStoresApart, which have the same id.
func TestABatchTellsTablesOfTwoStoresApart(t *testing.T) {
	fsys := vfs.NewSim(vfs.SimOptions{})
	var stores [2]*Store
	var tables [2]*Table
	for i, dir := range []string{"/a", "/b"} {
		s, err := Open(dir, Options{Seams: Seams{FS: fsys}})
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		stores[i] = s
		if tables[i], err = s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}}); err != nil {
			t.Fatal(err)
		}
	}
	b := stores[0].NewBatch()
	for _, table := range tables {
		b.Row(table, Key(1)).Put("c", startMillis, row.Integer(1))
	}
	wantError(t, "Apply", stores[0].Apply(ctx(), b), ErrInvalid)
}

func TestLargerBlocksThanTablesTakeAreRefused(t *testing.T) {
	_, err := Open("/store", Options{BlockSize: 1<<20 + 1, Seams: Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
	wantError(t, "Open", err, ErrInvalid)
}

func TestAMemtableTakesAThirdOfTheBudgetAtMost(t *testing.T) {
	for _, c := range []struct{ budget, size, want int64 }{
		{0, 0, 64 << 20}, {192 << 20, 0, 64 << 20}, {96 << 20, 0, 32 << 20}, {96 << 20, 16 << 20, 16 << 20}, {2, 0, 1},
	} {
		opts, err := Options{MemoryBudget: c.budget, MemtableSize: c.size}.withDefaults()
		if err != nil || opts.MemtableSize != c.want {
			t.Errorf("of %d bytes, asked for %d: %d, expected %d, %v", c.budget, c.size, opts.MemtableSize, c.want, err)
		}
	}
}

// TestAMemtableStaysBelowWhatItCanHold: links within one reach 4 GiB.
func TestAMemtableStaysBelowWhatItCanHold(t *testing.T) {
	opts, err := Options{MemoryBudget: 64 * gib, MemtableSize: 16 * gib}.withDefaults()
	if err != nil || opts.MemtableSize > 2*gib {
		t.Errorf("memtables of %d bytes, %v", opts.MemtableSize, err)
	}
}
