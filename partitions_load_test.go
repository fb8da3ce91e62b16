package flagstone

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/row"
)

// TestSplitsAndMergesUnderLoad splits and merges partitions, FLAGSTONE_REPLACEMENTS times, while eight goroutines write and
// read. Each row has one writer, which raises its number; readers must never see a number below one that
// was acknowledged before they began, nor miss a row, nor find one twice or out of order.
func TestSplitsAndMergesUnderLoad(t *testing.T) {
	defer goleak.VerifyNone(t)
	var acked numbers
	const keys, rows = len(acked), len(acked[0])
	replacements := 100
	if testing.Short() {
		replacements = 20
	}
	if n, _ := strconv.Atoi(os.Getenv("FLAGSTONE_REPLACEMENTS")); n > 0 {
		replacements = n
	}
	opts := Options{
		MemtableSize: 32 << 10, MemoryBudget: 512 << 10, TableFileSize: 32 << 10, WALSegmentSize: 256 << 10, Sync: SyncNone,
	}
	dir := filepath.Join(t.TempDir(), "store")
	store, err := Open(dir, opts)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { store.Close() }()
	table, err := store.CreateTable(ctx(), TableSpec{
		Name: "t", Key: []KeyColumn{{Name: "p", Type: row.TypeInteger}, {Name: "n", Type: row.TypeInteger}},
	})
	if err != nil {
		t.Fatal(err)
	}
	write := func(p, n int) error {
		next := acked[p][n].Load() + 1
		err := table.Put(ctx(), Key(p, n), "c", startMillis, row.Integer(next))
		if err == nil {
			acked[p][n].Store(next)
		}
		return err
	}
	for p := range keys {
		for n := range rows {
			if err := write(p, n); err != nil {
				t.Fatal(err)
			}
		}
	}
	stop, cancel := context.WithCancel(t.Context())
	defer cancel()
	var group sync.WaitGroup
	loop := func(step func(rng *rand.Rand) error) {
		seed := rand.Uint64()
		group.Go(func() {
			rng := rand.New(rand.NewPCG(seed, 1))
			for stop.Err() == nil {
				if err := step(rng); err != nil {
					t.Errorf("seed %d: %v", seed, err)
					cancel()
				}
			}
		})
	}
	for w := range rows {
		loop(func(rng *rand.Rand) error { return write(rng.IntN(keys), w) }) // the only writer of its row of each key
	}
	loop(func(rng *rand.Rand) error {
		p, n := rng.IntN(keys), rng.IntN(rows)
		floor := acked[p][n].Load()
		r, err := table.Get(ctx(), Key(p, n), ReadOptions{})
		if err != nil || !r.Exists() {
			return fmt.Errorf("row %d/%d: %v, %w", p, n, r, err)
		}
		if number, err := numberOf(r); err != nil || number < floor {
			return fmt.Errorf("row %d/%d has %d, %w; want at least %d", p, n, number, err, floor)
		}
		return nil
	})
	for _, reverse := range []bool{false, true} {
		loop(func(rng *rand.Rand) error { return acked.scan(table, reverse) })
	}
	loop(func(rng *rand.Rand) error {
		_, err := table.SplitPoints(ctx(), 4<<10, 0)
		return errors.Join(err, store.Flush(ctx()))
	})
	rng, done, refused := rand.New(rand.NewPCG(1, 2)), 0, 0
	for done < replacements && stop.Err() == nil {
		list := table.Partitions()
		at := row.Integer(int64(rng.IntN(keys)))
		if len(list) > 1+rng.IntN(24) {
			at = list[1+rng.IntN(len(list)-1)].Start
			err = table.Merge(ctx(), at)
		} else {
			err = table.Split(ctx(), at)
		}
		if errors.Is(err, ErrConflict) { // partitions that are written all the time
			refused++
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		done++
	}
	cancel()
	group.Wait()
	t.Logf("%d splits and merges, %d merges refused, %d partitions", done, refused, len(table.Partitions()))
	if err := store.Close(); err != nil {
		t.Fatal(err)
	}
	if report, err := Check(ctx(), dir, opts, nil); err != nil || len(report.Problems) > 0 {
		t.Fatal(err, report.Problems)
	}
	if store, err = Open(dir, opts); err != nil {
		t.Fatal(err)
	}
	if table, err = store.Table("t"); err != nil {
		t.Fatal(err)
	}
	if err := acked.scan(table, false); err != nil {
		t.Error(err)
	}
}

// numbers are what was acknowledged of the rows of a table: by partition key and row.
type numbers [60][4]atomic.Int64

// scan scans all rows and compares them with what was acknowledged before.
func (acked *numbers) scan(table *Table, reverse bool) error {
	var floor [len(acked)][len(acked[0])]int64
	for p := range floor {
		for n := range floor[p] {
			floor[p][n] = acked[p][n].Load()
		}
	}
	p, n := 0, 0
	if reverse {
		p, n = len(acked)-1, len(acked[0])-1
	}
	count := 0
	for r, err := range table.Scan(ctx(), nil, nil, ScanOptions{Reverse: reverse}).All() {
		if err != nil {
			return err
		}
		number, err := numberOf(r)
		if err != nil || r.Key()[0].Int64() != int64(p) || r.Key()[1].Int64() != int64(n) || number < floor[p][n] {
			return fmt.Errorf("row %v has %d, %w; want row %d/%d with at least %d", r.Key(), number, err, p, n, floor[p][n])
		}
		count++
		if reverse {
			if n--; n < 0 {
				p, n = p-1, len(acked[0])-1
			}
		} else if n++; n == len(acked[0]) {
			p, n = p+1, 0
		}
	}
	if want := len(acked) * len(acked[0]); count != want {
		return fmt.Errorf("a scan (reverse %t) found %d rows, want %d", reverse, count, want)
	}
	return nil
}

func numberOf(r *Row) (int64, error) {
	c := &r.Cells()[0]
	v, err := row.PayloadValue(c.Type, c.Value)
	return v.Int64(), err
}
