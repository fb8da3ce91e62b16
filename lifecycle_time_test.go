package flagstone

// Time: effects of stepping clocks, expiry and changed limits on data.

import (
	"context"
	"fmt"
	"math"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/upkeep"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

const tenYears = 10 * 365 * 24 * 3600 * 1000 // milliseconds

func TestP16_TimesGivenOutNeverGoBack(t *testing.T) {
	r := newRig(t, Options{WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{MaxVersions: math.MaxInt32})
	wall := int64(startMillis)
	last := int64(0)
	for i := range 60 {
		switch i % 6 {
		case 1:
			wall += 3_600_000
		case 2:
			wall -= 40_000_000
		case 3:
			wall += 7
		}
		r.clock.SetWall(wall)
		now := r.store.NowMillis()
		if now < last || now < wall {
			t.Fatalf("step %d: the time is %d, it was %d, and the wall shows %d", i, now, last, wall)
		}
		last = now
		put(t, table, "p", 1, "c", now, fmt.Sprint(i))
		switch i % 15 {
		case 4:
			r.reopen()
		case 9:
			r.crash(vfs.CrashLoseAll, uint64(i))
		case 14:
			if err := r.store.Flush(ctx()); err != nil { // the log is released
				t.Fatal(err)
			}
			r.reopen()
		}
		table = r.table("t", TableOptions{})
		got, err := table.Get(ctx(), Key("p", 1), ReadOptions{MaxVersions: 1})
		if err != nil || len(got.Cells()) != 1 || got.Cells()[0].Version != last {
			t.Fatalf("step %d: the newest version is %v, want %d (%v)", i, got, last, err)
		}
	}
}

// expiring is a table with a TTL of two hours that holds one row for each
// minute of the last half hour, flushed.
func expiring(t *testing.T) (r *rig, table *Table) {
	r = newRig(t, Options{})
	table = r.table("t", TableOptions{TTLSeconds: 7200})
	for i := range 30 {
		put(t, table, "p", i, "c", startMillis+int64(i)*60_000, fmt.Sprint(i))
		r.clock.Advance(time.Minute)
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	return r, table
}

func TestP16_AClockThatJumpsAheadHidesAndDoesNotDestroy(t *testing.T) {
	r, table := expiring(t)
	right := r.clock.NowMillis()
	r.clock.SetWall(right + tenYears)
	for minute := range 59 {
		if n := count(t, table, ScanOptions{}); n != 0 {
			t.Fatalf("%d rows are visible ten years later", n)
		}
		if minute%20 == 10 {
			if err := r.store.Compact(ctx()); err != nil {
				t.Fatal(err)
			}
		}
		put(t, table, "later", minute, "c", r.store.NowMillis()-2*tenYears+int64(minute), "x")
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(time.Minute)
		r.exec.RunAll()
	}
	right += 59 * 60_000
	if mark := table.Info().ExpiryWatermark; mark > right/1000-7200 {
		t.Fatalf("the watermark is %d, the right cutoff %d", mark, right/1000-7200)
	}
	r.clock.SetWall(right)
	if n := count(t, table, ScanOptions{}); n != 30 {
		t.Errorf("%d rows are visible after the clock was put right, want 30", n)
	}
	r.reopen()
	if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 30 {
		t.Errorf("%d rows are visible after reopening, want 30", n)
	}
}

func TestP16_AClockThatStandsByItsTimePurges(t *testing.T) {
	r, table := expiring(t)
	right := r.clock.NowMillis()
	r.clock.SetWall(right + tenYears)
	r.exec.RunAll()
	for range 130 { // the periodic look at idle trees notices
		r.clock.Advance(time.Minute)
		r.exec.RunAll()
	}
	if files := tableFiles(r.fs); len(files) > 0 {
		t.Errorf("after more than an hour nothing was purged: %v", files)
	}
	if mark := table.Info().ExpiryWatermark; mark < (right+tenYears)/1000-7200 {
		t.Errorf("the watermark is %d", mark)
	}
	// Purged data does not come back in part either.
	r.clock.SetWall(right)
	if n := count(t, table, ScanOptions{}); n != 0 {
		t.Errorf("%d rows are visible", n)
	}
}

func TestP16_AClockThatStandsStillOrCrawlsBackStopsNothing(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 2 << 10, WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{TTLSeconds: 1000})
	for i := range 200 {
		r.clock.SetWall(startMillis - int64(i)*1000)
		put(t, table, "p", i, "c", startMillis, fmt.Sprint(i))
		r.exec.RunAll()
	}
	if n := count(t, table, ScanOptions{}); n != 200 {
		t.Errorf("%d rows, want 200", n)
	}
	r.clock.SetWall(-5000) // before the epoch
	put(t, table, "p", 200, "c", startMillis, "x")
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.reopen()
	if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 201 {
		t.Errorf("%d rows, want 201", n)
	}
}

func TestExpiredFilesAreDroppedWholeAndUnread(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{TTLSeconds: 3600})
	for batch := range 3 {
		for i := range 20 {
			put(t, table, "p", 100*batch+i, "c", r.clock.NowMillis(), "v")
		}
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
		r.clock.Advance(20 * time.Minute)
		r.exec.RunAll()
	}
	step := time.Minute // from here on a file expires every 20 minutes
	var tableReads atomic.Int64
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op&(vfs.OpReadAt|vfs.OpOpen|vfs.OpCreate) != 0 && strings.HasSuffix(c.Name, ".sst") {
			tableReads.Add(1)
		}
	}})
	for left := 3; left > 0; left-- {
		n := count(t, table, ScanOptions{})
		if files := tableFiles(r.fs); len(files) != left || n != 20*left {
			t.Fatalf("%d files and %d rows, want %d files", len(files), n, left)
		}
		reads := tableReads.Load()
		r.clock.Advance(step)
		r.exec.RunAll()
		step = 20 * time.Minute
		if now := tableReads.Load(); now != reads {
			t.Errorf("dropping an expired file took %d reads", now-reads)
		}
	}
	if files := tableFiles(r.fs); len(files) > 0 {
		t.Errorf("left over: %v", files)
	}
	// A longer Time To Live brings nothing of it back, nor half of it.
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: NeverExpires}}); err != nil {
		t.Fatal(err)
	}
	if n := count(t, table, ScanOptions{}); n != 0 {
		t.Errorf("%d rows", n)
	}
}

func TestAnOpenSnapshotKeepsWhatExpires(t *testing.T) {
	r, table := expiring(t)
	sn, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	at := ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}}
	r.clock.Advance(3 * time.Hour)
	r.exec.RunAll()
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if n, old := count(t, table, ScanOptions{}), count(t, table, at); n != 0 || old != 30 {
		t.Errorf("%d rows now and %d in the snapshot, want 0 and 30", n, old)
	}
	sn.Close()
	r.clock.Advance(2 * upkeep.IdlePeriod)
	r.exec.RunAll()
	if files := tableFiles(r.fs); len(files) > 0 {
		t.Errorf("left over: %v", files)
	}
}

// A file of deletes is dropped unread once all that they hide is expired. A snapshot that was opened
// before still shows older versions, and its deletes have to go on hiding them.
func TestP06_AnOpenSnapshotKeepsTheDeletesOfWhatExpires(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{TTLSeconds: 7200, MaxVersionOffsetSeconds: 600})
	put(t, table, "p", 1, "c", startMillis, "v")
	r.ok(r.store.Compact(ctx()))
	r.clock.Advance(time.Second)
	r.ok(table.Delete(ctx(), Key("p", 1)))
	r.ok(r.store.Flush(ctx()))
	sn, err := r.store.Snapshot()
	r.ok(err)
	defer sn.Close()
	r.clock.Advance(3 * time.Hour)
	r.exec.RunAll()
	r.ok(r.store.Compact(ctx()))
	want(t, "horizon", r.store.views.Policy(table.core.ID).TombstoneHorizon, 2) // the delete has passed it
	want(t, "rows in the snapshot", count(t, table, ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}}), 0)
}

// TestTombstonesGoOnceWhatTheyHideIsExpired: the manifest's map from sequence
// numbers to times tells up to which write everything is expired, so that
// deletes can go without a look at other levels.
func TestTombstonesGoOnceWhatTheyHideIsExpired(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{TTLSeconds: 3600, MaxVersionOffsetSeconds: 600})
	for i := range 20 {
		put(t, table, "p", i, "c", r.clock.NowMillis(), "v")
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Second)
	for i := range 20 {
		err := table.Update(ctx(), Key("p", i), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil })
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	horizon := func() uint64 {
		if err := (treeEnv{r.store}).Advance(table.core.ID, 0); err != nil {
			t.Fatal(err)
		}
		return r.store.views.Policy(table.core.ID).TombstoneHorizon
	}
	if h := horizon(); h != 0 {
		t.Errorf("the horizon is %d right after the write", h)
	}
	r.clock.Advance(time.Hour + 598*time.Second)
	if h := horizon(); h != 0 {
		t.Errorf("the horizon is %d before the largest version can have expired", h)
	}
	// A longer offset in between lowers the horizon for all writes before and after.
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: 3600, MaxVersionOffsetSeconds: 1200}}); err != nil {
		t.Fatal(err)
	}
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: 3600, MaxVersionOffsetSeconds: 1}}); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(300 * time.Second)
	if h := horizon(); h != 0 {
		t.Errorf("the horizon is %d: the largest offset that there ever was is forgotten", h)
	}
	r.clock.Advance(302 * time.Second)
	if h := horizon(); h != 40 {
		t.Errorf("the horizon is %d, want 40", h)
	}
	r.clock.Advance(2 * upkeep.IdlePeriod)
	r.exec.RunAll()
	if files := tableFiles(r.fs); len(files) > 0 {
		t.Errorf("left over: %v", files)
	}
	r.reopen()
	if s := r.store.state().SeqTimes; len(s) == 0 || len(s) > manifest.MaxSeqTimes {
		t.Errorf("%d points of time", len(s))
	}
}

func TestAVersionTooFarAheadIsRefused(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersionOffsetSeconds: 10})
	try := func(version int64) error {
		b := r.store.NewBatch()
		b.Row(table, Key("p", 1)).Put("c", version, row.String("v"))
		b.Row(table, Key("p", 2)).Put("c", 5, row.String("v"))
		return r.store.Apply(ctx(), b)
	}
	wantError(t, "at the limit", try(startMillis+10_000), ErrVersionOutOfRange)
	wantError(t, "far ahead", try(row.MaxVersion-1), ErrVersionOutOfRange)
	wantError(t, "reserved", try(row.MaxVersion), ErrInvalid)
	wantError(t, "negative", try(-1), ErrInvalid)
	if got := show(t, table, "p", 2); got != "absent" {
		t.Fatalf("half of a refused batch: %s", got)
	}
	for _, version := range []int64{startMillis + 9_999, 0} {
		if err := try(version); err != nil {
			t.Errorf("version %d: %v", version, err)
		}
	}
	// The clock that counts never goes back.
	r.clock.SetWall(startMillis - 1_000_000)
	if err := try(startMillis + 9_999); err != nil {
		t.Error(err)
	}
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersionOffsetSeconds: math.MaxInt64}}); err != nil {
		t.Fatal(err)
	}
	if err := try(row.MaxVersion - 1); err != nil {
		t.Errorf("without a limit: %v", err)
	}
}

func TestAVersionInSecondsIsRefusedWhereItWouldBeExpired(t *testing.T) {
	r := newRig(t, Options{})
	expires := r.table("expires", TableOptions{TTLSeconds: 86400, MaxVersions: 9})
	lasts := r.table("lasts", TableOptions{TTLSeconds: 100 * 365 * 86400, MaxVersions: 9})
	forever := r.table("forever", TableOptions{})
	const year = 365 * 86400
	now := int64(startMillis / 1000)
	for _, version := range []int64{now, now - 1, now - year, now + year} {
		// Beside versions that are right, in any order.
		err := expires.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
			tx.Put("b", startMillis, row.String("x"))
			tx.Put("a", version, row.String("x"))
			tx.Put("b", startMillis-1, row.String("x"))
			return nil
		})
		wantError(t, fmt.Sprint("version ", version), err, ErrVersionOutOfRange)
		if err != nil && !strings.Contains(err.Error(), "milliseconds") {
			t.Errorf("no hint: %v", err)
		}
		batch := r.store.NewBatch()
		batch.Row(expires, Key("p", 2)).Put("a", version, row.String("x"))
		wantError(t, "in a batch", r.store.Apply(ctx(), batch), ErrVersionOutOfRange)
		tx := begin(t, expires, "tx", TransactionOptions{})
		wantError(t, "in a transaction", tx.Update(ctx(), Key("tx", 1), func(_ context.Context, tx *RowTx) error {
			tx.Put("a", version, row.String("x"))
			return nil
		}), ErrVersionOutOfRange)
		tx.Abort()
		for _, table := range []*Table{lasts, forever} { // nothing is lost there
			put(t, table, "p", 1, "c", version, "x")
		}
	}
	// Clearly old versions are accepted as before, and so is a delete.
	for _, version := range []int64{0, 7, now - year - 2, now + year + 2, startMillis - year*1000} {
		put(t, expires, "p", 3, "c", version, "x")
	}
	if err := expires.Update(ctx(), Key("p", 3), func(_ context.Context, tx *RowTx) error { tx.DeleteVersion("c", now); return nil }); err != nil {
		t.Error(err)
	}
}

// TestP05_LimitsThatChangeBringNothingBackThatWasDeleted goes through all ways to lower and raise
// Max Versions around a delete of a version, with compactions at every place in between. The
// result depends on the compactions in one way only: raising a limit may show surplus versions
// that are not dropped yet.
func TestP05_LimitsThatChangeBringNothingBackThatWasDeleted(t *testing.T) {
	type step struct {
		name string
		do   func(r *rig, table *Table)
	}
	alter := func(n int64) step {
		return step{fmt.Sprint("limit ", n), func(r *rig, table *Table) {
			if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: n}}); err != nil {
				t.Fatal(err)
			}
		}}
	}
	write := func(v int64) step {
		return step{fmt.Sprint("put ", v), func(r *rig, table *Table) {
			put(t, table, "p", 1, "c", v, fmt.Sprint(v))
		}}
	}
	remove := func(v int64) step {
		return step{fmt.Sprint("delete ", v), func(r *rig, table *Table) {
			err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.DeleteVersion("c", v); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}}
	}
	for _, script := range []struct {
		steps       []step
		always, may []int64 // versions at the end
	}{
		{[]step{write(1), write(2), write(3), write(4), alter(2), remove(4)}, []int64{3}, nil},
		{[]step{write(1), write(2), write(3), write(4), remove(4), alter(2), alter(4)}, []int64{3, 2}, []int64{1}},
		{[]step{write(1), write(2), write(3), alter(1), remove(3), alter(3)}, nil, nil},
		{[]step{write(1), write(2), write(3), remove(3), alter(1), write(9), alter(3)}, []int64{9}, []int64{2, 1}},
		{[]step{write(1), write(2), write(3), write(4), alter(3), alter(1), remove(4), alter(4), write(7)}, []int64{7}, nil},
		{[]step{write(2), write(3), remove(3), alter(1), write(3), write(4), alter(3), remove(4)}, nil, []int64{3, 2}},
	} {
		names := ""
		for _, s := range script.steps {
			names += s.name + "; "
		}
		for mask := 0; mask < 1<<len(script.steps); mask += 3 {
			r := newRig(t, Options{})
			table := r.table("t", TableOptions{MaxVersions: 4})
			for i, s := range script.steps {
				s.do(r, table)
				switch {
				case mask>>i&1 == 0:
				case mask%3 == 0:
					if err := r.store.Compact(ctx()); err != nil {
						t.Fatal(err)
					}
				default:
					if err := r.store.Flush(ctx()); err != nil {
						t.Fatal(err)
					}
					r.exec.RunAll()
				}
			}
			got := show(t, table, "p", 1)
			for _, v := range script.always {
				if !strings.Contains(got, fmt.Sprintf("c@%d=%d ", v, v)) {
					t.Errorf("%smerges %b: version %d is missing: %s", names, mask, v, got)
				}
				got = strings.Replace(got, fmt.Sprintf("c@%d=%d ", v, v), "", 1)
			}
			for _, v := range script.may {
				got = strings.Replace(got, fmt.Sprintf("c@%d=%d ", v, v), "", 1)
			}
			if got != "" {
				t.Errorf("%smerges %b: these must not show: %s", names, mask, got)
			}
			r.store.Close()
		}
	}
}

// TestPastLimitsAreKeptAsLongAsTheyCount: compactions below a delete that was made under a larger
// limit keep as many versions as that limit showed.
func TestPastLimitsAreKeptAsLongAsTheyCount(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 3})
	for v := range 3 {
		put(t, table, "p", 1, "c", int64(v+1), "v")
	}
	if err := r.store.Flush(ctx()); err != nil { // in a lower run
		t.Fatal(err)
	}
	err := table.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.DeleteVersion("c", 3); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 1}}); err != nil {
		t.Fatal(err)
	}
	limits := r.store.state().Table(table.core.ID).PastLimits
	if len(limits) != 1 || limits[0] != (manifest.PastLimit{MaxVersions: 3, LastSeq: 4}) {
		t.Fatalf("past limits are %+v", limits)
	}
	for seq, want := range map[uint64]int{1: 3, 4: 3, 5: 1} {
		if got := r.store.views.MaxVersions(table.core.ID, seq); got != want {
			t.Errorf("from sequence number %d on %d versions are kept, want %d", seq, got, want)
		}
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if got := show(t, table, "p", 1); got != "c@2=v " {
		t.Errorf("the row shows %q, want version 2", got)
	}
}

// TestP06_AClockSetBackDuringAMergeChangesNoSnapshot: the compaction begins while the rows are
// expired; the snapshot is opened when they are not.
func TestP06_AClockSetBackDuringAMergeChangesNoSnapshot(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{TTLSeconds: 3600})
	for i := range 30 {
		put(t, table, "p", i, "c", startMillis+int64(i%2)*1_200_000, "v") // every other one lives longer
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(time.Hour + time.Minute)
	var sn *Snapshot
	before := 0
	at := func() ScanOptions { return ScanOptions{ReadOptions: ReadOptions{Snapshot: sn}} }
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op == vfs.OpCreate && strings.HasSuffix(c.Name, ".sst") && sn == nil {
			r.clock.SetWall(startMillis)
			var err error
			if sn, err = r.store.Snapshot(); err != nil {
				t.Error(err)
			}
			before = count(t, table, at())
		}
	}})
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	fault.Observe(vfs.Observer{})
	if sn == nil {
		t.Fatal("no merge ran")
	}
	defer sn.Close()
	if n := count(t, table, at()); n != before {
		t.Errorf("after the merge the snapshot shows %d rows, before it showed %d", n, before)
	}
}

// TestP16_AStoreOpenedWithAWrongClockDestroysNothing: the machine starts ten
// years ahead, and the store with it.
func TestP16_AStoreOpenedWithAWrongClockDestroysNothing(t *testing.T) {
	r, _ := expiring(t)
	right := r.clock.NowMillis()
	r.store.Close()
	r.clock.SetWall(right + tenYears)
	r.open()
	table := r.table("t", TableOptions{})
	if n := count(t, table, ScanOptions{}); n != 0 {
		t.Errorf("%d rows are visible ten years later", n)
	}
	for range 50 {
		r.clock.Advance(time.Minute)
		r.exec.RunAll()
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.SetWall(right)
	if n := count(t, table, ScanOptions{}); n != 30 {
		t.Errorf("%d rows are left, want 30", n)
	}
}
