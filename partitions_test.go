package flagstone

import (
	"context"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
)

// divided is a table of which partitions are split and merged, with a model: the values of its rows. A
// consumer of its stream makes a model too.
type divided struct {
	*rig
	table    *Table
	rng      *rand.Rand
	model    map[[2]int]string
	consumed map[[2]int]string
	shards   map[uint64]*StreamPosition
	seen     map[uint64]bool // sequence numbers of records
	records  int

	last   [2]int // row that was written last, and what it held before
	before string
}

const (
	dividedKeys = 40 // partition keys
	dividedRows = 8  // of each
)

func partitionKey(n int) string { return fmt.Sprintf("p%02d", n) }

func newDivided(t *testing.T, seed uint64) *divided {
	t.Logf("seed %d", seed)
	d := &divided{
		rig: newRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10, MemoryBudget: 64 << 10}),
		rng: rand.New(rand.NewPCG(seed, 1)), model: map[[2]int]string{},
	}
	d.begin()
	return d
}

// begin makes the table with its stream.
func (d *divided) begin() {
	d.seen = map[uint64]bool{}
	d.consumed, d.shards = map[[2]int]string{}, map[uint64]*StreamPosition{}
	d.table = d.rig.table("t", TableOptions{})
	err := d.table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 1 << 30}}})
	if err != nil {
		d.t.Fatal(err)
	}
}

// consume reads a page of every shard of which it has read all parents, and carries it out.
func (d *divided) consume(limits StreamLimits) (more bool, err error) {
	stream := d.table.Stream()
	if stream == nil {
		return false, nil
	}
	for _, shard := range stream.Shards() {
		pos := d.shards[shard.ID]
		if pos == nil {
			unread := func(parent uint64) bool { return d.shards[parent] == nil || !d.shards[parent].End }
			if slices.ContainsFunc(shard.Parents, unread) {
				more = true
				continue
			}
			oldest, err := stream.Oldest(ctx(), shard.ID)
			if err != nil {
				return false, err
			}
			pos, d.shards[shard.ID] = &oldest, &oldest
		}
		if pos.End {
			continue
		}
		page, err := stream.Read(ctx(), *pos, limits)
		if err != nil {
			return false, err
		}
		for _, r := range page.Records {
			if d.seen[r.Sequence] {
				return false, fmt.Errorf("shard %d has the change %d, which was read already", shard.ID, r.Sequence)
			}
			d.seen[r.Sequence] = true
			at := [2]int{keyNumber(r.Key), int(r.Key[1].Int64())}
			if d.records++; r.Action == StreamDelete {
				delete(d.consumed, at)
			} else {
				d.consumed[at] = string(r.Cells[0].Value)
			}
		}
		*pos, more = page.Next, more || page.More || page.Next.End
	}
	return more, nil
}

// consumeAll reads the stream to its present end, and compares the consumer's model with the table's.
func (d *divided) consumeAll() {
	d.t.Helper()
	for more := true; more; {
		var err error
		if more, err = d.consume(StreamLimits{}); err != nil {
			d.t.Fatal(err)
		}
	}
	if !maps.Equal(d.consumed, d.model) {
		d.t.Fatalf("the stream says %v, the table has %v", d.consumed, d.model)
	}
}

func keyNumber(key []row.Value) (n int) {
	fmt.Sscanf(key[0].Text(), "p%d", &n)
	return n
}

// step writes, or does something to the store. It returns what it did.
func (d *divided) step() (what string, err error) {
	key := d.rng.IntN(dividedKeys)
	switch d.rng.IntN(60) {
	case 0, 1, 2:
		return fmt.Sprint("split at ", key), d.table.Split(ctx(), row.String(partitionKey(key)))
	case 3, 4:
		if list := d.table.Partitions(); len(list) > 1 {
			p := list[1+d.rng.IntN(len(list)-1)]
			return fmt.Sprint("merge at ", p.Start), d.table.Merge(ctx(), p.Start)
		}
		return "nothing", nil
	case 5:
		return "flush", d.store.Flush(ctx())
	case 6:
		return "compaction", d.table.Compact(ctx(), Key(partitionKey(key)), Key(partitionKey(key+10)))
	case 12:
		_, err = d.consume(StreamLimits{Records: 1 + d.rng.IntN(20)})
		return "stream", err
	case 7:
		d.exec.RunAll()
		return "all jobs", nil
	case 8, 9, 10:
		for range d.rng.IntN(6) {
			if n := len(d.exec.Pending()); n > 0 {
				d.exec.Step(d.rng.IntN(n))
			}
		}
		return "some jobs", nil
	case 11:
		batch := d.store.NewBatch()
		values := map[[2]int]string{}
		for range 5 {
			at, value := [2]int{d.rng.IntN(dividedKeys), d.rng.IntN(dividedRows)}, fmt.Sprint(d.rng.Uint32())
			batch.Row(d.table, Key(partitionKey(at[0]), at[1])).Put("c", startMillis, row.String(value))
			values[at] = value
		}
		if err = d.store.Apply(ctx(), batch); err == nil {
			maps.Copy(d.model, values)
		}
		return "batch", err
	}
	at, value := [2]int{key, d.rng.IntN(dividedRows)}, fmt.Sprint(d.rng.Uint64())
	err = d.table.Update(ctx(), Key(partitionKey(at[0]), at[1]), func(_ context.Context, tx *RowTx) error {
		if value[0] == '1' {
			tx.DeleteRow()
		} else {
			tx.Put("c", startMillis, row.String(value))
		}
		return nil
	})
	if err != nil {
		return "write", err
	}
	if d.model[at] = value; value[0] == '1' {
		delete(d.model, at)
	}
	return "write", nil
}

// check compares all rows with a model, at a snapshot or now, and that the partitions follow each other.
func (d *divided) check(model map[[2]int]string, at *Snapshot) {
	d.t.Helper()
	for key := range dividedKeys {
		for n := range dividedRows {
			want, exists := model[[2]int{key, n}]
			r, err := d.table.Get(ctx(), Key(partitionKey(key), n), ReadOptions{Snapshot: at})
			if err != nil || r.Exists() != exists || exists && cells(r) != fmt.Sprintf("c@%d=%s ", startMillis, want) {
				d.t.Fatalf("row %d/%d: %v, %v; want %q", key, n, r, err, want)
			}
		}
	}
	keys := slices.SortedFunc(maps.Keys(model), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) })
	for _, reverse := range []bool{false, true} {
		var found [][2]int
		for r, err := range d.table.Scan(ctx(), nil, nil, ScanOptions{Reverse: reverse, ReadOptions: ReadOptions{Snapshot: at}}).All() {
			if err != nil {
				d.t.Fatal(err)
			}
			found = append(found, [2]int{keyNumber(r.Key()), int(r.Key()[1].Int64())})
		}
		if reverse {
			slices.Reverse(found)
		}
		if !slices.Equal(found, keys) {
			d.t.Fatalf("a scan (reverse %t) found %v, want %v", reverse, found, keys)
		}
	}
	var end row.Value
	for _, p := range d.table.Partitions() {
		if p.Start.Text() != end.Text() {
			d.t.Fatalf("partitions %v", d.table.Partitions())
		}
		end = p.End
	}
}

// TestPartitionsSplitAndMergeUnseen compares a table of which partitions are split and merged between
// writes, flushes, compactions and crashes with a model; snapshots, checkpoints and scans are open
// meanwhile.
func TestPartitionsSplitAndMergeUnseen(t *testing.T) {
	runs := 20
	if testing.Short() {
		runs = 4
	}
	for i := range runs {
		seed := rand.Uint64()
		if n, _ := strconv.ParseUint(os.Getenv("FLAGSTONE_SEED"), 10, 64); n > 0 && i == 0 {
			seed = n
		}
		t.Run("", func(t *testing.T) { splitAndMerge(newDivided(t, seed)) })
	}
}

func splitAndMerge(d *divided) {
	t := d.t
	for round := range 12 {
		snapshot, err := d.store.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		then := maps.Clone(d.model)
		walk := d.table.Scan(ctx(), nil, nil, ScanOptions{Reverse: round%2 == 0})
		walked := 0
		for range 150 {
			if what, err := d.step(); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			if d.rng.IntN(3) == 0 && walk.Next() {
				walked++
			}
		}
		for walk.Next() {
			walked++
		}
		if err := walk.Close(); err != nil || walked != len(then) {
			t.Fatalf("a scan that was open found %d rows, want %d: %v", walked, len(then), err)
		}
		d.check(d.model, nil)
		d.check(then, snapshot)
		snapshot.Close()
		switch d.rng.IntN(4) {
		case 0:
			d.crash(vfs.CrashLoseAll, d.rng.Uint64())
		case 1:
			d.reopen()
		case 2:
			dir := fmt.Sprint("/copy", round)
			if err := d.store.Checkpoint(ctx(), dir); err != nil {
				t.Fatal(err)
			}
			opts := d.opts
			opts.Seams.FS, opts.Seams.Clock = d.fs, d.clock
			if report, err := Check(ctx(), dir, opts, nil); err != nil || len(report.Problems) > 0 {
				t.Fatal(err, report.Problems)
			}
		}
		d.table = d.rig.table("t", TableOptions{})
		d.check(d.model, nil)
		if round%3 == 0 {
			d.consumeAll()
		}
	}
	t.Logf("%d records of %d shards", d.records, len(d.shards))
	d.exec.RunAll()
	if err := d.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if m := d.store.Metrics(); m.MemoryBytes != 0 {
		t.Errorf("%d bytes are accounted for after everything was flushed", m.MemoryBytes)
	}
	d.check(d.model, nil)
}

// TestPowerLossAtEveryCallOfASplitAndAMerge cuts the power before each call of the file system in a run of
// writes, splits, a merge, and reads of the stream. After it, the table has what was acknowledged, and the
// stream goes on for its consumer where it was: every change once, in the order of its row.
func TestPowerLossAtEveryCallOfASplitAndAMerge(t *testing.T) {
	calls := powerLossInASplit(t, math.MaxInt)
	t.Logf("%d calls", calls)
	step := 1
	if testing.Short() {
		step = 23
	}
	for n := 1; n <= calls; n += step {
		t.Run(fmt.Sprint(n), func(t *testing.T) { powerLossInASplit(t, n) })
	}
}

// powerLossInASplit cuts the power before the n-th call, and returns how many there were.
func powerLossInASplit(t *testing.T, n int) (calls int) {
	rig, fault := faultRig(t, Options{MemtableSize: 4 << 10, TableFileSize: 4 << 10, WALSegmentSize: 32 << 10})
	d := &divided{rig: rig, rng: rand.New(rand.NewPCG(1, uint64(n))), model: map[[2]int]string{}}
	d.begin()
	write := func(rows int) (err error) {
		for range rows {
			at, value := [2]int{d.rng.IntN(dividedKeys), d.rng.IntN(dividedRows)}, fmt.Sprint(d.rng.Uint64())
			d.last, d.before = at, d.model[at]
			d.model[at] = value
			if err = d.table.Put(ctx(), Key(partitionKey(at[0]), at[1]), "c", startMillis, row.String(value)); err != nil {
				return err
			}
		}
		return nil
	}
	if err := write(60); err != nil {
		t.Fatal(err)
	}
	var next *vfs.Sim
	disk := rig.fs
	fault.Observe(vfs.Observer{Before: func(vfs.Call) {
		if calls++; calls == n {
			next = disk.Crash(vfs.CrashLoseAll, 1)
		}
	}})
	for _, step := range []func() error{
		func() error { return write(20) }, func() error { return d.table.Split(ctx(), row.String(partitionKey(20))) },
		func() error { return write(20) }, func() error { d.exec.RunAll(); return nil },
		func() error { return d.table.Split(ctx(), row.String(partitionKey(10))) }, func() error { return write(10) },
		func() error { return d.table.Merge(ctx(), row.String(partitionKey(20))) }, func() error { return write(10) },
		func() error { d.exec.RunAll(); return nil },
	} {
		_, err := d.consume(StreamLimits{Records: 10})
		if err == nil {
			err = step()
		}
		if next != nil {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	fault.Observe(vfs.Observer{})
	if next == nil {
		return calls
	}
	d.store.Close()
	d.rig.fs, d.rig.opts.Seams.FS = next, nil
	d.open()
	d.table = d.rig.table("t", TableOptions{})
	if got := show(t, d.table, partitionKey(d.last[0]), d.last[1]); got != fmt.Sprintf("c@%d=%s ", startMillis, d.model[d.last]) {
		if d.model[d.last] = d.before; d.before == "" { // it was not acknowledged
			delete(d.model, d.last)
		}
	}
	d.check(d.model, nil)
	if err := write(20); err != nil {
		t.Fatal(err)
	}
	d.consumeAll()
	return calls
}

// TestAFlushOfTreesThatWereReplacedOften flushes two trees that were merged, and split elsewhere, again and again: each
// tree that is there now must be flushed once.
func TestAFlushOfTreesThatWereReplacedOften(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: -1})
	table := r.table("t", TableOptions{})
	wantError(t, "Split", table.Split(ctx(), row.String("m")), nil)
	old := table.core.Trees()
	for i := range 30 {
		wantError(t, "Merge", table.Merge(ctx(), row.String("m")), nil)
		wantError(t, "Split", table.Split(ctx(), row.String("m")), nil)
		if present := partition.Present(old); !slices.Equal(present, table.core.Trees()) {
			t.Fatalf("after %d merges and splits: %d trees instead of %d", i+1, len(present), len(table.core.Trees()))
		}
	}
	put(t, table, "a", 1, "c", Now, "x")
	put(t, table, "z", 1, "c", Now, "x")
	wantError(t, "Flush", r.store.upkeep.Flush(ctx(), old...), nil)
}
