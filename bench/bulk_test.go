package bench

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// bulkRows is the number of rows of BenchmarkBulkLoad, unless FLAGSTONE_BULK_ROWS says otherwise.
const bulkRows = 300_000

// BenchmarkBulkLoad puts sorted rows, with keys of 16 bytes and one column of 100 bytes, from 8 goroutines, and settles
// the store; and loads the same rows. It reports how many times as fast the load is, and the bytes that it writes
// for each byte of the result.
func BenchmarkBulkLoad(b *testing.B) {
	rows, _ := strconv.Atoi(os.Getenv("FLAGSTONE_BULK_ROWS"))
	rows = cmp.Or(rows, bulkRows)
	ctx := context.Background()
	key := func(i int) []row.Value {
		k := make([]byte, 16)
		binary.BigEndian.PutUint64(k[8:], uint64(i))
		return []row.Value{row.Binary(k)}
	}
	for b.Loop() {
		puts := openKeyed(b, b.TempDir(), row.TypeBinary)
		const writers = 8
		began := time.Now()
		var all sync.WaitGroup
		for g := range writers {
			all.Go(func() {
				for i := g; i < rows; i += writers {
					v := row.Binary(puts.vs[i%len(puts.vs)])
					err := puts.table.Update(ctx, key(i), func(_ context.Context, tx *flagstone.RowTx) error {
						tx.Put("v", flagstone.Now, v)
						return nil
					})
					if err != nil {
						b.Error(err)
						return
					}
				}
			})
		}
		all.Wait()
		if err := errors.Join(puts.store.Flush(ctx), puts.store.Settle(ctx)); err != nil {
			b.Fatal(err)
		}
		putting := time.Since(began)
		if err := puts.store.Close(); err != nil {
			b.Fatal(err)
		}

		loaded := openKeyed(b, b.TempDir(), row.TypeBinary)
		began = time.Now()
		w, err := loaded.table.BulkLoad(ctx, flagstone.BulkOptions{})
		for i := 0; i < rows && err == nil; i++ {
			err = w.Put(key(i), flagstone.BulkCell{Column: "v", Version: flagstone.Now, Value: row.Binary(loaded.vs[i%len(loaded.vs)])})
		}
		if err == nil {
			err = w.Commit(ctx)
		}
		if err = errors.Join(err, loaded.store.Settle(ctx)); err != nil {
			b.Fatal(err)
		}
		loading := time.Since(began)
		m := loaded.store.Metrics()
		size := int64(0)
		for _, level := range m.Tables[0].Bytes {
			size += level
		}
		b.ReportMetric(putting.Seconds(), "put-s")
		b.ReportMetric(loading.Seconds(), "load-s")
		b.ReportMetric(putting.Seconds()/loading.Seconds(), "times-as-fast")
		b.ReportMetric(float64(m.LoadedBytes+m.FlushedBytes+m.CompactedOut+m.LogBytes)/float64(size), "written/size")
		if err := loaded.store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// deletedRows is the number of rows of BenchmarkBulkLoadOverDeleted.
const deletedRows = 1_000_000

// BenchmarkBulkLoadOverDeleted commits a load of two rows over a range of deleted rows that a snapshot keeps, while another
// goroutine probes a row of the range with updates that change nothing. It reports how long the commit takes, and the
// longest time for which the probes fail; for "written", a third goroutine deletes rows of the range all the time.
func BenchmarkBulkLoadOverDeleted(b *testing.B) {
	ctx := context.Background()
	for _, written := range []bool{false, true} {
		name := "quiet"
		if written {
			name = "written"
		}
		b.Run(name, func(b *testing.B) {
			f := openKeyed(b, b.TempDir(), row.TypeInteger)
			defer f.store.Close()
			at := func(i int) []row.Value { return []row.Value{row.Integer(int64(i))} }
			write := func(change func(c *flagstone.RowChange)) {
				w, err := f.table.WriteParallel(ctx, flagstone.ParallelWrite{})
				for i := 0; i < deletedRows && err == nil; i++ {
					err = w.Write(at(i), change)
				}
				if err = errors.Join(err, w.Close(), f.store.Flush(ctx), f.store.Settle(ctx)); err != nil {
					b.Fatal(err)
				}
			}
			write(func(c *flagstone.RowChange) { c.Put("v", flagstone.Now, row.Binary(f.vs[0])) })
			snapshot, err := f.store.Snapshot()
			if err != nil {
				b.Fatal(err)
			}
			defer snapshot.Close()
			for b.Loop() {
				b.StopTimer()
				write(func(c *flagstone.RowChange) { c.DeleteRow() })
				stop, halt := context.WithCancel(ctx)
				var beside sync.WaitGroup
				longest := time.Duration(0)
				beside.Go(func() { longest = probe(stop, f, at(deletedRows/2)) })
				if written {
					beside.Go(func() {
						for i := 0; stop.Err() == nil; i++ {
							_ = f.table.Delete(ctx, at(1+i%(deletedRows-2))) // it fails while the load is committed
						}
					})
				}
				w, err := f.table.BulkLoad(ctx, flagstone.BulkOptions{})
				if err == nil {
					err = errors.Join(w.Put(at(0)), w.Put(at(deletedRows-1)))
				}
				b.StartTimer()
				if err == nil {
					err = w.Commit(ctx)
				}
				b.StopTimer()
				halt()
				beside.Wait()
				if err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(longest.Microseconds())/1000, "ms-others-fail")
				b.StartTimer()
			}
		})
	}
}

// probe updates a row again and again without a change, and returns the longest time for which that failed.
func probe(ctx context.Context, f *fixture, key []row.Value) (longest time.Duration) {
	for failing := (time.Time{}); ctx.Err() == nil; time.Sleep(100 * time.Microsecond) {
		err := f.table.Update(context.Background(), key, func(context.Context, *flagstone.RowTx) error { return nil })
		switch {
		case err == nil:
			failing = time.Time{}
		case failing.IsZero():
			failing = time.Now()
		default:
			longest = max(longest, time.Since(failing))
		}
	}
	return longest
}
