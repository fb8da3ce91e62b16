package flagstone

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestPowerLossAtEveryCallOfABulkLoad cuts the power before each call of the file system during a load: all rows are
// there or none, and all if the commit returned.
//
// With SyncNone, which may lose what was acknowledged, a load that is there brings with it all that was acknowledged
// before its commit.
func TestPowerLossAtEveryCallOfABulkLoad(t *testing.T) {
	step := 1
	if testing.Short() {
		step = 7
	}
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		calls := powerLossInALoad(t, sync, math.MaxInt)
		t.Logf("%d calls", calls)
		for n := 1; n <= calls; n += step {
			powerLossInALoad(t, sync, n)
		}
	}
}

// powerLossInALoad cuts the power before the n-th call, and returns how many there were.
func powerLossInALoad(t *testing.T, sync SyncMode, n int) (calls int) {
	r, fault := faultRig(t, Options{Sync: sync, MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, MemoryBudget: 32 << 10, Seams: Seams{ValueThreshold: 1 << 10}})
	defer func() { r.store.Close() }()
	table := r.table("t", TableOptions{})
	for i := range 20 {
		put(t, table, "a", i, "c", startMillis, "v")
		put(t, table, "q", i, "c", startMillis, "v")
	}
	put(t, table, "p", 5, "c", startMillis, "deleted")
	if err := errors.Join(table.Delete(ctx(), Key("p", 5)), table.Split(ctx(), row.String("pm")), r.store.Flush(ctx())); err != nil {
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
		err = table.Put(ctx(), Key("a", 20), "c", startMillis, row.String("acknowledged"))
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
	if got := show(t, table, "a", 20); there > 0 && got != fmt.Sprintf("c@%d=acknowledged ", startMillis) {
		t.Fatalf("call %d: the load is there, the write before it is %q", n, got)
	}
	if got := show(t, table, "a", 19) + show(t, table, "q", 19); got != fmt.Sprintf("c@%d=v c@%d=v ", startMillis, startMillis) {
		t.Fatalf("call %d: other rows are %q", n, got)
	}
	r.checkStore()
	return calls
}

// TestAFullDiskAtEveryWriteOfABulkLoad lets the disk be full from the n-th call on that needs space: nothing of the load
// is there then, or all of it, no file is left, and once there is space the same load succeeds.
func TestAFullDiskAtEveryWriteOfABulkLoad(t *testing.T) {
	step, refused := 1, 0
	if testing.Short() {
		step = 5
	}
	for n := int64(1); ; n += int64(step) {
		r, fault := faultRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, MemoryBudget: 32 << 10, Seams: Seams{ValueThreshold: 1 << 10}})
		table := r.table("t", TableOptions{})
		put(t, table, "p", 5, "c", startMillis, "deleted")
		if err := table.Delete(ctx(), Key("p", 5)); err != nil {
			t.Fatal(err)
		}
		load := func() error {
			w, err := table.BulkLoad(ctx(), BulkOptions{Workers: 1})
			for i := 0; i < 60 && err == nil; i++ {
				err = w.Put(Key("p", i), BulkCell{"c", startMillis, row.String(strings.Repeat("v", 1<<(i%12)))})
			}
			if err == nil {
				err = w.Commit(ctx())
			}
			return err
		}
		fault.Add(vfs.Rule{Ops: vfs.OpCreate | vfs.OpWrites | vfs.OpPreallocate, Nth: n, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)})
		err := load()
		hits := len(fault.Injected())
		fault.Clear()
		rows := count(t, table, ScanOptions{})
		if rows != 0 && rows != 60 || (err == nil) != (rows == 60) {
			t.Fatalf("call %d: %d rows, %v", n, rows, err)
		}
		if err != nil {
			refused++
			wantError(t, fmt.Sprint("call ", n), err, ErrNoSpace)
			r.clock.Advance(jobs.RetryAfter)
			r.exec.RunAll()
			if left := r.orphans(); left != 0 {
				t.Fatalf("call %d: %d files are left", n, left)
			}
			if err := load(); err != nil {
				t.Fatalf("call %d: once there is space: %v", n, err)
			}
		}
		r.checkStore()
		if hits == 0 {
			t.Logf("%d of %d calls", refused, n)
			return
		}
	}
}

// TestABulkLoadThatIsCutShort closes the store, or makes a stream, between the rows and the commit.
func TestABulkLoadThatIsCutShort(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, MemoryBudget: 32 << 10})
	table := r.table("t", TableOptions{})
	w := bulk(t, table, "p", 0, 3000, "v")
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 100}}}); err != nil {
		t.Fatal(err)
	}
	wantError(t, "a commit into a table with a stream", w.Commit(ctx()), ErrStreamExists)
	if n := r.orphans(); n != 0 {
		t.Errorf("%d files are left", n)
	}
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{}}); err != nil {
		t.Fatal(err)
	}
	w = bulk(t, table, "p", 0, 3000, "v")
	if r.orphans() == 0 {
		t.Fatal("nothing was written yet")
	}
	r.reopen()
	wantError(t, "a commit into a closed store", w.Commit(ctx()), ErrClosed)
	if n := r.orphans() + count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 0 {
		t.Errorf("%d files and rows are left", n)
	}
	r.checkStore()
}

// killedRows is the number of rows of the load of TestABulkLoadThatIsKilled.
const killedRows = 90_000

// TestABulkLoadThatIsKilled kills a process at ten moments of its load: six in turn as it writes, the others
// while it commits or soon after. The next process finds all rows or none.
func TestABulkLoadThatIsKilled(t *testing.T) {
	if dir := os.Getenv("FLAGSTONE_LOAD_AND_DIE"); dir != "" {
		loadAndDie(t, dir)
		return
	}
	moments := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	if testing.Short() {
		moments = []int{3, 6, 8}
	}
	for _, moment := range moments {
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
				if n++; n == min(moment, killedWriting)+1 {
					late := max(moment-killedWriting, 0)                          // the moments of the commit lie ever further apart
					<-time.After(time.Duration(late*late) * 3 * time.Millisecond) // a random moment
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
		t.Logf("moment %d: %d rows, committed %t", moment, found, committed)
		if found != 0 && found != killedRows || committed && found == 0 || moment < killedWriting && found != 0 {
			t.Errorf("moment %d: %d rows, committed %t", moment, found, committed)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if report, err := Check(ctx(), dir, Options{}, nil); err != nil || len(report.Problems) > 0 {
			t.Errorf("moment %d: %+v, %v", moment, report, err)
		}
	}
}

// killedWriting is at how many moments it says "at" while it writes; the last time is before the commit.
const killedWriting = 6

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
		if i%(killedRows/killedWriting) == 0 {
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
	<-time.After(time.Minute) // it is killed before that
}

// TestALoadIsNotVisibleBeforeItIsShown takes a snapshot while trees get the files of a load: it must not have
// the load's sequence number, since other trees do not have theirs yet.
func TestALoadIsNotVisibleBeforeItIsShown(t *testing.T) {
	r := newRig(t, Options{})
	put(t, r.table("t", TableOptions{}), "a", 1, "c", startMillis, "v")
	var of uint64
	var snapshot *Snapshot
	err := r.store.pipeline.Cut(0, func(after uint64) error { of = after; return nil }, func() {
		snapshot, _ = r.store.Snapshot()
	})
	wantError(t, "Cut", err, nil)
	defer snapshot.Close()
	if snapshot.moment.Seq >= of {
		t.Errorf("the snapshot has sequence number %d, the load has %d", snapshot.moment.Seq, of)
	}
}

// TestALoadThatIsThereIsNotCalledRefused fills the disk between the edit of a load and the sync after it.
func TestALoadThatIsThereIsNotCalledRefused(t *testing.T) {
	r, fault := faultRig(t, Options{Sync: SyncNone})
	table := r.table("t", TableOptions{})
	put(t, table, "a", 1, "c", startMillis, "v")
	w := bulk(t, table, "p", 0, 10, "v")
	full := false
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if full || c.Op&vfs.OpWrites == 0 || !strings.Contains(c.Name, "MANIFEST") {
			return
		}
		// If the range is held, this is the edit of the load.
		err := table.Update(ctx(), Key("p", 5), func(context.Context, *RowTx) error { return nil })
		if full = errors.Is(err, ErrConflict); full {
			put(t, table, "a", 2, "c", startMillis, "beside")
			fault.Add(vfs.Rule{
				Ops: vfs.OpCreate | vfs.OpWrites | vfs.OpPreallocate, Glob: "*.log", Nth: 1, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC),
			})
		}
	}})
	wantError(t, "Commit", w.Commit(ctx()), ErrOutcomeUnknown)
	fault.Observe(vfs.Observer{})
	fault.Clear()
	if n := count(t, table, ScanOptions{}); n != 12 {
		t.Errorf("%d rows, want 12", n)
	}
}
