package upkeep

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/commit"
	"github.com/flagstone-db/flagstone/internal/executor/executortest"
	"github.com/flagstone-db/flagstone/internal/jobs"
	"github.com/flagstone-db/flagstone/internal/pressure"
	"github.com/flagstone-db/flagstone/internal/tablefiles"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/partition"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
	"github.com/flagstone-db/flagstone/wal"
)

// rig is upkeep over one tree, a log and a manifest on a simulated disk. The test is their store,
// and steps the jobs.
type rig struct {
	*Upkeep
	t      *testing.T
	faults *vfs.Fault
	clock  *clocktest.Manual
	exec   *executortest.Manual
	state  *manifest.Log
	tree   *partition.Tree
	failed []string // jobs
	random uint64
	keys   int
}

const (
	testDir   = "/store"
	testTable = 1
)

func newRig(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, clock: clocktest.NewManual(1_000_000), exec: executortest.NewManual()}
	r.faults = vfs.NewFault(vfs.NewSim(vfs.SimOptions{}), 1)
	must(t, manifest.Create(r.faults, testDir, manifest.NewState([16]byte{1})))
	var err error
	r.state, _, err = manifest.Open(r.faults, testDir, nil)
	must(t, err)
	var e manifest.Edit
	e.Created = []*manifest.Table{{
		ID: testTable, Name: "t", Key: []manifest.KeyColumn{{Name: "id", Type: row.TypeInteger}},
		Options:   manifest.TableOptions{MaxVersions: 1, TTLSeconds: manifest.NeverExpires, MaxVersionOffsetSeconds: 1},
		Watermark: manifest.NoWatermark, Partitions: []*manifest.Partition{{ID: 1}},
	}}
	state, err := r.state.Commit(&e)
	must(t, err)
	shape := compaction.Config{TableFileSize: 64 << 10, L0Trigger: 4}
	env := &partition.Env{
		Settings: partition.Settings{
			MemtableSize: 16 << 10, Table: sstable.WriterOptions{FilterBitsPerKey: 10}, Compaction: shape,
		},
		FS: r.faults, Dir: testDir, Clock: r.clock, Random: r.bytes,
		Manifest: treeEnv{r}, Retention: treeEnv{r}, Scheduler: treeEnv{r}, Executor: r.exec,
	}
	env.Files = tablefiles.New(r.faults, testDir, tablefiles.Options{}, treeEnv{r})
	r.tree = partition.NewTree(env, testTable, state.Table(testTable).Partitions[0])

	background := jobs.New(r.exec, r.clock, func(job string, err error) bool {
		r.failed = append(r.failed, fmt.Sprintf("%s: %v", job, err))
		return true
	})
	gate := pressure.NewGate(gateEnv{r}, r.clock, 1<<20)
	pipeline := commit.New(pipelineEnv{r}, gate, background, commit.Options{
		Sync: true, SegmentSize: 64 << 10, LogBound: 1 << 20, Logger: slog.New(slog.DiscardHandler),
	})
	r.Upkeep = New(Parts{
		Env: upkeepEnv{r}, Pipeline: pipeline, Gate: gate, Jobs: background, Executor: r.exec, Clock: r.clock,
	}, Options{MemtableSize: 16 << 10, Compaction: shape, Logger: slog.New(slog.DiscardHandler)})
	opts := wal.Options{FS: r.faults, Dir: testDir + "/" + manifest.WALDir, SegmentSize: 64 << 10, Sync: true}
	found, err := wal.Recover(opts, 0, nil)
	must(t, err)
	log, err := wal.NewWriter(opts, found)
	must(t, err)
	pipeline.Recovered(0, 0)
	pipeline.Start(log)
	r.Start(log)
	t.Cleanup(func() {
		background.Stop()
		r.tree.Close()
		must(t, errors.Join(log.Close(), r.state.Close()))
	})
	return r
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// bytes returns other bytes each time.
func (r *rig) bytes() (b [16]byte) {
	r.random++
	binary.BigEndian.PutUint64(b[:], r.random)
	return b
}

// treeEnv is what the tree needs of its store.
type treeEnv struct{ *rig }

func (e treeEnv) NextFile() uint64 { return e.state.NewFileNumber() }
func (e treeEnv) ValueFile(number uint64) (manifest.ValueUsage, bool) {
	return e.state.State().ValueFile(number)
}
func (e treeEnv) Commit(_ uint64, _ partition.Kept, edit *manifest.Edit) (*manifest.State, error) {
	return e.state.Commit(edit)
}
func (e treeEnv) Advance(uint64, int64) error { return nil }
func (e treeEnv) Policy(uint64) compaction.Policy {
	return compaction.Policy{Views: []mvcc.View{{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}}, ExpiryCutoff: mvcc.NoExpiry}
}
func (e treeEnv) MaxVersions(_, _ uint64) int { return 1 }
func (e treeEnv) Cancelled() error            { return nil }
func (e treeEnv) Yield()                      {}
func (e treeEnv) ReadsLose(*partition.Tree)   {}
func (e treeEnv) Obsolete(string)             {}

// upkeepEnv is what upkeep needs of it.
type upkeepEnv struct{ *rig }

func (upkeepEnv) Flushed(*partition.Tree) {}

func (e upkeepEnv) Trees() []*partition.Tree    { return []*partition.Tree{e.tree} }
func (e upkeepEnv) LogTrees() []*partition.Tree { return e.Trees() }
func (e upkeepEnv) MinLog() uint64              { return e.state.State().MinLog }
func (upkeepEnv) DurableIndex() uint64          { return 0 }
func (e upkeepEnv) Commit(edit *manifest.Edit) error {
	_, err := e.state.Commit(edit)
	return err
}

// pipelineEnv is what the pipeline needs of it.
type pipelineEnv struct{ *rig }

func (e pipelineEnv) Refuses() error             { return nil }
func (e pipelineEnv) Trees() []*partition.Tree   { return []*partition.Tree{e.tree} }
func (e pipelineEnv) FlushDue(t *partition.Tree) { e.Upkeep.FlushDue(t) }

// gateEnv is what the gate needs of it.
type gateEnv struct{ *rig }

func (e gateEnv) Writable() error { return nil }
func (e gateEnv) FlushLargest()   { e.Pipeline.RotateLargest() }
func (e gateEnv) Await(ctx context.Context, event <-chan struct{}) error {
	return e.exec.Await(ctx, event, nil)
}

// place puts every change into one tree.
type place struct{ tree *partition.Tree }

func (p place) Tree() (*partition.Tree, error) { return p.tree, nil }

// write writes n rows with values of 100 bytes, and waits until they are durable.
func (r *rig) write(n int) {
	r.t.Helper()
	var w commit.Write
	for range n {
		w.Reset()
		key, err := row.AppendKey(nil, 1, row.Integer(int64(r.keys)))
		must(r.t, err)
		r.keys++
		c := &row.Change{Table: testTable, Key: key}
		must(r.t, errors.Join(c.Put("c", 1, row.String(strings.Repeat("x", 100))), c.Normalize()))
		w.Add(c, memtable.EstimateSize(c), place{r.tree}, nil)
		must(r.t, r.Pipeline.Write(r.t.Context(), &w, 0))
		written := w.Commit()
		_, err = written.Wait(r.t.Context())
		must(r.t, err)
	}
}

// files is how many table files the tree has.
func (r *rig) files() (n int) {
	for _, level := range r.tree.Meta().Levels {
		n += len(level)
	}
	return n
}

func TestFlushEmptiesMemoryAndLog(t *testing.T) {
	r := newRig(t)
	for range 4 {
		r.write(100)
		must(t, r.Flush(t.Context()))
	}
	if total, waiting := r.Gate.Bytes(); total != 0 || waiting != 0 {
		t.Errorf("memtables take %d bytes, of which %d wait", total, waiting)
	}
	if min, newest := r.state.State().MinLog, r.log.NewestOnDisk(); min != newest || newest == 1 {
		t.Errorf("the manifest needs the log from segment %d on, the newest is %d", min, newest)
	}
	if n := r.files(); n < 4 || r.tree.FlushedSeq() != r.Pipeline.LastSeq() {
		t.Errorf("%d files up to %d, the last write is %d", n, r.tree.FlushedSeq(), r.Pipeline.LastSeq())
	}
}

func TestSettleDoesWhatIsDue(t *testing.T) {
	r := newRig(t)
	for range 8 {
		r.write(100)
		must(t, r.Flush(t.Context()))
	}
	must(t, r.Settle(t.Context()))
	if depth := compaction.Depth(r.tree.Meta().Levels[0]); depth >= 4 {
		t.Errorf("level 0 is %d deep", depth)
	}
	ended, cancel := context.WithCancel(t.Context())
	r.write(400)
	cancel()
	if err := r.Settle(ended); !errors.Is(err, context.Canceled) {
		t.Errorf("with a context that has ended: %v", err)
	}
}

func TestCompactLeavesOneLevel(t *testing.T) {
	r := newRig(t)
	for range 3 {
		r.write(50)
		must(t, r.Flush(t.Context()))
	}
	must(t, r.Compact(t.Context(), []*partition.Tree{r.tree}, nil, nil))
	levels := r.tree.Meta().Levels
	if bottom := len(levels[manifest.NumLevels-1]); r.files() != bottom || bottom == 0 {
		t.Errorf("%d files, %d at the bottom", r.files(), bottom)
	}
}

func TestAtOneMomentFilesHoldNothingLater(t *testing.T) {
	r := newRig(t)
	r.write(10)
	moment := r.Pipeline.LastSeq()
	must(t, r.AtOneMoment(func(trees []*partition.Tree) error {
		r.write(300) // memtables are full, and their flush waits
		if got := r.tree.FlushedSeq(); len(trees) != 1 || got != moment {
			t.Errorf("the files of %d trees are complete up to %d, want %d", len(trees), got, moment)
		}
		return nil
	}))
	failure := errors.New("no room for a copy")
	if err := r.AtOneMoment(func([]*partition.Tree) error { return failure }); err != failure {
		t.Errorf("%v", err)
	}
	must(t, r.Flush(t.Context())) // flushes go on
}

func TestAFlushThatFailedIsTriedAgain(t *testing.T) {
	r := newRig(t)
	r.faults.Add(vfs.Rule{Ops: vfs.OpCreate, Glob: "*.sst", Times: 1, Action: vfs.FailWith(errors.New("broken"))})
	r.write(200)
	r.exec.RunAll()
	if len(r.failed) != 1 || !strings.HasPrefix(r.failed[0], "flush: ") || r.Gate.Stuck() == nil {
		t.Errorf("failures %q, the gate says %v", r.failed, r.Gate.Stuck())
	}
	r.clock.Advance(jobs.RetryAfter)
	r.exec.RunAll()
	if len(r.failed) != 1 || r.Gate.Stuck() != nil || r.files() == 0 {
		t.Errorf("failures %q, the gate says %v, %d files", r.failed, r.Gate.Stuck(), r.files())
	}
}

// TestTreesComeToRest follows a tree from busy to quiet to idle, and back.
func TestTreesComeToRest(t *testing.T) {
	r := newRig(t)
	expect := func(when string, want partition.Activity) {
		t.Helper()
		if got := r.quiet.activity(r.tree); got != want {
			t.Errorf("%s: %v, want %v", when, got, want)
		}
	}
	expect("at first", partition.Quiet)
	r.write(200)
	r.exec.RunAll()
	expect("after a flush", partition.Busy)
	r.write(200)
	r.clock.Advance(quietPeriod)
	expect("while it is written to", partition.Busy)
	r.clock.Advance(quietPeriod)
	expect("half a second later", partition.Quiet)
	r.clock.Advance(2 * IdlePeriod)
	expect("two looks later", partition.Idle)
	r.write(200)
	r.exec.RunAll()
	expect("after another flush", partition.Busy)
}
