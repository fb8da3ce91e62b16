package flagstone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// bulk is a bulk load of rows (p, from) to (p, to-1), not committed.
func bulk(t *testing.T, table *Table, pk string, from, to int, value string) *BulkWriter {
	t.Helper()
	w, err := table.BulkLoad(ctx(), BulkOptions{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	for i := from; i < to; i++ {
		if err := w.Put(Key(pk, i), BulkCell{"c", startMillis, row.String(value)}); err != nil {
			t.Fatal(err)
		}
	}
	return w
}

// orphans is how many table and value files there are that the manifest does not name.
func (r *rig) orphans() int {
	r.t.Helper()
	inventory, err := manifest.TakeInventory(r.fs, "/store", r.store.state())
	if err != nil {
		r.t.Fatal(err)
	}
	return len(inventory.Orphans)
}

func TestABulkLoadIsSeenAsAWholeAndNotBySnapshots(t *testing.T) {
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		r := newRig(t, Options{Sync: sync, MemtableSize: 8 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, MemoryBudget: 64 << 10})
		table := r.table("t", TableOptions{})
		put(t, table, "a", 1, "c", startMillis, "other")
		put(t, table, "z", 1, "c", startMillis, "other")
		large := strings.Repeat("x", 2<<10)
		w := bulk(t, table, "p", 0, 50, large)
		if got := show(t, table, "p", 1); got != "absent" {
			t.Errorf("before the commit a row is %q", got)
		}
		before, err := r.store.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		open := table.Scan(ctx(), nil, nil, ScanOptions{})
		if err := w.Commit(ctx()); err != nil {
			t.Fatal(err)
		}
		want := fmt.Sprintf("c@%d=%s ", startMillis, large)
		check := func() {
			t.Helper()
			for i := range 50 {
				if got := show(t, table, "p", i); got != want {
					t.Fatalf("row %d is %.50q", i, got)
				}
			}
			if got := show(t, table, "p", 50) + show(t, table, "a", 1); got != fmt.Sprintf("absentc@%d=other ", startMillis) {
				t.Fatalf("other rows: %q", got)
			}
		}
		check()
		old, err := table.Get(ctx(), Key("p", 1), ReadOptions{Snapshot: before})
		if err != nil || old.Exists() {
			t.Errorf("the snapshot shows %v, %v", old, err)
		}
		n := 0
		for open.Next() {
			n++
		}
		if err := open.Close(); n != 2 || err != nil {
			t.Errorf("the scan that was open found %d rows, %v", n, err)
		}
		// What comes later lies over it.
		put(t, table, "p", 7, "d", startMillis, "later")
		if got := show(t, table, "p", 7); got != want+fmt.Sprintf("d@%d=later ", startMillis) {
			t.Errorf("row 7 is %.50q", got)
		}
		if err := table.Delete(ctx(), Key("p", 7)); err != nil {
			t.Fatal(err)
		}
		put(t, table, "p", 7, "c", startMillis, large)
		before.Close()
		if err := table.Split(ctx(), row.String("p")); err != nil {
			t.Fatal(err)
		}
		r.exec.RunAll()
		check()
		r.reopen()
		table = r.table("t", TableOptions{})
		check()
		r.crash(vfs.CrashLoseAll, 1)
		table = r.table("t", TableOptions{})
		check()
		if err := r.store.Compact(ctx()); err != nil {
			t.Fatal(err)
		}
		check()
		r.checkStore()
	}
}

// checkStore closes the store and verifies it.
func (r *rig) checkStore() {
	r.t.Helper()
	r.exec.RunAll()
	// What was begun before a crash, after the last edit of the manifest, goes with the second opening.
	r.reopen()
	r.exec.RunAll()
	if err := r.store.Close(); err != nil {
		r.t.Fatal(err)
	}
	report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil)
	if err != nil || len(report.Problems) > 0 || len(report.Orphans) > 0 {
		r.t.Fatalf("%+v, %v", report, err)
	}
	r.open()
}

func TestABulkLoadRefusesWhatAPutRefuses(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersionOffsetSeconds: 10})
	w := bulk(t, table, "p", 5, 6, "v")
	for what, c := range map[string]struct {
		key   []row.Value
		cell  BulkCell
		match error
		text  string
	}{
		"the same key":           {Key("p", 5), BulkCell{"c", 1, row.Integer(1)}, ErrInvalid, `row ["p" 5] after row ["p" 5]`},
		"a smaller key":          {Key("p", 4), BulkCell{"c", 1, row.Integer(1)}, ErrInvalid, `row ["p" 4] after row ["p" 5]`},
		"a short key":            {Key("q"), BulkCell{"c", 1, row.Integer(1)}, ErrInvalid, "key values"},
		"a column of no name":    {Key("q", 1), BulkCell{"", 1, row.Integer(1)}, ErrInvalid, "column name"},
		"a version of to-morrow": {Key("q", 1), BulkCell{"c", startMillis + 11_000, row.Integer(1)}, ErrVersionOutOfRange, "offset 10 s"},
	} {
		if err := w.Put(c.key, c.cell); !errors.Is(err, c.match) || !strings.Contains(err.Error(), c.text) {
			t.Errorf("%s: %v", what, err)
		}
	}
	// The load goes on; a row without cells exists, and one at Now has the time of the call.
	if err := errors.Join(w.Put(Key("q", 2)), w.Put(Key("q", 3), BulkCell{"c", Now, row.String("v")})); err != nil {
		t.Fatal(err)
	}
	if err := w.Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	got := show(t, table, "p", 4) + "," + show(t, table, "q", 1) + "," + show(t, table, "q", 2) + "," + show(t, table, "q", 3)
	if want := fmt.Sprintf("absent,absent,,c@%d=v ", startMillis); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if err := w.Put(Key("z", 1)); !errors.Is(err, ErrInvalid) {
		t.Errorf("a row after the end: %v", err)
	}
}

func TestABulkLoadIntoARangeWithRowsIsRefused(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, MemoryBudget: 32 << 10})
	table := r.table("t", TableOptions{})
	refused := func(w *BulkWriter, match error) {
		t.Helper()
		if err := w.Commit(ctx()); !errors.Is(err, match) {
			t.Fatalf("the commit returns %v, want %v", err, match)
		}
		if n := r.orphans(); n != 0 {
			t.Fatalf("%d files are left", n)
		}
	}
	w := bulk(t, table, "p", 0, 3000, "v")
	written := r.orphans()
	if err := errors.Join(w.Abort(), w.Abort()); err != nil || written == 0 || r.orphans() != 0 {
		t.Errorf("the abort leaves %d of %d files, %v", r.orphans(), written, err)
	}

	tx, err := table.Begin(ctx(), row.String("p"), TransactionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	refused(bulk(t, table, "o", 0, 1, "v").and(t, "q"), ErrConflict)
	tx.Abort()
	tx, err = table.Begin(ctx(), row.String("r"), TransactionOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Abort()

	err = table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 100}}})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := table.BulkLoad(ctx(), BulkOptions{}); !errors.Is(err, ErrStreamExists) {
		t.Errorf("a table with a stream: %v", err)
	}
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{}}); err != nil {
		t.Fatal(err)
	}

	// A row that was written during the load, still in memory: it is flushed, and the load refused.
	w = bulk(t, table, "p", 0, 100, "v")
	put(t, table, "p", 50, "c", startMillis, "mine")
	if err := w.Commit(ctx()); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), `not empty: table "t" has row ["p" 50]`) {
		t.Fatal(err)
	}
	// Rows that were deleted do not matter; the load lies over them.
	if err := table.Delete(ctx(), Key("p", 50)); err != nil {
		t.Fatal(err)
	}
	if err := bulk(t, table, "p", 0, 100, "v").Commit(ctx()); err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if got, want := show(t, table, "p", i), fmt.Sprintf("c@%d=v ", startMillis); got != want {
			t.Fatalf("row %d is %q", i, got)
		}
	}
	r.exec.RunAll()
	r.checkStore()
}

// and adds one more row to a load.
func (w *BulkWriter) and(t *testing.T, pk string) *BulkWriter {
	if err := w.Put(Key(pk, 1)); err != nil {
		t.Fatal(err)
	}
	return w
}

// TestAnUpdateThatReadBeforeABulkLoadRunsAgain lets a load be committed between the read of a long update, without
// latches, and its write.
func TestAnUpdateThatReadBeforeABulkLoadRunsAgain(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "z", 1, "c", startMillis, "in memory")
	var saw []bool
	err := table.Update(ctx(), Key("p", 5), func(_ context.Context, tx *RowTx) error {
		if err := tx.Unlatch(); err != nil {
			return err
		}
		exists, err := tx.Exists()
		if err != nil {
			return err
		}
		if saw = append(saw, exists); len(saw) == 1 {
			if err := bulk(t, table, "p", 0, 10, "v").Commit(ctx()); err != nil {
				return err
			}
		}
		tx.Put("d", startMillis, row.Boolean(exists))
		return nil
	})
	if err != nil || !slices.Equal(saw, []bool{false, true}) {
		t.Errorf("the update saw %v, %v", saw, err)
	}
}

// TestABulkLoadKeepsTheLimitsOfItsTable loads versions beyond the limit and some that expire.
func TestABulkLoadKeepsTheLimitsOfItsTable(t *testing.T) {
	r := newRig(t, Options{})
	believeClock(r.clock)
	now := r.store.NowMillis()
	table := r.table("t", TableOptions{MaxVersions: 2, TTLSeconds: 100})
	w := bulk(t, table, "o", 0, 0, "")
	err := errors.Join(
		w.Put(Key("p", 1), BulkCell{"c", now - 2, row.String("2")}, BulkCell{"c", now, row.String("0")}, BulkCell{"c", now - 1, row.String("1")}),
		w.Put(Key("p", 2), BulkCell{"c", now - 200_000, row.String("expired")}, BulkCell{"d", now - 99_000, row.String("soon")}),
		w.Commit(ctx()),
	)
	if err != nil {
		t.Fatal(err)
	}
	check := func(want1, want2 string) {
		t.Helper()
		for n, want := range []string{1: want1, 2: want2} {
			got, err := table.Get(ctx(), Key("p", n), ReadOptions{MaxVersions: 9})
			if err != nil || want != "" && cells(got) != want || got.Exists() != (want != "") {
				t.Errorf("row %d: %v, %v, want %q", n, got, err, want)
			}
		}
	}
	two := fmt.Sprintf("c@%d=0 c@%d=1 ", now, now-1)
	check(two, fmt.Sprintf("d@%d=soon ", now-99_000))
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	check(two, fmt.Sprintf("d@%d=soon ", now-99_000))
	r.clock.Advance(2 * time.Second)
	check(two, "")
	// An expired row is no row: a load may lie over it.
	w = bulk(t, table, "o", 0, 0, "")
	if err := errors.Join(w.Put(Key("p", 2), BulkCell{"c", Now, row.String("new")}), w.Commit(ctx())); err != nil {
		t.Fatal(err)
	}
	check(two, fmt.Sprintf("c@%d=new ", r.store.NowMillis()))
}

// TestNoCellOfAnExpiredRowComesBackAmongThoseOfALoad loads over a row that readers do not see any more: the load is
// refused as long as a longer Time To Live, or a clock that is set back, could show it again.
func TestNoCellOfAnExpiredRowComesBackAmongThoseOfALoad(t *testing.T) {
	r := newRig(t, Options{})
	now := r.store.NowMillis()
	table := r.table("t", TableOptions{TTLSeconds: 100, MaxVersions: 1})
	for version := range int64(3) {
		put(t, table, "p", 1, "old", now+version, "expired")
		put(t, table, "p", 2, "old", now+version, "deleted")
	}
	if err := table.Delete(ctx(), Key("p", 2)); err != nil {
		t.Fatal(err)
	}
	load := func() error {
		w := bulk(t, table, "o", 0, 0, "")
		return errors.Join(
			w.Put(Key("p", 1), BulkCell{"c", now + 4000_000, row.String("new")}),
			w.Put(Key("p", 2), BulkCell{"c", now + 4000_000, row.String("new")}),
			w.Commit(ctx()))
	}
	wantError(t, "a load over a row", load(), ErrConflict)
	r.clock.Advance(200 * time.Second)
	if got := show(t, table, "p", 1); got != "absent" {
		t.Fatalf("the row is %q", got)
	}
	wantError(t, "a load over an expired row, by a clock that is not trusted yet", load(), ErrConflict)
	believeClock(r.clock)
	r.store.trusted.Look()
	if err := load(); err != nil {
		t.Fatal(err)
	}
	for _, step := range []func() error{
		func() error { return nil },
		func() error { r.clock.SetWall(now); return nil },
		func() error { return table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 9}}) },
		func() error {
			return table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 9, TTLSeconds: 1 << 40}})
		},
		func() error { r.reopen(); table = r.table("t", TableOptions{}); return nil },
		func() error { return r.store.Compact(ctx()) },
	} {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		for n := 1; n <= 2; n++ {
			got, err := table.Get(ctx(), Key("p", n), ReadOptions{MaxVersions: 9})
			if want := fmt.Sprintf("c@%d=new ", now+4000_000); err != nil || cells(got) != want {
				t.Fatalf("row %d is %v, %v, want %q", n, got, err, want)
			}
		}
	}
}

// TestOtherWritersFailOnlyWhileFilesAreAdded commits a load over many deleted rows. An update of a row of the range that
// changes nothing is tried at each call of the file system meanwhile: it must fail at a few of them only.
func TestOtherWritersFailOnlyWhileFilesAreAdded(t *testing.T) {
	r, fault := faultRig(t, Options{MemtableSize: 16 << 10, TableFileSize: 4 << 10, CacheSize: 1, BlockSize: 512})
	table := r.table("t", TableOptions{})
	for i := range 2000 {
		put(t, table, "p", i, "c", startMillis, "deleted")
	}
	snapshot, err := r.store.Snapshot() // keeps the deleted rows
	if err != nil {
		t.Fatal(err)
	}
	defer snapshot.Close()
	for i := range 2000 {
		if err := table.Delete(ctx(), Key("p", i)); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.exec.RunAll()
	w := bulk(t, table, "p", 0, 2000, "v")
	free, failed := 0, 0
	fault.Observe(vfs.Observer{Before: func(vfs.Call) {
		err := table.Update(ctx(), Key("p", 7), func(context.Context, *RowTx) error { return nil })
		if errors.Is(err, ErrConflict) {
			failed++
		} else if free++; err != nil {
			t.Error(err)
		}
	}})
	err = w.Commit(ctx())
	fault.Observe(vfs.Observer{})
	t.Logf("%d calls while other writers go on, %d while they fail", free, failed)
	if err != nil || failed == 0 || failed*4 > free {
		t.Errorf("other writers fail at %d calls, and go on at %d: %v", failed, free, err)
	}
}

// TestARowWrittenWhileALoadIsCommittedIsNotLost puts a row into the range of a load at each read of a table file of
// the commit: the put fails, or the load is refused.
func TestARowWrittenWhileALoadIsCommittedIsNotLost(t *testing.T) {
	noticed, refused := 0, 0
	for n := 1; ; n++ {
		r, fault := faultRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, CacheSize: 1, BlockSize: 512})
		table := r.table("t", TableOptions{})
		for i := range 40 {
			put(t, table, "p", i, "c", startMillis, strings.Repeat("x", 100))
		}
		snapshot, err := r.store.Snapshot() // keeps the deleted rows
		if err != nil {
			t.Fatal(err)
		}
		for i := range 40 {
			if err := table.Delete(ctx(), Key("p", i)); err != nil {
				t.Fatal(err)
			}
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		w := bulk(t, table, "p", 0, 40, "v")
		reads, written := 0, errors.New("not tried")
		fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
			if c.Op == vfs.OpReadAt && strings.HasSuffix(c.Name, ".sst") {
				if reads++; reads == n {
					written = table.Put(ctx(), Key("p", 7), "c", startMillis, row.String("mine"))
				}
			}
		}})
		err = w.Commit(ctx())
		fault.Observe(vfs.Observer{})
		snapshot.Close()
		want := "v"
		switch {
		case written == nil:
			noticed, want = noticed+1, "mine"
			wantError(t, "a load over a row", err, ErrConflict)
		case errors.Is(written, ErrConflict):
			refused++
			fallthrough
		default:
			wantError(t, "a load", err, nil)
		}
		if got := show(t, table, "p", 7); got != fmt.Sprintf("c@%d=%s ", startMillis, want) {
			t.Fatalf("read %d: the row is %q, want %q", n, got, want)
		}
		if reads < n {
			t.Logf("%d reads: %d loads and %d puts were refused", reads, noticed, refused)
			return
		}
	}
}

// TestABulkLoadIntoARangeThatIsWrittenAllTheTime loads rows while others delete rows there.
func TestABulkLoadIntoARangeThatIsWrittenAllTheTime(t *testing.T) {
	s, err := Open(t.TempDir(), Options{MemtableSize: 32 << 10, Sync: SyncNone})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 2000
	w := bulk(t, table, "p", 0, rows, "v")
	var stop atomic.Bool
	var deleters sync.WaitGroup
	for range 2 {
		deleters.Go(func() {
			for !stop.Load() {
				// Odd rows stay.
				if err := table.Delete(ctx(), Key("p", 2*rand.IntN(rows/2))); err != nil && !errors.Is(err, ErrConflict) {
					t.Error(err)
				}
			}
		})
	}
	err = w.Commit(ctx())
	stop.Store(true)
	deleters.Wait()
	if err != nil {
		t.Fatal(err)
	}
	for n := 1; n < rows; n += 2 {
		if got := show(t, table, "p", n); got != fmt.Sprintf("c@%d=v ", startMillis) {
			t.Fatalf("row %d is %q", n, got)
		}
	}
}

// TestBulkLoadsAgainstAModel loads ranges beside puts, deletes, splits, merges, flushes, compactions, snapshots and
// reopenings. A load succeeds if its range has no row, and then all of it is there.
func TestBulkLoadsAgainstAModel(t *testing.T) {
	runs := 12
	if testing.Short() {
		runs = 3
	}
	for i := range runs {
		seed := rand.Uint64()
		if n, _ := strconv.ParseUint(os.Getenv("FLAGSTONE_SEED"), 10, 64); n > 0 && i == 0 {
			seed = n
		}
		t.Run("", func(t *testing.T) { loadAgainstAModel(newDivided(t, seed)) })
	}
}

func loadAgainstAModel(d *divided) {
	t := d.t
	if err := d.table.Alter(ctx(), TableChange{Stream: &StreamChange{}}); err != nil { // loads write no records
		t.Fatal(err)
	}
	var snapshot *Snapshot
	var then map[[2]int]string
	loads, refused := 0, 0
	for step := range 400 {
		var err error
		what := "nothing"
		switch d.rng.IntN(8) {
		case 0:
			occupied := false
			what = "load"
			if occupied, err = d.load(); occupied {
				refused++
			}
			loads++
		case 1: // room for loads
			what = "deletes"
			from := d.rng.IntN(dividedKeys)
			for key := range maps.Clone(d.model) {
				if key[0] >= from && key[0] < from+8 {
					err = errors.Join(err, d.table.Delete(ctx(), Key(partitionKey(key[0]), key[1])))
					delete(d.model, key)
				}
			}
		case 2:
			what = "snapshot"
			if snapshot == nil {
				snapshot, err = d.store.Snapshot()
				then = maps.Clone(d.model)
			} else if d.rng.IntN(4) == 0 {
				d.check(then, snapshot)
				snapshot.Close()
				snapshot = nil
			}
		case 3:
			if snapshot == nil && d.rng.IntN(4) == 0 {
				what = "reopening"
				if d.rng.IntN(2) == 0 {
					d.reopen()
				} else {
					d.crash(vfs.CrashLoseAll, d.rng.Uint64())
				}
				d.table = d.rig.table("t", TableOptions{})
			}
		default:
			what, err = d.step()
		}
		if err != nil {
			t.Fatalf("step %d: %s: %v", step, what, err)
		}
		if step%20 == 0 {
			d.check(d.model, nil)
		}
	}
	t.Logf("%d loads, %d into ranges with rows", loads, refused)
	if snapshot != nil {
		d.check(then, snapshot)
		snapshot.Close()
	}
	d.check(d.model, nil)
	d.exec.RunAll()
	d.checkStore()
	d.table = d.rig.table("t", TableOptions{})
	d.check(d.model, nil)
}

// load loads rows from anywhere, with other work before the commit. occupied says that it is refused.
func (d *divided) load() (occupied bool, err error) {
	w, err := d.table.BulkLoad(ctx(), BulkOptions{Workers: 1})
	if err != nil {
		return false, err
	}
	loaded := map[[2]int]string{}
	low := [2]int{d.rng.IntN(dividedKeys), d.rng.IntN(dividedRows)}
	high := low
	for at := low; at[0] < dividedKeys && len(loaded) < 60; {
		high, loaded[at] = at, fmt.Sprint("load ", strings.Repeat("x", d.rng.IntN(200)))
		if err := w.Put(Key(partitionKey(at[0]), at[1]), BulkCell{"c", startMillis, row.String(loaded[at])}); err != nil {
			return false, err
		}
		if at[1] += 1 + d.rng.IntN(3); at[1] >= dividedRows {
			at = [2]int{at[0] + 1, 0}
		}
		if d.rng.IntN(12) == 0 {
			break
		}
	}
	for range d.rng.IntN(3) {
		if what, err := d.step(); err != nil {
			return false, fmt.Errorf("%s beside a load: %w", what, err)
		}
	}
	if d.rng.IntN(8) == 0 {
		return false, w.Abort()
	}
	for key := range d.model {
		occupied = occupied || slices.Compare(key[:], low[:]) >= 0 && slices.Compare(key[:], high[:]) <= 0
	}
	err = w.Commit(ctx())
	if occupied {
		if !errors.Is(err, ErrConflict) {
			return true, fmt.Errorf("a load into a range with rows: %w", err)
		}
		return true, nil
	}
	maps.Copy(d.model, loaded)
	return false, err
}
