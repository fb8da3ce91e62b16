package flagstone

import (
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// TestADropThatFailsAtOpenQueuesNoFlush: the drop of an ended change log that fails while the
// store is opened leaves nothing to do to background work, which has not begun.
func TestADropThatFailsAtOpenQueuesNoFlush(t *testing.T) {
	r, fault := faultRig(t, Options{WALSegmentSize: 16 << 10})
	table := r.streamed("t", StreamSpec{})
	refuse := func(nth int64) {
		fault.Add(vfs.Rule{Glob: "MANIFEST-*", Ops: vfs.OpWriteAt, Nth: nth, Action: vfs.FailWith(syscall.ENOSPC)})
	}
	refuse(2)
	if err := table.Alter(ctx(), TableChange{Stream: &StreamChange{}}); err != nil {
		t.Fatal(err)
	}
	fault.Clear()
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	refuse(3)
	exec := executortest.NewManual()
	failed := &failedDrops{exec: exec}
	opts := Options{WALSegmentSize: 16 << 10, Logger: slog.New(failed)}
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = fault, r.clock, exec
	s, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	if !failed.met {
		t.Error("no drop failed: the test tests nothing")
	}
	for _, job := range failed.queued {
		if job.Class == executor.Flush {
			t.Errorf("%s is queued before background work begins", job.Name)
		}
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// failedDrops is a log handler that notes which jobs are queued when the drop of a change log has
// failed.
type failedDrops struct {
	exec   *executortest.Manual
	met    bool
	queued []executortest.JobInfo
}

func (h *failedDrops) Enabled(context.Context, slog.Level) bool { return true }
func (h *failedDrops) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *failedDrops) WithGroup(string) slog.Handler            { return h }
func (h *failedDrops) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "cannot drop the change log") {
		h.met, h.queued = true, h.exec.Pending()
	}
	return nil
}
