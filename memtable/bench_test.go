package memtable_test

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/internal/offheap"
	"github.com/flagstone-db/flagstone/memtable"
	"github.com/flagstone-db/flagstone/row"
)

const benchColumns, benchValue = 10, 100

// benchKey makes a key of (string, integer) like those of real tables: a common beginning and a
// difference at the end. Keys come in random order.
func benchKey(dst []byte, i uint64) []byte {
	i *= 0x9E3779B97F4A7C15
	dst = append(dst[:0], "\x20user"...)
	dst = strconv.AppendUint(dst, 10_000+i>>51, 10)
	dst = append(dst, 0, 1, 0x10)
	return binary.BigEndian.AppendUint64(dst, i)
}

func benchMutation() *row.Change { return benchChange(0, benchColumns, 1_700_000_000_000) }

// benchChange puts the columns from, from+1, ..., to-1.
func benchChange(from, to int, version int64) *row.Change {
	mut := &row.Mutation{Key: []byte("k"), DeleteRow: to-from == benchColumns}
	value := make([]byte, benchValue)
	for c := from; c < to; c++ {
		mut.Cells = append(mut.Cells, row.Cell{Column: fmt.Appendf(nil, "field%d", c), Version: version, Kind: row.KindPut, Type: row.TypeBinary, Value: value})
	}
	return memtable.ChangeOf(mut)
}

// benchRows is the number of rows of 1 KB that fill a memtable of 64 MiB.
const benchRows = 50_000

func filled(rows int) *memtable.Memtable {
	mt := memtable.New(memtable.Options{Seed: 1, Memory: offheap.New(offheap.Options{})})
	mut := benchMutation()
	for i := range rows {
		mut.Key = benchKey(mut.Key, uint64(i))
		mt.Apply(uint64(i+1), mut)
		mt.OrderGroup()
	}
	return mt
}

func BenchmarkInsertRow(b *testing.B) {
	pool := offheap.New(offheap.Options{})
	defer pool.Close()
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			b.ReportAllocs()
			var done atomic.Int64
			for left := b.N; left > 0; left -= benchRows {
				mt := memtable.New(memtable.Options{Seed: 1, Memory: pool})
				var wg sync.WaitGroup
				for w := range writers {
					wg.Go(func() {
						mut := benchMutation()
						for i := w; i < min(left, benchRows); i += writers {
							mut.Key = benchKey(mut.Key, uint64(i))
							mt.Apply(uint64(i+1), mut)
							mt.OrderGroup()
							done.Add(1)
						}
					})
				}
				wg.Wait()
				mt.Free()
			}
		})
	}
}

func BenchmarkUpdateColumn(b *testing.B) {
	for _, writers := range []int{1, 8} {
		b.Run(fmt.Sprintf("writers=%d", writers), func(b *testing.B) {
			mt := filled(benchRows)
			b.ReportAllocs()
			b.ResetTimer()
			var wg sync.WaitGroup
			for w := range writers {
				wg.Go(func() {
					mut := benchChange(3, 4, 1_700_000_000_001)
					random := rand.New(rand.NewPCG(1, uint64(w)))
					for i := w; i < b.N; i += writers {
						// Each writer has rows of its own.
						k := random.Uint64N(benchRows/uint64(writers))*uint64(writers) + uint64(w)
						mut.Key = benchKey(mut.Key, k)
						mt.Apply(uint64(benchRows+i+1), mut)
						mt.OrderGroup()
					}
				})
			}
			wg.Wait()
		})
	}
}

func BenchmarkPointRead(b *testing.B) {
	mt := filled(benchRows)
	read := func(b *testing.B, first uint64, seek func(*memtable.Iterator, []byte) bool, want bool) {
		random := rand.New(rand.NewPCG(1, 1))
		var it memtable.Iterator
		it.Init(mt)
		var key []byte
		b.ReportAllocs()
		b.ResetTimer()
		for range b.N {
			key = benchKey(key, first+random.Uint64N(benchRows))
			if seek(&it, key) != want {
				b.Fatal("wrong answer")
			}
			for ok := want && it.FirstCell(); ok; ok = it.NextCell() {
			}
		}
	}
	b.Run("hit", func(b *testing.B) { read(b, 0, (*memtable.Iterator).SeekRowExact, true) })
	b.Run("hit-by-descent", func(b *testing.B) { read(b, 0, (*memtable.Iterator).SeekRow, true) })
	b.Run("miss", func(b *testing.B) { read(b, 1<<32, (*memtable.Iterator).SeekRowExact, false) })
	b.Run("hit/readers=8", func(b *testing.B) {
		b.ReportAllocs()
		var wg sync.WaitGroup
		for r := range 8 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, uint64(r)))
				var it memtable.Iterator
				it.Init(mt)
				var key []byte
				for range b.N / 8 {
					key = benchKey(key, random.Uint64N(benchRows))
					if !it.SeekRowExact(key) {
						b.Error("wrong answer")
					}
					for ok := it.FirstCell(); ok; ok = it.NextCell() {
					}
				}
			})
		}
		wg.Wait()
	})
	b.Run("key-only", func(b *testing.B) {
		var key []byte
		for i := range b.N {
			key = benchKey(key, uint64(i))
		}
	})
}

func BenchmarkSeekColumn(b *testing.B) {
	mt := filled(benchRows)
	random := rand.New(rand.NewPCG(1, 1))
	it := mt.NewIterator()
	var key []byte
	column := []byte("field7")
	b.ReportAllocs()
	b.ResetTimer()
	for range b.N {
		key = benchKey(key, random.Uint64N(benchRows))
		if !it.SeekRowExact(key) || !it.SeekCell(column, row.MaxVersion) {
			b.Fatal("wrong answer")
		}
	}
}

func BenchmarkIterate(b *testing.B) {
	mt := filled(benchRows)
	it := mt.NewIterator()
	for _, direction := range []string{"forward", "backward"} {
		b.Run(direction, func(b *testing.B) {
			b.ReportAllocs()
			ok := false
			for range b.N { // one row each
				switch {
				case direction == "forward" && !ok:
					ok = it.First()
				case direction == "forward":
					ok = it.NextRow()
				case !ok:
					ok = it.Last()
				default:
					ok = it.PrevRow()
				}
				for cell := ok && it.FirstCell(); cell; cell = it.NextCell() {
				}
			}
		})
	}
}

// BenchmarkSmallRow has rows of one column, whose packed part is in the node.
func BenchmarkSmallRow(b *testing.B) {
	pool := offheap.New(offheap.Options{})
	mt := memtable.New(memtable.Options{Seed: 1, Memory: pool})
	const rows = 300_000
	mut := benchChange(0, 1, 1_700_000_000_000)
	b.Run("insert in order", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if i%rows == 0 {
				mt.Free()
				mt = memtable.New(memtable.Options{Seed: 1, Memory: pool})
			}
			mut.Key = binary.BigEndian.AppendUint64(append(mut.Key[:0], "\x28 a prefix"...), uint64(i))
			mt.Apply(uint64(i+1), mut)
			mt.OrderGroup()
		}
	})
	b.Run("insert", func(b *testing.B) {
		b.ReportAllocs()
		for i := range b.N {
			if i%rows == 0 {
				mt.Free()
				mt = memtable.New(memtable.Options{Seed: 1, Memory: pool})
			}
			mut.Key = benchKey(mut.Key, uint64(i%rows))
			mt.Apply(uint64(i+1), mut)
			mt.OrderGroup()
		}
	})
	b.Run("read", func(b *testing.B) {
		b.ReportAllocs()
		random := rand.New(rand.NewPCG(1, 1))
		var it memtable.Iterator
		it.Init(mt)
		for range b.N {
			mut.Key = benchKey(mut.Key, random.Uint64N(uint64(mt.Rows())))
			if !it.SeekRowExact(mut.Key) || !it.FirstCell() {
				b.Fatal("wrong answer")
			}
		}
	})
	b.Run("iterate", func(b *testing.B) {
		b.ReportAllocs()
		it := mt.NewIterator()
		ok := false
		for range b.N {
			if !ok {
				ok = it.First()
			} else {
				ok = it.NextRow()
			}
			for cell := ok && it.FirstCell(); cell; cell = it.NextCell() {
			}
		}
	})
}

// BenchmarkWideRow updates as many columns of one row as fill a memtable of 12 MiB or 64 MiB.
func BenchmarkWideRow(b *testing.B) {
	pool := offheap.New(offheap.Options{})
	defer pool.Close()
	for _, cells := range []int{1000, 80_000, 400_000} {
		for _, order := range []string{"random", "rising", "one column"} {
			b.Run(fmt.Sprintf("cells=%d/%s", cells, order), func(b *testing.B) {
				random := rand.New(rand.NewPCG(1, 1))
				mut := new(row.Change)
				plain := &row.Mutation{Key: []byte("wide"), Cells: make([]row.Cell, 1)}
				value, column := make([]byte, benchValue), make([]byte, 0, 20)
				var used int64
				b.ReportAllocs()
				for left := b.N; left > 0; left -= cells {
					mt := memtable.New(memtable.Options{Memory: pool})
					for i := range min(left, cells) {
						c := i
						switch order {
						case "random":
							c = random.IntN(1_000_000)
						case "one column":
							c = 0
						}
						column = fmt.Appendf(column[:0], "column%07d", c)
						plain.Cells[0] = row.Cell{Column: column, Version: int64(i), Kind: row.KindPut, Type: row.TypeBinary, Value: value}
						if err := mut.Set(plain); err != nil {
							b.Fatal(err)
						}
						mt.Apply(uint64(i+1), mut)
						mt.OrderGroup()
					}
					used += mt.Used()
					mt.Free()
				}
				b.ReportMetric(float64(used)/float64(b.N), "bytes/op")
			})
		}
	}
}
