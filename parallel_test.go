package flagstone

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

const (
	parallelKeys = 300 // partition keys
	parallelRows = 20  // of each
)

// parallelTable makes a table in which each partition key has rows 0 to parallelRows-1, in memory and in files.
func parallelTable(t *testing.T) (*Store, *Table) {
	store, err := Open(filepath.Join(t.TempDir(), "store"), Options{
		MemtableSize: 64 << 10, MemoryBudget: 1 << 20, TableFileSize: 64 << 10, Sync: SyncNone, PartitionSplitSize: -1,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(ctx(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeInteger}, {Name: "n", Type: row.TypeInteger}},
	})
	if err != nil {
		t.Fatal(err)
	}
	writeGeneration(t, store, table, 0)
	return store, table
}

// writeGeneration writes the same number to all rows, by one batch.
func writeGeneration(t *testing.T, store *Store, table *Table, number int64) {
	batch := store.NewBatch()
	for p := range parallelKeys {
		for n := range parallelRows {
			batch.Row(table, Key(p, n)).Put("c", startMillis, row.Integer(number))
		}
	}
	if err := store.Apply(ctx(), batch); err != nil {
		t.Error(err)
	}
}

// scanParallel scans partition keys from low, inclusive, to high, exclusive, and checks what it is given.
func scanParallel(table *Table, low, high, workers int, piece int64) error {
	var lasts [8][2]int64
	var done, total, calls, count atomic.Int64
	var seen [parallelKeys][parallelRows]atomic.Bool
	generation := make(chan int64, parallelKeys*parallelRows)
	for i := range lasts {
		lasts[i] = [2]int64{-1, 0}
	}
	err := table.ScanParallel(ctx(), ParallelScan{
		Start: Key(low), End: Key(high), Workers: workers, PieceBytes: piece,
		Progress: func(d, all int64) {
			if d < done.Swap(d) || calls.Add(1) > 1 && all != total.Load() || d > all {
				calls.Add(1 << 32)
			}
			total.Store(all)
		},
	}, func(worker int, r *Row) error {
		at := [2]int64{r.Key()[0].Int64(), r.Key()[1].Int64()}
		if slices.Compare(at[:], lasts[worker][:]) <= 0 {
			return fmt.Errorf("worker %d got row %v after %v", worker, at, lasts[worker])
		}
		lasts[worker] = at
		if at[0] < int64(low) || at[0] >= int64(high) || seen[at[0]][at[1]].Swap(true) {
			return fmt.Errorf("row %v is outside of %d to %d, or came twice", at, low, high)
		}
		number, err := numberOf(r)
		count.Add(1)
		generation <- number
		return err
	})
	if err != nil {
		return err
	}
	if n := int64((high - low) * parallelRows); count.Load() != n {
		return fmt.Errorf("%d rows, want %d", count.Load(), n)
	}
	close(generation)
	first := <-generation
	for number := range generation {
		if number != first {
			return fmt.Errorf("rows of the moments %d and %d", first, number)
		}
	}
	if calls.Load() >= 1<<32 || done.Load() != total.Load() {
		return fmt.Errorf("progress fell, or ended at %d of %d", done.Load(), total.Load())
	}
	return nil
}

// TestAParallelScanGivesEveryRowOnce scans while partitions are split and merged, and while all rows are
// overwritten by batches.
func TestAParallelScanGivesEveryRowOnce(t *testing.T) {
	store, table := parallelTable(t)
	stop := make(chan struct{})
	var group sync.WaitGroup
	loop := func(step func()) {
		group.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
					step()
				}
			}
		})
	}
	number := int64(0)
	loop(func() {
		number++
		writeGeneration(t, store, table, number)
	})
	loop(func() {
		at, list := row.Integer(rand.Int64N(parallelKeys)), table.Partitions()
		var err error
		if len(list) > 12 {
			err = table.Merge(ctx(), list[1+rand.IntN(len(list)-1)].Start)
		} else {
			err = table.Split(ctx(), at)
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			t.Error(err)
		}
	})
	scans := 60
	if testing.Short() {
		scans = 15
	}
	for i := range scans {
		low, high := rand.IntN(parallelKeys/2), parallelKeys/2+rand.IntN(parallelKeys/2)
		if i%2 == 0 {
			low, high = 0, parallelKeys
		}
		if err := scanParallel(table, low, high, 1+i%8, []int64{0, 1, 5000, 1 << 40}[i%4]); err != nil {
			t.Error(err)
		}
	}
	close(stop)
	group.Wait()
	m := store.Metrics()
	t.Logf("%d scans, %d splits, %d merges", scans, m.Splits, m.Merges)
	if m.Splits == 0 || m.OpenSnapshots != 0 {
		t.Errorf("%d splits, %d open snapshots", m.Splits, m.OpenSnapshots)
	}
}

func TestAParallelScanEndsWithTheFirstError(t *testing.T) {
	store, table := parallelTable(t)
	broken := errors.New("broken")
	var calls atomic.Int64
	err := table.ScanParallel(ctx(), ParallelScan{Workers: 4, PieceBytes: 1000}, func(int, *Row) error {
		if calls.Add(1) == 100 {
			return broken
		}
		return nil
	})
	if !errors.Is(err, broken) || calls.Load() > parallelKeys*parallelRows/2 {
		t.Errorf("%v after %d rows", err, calls.Load())
	}
	canceled, cancel := context.WithCancel(ctx())
	err = table.ScanParallel(canceled, ParallelScan{Workers: 2}, func(int, *Row) error { cancel(); return nil })
	wantError(t, "canceled", err, context.Canceled)
	for what, s := range map[string]ParallelScan{
		"workers": {Workers: -1}, "pieces": {PieceBytes: -1}, "reverse": {Options: ScanOptions{Reverse: true}},
		"paused": {Options: ScanOptions{MaxExamined: 1}}, "start": {Start: Key("text")}, "end": {End: Key("text")},
		"bounds": {Start: Key(7), End: Key(5)},
	} {
		wantError(t, what, table.ScanParallel(ctx(), s, func(int, *Row) error { return nil }), ErrInvalid)
	}
	for _, s := range []ParallelScan{{Start: Key(5), End: Key(5)}, {Start: Key(parallelKeys)}} {
		if err := table.ScanParallel(ctx(), s, func(int, *Row) error { return broken }); err != nil {
			t.Errorf("a range without rows: %v", err)
		}
	}
	if n := store.Metrics().OpenSnapshots; n != 0 {
		t.Errorf("%d open snapshots", n)
	}
	at, err := store.Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	writeGeneration(t, store, table, 1)
	s := ParallelScan{Options: ScanOptions{ReadOptions: ReadOptions{Snapshot: at}}}
	err = table.ScanParallel(ctx(), s, func(_ int, r *Row) error {
		if number, err := numberOf(r); err != nil || number != 0 {
			return fmt.Errorf("row %v has %d at the snapshot, %w", r.Key(), number, err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
	at.Close()
	wantError(t, "closed snapshot", table.ScanParallel(ctx(), s, func(int, *Row) error { return nil }), ErrClosed)
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	wantError(t, "closed store", table.ScanParallel(ctx(), ParallelScan{}, func(int, *Row) error { return nil }), ErrClosed)
}

// TestARangeIsCutAlone: its bounds stay what they are, and lie inside of partition keys here.
func TestARangeIsCutAlone(t *testing.T) {
	_, table := parallelTable(t)
	low, err := table.core.EncodeBound(nil, Key(100, 5))
	if err != nil {
		t.Fatal(err)
	}
	before := slices.Clone(low)
	cutter, err := table.cut(ctx(), low, nil, 1<<10, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	points := cutter.Points()
	if len(points) < 3 || points[0].Int64() <= 100 || !slices.Equal(low, before) {
		t.Errorf("%d points, the first is %v; from %x, which was %x", len(points), points[0], low, before)
	}
}

func TestAScanByVeryManyWorkers(t *testing.T) {
	_, table := parallelTable(t)
	var count atomic.Int64
	err := table.ScanParallel(ctx(), ParallelScan{Workers: 1 << 60}, func(int, *Row) error {
		count.Add(1)
		return nil
	})
	if err != nil || count.Load() != parallelKeys*parallelRows {
		t.Errorf("%d rows, %v", count.Load(), err)
	}
}

// TestAScanHasPiecesForEachWorker has a table in memory, beside no, one and several runs of table files.
func TestAScanHasPiecesForEachWorker(t *testing.T) {
	for _, flushes := range []int{0, 1, 2, 3} {
		r := newRig(t, Options{MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
		table := r.table("t", TableOptions{})
		fill := func(n int) {
			b := r.store.NewBatch()
			for i := range n {
				b.Row(table, Key(fmt.Sprintf("p%06d", i), 1)).Put("c", startMillis, row.String(fmt.Sprintf("%0500d", i)))
			}
			if err := r.store.Apply(ctx(), b); err != nil {
				t.Fatal(err)
			}
		}
		for range flushes {
			fill(100)
			if err := r.store.Flush(ctx()); err != nil {
				t.Fatal(err)
			}
		}
		fill(30000)
		_, sizes, err := table.pieces(ctx(), &ParallelScan{}, 2)
		if err != nil {
			t.Fatal(err)
		}
		if len(sizes) > 2*2*piecesEach || len(sizes) < piecesEach {
			t.Errorf("%d flushes: %d pieces, documented 16 for each of 2", flushes, len(sizes))
		}
	}
}

// TestManySmallMemtablesCount: each has few rows, and counts in the sizes of pieces.
func TestManySmallMemtablesCount(t *testing.T) {
	r := newRig(t, Options{MemtableSize: 64 << 20, MemoryBudget: 256 << 20})
	var many []any
	for n := range 1000 {
		many = append(many, fmt.Sprintf("%04d", n))
	}
	table := r.presplit("t", nil, many...)
	b := r.store.NewBatch()
	for n := range 1000 {
		for i := range 16 {
			b.Row(table, Key(fmt.Sprintf("%04d%02d", n, i), 1)).Put("c", startMillis, row.String(fmt.Sprintf("%0500d", i)))
		}
	}
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	var used int64
	for _, tree := range table.core.Trees() {
		used += tree.ApproximateSize()
	}
	for _, share := range []float64{.1, .3, .5, .55, .6, .9} {
		c, err := table.cut(ctx(), nil, nil, int64(share*float64(used)), math.MaxInt)
		if err != nil {
			t.Fatal(err)
		}
		var total int64
		for _, n := range c.Sizes() {
			total += n
		}
		t.Logf("piece of %.2f of the table: the pieces add up to %.2f of it: %d pieces", share, float64(total)/float64(used), len(c.Sizes()))
		if got := float64(total) / float64(used); got < .875 {
			t.Errorf("share %.2f: %.2f", share, got)
		}
	}
}

// TestAScanOfFewRowsReadsFewFiles opens a table of many files.
func TestAScanOfFewRowsReadsFewFiles(t *testing.T) {
	r, fault := faultRig(t, Options{Compression: CompressionNone, MemtableSize: 64 << 20, TableFileSize: 64 << 10})
	table := r.table("t", TableOptions{})
	b := r.store.NewBatch()
	for i := range 10000 {
		b.Row(table, Key(fmt.Sprintf("p%06d", i), 1)).Put("c", startMillis, row.String(fmt.Sprintf("%0500d", i)))
	}
	if err := r.store.Apply(ctx(), b); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Flush(ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Compact(ctx()); err != nil {
		t.Fatal(err)
	}
	if err := r.store.Close(); err != nil {
		t.Fatal(err)
	}
	opts := r.opts
	opts.Seams.FS, opts.Seams.Clock, opts.Seams.Executor = fault, r.clock, r.exec
	s, err := Open("/store", opts)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	table, err = s.Table("t")
	if err != nil {
		t.Fatal(err)
	}
	calls := func() int64 { return fault.Calls(vfs.OpReadAt) }
	was := calls()
	n := 0
	for _, err := range table.Scan(ctx(), Key("p005000"), Key("p005001"), ScanOptions{}).All() {
		if err != nil {
			t.Fatal(err)
		}
		n++
	}
	scan := calls() - was
	if err := table.ScanParallel(ctx(), ParallelScan{Start: Key("p005000"), End: Key("p005001"), Workers: 1}, func(int, *Row) error { n++; return nil }); err != nil {
		t.Fatal(err)
	}
	par := calls() - was - scan
	t.Logf("%d rows, a scan read %d times, then a parallel scan %d", n, scan, par)
	if par > 10 {
		t.Errorf("%d reads for one row", par)
	}
}
