package flagstone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
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
		"the same key":           {Key("p", 5), BulkCell{"c", 1, row.Integer(1)}, ErrInvalid, "after row"},
		"a smaller key":          {Key("p", 4), BulkCell{"c", 1, row.Integer(1)}, ErrInvalid, "after row"},
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
	if err := w.Commit(ctx()); !errors.Is(err, ErrConflict) || !strings.Contains(err.Error(), "not empty") {
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

// TestPowerLossAtEveryCallOfABulkLoad cuts the power before each call of the file system during a load: all rows are
// there or none, and all if the commit returned.
func TestPowerLossAtEveryCallOfABulkLoad(t *testing.T) {
	calls := powerLossInALoad(t, math.MaxInt)
	t.Logf("%d calls", calls)
	for n := 1; n <= calls; n++ {
		powerLossInALoad(t, n)
	}
}

// powerLossInALoad cuts the power before the n-th call, and returns how many there were.
func powerLossInALoad(t *testing.T, n int) (calls int) {
	r, fault := faultRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, MemoryBudget: 32 << 10, Seams: Seams{ValueThreshold: 1 << 10}})
	defer func() { r.store.Close() }()
	table := r.table("t", TableOptions{})
	for i := range 20 {
		put(t, table, "a", i, "c", startMillis, "v")
		put(t, table, "q", i, "c", startMillis, "v")
	}
	put(t, table, "p", 5, "c", startMillis, "deleted")
	if err := errors.Join(table.Delete(ctx(), Key("p", 5)), table.Split(ctx(), row.String("pm"))); err != nil {
		t.Fatal(err)
	}
	var next *vfs.Sim
	disk, committed := r.fs, false
	fault.Observe(vfs.Observer{Before: func(vfs.Call) {
		if calls++; calls == n {
			next = disk.Crash(vfs.CrashLoseAll, 1)
		}
	}})
	w, err := table.BulkLoad(ctx(), BulkOptions{Workers: 1})
	for i := 0; i < 60 && err == nil && next == nil; i++ {
		pk := "p"
		if i >= 30 {
			pk = "pz" // of the other partition
		}
		err = w.Put(Key(pk, i), BulkCell{"c", startMillis, row.String(strings.Repeat("v", 1<<(i%12)))})
	}
	if err == nil && next == nil {
		err = w.Commit(ctx())
		committed = next == nil
	}
	if err != nil && next == nil {
		t.Fatal(err)
	}
	fault.Observe(vfs.Observer{})
	if next == nil {
		return calls
	}
	r.store.Close()
	r.fs, r.opts.Seams.FS = next, nil
	r.open()
	table = r.table("t", TableOptions{})
	there := 0
	for i := range 60 {
		pk := "p"
		if i >= 30 {
			pk = "pz"
		}
		switch got := show(t, table, pk, i); got {
		case fmt.Sprintf("c@%d=%s ", startMillis, strings.Repeat("v", 1<<(i%12))):
			there++
		case "absent":
		default:
			t.Fatalf("call %d: row %d is %.50q", n, i, got)
		}
	}
	if there != 0 && there != 60 || committed && there == 0 {
		t.Fatalf("power loss before call %d: %d rows are there", n, there)
	}
	if got := show(t, table, "a", 19) + show(t, table, "q", 19); got != fmt.Sprintf("c@%d=v c@%d=v ", startMillis, startMillis) {
		t.Fatalf("call %d: other rows are %q", n, got)
	}
	r.checkStore()
	return calls
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

// killedRows is the number of rows of the load of TestABulkLoadThatIsKilled.
const killedRows = 90_000

// TestABulkLoadThatIsKilled kills a process at ten moments of its load: the first nine in turn as it writes, the
// last one while it commits. The next process finds all rows or none.
func TestABulkLoadThatIsKilled(t *testing.T) {
	if dir := os.Getenv("FLAGSTONE_LOAD_AND_DIE"); dir != "" {
		loadAndDie(t, dir)
		return
	}
	for moment := range 10 {
		dir := t.TempDir()
		self := exec.Command(os.Args[0], "-test.run=^TestABulkLoadThatIsKilled$")
		self.Env = append(os.Environ(), "FLAGSTONE_LOAD_AND_DIE="+dir)
		out, err := self.StdoutPipe()
		if err == nil {
			err = self.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		lines, committed := bufio.NewScanner(out), false
		for n := 0; lines.Scan(); {
			if line := lines.Text(); line == "committed" {
				committed = true
			} else if line == "at" {
				if n++; n > moment {
					if err := self.Process.Kill(); err != nil {
						t.Fatal(err)
					}
				}
			}
		}
		_ = self.Wait() // it was killed
		s, err := Open(dir, Options{})
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.Table("t")
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{}).All() {
			if err != nil || r.Text("c") != "v" {
				t.Fatalf("moment %d: %v, %v", moment, r, err)
			}
			found++
		}
		if found != 0 && found != killedRows || committed && found == 0 || moment < 9 && found != 0 {
			t.Errorf("moment %d: %d rows, committed %t", moment, found, committed)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// loadAndDie is the process that is killed.
func loadAndDie(t *testing.T, dir string) {
	s, err := Open(dir, Options{TableFileSize: 256 << 10})
	if err != nil {
		t.Fatal(err)
	}
	table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "n", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	w, err := table.BulkLoad(ctx(), BulkOptions{Workers: 2})
	for i := range killedRows {
		if i%(killedRows/9) == 0 {
			fmt.Println("at")
		}
		if err == nil {
			err = w.Put(Key(i), BulkCell{"c", startMillis, row.String("v")})
		}
	}
	fmt.Println("at")
	if err = errors.Join(err, w.Commit(ctx())); err != nil {
		t.Fatal(err)
	}
	fmt.Println("committed")
}
