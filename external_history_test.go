package flagstone

// One log and several stores: whatever the schedule of flushes, compactions, clocks, power losses and kills, they
// give equal answers at every entry.

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/rebalance"
	core "github.com/flagstone-db/flagstone/internal/table"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// content shows all that a replica answers, streams included.
func content(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	for _, table := range s.Tables() {
		info := table.Info()
		fmt.Fprintf(&b, "%s: %d, made %d, %+v, %q\n", info.Name, info.ID, info.CreatedMillis, info.Options, info.Annotations)
		for _, p := range table.Partitions() {
			fmt.Fprintf(&b, "  partition %d from %v to %v, cut %v\n", p.ID, p.Start, p.End, p.Cut)
		}
		b.WriteString(dump(t, table))
		if st := table.Stream(); st != nil {
			fmt.Fprintf(&b, "stream %+v\n", st.Info())
			for _, shard := range st.Shards() {
				showShard(t, &b, st, shard)
			}
		}
	}
	return b.String()
}

func showShard(t *testing.T, b *strings.Builder, st *Stream, shard StreamShard) {
	t.Helper()
	fmt.Fprintf(b, "shard %d of %v\n", shard.ID, shard.Parents)
	pos, err := st.Oldest(ctx(), shard.ID)
	if err != nil {
		t.Fatal(err)
	}
	for r, err := range st.Records(ctx(), &pos) {
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(b, "  %d at %d: %d %v %s before %s\n", r.Sequence, r.Micros, r.Action, r.Key, digest(r.Cells), digest(r.Before))
	}
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range max(len(g), len(w)) {
		a, b := "", ""
		if i < len(g) {
			a = g[i]
		}
		if i < len(w) {
			b = w[i]
		}
		if a != b {
			return fmt.Sprintf("line %d\n  got  %s\n  want %s", i, a, b)
		}
	}
	return ""
}

// logHistory is a random workload of a leader, and what its readers see behind its entries.
type logHistory struct {
	*rig
	log     *ownedLog
	rng     *rand.Rand
	step    int
	answers map[uint64]answer // by index
}

// answer is what readers see at a reading of the clock.
type answer struct {
	Content string
	Millis  int64
}

// recorded is a history of so many steps.
func recorded(t *testing.T, seed uint64, steps int) *logHistory {
	t.Helper()
	t.Logf("seed %d", seed)
	r, l := newLeader(t, smallStores())
	h := &logHistory{rig: r, log: l, rng: rand.New(rand.NewPCG(seed, 1)), answers: map[uint64]answer{}}
	for i := range steps {
		h.do()
		if i%5 == 0 || i == steps-1 {
			h.answer()
		}
	}
	return h
}

// answer records what the leader answers. To read a stream may add an entry to the log.
func (h *logHistory) answer() {
	for {
		at := h.store.AppliedIndex()
		a := answer{content(h.t, h.store), h.clock.NowMillis()}
		if h.store.AppliedIndex() == at {
			h.answers[at] = a
			return
		}
	}
}

// do takes a step, which may be refused.
func (h *logHistory) do() {
	h.t.Helper()
	h.step++
	h.clock.Advance(time.Duration(h.rng.IntN(2000)) * time.Millisecond)
	if h.rng.IntN(100) == 0 {
		h.fallOver()
	}
	err := h.write()
	if err != nil && !errors.Is(err, ErrTableExists) && !errors.Is(err, ErrStreamExists) {
		h.t.Fatalf("step %d: %v", h.step, err)
	}
	if h.rng.IntN(30) == 0 {
		h.exec.RunAll()
	}
}

// fallOver lets the leader lose power. It leads again once it has applied the log.
func (h *logHistory) fallOver() {
	h.t.Helper()
	before := content(h.t, h.store)
	h.crash(vfs.CrashPolicies()[h.rng.IntN(len(vfs.CrashPolicies()))], h.rng.Uint64())
	h.log.leader = h.store
	h.apply(h.log.from(h.store.DurableIndex() + 1)...)
	if after := content(h.t, h.store); after != before {
		h.t.Fatalf("step %d: the leader lost power: %s", h.step, firstDifference(after, before))
	}
}

// write makes one random change.
func (h *logHistory) write() error {
	rng, tables := h.rng, h.store.Tables()
	n := rng.IntN(100)
	if len(tables) == 0 || n < 2 {
		return h.create()
	}
	t, at := tables[rng.IntN(len(tables))], row.Integer(int64(rng.IntN(40)))
	if splits := t.Splits(); n >= 10 && n < 18 && len(splits) > 0 {
		at = splits[rng.IntN(len(splits))]
	}
	switch {
	case n < 3:
		return h.store.DropTable(ctx(), t.Name())
	case n < 6:
		return h.alter(t)
	case n < 10:
		return t.Split(ctx(), at)
	case n < 14:
		return t.Merge(ctx(), at)
	case n < 18: // as the balancer does
		key, err := core.Bound(t.core.Key, at)
		if err == nil {
			err = h.store.external.Rebalance(ctx(), t.core, rebalance.Change{At: key, Merge: rng.IntN(2) == 0})
		}
		return err
	case n < 34:
		b := h.store.NewBatch()
		for range 1 + rng.IntN(20) {
			h.change(b.Row(tables[rng.IntN(len(tables))], h.key()))
		}
		return h.store.Apply(ctx(), b)
	case n < 40:
		return h.transaction(t, at)
	case n < 44:
		return t.Delete(ctx(), h.key())
	}
	return t.Update(ctx(), h.key(), func(_ context.Context, tx *RowTx) error {
		if rng.IntN(3) == 0 { // a counter
			got, err := tx.Get(ReadOptions{})
			tx.Put("n", Now, row.Integer(got.Int64("n")+1))
			return err
		}
		h.change(&tx.RowChange)
		return nil
	})
}

func (h *logHistory) create() error {
	spec := TableSpec{
		Name: fmt.Sprint("t", h.rng.IntN(4)), Key: []KeyColumn{{"a", row.TypeInteger, false}, {"b", row.TypeInteger, true}},
		Options: TableOptions{MaxVersions: 1 + h.rng.Int64N(4), TTLSeconds: []int64{NeverExpires, 20}[h.rng.IntN(2)]},
	}
	if h.rng.IntN(2) == 0 {
		spec.Stream = h.stream("c0", "c1")
	}
	if h.rng.IntN(2) == 0 {
		spec.SplitAt = []row.Value{row.Integer(20)}
	}
	_, err := h.store.CreateTable(ctx(), spec)
	return err
}

// stream has a retention for which no record expires: replicas may forget the shards of expired ones at other times.
func (h *logHistory) stream(before ...string) *StreamSpec {
	return &StreamSpec{RetentionSeconds: 1 << 30, Before: before}
}

func (h *logHistory) alter(t *Table) error {
	var change TableChange
	if h.rng.IntN(3) > 0 {
		versions := 1 + h.rng.Int64N(t.Info().Options.MaxVersions)
		change.Options = &TableOptions{MaxVersions: versions, TTLSeconds: []int64{NeverExpires, 20, 40, 300}[h.rng.IntN(4)]}
	}
	switch h.rng.IntN(5) {
	case 0:
		change.Stream = &StreamChange{}
	case 1:
		change.Stream = &StreamChange{Enable: h.stream("c2")}
	case 2:
		change.Annotations = []byte{byte(h.step)}
	}
	return t.Alter(ctx(), change)
}

func (h *logHistory) transaction(t *Table, at row.Value) error {
	tx, err := t.Begin(ctx(), at, TransactionOptions{})
	if err != nil {
		return err
	}
	for range 1 + h.rng.IntN(3) {
		err := tx.Update(ctx(), []row.Value{at, row.Integer(h.rng.Int64N(3))}, func(_ context.Context, tx *RowTx) error {
			h.change(&tx.RowChange)
			return nil
		})
		if err != nil {
			return err
		}
	}
	return tx.Commit(ctx())
}

func (h *logHistory) key() []row.Value { return Key(h.rng.IntN(40), h.rng.IntN(3)) }

// change makes a random change of a row.
func (h *logHistory) change(c *RowChange) {
	column, version := fmt.Sprint("c", h.rng.IntN(3)), int64(Now)
	if h.rng.IntN(3) == 0 {
		version = h.clock.NowMillis() - h.rng.Int64N(30_000)
	}
	switch h.rng.IntN(14) {
	case 0:
		c.DeleteRow()
	case 1:
		c.PutRow()
	case 2:
		c.DeleteColumn(column)
	case 3:
		c.DeleteVersion(column, h.clock.NowMillis()-h.rng.Int64N(30_000))
	case 4, 5: // goes to a value file
		c.Put(column, version, row.String(strings.Repeat(fmt.Sprint(h.step, "."), 200)))
	default:
		c.Put(column, version, row.Integer(int64(h.step)))
	}
}

// follower is a store that is fed from the log of a history.
type follower struct {
	*rig
	h        *logHistory
	rng      *rand.Rand
	compared int
}

func (h *logHistory) follower(opts Options, seed uint64) *follower {
	return &follower{newFollower(h.t, opts), h, rand.New(rand.NewPCG(seed, 2)), 0}
}

// compare compares with what the leader answered at the same entry and the same reading of the clock.
func (f *follower) compare() {
	f.t.Helper()
	want, known := f.h.answers[f.store.AppliedIndex()]
	if !known || f.store.AppliedIndex() < f.store.ConsistentIndex() {
		return
	}
	f.clock.SetWall(want.Millis)
	f.compared++
	if got := content(f.t, f.store); got != want.Content {
		f.t.Fatalf("at entry %d the replica answers differently: %s", f.store.AppliedIndex(), firstDifference(got, want.Content))
	}
}

// upTo applies the log up to an index, one entry after the other, and disturbs the replica in between.
func (f *follower) upTo(index uint64) {
	f.t.Helper()
	for _, e := range f.h.log.from(f.store.AppliedIndex() + 1) {
		if e.Index > index {
			break
		}
		f.disturb()
		f.apply(e)
		f.compare()
	}
}

// disturb does what changes no answer.
func (f *follower) disturb() {
	f.t.Helper()
	var err error
	switch f.rng.IntN(60) {
	case 0:
		err = f.store.Flush(ctx())
	case 1:
		err = f.store.Compact(ctx())
	case 2:
		err = f.store.FlushUpTo(ctx(), f.store.AppliedIndex()-f.rng.Uint64N(f.store.AppliedIndex()+1))
	case 3:
		f.exec.RunAll()
	case 4, 5, 6, 7, 8:
		f.exec.Step(0)
	default:
		f.clock.SetWall(startMillis + f.rng.Int64N(1e9) - 5e8)
	}
	if err != nil {
		f.t.Fatal(err)
	}
}

// smallStores are options that make flushes, compactions and value files frequent.
func smallStores() Options {
	opts := Options{MemtableSize: 4 << 10, MemoryBudget: 64 << 10, TableFileSize: 4 << 10}
	opts.Seams.ValueThreshold = 300
	return opts
}

func TestS2_OneLogGivesEqualAnswers(t *testing.T) {
	for range 1 + shorter(8)/4 {
		h := recorded(t, rand.Uint64(), 300)
		smaller := smallStores()
		smaller.MemtableSize = 1 << 10
		for what, opts := range map[string]Options{"smaller memtables": smaller, "large memtables": {}} {
			f := h.follower(opts, h.rng.Uint64())
			f.upTo(h.log.last())
			wantError(t, "Compact", f.store.Compact(ctx()), nil)
			f.compare()
			m := f.store.Metrics()
			t.Logf("%s: compared %d times; %d splits, %d merges, %d bytes flushed", what, f.compared, m.Splits, m.Merges, m.FlushedBytes)
			if f.compared < 30 {
				t.Errorf("%s: compared %d times", what, f.compared)
			}
		}
	}
}

func TestS3_AReplayFromAnyEarlierPointIsHarmless(t *testing.T) {
	for range 1 + shorter(8)/4 {
		h := recorded(t, rand.Uint64(), 250)
		f := h.follower(smallStores(), h.rng.Uint64())
		for f.store.AppliedIndex() < h.log.last() {
			f.upTo(min(f.store.AppliedIndex()+1+f.rng.Uint64N(100), h.log.last()))
			for range f.rng.IntN(3) { // what is applied already
				f.apply(h.log.between(f.rng.Uint64N(f.store.AppliedIndex()+1)+1, f.store.AppliedIndex())...)
				f.compare()
			}
			applied := f.store.AppliedIndex()
			switch f.rng.IntN(3) {
			case 0:
				f.reopen()
				if c := f.store.ConsistentIndex(); c != applied {
					t.Fatalf("closed at entry %d, consistent from %d on", applied, c)
				}
			case 1:
				f.crash(vfs.CrashPolicies()[f.rng.IntN(len(vfs.CrashPolicies()))], f.rng.Uint64())
				if c := f.store.ConsistentIndex(); c < f.store.DurableIndex() || c > applied {
					t.Fatalf("durable up to entry %d, applied up to %d, consistent from %d on", f.store.DurableIndex(), applied, c)
				}
			}
			// Again from any entry up to the first that is not durable.
			f.apply(h.log.between(f.rng.Uint64N(f.store.DurableIndex()+1)+1, applied)...)
			f.compare()
		}
	}
}

func TestS4_APowerLossLosesNothingThatTheLogHas(t *testing.T) {
	h := recorded(t, rand.Uint64(), 200)
	stride := 17
	if testing.Short() {
		stride = 130
	}
	losses := 0
	for at := 1 + h.rng.IntN(stride); ; at += stride {
		f := h.follower(smallStores(), uint64(at))
		f.store.Close()
		disk := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(disk, 1)
		var image *vfs.Sim
		calls, durable := 0, uint64(0)
		fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
			if call.Op&vfs.OpMutating != 0 {
				if calls++; calls == at {
					image = disk.Image(vfs.CrashPolicies()[f.rng.IntN(len(vfs.CrashPolicies()))], uint64(at))
				}
			}
		}})
		f.openOn(fault)
		for i, e := range h.log.entries {
			f.apply(e)
			if i%11 == 0 {
				f.exec.RunAll()
			}
			if i%37 == 0 {
				wantError(t, "FlushUpTo", f.store.FlushUpTo(ctx(), e.Index-e.Index%5), nil)
			}
			if image != nil {
				break
			}
			durable = f.store.DurableIndex()
		}
		if image == nil {
			break
		}
		losses++
		f.store.Close()
		f.openOn(image)
		if d := f.store.DurableIndex(); d < durable {
			t.Fatalf("power lost before call %d: durable up to %d, it was %d", at, d, durable)
		}
		if rest := h.log.from(f.store.DurableIndex() + 1); len(rest) > 1 {
			if _, err := f.store.ApplyEntries(ctx(), rest[1:]); !errors.Is(err, ErrLogHole) {
				t.Fatalf("power lost before call %d: a replay from one entry later: %v", at, err)
			}
		}
		f.apply(h.log.from(f.store.DurableIndex() + 1)...)
		if f.compare(); f.compared == 0 {
			t.Fatal("nothing was compared")
		}
	}
	t.Logf("%d power losses", losses)
	if losses < 20 && !testing.Short() {
		t.Errorf("only %d power losses", losses)
	}
}

// TestS12_WhatHasExpiredStaysSo raises and lowers the Time To Live while one replica drops expired cells at once and
// another one never does.
func TestS12_WhatHasExpiredStaysSo(t *testing.T) {
	r, l := newLeader(t, smallStores())
	table := r.table("t", TableOptions{TTLSeconds: 20, MaxVersions: 3})
	busy, idle := newFollower(t, smallStores()), newFollower(t, smallStores())
	applied := uint64(0)
	check := func(what string) {
		t.Helper()
		entries := l.from(applied + 1)
		applied = l.last()
		busy.apply(entries...)
		wantError(t, "Compact", busy.store.Compact(ctx()), nil)
		idle.apply(entries...)
		want := content(t, r.store)
		// A clock that is behind the log shows what one at the time of the log shows.
		for _, behind := range []int64{0, 1e6} {
			for name, f := range map[string]*rig{"busy": busy, "idle": idle} {
				f.clock.SetWall(r.clock.NowMillis() - behind)
				if got := content(t, f.store); got != want {
					t.Errorf("%s, the %s replica, %d ms behind: %s", what, name, behind, firstDifference(got, want))
				}
			}
		}
	}
	alter := func(seconds int64) {
		t.Helper()
		wantError(t, "Alter", table.Alter(ctx(), TableChange{Options: &TableOptions{TTLSeconds: seconds, MaxVersions: 3}}), nil)
	}
	dropped := 0
	for round, seconds := range []int64{40, 10, NeverExpires, 15, 300} {
		for i := range 30 {
			put(t, table, "p", i%7, "c", Now, strings.Repeat(fmt.Sprint(round, "-", i, " "), 10))
			r.clock.Advance(time.Second)
			if i%10 == 9 {
				put(t, table, "q", i, "c", Now, "x") // the time of the log is that of the clock
				check(fmt.Sprintf("round %d, step %d", round, i))
			}
		}
		if watermark(busy) > watermark(idle) {
			dropped++
		}
		alter(seconds)
		check(fmt.Sprintf("Time To Live is %d s", seconds))
	}
	if dropped < 3 {
		t.Errorf("the busy replica was ahead in %d rounds", dropped)
	}
}

// errContext calls a function whenever it is asked for its error.
type errContext struct {
	context.Context
	asked func()
}

func (c errContext) Err() error {
	c.asked()
	return nil
}

// TestS12_WhatIsBeingAppliedExpiresNothing compacts a replica and takes its power between the time and the effect of an
// entry.
func TestS12_WhatIsBeingAppliedExpiresNothing(t *testing.T) {
	r, l := newLeader(t, smallStores())
	table := r.table("t", TableOptions{TTLSeconds: 20})
	put(t, table, "p", 1, "c", Now, "x")
	r.clock.Advance(15 * time.Second)
	put(t, table, "p", 2, "c", Now, "y")
	want, millis, before := content(t, r.store), r.clock.NowMillis(), l.last()
	r.clock.Advance(10 * time.Second)
	wantError(t, "Split", table.Split(ctx(), row.String("q")), nil)
	f := newFollower(t, smallStores())
	f.apply(l.between(1, before)...)
	var image *vfs.Sim
	_, err := f.store.ApplyEntries(errContext{context.Background(), func() {
		if image == nil && f.store.external.Millis() > millis {
			image = f.fs // or it would be called again
			wantError(t, "Compact", f.store.Compact(ctx()), nil)
			image = f.fs.Image(vfs.CrashKeepAll, 1)
		}
	}}, l.from(before+1))
	wantError(t, "ApplyEntries", err, nil)
	if image == nil {
		t.Fatal("no entry was caught")
	}
	wantError(t, "Close", f.store.Close(), nil)
	f.openOn(image)
	f.apply(l.between(1, before)...)
	f.clock.SetWall(millis)
	if got := content(t, f.store); got != want || f.store.ConsistentIndex() != before {
		t.Errorf("consistent from %d on, want %d: %s", f.store.ConsistentIndex(), before, firstDifference(got, want))
	}
}

func watermark(r *rig) int64 { return r.store.Tables()[0].Info().ExpiryWatermark }
