package flagstone

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// countdown is a context that ends after so many looks at it. A second passes at each.
type countdown struct {
	context.Context
	left  int
	clock *clocktest.Manual
}

func (c *countdown) Err() error {
	c.clock.Advance(time.Second)
	if c.left--; c.left < 0 {
		return context.Canceled
	}
	return nil
}

// TestP14_RecoveryThatIsCancelledAnywhereGoesOn opens a store again and again, a few records farther each time. The
// replay flushes. Power is lost after every other attempt.
func TestP14_RecoveryThatIsCancelledAnywhereGoesOn(t *testing.T) {
	var said bytes.Buffer
	r := newRig(t, Options{MemtableSize: 16 << 10, WALSegmentSize: 16 << 10, Logger: slog.New(slog.NewTextHandler(&said, nil))})
	table := r.table("t", TableOptions{})
	for n := range 100 {
		put(t, table, "p", n, "c", startMillis, fmt.Sprintf("%d-%s", n, strings.Repeat("v", 1000)))
	}
	old := r.store
	r.fs = r.fs.Kill()
	old.Close()
	stopped := 0
	for looks := 0; ; looks += 7 {
		opts := r.opts
		opts.Seams.FS, opts.Seams.Clock = r.fs, r.clock
		store, err := OpenContext(&countdown{context.Background(), looks, r.clock}, "/store", opts)
		if err == nil {
			r.store = store
			break
		}
		stopped++
		if open := r.fs.OpenFiles(); !errors.Is(err, context.Canceled) || len(open) > 0 {
			t.Fatalf("after %d looks: %v, open files %q", looks, err, open)
		}
		if stopped%2 == 0 {
			r.fs = r.fs.Crash(vfs.CrashLoseAll, uint64(looks))
		}
		if report, err := Check(ctx(), "/store", Options{Seams: Seams{FS: r.fs}}, nil); err != nil || len(report.Problems) > 0 {
			t.Fatalf("after %d looks: check: %v %v", looks, err, report.Problems)
		}
	}
	if stopped < 10 || !strings.Contains(said.String(), "recovering the log") {
		t.Errorf("%d attempts were stopped; the log says:\n%s", stopped, &said)
	}
	table = r.table("t", TableOptions{})
	for n := range 100 {
		if got := show(t, table, "p", n); !strings.HasPrefix(got, fmt.Sprintf("c@%d=%d-v", startMillis, n)) {
			t.Errorf("row %d: %q", n, got)
		}
	}
}
