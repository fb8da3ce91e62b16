package flagstone

// The promises of Wait: refusals, asynchronous writes, writers that are held back.

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"runtime"
	"sync/atomic"
	"syscall"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/change"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/wal"
)

// TestP07_ARefusalWaitsUntilItsCauseIsVisible holds a write between the log and the memtable. A
// later write of another row is in place, but cannot be published; a condition on that row is
// refused because of it. The refusal must not return before the row can be read.
func TestP07_ARefusalWaitsUntilItsCauseIsVisible(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	s := r.store
	var slow change.Change
	slow.Init(table.core, Key("slow", 1))
	slow.PutRow()
	p, err := slow.Prepare(startMillis)
	if err != nil {
		t.Fatal(err)
	}
	held := &heldBack{tree: table.core.Trees()[0], change: p.Change, reached: make(chan struct{}), release: make(chan struct{})}
	var w commit.Write
	w.Add(p.Change, 1000, placeIn{held.tree}, held)
	applied := make(chan error)
	go func() { applied <- s.pipeline.Write(ctx(), &w, startMillis*1000) }()
	<-held.reached
	insert := func(_ context.Context, tx *RowTx) error {
		if exists, err := tx.Exists(); err != nil || exists {
			return errors.Join(err, errExists)
		}
		tx.PutRow()
		return nil
	}
	done, err := table.UpdateAsync(ctx(), Key("p", 1), insert)
	if err != nil {
		t.Fatal(err)
	}
	refused, err := table.UpdateAsync(ctx(), Key("p", 1), insert)
	if err != nil {
		t.Fatal(err)
	}
	brief, cancel := context.WithCancel(ctx())
	cancel()
	if err := refused.Wait(brief); !errors.Is(err, context.Canceled) {
		got, _ := table.Get(ctx(), Key("p", 1), ReadOptions{})
		t.Errorf("refused with %v, while readers see %v", err, got)
	}
	close(held.release)
	if err := <-applied; err != nil {
		t.Fatal(err)
	}
	if err := refused.Wait(ctx()); !errors.Is(err, errExists) {
		t.Errorf("the refusal is %v", err)
	}
	if got := show(t, table, "p", 1); got == "absent" {
		t.Error("the row that caused a refusal is not visible")
	}
	if err := errors.Join(done.Wait(ctx()), s.wait(ctx(), w.Commit())); err != nil {
		t.Error(err)
	}
}

// placeIn places a change in a tree.
type placeIn struct{ tree *partition.Tree }

func (p placeIn) Tree() (*partition.Tree, error) { return p.tree, nil }

// heldBack derives a change from a write and holds the write back before it is applied as a whole.
type heldBack struct {
	tree             *partition.Tree
	change           *row.Change
	reached, release chan struct{}
}

func (h *heldBack) Tree() *partition.Tree { return h.tree }

func (h *heldBack) Size() int64 { return 1000 }

func (h *heldBack) Change(uint64, uint64, int64) *row.Change {
	close(h.reached)
	<-h.release
	return h.change
}

var errExists = errors.New("the row exists")

// TestP07_ARefusalFailsWithItsCause: the write that caused the refusal cannot be made durable, so
// no caller may learn of it.
func TestP07_ARefusalFailsWithItsCause(t *testing.T) {
	r, fault := faultRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "warm", 1, "c", startMillis, "v")
	written, err := table.UpdateAsync(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil })
	if err != nil {
		t.Fatal(err)
	}
	refused, err := table.UpdateAsync(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error {
		if exists, _ := tx.Exists(); !exists {
			t.Error("an update does not see the one before")
		}
		return errExists
	})
	if err != nil {
		t.Fatal(err)
	}
	if got := show(t, table, "p", 1); got != "absent" {
		t.Errorf("readers see what is not durable: %s", got)
	}
	fault.Add(vfs.Rule{Ops: vfs.OpSyncs, Times: vfs.Forever, Action: vfs.FailSync(vfs.SyncFailureExt4)})
	if err := refused.Wait(ctx()); !errors.Is(err, ErrPoisoned) || errors.Is(err, errExists) {
		t.Errorf("the refusal is %v", err)
	}
	wantError(t, "the write", written.Wait(ctx()), ErrPoisoned)
	if got := show(t, table, "p", 1); got != "absent" {
		t.Errorf("readers see what could not be made durable: %s", got)
	}
	fault.Clear()
}

// TestAsynchronousWritesKeepTheirOrder begins many writes of one row and waits for them in any
// order: each sees the earlier ones, and the last one stays.
func TestAsynchronousWritesKeepTheirOrder(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 2 << 10, MemoryBudget: 64 << 10, WALSegmentSize: 16 << 10})
	table := r.table("t", TableOptions{})
	rng := rand.New(rand.NewPCG(4, 4))
	const n = 200
	var commits []*Commit
	for i := range n {
		c, err := table.UpdateAsync(ctx(), Key("c", 0), func(_ context.Context, tx *RowTx) error {
			got, err := tx.Get(ReadOptions{})
			if err != nil {
				return err
			}
			if i > 0 {
				if v, _ := got.Value("count"); v.Int64() != int64(i) {
					t.Errorf("write %d sees %d", i, v.Int64())
				}
			}
			return increment(ctx(), tx)
		})
		if err != nil {
			t.Fatal(err)
		}
		commits = append(commits, c)
	}
	rng.Shuffle(n, func(i, j int) { commits[i], commits[j] = commits[j], commits[i] })
	for _, c := range commits {
		if err := c.Wait(ctx()); err != nil {
			t.Fatal(err)
		}
		if err := c.Wait(ctx()); err != nil { // again
			t.Fatal(err)
		}
	}
	got, err := table.Get(ctx(), Key("c", 0), ReadOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if v, _ := got.Value("count"); v.Int64() != n {
		t.Errorf("the count is %d, want %d", v.Int64(), n)
	}
}

// TestWhatIsDurableIsVisible: a write that no caller waits for is made durable by the drop of its
// table. Later writes could not become visible before it.
func TestWhatIsDurableIsVisible(t *testing.T) {
	r := newRig(t, Options{})
	kept, dropped := r.table("kept", TableOptions{}), r.table("dropped", TableOptions{})
	put(t, kept, "p", 1, "c", startMillis, "v")
	before := r.store.Metrics().VisibleSequence
	if _, err := dropped.UpdateAsync(ctx(), Key("p", 1), func(_ context.Context, tx *RowTx) error { tx.PutRow(); return nil }); err != nil {
		t.Fatal(err)
	}
	if err := r.store.DropTable(ctx(), "dropped"); err != nil {
		t.Fatal(err)
	}
	if visible := r.store.Metrics().VisibleSequence; visible != before+1 {
		t.Errorf("%d is visible, want %d", visible, before+1)
	}
}

// TestAnErrorOfTheFunctionIsReturnedAsItIs: it may look like one of the store.
func TestAnErrorOfTheFunctionIsReturnedAsItIs(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	mine := &fs.PathError{Op: "write", Path: "/a/file/of/the/caller", Err: syscall.ENOSPC}
	refuse := func(context.Context, *RowTx) error { return mine }
	if err := table.Update(ctx(), Key("p", 1), refuse); err != error(mine) {
		t.Errorf("an update: %v", err)
	}
	c, err := table.UpdateAsync(ctx(), Key("p", 1), refuse)
	if err != nil {
		t.Fatal(err)
	}
	if err := c.Wait(ctx()); err != error(mine) {
		t.Errorf("an update that is waited for later: %v", err)
	}
}

// TestSettleNamesEveryKindOfFailure: a flush and a compaction failed for different reasons.
func TestSettleNamesEveryKindOfFailure(t *testing.T) {
	r := newRig(t, Options{})
	tree := r.table("t", TableOptions{}).core.Trees()[0]
	r.store.gate.NoteFlush(&fs.PathError{Op: "write", Path: "x", Err: syscall.ENOSPC})
	r.store.gate.NoteCompaction(tree, fmt.Errorf("y: %w", wal.ErrCorrupt))
	defer r.store.gate.NoteFlush(nil)
	defer r.store.gate.NoteCompaction(tree, nil)
	if err := r.store.Settle(ctx()); !errors.Is(err, ErrNoSpace) || !errors.Is(err, ErrCorrupt) {
		t.Errorf("%v", err)
	}
}

// TestP18_AWriterThatWaitsCanBeCalledOff: memtables are full, the disk hangs,
// and a writer's context ends.
func TestP18_AWriterThatWaitsCanBeCalledOff(t *testing.T) {
	defer goleak.VerifyNone(t)
	fault := vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	store, err := Open("/store", Options{MemtableSize: 2 << 10, MemoryBudget: 8 << 10, Seams: Seams{FS: fault}})
	if err != nil {
		t.Fatal(err)
	}
	table, err := store.CreateTable(ctx(), TableSpec{Name: "t", Key: []KeyColumn{{Name: "pk", Type: row.TypeString}, {Name: "n", Type: row.TypeInteger}}})
	if err != nil {
		t.Fatal(err)
	}
	hang := make(chan struct{})
	fault.Add(vfs.Rule{Glob: "*.sst", Times: vfs.Forever, Action: vfs.Hold(hang)})
	called, callOff := context.WithCancel(ctx())
	outcome := make(chan error)
	var written atomic.Int64
	go func() {
		for i := 0; ; i++ {
			err := table.Update(called, Key("p", i), func(_ context.Context, tx *RowTx) error {
				tx.Put("c", startMillis, row.String(fmt.Sprintf("%0100d", i)))
				return nil
			})
			if err != nil {
				outcome <- err
				return
			}
			written.Add(1)
		}
	}()
	for store.Metrics().MemoryBytes < 7<<10 {
		runtime.Gosched()
	}
	if m := store.Metrics(); m.MemoryBytes > m.MemoryBudget {
		t.Errorf("memtables take %d bytes of %d", m.MemoryBytes, m.MemoryBudget)
	}
	acknowledged := written.Load()
	if n := count(t, table, ScanOptions{}); int64(n) < acknowledged {
		t.Errorf("readers see %d rows of %d", n, acknowledged)
	}
	callOff()
	wantError(t, "the writer", <-outcome, context.Canceled)
	fault.Clear()
	close(hang)
	put(t, table, "p", 0, "c", startMillis, "v") // the disk is back
	if err := store.Close(); err != nil {
		t.Error(err)
	}
}

// TestP13_TheManifestNamesNoSegmentThatIsStillToCome: a record may be framed for a segment whose
// file does not exist yet, before any memtable refers to that segment. A release of the log at
// that moment must end before that segment: if the power is cut then, the segment that the
// manifest needs exists.
func TestP13_TheManifestNamesNoSegmentThatIsStillToCome(t *testing.T) {
	r := newRig(t, Options{WALSegmentSize: 16 << 10})
	s := r.store
	before := s.log.NewestOnDisk()
	for position := uint64(1); s.log.Segment() == s.log.NewestOnDisk(); position++ {
		record := make([]byte, 3000)
		lsn, err := s.log.AppendNow(row.LogStream, position, record)
		if errors.Is(err, wal.ErrRoom) {
			if err = s.log.MakeRoom(ctx(), record); err == nil {
				lsn, err = s.log.AppendNow(row.LogStream, position, record)
			}
		}
		if err == nil && position == 1 {
			err = s.log.Sync(lsn)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	for step := range 2 {
		var err error
		if step == 1 { // the log finishes the new segment, and begins another one for this record
			err = s.log.MakeRoom(ctx(), make([]byte, 8<<10))
		}
		if err := errors.Join(err, s.Flush(ctx())); err != nil {
			t.Fatal(err)
		}
		first := s.state().MinLog
		if step == 0 && first != before || step == 1 && first <= before {
			t.Errorf("step %d: the manifest counts on segment %d, before it was %d", step, first, before)
		}
		opts := wal.Options{FS: r.fs.Image(vfs.CrashLoseAll, 0), Dir: "/store/wal", StoreID: s.state().StoreID}
		if _, err := wal.Recover(opts, first, func(wal.Record) error { return nil }); err != nil {
			t.Errorf("step %d: %v", step, err)
		}
	}
}
