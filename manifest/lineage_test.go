package manifest

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

// logEdit makes the change log of a table, with the table's next id.
func logEdit(s *State, of, after uint64) *Edit {
	x := testTable(s.NextTable, s.NextPartition, fmt.Sprint("log ", s.NextTable))
	x.Options.TTLSeconds = 60
	x.Log = &ChangeLog{Of: of, After: after}
	x.Partitions[0].FlushedSeq = after
	var e Edit
	e.CreateTable(x)
	return &e
}

// splitEdit splits a partition, which has no files, at a user.
func splitEdit(s *State, id uint64, user int, after uint64) *Edit {
	t, p := s.Partition(id)
	cut := testKey(user, -1)
	left := &Partition{ID: s.NextPartition, Start: p.Start, End: cut, Epoch: p.Epoch + 1}
	right := &Partition{ID: s.NextPartition + 1, Start: cut, End: p.End, Epoch: p.Epoch + 1}
	return &Edit{Replaced: []*Replacement{{Table: t.ID, Old: []uint64{id}, New: []*Partition{left, right}, After: after}}}
}

// mergeEdit merges neighbouring partitions, which have no files.
func mergeEdit(s *State, left, right uint64, after uint64) *Edit {
	t, l := s.Partition(left)
	_, r := s.Partition(right)
	merged := &Partition{ID: s.NextPartition, Start: l.Start, End: r.End, Epoch: max(l.Epoch, r.Epoch) + 1}
	return &Edit{Replaced: []*Replacement{{Table: t.ID, Old: []uint64{left, right}, New: []*Partition{merged}, After: after}}}
}

func describeShards(l Lineage) string {
	var b strings.Builder
	for _, s := range l {
		fmt.Fprintf(&b, "%d%v>%d ", s.ID, s.Parents, s.After)
	}
	return strings.TrimSpace(b.String())
}

// TestAChangeLogFollowsSplitsAndMerges splits a partition, one of its children, and merges.
func TestAChangeLogFollowsSplitsAndMerges(t *testing.T) {
	s := mustApply(t, NewState(testStore), &Edit{Created: []*Table{testTable(1, 1, "t")}})
	s = mustApply(t, s, splitEdit(s, 1, 50, 10)) // without a log
	if s.LastSeq != 10 {
		t.Errorf("a split after 10 leaves the last sequence number at %d", s.LastSeq)
	}
	s = mustApply(t, s, logEdit(s, 1, 20)) // table 2, partition 4
	want := func(what, shards string) {
		t.Helper()
		again, err := decodeSnapshot(appendSnapshot(nil, s), testStore)
		if err != nil || !reflect.DeepEqual(again.Table(2).Log, s.Table(2).Log) {
			t.Errorf("%s: read back: %+v, %v", what, again, err)
		}
		if got := describeShards(s.Shards(s.Table(2).Log)); got != shards {
			t.Errorf("%s: %s, want %s", what, got, shards)
		}
	}
	want("enabled with two partitions", "2[]>20 3[]>20")
	if len(s.Table(2).Log.Shards) != 0 {
		t.Error("a log without a split has stored shards")
	}
	s = mustApply(t, s, splitEdit(s, 2, 30, 100))
	want("split", "2[]>20 3[]>20 5[2]>100 6[2]>100")
	s = mustApply(t, s, mergeEdit(s, 6, 3, 200))
	want("merged", "2[]>20 3[]>20 5[2]>100 6[2]>100 7[3 6]>200")
	if s.LastSeq != 200 {
		t.Errorf("the last sequence number is %d", s.LastSeq)
	}
	log := s.Table(2).Log
	for id, end := range map[uint64]uint64{2: 100, 3: 200, 5: row.MaxSequence, 6: 200, 7: row.MaxSequence} {
		if until, ok := s.ShardEnd(log, id); until != end || !ok {
			t.Errorf("shard %d ends at %d, %v", id, until, ok)
		}
	}
	for _, c := range []struct {
		user        int
		seq, shards uint64
	}{{10, 100, 2}, {10, 101, 5}, {40, 21, 2}, {40, 101, 6}, {40, 200, 6}, {40, 201, 7}, {90, 200, 3}, {90, 201, 7}} {
		key := testKey(c.user, 1)
		if got := log.Shards.ShardOf(s.Table(1).partitionFor(key).ID, key, c.seq); got != c.shards {
			t.Errorf("mutation %d of user %d is in shard %d, want %d", c.seq, c.user, got, c.shards)
		}
	}
	if _, ok := s.ShardEnd(log, 4); ok {
		t.Error("the partition of the log is a shard")
	}

	// A shard is forgotten by a replacement, once its records have expired and are in files.
	var written, watermark, flushed Edit
	written.AddSeqTime(150, 1000_000) // by second 1000
	written.SetFlushed(4, 150)
	written.SetWatermark(2, 1000)
	s = mustApply(t, s, &written, splitEdit(s, 5, 10, 300))
	want("not expired", "2[]>20 3[]>20 5[2]>100 6[2]>100 7[3 6]>200 8[5]>300 9[5]>300")
	if got := s.SeqAtOrBefore(1000_000); got != 150 {
		t.Fatalf("%d is known to be of second 1000", got)
	}
	watermark.SetWatermark(2, 1001)
	flushed.SetFlushed(4, 200)
	s = mustApply(t, s, &watermark, splitEdit(s, 8, 5, 400))
	want("the first one expired", "3[]>20 5[]>100 6[]>100 7[3 6]>200 8[5]>300 9[5]>300 10[8]>400 11[8]>400")
	s = mustApply(t, s, &flushed, mergeEdit(s, 10, 11, 500))
	want("the record of time ends below 200", "3[]>20 5[]>100 6[]>100 7[3 6]>200 8[5]>300 9[5]>300 10[8]>400 11[8]>400 12[10 11]>500")
	key := testKey(10, 1)
	if got := s.Table(2).Log.Shards.ShardOf(9, key, 99); got != 0 {
		t.Errorf("a mutation of a shard that was forgotten is in %d", got)
	}
	var end Edit
	end.EndLog(2, 600)
	s = mustApply(t, s, &end)
	if len(s.Table(2).Log.Shards) != 0 {
		t.Error("a log that has ended has shards")
	}
	s = mustApply(t, s, logEdit(s, 1, 600))
	if got := describeShards(s.Shards(s.Table(3).Log)); got != "7[]>600 9[]>600 12[]>600" {
		t.Errorf("the next log begins with %s", got)
	}
}

// lineageModel is a table whose partitions are split and merged, with its change log; it remembers
// which partition took each mutation.
type lineageModel struct {
	*rapid.T
	s         *State
	seq       uint64
	mutations []mutation
}

type mutation struct {
	user       int
	seq, shard uint64
}

// mutate makes some mutations of the partitions of a table.
func (m *lineageModel) mutate(table *Table, atMost int) {
	for range rapid.IntRange(0, atMost).Draw(m.T, "mutations") {
		m.seq++
		user := rapid.IntRange(0, 99).Draw(m.T, "user")
		m.mutations = append(m.mutations, mutation{user, m.seq, table.partitionFor(testKey(user, 0)).ID})
	}
}

// replace splits or merges. Mutations with reserved sequence numbers still go to the old partitions.
func (m *lineageModel) replace() {
	table := m.s.Table(1)
	at := rapid.IntRange(0, len(table.Partitions)-1).Draw(m.T, "partition")
	p := table.Partitions[at]
	reserved := rapid.IntRange(0, 5).Draw(m.T, "reserved")
	after := m.seq + uint64(reserved)
	if at > 0 && rapid.Bool().Draw(m.T, "merge") {
		m.s = mustApply(m, m.s, mergeEdit(m.s, table.Partitions[at-1].ID, p.ID, after))
	} else {
		user := rapid.IntRange(1, 99).Draw(m.T, "cut")
		if cut := testKey(user, -1); !p.Contains(cut) || string(cut) == string(p.Start) {
			return
		}
		m.s = mustApply(m, m.s, splitEdit(m.s, p.ID, user, after))
	}
	m.mutate(table, reserved)
	m.seq = after
}

// expire flushes the log and drops what is old; seconds count the mutations.
func (m *lineageModel) expire() {
	log := m.s.Table(2)
	var e Edit
	e.LastSeq = m.seq
	e.AddSeqTime(m.seq, int64(m.seq)*1000)
	e.SetFlushed(log.Partitions[0].ID, max(log.Partitions[0].FlushedSeq, rapid.Uint64Range(0, m.seq).Draw(m.T, "flushed")))
	e.SetWatermark(2, rapid.Int64Range(0, int64(m.seq)).Draw(m.T, "watermark"))
	m.s = mustApply(m, m.s, &e)
}

// TestEachMutationHasTheShardThatTookIt: also after shards were forgotten, for every mutation that is
// not both expired and in the files of the log.
func TestEachMutationHasTheShardThatTookIt(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &lineageModel{T: t, s: mustApply(t, NewState(testStore), &Edit{Created: []*Table{testTable(1, 1, "t")}})}
		for range rapid.IntRange(0, 3).Draw(t, "before the log") {
			m.replace()
		}
		m.mutations = nil
		m.s = mustApply(t, m.s, logEdit(m.s, 1, m.seq))
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			switch rapid.IntRange(0, 6).Draw(t, "step") {
			case 0, 1:
				m.replace()
			case 2:
				m.expire()
			case 3:
				var err error
				if m.s, err = decodeSnapshot(appendSnapshot(nil, m.s), testStore); err != nil {
					t.Fatal(err)
				}
			default:
				m.mutate(m.s.Table(1), 10)
			}
		}
		log := m.s.Table(2)
		needed := min(m.s.SeqAtOrBefore(max(log.Watermark, 0)*1000-1), log.Partitions[0].FlushedSeq+1)
		for _, mu := range m.mutations {
			key := testKey(mu.user, 0)
			got := log.Log.Shards.ShardOf(m.s.Table(1).partitionFor(key).ID, key, mu.seq)
			if got != mu.shard && (got != 0 || mu.seq >= needed) {
				t.Fatalf("mutation %d of user %d is in shard %d, was in %d; needed from %d on\n%s",
					mu.seq, mu.user, got, mu.shard, needed, describeShards(log.Log.Shards))
			}
			if until, ok := m.s.ShardEnd(log.Log, got); got != 0 && (!ok || mu.seq > until) {
				t.Fatalf("mutation %d is in shard %d, which ends at %d, %v", mu.seq, got, until, ok)
			}
		}
		m.consume()
	})
}

// consume reads the shards in any order in which parents come before their children. The mutations of
// a user must come in order, and all of them unless their shard was forgotten.
func (m *lineageModel) consume() {
	records := map[uint64][]mutation{}
	for _, mu := range m.mutations {
		records[mu.shard] = append(records[mu.shard], mu)
	}
	left, done := slices.Clone(m.s.Shards(m.s.Table(2).Log)), map[uint64]bool{}
	last, seen := map[int]uint64{}, 0
	want := 0
	for _, s := range left {
		want += len(records[s.ID])
	}
	for len(left) > 0 {
		var ready []int
		for i, s := range left {
			if !slices.ContainsFunc(s.Parents, func(id uint64) bool { return !done[id] }) {
				ready = append(ready, i)
			}
		}
		at := rapid.SampledFrom(ready).Draw(m.T, "next shard")
		for _, mu := range records[left[at].ID] {
			if mu.seq <= last[mu.user] {
				m.Fatalf("mutation %d of user %d comes after %d", mu.seq, mu.user, last[mu.user])
			}
			last[mu.user], seen = mu.seq, seen+1
		}
		done[left[at].ID] = true
		left = slices.Delete(left, at, at+1)
	}
	if seen != want {
		m.Fatalf("%d mutations were read, want %d", seen, want)
	}
}

// lineageState has a log, table 2, whose table was split twice and merged: shards 1[]>5, 3[1]>100,
// 4[1]>100, 5[3 4]>200, 6[5]>300, 7[5]>300.
func lineageState(t interface{ Fatalf(string, ...any) }) *State {
	s := mustApply(t, NewState(testStore), &Edit{Created: []*Table{testTable(1, 1, "t")}})
	s = mustApply(t, s, logEdit(s, 1, 5))
	s = mustApply(t, s, splitEdit(s, 1, 50, 100))
	s = mustApply(t, s, mergeEdit(s, 3, 4, 200))
	return mustApply(t, s, splitEdit(s, 5, 20, 300))
}

func TestShardsThatBreakARuleAreRefused(t *testing.T) {
	good := lineageState(t)
	for _, c := range []struct {
		name   string
		change func(shards []*Shard, log *ChangeLog)
		want   string
	}{
		{"nothing changed", func([]*Shard, *ChangeLog) {}, ""},
		{"id 0", func(s []*Shard, _ *ChangeLog) { s[0].ID = 0 }, "out of order"},
		{"one id twice", func(s []*Shard, _ *ChangeLog) { s[1].ID = 1 }, "out of order"},
		{"no range", func(s []*Shard, _ *ChangeLog) { s[1].Start = s[1].End }, "and ends at"},
		{"before the log", func(s []*Shard, _ *ChangeLog) { s[0].After = 4 }, "begins after 4"},
		{"huge sequence number", func(s []*Shard, _ *ChangeLog) { s[4].After, s[5].After = 1<<60, 1<<60 }, "begins after"},
		{"an unknown parent", func(s []*Shard, _ *ChangeLog) { s[1].Parents[0] = 2 }, "not before it"},
		{"a parent behind it", func(s []*Shard, _ *ChangeLog) { s[1].Parents[0] = 4 }, "not before it"},
		{"a parent twice", func(s []*Shard, _ *ChangeLog) { s[3].Parents[1] = 3 }, "not before it"},
		{"parents out of order", func(s []*Shard, _ *ChangeLog) { slices.Reverse(s[3].Parents) }, "not before it"},
		{"it begins before its parent", func(s []*Shard, _ *ChangeLog) { s[3].After = 99 }, "cannot come from"},
		{"children that begin apart", func(s []*Shard, _ *ChangeLog) { s[2].After = 101 }, "cannot come from"},
		{"a parent of another range", func(s []*Shard, _ *ChangeLog) { s[4].Parents[0] = 4 }, "cannot come from"},
		{"a partition without a shard", func(s []*Shard, log *ChangeLog) { log.Shards = s[:5] }, "not the partitions"},
		{"a partition with another range", func(s []*Shard, _ *ChangeLog) { s[5].End = testKey(90, -1) }, "not the partitions"},
		{"a partition that begins elsewhere", func(s []*Shard, _ *ChangeLog) { s[5].Start = testKey(19, -1) }, "not the partitions"},
		{"a shard that goes on without a partition", func(s []*Shard, _ *ChangeLog) { s[3].Parents = s[3].Parents[:1] }, "not the partitions"},
		{"a log that has ended", func(_ []*Shard, log *ChangeLog) { log.Until = 300 }, "has ended, and has shards"},
	} {
		s := *good
		s.Tables = slices.Clone(good.Tables)
		table, log := *s.Tables[1], *s.Tables[1].Log
		log.Shards = nil
		for _, from := range good.Tables[1].Log.Shards {
			shard := *from
			shard.Parents = slices.Clone(from.Parents)
			log.Shards = append(log.Shards, &shard)
		}
		table.Log, s.Tables[1] = &log, &table
		c.change(log.Shards, &log)
		_, err := decodeSnapshot(appendSnapshot(nil, &s), s.StoreID)
		if c.want == "" && err == nil {
			continue
		}
		if !errors.Is(err, ErrCorrupt) || c.want == "" || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

func TestAReplacementThatLosesRecordsIsRefused(t *testing.T) {
	s := lineageState(t)
	refused := func(what string, s *State, e *Edit) {
		t.Helper()
		if _, err := s.Apply(e); !errors.Is(err, ErrInvalidEdit) || !strings.Contains(err.Error(), "took later mutations") {
			t.Errorf("%s: error %v", what, err)
		}
	}
	refused("a cut before the shard begins", s, splitEdit(s, 7, 60, 299))
	refused("no cut", s, splitEdit(s, 7, 60, 0))
	var flushed Edit
	flushed.SetFlushed(7, 350)
	s = mustApply(t, s, &flushed)
	refused("a cut below what is in files", s, splitEdit(s, 7, 60, 349))
	s = mustApply(t, s, splitEdit(s, 7, 60, 350))
	if got := describeShards(s.Table(2).Log.Shards[6:]); got != "8[7]>350 9[7]>350" {
		t.Error(got)
	}
}
