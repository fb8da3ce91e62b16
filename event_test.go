package flagstone

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/event"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/rebalance"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// events gathers what a store tells.
type events struct {
	mu   sync.Mutex
	told []Event
}

func (e *events) add(event Event) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, event)
}

// take returns what was told since the last call.
func (e *events) take() []Event {
	e.mu.Lock()
	defer e.mu.Unlock()
	told := e.told
	e.told = nil
	return told
}

// summary has a line per event: what a test can know of it.
func summary(told []Event) string {
	var lines []string
	for _, e := range told {
		line := fmt.Sprint(e.Kind, " ", e.Table)
		switch {
		case e.Begun:
			line += " begins"
		case e.Job != 0:
			line += " ends"
		}
		if e.Reason != "" {
			line += " (" + e.Reason + ")"
		}
		if e.Err != nil {
			line += " with an error"
		}
		lines = append(lines, line)
	}
	return strings.Join(lines, "\n")
}

func TestEventsSayWhatAStoreDoes(t *testing.T) {
	var told events
	r, fault := faultRig(t, Options{MemtableSize: 8 << 10, OnEvent: told.add})
	want := func(about, want string) []Event {
		t.Helper()
		got := told.take()
		if summary(got) != want {
			t.Fatalf("%s:\n%s\nwant\n%s", about, summary(got), want)
		}
		return got
	}
	table := r.table("t", TableOptions{})
	want("the rig opens the store twice", "log segment \nlog segment ")

	for n := range 20 {
		put(t, table, "a", n, "c", 1, "old")
	}
	r.ok(r.store.Flush(ctx()))
	flushed := want("flush", "flush t begins\nflush t ends")
	if f := flushed[1]; f.Job != flushed[0].Job || f.Input == 0 || f.Written == 0 || len(f.Partitions) != 1 {
		t.Errorf("flush: %+v", f)
	}
	for n := range 20 {
		put(t, table, "a", n, "c", 1, "new")
	}
	r.ok(r.store.Flush(ctx()))
	told.take()
	r.ok(table.Compact(ctx(), nil, nil))
	merged := want("compaction", "compaction t begins (manual)\ncompaction t ends (manual)")
	if c := merged[1]; c.Files != 2 || c.Input == 0 || c.Written == 0 || c.Dropped != 40 || c.Output != 6 || c.Job == flushed[0].Job {
		t.Errorf("compaction: %+v", c)
	}

	put(t, table, "b", 0, "c", 1, "v")
	r.ok(table.Split(ctx(), row.String("b")))
	split := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind != EventSplit })
	if summary(split) != "split t begins\nsplit t ends" || len(split[0].Partitions) != 1 || len(split[0].Made) != 0 || len(split[1].Made) != 2 {
		t.Errorf("split: %+v", split)
	}
	r.ok(table.Merge(ctx(), row.String("b")))
	around := told.take()
	merge := slices.DeleteFunc(slices.Clone(around), func(e Event) bool { return e.Kind != EventMerge })
	if summary(merge) != "merge t begins\nmerge t ends" || !slices.Equal(merge[0].Partitions, split[1].Made) || len(merge[1].Made) != 1 {
		t.Errorf("merge: %+v", merge)
	}
	if around[0].Kind != EventMerge { // what it flushes and compacts comes after its beginning
		t.Errorf("around the merge:\n%s", summary(around))
	}
	r.exec.RunAll()
	told.take()

	// A flush fails, and succeeds when it is tried again.
	fault.Add(vfs.Rule{Ops: vfs.OpCreate, Glob: "*.sst", Action: vfs.FailWith(syscall.ENOSPC)})
	for n := range 100 {
		put(t, table, "a", n, "c", 1, strings.Repeat("v", 100))
	}
	r.exec.RunAll()
	failed := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind == EventLogSegment })
	if got := summary(failed); got != "flush t begins\nflush t ends with an error\nfailure  (flush) with an error" {
		t.Errorf("failed flush:\n%s", got)
	}
	for _, e := range failed[1:] {
		if !errors.Is(e.Err, ErrNoSpace) {
			t.Errorf("failed flush: %+v", e)
		}
	}
	r.clock.Advance(jobs.RetryAfter)
	r.exec.RunAll()
	again := summary(told.take())
	if !strings.HasPrefix(again, "flush t begins\nflush t ends") || strings.Contains(again, "error") {
		t.Errorf("flushed again:\n%s", again)
	}
}

func TestAPoisonedStoreIsAnEvent(t *testing.T) {
	var told events
	r, fault := faultRig(t, Options{OnEvent: told.add})
	table := r.table("t", TableOptions{})
	fault.Add(vfs.Rule{Ops: vfs.OpSyncData, Glob: "0*.log", Action: vfs.FailWith(syscall.EIO)})
	err := table.Put(ctx(), Key("a", 1), "c", 1, row.String("v"))
	if !errors.Is(err, ErrPoisoned) {
		t.Fatal(err)
	}
	r.exec.RunAll()
	for _, e := range told.take() {
		if e.Kind == EventFailure && errors.Is(e.Err, ErrPoisoned) {
			return
		}
	}
	t.Error("no event says that the store is poisoned")
}

// TestAListenerMayAskForMetrics calls them at each event, while locks of the store may be held.
func TestAListenerMayAskForMetrics(t *testing.T) {
	var store *Store
	asked := map[EventKind]int{}
	r := newRig(t, Options{MemtableSize: 4 << 10, WALSegmentSize: 16 << 10, MemoryBudget: 16 << 10, OnEvent: func(e Event) {
		if store != nil {
			store.Metrics()
			asked[e.Kind]++
		}
	}})
	store = r.store
	table := r.table("t", TableOptions{})
	for n := range 1000 {
		put(t, table, "a", n, "c", 1, strings.Repeat("v", 100))
	}
	r.ok(table.Split(ctx(), row.String("b")))
	r.ok(table.Merge(ctx(), row.String("b")))
	r.ok(table.Compact(ctx(), nil, nil))
	for _, kind := range []EventKind{EventFlush, EventCompaction, EventStall, EventLogSegment, EventSplit, EventMerge} {
		if asked[kind] == 0 {
			t.Errorf("no event of the kind %q: %v", kind, asked)
		}
	}
}

func TestAnExpiredFileIsAnEvent(t *testing.T) {
	var told events
	r := newRig(t, Options{OnEvent: told.add})
	table := r.table("t", TableOptions{TTLSeconds: 100_000})
	put(t, table, "a", 1, "c", Now, "v")
	r.ok(r.store.Flush(ctx()))
	r.exec.RunAll()
	told.take()
	believeClock(r.clock)
	r.clock.Advance(200_000 * time.Second)
	r.exec.RunAll()
	for _, e := range told.take() {
		if e.Kind == EventCompaction && !e.Begun && e.Reason == "expired" && e.Input > 0 && e.Written == 0 && e.Err == nil {
			return
		}
	}
	t.Error("no expired file was dropped")
}

func TestWhatIsDoneAnewIsNoFailure(t *testing.T) {
	var told events
	r := newRig(t, Options{OnEvent: told.add})
	for _, c := range []struct {
		err       error
		cancelled bool
		refused   bool
		matches   error // what Event.Err matches
	}{
		{err: fmt.Errorf("compact: %w", partition.ErrReplaced), cancelled: true},
		{err: partition.ErrStale, cancelled: true},
		{err: ErrClosed, cancelled: true},
		{err: fmt.Errorf("%w: %w", rebalance.ErrCancelled, rebalance.ErrBusy), cancelled: true},
		{err: rebalance.ErrBusy, refused: true, matches: rebalance.ErrBusy},
		{err: context.Canceled, refused: true, matches: context.Canceled},
		{err: fmt.Errorf("%w: %w", ErrOutcomeUnknown, context.Canceled), matches: ErrOutcomeUnknown},
		{err: fmt.Errorf("write: %w", syscall.ENOSPC), matches: ErrNoSpace},
		{},
	} {
		told.take()
		r.store.happened(event.Event{Kind: event.Compaction, Job: 1, Err: c.err})
		e := told.take()[0]
		if e.Cancelled != c.cancelled || e.Refused != c.refused || !errors.Is(e.Err, c.matches) {
			t.Errorf("%v: %+v", c.err, e)
		}
	}
}

func TestLoadsAndMovesAreEvents(t *testing.T) {
	var told events
	r := newRig(t, Options{OnEvent: told.add})
	table := r.table("t", TableOptions{})
	w, err := table.BulkLoad(ctx(), BulkOptions{})
	r.ok(err)
	defer w.Abort()
	r.ok(w.Put(Key("a", 1), BulkCell{"c", 1, row.String("v")}))
	r.ok(w.Commit(ctx()))
	loaded := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind != EventLoad })
	if summary(loaded) != "load t begins\nload t ends" || loaded[0].Files != 1 || loaded[0].Input == 0 {
		t.Errorf("load: %+v", loaded)
	}
	again, err := table.BulkLoad(ctx(), BulkOptions{})
	r.ok(err)
	defer again.Abort()
	r.ok(again.Put(Key("a", 1), BulkCell{"c", 1, row.String("v")}))
	if err := again.Commit(ctx()); !errors.Is(err, ErrConflict) {
		t.Errorf("the range has a row: %v", err)
	}
	refused := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind != EventLoad })
	if len(refused) != 2 || !refused[1].Refused || !errors.Is(refused[1].Err, ErrConflict) {
		t.Errorf("refused load: %+v", refused)
	}
	export, err := table.Export(ctx(), "/export", ExportOptions{})
	r.ok(err)
	if err := r.store.Ingest(ctx(), export.Fragment); !errors.Is(err, ErrInvalid) {
		t.Errorf("the partition is there: %v", err)
	}
	ingested := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind != EventIngest })
	if len(ingested) != 2 || !ingested[0].Begun || ingested[1].Begun || !ingested[1].Refused || ingested[1].Job != ingested[0].Job {
		t.Errorf("refused ingest: %+v", ingested)
	}
	id := table.Partitions()[0].ID
	if err := table.Detach(ctx(), id, "moved"); !errors.Is(err, ErrInvalid) {
		t.Errorf("the partition serves: %v", err)
	}
	r.ok(table.Freeze(ctx(), id, "moved"))
	r.ok(table.Detach(ctx(), id, "moved"))
	detached := slices.DeleteFunc(told.take(), func(e Event) bool { return e.Kind != EventDetach })
	if summary(detached) != "detach t begins\ndetach t ends" || detached[0].Partitions[0] != id {
		t.Errorf("detach:\n%s", summary(detached))
	}
}

// TestAMergeThatFindsNothingIsCancelled merges the same partitions once the first merge has begun.
func TestAMergeThatFindsNothingIsCancelled(t *testing.T) {
	var told events
	begun := func() {}
	r := newRig(t, Options{OnEvent: func(e Event) {
		told.add(e)
		if e.Kind == EventMerge && e.Begun {
			begun()
		}
	}})
	table := r.table("t", TableOptions{})
	r.ok(table.Split(ctx(), row.String("b")))
	begun = func() {
		begun = func() {}
		r.ok(table.Merge(ctx(), row.String("b")))
	}
	_ = table.Merge(ctx(), row.String("b"))
	var ends []Event
	for _, e := range told.take() {
		if e.Kind == EventMerge && !e.Begun {
			ends = append(ends, e)
		}
	}
	if len(ends) != 2 || ends[0].Cancelled || len(ends[0].Made) != 1 || !ends[1].Cancelled || ends[1].Made != nil {
		t.Errorf("%+v", ends)
	}
}
