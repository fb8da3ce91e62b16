package bench

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const (
	columns   = 10
	valueSize = 100
	// loaded is how many rows the read benchmarks read from: 100 MB, a few
	// table files on two levels.
	loaded = 100_000
)

var columnNames = func() (names [columns]string) {
	for i := range names {
		names[i] = fmt.Sprintf("column%02d", i)
	}
	return names
}()

// values are pieces to make rows of: half random, half zeros.
func values(rng *rand.Rand) [][]byte {
	vs := make([][]byte, 1024)
	for i := range vs {
		vs[i] = make([]byte, valueSize)
		for j := range valueSize / 2 {
			vs[i][j] = byte(rng.Uint32())
		}
	}
	return vs
}

type fixture struct {
	store *flagstone.Store
	table *flagstone.Table
	vs    [][]byte
}

func open(b *testing.B, dir string, opts flagstone.Options) *fixture {
	b.Helper()
	store, err := flagstone.Open(dir, opts)
	if err != nil {
		b.Fatal(err)
	}
	table, err := store.Table("rows")
	if err != nil {
		table, err = store.CreateTable(context.Background(), flagstone.TableSpec{
			Name: "rows", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeInteger}},
		})
	}
	if err != nil {
		b.Fatal(err)
	}
	return &fixture{store, table, values(rand.New(rand.NewPCG(1, 2)))}
}

// key spreads consecutive numbers over the key space.
func key(i uint64) []row.Value {
	return []row.Value{row.Integer(int64(i * 0x9E3779B97F4A7C15))}
}

func (f *fixture) put(b *testing.B, i uint64) {
	now := f.store.NowMillis()
	err := f.table.Update(context.Background(), key(i), func(tx *flagstone.RowTx) error {
		tx.PutRow()
		for c := range columns {
			tx.Put(columnNames[c], now, row.Binary(f.vs[(i+uint64(c))%uint64(len(f.vs))]))
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

func (f *fixture) load(b *testing.B, rows uint64) {
	b.Helper()
	for i := range rows {
		f.put(b, i)
	}
	if err := f.store.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkPutRow(b *testing.B) {
	for _, sync := range []struct {
		name string
		mode flagstone.SyncMode
	}{{"unsynced", flagstone.SyncNone}, {"synced", flagstone.SyncAlways}} {
		for _, writers := range []int{1, 8} {
			b.Run(fmt.Sprintf("%s/writers=%d", sync.name, writers), func(b *testing.B) {
				f := open(b, b.TempDir(), flagstone.Options{Sync: sync.mode})
				defer f.store.Close()
				var next atomic.Uint64
				b.ReportAllocs()
				b.SetBytes(columns * valueSize)
				b.SetParallelism((writers + 1) / 2) // per processor
				b.ResetTimer()
				if writers == 1 {
					for b.Loop() {
						f.put(b, next.Add(1))
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					for pb.Next() {
						f.put(b, next.Add(1))
					}
				})
			})
		}
	}
}

func BenchmarkGetRow(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	ctx := context.Background()
	get := func(opts flagstone.ReadOptions, missing bool) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			rng := rand.New(rand.NewPCG(3, 4))
			for b.Loop() {
				i := rng.Uint64N(loaded)
				if missing {
					i += loaded
				}
				r, err := f.table.Get(ctx, key(i), opts)
				if err != nil || (r == nil) != missing {
					b.Fatalf("row %d: %v, %v", i, r, err)
				}
			}
		}
	}
	b.Run("all columns", get(flagstone.ReadOptions{}, false))
	b.Run("one column", get(flagstone.ReadOptions{Columns: columnNames[4:5]}, false))
	b.Run("missing", get(flagstone.ReadOptions{}, true))
}

func BenchmarkUpdateColumn(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	ctx := context.Background()
	rng := rand.New(rand.NewPCG(5, 6))
	b.ReportAllocs()
	for b.Loop() {
		i := rng.Uint64N(loaded)
		now := f.store.NowMillis()
		err := f.table.Update(ctx, key(i), func(tx *flagstone.RowTx) error {
			tx.Put(columnNames[3], now, row.Binary(f.vs[i%uint64(len(f.vs))]))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A range is 100 rows from a random place; the figure is per range.
func BenchmarkRange100(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	scan := func(opts flagstone.ScanOptions) func(b *testing.B) {
		return func(b *testing.B) {
			rng := rand.New(rand.NewPCG(7, 8))
			b.ReportAllocs()
			for b.Loop() {
				start := key(rng.Uint64N(loaded))
				rows := f.table.Scan(context.Background(), start, nil, opts)
				for n := 0; n < 100 && rows.Next(); n++ {
				}
				if err := rows.Err(); err != nil {
					b.Fatal(err)
				}
				rows.Close()
			}
		}
	}
	b.Run("all columns", scan(flagstone.ScanOptions{}))
	b.Run("one column", scan(flagstone.ScanOptions{ReadOptions: flagstone.ReadOptions{Columns: columnNames[4:5]}}))
	b.Run("reverse", scan(flagstone.ScanOptions{Reverse: true}))
}

// BenchmarkRecovery opens a store whose log holds 50,000 rows (51 MB of values)
// that were never flushed; the figure is per Open and Close.
func BenchmarkRecovery(b *testing.B) {
	const rows = 50_000
	source := b.TempDir()
	f := open(b, source, flagstone.Options{Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20})
	for i := range uint64(rows) {
		f.put(b, i)
	}
	if err := f.store.Close(); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	b.SetBytes(rows * columns * valueSize)
	for b.Loop() {
		f := open(b, source, flagstone.Options{Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20})
		if err := f.store.Close(); err != nil {
			b.Fatal(err)
		}
	}
}
