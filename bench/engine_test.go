package bench

import (
	"context"
	"encoding/binary"
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
	return openTable(b, dir, opts, row.TypeInteger)
}

// openKeyed opens a store without sync, of rows with a key of that type.
func openKeyed(b *testing.B, dir string, key row.Type) *fixture {
	b.Helper()
	return openTable(b, dir, flagstone.Options{Sync: flagstone.SyncNone}, key)
}

func openTable(b *testing.B, dir string, opts flagstone.Options, key row.Type) *fixture {
	b.Helper()
	store, err := flagstone.Open(dir, opts)
	if err != nil {
		b.Fatal(err)
	}
	table, err := store.Table("rows")
	if err != nil {
		table, err = store.CreateTable(context.Background(), flagstone.TableSpec{
			Name: "rows", Key: []flagstone.KeyColumn{{Name: "id", Type: key}},
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
	err := f.table.Update(context.Background(), key(i), func(_ context.Context, tx *flagstone.RowTx) error {
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
		for _, writers := range []int{1, 8, 16} {
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

// BenchmarkPutBatch writes batches of 100 rows of 10 x 100 bytes; the figure is
// per row.
func BenchmarkPutBatch(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	b.ReportAllocs()
	b.SetBytes(columns * valueSize)
	batch := f.store.NewBatch()
	i := uint64(0)
	for b.Loop() {
		i++
		now := f.store.NowMillis()
		c := batch.Row(f.table, key(i))
		c.PutRow()
		for n := range columns {
			c.Put(columnNames[n], now, row.Binary(f.vs[(i+uint64(n))%uint64(len(f.vs))]))
		}
		if batch.Len() == 100 {
			if err := f.store.Apply(context.Background(), batch); err != nil {
				b.Fatal(err)
			}
			batch.Reset()
		}
	}
}

// BenchmarkPutValue is the shape of a key-value store: a key of 16 bytes, one
// column of 100 bytes.
func BenchmarkPutValue(b *testing.B) {
	for _, order := range []string{"sequential", "random"} {
		for _, writers := range []int{1, 2, 8} {
			b.Run(fmt.Sprintf("%s/writers=%d", order, writers), func(b *testing.B) {
				f := openKeyed(b, b.TempDir(), row.TypeBinary)
				defer f.store.Close()
				var next atomic.Uint64
				b.ReportAllocs()
				b.SetBytes(16 + valueSize)
				b.SetParallelism((writers + 1) / 2)
				b.ResetTimer()
				put := func(k []byte) {
					i := next.Add(1)
					if order == "random" {
						i *= 0x9E3779B97F4A7C15
					}
					binary.BigEndian.PutUint64(k[8:], i)
					key := [1]row.Value{row.Binary(k)}
					err := f.table.Put(context.Background(), key[:], "v", f.store.NowMillis(), row.Binary(f.vs[i%uint64(len(f.vs))]))
					if err != nil {
						b.Fatal(err)
					}
				}
				if writers == 1 {
					k := make([]byte, 16)
					for b.Loop() {
						put(k)
					}
					return
				}
				b.RunParallel(func(pb *testing.PB) {
					k := make([]byte, 16)
					for pb.Next() {
						put(k)
					}
				})
			})
		}
	}
}

// BenchmarkHotRow updates one column of one row again and again.
func BenchmarkHotRow(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.put(b, 1)
	ctx, k := context.Background(), key(1)
	i := uint64(0)
	b.ReportAllocs()
	for b.Loop() {
		i++
		if err := f.table.Put(ctx, k, columnNames[3], f.store.NowMillis(), row.Binary(f.vs[i%uint64(len(f.vs))])); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWideRow puts 1,000 new columns of 100 bytes into one row at a time;
// the figure is per column.
func BenchmarkWideRow(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	ctx, k := context.Background(), key(1)
	name := []byte("column0000000000")
	b.ReportAllocs()
	b.SetBytes(valueSize)
	next := 0
	for left := b.N; left > 0; left -= 1000 {
		err := f.table.Update(ctx, k, func(_ context.Context, tx *flagstone.RowTx) error {
			now := f.store.NowMillis()
			for i := range 1000 {
				next++
				for n, at := next, len(name)-1; n > 0; n, at = n/10, at-1 {
					name[at] = '0' + byte(n%10)
				}
				tx.Put(string(name), now, row.Binary(f.vs[i]))
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetRow(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	f.warm(b)
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
		err := f.table.Update(ctx, key(i), func(_ context.Context, tx *flagstone.RowTx) error {
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
	f.warm(b)
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
