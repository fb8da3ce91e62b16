package bench

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const (
	baseRows  = 200_000
	layerRows = 5_000
)

// BenchmarkLoaded reads what a load in random order of keys leaves behind: 200,000 rows of 10x100 B in one
// level, and above them so many runs of 5,000 rows each, with the last of them in a memtable. Few of
// the blocks are cached. The store is open for reading only, so that no merge changes the shape.
// The figures are per row of a whole scan, per range of 100 rows, and per get.
func BenchmarkLoaded(b *testing.B) {
	for _, layers := range []int{0, 4, 10} {
		b.Run(fmt.Sprint("layers=", layers), func(b *testing.B) {
			f, rows := layered(b, layers)
			f.read(b, func(rng *rand.Rand) []row.Value { return key(rng.Uint64N(rows)) })
		})
	}
}

// BenchmarkLoadedSmall is the same with 500,000 rows of 100 bytes, in so many runs that interleave.
func BenchmarkLoadedSmall(b *testing.B) {
	for _, runs := range []int{1, 4, 8} {
		b.Run(fmt.Sprint("runs=", runs), func(b *testing.B) {
			interleaved(b, runs).read(b, func(rng *rand.Rand) []row.Value {
				return []row.Value{row.StringBytes(smallKey(nil, rng.Uint64N(smallRows)))}
			})
		})
	}
}

// read measures reads, of keys that random makes.
func (f *fixture) read(b *testing.B, random func(rng *rand.Rand) []row.Value) {
	defer f.store.Close()
	ctx, rng := context.Background(), rand.New(rand.NewPCG(3, 4))
	b.Run("scan", func(b *testing.B) {
		b.ReportAllocs()
		all := f.table.Scan(ctx, nil, nil, flagstone.ScanOptions{})
		for b.Loop() {
			if !all.Next() {
				if err := errors.Join(all.Err(), all.Close()); err != nil {
					b.Fatal(err)
				}
				all = f.table.Scan(ctx, nil, nil, flagstone.ScanOptions{})
			}
		}
		all.Close()
	})
	b.Run("range", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			some := f.table.Scan(ctx, random(rng), nil, flagstone.ScanOptions{})
			for n := 0; n < 100 && some.Next(); n++ {
			}
			if err := errors.Join(some.Err(), some.Close()); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("get", func(b *testing.B) {
		b.ReportAllocs()
		var r flagstone.Row
		for b.Loop() {
			if ok, err := f.table.GetInto(ctx, random(rng), flagstone.ReadOptions{}, &r); !ok || err != nil {
				b.Fatal(ok, err)
			}
		}
	})
}

// layered makes the store of BenchmarkLoaded, and returns the number of its rows.
func layered(b *testing.B, layers int) (f *fixture, rows uint64) {
	dir, ctx := b.TempDir(), context.Background()
	f = openTable(b, dir, flagstone.Options{Sync: flagstone.SyncNone}, row.TypeInteger)
	f.load(b, baseRows)
	if err := f.store.Compact(ctx); err != nil {
		b.Fatal(err)
	}
	rows = baseRows
	for layer := range layers {
		for range layerRows {
			f.put(b, rows)
			rows++
		}
		if layer < layers-1 {
			if err := f.store.Flush(ctx); err != nil {
				b.Fatal(err)
			}
		}
	}
	if err := f.store.Close(); err != nil {
		b.Fatal(err)
	}
	return openTable(b, dir, flagstone.Options{ReadOnly: true, CacheSize: 32 << 20}, row.TypeInteger), rows
}

// interleaved makes the store of BenchmarkLoadedSmall.
func interleaved(b *testing.B, runs int) *fixture {
	dir := b.TempDir()
	f := openTable(b, dir, flagstone.Options{Sync: flagstone.SyncNone, MemtableSize: 256 << 20, MemoryBudget: 1 << 30}, row.TypeString)
	rng, rows := rand.New(rand.NewPCG(5, 6)), make([][]uint64, runs)
	for i := range uint64(smallRows) {
		run := rng.IntN(runs)
		rows[run] = append(rows[run], i)
	}
	for _, run := range rows {
		for _, i := range run {
			f.putSmall(b, i)
		}
		if err := f.store.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	if err := f.store.Close(); err != nil {
		b.Fatal(err)
	}
	return openTable(b, dir, flagstone.Options{ReadOnly: true}, row.TypeString)
}
