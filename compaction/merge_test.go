package compaction_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/compaction"
	"github.com/flagstone-db/flagstone/manifest"
	"github.com/flagstone-db/flagstone/mvcc"
	"github.com/flagstone-db/flagstone/mvcc/mvcctest"
	"github.com/flagstone-db/flagstone/row"
)

func newestOnly() mvcc.Policy {
	return mvcc.Policy{
		Views:       []mvcc.View{{Seq: row.MaxSequence, MaxVersions: 1, Cutoff: mvcc.NoExpiry}},
		MaxVersions: 1, ExpiryCutoff: mvcc.NoExpiry,
	}
}

// rows makes a run of n rows with a marker and a put at a sequence number.
func rows(from, n int, seq uint64) (run mvcctest.Run) {
	for i := from; i < from+n; i++ {
		run = append(run, mvcctest.Row{Key: fmt.Appendf(nil, "r%04d", i), Cells: []row.Cell{
			{Version: int64(seq), Seq: seq, Kind: row.KindRowMarker},
			{
				Column: []byte("a"), Version: int64(seq), Seq: seq, Kind: row.KindPut,
				Type: row.TypeInteger, Value: row.Integer(int64(i)).AppendPayload(nil),
			},
		}})
	}
	return run
}

func deletes(from, n int, seq uint64) (run mvcctest.Run) {
	for i := from; i < from+n; i++ {
		run = append(run, mvcctest.Row{Key: fmt.Appendf(nil, "r%04d", i), Cells: []row.Cell{
			{Version: row.MaxVersion, Seq: seq, Kind: row.KindDeleteRow},
		}})
	}
	return run
}

func bottom([]byte) mvcc.Below { return mvcc.BelowNothing }

// runJob runs a job. Without Below it lies over older runs that may hold anything.
func runJob(job compaction.Job) (compaction.Stats, error) {
	if job.Below == nil {
		job.Below = func([]byte) mvcc.Below { return mvcc.BelowAnything }
	}
	if job.Cancelled == nil {
		job.Cancelled = func() error { return nil }
	}
	if job.Yield == nil {
		job.Yield = func() {}
	}
	return compaction.Run(job)
}

func TestRowsWithNothingLeftLeaveNoTrace(t *testing.T) {
	out := &tables{}
	stats, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{deletes(0, 10, 9).NewIterator(), rows(0, 12, 1).NewIterator()},
		Policy: newestOnly(), Below: bottom, NewTable: out.NewTable,
	})
	if err != nil {
		t.Fatal(err)
	}
	want := compaction.Stats{CellsIn: 34, CellsOut: 4}
	if stats != want {
		t.Errorf("stats %+v, want %+v", stats, want)
	}
	if len(out.done) != 1 || string(out.done[0][0].Key) != "r0010" || len(out.done[0]) != 2 {
		t.Errorf("output %v", out.done)
	}
	out = &tables{}
	stats, err = runJob(compaction.Job{
		Inputs: []mvcc.Iterator{deletes(0, 10, 9).NewIterator(), rows(0, 10, 1).NewIterator()},
		Policy: newestOnly(), Below: bottom, NewTable: out.NewTable,
	})
	if err != nil || out.open != nil || len(out.done) != 0 {
		t.Errorf("a table was begun for nothing: %+v, %v", stats, err)
	}
}

func TestTablesAreCutBetweenRowsAtTheTarget(t *testing.T) {
	const rowSize = 5 + 8 + 8 + 1 + 8
	out := &tables{}
	_, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{rows(0, 25, 1).NewIterator()},
		Policy: newestOnly(), TargetSize: 4*rowSize - 1, NewTable: out.NewTable,
	})
	if err != nil {
		t.Fatal(err)
	}
	var got []int
	for _, run := range out.done {
		got = append(got, len(run))
	}
	if fmt.Sprint(got) != "[4 4 4 4 4 4 1]" {
		t.Errorf("rows per table: %v", got)
	}
}

func TestTablesAreCutWhereTheyOverlapTooManyGrandparents(t *testing.T) {
	var grandparents []*manifest.FileMeta
	for i := range 40 {
		grandparents = append(grandparents, &manifest.FileMeta{
			Smallest: fmt.Appendf(nil, "r%04d", 10*i), Largest: fmt.Appendf(nil, "r%04d", 10*i+9), Size: 1000,
		})
	}
	out := &tables{}
	_, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{rows(100, 200, 1).NewIterator()},
		Policy: newestOnly(), TargetSize: 1_000_000, Grandparents: grandparents, NewTable: out.NewTable,
	})
	if err != nil || len(out.done) != 1 {
		t.Fatalf("%d tables, %v", len(out.done), err)
	}
	for _, f := range grandparents {
		f.Size = 3_000_000
	}
	out = &tables{}
	if _, err = runJob(compaction.Job{
		Inputs: []mvcc.Iterator{rows(100, 200, 1).NewIterator()},
		Policy: newestOnly(), TargetSize: 1_000_000, Grandparents: grandparents, NewTable: out.NewTable,
	}); err != nil {
		t.Fatal(err)
	}
	for i, run := range out.done {
		if len(run) > 40 {
			t.Errorf("table %d spans %s to %s", i, run[0].Key, run[len(run)-1].Key)
		}
	}
	if len(out.done) != 5 {
		t.Errorf("%d tables", len(out.done))
	}
}

func TestRowsOutsideTheBoundsStayOutside(t *testing.T) {
	out := &tables{}
	stats, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{rows(0, 20, 2).NewIterator(), rows(10, 20, 1).NewIterator()},
		Start:  []byte("r0005"), End: []byte("r0015"), Policy: newestOnly(), NewTable: out.NewTable,
	})
	if err != nil {
		t.Fatal(err)
	}
	if run := out.done[0]; len(run) != 10 || string(run[0].Key) != "r0005" || string(run[len(run)-1].Key) != "r0014" {
		t.Errorf("%+v, %s to %s", stats, run[0].Key, run[len(run)-1].Key)
	}
}

// failing is an Output that fails at its n-th call.
type failing struct {
	tables
	calls, failAt int
}

var errOutput = errors.New("output failed")

func (f *failing) step() error {
	if f.calls++; f.calls == f.failAt {
		return errOutput
	}
	return nil
}

func (f *failing) NewTable() (compaction.TableWriter, error) {
	if err := f.step(); err != nil {
		return nil, err
	}
	w, err := f.tables.NewTable()
	return &failingTable{w.(*table), f}, err
}

type failingTable struct {
	*table
	f *failing
}

func (t *failingTable) StartRow(key []byte) error {
	return errors.Join(t.f.step(), t.table.StartRow(key))
}

func (t *failingTable) AddCell(c *row.Cell) error { return errors.Join(t.f.step(), t.table.AddCell(c)) }

func (t *failingTable) Finish() error {
	if err := t.f.step(); err != nil {
		return err
	}
	return t.table.Finish()
}

func TestEveryErrorEndsTheMergeAndAbandonsTheTable(t *testing.T) {
	for failAt := 1; ; failAt++ {
		in := rows(0, 9, 1).NewIterator()
		out := &failing{failAt: failAt}
		_, err := runJob(compaction.Job{
			Inputs: []mvcc.Iterator{in}, Policy: newestOnly(), TargetSize: 80, NewTable: out.NewTable,
		})
		if !in.Closed {
			t.Fatalf("call %d: the input is open", failAt)
		}
		if out.calls < failAt {
			if err != nil || out.abandoned != 0 {
				t.Fatalf("without a failure: %v, %d tables abandoned", err, out.abandoned)
			}
			break
		}
		made := len(out.done)
		if out.open != nil && len(out.open.run) > 0 {
			made++ // the last one that was begun
		}
		if !errors.Is(err, errOutput) || out.abandoned > 1 {
			t.Fatalf("call %d: %v, %d tables abandoned of %d", failAt, err, out.abandoned, made)
		}
	}
	for failAfter := 1; ; failAfter++ {
		in := rows(0, 9, 1).NewIterator()
		in.FailAfter = failAfter
		out := &tables{}
		_, err := runJob(compaction.Job{Inputs: []mvcc.Iterator{in}, Policy: newestOnly(), NewTable: out.NewTable})
		if in.Moves < failAfter {
			if err != nil || len(out.done) != 1 {
				t.Fatalf("without a failure: %v", err)
			}
			break
		}
		if !errors.Is(err, mvcctest.ErrInjected) || len(out.done) != 0 || out.open != nil && out.abandoned != 1 {
			t.Fatalf("movement %d: %v, %d tables done, %d abandoned", failAfter, err, len(out.done), out.abandoned)
		}
	}
}

func TestALongMergeCanBeStopped(t *testing.T) {
	large := rows(0, 100, 1)
	for _, r := range large {
		r.Cells[1].Type, r.Cells[1].Value = row.TypeBinary, make([]byte, 20_000)
	}
	for _, c := range []struct {
		run  mvcctest.Run
		most int // rows of a slice
	}{{rows(0, 5000, 1), 100}, {large, 1}} {
		stop := errors.New("stopped")
		out := &tables{}
		_, err := runJob(compaction.Job{
			Inputs: []mvcc.Iterator{c.run.NewIterator()}, Policy: newestOnly(), NewTable: out.NewTable,
			Cancelled: func() error { return stop },
		})
		if !errors.Is(err, stop) || out.abandoned != 1 || len(out.open.run) > c.most {
			t.Errorf("%v after %d rows, %d tables abandoned", err, len(out.open.run), out.abandoned)
		}
	}
}

func TestALongMergeYieldsUntilItIsCancelled(t *testing.T) {
	stop := errors.New("stopped")
	asked, yielded := 0, 0
	_, err := runJob(compaction.Job{
		Inputs: []mvcc.Iterator{rows(0, 5000, 1).NewIterator()}, Policy: newestOnly(), NewTable: (&tables{}).NewTable,
		Cancelled: func() error {
			if asked++; asked > 3 {
				return stop
			}
			return nil
		},
		Yield: func() { yielded++ },
	})
	if !errors.Is(err, stop) || asked != 4 || yielded != 3 {
		t.Errorf("%v: asked %d times, yielded %d times", err, asked, yielded)
	}
}

func BenchmarkMergeFourRuns(b *testing.B) {
	var runs []mvcctest.Run
	for i := range 4 {
		runs = append(runs, rows(i*500, 2000, uint64(4-i)))
	}
	var cells uint64
	b.ReportAllocs()
	for b.Loop() {
		var inputs []mvcc.Iterator
		for _, run := range runs {
			inputs = append(inputs, run.NewIterator())
		}
		stats, err := runJob(compaction.Job{Inputs: inputs, Policy: newestOnly(), NewTable: discard{}.NewTable})
		if err != nil {
			b.Fatal(err)
		}
		cells = stats.CellsIn
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(cells), "ns/cell")
}

type discard struct{}

func (d discard) NewTable() (compaction.TableWriter, error) { return d, nil }
func (discard) StartRow([]byte) error                       { return nil }
func (discard) NoteStored(row.Stored)                       {}
func (discard) AddCell(*row.Cell) error                     { return nil }
func (discard) EstimatedSize() int64                        { return 0 }
func (discard) Finish() error                               { return nil }
func (discard) Abandon()                                    {}

func TestFlushesLeaveTrimsAndCountThem(t *testing.T) {
	run := mvcctest.Run{{Key: []byte("k"), Cells: []row.Cell{
		{Version: 3, Seq: 3, Kind: row.KindRowMarker},
	}}}
	for v := int64(3); v > 0; v-- {
		run[0].Cells = append(run[0].Cells, row.Cell{
			Column: []byte("a"), Version: v, Seq: uint64(v), Kind: row.KindPut, Type: row.TypeBoolean, Value: []byte{1},
		})
	}
	out := &tables{}
	stats, err := runJob(compaction.Job{Inputs: []mvcc.Iterator{run.NewIterator()}, Policy: newestOnly(), NewTable: out.NewTable})
	if err != nil || stats.CellsOut != 3 {
		t.Fatalf("%+v, %v", stats, err)
	}
	var b strings.Builder
	for _, c := range out.done[0][0].Cells {
		fmt.Fprintf(&b, "%s\n", c.String())
	}
	if want := "@3#3:row-marker\na@3#3:put=true\na@2#3:trim\n"; b.String() != want {
		t.Errorf("got\n%swant\n%s", b.String(), want)
	}
}
