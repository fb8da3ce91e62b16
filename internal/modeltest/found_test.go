package modeltest

// What the random operations found, as small tests. Most are about moments that
// are opened while a merge is under way, which decided before what it may drop.

import (
	"context"
	"errors"
	"path"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// newTable makes a store with one table.
func newTable(t *testing.T, fs vfs.FS, wall clock.Clock, options flagstone.TableOptions) (*flagstone.Store, *flagstone.Table) {
	t.Helper()
	store, err := flagstone.Open(storeDir, flagstone.Options{
		Seams: seams.Seams{FS: fs, Clock: wall, Executor: executortest.NewManual()},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(context.Background(), flagstone.TableSpec{Name: "t", Key: schemas[0].key, Options: options})
	if err != nil {
		t.Fatal(err)
	}
	return store, table
}

// duringFlush puts versions of one cell, lets time pass, flushes them, and runs
// change in the middle of the flush. A snapshot is opened right after it, which
// must go on showing what it showed at first.
func duringFlush(t *testing.T, options flagstone.TableOptions, pass time.Duration, change func(*clocktest.Manual, *flagstone.Table), after func(*flagstone.Table)) {
	t.Helper()
	ctx := context.Background()
	faults := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	wall := clocktest.NewManual(startMillis)
	store, table := newTable(t, faults, wall, options)
	err := table.Update(ctx, flagstone.Key("k"), func(_ context.Context, tx *flagstone.RowTx) error {
		for i := range int64(3) {
			tx.Put("c", startMillis+i, row.Integer(i))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	wall.Advance(pass)
	var snapshot *flagstone.Snapshot
	read := func() int {
		got, err := table.Get(ctx, flagstone.Key("k"), flagstone.ReadOptions{Snapshot: snapshot})
		if err != nil {
			t.Fatal(err)
		}
		if got == nil {
			return 0
		}
		return len(got.Cells())
	}
	before := 0
	faults.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if c.Op&vfs.OpWrites == 0 && c.Op != vfs.OpCreate || path.Ext(c.Name) != ".sst" || snapshot != nil {
			return
		}
		faults.Observe(vfs.Observer{})
		change(wall, table)
		if snapshot, err = store.Snapshot(); err != nil {
			t.Fatal(err)
		}
		before = read()
		after(table)
	}})
	// A row that stays, so that there is something to write.
	err = table.Update(ctx, flagstone.Key("z"), func(_ context.Context, tx *flagstone.RowTx) error { tx.PutRow(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	if err := store.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	if snapshot == nil {
		t.Fatal("nothing was written to a table file")
	}
	defer snapshot.Close()
	if now := read(); now != before {
		t.Errorf("the snapshot shows %d versions, and showed %d when it was opened", now, before)
	}
}

func alterOptions(t *testing.T, table *flagstone.Table, change func(*flagstone.TableOptions)) {
	t.Helper()
	options := table.Info().Options
	change(&options)
	if err := table.Alter(context.Background(), flagstone.TableChange{Options: &options}); err != nil {
		t.Fatal(err)
	}
}

func TestASnapshotOpenedDuringAMergeKeepsWhatARaisedTimeToLiveShows(t *testing.T) {
	duringFlush(t, flagstone.TableOptions{MaxVersions: 3, TTLSeconds: 10}, time.Minute,
		func(_ *clocktest.Manual, table *flagstone.Table) {
			alterOptions(t, table, func(o *flagstone.TableOptions) { o.TTLSeconds = flagstone.NeverExpires })
		}, func(*flagstone.Table) {})
}

func TestASnapshotOpenedDuringAMergeKeepsWhatAClockSetBackShows(t *testing.T) {
	duringFlush(t, flagstone.TableOptions{MaxVersions: 3, TTLSeconds: 10}, time.Minute,
		func(wall *clocktest.Manual, _ *flagstone.Table) { wall.SetWall(startMillis) }, func(*flagstone.Table) {})
}

func TestASnapshotOpenedDuringAMergeKeepsWhatARaisedLimitShows(t *testing.T) {
	duringFlush(t, flagstone.TableOptions{MaxVersions: 1}, 0,
		func(_ *clocktest.Manual, table *flagstone.Table) {
			alterOptions(t, table, func(o *flagstone.TableOptions) { o.MaxVersions = 3 })
		}, func(table *flagstone.Table) {
			alterOptions(t, table, func(o *flagstone.TableOptions) { o.MaxVersions = 1 })
		})
}

// A delete of the only version leaves a trim at the version below it, where the
// same mutation may put; when that becomes surplus, a flush must not leave its
// own trim after the one that is there, nor before an older value of the same
// version, which a snapshot keeps.
func TestASurplusPutBesideATrimOfItsOwnMutationCanBeFlushed(t *testing.T) {
	for _, held := range []bool{false, true} {
		store, table := newTable(t, vfs.NewSim(vfs.SimOptions{}), clocktest.NewManual(startMillis), flagstone.TableOptions{})
		change := func(change func(*flagstone.RowTx)) {
			t.Helper()
			err := table.Update(context.Background(), flagstone.Key("k"), func(_ context.Context, tx *flagstone.RowTx) error { change(tx); return nil })
			if err != nil {
				t.Fatal(err)
			}
		}
		flush := func() {
			t.Helper()
			if err := store.Flush(context.Background()); err != nil {
				t.Errorf("with a snapshot: %v: %v", held, err)
			}
		}
		change(func(tx *flagstone.RowTx) { tx.Put("other", 1, row.Integer(0)) })
		flush() // so that something may lie below
		change(func(tx *flagstone.RowTx) { tx.Put("c", 3, row.Integer(0)) })
		if held {
			snapshot, err := store.Snapshot()
			if err != nil {
				t.Fatal(err)
			}
			defer snapshot.Close()
		}
		change(func(tx *flagstone.RowTx) { tx.Put("c", 4, row.Integer(1)) })
		change(func(tx *flagstone.RowTx) {
			tx.DeleteVersion("c", 4)
			tx.Put("c", 3, row.Integer(2))
		})
		change(func(tx *flagstone.RowTx) { tx.Put("c", 9, row.Integer(3)) })
		flush()
	}
}

// A power cut in the middle of a rename can leave both names, of one file. The
// next CURRENT must not be written into the file of the one that counts.
func TestACurrentThatARenameLeftWithTwoNamesSurvivesTheNextCrash(t *testing.T) {
	opened := func(fs vfs.FS) error {
		store, err := flagstone.Open(storeDir, flagstone.Options{Seams: seams.Seams{
			FS: fs, Clock: clocktest.NewManual(startMillis), Executor: executortest.NewManual(),
		}})
		if err != nil {
			return err
		}
		return store.Close()
	}
	for calls := range 40 {
		for _, policy := range vfs.CrashPolicies() {
			disk := vfs.NewSim(vfs.SimOptions{})
			if err := opened(disk); err != nil {
				t.Fatal(err)
			}
			current := path.Join(storeDir, "CURRENT")
			err := errors.Join(disk.Link(current, current+".tmp"), disk.SyncDir(storeDir))
			if err != nil {
				t.Fatal(err)
			}
			faults, made := vfs.NewFault(disk, 1), 0
			after := disk
			faults.Observe(vfs.Observer{Before: func(c vfs.Call) {
				if c.Op&vfs.OpMutating != 0 {
					if made++; made == calls+1 {
						after = disk.Crash(policy, 1)
					}
				}
			}})
			_ = opened(faults)
			if err := opened(after); err != nil {
				t.Errorf("power lost (%s) after %d calls: %v", policy, calls, err)
			}
		}
	}
}
