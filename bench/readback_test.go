//go:build unix

package bench

// What it costs to read back what was written (BENCHMARKS.md, "Reading back what was
// written").
//
//	go test ./bench -run '^$' -bench ReadBack -benchtime 40x

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/flagstone-db/flagstone"
)

func readBackOptions(without bool) flagstone.Options {
	return flagstone.Options{
		Sync: flagstone.SyncNone, MemoryBudget: 1 << 30, MemtableSize: 256 << 20, ReadBack: !without,
	}
}

// BenchmarkReadBackFlush flushes a memtable of 64,000 rows of 10x100 B, and one of 1,000
// values of 64 KiB, which go to value files.
func BenchmarkReadBackFlush(b *testing.B) {
	value := largeValue(64 << 10)
	for _, c := range []struct {
		name string
		rows int
		put  func(b *testing.B, f *fixture, i int)
	}{
		{"10x100B", backgroundRows, func(b *testing.B, f *fixture, i int) { f.put(b, uint64(i)) }},
		{"64KiB", 1000, func(b *testing.B, f *fixture, i int) { putLarge(b, f, i, value) }},
	} {
		b.Run(c.name, func(b *testing.B) {
			flush := func(without bool) func() cost {
				return func() cost {
					dir := b.TempDir()
					f := open(b, dir, readBackOptions(without))
					for i := range c.rows {
						c.put(b, f, i)
					}
					return measured(b, f, dir, f.store.Flush)
				}
			}
			inTurns(b, flush(true), flush(false))
		})
	}
}

// BenchmarkReadBackMerge merges two flushes of 64,000 rows of 10x100 B that lie between
// each other.
func BenchmarkReadBackMerge(b *testing.B) {
	made := open(b, b.TempDir(), readBackOptions(false))
	defer made.store.Close()
	for from := range uint64(2) {
		for i := range uint64(backgroundRows) {
			made.put(b, from*backgroundRows+i)
		}
		if err := made.store.Flush(context.Background()); err != nil {
			b.Fatal(err)
		}
	}
	copies, next := b.TempDir(), 0
	merge := func(without bool) func() cost {
		return func() cost {
			next++
			dir := filepath.Join(copies, fmt.Sprint(next))
			if err := made.store.Checkpoint(context.Background(), dir); err != nil {
				b.Fatal(err)
			}
			f := open(b, dir, readBackOptions(without))
			return measured(b, f, dir, f.store.Compact)
		}
	}
	inTurns(b, merge(true), merge(false))
}

// measured measures work on a store that has to write files, and deletes it.
func measured(b *testing.B, f *fixture, dir string, work func(context.Context) error) cost {
	b.Helper()
	before := f.store.Metrics()
	c := costOf(0, func() int {
		if err := work(context.Background()); err != nil {
			b.Fatal(err)
		}
		return 1
	})
	after := f.store.Metrics()
	if after.FlushedBytes == before.FlushedBytes && after.CompactedOut == before.CompactedOut {
		b.Fatal("nothing was written")
	}
	if err := f.store.Close(); err != nil {
		b.Fatal(err)
	}
	if err := os.RemoveAll(dir); err != nil {
		b.Fatal(err)
	}
	return c
}
