package bench

// Large values beside a small column, in value files and, for comparison, in the
// blocks of table files.

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

// largeBytes is how much the rows of these benchmarks hold.
const largeBytes = 256 << 20

// eachHome runs a benchmark for two sizes of values, with and without value
// files.
func eachHome(b *testing.B, run func(b *testing.B, opts flagstone.Options, size int)) {
	for _, size := range []int{64 << 10, 1 << 20} {
		for _, home := range []struct {
			name      string
			threshold int
		}{{"valuefile", 0}, {"block", -1}} {
			b.Run(fmt.Sprintf("value=%dKiB/home=%s", size>>10, home.name), func(b *testing.B) {
				opts := flagstone.Options{Sync: flagstone.SyncNone}
				opts.Seams.ValueThreshold = home.threshold
				b.SetBytes(int64(size))
				b.ReportAllocs()
				run(b, opts, size)
			})
		}
	}
}

// largeValue is half random; its other half repeats what came before.
func largeValue(size int) []byte {
	rng := rand.New(rand.NewPCG(1, 2))
	v := make([]byte, size)
	for i := range v {
		if i%128 < 64 || i < 128 {
			v[i] = byte(rng.Uint32())
		} else {
			v[i] = v[i-128]
		}
	}
	return v
}

func putLarge(b *testing.B, f *fixture, i int, value []byte) {
	b.Helper()
	err := f.table.Update(context.Background(), key(uint64(i)), func(_ context.Context, tx *flagstone.RowTx) error {
		tx.DeleteRow()
		tx.Put("large", 0, row.Binary(value))
		tx.Put("small", 0, row.Integer(int64(i)))
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func loadLarge(b *testing.B, opts flagstone.Options, size int) (f *fixture, rows int) {
	b.Helper()
	f = open(b, b.TempDir(), opts)
	b.Cleanup(func() { f.store.Close() })
	value := largeValue(size)
	rows = largeBytes / size
	for i := range rows {
		putLarge(b, f, i, value)
	}
	settle(b, f)
	return f, rows
}

func settle(b *testing.B, f *fixture) {
	b.Helper()
	if err := f.store.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	if err := f.store.Settle(context.Background()); err != nil {
		b.Fatal(err)
	}
}

// BenchmarkLargePut overwrites rows of a large and a small value, unsynced, in
// the time until everything is settled.
func BenchmarkLargePut(b *testing.B) {
	eachHome(b, func(b *testing.B, opts flagstone.Options, size int) {
		f := open(b, b.TempDir(), opts)
		defer f.store.Close()
		value, rows := largeValue(size), largeBytes/size
		b.ResetTimer()
		for i := range b.N {
			putLarge(b, f, i%rows, value)
		}
		settle(b, f)
		b.StopTimer()
		reportWritten(b, f, flagstone.Metrics{}, int64(size))
	})
}

// BenchmarkLargeGet reads whole rows of a large and a small value.
func BenchmarkLargeGet(b *testing.B) {
	eachHome(b, func(b *testing.B, opts flagstone.Options, size int) {
		f, rows := loadLarge(b, opts, size)
		rng := rand.New(rand.NewPCG(3, 4))
		var r flagstone.Row
		b.ResetTimer()
		for range b.N {
			found, err := f.table.GetInto(context.Background(), key(uint64(rng.IntN(rows))), flagstone.ReadOptions{}, &r)
			if err != nil || !found || len(r.Cells()) != 2 {
				b.Fatal(found, err)
			}
		}
	})
}

// BenchmarkLargeScanSmall scans the small column of rows that have a large one.
// An operation is a row.
func BenchmarkLargeScanSmall(b *testing.B) {
	eachHome(b, func(b *testing.B, opts flagstone.Options, size int) {
		f, _ := loadLarge(b, opts, size)
		b.SetBytes(0)
		b.ResetTimer()
		for n := 0; n < b.N; {
			rows := f.table.Scan(context.Background(), nil, nil, flagstone.ScanOptions{
				ReadOptions: flagstone.ReadOptions{Columns: []string{"small"}},
			})
			for rows.Next() {
				n++
			}
			if err := rows.Err(); err != nil {
				b.Fatal(err)
			}
			rows.Close()
		}
	})
}

// BenchmarkLargeUpdateSmall updates the small column of every row ten times, and
// merges everything after each round. An operation is ten rounds.
func BenchmarkLargeUpdateSmall(b *testing.B) {
	eachHome(b, func(b *testing.B, opts flagstone.Options, size int) {
		f, rows := loadLarge(b, opts, size)
		b.SetBytes(0)
		before := f.store.Metrics()
		b.ResetTimer()
		for range b.N {
			for round := range 10 {
				for i := range rows {
					err := f.table.Update(context.Background(), key(uint64(i)), func(_ context.Context, tx *flagstone.RowTx) error {
						tx.Put("small", 0, row.Integer(int64(round)))
						return nil
					})
					if err != nil {
						b.Fatal(err)
					}
				}
				settle(b, f)
			}
		}
		b.StopTimer()
		reportWritten(b, f, before, 10*8*int64(rows))
	})
}

// reportWritten reports the bytes written to table and value files since before,
// and how many times the payload of an operation that is.
func reportWritten(b *testing.B, f *fixture, before flagstone.Metrics, payload int64) {
	b.Helper()
	m := f.store.Metrics()
	written := m.FlushedBytes + m.CompactedOut - before.FlushedBytes - before.CompactedOut
	b.ReportMetric(float64(written)/float64(b.N)/(1<<20), "MB-written/op")
	b.ReportMetric(float64(written)/float64(b.N)/float64(payload), "written/payload")
}
