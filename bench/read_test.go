package bench

// Reads through the API, with allocations: the row shape (10 columns of 100
// bytes, 100,000 rows) and the key-value shape (a 16-byte key, one column of
// 100 bytes, 500,000 rows), all of it cached.

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const smallRows = 500_000

func smallKey(dst []byte, i uint64) []byte {
	var b [8]byte
	binary.BigEndian.PutUint64(b[:], i*0x9E3779B97F4A7C15)
	return hex.AppendEncode(dst, b[:])
}

// small makes a store of small rows, on two levels or more.
func small(b *testing.B) *fixture {
	b.Helper()
	store, err := flagstone.Open(b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { store.Close() })
	table, err := store.CreateTable(context.Background(), flagstone.TableSpec{
		Name: "small", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}},
	})
	if err != nil {
		b.Fatal(err)
	}
	f := &fixture{store, table, values(rand.New(rand.NewPCG(1, 2)))}
	for i := range uint64(smallRows) {
		f.putSmall(b, i)
	}
	f.warm(b)
	return f
}

// putSmall puts small row i.
func (f *fixture) putSmall(b *testing.B, i uint64) {
	err := f.table.Update(context.Background(), []row.Value{row.StringBytes(smallKey(nil, i))}, func(_ context.Context, tx *flagstone.RowTx) error {
		tx.PutRow()
		tx.Put("v", f.store.NowMillis(), row.Binary(f.vs[i%uint64(len(f.vs))]))
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
}

// warm settles the store and reads all of it, so that its blocks are cached.
func (f *fixture) warm(b *testing.B) {
	b.Helper()
	f.flush(b)
	rows := f.table.Scan(context.Background(), nil, nil, flagstone.ScanOptions{})
	defer rows.Close()
	for rows.Next() {
	}
	if err := rows.Err(); err != nil {
		b.Fatal(err)
	}
}

func (f *fixture) flush(b *testing.B) {
	b.Helper()
	if err := f.store.Flush(context.Background()); err != nil {
		b.Fatal(err)
	}
	if err := f.store.Settle(context.Background()); err != nil {
		b.Fatal(err)
	}
}

func BenchmarkGetInto(b *testing.B) {
	ctx := context.Background()
	get := func(f *fixture, n uint64, k func(buffer []byte, i uint64) row.Value, opts flagstone.ReadOptions) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			b.RunParallel(func(pb *testing.PB) {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 4))
				var r flagstone.Row
				key, buffer := make([]row.Value, 1), make([]byte, 16)
				for pb.Next() {
					i := rng.Uint64N(n)
					key[0] = k(buffer, i)
					if ok, err := f.table.GetInto(ctx, key, opts, &r); err != nil || !ok {
						b.Errorf("row %d: %v, %v", i, ok, err)
						return
					}
				}
			})
		}
	}
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	f.warm(b)
	number := func(_ []byte, i uint64) row.Value { return row.Integer(int64(i * 0x9E3779B97F4A7C15)) }
	b.Run("all columns", get(f, loaded, number, flagstone.ReadOptions{}))
	b.Run("one column", get(f, loaded, number, flagstone.ReadOptions{Columns: columnNames[4:5]}))
	s := small(b)
	b.Run("small", get(s, smallRows, func(buffer []byte, i uint64) row.Value {
		return row.StringBytes(smallKey(buffer[:0], i))
	}, flagstone.ReadOptions{}))
}

// One row, which is in the processor's caches: in a table file, and updated since
// it was flushed.
func BenchmarkGetHot(b *testing.B) {
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, 1000)
	f.warm(b)
	var r flagstone.Row
	get := func(b *testing.B) {
		b.ReportAllocs()
		k := key(7)
		for b.Loop() {
			if ok, err := f.table.GetInto(context.Background(), k, flagstone.ReadOptions{}, &r); err != nil || !ok {
				b.Fatal(ok, err)
			}
		}
	}
	b.Run("flushed", get)
	for range 1000 {
		now := f.store.NowMillis()
		err := f.table.Update(context.Background(), key(7), func(_ context.Context, tx *flagstone.RowTx) error {
			tx.Put(columnNames[3], now, row.Binary(f.vs[0]))
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	b.Run("updated", get)
}

// The figure is per row.
func BenchmarkFullScan(b *testing.B) {
	ctx := context.Background()
	scan := func(f *fixture, opts flagstone.ScanOptions) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			rows := f.table.Scan(ctx, nil, nil, opts)
			for b.Loop() {
				if !rows.Next() {
					if err := rows.Err(); err != nil {
						b.Fatal(err)
					}
					rows.Close()
					rows = f.table.Scan(ctx, nil, nil, opts)
				}
			}
			rows.Close()
		}
	}
	f := open(b, b.TempDir(), flagstone.Options{Sync: flagstone.SyncNone})
	defer f.store.Close()
	f.load(b, loaded)
	f.warm(b)
	b.Run("all columns", scan(f, flagstone.ScanOptions{}))
	b.Run("one column", scan(f, flagstone.ScanOptions{ReadOptions: flagstone.ReadOptions{Columns: columnNames[4:5]}}))
	s := small(b)
	b.Run("small", scan(s, flagstone.ScanOptions{}))
}

// Ranges of so many rows in one run, from a random one on, whose values are copied:
// the figure is per range.
func BenchmarkRangeSmall(b *testing.B) {
	s := small(b)
	if err := s.store.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	s.warm(b)
	rng := rand.New(rand.NewPCG(7, 8))
	key, buffer, copied := make([]row.Value, 1), make([]byte, 16), []byte(nil)
	for _, length := range []int{1, 10, 100, 1000} {
		b.Run(fmt.Sprint("rows=", length), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				key[0] = row.StringBytes(smallKey(buffer[:0], rng.Uint64N(smallRows)))
				rows := s.table.Scan(context.Background(), key, nil, flagstone.ScanOptions{})
				for n := 0; n < length && rows.Next(); n++ {
					copied = append(copied[:0], rows.Row().Cells()[0].Value...)
				}
				if err := rows.Err(); err != nil {
					b.Fatal(err)
				}
				rows.Close()
			}
		})
	}
}
