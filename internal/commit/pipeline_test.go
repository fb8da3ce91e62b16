package commit

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"

	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// rig is a pipeline over a log on a simulated disk and two trees without files, whose store is
// the test.
type rig struct {
	*Pipeline
	t       *testing.T
	faults  *vfs.Fault
	clock   *clocktest.Manual
	exec    *executortest.Manual
	gate    *pressure.Gate
	trees   []*partition.Tree
	refusal error
	due     []*partition.Tree // flushes that are due
}

const (
	testBudget  = 1 << 20
	testSegment = 64 << 10
)

func newRig(t *testing.T, sync bool) *rig {
	t.Helper()
	r := &rig{t: t, exec: executortest.NewManual(), faults: vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)}
	env := &partition.Env{
		Settings: partition.Settings{MemtableSize: 8 << 10},
		Random:   func() [16]byte { return [16]byte{1} },
	}
	for id := range uint64(2) {
		r.trees = append(r.trees, partition.NewTree(env, 1, &manifest.Partition{ID: 7 + id}))
	}
	c := clocktest.NewManual(0)
	r.clock = c
	r.gate = pressure.NewGate(gateEnv{r}, c, testBudget)
	background := jobs.New(r.exec, c, func(string, error) bool { return true })
	r.Pipeline = New(storeEnv{r}, r.gate, background, Options{
		Sync: sync, SegmentSize: testSegment, LogBound: 4 * testSegment, Logger: slog.New(slog.DiscardHandler),
	})
	opts := wal.Options{FS: r.faults, Dir: "/log", SegmentSize: testSegment, Sync: sync}
	found, err := wal.Recover(opts, 0, nil)
	must(t, err)
	log, err := wal.NewWriter(opts, found)
	must(t, err)
	t.Cleanup(func() {
		background.Stop()
		_ = log.Close() // it has failed in some tests
	})
	r.Recovered(10, 1000)
	r.Start(log)
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// storeEnv is what the pipeline needs of its store.
type storeEnv struct{ *rig }

func (e storeEnv) Refuses() error                { return e.refusal }
func (e storeEnv) Trees() []*partition.Tree      { return e.trees }
func (e storeEnv) FlushDue(tree *partition.Tree) { e.due = append(e.due, tree) }

// gateEnv is what the gate needs of it.
type gateEnv struct{ *rig }

func (e gateEnv) Writable() error { return e.refusal }
func (e gateEnv) FlushLargest()   { e.RotateLargest() }
func (e gateEnv) Await(ctx context.Context, event <-chan struct{}) error {
	return e.exec.Await(ctx, event, nil)
}

// change is the change of one column of a row.
func (r *rig) change(key, value string) *row.Change {
	r.t.Helper()
	c := &row.Change{Table: 1, Key: rowKey(key)}
	must(r.t, c.Put("c", 1, row.String(value)))
	must(r.t, c.Normalize())
	return c
}

func rowKey(key string) []byte {
	b, err := row.AppendKey(nil, 1, row.String(key))
	if err != nil {
		panic(err) // a short string is a key
	}
	return b
}

// in places changes in a tree, or fails.
type in struct {
	tree *partition.Tree
	err  error
}

func (p in) Tree() (*partition.Tree, error) { return p.tree, p.err }

// note is a derived change that remembers what it was derived from.
type note struct {
	tree   *partition.Tree
	change *row.Change
	before func()

	shard, seq uint64
	micros     int64
}

func (n *note) Tree() *partition.Tree { return n.tree }
func (n *note) Size() int64           { return memtable.EstimateSize(n.change) }
func (n *note) Change(shard, seq uint64, micros int64) *row.Change {
	n.shard, n.seq, n.micros = shard, seq, micros
	if n.before != nil {
		n.before()
	}
	return n.change
}

// write writes one change to the first tree.
func (r *rig) write(key, value string) (Commit, error) {
	r.t.Helper()
	var w Write
	c := r.change(key, value)
	w.Add(c, memtable.EstimateSize(c), in{tree: r.trees[0]}, nil)
	err := r.Write(r.t.Context(), &w, 2000)
	return w.Commit(), err
}

// await waits for a write.
func (r *rig) await(c Commit) {
	r.t.Helper()
	refusal, err := c.Wait(r.t.Context())
	must(r.t, errors.Join(refusal, err))
}

// sees reports whether a reader at a sequence number sees a row in a tree.
func (r *rig) sees(tree *partition.Tree, key string, seq uint64) bool {
	r.t.Helper()
	g := tree.NewGetter()
	defer g.Close()
	var cells row.Collector
	exists, err := g.Get(rowKey(key), mvcc.View{Seq: seq, MaxVersions: 1, Cutoff: mvcc.NoExpiry}, &mvcc.Selection{}, &cells, 0)
	must(r.t, err)
	return exists
}

func TestAWriteIsVisibleOnceItIsDurable(t *testing.T) {
	for _, sync := range []bool{true, false} {
		r := newRig(t, sync)
		c, err := r.write("a", "v")
		must(t, err)
		if visible := r.Visible(); (visible == 11) == sync || r.LastSeq() != 11 {
			t.Errorf("sync %v: %d is visible before the sync, the last one is %d", sync, visible, r.LastSeq())
		}
		r.await(c)
		if r.Visible() != 11 || c.seq != 11 || !r.sees(r.trees[0], "a", r.Visible()) {
			t.Errorf("sync %v: %d is visible, the write is %d", sync, r.Visible(), c.seq)
		}
		if bytes, _ := r.gate.Bytes(); bytes <= 0 || bytes > testBudget/2 {
			t.Errorf("sync %v: the write takes %d bytes", sync, bytes)
		}
	}
}

func TestSyncPublishesWhatNoWriterWaitsFor(t *testing.T) {
	r := newRig(t, true)
	_, err := r.write("a", "v")
	must(t, err)
	must(t, r.Sync())
	if r.Visible() != 11 {
		t.Errorf("%d is visible", r.Visible())
	}
}

func TestARefusedWriteLeavesNothing(t *testing.T) {
	r := newRig(t, true)
	refusal := errors.New("altered")
	var w Write
	c := r.change("a", "v")
	w.Add(c, memtable.EstimateSize(c), in{tree: r.trees[0]}, nil)
	w.Add(r.change("b", "v"), 100, in{err: refusal}, nil)
	if err := r.Write(t.Context(), &w, 0); err != refusal {
		t.Errorf("a place that refuses: %v", err)
	}
	r.refusal = errors.New("closed")
	if _, err := r.write("a", "v"); err != r.refusal {
		t.Errorf("a store that refuses: %v", err)
	}
	r.refusal = nil
	w.Reset()
	w.Add(r.change("a", "v"), 2*testBudget, in{tree: r.trees[0]}, nil)
	if err := r.Write(t.Context(), &w, 0); err != nil {
		t.Errorf("a write above the budget, alone: %v", err)
	}
	large := w.Commit()
	r.await(large)
	bytes, _ := r.gate.Bytes()
	if r.LastSeq() != 11 || r.sees(r.trees[0], "b", row.MaxSequence) || bytes > testBudget/2 {
		t.Errorf("the last sequence number is %d, memtables take %d bytes", r.LastSeq(), bytes)
	}
}

func TestARefusalWaitsForWhatItSaw(t *testing.T) {
	r := newRig(t, true)
	_, err := r.write("a", "v")
	must(t, err)
	exists := errors.New("it exists")
	c := r.Refuse(exists)
	release := make(chan struct{})
	r.faults.Add(vfs.Rule{Ops: vfs.OpSyncs, Times: vfs.Forever, Action: vfs.Hold(release)})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Wait(ended); !errors.Is(err, ErrOutcomeUnknown) || !errors.Is(err, context.Canceled) {
		t.Errorf("a refusal before its cause is durable: %v", err)
	}
	close(release)
	if refusal, err := c.Wait(t.Context()); err != nil || refusal != exists || r.Visible() != 11 {
		t.Errorf("%v, %v, and %d is visible", refusal, err, r.Visible())
	}
}

func TestWhatIsDerivedKnowsItsMutation(t *testing.T) {
	r := newRig(t, true)
	first := &note{tree: r.trees[1], change: r.change("of a", "v")}
	second := &note{tree: r.trees[1], change: r.change("more of a", "v")}
	var w Write
	c := r.change("a", "v")
	w.Add(c, memtable.EstimateSize(c), in{tree: r.trees[0]}, first)
	w.Add(r.change("in the log only", "v"), 0, nil, second)
	must(t, r.Write(t.Context(), &w, 2000))
	written := w.Commit()
	r.await(written)
	for _, n := range []*note{first, second} {
		if n.shard != 7 || n.seq != 11 || n.micros != 2000 {
			t.Errorf("derived from mutation %d of tree %d at %d", n.seq, n.shard, n.micros)
		}
	}
	if r.LastSeq() != 12 || !r.sees(r.trees[1], "of a", 11) || r.sees(r.trees[1], "more of a", 11) || !r.sees(r.trees[1], "more of a", 12) {
		t.Error("derived changes do not have the sequence numbers of their mutations")
	}
	if r.sees(r.trees[0], "in the log only", row.MaxSequence) {
		t.Error("a change without a place is in a tree")
	}
}

// TestLaterCommitsWaitForEarlierOnes holds a write back while it is applied: a later one is
// durable, but not visible before it.
func TestLaterCommitsWaitForEarlierOnes(t *testing.T) {
	r := newRig(t, true)
	reached, release := make(chan struct{}), make(chan struct{})
	n := &note{tree: r.trees[1], change: r.change("of slow", "v"), before: func() { close(reached); <-release }}
	applied := make(chan error)
	go func() {
		var w Write
		w.Add(r.change("slow", "v"), 1000, in{tree: r.trees[0]}, n)
		applied <- r.Write(context.Background(), &w, 0)
	}()
	<-reached
	fast, err := r.write("fast", "v")
	must(t, err)
	must(t, r.Sync())
	if r.Visible() != 10 {
		t.Errorf("%d is visible before the first write is applied", r.Visible())
	}
	close(release)
	must(t, <-applied)
	r.await(fast)
	if r.Visible() != 12 {
		t.Errorf("%d is visible", r.Visible())
	}
}

func TestAFailedSyncPoisons(t *testing.T) {
	r := newRig(t, true)
	r.faults.Add(vfs.Rule{Ops: vfs.OpSyncs, Times: vfs.Forever, Action: vfs.FailSync(vfs.SyncFailureExt4)})
	c, err := r.write("a", "v")
	must(t, err)
	if _, err := c.Wait(t.Context()); !errors.Is(err, ErrPoisoned) {
		t.Errorf("the write: %v", err)
	}
	if r.Visible() != 10 {
		t.Errorf("%d is visible", r.Visible())
	}
	if _, err := r.write("b", "v"); !errors.Is(err, ErrPoisoned) || !errors.Is(r.Failed(), ErrPoisoned) {
		t.Errorf("a later write: %v", err)
	}
	if err := r.Sync(); !errors.Is(err, ErrPoisoned) {
		t.Errorf("a later sync: %v", err)
	}
}

func TestFullMemtablesAreRotated(t *testing.T) {
	r := newRig(t, false)
	for len(r.due) == 0 {
		_, err := r.write("a", string(make([]byte, 1000)))
		must(t, err)
		if r.LastSeq() > 30 {
			t.Fatal("no memtable is full")
		}
	}
	_, waiting := r.gate.Bytes()
	if _, own := r.trees[0].MemoryBytes(); r.due[0] != r.trees[0] || waiting != own || waiting == 0 {
		t.Errorf("%d bytes wait to be flushed, the tree says %d", waiting, own)
	}
	trees, endSeq := r.Rotate()
	if !slices.Equal(trees, r.trees) || endSeq != r.LastSeq()+1 || len(r.due) != 2 {
		t.Errorf("rotated %d trees at %d, %d flushes are due", len(trees), endSeq, len(r.due))
	}
}

// TestTheLogIsBounded writes little to one tree, which keeps the log, and much to the other.
func TestTheLogIsBounded(t *testing.T) {
	r := newRig(t, false)
	var w Write
	c := r.change("little", "v")
	w.Add(c, memtable.EstimateSize(c), in{tree: r.trees[1]}, nil)
	must(t, r.Write(t.Context(), &w, 0))
	for !slices.Contains(r.due, r.trees[1]) {
		_, err := r.write("much", string(make([]byte, 4000)))
		must(t, err)
		if r.log.Segment() > 10 {
			t.Fatalf("the log is at segment %d, and nothing bounds it", r.log.Segment())
		}
		if total, waiting := r.gate.Bytes(); total > testBudget/2 { // as a flush does
			r.gate.Free(waiting, waiting)
		}
	}
}

func TestTimesDoNotFall(t *testing.T) {
	r := newRig(t, true)
	_, at, err := r.Barrier(t.Context(), 5000)
	if err != nil || at != 5000 {
		t.Fatalf("a barrier at %d: %v", at, err)
	}
	n := &note{tree: r.trees[1], change: r.change("of a", "v")}
	var w Write
	w.Add(r.change("a", "v"), 1000, in{tree: r.trees[0]}, n)
	must(t, r.Write(t.Context(), &w, 2000))
	if n.micros != 5000 {
		t.Errorf("a write after the barrier is at %d", n.micros)
	}
	seq, at, err := r.Barrier(t.Context(), 4000)
	if err != nil || seq != 11 || at != 5000 || r.Visible() != 11 {
		t.Errorf("a barrier at %d and %d, with %d visible: %v", seq, at, r.Visible(), err)
	}
}

// waiting is a write that waits for room in the log.
type waiting struct {
	Write
	err error
	end chan struct{}
}

// waitForRoom writes until the next write finds no room in the log, and begins n writes that wait for
// it. Every second one has a context that can end. release lets them go on, and returns when all
// have ended.
func (r *rig) waitForRoom(n int) (writes []*waiting, release func()) {
	r.room <- struct{}{}
	ctx, cancel := context.WithCancel(r.t.Context())
	for i := 0; len(writes) < n; i++ {
		w := &waiting{end: make(chan struct{})}
		c := r.change(fmt.Sprint(i), strings.Repeat("v", 4<<10))
		w.Add(c, memtable.EstimateSize(c), in{tree: r.trees[0]}, nil)
		canEnd := len(writes)%2 == 1
		go func() {
			defer close(w.end)
			if canEnd {
				w.err = r.Write(ctx, &w.Write, 2000)
			} else {
				w.err = r.Write(context.Background(), &w.Write, 2000)
			}
		}()
		synctest.Wait()
		select {
		case <-w.end:
			must(r.t, w.err)
		default:
			writes = append(writes, w)
		}
	}
	return writes, func() {
		<-r.room
		for _, w := range writes {
			<-w.end
		}
		cancel()
	}
}

// TestWritesGetRoomInTheLogInTheirOrder: a write whose context can end is not passed by others.
func TestWritesGetRoomInTheLogInTheirOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		writes, release := newRig(t, false).waitForRoom(8)
		release()
		for i, w := range writes {
			must(t, w.err)
			if want := writes[0].commit.seq + uint64(i); w.commit.seq != want {
				t.Errorf("write %d has the sequence number %d, want %d", i, w.commit.seq, want)
			}
		}
	})
}

func TestWritesThatWaitAskAFullDiskOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		writes, release := r.waitForRoom(8)
		r.faults.Add(vfs.Rule{Ops: vfs.OpPreallocate | vfs.OpCreate, Times: vfs.Forever, Action: vfs.FailWith(syscall.ENOSPC)})
		release()
		for i, w := range writes {
			if !vfs.IsNoSpace(w.err) {
				t.Errorf("write %d: %v", i, w.err)
			}
		}
		if n := r.faults.Injected(); len(n) != 1 || n[0].Count != 1 {
			t.Errorf("the disk was asked %v", n)
		}
		r.faults.Clear()
		_, err := r.write("later", "v")
		must(t, err)
	})
}

// TestAWriteWithoutSpaceFailsAlone: others, which it has held up, have room.
func TestAWriteWithoutSpaceFailsAlone(t *testing.T) {
	for _, large := range []bool{false, true} {
		failsAlone(t, large)
	}
}

func failsAlone(t *testing.T, large bool) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, false)
		r.room <- struct{}{}
		r.Between(func() { r.large = new(Write) })
		small := make(chan error)
		go func() {
			_, err := r.write("small", "v")
			small <- err
		}()
		synctest.Wait()
		r.noRoom.Store(&noRoom{syscall.ENOSPC, large})
		r.Between(func() { r.large = nil })
		<-r.room
		if err := <-small; err != nil {
			t.Errorf("large %v: %v", large, err)
		}
	})
}

// TestTheBufferOfTheLogIsHandedOverInTime: however often a writer hands over full groups, the rest
// follows within the period.
func TestTheBufferOfTheLogIsHandedOverInTime(t *testing.T) {
	r := newRig(t, false)
	_, err := r.write("a", "v")
	must(t, err)
	for range 2 {
		r.HandOverSoon()
		r.clock.Advance(handOverPeriod)
		r.exec.RunAll()
	}
	records := 0
	_, err = wal.Recover(wal.Options{FS: r.faults, Dir: "/log", SegmentSize: testSegment}, 0, func(wal.Record) error {
		records++
		return nil
	})
	must(t, err)
	if records != 1 {
		t.Errorf("the system has %d records, want 1", records)
	}
}

// A write has a record and no place in a memtable for a moment. The log must not be released by what is true then.
func TestTheNewestSegmentIsAskedForBetweenWrites(t *testing.T) {
	r := newRig(t, false)
	answered := make(chan uint64, 1)
	r.Between(func() { // as a write
		go func() { answered <- r.NewestSegment() }()
		for range 1000 {
			runtime.Gosched()
		}
		if len(answered) > 0 {
			t.Error("answered while a write is ordered")
		}
	})
	if n := <-answered; n != r.log.Newest() {
		t.Errorf("segment %d, want %d", n, r.log.Newest())
	}
}
