package flagstone

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/rebalance"
	core "github.com/flagstone-db/flagstone/internal/table"
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
	result, err := l.add(ctx, payload)
	return cmp.Or(err, result)
}

// add appends an entry and applies it to the leader. REQUIRES: mu is held.
func (l *ownedLog) add(ctx context.Context, payload []byte) (result, err error) {
	e := Entry{Index: 1 + l.gap, Payload: slices.Clone(payload)}
	if n := len(l.entries); n > 0 {
		e.Prev = l.entries[n-1].Index
		e.Index += e.Prev
	}
	l.entries = append(l.entries, e)
	results, err := l.leader.ApplyEntries(context.WithoutCancel(ctx), l.entries[len(l.entries)-1:])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutcomeUnknown, err)
	}
	return results[0], nil
}

// from returns the entries from an index on.
func (l *ownedLog) from(index uint64) []Entry {
	at, _ := slices.BinarySearchFunc(l.entries, index, func(e Entry, index uint64) int { return cmp.Compare(e.Index, index) })
	return l.entries[at:]
}

// between returns the entries from an index to another one, both included.
func (l *ownedLog) between(first, last uint64) []Entry {
	from := l.from(first)
	return from[:max(len(from)-len(l.from(last+1)), 0)]
}

// last is the index of the last entry.
func (l *ownedLog) last() uint64 { return l.entries[len(l.entries)-1].Index }

// newLeader makes a store that writes to an external log.
func newLeader(t *testing.T, opts Options) (*rig, *ownedLog) {
	t.Helper()
	l := &ownedLog{gap: 2}
	opts.External, opts.PartitionSplitSize = &External{Propose: l.propose}, cmp.Or(opts.PartitionSplitSize, -1)
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

func TestS5_AHoleInTheLogIsRefused(t *testing.T) {
	l := recorded(t, 5, 200).log
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
	h := recorded(t, rand.Uint64(), 200)
	l, r, rng := h.log, h.follower(Options{}, 1), h.rng
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
		r.compare()
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
	l := recorded(t, 7, 40).log
	r := newFollower(t, Options{})
	r.apply(l.entries...)
	_, err := r.store.CreateTable(ctx(), TableSpec{Name: "new", Key: []KeyColumn{{Name: "a", Type: row.TypeInteger}}})
	wantError(t, "CreateTable", err, ErrFollower)
	wantError(t, "Put", r.store.Tables()[0].Put(ctx(), Key(1, 1), "c", Now, row.Integer(1)), ErrFollower)
	wantError(t, "Split", r.store.Tables()[0].Split(ctx(), row.Integer(1)), ErrFollower)
}

func TestABadEntryStopsTheStoreAndNoOther(t *testing.T) {
	l := recorded(t, 8, 40).log
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

var externalKey = []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}

// countUp adds 1 to a counter of a row, and sets a column of its own.
func countUp(table *Table, n, id int) error {
	return table.Update(ctx(), Key("p", n), func(_ context.Context, tx *RowTx) error {
		r, err := tx.Get(ReadOptions{})
		tx.Put("n", Now, row.Integer(r.Int64("n")+1))
		tx.Put(fmt.Sprint("w", id), Now, row.Integer(1))
		return err
	})
}

// unrulyLog is a log whose owner refuses entries and gives up others, which it applies later or never.
type unrulyLog struct {
	ownedLog
	rng  *rand.Rand
	late [][]byte
}

var errRefused = errors.New("refused")

func (l *unrulyLog) propose(ctx context.Context, payload []byte) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for len(l.late) > 0 && l.rng.IntN(2) == 0 {
		at := l.rng.IntN(len(l.late))
		if _, err := l.add(ctx, l.late[at]); err != nil {
			return err
		}
		l.late = slices.Delete(l.late, at, at+1)
	}
	switch l.rng.IntN(12) {
	case 0:
		return errRefused
	case 1:
		l.late = append(l.late, slices.Clone(payload))
		return fmt.Errorf("%w: it may come later", ErrOutcomeUnknown)
	case 2:
		return fmt.Errorf("%w: it never comes", ErrOutcomeUnknown)
	}
	result, err := l.add(ctx, payload)
	return cmp.Or(err, result)
}

// TestS1_AnUnrulyOwnerBreaksNoWrite counts in rows: each increment that was applied was worked out from the one
// before it, although entries whose outcome was unknown come late.
func TestS1_AnUnrulyOwnerBreaksNoWrite(t *testing.T) {
	for range 1 + shorter(8) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		l := &unrulyLog{rng: rand.New(rand.NewPCG(seed, 1))}
		r := newRig(t, Options{External: &External{Propose: l.propose}})
		l.leader = r.store
		table := createAnyhow(t, r.store)
		const rows, writers, each = 3, 6, 40
		var outcomes [writers * each]error
		var all sync.WaitGroup
		for w := range writers {
			all.Go(func() {
				for i := range each {
					outcomes[w*each+i] = countUp(table, (w+i)%rows, w*each+i)
				}
			})
		}
		all.Wait()
		for n := range rows {
			found, err := table.Get(ctx(), Key("p", n), ReadOptions{})
			wantError(t, "Get", err, nil)
			written := len(found.Cells()) - 1
			if int64(written) != found.Int64("n") {
				t.Errorf("row %d counts %d writes, and has %d", n, found.Int64("n"), written)
			}
			for id, err := range outcomes {
				if (id/each+id%each)%rows != n {
					continue
				}
				switch is := found.Int64(fmt.Sprint("w", id)) == 1; {
				case err == nil && !is, is && errors.Is(err, errRefused):
					t.Errorf("write %d: %v, applied: %v", id, err, is)
				case err != nil && !errors.Is(err, errRefused) && !errors.Is(err, ErrOutcomeUnknown):
					t.Errorf("write %d: %v", id, err)
				}
			}
		}
	}
}

// createAnyhow makes a table, which takes several attempts if the log's owner refuses some.
func createAnyhow(t *testing.T, s *Store) *Table {
	t.Helper()
	for {
		_, err := s.CreateTable(ctx(), TableSpec{Name: "t", Key: externalKey})
		if table, found := s.Table("t"); found == nil {
			return table
		}
		if !errors.Is(err, errRefused) && !errors.Is(err, ErrOutcomeUnknown) {
			t.Fatal(err)
		}
	}
}

// TestTwoStoresWriteToOneLog lets each of two stores propose, as if both led. No increment is lost.
func TestTwoStoresWriteToOneLog(t *testing.T) {
	var l ownedLog
	var stores [2]*Store
	open := func(i int) *rig {
		return newRig(t, Options{External: &External{Propose: func(ctx context.Context, payload []byte) (answer error) {
			l.mu.Lock()
			defer l.mu.Unlock()
			l.entries = append(l.entries, Entry{Index: uint64(len(l.entries)) + 1, Prev: uint64(len(l.entries)), Payload: slices.Clone(payload)})
			for j, s := range stores {
				results, err := s.ApplyEntries(context.Background(), l.entries[len(l.entries)-1:])
				if err != nil {
					return err
				}
				if i == j {
					answer = results[0]
				}
			}
			return answer
		}}})
	}
	stores[0] = open(0).store
	stores[1] = open(1).store
	tables := [2]*Table{createAnyhow(t, stores[0]), createAnyhow(t, stores[1])}
	const writes = 100
	var all sync.WaitGroup
	for i, table := range tables {
		all.Go(func() {
			for n := range writes {
				if err := countUp(table, n%3, i*writes+n); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if a, b := content(t, stores[0]), content(t, stores[1]); a != b {
		t.Errorf("the stores differ: %s", firstDifference(a, b))
	}
	sum := int64(0)
	for n := range 3 {
		r, err := tables[0].Get(ctx(), Key("p", n), ReadOptions{})
		wantError(t, "Get", err, nil)
		sum += r.Int64("n")
	}
	if sum != 2*writes {
		t.Errorf("counted %d writes of %d", sum, 2*writes)
	}
	// An update is worked out again if another store has changed its row meanwhile, also if a write of this store
	// has put the fence into the log.
	before, calls := int64(0), 0
	err := tables[0].Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		r, err := tx.Get(ReadOptions{})
		tx.Put("n", Now, row.Integer(r.Int64("n")+1))
		if calls++; calls == 1 {
			before = r.Int64("n")
			err = errors.Join(err, countUp(tables[1], 1, 0), countUp(tables[0], 2, 0))
		}
		return err
	})
	wantError(t, "Update beside another store", err, nil)
	r, err := tables[0].Get(ctx(), Key("p", 1), ReadOptions{})
	if err != nil || r.Int64("n") != before+2 {
		t.Errorf("counted %d, then %d after two increments, %v", before, r.Int64("n"), err)
	}
	// A transaction whose rows another store may have written meanwhile ends.
	tx, err := tables[0].Begin(ctx(), row.String("p"), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	err = tx.Update(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil })
	wantError(t, "Update", err, nil)
	wantError(t, "Update of the other store", countUp(tables[1], 1, 0), nil)
	wantError(t, "Commit", tx.Commit(ctx()), ErrTransactionEnded)
}

func TestS11_CommandsAnswerWithWhatTheStateAllows(t *testing.T) {
	r, l := newLeader(t, Options{})
	table := r.table("t", TableOptions{MaxVersions: 2})
	_, exists := r.store.CreateTable(ctx(), TableSpec{Name: "t", Key: externalKey})
	_, invalid := r.store.CreateTable(ctx(), TableSpec{Name: "u"})
	stream := TableChange{Stream: &StreamChange{Enable: &StreamSpec{RetentionSeconds: 100}}}
	_, bulk := table.BulkLoad(ctx(), BulkOptions{})
	wantError(t, "a bulk load", bulk, ErrExternal)
	wantError(t, "a table that exists", exists, ErrTableExists)
	wantError(t, "a table without a key", invalid, ErrInvalid)
	wantError(t, "a stream", table.Alter(ctx(), stream), nil)
	wantError(t, "a second stream", table.Alter(ctx(), stream), ErrStreamExists)
	wantError(t, "more versions", table.Alter(ctx(), TableChange{Options: &TableOptions{MaxVersions: 3}}), ErrInvalid)
	wantError(t, "no such table", r.store.DropTable(ctx(), "v"), ErrTableNotFound)
	wantError(t, "empty annotations", table.Alter(ctx(), TableChange{Annotations: []byte{}}), nil)
	// A cut that a user asks for where the store has made one is marked, and only a user takes it away.
	byItself := func(merge bool) error {
		key, err := core.Bound(table.core.Key, row.String("m"))
		return errors.Join(err, r.store.external.Rebalance(ctx(), table.core, rebalance.Change{At: key, Merge: merge}))
	}
	cuts := func() (cuts []bool) {
		for _, p := range table.Partitions() {
			cuts = append(cuts, p.Cut)
		}
		return cuts
	}
	for _, c := range []struct {
		what string
		do   func() error
		want []bool
	}{
		{"a split by itself", func() error { return byItself(false) }, []bool{false, false}},
		{"a merge by itself", func() error { return byItself(true) }, []bool{false}},
		{"a split by itself", func() error { return byItself(false) }, []bool{false, false}},
		{"a split of a user", func() error { return table.Split(ctx(), row.String("m")) }, []bool{false, true}},
		{"a merge by itself", func() error { return byItself(true) }, []bool{false, true}},
		{"a merge of a user", func() error { return table.Merge(ctx(), row.String("m")) }, []bool{false}},
		{"a split of a user", func() error { return table.Split(ctx(), row.String("m")) }, []bool{false, true}},
	} {
		wantError(t, c.what, c.do(), nil)
		if got := cuts(); !slices.Equal(got, c.want) {
			t.Errorf("after %s the cuts are %v, want %v", c.what, got, c.want)
		}
		before := r.store.AppliedIndex()
		f := newFollower(t, Options{})
		f.apply(l.entries...)
		f.crash(vfs.CrashLoseAll, 1) // what was not flushed comes from the log again
		f.apply(l.entries...)
		if got, want := content(t, f.store), content(t, r.store); got != want || f.store.AppliedIndex() != before {
			t.Errorf("a follower after %s: %s", c.what, firstDifference(got, want))
		}
	}
}

func TestTheBalancerOfALeaderProposesAndThatOfAFollowerDoesNot(t *testing.T) {
	opts := Options{MemtableSize: 16 << 10, TableFileSize: 16 << 10, PartitionSplitSize: 64 << 10}
	r, l := newLeader(t, opts)
	table, rng := r.table("t", TableOptions{}), rand.New(rand.NewPCG(1, 2))
	for i := range 400 {
		b := make([]byte, 500) // that compression does not make smaller
		for j := range b {
			b[j] = byte(rng.Uint32())
		}
		put(t, table, fmt.Sprint("p", i), 1, "c", startMillis, string(b))
		r.exec.RunAll()
	}
	if n := r.store.Metrics().Splits; n == 0 {
		t.Error("the leader has split nothing")
	}
	f := newFollower(t, opts)
	for _, e := range l.entries {
		f.apply(e)
		f.exec.RunAll()
	}
	if got, want := content(t, f.store), content(t, r.store); got != want {
		t.Errorf("the follower differs: %s", firstDifference(got, want))
	}
}

func TestACheckpointOfAReplicaFollowsTheLog(t *testing.T) {
	h := recorded(t, rand.Uint64(), 100)
	at := h.log.last()
	wantError(t, "Checkpoint", h.store.Checkpoint(ctx(), "/copy"), nil)
	for range 50 {
		h.do()
	}
	opts := Options{External: &External{FirstAvailable: at + 1}}
	opts.Seams.FS, opts.Seams.Clock = h.fs, h.clock
	s, err := Open("/copy", opts)
	wantError(t, "Open", err, nil)
	defer s.Close()
	if s.ConsistentIndex() > at || s.DurableIndex() != at {
		t.Errorf("consistent from %d, durable up to %d, made at %d", s.ConsistentIndex(), s.DurableIndex(), at)
	}
	_, err = s.ApplyEntries(ctx(), h.log.from(at+1))
	wantError(t, "ApplyEntries", err, nil)
	if got, want := content(t, s), content(t, h.store); got != want {
		t.Errorf("the copy differs: %s", firstDifference(got, want))
	}
	wantError(t, "Close", s.Close(), nil)
	opts.External = nil
	if report, err := Check(ctx(), "/copy", opts, nil); err != nil || len(report.Problems) > 0 {
		t.Errorf("the check of a replica: %v, %v", report.Problems, err)
	}
}

func TestACopyOfAReplicaHasItsOwnLog(t *testing.T) {
	r, l := newLeader(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "c", startMillis, "x")
	wantError(t, "Split", table.Split(ctx(), row.String("q")), nil)
	last := l.last()
	_, err := r.store.CopyTo(ctx(), "/copy", nil)
	wantError(t, "CopyTo", err, nil)
	if l.last() != last {
		t.Errorf("the copy added %d entries to the log", l.last()-last)
	}
	opts := Options{}
	opts.Seams.FS, opts.Seams.Clock = r.fs, r.clock
	s, err := Open("/copy", opts)
	wantError(t, "Open", err, nil)
	defer s.Close()
	copied, err := s.Table("t")
	wantError(t, "Table", err, nil)
	if got := show(t, copied, "p", 1); got == "absent" || len(copied.Partitions()) != 2 {
		t.Errorf("the copy has row %q and %d partitions", got, len(copied.Partitions()))
	}
	opts.ReadOnly, opts.External = true, new(External)
	_, err = Open("/store", opts)
	wantError(t, "Open of a replica to read only", err, ErrInvalid)
}

// TestS1_WhatComesTooLateIsVoid lets writers give up while the owner of the log has their entries, which come after the
// next write.
func TestS1_WhatComesTooLateIsVoid(t *testing.T) {
	var l ownedLog
	var held []byte
	giveUp := func() {} // what ends the context of the writer
	hold := false
	r := newRig(t, Options{External: &External{Propose: func(ctx context.Context, payload []byte) error {
		if hold {
			held = slices.Clone(payload)
			giveUp()
			return ctx.Err()
		}
		return l.propose(ctx, payload)
	}}})
	l.leader = r.store
	table := r.table("t", TableOptions{})
	wantError(t, "Update", countUp(table, 1, 0), nil)
	late := func(what string, write func(ctx context.Context) error) {
		t.Helper()
		ctx, cancel := context.WithCancel(context.Background())
		giveUp, hold = cancel, true
		err := write(ctx)
		wantError(t, what, err, ErrOutcomeUnknown)
		wantError(t, what, err, context.Canceled)
		hold = false
		wantError(t, "the next update", countUp(table, 1, 1), nil)
		before := content(t, r.store)
		if result, err := l.add(context.Background(), held); result == nil || err != nil {
			t.Errorf("%s: the late entry was applied: %v, %v", what, result, err)
		}
		if after := content(t, r.store); after != before {
			t.Errorf("%s came late: %s", what, firstDifference(after, before))
		}
	}
	late("an update", func(ctx context.Context) error {
		return table.Update(ctx, Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.DeleteRow(); return nil })
	})
	late("a table that is dropped", func(ctx context.Context) error { return r.store.DropTable(ctx, "t") })
	tx, err := table.Begin(ctx(), row.String("q"), TransactionOptions{})
	wantError(t, "Begin", err, nil)
	err = tx.Update(ctx(), Key("q", 1), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil })
	wantError(t, "Update", err, nil)
	late("a transaction", tx.Commit)
	wantError(t, "a second commit", tx.Commit(ctx()), ErrOutcomeUnknown)
}
