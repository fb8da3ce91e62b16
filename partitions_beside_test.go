package flagstone

// What happens beside a split or a merge, at the moments that matter.

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// stallEnv lets something happen between the list of trees for which the log is kept and the look at them.
type stallEnv struct {
	roomsEnv
	stall func()
}

func (e stallEnv) LogTrees() []*partition.Tree {
	trees := e.roomsEnv.LogTrees()
	e.stall()
	return trees
}

// shortSegments returns two tables of a store whose log has short segments.
func shortSegments(t *testing.T) (r *rig, table, other *Table) {
	r = newRig(t, Options{MemtableSize: 1 << 20, WALSegmentSize: 32 << 10})
	return r, r.table("t", TableOptions{}), r.table("u", TableOptions{})
}

func putBeside(t *testing.T, table *Table, p, n int, v string) {
	if err := table.Put(ctx(), Key(partitionKey(p), n), "c", startMillis, row.String(v)); err != nil {
		t.Fatal(err)
	}
}

// fillSegments writes as much as several segments of the log hold.
func fillSegments(t *testing.T, table *Table) {
	for i := range 400 {
		putBeside(t, table, 0, i, fmt.Sprintf("%0500d", i))
	}
}

// TestTheLogIsKeptForTreesThatAreReplacedMeanwhile splits a table while the log behind the flush of another one is
// released, and loses power.
func TestTheLogIsKeptForTreesThatAreReplacedMeanwhile(t *testing.T) {
	r, table, other := shortSegments(t)
	for i := range 10 {
		putBeside(t, table, i, i, fmt.Sprint(i))
	}
	fillSegments(t, other)
	done := false
	r.store.upkeep.Parts.Env = stallEnv{roomsEnv{r.store}, func() {
		if !done {
			done = true
			if err := table.Split(ctx(), row.String("p05")); err != nil {
				t.Fatal(err)
			}
		}
	}}
	if err := r.store.upkeep.Flush(ctx(), other.core.Trees()...); err != nil {
		t.Fatal(err)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	for i := range 10 {
		row, err := table.Get(ctx(), Key(partitionKey(i), i), ReadOptions{})
		if err != nil || !row.Exists() {
			t.Errorf("row %d is lost: %v", i, err)
		}
	}
}

// workEnv lets something happen between the preparation of a merge and the merge.
type workEnv struct {
	rebalanceEnv
	after func()
}

func (e workEnv) Work(f func() error) error {
	err := e.rebalanceEnv.Work(f)
	e.after()
	return err
}

// TestTheLogIsKeptForMergedPartitions writes to both between the preparation of a merge and the merge, flushes another
// table, and loses power.
func TestTheLogIsKeptForMergedPartitions(t *testing.T) {
	r, table, other := shortSegments(t)
	if err := table.Split(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	putBeside(t, table, 1, 0, "x")
	putBeside(t, table, 7, 0, "x")
	r.store.rebalancer.Parts.Env = workEnv{rebalanceEnv{r.store}, func() {
		putBeside(t, table, 7, 1, "high")
		fillSegments(t, other)
		putBeside(t, table, 1, 1, "low")
	}}
	if err := table.Merge(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	if n := len(table.core.Trees()); n != 1 {
		t.Fatal(n)
	}
	if err := r.store.upkeep.Flush(ctx(), other.core.Trees()...); err != nil {
		t.Fatal(err)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	for _, p := range []int{1, 7} {
		row, err := table.Get(ctx(), Key(partitionKey(p), 1), ReadOptions{})
		if err != nil || !row.Exists() {
			t.Errorf("row of %d is lost: %v", p, err)
		}
	}
}

// editEnv lets something happen before the edit of a split or a merge is made durable.
type editEnv struct {
	rebalanceEnv
	before func()
}

func (e editEnv) Edit(edit *manifest.Edit) (*manifest.State, error) {
	e.before()
	return e.rebalanceEnv.Edit(edit)
}

// untilAFlushWaits returns when a tree was rotated by a flush that now waits for the tree's lock.
func untilAFlushWaits(tree *partition.Tree) {
	stacks := make([]byte, 1<<20)
	for {
		active, waiting := tree.MemoryBytes()
		for _, goroutine := range bytes.Split(stacks[:runtime.Stack(stacks, true)], []byte("\n\n")) {
			if active == 0 && waiting > 0 && bytes.Contains(goroutine, []byte("[sync.Mutex.Lock")) && bytes.Contains(goroutine, []byte("partition.Flush(")) {
				return
			}
		}
		runtime.Gosched()
	}
}

// TestAFlushBesideAMergeKeepsTheOrderOfLevelZero flushes while the edit of a merge is being made durable, when only one
// of the partitions has anything to rotate.
func TestAFlushBesideAMergeKeepsTheOrderOfLevelZero(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 20})
	table := r.table("t", TableOptions{})
	if err := table.Split(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	putBeside(t, table, 1, 1, "old")
	putBeside(t, table, 7, 1, "old")
	flushed := make(chan error, 1)
	first := true
	r.store.rebalancer.Parts.Env = editEnv{rebalanceEnv{r.store}, func() {
		if !first {
			return
		}
		first = false
		low := table.core.Trees()[0]
		if err := table.Delete(ctx(), Key(partitionKey(1), 1)); err != nil {
			t.Fatal(err)
		}
		go func() { flushed <- r.store.Flush(ctx()) }()
		untilAFlushWaits(low)
		putBeside(t, table, 7, 1, "x")
		putBeside(t, table, 1, 1, "new") // acknowledged
		putBeside(t, table, 7, 1, "y")
	}}
	if err := table.Merge(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	show := func(when string) {
		got, err := table.Get(ctx(), Key(partitionKey(1), 1), ReadOptions{})
		if err != nil || !got.Exists() {
			t.Errorf("%s: the row is lost: %v", when, err)
		}
		for _, f := range table.core.Trees()[0].Meta().Levels[0] {
			t.Logf("%s: L0 file %d seq %d..%d", when, f.Number, f.SmallestSeq, f.LargestSeq)
		}
	}
	show("after the first flush")
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	show("after the second flush")
}

// TestAFlushBesideASplitFlushes flushes while the edit of a split is being made durable, and loses power.
func TestAFlushBesideASplitFlushes(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 20, Sync: SyncNone})
	table := r.table("t", TableOptions{})
	putBeside(t, table, 1, 1, "x")
	flushed := make(chan error, 1)
	r.store.rebalancer.Parts.Env = editEnv{rebalanceEnv{r.store}, func() {
		tree := table.core.Trees()[0]
		go func() { flushed <- r.store.Flush(ctx()) }()
		untilAFlushWaits(tree)
	}}
	if err := table.Split(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	if err := <-flushed; err != nil {
		t.Fatal(err)
	}
	_, waiting := r.store.gate.Bytes()
	if waiting != 0 {
		t.Errorf("%d bytes wait after a flush", waiting)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	got, err := table.Get(ctx(), Key(partitionKey(1), 1), ReadOptions{})
	if err != nil || !got.Exists() {
		t.Errorf("the row that was flushed is lost: %v", err)
	}
}

// TestAChangeThatBeganBeforeASplitGoesToTheNewPartition: a batch, a transaction and an update.
func TestAChangeThatBeganBeforeASplitGoesToTheNewPartition(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put := func(_ context.Context, tx *RowTx) error { tx.Put("c", startMillis, row.String("v")); return nil }
	split := func(at string) { wantError(t, "Split", table.Split(ctx(), row.String(at)), nil) }

	b := r.store.NewBatch()
	b.Row(table, Key("x", 1)).Put("c", startMillis, row.String("v"))
	split("m")
	wantError(t, "Apply", r.store.Apply(ctx(), b), nil)

	tx, err := table.Begin(ctx(), row.String("y"), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	wantError(t, "Update in the transaction", tx.Update(ctx(), Key("y", 1), put), nil)
	split("w")
	wantError(t, "Merge", table.Merge(ctx(), row.String("m")), nil)
	wantError(t, "Commit", tx.Commit(ctx()), nil)

	wantError(t, "Update", table.Update(ctx(), Key("z", 1), func(c context.Context, tx *RowTx) error {
		split("yy")
		return put(c, tx)
	}), nil)
	for _, k := range []string{"x", "y", "z"} {
		if found, err := table.Get(ctx(), Key(k, 1), ReadOptions{}); err != nil || !found.Exists() {
			t.Errorf("row %s is lost (%v)", k, err)
		}
	}
}
