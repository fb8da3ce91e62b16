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
