package flagstone

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/row"
)

// These tests split and merge partitions by edits of the manifest, followed by a crash. So recovery
// alone brings about what a splitter does in memory.

// cut commits a split of partition at of a table at a partition key or, if the key is empty, a merge
// with the next one. The store still has the old partitions, which may take as many mutations as
// reserved says before it is opened again.
func (r *rig) cut(table *Table, at int, key string, reserved uint64) *manifest.State {
	r.t.Helper()
	state := r.store.state()
	old := state.Table(table.core.ID).Partitions[at : at+1]
	if key == "" {
		old = state.Table(table.core.ID).Partitions[at : at+2]
	}
	if trees := table.core.Trees()[at : at+len(old)]; !trees[0].Trimmed() || !trees[len(old)-1].Trimmed() {
		if err := r.store.upkeep.Flush(ctx(), trees...); err != nil {
			r.t.Fatal(err)
		}
		for _, tree := range trees {
			if err := r.store.upkeep.Trim(ctx(), tree); err != nil {
				r.t.Fatal(err)
			}
		}
		state = r.store.state()
		old = state.Table(table.core.ID).Partitions[at : at+len(old)]
	}
	next := &manifest.Replacement{Table: table.core.ID, After: r.store.pipeline.LastSeq() + reserved}
	whole := manifest.Partition{ID: state.NextPartition, Start: old[0].Start, End: old[len(old)-1].End, FlushedSeq: old[0].FlushedSeq}
	for _, p := range old {
		next.Old = append(next.Old, p.ID)
		whole.Epoch, whole.FlushedSeq = max(whole.Epoch, p.Epoch+1), min(whole.FlushedSeq, p.FlushedSeq)
		for level, files := range p.Levels {
			for _, f := range files {
				if !slices.ContainsFunc(whole.Levels[level], func(g *manifest.FileMeta) bool { return g.Number == f.Number }) {
					whole.Levels[level] = append(whole.Levels[level], f)
				}
			}
		}
	}
	slices.SortFunc(whole.Levels[0], func(f, g *manifest.FileMeta) int {
		return cmp.Or(cmp.Compare(f.LargestSeq, g.LargestSeq), cmp.Compare(f.Number, g.Number))
	})
	next.New = []*manifest.Partition{&whole}
	if key != "" {
		bound, err := table.core.EncodeBound(nil, Key(key))
		if err != nil {
			r.t.Fatal(err)
		}
		if bytes.Compare(bound, whole.Start) <= 0 || len(whole.End) > 0 && bytes.Compare(bound, whole.End) >= 0 {
			return nil
		}
		left, right := whole, whole
		left.End, right.Start, right.ID = bound, bound, whole.ID+1
		next.New = []*manifest.Partition{&left, &right}
		for _, p := range next.New {
			for level := range p.Levels {
				p.Levels[level] = slices.DeleteFunc(slices.Clone(whole.Levels[level]), func(f *manifest.FileMeta) bool { return !p.Overlaps(f.Smallest, f.Largest) })
			}
		}
	}
	state, err := r.store.commitEdit(&manifest.Edit{Replaced: []*manifest.Replacement{next}})
	if err != nil {
		r.t.Fatal(err)
	}
	return state
}

// shardsOf lists the shards with their parents.
func shardsOf(st *Stream) (shown string) {
	for _, s := range st.Shards() {
		shown += fmt.Sprintf("%d%v ", s.ID, s.Parents)
	}
	return shown
}

// shardReader reads parents before children.
type shardReader struct {
	t      *testing.T
	places map[uint64]StreamPosition
	seen   map[string][]string // of each row, the values in the order of their records
}

// read reads all shards that may be read to their present ends, or a page of some of them.
func (c *shardReader) read(st *Stream, limits StreamLimits, skip func() bool) {
	c.t.Helper()
	shards := st.Shards()
	open := func(id uint64) bool {
		return slices.ContainsFunc(shards, func(s StreamShard) bool { return s.ID == id }) && !c.places[id].End
	}
	for _, s := range shards {
		if slices.ContainsFunc(s.Parents, open) || skip() {
			continue
		}
		pos, known := c.places[s.ID]
		if !known {
			var err error
			if pos, err = st.Oldest(ctx(), s.ID); err != nil {
				c.t.Fatal(err)
			}
		}
		for more := true; more; more = more && limits.Records == 0 {
			page, err := st.Read(ctx(), pos, limits)
			if err != nil {
				c.t.Fatal(err)
			}
			if pos.End && len(page.Records) > 0 {
				c.t.Fatalf("shard %d has records behind its end", s.ID)
			}
			for i := range page.Records {
				r := &page.Records[i]
				value, err := row.PayloadValue(r.Cells[0].Type, r.Cells[0].Value)
				if err != nil {
					c.t.Fatal(err)
				}
				key := r.Key[0].Text()
				c.seen[key] = append(c.seen[key], value.Text())
			}
			pos, more = page.Next, page.More
		}
		c.places[s.ID] = pos
	}
}

// TestParentsBeforeChildrenGiveEachRowInOrder splits and merges at random, with crashes, flushes of
// tables and change logs, and writes that take reserved sequence numbers. A reader that goes on
// meanwhile, and one that begins at the end, see every change once and those of a row in order.
func TestParentsBeforeChildrenGiveEachRowInOrder(t *testing.T) {
	for range 8 {
		followShards(t, rand.Uint64())
	}
}

func followShards(t *testing.T, seed uint64) {
	random := rand.New(rand.NewPCG(seed, 0))
	r := newRig(t, Options{PartitionSplitSize: -1})
	defer func() { r.store.Close() }()
	spec := StreamSpec{RetentionSeconds: 1e6}
	if random.IntN(2) == 0 {
		spec.Before = []string{"c"}
	}
	table := r.streamed("t", spec)
	want := map[string][]string{}
	written := 0
	write := func() {
		pk := fmt.Sprint(random.IntN(10))
		written++
		put(t, table, pk, 1, "c", startMillis, fmt.Sprint(written))
		want[pk] = append(want[pk], fmt.Sprint(written))
	}
	reader := &shardReader{t, map[uint64]StreamPosition{}, map[string][]string{}}
	for range 40 {
		switch random.IntN(6) {
		case 0, 1:
			key := fmt.Sprint(random.IntN(10))
			parts := len(r.store.state().Table(table.core.ID).Partitions)
			at := random.IntN(parts)
			if at+1 < parts && random.IntN(2) == 0 {
				key = ""
			}
			reserved := random.IntN(3)
			if r.cut(table, at, key, uint64(2*reserved)) == nil { // a record of what was before takes another number
				continue
			}
			for range reserved {
				reader.read(table.Stream(), StreamLimits{}, func() bool { return random.IntN(2) == 0 })
				write()
			}
			r.crash(vfs.CrashLoseAll, random.Uint64())
			table = r.table("t", TableOptions{})
		case 2:
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		case 3:
			reader.read(table.Stream(), StreamLimits{Records: 1 + random.IntN(3)}, func() bool { return random.IntN(2) == 0 })
		default:
			for range random.IntN(8) {
				write()
			}
		}
	}
	late := &shardReader{t, map[uint64]StreamPosition{}, map[string][]string{}}
	for what, c := range map[string]*shardReader{"the early reader": reader, "the late reader": late} {
		c.read(table.Stream(), StreamLimits{}, func() bool { return false })
		for pk := range want {
			if !slices.Equal(c.seen[pk], want[pk]) {
				t.Errorf("seed %d: %s sees of row %s %v, want %v; shards %s", seed, what, pk, c.seen[pk], want[pk], shardsOf(table.Stream()))
			}
		}
		ended := 0
		for _, pos := range c.places {
			if pos.End {
				ended++
			}
		}
		if parts := len(table.core.Trees()); len(c.places)-ended != parts || len(c.places) != len(table.Stream().Shards()) {
			t.Errorf("seed %d: %s found %d shards, %d of them ended; there are %d partitions", seed, what, len(c.places), ended, parts)
		}
	}
}

// TestAShardEndsOnceAllOfItIsVisible reads around a split that the store has not yet made.
func TestAShardEndsOnceAllOfItIsVisible(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: -1})
	table := r.streamed("t", StreamSpec{RetentionSeconds: 1e6})
	st := table.Stream()
	put(t, table, "a", 1, "c", startMillis, "1")
	begin := oldest(t, st)
	micros := r.clock.NowMicros()
	r.clock.Advance(time.Second)
	r.cut(table, 0, "m", 2)
	if got := shardsOf(st); got != "1[] 3[1] 4[1] " {
		t.Fatalf("the shards are %s", got)
	}
	put(t, table, "z", 1, "c", startMillis, "2")
	records, pos := readStream(t, st, begin, StreamLimits{})
	if len(records) != 2 || pos.End {
		t.Errorf("before the end %d records, position %+v", len(records), pos)
	}
	if child, err := st.Oldest(ctx(), 3); err != nil || child.End {
		t.Errorf("a child before its parent has ended: %+v, %v", child, err)
	}
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	st = table.Stream()
	put(t, table, "a", 1, "c", startMillis, "3")
	after := pos.After
	records, pos = readStream(t, st, pos, StreamLimits{})
	if len(records) != 0 || !pos.End || pos.After != after+1 {
		t.Errorf("at the end %d records, position %+v", len(records), pos)
	}
	if again, err := st.Read(ctx(), pos, StreamLimits{}); err != nil || again.Next != pos || again.More || len(again.Records) > 0 {
		t.Errorf("behind the end %+v, %v", again, err)
	}
	for _, limit := range []int{1, 2} {
		page, err := st.Read(ctx(), begin, StreamLimits{Records: limit})
		if err != nil || len(page.Records) != limit || page.Next.End != (limit == 2) || page.More != (limit == 1) {
			t.Errorf("a page of %d: %+v, %v", limit, page, err)
		}
	}
	n := 0
	loop := begin
	for _, err := range st.Records(ctx(), &loop) {
		if n++; err != nil || loop.End {
			t.Fatal(loop, err)
		}
	}
	if n != 2 || loop != pos {
		t.Errorf("a loop saw %d records and ended at %+v, want %+v", n, loop, pos)
	}
	for _, c := range []struct {
		shard   uint64
		since   int64
		records int
	}{{1, 0, 2}, {1, micros + 1, 1}, {1, micros + 2_000_000, 0}, {1, 1 << 60, 0}, {3, 0, 1}, {3, micros + 1, 1}, {4, 0, 0}} {
		pos, err := st.Since(ctx(), c.shard, c.since)
		if err != nil {
			t.Fatal(err)
		}
		if records, pos = readStream(t, st, pos, StreamLimits{}); len(records) != c.records || pos.End != (c.shard == 1) {
			t.Errorf("shard %d since %d: %d records, want %d, position %+v", c.shard, c.since, len(records), c.records, pos)
		}
	}
}

// TestAStreamOfSeveralPartitionsHasAShardForEach enables one after a split.
func TestAStreamOfSeveralPartitionsHasAShardForEach(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: -1})
	table := r.table("t", TableOptions{})
	put(t, table, "a", 1, "c", startMillis, "before")
	r.cut(table, 0, "m", 3)
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	spec := &StreamSpec{RetentionSeconds: 60}
	wantError(t, "enable", table.Alter(ctx(), TableChange{Stream: &StreamChange{Enable: spec}}), nil)
	for _, pk := range []string{"a", "z"} {
		put(t, table, pk, 1, "c", startMillis, pk)
	}
	for range 2 {
		st := table.Stream()
		if got := shardsOf(st); got != "2[] 3[] " {
			t.Fatalf("the shards are %s", got)
		}
		for shard, want := range map[uint64]string{2: "a", 3: "z"} {
			pos, err := st.Oldest(ctx(), shard)
			if err != nil {
				t.Fatal(err)
			}
			if records, pos := readStream(t, st, pos, StreamLimits{}); len(records) != 1 || records[0].Key[0].Text() != want || pos.End {
				t.Errorf("shard %d has %d records", shard, len(records))
			}
		}
		r.reopen()
		table = r.table("t", TableOptions{})
	}
}

// TestAShardIsForgottenAfterItsRecords lets the records of a parent expire, be dropped, and splits
// once more.
func TestAShardIsForgottenAfterItsRecords(t *testing.T) {
	r := newRig(t, Options{PartitionSplitSize: -1})
	table := r.streamed("t", StreamSpec{RetentionSeconds: 3600})
	begin := oldest(t, table.Stream())
	put(t, table, "a", 1, "c", startMillis, "1")
	r.cut(table, 0, "m", 0)
	r.crash(vfs.CrashLoseAll, 1)
	table = r.table("t", TableOptions{})
	st := table.Stream()
	_, end := readStream(t, st, begin, StreamLimits{})
	if !end.End {
		t.Fatal("the shard has not ended")
	}
	r.clock.Advance(time.Second) // recorded with the flush
	put(t, table, "z", 1, "c", startMillis, "2")
	wantError(t, "flush", r.store.Flush(ctx()), nil)
	r.clock.Advance(2 * time.Hour)
	_, err := st.Read(ctx(), begin, StreamLimits{})
	wantError(t, "expired records", err, ErrStreamTrimmed)
	_, err = st.Read(ctx(), end, StreamLimits{})
	wantError(t, "an old position at the end", err, ErrStreamTrimmed)
	if records, pos := readStream(t, st, oldest(t, st), StreamLimits{}); len(records) != 0 || !pos.End {
		t.Errorf("what is left of the shard: %d records, position %+v", len(records), pos)
	}
	for range 2 {
		believeClock(r.clock)
		r.exec.RunAll()
	}
	wantError(t, "compact", r.store.Compact(ctx()), nil) // of the change log, all is dropped
	if got := shardsOf(st); got != "1[] 3[1] 4[1] " {
		t.Errorf("before the next split the shards are %s", got)
	}
	idle, err := st.Oldest(ctx(), 4)
	if err != nil {
		t.Fatal(err)
	}
	r.cut(table, 1, "t", 0)
	if got := shardsOf(st); got != "3[] 4[] 5[4] 6[4] " {
		t.Errorf("after the next split the shards are %s", got)
	}
	if records, pos := readStream(t, st, idle, StreamLimits{}); len(records) != 0 || !pos.End {
		t.Errorf("a shard that ended just now, and whose records have expired: %d records, position %+v", len(records), pos)
	}
	_, err = st.Read(ctx(), begin, StreamLimits{})
	wantError(t, "a shard that was forgotten", err, ErrStreamTrimmed)
	_, err = st.Oldest(ctx(), 1)
	wantError(t, "the oldest record of it", err, ErrStreamTrimmed)
	if _, err = st.Oldest(ctx(), 99); !errors.Is(err, ErrStreamNotFound) {
		t.Errorf("a shard that never was: %v", err)
	}
	r.crash(vfs.CrashLoseAll, 2)
	table = r.table("t", TableOptions{})
	put(t, table, "z", 1, "c", startMillis, "3")
	pos, err := table.Stream().Oldest(ctx(), 6)
	if err != nil {
		t.Fatal(err)
	}
	if records, _ := readStream(t, table.Stream(), pos, StreamLimits{}); len(records) != 1 {
		t.Errorf("the child has %d records", len(records))
	}
}
