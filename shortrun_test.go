package flagstone

// What many short runs of a store leave behind.

import (
	"context"
	"log/slog"
	"testing"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestShortRunsDoNotPileUpTheLog opens a store many times for one row: each run begins a log
// segment.
func TestShortRunsDoNotPileUpTheLog(t *testing.T) {
	const budget, segment, runs = 1 << 20, 256 << 10, 40
	fsys := vfs.NewSim(vfs.SimOptions{})
	for i := range runs {
		s, err := Open("/store", Options{MemoryBudget: budget, WALSegmentSize: segment, Seams: Seams{FS: fsys}})
		if err != nil {
			t.Fatal(err)
		}
		table, err := s.Table("t")
		if i == 0 {
			table, err = s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
		}
		if err == nil {
			err = table.Put(ctx(), Key(i), "c", s.NowMillis(), row.Integer(1))
		}
		if err == nil {
			err = s.Settle(ctx())
		}
		if err != nil {
			t.Fatal(err)
		}
		if n := count(t, table, ScanOptions{}); n != i+1 {
			t.Fatalf("run %d: %d rows", i, n)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	names, err := fsys.List("/store/wal")
	if most := logFactor*budget/segment + 4; err != nil || len(names) > most {
		t.Errorf("%d files of the log, want at most %d (%v)", len(names), most, err)
	}
}

// doingAll is a log handler that lets every job run that is queued when something is logged.
type doingAll struct {
	slog.Handler
	exec *executortest.Manual
	logs *int
}

func (doingAll) Enabled(context.Context, slog.Level) bool { return true }

func (d doingAll) Handle(context.Context, slog.Record) error {
	*d.logs++
	d.exec.RunAll()
	return nil
}

// TestJobsMayRunAsSoonAsTheyAreQueued: many short runs leave a memtable behind which the log is too
// long, so Open queues its flush. Jobs run while Open still logs and cleans up.
func TestJobsMayRunAsSoonAsTheyAreQueued(t *testing.T) {
	fsys := vfs.NewSim(vfs.SimOptions{})
	logs, flushes := 0, 0
	for i := range 20 {
		millis := int64(startMillis)
		if i < 8 {
			millis += 3 * 3600 * 1000 // later runs log that versions are stamped ahead of the clock
		}
		exec := executortest.NewManual()
		s, err := Open("/store", Options{
			MemoryBudget: 1 << 20, WALSegmentSize: 256 << 10, Logger: slog.New(doingAll{slog.DiscardHandler, exec, &logs}),
			Seams: Seams{FS: fsys, Clock: clocktest.NewManual(millis), Executor: exec},
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, job := range exec.Pending() {
			if job.Class == executor.Flush {
				flushes++
			}
		}
		table, err := s.Table("t")
		if i == 0 {
			table, err = s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "k", Type: row.TypeInteger}}})
		}
		if err == nil {
			err = table.Put(ctx(), Key(i), "c", Now, row.Integer(1))
		}
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if logs == 0 || flushes == 0 {
		t.Errorf("%d lines were logged, and %d flushes queued, while the store was opened", logs, flushes)
	}
}
