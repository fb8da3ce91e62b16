package sstable

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/bits-and-blooms/bloom/v3"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/row"
)

// benchTable makes rows as the benchmarks of the whole engine do: ten columns
// of 100 half-compressible bytes, put by one PutRow each.
func benchTable(rows int) modelTable {
	rng := rand.New(rand.NewPCG(1, 2))
	t := make(modelTable, rows)
	for i := range t {
		seq, version := uint64(1_000_000+i), int64(1_700_000_000_000+i)
		cells := []row.Cell{
			{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: seq},
			{Kind: row.KindRowMarker, Version: version, Seq: seq},
		}
		for c := range 10 {
			value := make([]byte, 100)
			for j := 0; j < 50; j += 8 {
				binary.LittleEndian.PutUint64(value[j:], rng.Uint64())
			}
			cells = append(cells, put(fmt.Sprintf("column%d", c), version, seq, value))
		}
		t[i] = modelRow{benchKey(i), cells}
	}
	return t
}

func benchKey(i int) []byte {
	return binary.BigEndian.AppendUint64([]byte{0x20, 'u', 's', 'e', 'r', '0', '0'}, uint64(i)*0x9E3779B97F4A7C15>>20<<20+uint64(i))
}

func sortedBenchTable(rows int) modelTable {
	t := benchTable(rows)
	for i := range t {
		t[i].key = fmt.Appendf(nil, "\x20user%012d", i*7)
	}
	return t
}

func BenchmarkWriter(b *testing.B) {
	t := sortedBenchTable(20_000)
	for _, compression := range []Compression{CompressNone, CompressS2, CompressZstd} {
		b.Run(compression.String(), func(b *testing.B) {
			f := &memFile{}
			var p Properties
			b.ReportAllocs()
			for b.Loop() {
				f.data = f.data[:0]
				p = t.write(b, f, WriterOptions{Compression: compression, FilterBitsPerKey: 10})
			}
			b.SetBytes(int64(p.RawBytes))
			b.ReportMetric(float64(len(f.data))/float64(p.RawBytes), "stored/raw")
			b.ReportMetric(float64(p.RawBytes-p.KeyBytes-p.ValueBytes)/float64(p.Rows), "overhead-B/row")
		})
	}
}

func benchReader(b *testing.B, rows int, compression Compression, capacity int64) (modelTable, *Reader) {
	t := sortedBenchTable(rows)
	f := &memFile{}
	t.write(b, f, WriterOptions{Compression: compression, FilterBitsPerKey: 10})
	r := openFile(b, f, NewBlockCache(cache.Options{Capacity: capacity}))
	it := r.NewIterator(IterOptions{})
	if err := t.checkAll(it); err != nil {
		b.Fatal(err)
	}
	if err := it.Close(); err != nil {
		b.Fatal(err)
	}
	return t, r
}

func BenchmarkPointGet(b *testing.B) {
	for _, size := range []struct {
		name     string
		rows     int
		capacity int64
	}{{"cached", 50_000, 1 << 30}, {"small", 500, 1 << 30}, {"missing-cache", 50_000, 1 << 20}} {
		t, r := benchReader(b, size.rows, CompressS2, size.capacity)
		for _, columns := range []int{10, 1} {
			b.Run(fmt.Sprintf("%s/%d-columns", size.name, columns), func(b *testing.B) {
				b.ReportAllocs()
				rng := rand.New(rand.NewPCG(3, 4))
				var it Iterator
				column := []byte("column7")
				for b.Loop() {
					key := t[rng.IntN(len(t))].key
					if !r.MayContain(Hash(key)) {
						b.Fatal("filter")
					}
					it.Init(r, IterOptions{})
					if !it.SeekRowExact(key) {
						b.Fatal(it.Error())
					}
					cells := 0
					if columns == 1 {
						it.FirstCell()
						it.SeekCell(column, row.MaxVersion)
						cells++
					} else {
						for ok := it.FirstCell(); ok; ok = it.NextCell() {
							cells += len(it.Cell().Value)
						}
					}
					if cells == 0 {
						b.Fatal("no cells")
					}
					if err := it.Close(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

func BenchmarkIterate(b *testing.B) {
	t, r := benchReader(b, 50_000, CompressS2, 1<<30)
	for _, mode := range []string{"cells", "rows", "one-column", "uncached"} {
		b.Run(mode, func(b *testing.B) {
			b.ReportAllocs()
			reader, opts := r, IterOptions{}
			if mode == "uncached" {
				uncached := &Reader{fileBytes: fileBytes{file: r.file, name: r.name, align: r.align, footer: r.footer}, props: r.props, index: r.index}
				reader, opts.NoCacheFill = uncached, true
			}
			it := reader.NewIterator(opts)
			column := []byte("column7")
			next := it.First
			for b.Loop() {
				if !next() {
					it.First()
				}
				next = it.NextRow
				switch mode {
				case "cells", "uncached":
					for ok := it.FirstCell(); ok; ok = it.NextCell() {
						_ = it.Cell()
					}
				case "one-column":
					it.SeekCell(column, row.MaxVersion)
				}
			}
			if err := it.Close(); err != nil {
				b.Fatal(err)
			}
			_ = t
		})
	}
}

func BenchmarkIndexSearch(b *testing.B) {
	t, r := benchReader(b, 100_000, CompressNone, 0)
	rng := rand.New(rand.NewPCG(3, 4))
	for b.Loop() {
		if r.index.search(t[rng.IntN(len(t))].key) < 0 {
			b.Fatal("not found")
		}
	}
}

func BenchmarkFilter(b *testing.B) {
	const n = 1_000_000
	hashes := make([]uint64, n)
	for i := range hashes {
		hashes[i] = Hash(benchKey(i))
	}
	var f filter
	if bad := f.parse(encodeFilter(hashes, 10)); bad != "" {
		b.Fatal(bad)
	}
	library := bloom.NewWithEstimates(n, 0.0082)
	for i := range n {
		library.Add(benchKey(i))
	}
	b.Run("build", func(b *testing.B) {
		b.SetBytes(n * 8)
		for b.Loop() {
			encodeFilter(hashes, 10)
		}
	})
	absent := make([]uint64, 1<<14)
	for i := range absent {
		absent[i] = Hash(benchKey(n + i))
	}
	b.Run("absent-hashed", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			f.mayContain(absent[i&(1<<14-1)])
		}
	})
	b.Run("present-hashed", func(b *testing.B) {
		for i := 0; b.Loop(); i++ {
			f.mayContain(hashes[i&(1<<14-1)])
		}
	})
	for _, from := range []int{0, n} {
		name := map[int]string{0: "present", n: "absent"}[from]
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				f.mayContain(Hash(benchKey(from + int(i*7919%n))))
			}
		})
		b.Run("library-"+name, func(b *testing.B) {
			b.ReportAllocs()
			for i := uint64(0); b.Loop(); i++ {
				library.Test(benchKey(from + int(i*7919%n)))
			}
		})
	}
}

func BenchmarkLoadBlock(b *testing.B) {
	for _, compression := range []Compression{CompressNone, CompressS2, CompressZstd} {
		b.Run(compression.String(), func(b *testing.B) {
			_, r := benchReader(b, 5_000, compression, 0)
			r.cached = nil
			it := r.blockByBlock()
			g := 0
			b.ReportAllocs()
			for b.Loop() {
				if !it.enter(g, false) {
					b.Fatal(it.Error())
				}
				g = (g + 7) % r.index.groups
			}
			b.SetBytes(DefaultBlockSize)
			if err := it.Close(); err != nil {
				b.Fatal(err)
			}
		})
	}
}
