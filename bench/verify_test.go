//go:build unix

package bench

// What it costs to verify at every access (BENCHMARKS.md, "What verification costs").
//
//	go test ./bench -run '^$' -bench Verified -benchtime 60x -cpu 1

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
	"github.com/flagstone-db/flagstone/sstable"
)

// Each way draws rows of its own: what the other read a moment ago lies in the processor's
// caches.
const (
	verifySlice = 6 * time.Millisecond
	verifyCache = 4 << 20
)

// shape is what rows look like.
type shape struct {
	name        string
	rows        int
	columns     int
	size        int // of a value, of which half are zeros
	compression flagstone.Compression
}

var (
	smallShapes = []shape{
		{"10x100B", 100_000, 10, 100, flagstone.CompressionS2},
		{"1x1KiB", 100_000, 1, 1024, flagstone.CompressionS2},
		{"1x100B", 500_000, 1, 100, flagstone.CompressionS2},
		{"10x100B, not compressed", 100_000, 10, 100, flagstone.CompressionNone},
		{"1x1KiB, not compressed", 100_000, 1, 1024, flagstone.CompressionNone},
	}
	largeShapes = []shape{
		{"64KiB", 1000, 1, 64 << 10, flagstone.CompressionS2},
		{"1MiB", 64, 1, 1 << 20, flagstone.CompressionS2},
		{"64KiB, not compressed", 1000, 1, 64 << 10, flagstone.CompressionNone},
	}
)

// make fills a store in a directory with settled rows.
func (s shape) make(b *testing.B, dir string, interval time.Duration) *fixture {
	b.Helper()
	f := s.open(b, dir, interval)
	rng := rand.New(rand.NewPCG(1, 2))
	value := make([]byte, s.size)
	for i := range s.rows {
		err := f.table.Update(context.Background(), key(uint64(i)), func(_ context.Context, tx *flagstone.RowTx) error {
			for c := range s.columns {
				for j := range s.size / 2 {
					value[j] = byte(rng.Uint32())
				}
				tx.Put(columnNames[c], 1, row.Binary(value))
			}
			return nil
		})
		if err != nil {
			b.Fatal(err)
		}
	}
	if err := f.store.Compact(context.Background()); err != nil {
		b.Fatal(err)
	}
	settle(b, f)
	return f
}

func (s shape) open(b *testing.B, dir string, interval time.Duration) *fixture {
	b.Helper()
	f := open(b, dir, flagstone.Options{
		Sync: flagstone.SyncNone, CacheSize: verifyCache, TableReads: flagstone.TableReadsMapped,
		Compression: s.compression, VerifyInterval: interval,
	})
	b.Cleanup(func() { f.store.Close() })
	return f
}

// pair makes two stores of the same files, so that the page cache has them once: one that
// believes what it verified, and one that verifies at every access.
func (s shape) pair(b *testing.B) (believing, verifying *fixture) {
	b.Helper()
	verifying = s.make(b, b.TempDir(), -1)
	dir := filepath.Join(b.TempDir(), "believing")
	if err := verifying.store.Checkpoint(context.Background(), dir); err != nil {
		b.Fatal(err)
	}
	believing = s.open(b, dir, 24*time.Hour)
	for range 3 { // at first by calls, of which nothing is believed
		believing.warm(b)
		verifying.warm(b)
	}
	return believing, verifying
}

// BenchmarkVerifiedScan reads ranges from a random row on; costs are per row.
func BenchmarkVerifiedScan(b *testing.B) {
	for _, s := range smallShapes {
		b.Run(s.name, func(b *testing.B) {
			believing, verifying := s.pair(b)
			for _, length := range []int{100, 5000} {
				for _, columns := range [][]string{nil, columnNames[:1]} {
					if columns != nil && s.columns == 1 {
						continue
					}
					b.Run(fmt.Sprintf("rows=%d/one=%t", length, columns != nil), func(b *testing.B) {
						scan := func(f *fixture) func() cost {
							rng := rand.New(rand.NewPCG(rand.Uint64(), 4))
							opts := flagstone.ScanOptions{ReadOptions: flagstone.ReadOptions{Columns: columns}}
							return func() cost {
								return costOf(verifySlice, func() (n int) {
									from := key(rng.Uint64N(uint64(s.rows)))
									rows := f.table.Scan(context.Background(), from, nil, opts)
									defer rows.Close()
									for n < length && rows.Next() {
										n++
									}
									if err := rows.Err(); err != nil {
										b.Fatal(err)
									}
									return max(n, 1)
								})
							}
						}
						inTurns(b, scan(believing), scan(verifying))
					})
				}
			}
		})
	}
}

// BenchmarkVerifiedLargeGet reads values from value files; costs are per value.
func BenchmarkVerifiedLargeGet(b *testing.B) {
	for _, s := range largeShapes {
		b.Run(s.name, func(b *testing.B) {
			believing, verifying := s.pair(b)
			get := func(f *fixture) func() cost {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 4))
				var r flagstone.Row
				return func() cost {
					return costOf(verifySlice, func() int {
						found, err := f.table.GetInto(context.Background(), key(rng.Uint64N(uint64(s.rows))), flagstone.ReadOptions{}, &r)
						if err != nil || !found {
							b.Fatal(found, err)
						}
						return 1
					})
				}
			}
			inTurns(b, get(believing), get(verifying))
		})
	}
}

// BenchmarkVerifiedGet finds rows in table files. A store verifies at every get, so this is
// the share of a get that lies below it: the iterator of one file, which may believe the
// values. It verifies the head of a block in either case.
func BenchmarkVerifiedGet(b *testing.B) {
	for _, s := range smallShapes {
		b.Run(s.name, func(b *testing.B) {
			dir := b.TempDir()
			if err := s.make(b, dir, 0).store.Close(); err != nil {
				b.Fatal(err)
			}
			files := openTables(b, dir)
			get := func(believe bool) func() cost {
				rng := rand.New(rand.NewPCG(rand.Uint64(), 4))
				var it sstable.Iterator
				var cells row.Collector
				return func() cost {
					return costOf(verifySlice, func() int {
						f := files[rng.IntN(len(files))]
						it.Init(f.reader, sstable.IterOptions{Believe: believe})
						ok := it.SeekRowExact(f.keys[rng.IntN(len(f.keys))])
						if !ok || !readWhole(&it, &cells) {
							b.Fatal(it.Error())
						}
						it.Close()
						return 1
					})
				}
			}
			inTurns(b, get(true), get(false))
		})
	}
}

// readWhole reads the cells of the current row, and returns false if that is not possible at once.
func readWhole(it *sstable.Iterator, cells *row.Collector) bool {
	var e row.Extent
	if _, ok := it.Extent(row.Ask{}, &e); !ok {
		return false
	}
	cells.Reset()
	cells.Borrow = true
	it.Collect(cells, &row.Projection{})
	return true
}

// tableFile is a table file and the keys of its rows.
type tableFile struct {
	reader *sstable.Reader
	keys   [][]byte
}

// openTables opens the table files of a store, and reads them.
func openTables(b *testing.B, dir string) (files []tableFile) {
	b.Helper()
	names, err := filepath.Glob(filepath.Join(dir, "sst", "*", "*.sst"))
	if err != nil || len(names) == 0 {
		b.Fatal(names, err)
	}
	blocks := sstable.NewBlockCache(cache.Options{Capacity: verifyCache})
	began := time.Now()
	for _, name := range names {
		file, err := vfs.OS().Open(name, vfs.OpenOptions{})
		if err != nil {
			b.Fatal(err)
		}
		r, err := sstable.Open(file, sstable.ReaderOptions{
			Cache: blocks, FileName: name, Mapped: true, VerifyInterval: 24 * time.Hour,
			Elapsed: func() time.Duration { return time.Since(began) },
		})
		if err != nil {
			b.Fatal(err)
		}
		b.Cleanup(func() { r.Close() })
		t := tableFile{reader: r}
		it := new(sstable.Iterator)
		it.Init(r, sstable.IterOptions{Believe: true})
		var cells row.Collector
		for range 3 {
			t.keys = t.keys[:0]
			for ok := it.First(); ok; ok = it.NextRow() {
				t.keys = append(t.keys, bytes.Clone(it.RowKey()))
				readWhole(it, &cells)
			}
		}
		if err := it.Error(); err != nil {
			b.Fatal(err)
		}
		it.Close()
		files = append(files, t)
	}
	return files
}
