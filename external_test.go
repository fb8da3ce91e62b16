package flagstone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// ownedLog is an external log in memory. It applies each entry to the store that proposed it.
type ownedLog struct {
	mu      sync.Mutex
	entries []Entry
	leader  *Store
	gap     uint64 // indexes between two entries that belong to others
	refuse  func() error
}

func (l *ownedLog) propose(ctx context.Context, payload []byte) error {
	if l.refuse != nil {
		if err := l.refuse(); err != nil {
			return err
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	e := Entry{Index: 1 + l.gap, Payload: slices.Clone(payload)}
	if n := len(l.entries); n > 0 {
		e.Prev = l.entries[n-1].Index
		e.Index += e.Prev
	}
	l.entries = append(l.entries, e)
	results, err := l.leader.ApplyEntries(ctx, l.entries[len(l.entries)-1:])
	if err != nil {
		return err
	}
	return results[0]
}

// newLeader makes a store that writes to an external log.
func newLeader(t *testing.T, opts Options) (*rig, *ownedLog) {
	t.Helper()
	l := &ownedLog{gap: 2}
	opts.External, opts.PartitionSplitSize = &External{Propose: l.propose}, -1
	r := newRig(t, opts)
	l.leader = r.store
	return r, l
}

func newFollower(t *testing.T, opts Options) *rig {
	t.Helper()
	opts.External = new(External)
	return newRig(t, opts)
}

func (r *rig) apply(entries ...Entry) {
	r.t.Helper()
	if _, err := r.store.ApplyEntries(ctx(), entries); err != nil {
		r.t.Fatalf("apply: %v", err)
	}
}

// content shows all that a replica answers, change logs included.
func content(t *testing.T, s *Store) string {
	t.Helper()
	var b strings.Builder
	for _, table := range s.Tables() {
		info := table.Info()
		fmt.Fprintf(&b, "%s: %+v, stream %+v\n", info.Name, info.ID, info.Options)
		for _, p := range table.Partitions() {
			fmt.Fprintf(&b, "  partition %d from %v\n", p.ID, p.Start)
		}
		b.WriteString(dump(t, table))
		if st := table.Stream(); st != nil {
			fmt.Fprintf(&b, "stream %+v, shards %v\n", st.Info(), st.Shards())
			b.WriteString(dump(t, st.log))
		}
	}
	return b.String()
}

// externalWork is a random workload of a leader.
type externalWork struct {
	t    *testing.T
	r    *rig
	rng  *rand.Rand
	step int
}

func (w *externalWork) table() *Table {
	tables := w.r.store.Tables()
	if len(tables) == 0 {
		return nil
	}
	return tables[w.rng.IntN(len(tables))]
}

func (w *externalWork) key() []row.Value { return Key(w.rng.IntN(40), w.rng.IntN(3)) }

func (w *externalWork) value() row.Value {
	if w.rng.IntN(8) == 0 {
		return row.String(strings.Repeat(fmt.Sprint(w.step, "."), 300))
	}
	return row.Integer(int64(w.step))
}

// do takes a step, which may be refused.
func (w *externalWork) do() {
	w.t.Helper()
	w.step++
	s, n := w.r.store, w.rng.IntN(100)
	w.r.clock.Advance(1e6 * 137)
	t := w.table()
	var err error
	switch {
	case t == nil || n < 2:
		spec := TableSpec{Name: fmt.Sprint("t", w.rng.IntN(4)), Key: []KeyColumn{{"a", row.TypeInteger, false}, {"b", row.TypeInteger, true}}}
		spec.Options = TableOptions{MaxVersions: 1 + w.rng.Int64N(3), TTLSeconds: []int64{NeverExpires, 20}[w.rng.IntN(2)]}
		if w.rng.IntN(2) == 0 {
			spec.Stream = &StreamSpec{RetentionSeconds: 1000, Before: []string{"c0", "c1"}}
		}
		if w.rng.IntN(2) == 0 {
			spec.SplitAt = []row.Value{row.Integer(20)}
		}
		_, err = s.CreateTable(ctx(), spec)
	case n < 3:
		err = s.DropTable(ctx(), t.Name())
	case n < 6:
		change := TableChange{Options: &TableOptions{MaxVersions: 1 + w.rng.Int64N(t.Info().Options.MaxVersions), TTLSeconds: []int64{NeverExpires, 20, 40}[w.rng.IntN(3)]}}
		switch w.rng.IntN(4) {
		case 0:
			change.Stream = &StreamChange{}
		case 1:
			change.Stream = &StreamChange{Enable: &StreamSpec{RetentionSeconds: 500, Before: []string{"c2"}}}
		}
		err = t.Alter(ctx(), change)
	case n < 10:
		err = t.Split(ctx(), row.Integer(int64(w.rng.IntN(40))))
	case n < 13:
		err = t.Merge(ctx(), row.Integer(int64(w.rng.IntN(40))))
	case n < 30:
		b := s.NewBatch()
		for range 1 + w.rng.IntN(20) {
			b.Row(w.table(), w.key()).Put(fmt.Sprint("c", w.rng.IntN(3)), Now, w.value())
		}
		err = s.Apply(ctx(), b)
	case n < 36:
		var tx *Transaction
		if tx, err = t.Begin(ctx(), row.Integer(int64(w.rng.IntN(40))), TransactionOptions{}); err == nil {
			err = tx.Update(ctx(), Key(int(w.rng.IntN(40)), 1), func(_ context.Context, tx *RowTx) error {
				tx.Put("c0", Now, w.value())
				return nil
			})
			if errors.Is(err, ErrOutOfPartition) {
				err = nil
			}
			err = errors.Join(err, tx.Commit(ctx()))
		}
	case n < 44:
		err = t.Delete(ctx(), w.key())
	default:
		err = t.Update(ctx(), w.key(), func(_ context.Context, tx *RowTx) error {
			got, err := tx.Get(ReadOptions{})
			if err != nil {
				return err
			}
			tx.Put("n", Now, row.Integer(got.Int64("n")+1))
			if w.rng.IntN(3) == 0 {
				tx.DeleteColumn(fmt.Sprint("c", w.rng.IntN(3)))
			}
			tx.Put("d", Now, w.value())
			return nil
		})
	}
	if err != nil && !errors.Is(err, ErrTableExists) && !errors.Is(err, ErrStreamExists) {
		w.t.Fatalf("step %d: %v", w.step, err)
	}
	if w.rng.IntN(30) == 0 {
		w.r.exec.RunAll()
	}
}

// smallStores are options that make flushes and compactions frequent.
func smallStores() Options {
	return Options{MemtableSize: 4 << 10, MemoryBudget: 64 << 10, TableFileSize: 4 << 10}
}

// recorded is a log of so many steps, and what the leader answered behind some of its entries.
func recorded(t *testing.T, seed uint64, steps int) (l *ownedLog, answers map[uint64]string, r *rig) {
	r, l = newLeader(t, smallStores())
	w := &externalWork{t: t, r: r, rng: rand.New(rand.NewPCG(seed, 1))}
	answers = map[uint64]string{}
	for i := range steps {
		w.do()
		if i%7 == 0 {
			answers[r.store.AppliedIndex()] = content(t, r.store) + fmt.Sprint(r.clock.NowMillis())
		}
	}
	answers[r.store.AppliedIndex()] = content(t, r.store) + fmt.Sprint(r.clock.NowMillis())
	return l, answers, r
}

// at sets the clock of a follower to that at which the leader answered.
func (r *rig) at(answer string) string {
	var millis int64
	i := strings.LastIndexByte(answer, '\n')
	fmt.Sscan(answer[i+1:], &millis)
	r.clock.SetWall(millis)
	return content(r.t, r.store) + fmt.Sprint(millis)
}

func (r *rig) wantAnswer(answers map[uint64]string, label string) {
	r.t.Helper()
	want, known := answers[r.store.AppliedIndex()]
	if !known {
		return
	}
	if got := r.at(want); got != want {
		r.t.Fatalf("%s: at entry %d the replica answers differently:\n%s", label, r.store.AppliedIndex(), firstDifference(got, want))
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

func TestS1_ARefusedBatchLeavesNoTrace(t *testing.T) {
	r, l := newLeader(t, Options{})
	table, err := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "a", Type: row.TypeInteger}}, Stream: &StreamSpec{RetentionSeconds: 100}})
	wantError(t, "CreateTable", err, nil)
	wantError(t, "Put", table.Put(ctx(), Key(1), "c", Now, row.Integer(1)), nil)
	before, seq, at := content(t, r.store), r.store.pipeline.LastSeq(), r.store.AppliedIndex()
	total, _ := r.store.gate.Bytes()
	refusal := errors.New("not the leader")
	l.refuse = func() error { return refusal }
	wantError(t, "Put", table.Put(ctx(), Key(1), "c", Now, row.Integer(2)), refusal)
	b := r.store.NewBatch()
	b.Row(table, Key(2)).Put("c", Now, row.Integer(3))
	wantError(t, "Apply", r.store.Apply(ctx(), b), refusal)
	wantError(t, "Split", table.Split(ctx(), row.Integer(5)), refusal)
	wantError(t, "DropTable", r.store.DropTable(ctx(), "t"), refusal)
	now, _ := r.store.gate.Bytes()
	if got := content(t, r.store); got != before || r.store.pipeline.LastSeq() != seq || r.store.AppliedIndex() != at || now != total {
		t.Errorf("sequence number %d, index %d, %d bytes, content %s; before %d, %d, %d, %s", r.store.pipeline.LastSeq(), r.store.AppliedIndex(), now, got, seq, at, total, before)
	}
	l.refuse = nil
	wantError(t, "Apply", r.store.Apply(ctx(), b), nil)
}

// TestS1_AnOwnerMayDelayAndReorder lets writers of one row propose to an owner that takes their entries in any order.
func TestS1_AnOwnerMayDelayAndReorder(t *testing.T) {
	type proposal struct {
		payload []byte
		done    chan error
	}
	proposals := make(chan proposal)
	opts := Options{External: &External{Propose: func(ctx context.Context, payload []byte) error {
		p := proposal{payload, make(chan error)}
		proposals <- p
		return <-p.done
	}}, PartitionSplitSize: -1}
	opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
	s, err := Open("/store", opts)
	wantError(t, "Open", err, nil)
	defer s.Close()
	refusal := errors.New("refused")
	go func() {
		rng, index := rand.New(rand.NewPCG(1, 2)), uint64(0)
		var waiting []proposal
		for p := range proposals {
			waiting = append(waiting, p)
			for more := rng.IntN(3) == 0; more && len(waiting) < 3; { // gather some
				select {
				case p := <-proposals:
					waiting = append(waiting, p)
				default:
					more = false
				}
			}
			rng.Shuffle(len(waiting), func(i, j int) { waiting[i], waiting[j] = waiting[j], waiting[i] })
			for _, p := range waiting {
				if rng.IntN(5) == 0 && index > 1 {
					p.done <- refusal
					continue
				}
				index++
				results, err := s.ApplyEntries(context.Background(), []Entry{{Index: index, Payload: p.payload}})
				if err == nil {
					err = results[0]
				}
				p.done <- err
			}
			waiting = nil
		}
	}()
	defer close(proposals)
	table, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "a", Type: row.TypeInteger}}})
	wantError(t, "CreateTable", err, nil)
	var writers sync.WaitGroup
	counts := [8]int64{}
	for i := range counts {
		writers.Go(func() {
			for range 100 {
				err := table.Update(ctx(), Key(i%2), func(_ context.Context, tx *RowTx) error {
					got, err := tx.Get(ReadOptions{})
					tx.Put("n", Now, row.Integer(got.Int64("n")+1))
					return err
				})
				if err == nil {
					counts[i]++
				} else if !errors.Is(err, refusal) {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	for k := range 2 {
		got, err := table.Get(ctx(), Key(k), ReadOptions{})
		wantError(t, "Get", err, nil)
		if want := counts[k] + counts[k+2] + counts[k+4] + counts[k+6]; got.Int64("n") != want {
			t.Errorf("row %d counts %d, %d increments were acknowledged", k, got.Int64("n"), want)
		}
	}
}

func TestS2_OneLogGivesEqualAnswers(t *testing.T) {
	for seed := range uint64(3) {
		l, answers, _ := recorded(t, seed, 250)
		small := smallStores()
		small.MemtableSize = 1 << 10
		for name, opts := range map[string]Options{"small memtables": small, "large memtables": {}} {
			r, rng := newFollower(t, opts), rand.New(rand.NewPCG(seed, 3))
			for _, e := range l.entries {
				r.clock.SetWall(startMillis + rng.Int64N(1e9) - 5e8)
				r.apply(e)
				switch rng.IntN(40) {
				case 0:
					r.exec.RunAll()
				case 1:
					wantError(t, "Compact", r.store.Compact(ctx()), nil)
				}
				r.wantAnswer(answers, fmt.Sprintf("seed %d, %s", seed, name))
			}
		}
	}
}

func TestS3_AReplayFromAnyEarlierPointIsHarmless(t *testing.T) {
	for seed := range uint64(3) {
		l, answers, _ := recorded(t, seed+10, 250)
		r, rng := newFollower(t, smallStores()), rand.New(rand.NewPCG(seed, 4))
		highest := 0
		for highest < len(l.entries) {
			highest = min(highest+rng.IntN(40), len(l.entries))
			from := 0
			if r.store.AppliedIndex() > 0 {
				held, _ := slices.BinarySearchFunc(l.entries, r.store.AppliedIndex(), func(e Entry, index uint64) int { return int(e.Index) - int(index) })
				from = rng.IntN(held + 1)
			}
			r.apply(l.entries[from:highest]...)
			r.wantAnswer(answers, fmt.Sprintf("seed %d", seed))
			switch rng.IntN(4) {
			case 0:
				r.exec.RunAll()
			case 1:
				r.reopen()
				r.apply(l.entries[:highest]...)
				r.apply(l.entries[rng.IntN(highest+1):highest]...)
				r.wantAnswer(answers, fmt.Sprintf("seed %d, opened again", seed))
			}
		}
	}
}

func TestS4_APowerLossLosesNothingThatTheLogHas(t *testing.T) {
	l, answers, _ := recorded(t, 21, 200)
	var losses int
	for stride, at := 23, 5; ; at += stride {
		r := newFollower(t, smallStores())
		r.store.Close()
		disk := vfs.NewSim(vfs.SimOptions{})
		fault := vfs.NewFault(disk, 1)
		var image *vfs.Sim
		calls := 0
		fault.Observe(vfs.Observer{Before: func(call vfs.Call) {
			if call.Op&vfs.OpMutating != 0 {
				if calls++; calls == at {
					image = disk.Image(vfs.CrashPolicies()[at/stride%len(vfs.CrashPolicies())], uint64(at))
				}
			}
		}})
		r.openOn(fault)
		for i, e := range l.entries {
			r.apply(e)
			if i%11 == 0 {
				r.exec.RunAll()
			}
			if i%37 == 0 {
				wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), e.Index-e.Index%5), nil)
			}
			if image != nil {
				break
			}
		}
		if image == nil {
			break
		}
		losses++
		r.store.Close()
		r.openOn(image)
		durable := r.store.DurableIndex()
		next := slices.IndexFunc(l.entries, func(e Entry) bool { return e.Index > durable })
		if next < 0 {
			continue
		}
		if next+1 < len(l.entries) {
			if _, err := r.store.ApplyEntries(ctx(), l.entries[next+1:]); !errors.Is(err, ErrLogHole) {
				t.Fatalf("power lost before call %d: a replay from one entry later: %v", at, err)
			}
		}
		r.apply(l.entries[next:]...)
		r.wantAnswer(answers, fmt.Sprintf("power lost before call %d, replayed from %d", at, durable))
	}
	t.Logf("%d power losses", losses)
	if losses < 20 {
		t.Errorf("only %d power losses", losses)
	}
}

func TestS5_AHoleInTheLogIsRefused(t *testing.T) {
	l, _, _ := recorded(t, 5, 300)
	r := newFollower(t, Options{})
	cut := len(l.entries) * 2 / 3
	r.apply(l.entries[:cut]...)
	wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), l.entries[cut-1].Index), nil)
	durable := r.store.DurableIndex()
	if durable != l.entries[cut-1].Index {
		t.Fatalf("durable up to %d, want %d", durable, l.entries[cut-1].Index)
	}
	wantError(t, "Close", r.store.Close(), nil)
	opts := r.opts
	opts.Seams.FS = r.fs
	for _, c := range []struct {
		first uint64
		want  error
	}{{l.entries[len(l.entries)-1].Index, ErrLogHole}, {durable + 2, ErrLogHole}, {durable + 1, nil}, {1, nil}, {0, nil}} {
		opts.External = &External{FirstAvailable: c.first}
		s, err := Open("/store", opts)
		wantError(t, fmt.Sprint("Open with a log from ", c.first), err, c.want)
		if err == nil {
			s.Close()
		} else if text := err.Error(); !strings.Contains(text, fmt.Sprint(durable+1)) || !strings.Contains(text, fmt.Sprint(c.first)) {
			t.Errorf("%q names not both entries, %d and %d", text, durable+1, c.first)
		}
	}
	opts.External = nil
	_, err := Open("/store", opts)
	wantError(t, "Open without External", err, ErrExternal)
	report, err := Check(ctx(), "/store", opts, nil)
	if err != nil || len(report.Problems) > 0 {
		t.Errorf("Check: %v, %v", report.Problems, err)
	}
	own := newRig(t, Options{})
	wantError(t, "Close", own.store.Close(), nil)
	opts.Seams.FS, opts.External = own.fs, new(External)
	_, err = Open("/store", opts)
	wantError(t, "Open of another store with External", err, ErrExternal)
}

func TestS6_FlushUpToMakesEntriesDurable(t *testing.T) {
	l, answers, _ := recorded(t, 6, 200)
	r, rng := newFollower(t, Options{}), rand.New(rand.NewPCG(1, 6))
	for i, e := range l.entries {
		r.apply(e)
		if rng.IntN(10) > 0 {
			continue
		}
		upTo := l.entries[rng.IntN(i+1)].Index
		wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), upTo), nil)
		if d := r.store.DurableIndex(); d < upTo || d > e.Index {
			t.Fatalf("durable up to %d after FlushUpTo(%d), applied up to %d", d, upTo, e.Index)
		}
		wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), e.Index+1), ErrInvalid)
		durable := r.store.DurableIndex()
		r.crash(vfs.CrashLoseAll, 1)
		if d := r.store.DurableIndex(); d < durable {
			t.Fatalf("durable up to %d, after a power loss up to %d", durable, d)
		}
		r.apply(l.entries[:i+1]...)
		r.wantAnswer(answers, "flushed and replayed")
	}
}

// TestS6_TheLogBehindMemtablesIsBounded writes little to one table and much to another.
func TestS6_TheLogBehindMemtablesIsBounded(t *testing.T) {
	opts := Options{MemoryBudget: 256 << 10, MemtableSize: 64 << 10}
	r, l := newLeader(t, opts)
	idle, busy := r.table("idle", TableOptions{}), r.table("busy", TableOptions{})
	put(t, idle, "p", 1, "c", Now, "x")
	var bytes, most int64
	sizes := map[uint64]int64{}
	for i := range 400 {
		put(t, busy, "p", i%5, "c", Now, strings.Repeat("y", 8<<10))
		r.exec.RunAll()
		e := l.entries[len(l.entries)-1]
		bytes += int64(len(e.Payload))
		sizes[e.Index] = bytes
		most = max(most, bytes-sizes[r.store.DurableIndex()])
	}
	if limit := int64(logFactor)*opts.MemoryBudget + 256<<10; most > limit {
		t.Errorf("%d bytes of the log were needed, the bound is %d", most, limit)
	}
}

func TestAFollowerRefusesWrites(t *testing.T) {
	l, _, _ := recorded(t, 7, 40)
	r := newFollower(t, Options{})
	r.apply(l.entries...)
	_, err := r.store.CreateTable(ctx(), TableSpec{Name: "new", Key: []KeyColumn{{Name: "a", Type: row.TypeInteger}}})
	wantError(t, "CreateTable", err, ErrFollower)
	wantError(t, "Put", r.store.Tables()[0].Put(ctx(), Key(1, 1), "c", Now, row.Integer(1)), ErrFollower)
	wantError(t, "Split", r.store.Tables()[0].Split(ctx(), row.Integer(1)), ErrFollower)
}

func TestABadEntryStopsTheStoreAndNoOther(t *testing.T) {
	l, _, _ := recorded(t, 8, 40)
	for i, damage := range []func(b []byte){
		func(b []byte) { b[0] = 9 }, func(b []byte) { b[1] = 99 }, func(b []byte) { b[len(b)/2] ^= 1 },
	} {
		r, other := newFollower(t, Options{}), newFollower(t, Options{})
		bad := l.entries[10]
		bad.Payload = slices.Clone(bad.Payload)
		damage(bad.Payload)
		r.apply(l.entries[:10]...)
		_, err := r.store.ApplyEntries(ctx(), []Entry{bad})
		wantError(t, "ApplyEntries", err, ErrEntry)
		wantError(t, "ApplyEntries", err, ErrPoisoned)
		if !strings.Contains(err.Error(), fmt.Sprint("entry ", bad.Index)) {
			t.Errorf("damage %d: %v", i, err)
		}
		_, err = r.store.ApplyEntries(ctx(), l.entries[10:])
		wantError(t, "ApplyEntries", err, ErrPoisoned)
		other.apply(l.entries...)
	}
}

func TestAStoreWithItsOwnLogTakesNoEntries(t *testing.T) {
	r := newRig(t, Options{})
	_, err := r.store.ApplyEntries(ctx(), nil)
	wantError(t, "ApplyEntries", err, ErrExternal)
	wantError(t, "FlushUpTo", r.store.FlushUpTo(ctx(), 1), ErrExternal)
	if r.store.AppliedIndex()+r.store.DurableIndex() != 0 {
		t.Error("it has an index")
	}
}
