package flagstone

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// TestParallelWritesAgainstAModel writes rows from several goroutines through one writer, while partitions are split
// and merged, and transactions hold some of the rows. All puts have the same version, so
// the last one of a row must be the one that was written last.
func TestParallelWritesAgainstAModel(t *testing.T) {
	defer goleak.VerifyNone(t)
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		t.Run("", func(t *testing.T) { writeAgainstAModel(t, sync, shorter(16_000)) })
	}
}

func writeAgainstAModel(t *testing.T, mode SyncMode, changes int) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	dir := filepath.Join(t.TempDir(), "store")
	opts := Options{MemtableSize: 32 << 10, MemoryBudget: 512 << 10, TableFileSize: 32 << 10, WALSegmentSize: 64 << 10, Sync: mode}
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
	const keys, rows, writers = 50, 8, 4 // each writer has its rows of each key
	done, lastRows, lastBytes := 0, int64(0), int64(0)
	w, err := table.WriteParallel(ctx(), ParallelWrite{Workers: 3, Progress: func(r, b int64) {
		if r < lastRows || b < lastBytes {
			t.Errorf("%d rows and %d bytes after %d and %d", r, b, lastRows, lastBytes)
		}
		lastRows, lastBytes = r, b
	}})
	if err != nil {
		t.Fatal(err)
	}
	ended, end := context.WithCancel(ctx())
	var beside, group sync.WaitGroup
	beside.Go(func() { trouble(ended, t, table, rand.New(rand.NewPCG(seed, 1)), keys) })
	models := make([]map[[2]int]string, writers)
	for g := range writers {
		models[g] = map[[2]int]string{}
		rng := rand.New(rand.NewPCG(seed, uint64(2+g)))
		group.Go(func() {
			for i := range changes / writers {
				at := [2]int{rng.IntN(keys), g + writers*rng.IntN(rows/writers)}
				value := fmt.Sprint(g, i, strings.Repeat("x", rng.IntN(100)))
				err := w.Write(Key(at[0], at[1]), func(c *RowChange) {
					if rng.IntN(4) == 0 {
						delete(models[g], at)
						c.DeleteRow()
					} else {
						models[g][at] = value
						c.Put("c", startMillis, row.String(value))
					}
				})
				if err != nil {
					t.Error(err)
					return
				}
				if rng.IntN(changes) == 0 {
					if err := w.Flush(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	group.Wait()
	err = w.Close()
	end()
	beside.Wait()
	if err != nil || lastRows != int64(changes/writers*writers) {
		t.Fatalf("%d of %d changes are written: %v", lastRows, changes, err)
	}
	model := map[[2]int]string{}
	for _, m := range models {
		maps.Copy(model, m)
	}
	for range 2 {
		done = 0
		for r, err := range table.Scan(ctx(), nil, Key(keys), ScanOptions{}).All() {
			if err != nil {
				t.Fatal(err)
			}
			at := [2]int{int(r.Key()[0].Int64()), int(r.Key()[1].Int64())}
			if want, exists := model[at]; !exists || r.Text("c") != want {
				t.Fatalf("row %v is %v, want %q", at, r, want)
			}
			done++
		}
		if done != len(model) {
			t.Fatalf("%d rows, want %d", done, len(model))
		}
		if err := store.Close(); err != nil {
			t.Fatal(err)
		}
		if store, err = Open(dir, opts); err == nil {
			table, err = store.Table("t")
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// trouble splits and merges partitions, begins transactions, and commits bulk loads behind the keys, until ctx ends.
func trouble(ctx context.Context, t *testing.T, table *Table, rng *rand.Rand, keys int) {
	for n := 0; ctx.Err() == nil; n++ {
		key := row.Integer(int64(rng.IntN(keys)))
		var err error
		switch rng.IntN(4) {
		case 0:
			err = table.Split(context.Background(), key)
		case 1:
			err = table.Merge(context.Background(), key)
		case 2:
			var tx *Transaction
			if tx, err = table.Begin(context.Background(), key, TransactionOptions{}); err == nil {
				for range rng.IntN(3) {
					_, err = table.Get(context.Background(), Key(key, 1), ReadOptions{})
				}
				tx.Abort()
			}
		case 3:
			var load *BulkWriter
			if load, err = table.BulkLoad(context.Background(), BulkOptions{Workers: 1}); err == nil {
				// It holds no row of the writer: where these are it would mostly be refused.
				err = errors.Join(load.Put(Key(keys+n, 0)), load.Commit(context.Background()))
			}
		}
		if err != nil && !errors.Is(err, ErrConflict) {
			t.Error(err)
		}
	}
}

// TestAParallelWriterTellsWhatItCannotWrite has changes that can never be written among others.
func TestAParallelWriterTellsWhatItCannotWrite(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{MaxVersionOffsetSeconds: 10})
	change := func(n int) func(c *RowChange) {
		return func(c *RowChange) {
			version := int64(startMillis)
			if n%100 == 99 {
				version += 11_000
			}
			c.Put("c", version, row.Integer(int64(n)))
		}
	}
	var refused []int64
	w, err := table.WriteParallel(ctx(), ParallelWrite{Refused: func(key []row.Value, err error) {
		if refused = append(refused, key[1].Int64()); !errors.Is(err, ErrVersionOutOfRange) {
			t.Error(err)
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, "a short key", w.Write(Key("p"), change(1)), ErrInvalid)
	for n := range 1000 {
		if err := w.Write(Key("p", n), change(n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(w.Flush(), w.Close(), w.Close()); err != nil {
		t.Fatal(err)
	}
	if slices.Sort(refused); len(refused) != 10 || refused[0] != 99 || refused[9] != 999 || count(t, table, ScanOptions{}) != 990 {
		t.Errorf("refused are %v, %d rows are written", refused, count(t, table, ScanOptions{}))
	}
	wantError(t, "a change after the end", w.Write(Key("p", 1), change(1)), ErrClosed)

	if w, err = table.WriteParallel(ctx(), ParallelWrite{}); err != nil {
		t.Fatal(err)
	}
	err = w.Write(Key("q", 99), change(99))
	if err = errors.Join(err, w.Flush()); !errors.Is(err, ErrVersionOutOfRange) || !strings.Contains(err.Error(), `["q" 99]`) {
		t.Errorf("the error is %v", err)
	}
	wantError(t, "a change after an error", w.Write(Key("q", 1), change(1)), ErrVersionOutOfRange)
	wantError(t, "the end after an error", w.Close(), ErrVersionOutOfRange)
	if _, err := table.WriteParallel(ctx(), ParallelWrite{Workers: -1}); !errors.Is(err, ErrInvalid) {
		t.Error(err)
	}
}

// TestAParallelWriterIsDurableAfterAFlush loses the power after a flush.
func TestAParallelWriterIsDurableAfterAFlush(t *testing.T) {
	for _, sync := range []SyncMode{SyncAlways, SyncNone} {
		r := newRig(t, Options{Sync: sync})
		w, err := r.table("t", TableOptions{}).WriteParallel(ctx(), ParallelWrite{})
		if err != nil {
			t.Fatal(err)
		}
		for n := range 500 {
			if err := w.Write(Key("p", n), func(c *RowChange) { c.Put("c", Now, row.Integer(1)) }); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		r.crash(vfs.CrashLoseAll, 1)
		if n := count(t, r.table("t", TableOptions{}), ScanOptions{}); n != 500 {
			t.Errorf("%d rows after the crash", n)
		}
		_ = w.Close()
	}
}

func TestAChangeThatPanickedIsNotWritten(t *testing.T) {
	r := newRig(t, Options{})
	table := r.table("t", TableOptions{})
	put(t, table, "p", 1, "a", startMillis, "before")
	w, err := table.WriteParallel(ctx(), ParallelWrite{})
	wantError(t, "WriteParallel", err, nil)
	func() {
		defer func() { _ = recover() }()
		_ = w.Write(Key("p", 1), func(c *RowChange) {
			c.DeleteRow()
			panic("half way")
		})
	}()
	wantError(t, "Write", w.Write(Key("p", 1), func(c *RowChange) { c.Put("b", startMillis, row.String("after")) }), nil)
	wantError(t, "Close", w.Close(), nil)
	if got, want := show(t, table, "p", 1), fmt.Sprintf("a@%d=before b@%d=after ", startMillis, startMillis); got != want {
		t.Errorf("the row is %q, want %q", got, want)
	}
}
