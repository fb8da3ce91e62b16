package flagstone

// The life of a store: opening, locking, reading only, closing, and what every method returns
// afterwards.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"sync"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/valuefile"
	"github.com/flagstone-db/flagstone/wal"
)

func ctx() context.Context { return context.Background() }

func wantError(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Errorf("%s: got %v, want %v", what, err, want)
	}
	if err == nil {
		return
	}
	for _, prefix := range []string{"flagstone: ", "sstable: ", "valuefile: ", "wal: ", "manifest: "} {
		if n := strings.Count(err.Error(), prefix); n > 1 {
			t.Errorf("%s: %q is said %d times: %v", what, prefix, n, err)
		}
	}
}

func TestAnErrorIsDescribedOnce(t *testing.T) {
	s := &Store{dir: "/store"}
	for cause, want := range map[error]error{
		vfs.ErrLocked: ErrLocked, syscall.ENOSPC: ErrNoSpace, manifest.ErrNotStore: ErrNotStore,
		manifest.ErrCorrupt: ErrCorrupt, wal.ErrCorrupt: ErrCorrupt, sstable.ErrCorrupt: ErrCorrupt, valuefile.ErrCorrupt: ErrCorrupt,
	} {
		wantError(t, fmt.Sprint(cause), s.describe(cause), want)
		wantError(t, fmt.Sprint(cause), s.describe(fmt.Errorf("flush: %w", s.describe(cause))), want)
	}
}

// count counts the rows of a table.
func count(t *testing.T, table *Table, opts ScanOptions) (n int) {
	t.Helper()
	rows := table.Scan(ctx(), nil, nil, opts)
	defer rows.Close()
	for rows.Next() {
		n++
	}
	if rows.Err() != nil {
		t.Fatal(rows.Err())
	}
	return n
}

func tableFiles(fs *vfs.Sim) (files []string) {
	for _, name := range fs.Files() {
		if strings.HasSuffix(name, ".sst") {
			files = append(files, name)
		}
	}
	return files
}

func TestP15_AStoreIsOpenedOnceAtATime(t *testing.T) {
	for name, seams := range map[string]Seams{
		"simulated": {FS: vfs.NewSim(vfs.SimOptions{}), Clock: clocktest.NewManual(startMillis), Executor: executortest.NewManual()},
		"real":      {},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			first, err := Open(dir, Options{Seams: seams})
			if err != nil {
				t.Fatal(err)
			}
			for _, readOnly := range []bool{false, true} {
				_, err = Open(dir, Options{Seams: seams, ReadOnly: readOnly})
				wantError(t, "second Open", err, ErrLocked)
				if err != nil && !strings.Contains(err.Error(), dir) {
					t.Errorf("the error does not name the store: %v", err)
				}
			}
			if _, err := Check(ctx(), dir, Options{Seams: seams}, nil); !errors.Is(err, ErrLocked) {
				t.Errorf("Check of an open store: %v", err)
			}
			if err := first.Close(); err != nil {
				t.Fatal(err)
			}
			again, err := Open(dir, Options{Seams: Seams{FS: seams.FS}})
			if err != nil {
				t.Fatal(err)
			}
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
		})
	}
}

func TestP15_AnOpenThatFailedHoldsNothing(t *testing.T) {
	r := newRig(t, Options{})
	put(t, r.table("t", TableOptions{}), "p", 1, "c", startMillis, "v")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.store.Close()
	fault := vfs.NewFault(r.fs, 1)
	opts := Options{Seams: Seams{FS: fault, Clock: r.clock, Executor: executortest.NewManual()}}
	// Each call fails in turn, until Open makes fewer.
	for nth := int64(1); ; nth++ {
		fault.Clear()
		fault.Add(vfs.Rule{Nth: nth, Action: vfs.FailWith(fs.ErrPermission)})
		before := len(fault.Injected())
		opts.Seams.Executor = executortest.NewManual()
		store, err := Open("/store", opts)
		if err == nil {
			store.Close()
		}
		if open := r.fs.OpenFiles(); len(open) > 0 {
			t.Fatalf("call %d failed: open files: %v (%v)", nth, open, err)
		}
		if nth > 1000 {
			t.Fatal("Open makes too many calls")
		}
		if err == nil && len(fault.Injected()) == before && nth > 50 {
			break
		}
	}
	fault.Clear()
	r.open()
	if got := show(t, r.table("t", TableOptions{}), "p", 1); !strings.Contains(got, "=v") {
		t.Errorf("the row is %q", got)
	}
}

func TestAKilledProcessLeavesAStoreThatOpens(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 2 << 10, WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{})
	for i := range 60 {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint(i))
		if i%9 == 8 {
			r.exec.RunAll()
		}
		if i%20 == 19 {
			old := r.store
			r.fs = r.fs.Kill()
			old.Close()
			r.open()
			table = r.table("t", TableOptions{})
			for j := range i + 1 {
				if got, want := show(t, table, "p", j), fmt.Sprintf("c@%d=%d ", startMillis, j); got != want {
					t.Fatalf("killed after %d: row %d is %q, want %q", i, j, got, want)
				}
			}
		}
	}
}

func TestReadOnlyWritesNothingAndSeesTheLog(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 2 << 10, WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{MaxVersions: 2})
	for i := range 80 {
		put(t, table, "p", i%40, "c", int64(startMillis+i), fmt.Sprint(i))
		if i == 50 {
			r.exec.RunAll()
		}
	}
	want, err := readAll(r.store)
	if err != nil {
		t.Fatal(err)
	}
	crashed := r.fs.Image(vfs.CrashLoseAll, 1)
	if err := r.store.Compact(ctx()); err != nil { // the inputs are not deleted yet
		t.Fatal(err)
	}
	for name, fsys := range map[string]*vfs.Sim{
		"after a crash": crashed, "with orphans": r.fs.Image(vfs.CrashKeepAll, 1), "after a close": nil,
	} {
		if fsys == nil {
			if err := r.store.Close(); err != nil {
				t.Fatal(err)
			}
			fsys = r.fs
		}
		t.Run(name, func(t *testing.T) { checkReadOnly(t, fsys, want) })
	}
}

func checkReadOnly(t *testing.T, fsys *vfs.Sim, want string) {
	before := fsys.Digest()
	fault := vfs.NewFault(fsys, 1)
	man := clocktest.NewManual(startMillis)
	store, err := Open("/store", Options{
		ReadOnly: true, MemtableSize: 2 << 10, MemoryBudget: 4 << 10,
		Seams: Seams{FS: fault, Clock: man, Executor: executortest.NewManual()},
	})
	if err != nil {
		t.Fatal(err)
	}
	if got, err := readAll(store); err != nil || got != want {
		t.Fatalf("%v\n%s", err, difference(want, got))
	}
	for what, err := range writesOf(store, "t") {
		wantError(t, what, err, ErrReadOnly)
	}
	man.Advance(2 * upkeep.IdlePeriod)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if n := fault.Calls(vfs.OpMutating); n != 0 {
		t.Errorf("%d calls that change the disk", n)
	}
	if fsys.Digest() != before {
		t.Error("the disk has changed")
	}
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Errorf("open files: %v", open)
	}
}

// writesOf calls every method that changes a store, or the table of that name.
func writesOf(store *Store, name string) map[string]error {
	errs := map[string]error{}
	_, errs["CreateTable"] = store.CreateTable(ctx(), TableSpec{Name: "new", Key: []KeyColumn{{Name: "k", Type: row.TypeString}}})
	errs["DropTable"] = store.DropTable(ctx(), name)
	errs["Flush"] = store.Flush(ctx())
	errs["Compact"] = store.Compact(ctx())
	errs["Checkpoint"] = store.Checkpoint(ctx(), "/copy")
	errs["Apply of nothing"] = store.Apply(ctx(), store.NewBatch())
	if table := store.tables.current.Load().byName[name]; table != nil {
		change := func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil }
		b := store.NewBatch()
		b.Row(table, Key("p", 1)).PutRow()
		errs["Apply"] = store.Apply(ctx(), b)
		_, errs["ApplyAsync"] = store.ApplyAsync(ctx(), b)
		errs["Update"] = table.Update(ctx(), Key("p", 1), change)
		_, errs["UpdateAsync"] = table.UpdateAsync(ctx(), Key("p", 1), change)
		errs["Alter"] = table.Alter(ctx(), TableChange{Annotations: []byte("x")})
	}
	return errs
}

func TestEveryMethodOfAClosedStoreSaysSo(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "v")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	put(t, table, "p", 2, "c", startMillis, "v")
	sn, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	early := table.Scan(ctx(), nil, nil, ScanOptions{})
	begun := table.Scan(ctx(), nil, nil, ScanOptions{})
	if !begun.Next() {
		t.Fatal(begun.Err())
	}
	for range 2 {
		if err := r.store.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	for what, err := range writesOf(r.store, "t") {
		wantError(t, what, err, ErrClosed)
	}
	_, err = r.store.Table("t")
	wantError(t, "Table", err, ErrClosed)
	_, err = r.store.Snapshot()
	wantError(t, "Snapshot", err, ErrClosed)
	for what, snapshot := range map[string]*Snapshot{"": nil, " at a snapshot": sn} {
		read := ReadOptions{Snapshot: snapshot}
		_, err = table.Get(ctx(), Key("p", 1), read)
		wantError(t, "Get"+what, err, ErrClosed)
		rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: read})
		if rows.Next() {
			t.Errorf("Scan%s finds a row", what)
		}
		wantError(t, "Scan"+what, rows.Err(), ErrClosed)
		rows.Close()
	}
	if early.Next() {
		t.Error("a scan that was made before finds a row")
	}
	wantError(t, "a scan that was made before", early.Err(), ErrClosed)
	early.Close()
	_, err = table.SplitPoints(ctx(), 100, 0)
	wantError(t, "SplitPoints", err, ErrClosed)
	// A scan in progress may finish, since it keeps what it needs.
	for begun.Next() {
	}
	if begun.Err() != nil && !errors.Is(begun.Err(), ErrClosed) {
		t.Errorf("a scan that was under way: %v", begun.Err())
	}
	begun.Close()
	sn.Close()
	sn.Close()
	table.Info()
	r.store.Metrics()
	r.store.Tables()
	if open := r.fs.OpenFiles(); len(open) > 0 {
		t.Errorf("open files: %v", open)
	}
	if n := r.clock.Timers(); n > 0 {
		t.Errorf("%d timers", n)
	}
}

func TestAClosedSnapshotIsNotReadFrom(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "v")
	sn, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	sn.Close()
	_, err = table.Get(ctx(), Key("p", 1), ReadOptions{Snapshot: sn})
	wantError(t, "Get", err, ErrClosed)
	rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}})
	defer rows.Close()
	if rows.Next() {
		t.Error("Scan finds a row")
	}
	wantError(t, "Scan", rows.Err(), ErrClosed)
}

func TestWhatBelongsToAnotherStoreIsRefused(t *testing.T) {
	a, b := newRig(t, Options{}), newRig(t, Options{})
	ta, tb := a.table("t", TableOptions{}), b.table("t", TableOptions{})
	put(t, tb, "p", 1, "c", startMillis, "v")
	sn, err := a.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	_, err = tb.Get(ctx(), Key("p", 1), ReadOptions{Snapshot: sn})
	wantError(t, "Get", err, ErrInvalid)
	rows := tb.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}})
	rows.Next()
	wantError(t, "Scan", rows.Err(), ErrInvalid)
	rows.Close()
	batch := b.store.NewBatch()
	batch.Row(ta, Key("p", 1)).PutRow()
	wantError(t, "Apply", b.store.Apply(ctx(), batch), ErrInvalid)
}

func TestOptionsAreValidated(t *testing.T) {
	fsys := vfs.NewSim(vfs.SimOptions{})
	for name, opts := range map[string]Options{
		"MemoryBudget":   {MemoryBudget: -1},
		"MemtableSize":   {MemtableSize: -1},
		"TableFileSize":  {TableFileSize: -1},
		"WALSegmentSize": {WALSegmentSize: -1},
		"CacheSize":      {CacheSize: -1},
		"Sync":           {Sync: 7},
		"Compression":    {Compression: 7},
		"LogCompression": {LogCompression: 7},
	} {
		opts.Seams.FS = fsys
		_, err := Open("/store", opts)
		wantError(t, name, err, ErrInvalid)
		if err != nil && !strings.Contains(err.Error(), name) {
			t.Errorf("the error does not name %s: %v", name, err)
		}
	}
	if files := fsys.Files(); len(files) > 0 {
		t.Errorf("files were made: %v", files)
	}
	// One byte of everything is a legal store.
	r := newRig(t, Options{MemoryBudget: 1, MemtableSize: 1, TableFileSize: 1, WALSegmentSize: 1, PartitionSplitSize: 1, CacheSize: 1})
	table := r.table("t", TableOptions{})
	for i := range 30 {
		put(t, table, "p", i, "c", startMillis, "v")
	}
	r.exec.RunAll()
	r.reopen()
	if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 30 {
		t.Errorf("%d rows, want 30", n)
	}
}

func TestTableOptionsAreValidated(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	before := table.Info()
	for _, o := range []TableOptions{
		{MaxVersions: -1}, {TTLSeconds: -2}, {MaxVersionOffsetSeconds: -1},
	} {
		_, err := r.store.CreateTable(ctx(), TableSpec{Name: "new", Key: before.Key, Options: o})
		wantError(t, fmt.Sprintf("CreateTable with %+v", o), err, ErrInvalid)
		wantError(t, fmt.Sprintf("Alter to %+v", o), table.Alter(ctx(), TableChange{Options: &o}), ErrInvalid)
	}
	for _, spec := range []TableSpec{
		{Name: "", Key: before.Key}, {Name: "a\x00b", Key: before.Key}, {Name: "new"},
		{Name: "new", Key: []KeyColumn{{Name: "k", Type: row.TypeDouble}}},
		{Name: "new", Key: []KeyColumn{{Name: "", Type: row.TypeString}}},
	} {
		_, err := r.store.CreateTable(ctx(), spec)
		wantError(t, fmt.Sprintf("CreateTable of %+v", spec), err, ErrInvalid)
	}
	_, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: before.Key})
	wantError(t, "CreateTable twice", err, ErrTableExists)
	wantError(t, "DropTable of nothing", r.store.DropTable(ctx(), "none"), ErrTableNotFound)
	if tables := r.store.Tables(); len(tables) != 1 || fmt.Sprint(table.Info()) != fmt.Sprint(before) {
		t.Errorf("the catalogue has changed: %v %v", tables, table.Info())
	}
}

func TestStoresShareACacheAndWorkers(t *testing.T) {
	defer goleak.VerifyNone(t)
	shared := NewShared(1 << 20)
	fsys := vfs.NewSim(vfs.SimOptions{})
	const stores, rows = 4, 300
	var wg sync.WaitGroup
	for i := range stores {
		wg.Go(func() {
			store, err := Open(fmt.Sprint("/store", i), Options{
				Shared: shared, MemtableSize: 4 << 10, TableFileSize: 8 << 10, WALSegmentSize: 32 << 10,
				Seams: Seams{FS: fsys},
			})
			if err != nil {
				t.Error(err)
				return
			}
			defer store.Close()
			table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
			for k := range rows {
				if err == nil {
					err = table.Update(ctx(), Key(k), func(_ context.Context, tx *RowTx) error {
						tx.Put("c", startMillis, row.String(fmt.Sprint(i, "-", k)))
						return nil
					})
				}
			}
			if err == nil {
				err = store.Compact(ctx())
			}
			// Every store has table files of the same numbers and offsets: the
			// cache must not mix them up.
			for range 2 {
				for k := range rows {
					var r *Row
					if err == nil {
						r, err = table.Get(ctx(), Key(k), ReadOptions{})
					}
					if err != nil {
						t.Error(err)
						return
					}
					if v, _ := r.Value("c"); v.Text() != fmt.Sprint(i, "-", k) {
						t.Errorf("store %d, row %d: %v", i, k, v)
					}
				}
			}
		})
	}
	wg.Wait()
	if err := shared.Close(); err != nil {
		t.Error(err)
	}
	if open := fsys.OpenFiles(); len(open) > 0 {
		t.Errorf("open files: %v", open)
	}
}

func TestNoGoroutineSurvivesClose(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		dir := t.TempDir()
		for round := range 2 {
			store, err := Open(dir, Options{Sync: sync, MemtableSize: 4 << 10, TableFileSize: 8 << 10, WALSegmentSize: 64 << 10})
			if err != nil {
				t.Fatal(err)
			}
			table, err := store.Table("t")
			if round == 0 {
				table, err = store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
			}
			if err != nil {
				t.Fatal(err)
			}
			if n := count(t, table, ScanOptions{}); n != round*100 {
				t.Errorf("%d rows, want %d", n, round*100)
			}
			for i := range 100 {
				put(t, table, fmt.Sprint("p", round), i, "c", startMillis, "some value of a few bytes")
			}
			if err := store.Close(); err != nil { // with flushes and compactions under way
				t.Fatal(err)
			}
		}
	}
}

// TestCloseWaitsForWhatIsUnderWay closes a store while others flush, compact,
// check-point and change its tables.
func TestCloseWaitsForWhatIsUnderWay(t *testing.T) {
	defer goleak.VerifyNone(t)
	for round := range 12 {
		fsys := vfs.NewSim(vfs.SimOptions{})
		store, err := Open("/store", Options{
			MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, Seams: Seams{FS: fsys},
		})
		if err != nil {
			t.Fatal(err)
		}
		table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
		if err != nil {
			t.Fatal(err)
		}
		for i := range 100 {
			put(t, table, "p", i, "c", startMillis, "v")
		}
		started := make(chan struct{})
		var wg sync.WaitGroup
		for worker, do := range []func(i int) error{
			func(int) error { return store.Flush(ctx()) },
			func(int) error { return store.Compact(ctx()) },
			func(i int) error { return store.Checkpoint(ctx(), fmt.Sprint("/copy", i)) },
			func(i int) error {
				return table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: int64(1 + i%2)}})
			},
			func(i int) error {
				name := fmt.Sprint("t", i)
				if _, err := store.CreateTable(ctx(), TableSpec{Name: name, Key: []KeyColumn{{Name: "k", Type: row.TypeString}}}); err != nil {
					return err
				}
				return store.DropTable(ctx(), name)
			},
			func(i int) error {
				return table.Update(ctx(), Key("q", i), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil })
			},
			func(i int) error { _, err := table.Get(ctx(), Key("p", i%100), ReadOptions{}); return err },
			func(int) error { _, err := table.SplitPoints(ctx(), 100, 0); return err },
		} {
			wg.Go(func() {
				<-started
				for i := 0; ; i++ {
					if err := do(i); err != nil {
						if !errors.Is(err, ErrClosed) {
							t.Errorf("worker %d: %v", worker, err)
						}
						return
					}
				}
			})
		}
		close(started)
		for i := range round * 5 {
			table.Get(ctx(), Key("p", i), ReadOptions{})
		}
		if err := store.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		wg.Wait()
		if open := fsys.OpenFiles(); len(open) > 0 {
			t.Errorf("open files: %v", open)
		}
		report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: fsys}}, nil)
		if err != nil || len(report.Problems) > 0 {
			t.Fatalf("check: %v %v", err, report.Problems)
		}
	}
}
