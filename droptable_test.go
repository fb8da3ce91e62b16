package flagstone

import (
	"context"
	"log/slog"
	"strings"
	"syscall"
	"testing"
	"time"

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
	failed := &afterDrops{}
	opts := Options{WALSegmentSize: 16 << 10, Logger: slog.New(failed)}
	opts.Seams.FS, opts.Seams.Clock = fault, r.clock // and workers of its own
	s, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	if !failed.met {
		t.Error("no drop failed: the test tests nothing")
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// afterDrops is a log handler that gives workers time when the drop of a change log has failed.
type afterDrops struct{ met bool }

func (h *afterDrops) Enabled(context.Context, slog.Level) bool { return true }
func (h *afterDrops) WithAttrs([]slog.Attr) slog.Handler       { return h }
func (h *afterDrops) WithGroup(string) slog.Handler            { return h }
func (h *afterDrops) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "cannot drop the change log") {
		h.met = true
		time.Sleep(50 * time.Millisecond)
	}
	return nil
}
