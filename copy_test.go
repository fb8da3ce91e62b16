package flagstone

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/storeclock"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// copied copies a rig's store and returns the copy.
func copied(r *rig) (*rig, CopyReport) {
	r.t.Helper()
	report, err := r.store.CopyTo(ctx(), "/copy", nil)
	if err != nil {
		r.t.Fatal(err)
	}
	c := &rig{t: r.t, fs: r.fs, clock: r.clock, exec: executortest.NewManual()}
	if c.store, err = Open("/copy", Options{Seams: Seams{FS: r.fs, Clock: r.clock, Executor: c.exec}}); err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.store.Close() })
	return c, report
}

// TestP16_ACopyLeavesAWrongClockBehind: a clock was ten years ahead for so long that it was
// believed. In the copy, cells stamped by the right clock are seen, expire and are trimmed in
// time, and cells stamped by the wrong one do not hide them.
func TestP16_ACopyLeavesAWrongClockBehind(t *testing.T) {
	r := newRig(t, Options{})
	lasts := r.table("lasts", TableOptions{MaxVersions: 2})
	expires := r.table("expires", TableOptions{TTLSeconds: 3600})
	if err := expires.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 3600, Annotations: []byte("front")}}}); err != nil {
		t.Fatal(err)
	}
	put(t, lasts, "p", 1, "c", r.store.NowMillis(), "before")
	right := r.clock.NowMillis()
	r.clock.SetWall(right + tenYears)
	for i := range 3 {
		r.clock.Advance(time.Second)
		put(t, lasts, "p", 1, "c", r.store.NowMillis(), fmt.Sprint("wrong ", i))
	}
	put(t, expires, "p", 0, "c", startMillis, "old")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	r.clock.Advance(2 * storeclock.Probation)
	r.exec.RunAll()
	put(t, expires, "p", 1, "c", r.store.NowMillis(), "wrong")
	right += 3000 + 2*storeclock.Probation.Milliseconds()
	r.clock.SetWall(right)
	if ahead := r.store.NowMillis() - right; ahead < tenYears-10_000 || expires.Info().ExpiryWatermark < right/1000 {
		t.Fatalf("the clock did not do its worst: %d ahead, watermark %d", ahead, expires.Info().ExpiryWatermark)
	}
	c, report := copied(r)
	if report.Tables != 2 || report.Rows != 2 || report.Cells != 3 || report.Restamped != 3 {
		t.Errorf("copied %+v", report)
	}
	lasts, expires = c.table("lasts", TableOptions{}), c.table("expires", TableOptions{})
	now := c.store.NowMillis()
	if now < right || now > right+1000 || expires.Info().ExpiryWatermark != manifest.NoWatermark {
		t.Errorf("now is %d, want %d; the watermark is %d", now, right, expires.Info().ExpiryWatermark)
	}
	want(t, "what lasts", show(t, lasts, "p", 1), fmt.Sprintf("c@%d=wrong 2 c@%d=wrong 1 ", right+1, right))
	r.clock.Advance(time.Second)
	put(t, lasts, "p", 1, "c", c.store.NowMillis(), "new")
	want(t, "what is written", show(t, lasts, "p", 1), fmt.Sprintf("c@%d=new c@%d=wrong 2 ", right+1000, right+1))
	put(t, expires, "p", 2, "c", c.store.NowMillis(), "new")
	if n := count(t, expires, ScanOptions{}); n != 2 {
		t.Errorf("%d rows, want 2", n)
	}
	stream := expires.Stream()
	position, err := stream.Oldest(ctx(), stream.Shards()[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	page, err := stream.Read(ctx(), position, StreamLimits{})
	if err != nil || len(page.Records) != 1 || page.Records[0].Micros/1000 != right+1000 || string(stream.Info().Annotations) != "front" {
		t.Errorf("the stream has %+v, %v", page, err)
	}
	r.clock.Advance(time.Hour + time.Minute)
	if n := count(t, expires, ScanOptions{}); n != 0 {
		t.Errorf("%d rows have not expired", n)
	}
	if page, err = stream.Read(ctx(), StreamPosition{Shard: position.Shard, AsOf: (right + 3_600_000) * 1000}, StreamLimits{}); err != nil || len(page.Records) != 0 {
		t.Errorf("a record was not trimmed: %+v, %v", page, err)
	}
}

func TestACopyHasTheRowsAsTheyWere(t *testing.T) {
	r := newRig(t, Options{})
	tables := map[string]*Table{
		"lasts":   r.table("lasts", TableOptions{MaxVersions: 3}),
		"expires": r.table("expires", TableOptions{MaxVersions: 3, TTLSeconds: 1000}),
	}
	for _, table := range tables {
		update := func(n int, fn func(tx *RowTx)) {
			t.Helper()
			if err := table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error { fn(tx); return nil }); err != nil {
				t.Fatal(err)
			}
		}
		update(1, func(tx *RowTx) { tx.PutRow() })                                                                           // for ever
		update(2, func(tx *RowTx) { tx.PutRow() })                                                                           // for ever, and has a cell
		update(2, func(tx *RowTx) { tx.Put("c", startMillis, row.String("x")) })                                             //
		update(3, func(tx *RowTx) { tx.Put("c", startMillis, row.String("x")); tx.Put("d", startMillis-1, row.Integer(7)) }) // as long as c
		update(4, func(tx *RowTx) { tx.Put("c", startMillis, row.String("x")) })                                             // as long as c was to be,
		update(4, func(tx *RowTx) { tx.DeleteColumn("c") })                                                                  // which is gone
		update(5, func(tx *RowTx) {
			for v := range int64(3) { // a day ahead is allowed
				tx.Put("c", startMillis+v*40_000_000, row.Binary(make([]byte, copyBytes)))
			}
		})
	}
	c, report := copied(r)
	if report.Rows != 10 || report.Cells != 12 || report.Restamped != 0 {
		t.Errorf("copied %+v", report)
	}
	for _, later := range []time.Duration{0, 10_000 * time.Second} {
		r.clock.Advance(later)
		for name, table := range tables {
			for n := range 6 {
				if got, want := show(t, c.table(name, TableOptions{}), "p", n), show(t, table, "p", n); got != want {
					t.Errorf("after %v, table %s, row %d: %.80q, want %.80q", later, name, n, got, want)
				}
			}
		}
	}
	if now := c.store.NowMillis(); now != startMillis+80_000_000 {
		t.Errorf("now is %d: what is stamped by it would be hidden", now)
	}
	_, err := r.store.CopyTo(ctx(), "/copy", nil)
	wantError(t, "into a store", err, ErrInvalid)
}

// TestACopyIsCompleteOrNotThere cuts the power at every sync of the copy: its name then has a
// store with all rows, or no store.
func TestACopyIsCompleteOrNotThere(t *testing.T) {
	r := newRig(t, Options{})
	for _, name := range []string{"a", "b"} {
		put(t, r.table(name, TableOptions{}), "p", 1, "c", startMillis, "x")
	}
	disk := vfs.NewFault(r.fs, 1)
	r.store.fs, r.store.opts.Seams.FS = disk, disk
	seen := map[bool]int{}
	look := func(crashed *vfs.Sim) {
		store, err := Open("/copy", Options{ReadOnly: true, Seams: Seams{FS: crashed, Clock: r.clock, Executor: executortest.NewManual()}})
		seen[err == nil]++
		if err != nil {
			wantError(t, "an unfinished copy", err, ErrNotStore)
			return
		}
		defer store.Close()
		for _, name := range []string{"a", "b"} {
			if table, err := store.Table(name); err != nil || show(t, table, "p", 1) == "" {
				t.Errorf("the copy has no row of %s: %v", name, err)
			}
		}
	}
	disk.Observe(vfs.Observer{After: func(call vfs.Call, _ error) {
		if call.Op&(vfs.OpSyncs|vfs.OpRename) != 0 {
			for _, policy := range []vfs.CrashPolicy{vfs.CrashKeepAll, vfs.CrashLoseAll} {
				look(r.fs.Image(policy, 1))
			}
		}
	}})
	if _, err := r.store.CopyTo(ctx(), "/copy", nil); err != nil {
		t.Fatal(err)
	}
	if seen[true] == 0 || seen[false] == 0 {
		t.Errorf("stores that opened: %v", seen)
	}
}

func TestACopyThatFailsLeavesNothing(t *testing.T) {
	r := newRig(t, Options{})
	put(t, r.table("a", TableOptions{}), "p", 1, "c", startMillis, "x")
	stopped := errors.New("stopped")
	if err := r.fs.MkdirAll("/copy"); err != nil {
		t.Fatal(err)
	}
	_, err := r.store.CopyTo(ctx(), "/copy", func(string) error { return stopped })
	wantError(t, "a copy", err, stopped)
	if names, err := r.fs.List("/"); err != nil || len(names) != 2 {
		t.Errorf("left: %v, %v", names, err)
	}
	if names, err := r.fs.List("/copy"); err != nil || len(names) != 0 {
		t.Errorf("left: %v, %v", names, err)
	}
	for _, dir := range []string{"/store", "/store/wal/copy", "/store/../store/x"} {
		_, err := r.store.CopyTo(ctx(), dir, nil)
		wantError(t, dir, err, ErrInvalid)
	}
	if err := r.fs.MkdirAll("/copy.partial"); err != nil {
		t.Fatal(err)
	}
	_, err = r.store.CopyTo(ctx(), "/copy", nil)
	wantError(t, "where one was interrupted", err, ErrInvalid)
	if !strings.Contains(err.Error(), "an unfinished copy: delete it") {
		t.Error(err)
	}
}

func TestAStoreTellsItsClock(t *testing.T) {
	r := newRig(t, Options{})
	r.clock.Advance(20 * time.Minute)
	if got := r.store.Clock(); got != (ClockInfo{WallMillis: r.clock.NowMillis(), TrustedMillis: 20 * 60_000, Stood: 20 * time.Minute}) {
		t.Errorf("a new store says %+v", got)
	}
	believeClock(r.clock)
	if got := r.store.Clock(); got.TrustedMillis != got.WallMillis || !got.Believed || got.Stood != 0 {
		t.Errorf("later it says %+v", got)
	}
}

// TestP16_TheLogSaysWhatIsWrongWithTheClock: a new store and one that was closed have
// no warning; a clock that jumps, in the first probation too, and one that is behind
// what was stamped, have one each.
func TestP16_TheLogSaysWhatIsWrongWithTheClock(t *testing.T) {
	var log strings.Builder
	r := newRig(t, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
	said := func(when string, want ...string) {
		t.Helper()
		var clocks []string
		for line := range strings.Lines(log.String()) {
			if strings.Contains(line, "clock") {
				clocks = append(clocks, line)
			}
		}
		log.Reset()
		if len(clocks) != len(want) {
			t.Fatalf("%s the log says %q, want %q", when, clocks, want)
		}
		for i, part := range want {
			level, text, _ := strings.Cut(part, " ")
			if !strings.Contains(clocks[i], "level="+level) || !strings.Contains(clocks[i], text) {
				t.Errorf("%s the log says %q, want %q", when, clocks[i], part)
			}
		}
	}
	right := func() int64 { return startMillis + r.clock.Elapsed().Milliseconds() }
	said("at first")
	r.clock.Advance(5 * time.Minute)
	r.clock.SetWall(right() + tenYears)
	r.clock.Advance(5 * time.Minute)
	r.exec.RunAll()
	said("after a jump", "WARN years")
	put(t, r.table("t", TableOptions{}), "p", 1, "c", r.store.NowMillis(), "x")
	r.clock.SetWall(right())
	r.clock.Advance(5 * time.Minute)
	said("after a jump back", "WARN years ahead of the clock")
	r.reopen()
	said("opened", "WARN years ahead of the clock")
	believeClock(r.clock)
	r.clock.Advance(5 * time.Minute)
	said("believed")
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	r.clock.SetWall(right() + 10*3_600_000)
	r.open()
	said("closed for long", "INFO 10 hours", "WARN years ahead of the clock")
}

// TestACopyTakesLittleMemoryForSmallCells, and reads on in a table that was dropped meanwhile.
func TestACopyTakesLittleMemoryForSmallCells(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	for from := 0; from < 4000; from += 1000 {
		b := r.store.NewBatch()
		for n := range 1000 {
			b.Row(table, Key("p", from+n)).Put("c", 1, row.String(""))
		}
		wantError(t, "Apply", r.store.Apply(ctx(), b), nil)
	}
	at, err := r.store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	defer at.Close()
	to := newRig(t, Options{})
	made := to.table("t", TableOptions{})
	c := copier{to: to.store, at: at, batch: to.store.NewBatch()}
	rows, dropped, most := table.Scan(ctx(), nil, nil, ScanOptions{ReadOptions: ReadOptions{Snapshot: at}}), false, 0
	defer rows.Close()
	for rows.Next() {
		if !dropped {
			wantError(t, "DropTable", r.store.DropTable(ctx(), "t"), nil)
			dropped = true
		}
		wantError(t, "row", c.row(ctx(), table, made, rows.Row()), nil)
		most = max(most, c.batch.Len())
	}
	if c.report.Rows != 4000 || most > copyBytes/copyCell {
		t.Errorf("of %d rows, %d were in one batch", c.report.Rows, most)
	}
}
