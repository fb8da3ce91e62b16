package flagstone

// Flush, Compact and the like end although others go on writing.

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/internal/executor"
	"github.com/flagstone-db/flagstone/internal/vfs"
)

// whileTablesAreMade calls f on another goroutine before each table file is made, except the
// files that f makes. It returns how often.
func whileTablesAreMade(fault *vfs.Fault, f func(n int)) (times *int) {
	times = new(int)
	inside := false
	fault.Observe(vfs.Observer{Before: func(c vfs.Call) {
		if inside || c.Op != vfs.OpCreate || !strings.HasSuffix(c.Name, ".sst") {
			return
		}
		inside = true
		*times++
		done := make(chan struct{})
		go func() {
			defer close(done)
			f(*times)
		}()
		<-done
		inside = false
	}})
	return times
}

func TestCompactEndsWhileOthersFlush(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	for i := range 2 {
		put(t, table, "p", 0, "c", startMillis, fmt.Sprint(i))
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithCancel(ctx())
	defer cancel()
	merges := whileTablesAreMade(fault, func(n int) {
		if n == 10 {
			cancel()
		}
		put(t, table, "p", 0, "c", startMillis, fmt.Sprint("later ", n))
		if err := r.store.Flush(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err := table.Compact(ctx, nil, nil); err != nil || *merges != 1 {
		t.Errorf("%v after %d merges, want 1", err, *merges)
	}
}

func TestFlushEndsWhileOthersWrite(t *testing.T) {
	r, fault := faultRig(t, Options{MemtableSize: 2 << 10})
	table := r.table("t", TableOptions{MaxVersions: 1})
	put(t, table, "p", 0, "c", startMillis, "v")
	flushes := whileTablesAreMade(fault, func(n int) {
		for i := range 10 * max(0, 10-n) {
			put(t, table, "p", i, "c", startMillis, strings.Repeat("x", 500))
		}
	})
	if err := r.store.Flush(ctx()); err != nil || *flushes != 1 {
		t.Errorf("%v after %d flushes, want 1", err, *flushes)
	}
	if err := r.store.Settle(ctx()); err != nil { // the rest has a job of its own
		t.Fatal(err)
	}
	if _, waiting := table.core.Trees()[0].MemoryBytes(); waiting != 0 || *flushes < 2 {
		t.Errorf("%d bytes wait after %d flushes", waiting, *flushes)
	}
}

// TestATreeThatIsMergedWholeHoldsNobodyUp: the tree's own jobs do not wait for the compaction,
// and run afterwards.
func TestATreeThatIsMergedWholeHoldsNobodyUp(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	for i := range 2 {
		put(t, table, "p", 0, "c", startMillis, fmt.Sprint(i))
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	r.exec.RunAll()
	put(t, table, "p", 0, "c", startMillis, "v")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	merges := whileTablesAreMade(fault, func(int) { r.exec.RunAll() })
	if err := table.Compact(ctx(), nil, nil); err != nil || *merges != 1 {
		t.Errorf("%v after %d merges, want 1", err, *merges)
	}
	compactions := 0
	for _, job := range r.exec.Pending() {
		if job.Class == executor.Compaction {
			compactions++
		}
	}
	if compactions != 1 {
		t.Errorf("%d compactions are to come, want 1", compactions)
	}
}

// TestAfterSettleNothingIsLeftToDelete: the space of a settled store is what its data takes.
func TestAfterSettleNothingIsLeftToDelete(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 1})
	for range 5 {
		put(t, table, "p", 1, "c", startMillis, "v")
		if err := r.store.Flush(ctx()); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Compact(ctx(), nil, nil); err != nil {
		t.Fatal(err)
	}
	if n := len(tableFiles(r.fs)); n < 5 {
		t.Fatalf("%d files before Settle: nothing waits for deletion", n)
	}
	settle(t, r)
	if names := tableFiles(r.fs); len(names) != 1 {
		t.Errorf("after Settle there are %q", names)
	}
}
