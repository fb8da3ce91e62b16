package flagstone

// What readers, snapshots and checkpoints keep, what dropping a table releases, and what a failed
// change leaves behind.

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// faultRig is a rig whose calls to the disk go through a Fault.
func faultRig(t *testing.T, opts Options) (*rig, *vfs.Fault) {
	t.Helper()
	r := newRig(t, opts)
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	fault := vfs.NewFault(r.fs, 1)
	r.exec = executortest.NewManual()
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = fault, r.clock, r.exec
	store, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	r.store = store
	return r, fault
}

func TestP06_ASnapshotNeverChanges(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 2 << 10, TableFileSize: 4 << 10, WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{MaxVersions: 2, TTLSeconds: 1000})
	type held struct {
		*Snapshot
		want string
	}
	var snapshots []held
	check := func() {
		t.Helper()
		for i, sn := range snapshots {
			rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn.Snapshot}})
			var b strings.Builder
			for rows.Next() {
				fmt.Fprintf(&b, "%v %s\n", rows.Row().Key(), cells(rows.Row()))
			}
			rows.Close()
			if rows.Err() != nil || b.String() != sn.want {
				t.Fatalf("snapshot %d: %v\n%s", i, rows.Err(), difference(sn.want, b.String()))
			}
		}
	}
	for i := range 400 {
		switch i % 10 {
		case 3:
			err := table.Update(ctx(), Key("p", i%23), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil })
			if err != nil {
				t.Fatal(err)
			}
		case 7:
			r.clock.Advance(30e9)
		default:
			put(t, table, "p", i%23, "c", r.store.NowMillis(), fmt.Sprint(i))
		}
		if i%50 == 20 {
			sn, err := r.store.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer sn.Close()
			snapshots = append(snapshots, held{Snapshot: sn})
			rows := table.Scan(ctx(), nil, nil, ScanOptions{})
			for rows.Next() {
				snapshots[len(snapshots)-1].want += fmt.Sprintf("%v %s\n", rows.Row().Key(), cells(rows.Row()))
			}
			rows.Close()
		}
		if i%7 == 0 {
			r.exec.RunAll()
		}
		if i%40 == 0 {
			check()
		}
	}
	options := TableOptions{MaxVersions: 1, TTLSeconds: 1}
	if err := table.Alter(ctx(), TableChange{Options: &options}); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if err := r.store.Compact(ctx()); err != nil {
			t.Fatal(err)
		}
		check()
		snapshots[0].Close()
		snapshots = snapshots[1:]
	}
}

func TestAScanKeepsItsFilesAndNoLonger(t *testing.T) {
	r := newRig(t, Options{TableFileSize: 4 << 10})
	table := r.table("t", TableOptions{})
	for i := range 100 {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint("old", i))
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	before := tableFiles(r.fs)
	rows := table.Scan(ctx(), nil, nil, ScanOptions{})
	if !rows.Next() {
		t.Fatal(rows.Err())
	}
	for i := range 100 {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint("new", i))
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	for _, name := range before {
		if _, err := r.fs.Stat("/" + name); err != nil {
			t.Errorf("a scan needs %s: %v", name, err)
		}
	}
	n := 0
	for ok := true; ok; ok = rows.Next() {
		if v, _ := rows.Row().Value("c"); v.Text() != fmt.Sprint("old", n) {
			t.Fatalf("row %d is %v", n, v)
		}
		n++
	}
	if n != 100 || rows.Err() != nil {
		t.Fatalf("%d rows, %v", n, rows.Err())
	}
	rows.Close()
	r.exec.RunAll()
	if problems := strayFiles(r.store, r.fs, nil); len(problems) > 0 {
		t.Errorf("after the scan: %v", problems)
	}
}

func TestReadsUnderWayFinishWhenTheirTableIsDropped(t *testing.T) {
	r := newRig(t, Options{TableFileSize: 4 << 10})
	table, other := r.table("t", TableOptions{}), r.table("other", TableOptions{})
	for i := range 50 {
		put(t, table, "p", i, "c", startMillis, fmt.Sprint(i))
		if i == 30 {
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
		}
	}
	put(t, other, "p", 1, "c", startMillis, "v")
	sn, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer sn.Close()
	begun, early := table.Scan(ctx(), nil, nil, ScanOptions{}), table.Scan(ctx(), nil, nil, ScanOptions{})
	if !begun.Next() {
		t.Fatal(begun.Err())
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	n := 1
	for begun.Next() {
		n++
	}
	if n != 50 || begun.Err() != nil {
		t.Errorf("a scan under way found %d rows, %v", n, begun.Err())
	}
	begun.Close()
	// A scan that had not begun to read must not find an empty table.
	if early.Next() {
		t.Error("a scan of a dropped table finds a row")
	}
	wantError(t, "a scan made before the drop", early.Err(), ErrTableNotFound)
	early.Close()
	for _, read := range []ReadOptions{{}, {Snapshot: sn}} {
		_, err := table.Get(ctx(), Key("p", 1), read)
		wantError(t, "Get", err, ErrTableNotFound)
		rows := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: read})
		rows.Next()
		wantError(t, "Scan", rows.Err(), ErrTableNotFound)
		rows.Close()
	}
	err = table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil })
	wantError(t, "Update", err, ErrTableNotFound)
	b := r.store.NewBatch()
	b.Row(other, Key("p", 2)).PutRow()
	b.Row(table, Key("p", 2)).PutRow()
	wantError(t, "Apply", r.store.Apply(ctx(), b), ErrTableNotFound)
	wantError(t, "Alter", table.Alter(ctx(), TableChange{}), ErrTableNotFound)
	_, err = table.SplitPoints(ctx(), 1, 0)
	wantError(t, "SplitPoints", err, ErrTableNotFound)
	if _, err := r.store.Table("t"); !errors.Is(err, ErrTableNotFound) {
		t.Errorf("Table: %v", err)
	}
	if got := show(t, other, "p", 2); got != "absent" {
		t.Errorf("half of a refused batch: %s", got)
	}
	r.exec.RunAll()
	if files := tableFiles(r.fs); len(files) > 0 {
		t.Errorf("files of the dropped table are left: %v", files)
	}
	if used := r.store.Metrics().MemoryBytes; used > 1000 {
		t.Errorf("%d bytes of memory are still accounted for", used)
	}
	r.reopen()
	if got := show(t, r.table("other", TableOptions{}), "p", 1); !strings.Contains(got, "=v") {
		t.Errorf("the other table holds %q", got)
	}
}

// TestADropThatFailsLeavesTheTable: a full disk refuses the edit. The table must go on working
// and lose nothing, not even what is only in the log.
func TestADropThatFailsLeavesTheTable(t *testing.T) {
	r, fault := faultRig(t, Options{WALSegmentSize: 16 << 10})
	table, other := r.table("t", TableOptions{}), r.table("other", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "precious")
	fault.Add(vfs.Rule{Glob: "MANIFEST-*", Ops: vfs.OpPreallocate, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)})
	for i := 0; ; i++ { // until the manifest needs more space
		err := other.Alter(ctx(), TableChange{Annotations: fmt.Append(nil, i)})
		if err != nil {
			wantError(t, "Alter", err, ErrNoSpace)
			break
		}
	}
	wantError(t, "DropTable", r.store.DropTable(ctx(), "t"), ErrNoSpace)
	fault.Clear()
	if got := show(t, table, "p", 1); !strings.Contains(got, "precious") {
		t.Fatalf("the row is %q", got)
	}
	put(t, table, "p", 2, "c", startMillis, "more")
	for i := range 40 { // the log goes on; the old segments are released
		put(t, other, "p", i, "c", startMillis, "x")
	}
	if _, err := r.store.Table("t"); err != nil {
		t.Fatal(err)
	}
	r.fs = r.fs.Crash(vfs.CrashLoseAll, 1)
	r.store.Close()
	r.open()
	table = r.table("t", TableOptions{})
	if got := show(t, table, "p", 1) + show(t, table, "p", 2); !strings.Contains(got, "precious") || !strings.Contains(got, "more") {
		t.Errorf("after a crash the rows are %q", got)
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
}

// TestTheLogIsKeptWhileADropMayStillFail flushes another table in the middle of
// a drop that then fails.
func TestTheLogIsKeptWhileADropMayStillFail(t *testing.T) {
	r, fault := faultRig(t, Options{WALSegmentSize: 16 << 10})
	table, other := r.table("t", TableOptions{}), r.table("other", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "precious")
	for i := range 20 {
		put(t, other, "p", i, "c", startMillis, "x")
	}
	tree := table.core.Trees()[0]
	_, err := tree.Drop(func() error {
		s := r.store
		retire(s, []*Table{table}, true)
		defer retire(s, []*Table{table}, false)
		if err := s.Flush(context.Background()); err != nil {
			t.Error(err)
		}
		return errors.New("refused")
	})
	if err == nil {
		t.Fatal("the drop did not fail")
	}
	_ = fault
	r.fs = r.fs.Crash(vfs.CrashLoseAll, 1)
	r.store.Close()
	r.open()
	if got := show(t, r.table("t", TableOptions{}), "p", 1); !strings.Contains(got, "precious") {
		t.Errorf("after a crash the row is %q", got)
	}
}

func TestADroppedTableSlowsNobodyDown(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 10})
	table := r.table("t", TableOptions{})
	tree := table.core.Trees()[0]
	for compaction.Depth(tree.Meta().Levels[0]) < pressure.SlowdownDepth {
		put(t, table, "p", 1, "c", startMillis, strings.Repeat("x", 100))
		for j, job := range r.exec.Pending() { // flush, and never compact
			if job.Class == executor.Flush {
				r.exec.Step(j)
				break
			}
		}
	}
	if r.store.Metrics().Pressure == 0 {
		t.Fatal("writers are not slowed: the test is of no use")
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	if p := r.store.Metrics().Pressure; p != 0 {
		t.Errorf("the files of a table that is gone hold writers back: %v", p)
	}
}

// TestATableThatIsBeingDroppedLeavesOtherMemtablesAlone fills half of the memory budget with tables
// that are then dropped. While the drop waits, other memtables must not be rotated because of them.
func TestATableThatIsBeingDroppedLeavesOtherMemtablesAlone(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 64 << 10, MemtableSize: 16 << 10})
	dropped := []*Table{r.table("a", TableOptions{}), r.table("b", TableOptions{})}
	other := r.table("other", TableOptions{})
	memory := func(table *Table) (mutable, waiting int64) { return table.core.Trees()[0].MemoryBytes() }
	for _, table := range dropped {
		for n, used := 0, int64(0); used < 31<<9; n++ {
			put(t, table, "p", n, "c", startMillis, "x")
			used, _ = memory(table)
		}
	}
	if total, waiting := r.store.gate.Bytes(); waiting != 0 || total > 32<<10 {
		t.Fatalf("%d bytes of memtables, %d of them waiting: the test is of no use", total, waiting)
	}
	retire(r.store, dropped, true)
	for n := range 40 {
		put(t, other, "p", n, "c", startMillis, strings.Repeat("x", 100))
	}
	if mutable, waiting := memory(other); waiting != 0 {
		t.Errorf("%d bytes were rotated, %d were not", waiting, mutable)
	}
	retire(r.store, dropped, false) // as if the drop had failed
	if err := r.store.Settle(ctx()); err != nil {
		t.Fatal(err)
	}
	for _, table := range append(dropped, other) {
		if _, waiting := memory(table); waiting != 0 {
			t.Errorf("%d bytes of table %q still wait for a flush", waiting, table.Name())
		}
	}
	want(t, "rows that are left", strings.Count(show(t, dropped[0], "p", 0), "x"), 1)
	if err := r.store.DropTable(ctx(), "a"); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if total, waiting := r.store.gate.Bytes(); total != 0 || waiting != 0 {
		t.Errorf("%d bytes of memtables are left, %d of them waiting", total, waiting)
	}
}

func TestDropAndFlushTogetherKeepTheAccountOfMemory(t *testing.T) {
	for range 30 {
		fsys := vfs.NewSim(vfs.SimOptions{})
		store, err := Open("/store", Options{MemtableSize: 1 << 10, Seams: Seams{FS: fsys}})
		if err != nil {
			t.Fatal(err)
		}
		table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for w := range 3 {
			wg.Go(func() {
				for i := 0; ; i++ {
					err := table.Update(ctx(), Key(fmt.Sprint(w), i), func(_ context.Context, tx *RowTx) error {
						tx.Put("c", startMillis, row.String(strings.Repeat("x", 50)))
						return nil
					})
					if err != nil {
						wantError(t, "Update", err, ErrTableNotFound)
						return
					}
				}
			})
		}
		wg.Go(func() { // deletes of versions read the row and the table's options
			for i := 0; ; i++ {
				err := table.Update(ctx(), Key("0", i%50), func(_ context.Context, tx *RowTx) error {
					tx.DeleteVersion("c", startMillis)
					return nil
				})
				if err != nil {
					wantError(t, "Update", err, ErrTableNotFound)
					return
				}
			}
		})
		for count(t, table, ScanOptions{}) < 60 {
		}
		if err := store.DropTable(ctx(), "t"); err != nil {
			t.Error(err)
		}
		wg.Wait()
		if err := store.Close(); err != nil { // waits for flushes under way
			t.Error(err)
		}
		if total, waiting := store.gate.Bytes(); total != 0 || waiting != 0 {
			t.Errorf("an empty store accounts for %d bytes, %d waiting", total, waiting)
		}
	}
}

func TestADeleteOfAVersionInADroppedTableIsRefused(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "v")
	var c change.Change
	c.Init(table.core, Key("p", 1))
	c.DeleteVersion("c", startMillis)
	p, err := c.Prepare(startMillis)
	if err != nil {
		t.Fatal(err)
	}
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	wantError(t, "WorkOut", c.WorkOut(&p), ErrTableNotFound)
}

// TestP02_ACheckpointIsOneMoment writes batches over two tables while a checkpoint is made, at
// the worst time: after the moment was chosen and before the files are written, with memtables so
// small that they are rotated.
func TestP02_ACheckpointIsOneMoment(t *testing.T) {
	r, fault := faultRig(t, Options{MemtableSize: 1 << 10, MemoryBudget: 1 << 20})
	a, b := r.table("a", TableOptions{}), r.table("b", TableOptions{})
	pair := func(n int) { // called in the middle of a flush: it must not end the test
		t.Helper()
		batch := r.store.NewBatch()
		for _, table := range []*Table{a, b} {
			batch.Row(table, Key("p", n)).Put("c", startMillis, row.String(strings.Repeat("x", 50)))
		}
		if err := r.store.Apply(ctx(), batch); err != nil {
			t.Error(err)
		}
	}
	for n := range 20 {
		pair(n)
	}
	writes := 20
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op == vfs.OpCreate && strings.HasSuffix(c.Name, ".sst") && writes < 60 {
			for range 20 {
				pair(writes)
				writes++
			}
		}
	}})
	if err := r.store.Checkpoint(ctx(), "/copy"); err != nil {
		t.Fatal(err)
	}
	fault.Observe(vfs.Observer{})
	if writes == 20 {
		t.Fatal("nothing was written meanwhile: the test is of no use")
	}
	opts := r.opts
	opts.Seams = Seams{FS: r.fs, Clock: r.clock, Executor: executortest.NewManual()}
	cp, err := Open("/copy", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer cp.Close()
	for _, name := range []string{"a", "b"} {
		table, err := cp.Table(name)
		if err != nil {
			t.Fatal(err)
		}
		if n := count(t, table, ScanOptions{}); n != 20 {
			t.Errorf("table %s has %d rows, want the 20 of the moment", name, n)
		}
	}
	// The copy is a store of its own: it is written to, and the first goes on.
	ta, _ := cp.Table("a")
	put(t, ta, "new", 1, "c", startMillis, "v")
	if err := cp.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*Table{a, b} {
		if n := count(t, table, ScanOptions{}); n != writes {
			t.Errorf("the first store has %d rows, want %d", n, writes)
		}
	}
	wantError(t, "a second checkpoint into it", r.store.Checkpoint(ctx(), "/copy"), ErrInvalid)
}

// TestP11_ARefusedFlushLeavesNoFiles: the manifest cannot take the edit of a
// flush because the disk is full. The table files must go, or each attempt
// fills the disk further.
func TestP11_ARefusedFlushLeavesNoFiles(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	fault.Add(vfs.Rule{Glob: "MANIFEST-*", Ops: vfs.OpPreallocate, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)})
	var err error
	for i := 0; err == nil; i++ {
		put(t, table, "p", i, "c", startMillis, "v")
		err = r.store.Flush(ctx())
	}
	wantError(t, "Flush", err, ErrNoSpace)
	for range 5 {
		wantError(t, "Flush", r.store.Flush(ctx()), ErrNoSpace)
		r.clock.Advance(jobs.RetryAfter)
		r.exec.RunAll()
	}
	if problems := strayFiles(r.store, r.fs, nil); len(problems) > 0 {
		t.Errorf("%v", problems)
	}
	fault.Clear()
	if err := r.store.Flush(ctx()); err != nil {
		t.Errorf("once there is space: %v", err)
	}
}

// TestABatchThatFailedMayBeAppliedAgain: what one attempt decided must not affect the next.
func TestABatchThatFailedMayBeAppliedAgain(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2, MaxVersionOffsetSeconds: 10})
	for _, v := range []int64{9, 10} {
		put(t, table, "p", 1, "c", v, "v")
	}
	b := r.store.NewBatch()
	b.Row(table, Key("p", 1)).DeleteVersion("c", 10)
	b.Row(table, Key("p", 2)).Put("c", startMillis+15_000, row.String("v"))
	wantError(t, "Apply", r.store.Apply(ctx(), b), ErrVersionOutOfRange)
	if got := show(t, table, "p", 1); got != "c@10=v c@9=v " {
		t.Fatalf("a refused batch left %q", got)
	}
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.DeleteVersion("c", 9); return nil })
	if err != nil {
		t.Fatal(err)
	}
	put(t, table, "p", 1, "c", 5, "v")
	r.clock.Advance(10e9)
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	if got := show(t, table, "p", 1); got != "c@5=v " {
		t.Errorf("the row shows %q, want version 5", got)
	}
}

func TestP14_AnIdleTableDoesNotHoldTheLog(t *testing.T) {
	r := newRig(t, Options{MemoryBudget: 64 << 10, MemtableSize: 16 << 10, WALSegmentSize: 16 << 10})
	idle, busy := r.table("idle", TableOptions{}), r.table("busy", TableOptions{})
	put(t, idle, "p", 1, "c", startMillis, "v")
	for i := range 2000 {
		put(t, busy, "p", i, "c", startMillis, "some value")
		r.exec.RunAll()
		if m := r.store.Metrics(); int64(m.LogSegment-m.OldestSegment)*r.opts.WALSegmentSize > 3*r.opts.MemoryBudget {
			t.Fatalf("after %d writes the log begins at segment %d and is at %d", i, m.OldestSegment, m.LogSegment)
		}
	}
	names, err := r.fs.List(filepath.Join("/store", "wal"))
	if err != nil || len(names) > 16 {
		t.Errorf("%d log files, %v", len(names), err)
	}
	r.crash(vfs.CrashLoseAll, 1)
	if got := show(t, r.table("idle", TableOptions{}), "p", 1); !strings.Contains(got, "=v") {
		t.Errorf("the idle table holds %q", got)
	}
}

// TestACheckpointNeverWritesToTheOriginal: files that cannot be linked are copied. A link that is
// reported as failed may have been made, as over a network; then the copy must not be written
// through it.
func TestACheckpointNeverWritesToTheOriginal(t *testing.T) {
	for what, action := range map[string]vfs.Action{
		"not linked":           vfs.FailWith(syscall.ENOTSUP),
		"linked, and an error": vfs.FailAfter(syscall.EIO),
	} {
		r, fault := faultRig(t, Options{})
		table := r.table("t", TableOptions{})
		for i := range 50 {
			put(t, table, "p", i, "c", startMillis, "v")
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		original := "/" + tableFiles(r.fs)[0]
		before, err := r.fs.ReadFile(original)
		if err != nil {
			t.Fatal(err)
		}
		fault.Add(vfs.Rule{Ops: vfs.OpLink, Times: vfs.Forever, Action: action})
		cut := false
		fault.Observe(vfs.Observer{After: func(c vfs.Call, _ error) {
			if now, err := r.fs.ReadFile(original); !cut && (err != nil || !slices.Equal(now, before)) {
				cut = true
				t.Errorf("%s: after %v %s the original has %d bytes, it had %d (%v)", what, c.Op, c.Name, len(now), len(before), err)
			}
		}})
		if err := r.store.Checkpoint(ctx(), "/copy"); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		fault.Observe(vfs.Observer{})
		report, err := Check(ctx(), "/copy", Options{Seams: Seams{FS: r.fs}}, nil)
		if err != nil || len(report.Problems) > 0 || report.Rows != 50 {
			t.Errorf("%s: the copy has %d rows, %v, %v", what, report.Rows, err, report.Problems)
		}
		if n := count(t, table, ScanOptions{}); n != 50 {
			t.Errorf("%s: the original shows %d rows", what, n)
		}
	}
}

// TestADroppedTableLeavesNoFailureBehind drops the table whose flush has failed:
// nothing is left that could succeed in its place.
func TestADroppedTableLeavesNoFailureBehind(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "v")
	fault.Add(vfs.Rule{Glob: "*.sst", Times: vfs.Forever, Ops: vfs.OpCreate, Action: vfs.FailWith(syscall.ENOSPC)})
	wantError(t, "Flush", r.store.Flush(ctx()), ErrNoSpace)
	fault.Clear()
	if err := r.store.DropTable(ctx(), "t"); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Settle(ctx()); err != nil {
		t.Errorf("Settle: %v", err)
	}
	if err := r.store.gate.Stuck(); err != nil {
		t.Error(err)
	}
}
