package flagstone

// What happens beside a split or a merge, at the moments that matter.

import (
	"fmt"
	"testing"
	"time"

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

// TestTheLogIsKeptForTreesThatAreReplacedMeanwhile splits a table while the log behind the flush of another one is
// released, and loses power.
func TestTheLogIsKeptForTreesThatAreReplacedMeanwhile(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 20, WALSegmentSize: 32 << 10})
	table := r.table("t", TableOptions{})
	other := r.table("u", TableOptions{})
	for i := range 10 {
		if err := table.Put(ctx(), Key(partitionKey(i), i), "c", startMillis, row.String(fmt.Sprint(i))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 400 {
		if err := other.Put(ctx(), Key(partitionKey(0), i), "c", startMillis, row.String(fmt.Sprintf("%0500d", i))); err != nil {
			t.Fatal(err)
		}
	}
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
	r := newRig(t, Options{MemtableSize: 1 << 20, WALSegmentSize: 32 << 10})
	table := r.table("t", TableOptions{})
	other := r.table("u", TableOptions{})
	put := func(tb *Table, p, n int, v string) {
		if err := tb.Put(ctx(), Key(partitionKey(p), n), "c", startMillis, row.String(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Split(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	put(table, 1, 0, "x")
	put(table, 7, 0, "x")
	roll := func() {
		for i := range 400 {
			put(other, 0, i, fmt.Sprintf("%0500d", i))
		}
	}
	r.store.rebalancer.Parts.Env = workEnv{rebalanceEnv{r.store}, func() {
		put(table, 7, 1, "high")
		roll()
		put(table, 1, 1, "low")
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

// TestAFlushBesideAMergeKeepsTheOrderOfLevelZero flushes while the edit of a merge is being made durable, when only one
// of the partitions has anything to rotate.
func TestAFlushBesideAMergeKeepsTheOrderOfLevelZero(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 1 << 20})
	table := r.table("t", TableOptions{})
	put := func(p int, v string) {
		if err := table.Put(ctx(), Key(partitionKey(p), 1), "c", startMillis, row.String(v)); err != nil {
			t.Fatal(err)
		}
	}
	if err := table.Split(ctx(), row.String("p05")); err != nil {
		t.Fatal(err)
	}
	put(1, "old")
	put(7, "old")
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
		for {
			if m, w := low.MemoryBytes(); m == 0 && w > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond) // it waits for the tree
		put(7, "x")
		put(1, "new") // acknowledged
		put(7, "y")
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
	if err := table.Put(ctx(), Key(partitionKey(1), 1), "c", startMillis, row.String("x")); err != nil {
		t.Fatal(err)
	}
	flushed := make(chan error, 1)
	r.store.rebalancer.Parts.Env = editEnv{rebalanceEnv{r.store}, func() {
		tree := table.core.Trees()[0]
		go func() { flushed <- r.store.Flush(ctx()) }()
		for {
			if m, w := tree.MemoryBytes(); m == 0 && w > 0 {
				break
			}
			time.Sleep(time.Millisecond)
		}
		time.Sleep(20 * time.Millisecond)
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
