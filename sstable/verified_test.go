package sstable

import (
	"errors"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
)

// readAll touches every cell that it has.
func readAll(it *Iterator) error {
	for ok := it.First(); ok; ok = it.NextRow() {
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			_ = it.Cell()
		}
	}
	return it.Error()
}

// Between two verifications of a mapped block its bytes are believed. Afterwards,
// by a merge, and where the interval is negative, damage is found.
func TestAMappedBlockIsVerifiedAgainAfterTheInterval(t *testing.T) {
	for _, interval := range []time.Duration{0, 5 * time.Second, -1} {
		f := &memFile{}
		sortedBenchTable(2000).write(t, f, WriterOptions{})
		now := time.Second
		c := NewBlockCache(cache.Options{Capacity: 4 << 10}) // keeps nothing
		r, err := Open(f, ReaderOptions{
			FileName: damagedName, Cache: c, Mapped: true, VerifyInterval: interval,
			Elapsed: func() time.Duration { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		read := func(opts IterOptions) error {
			it := r.NewIterator(opts)
			defer it.Close()
			return readAll(it)
		}
		if err := read(IterOptions{}); err != nil {
			t.Fatal(err)
		}
		_, end := r.index.blockRange(3)
		f.data[end-trailerSize-1] ^= 1 // the last byte of a value
		if interval == 0 {
			interval = DefaultVerifyInterval
		}
		if interval > 0 {
			now += interval - time.Millisecond
			if err := read(IterOptions{}); err != nil {
				t.Fatalf("interval %v: a block that was verified just now: %v", interval, err)
			}
			if err := read(IterOptions{NoCacheFill: true}); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("a merge reads damage: %v", err)
			}
			now += time.Millisecond
		}
		if err := read(IterOptions{}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("interval %v is over: %v", interval, err)
		}
		if err := r.Verify(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("Verify: %v", err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// What was believed and not verified may be in the cache. Merges do not take it
// from there.
func TestMergesDoNotTakeFromTheCacheWhatWasNotVerified(t *testing.T) {
	table := wordTable(200, true)
	for _, inHead := range []bool{true, false} {
		f := &memFile{}
		table.write(t, f, WriterOptions{})
		now := time.Second
		r, err := Open(f, ReaderOptions{
			FileName: damagedName, Cache: NewBlockCache(cache.Options{Capacity: 8 << 20, Shards: 1}), Mapped: true,
			Elapsed: func() time.Duration { return now },
		})
		if err != nil {
			t.Fatal(err)
		}
		it := r.NewIterator(IterOptions{})
		read := func(opts IterOptions) error {
			it.Close()
			it.Init(r, opts)
			return readAll(it)
		}
		if err := read(IterOptions{}); err != nil {
			t.Fatal(err)
		}
		const number = 3
		begin, end := r.index.blockRange(number)
		at := end - headLengthSize - trailerSize - 1 // the last byte of a column's name
		if !inHead {
			if !it.load(number, number) {
				t.Fatal(it.Error())
			}
			at = begin + int64(it.block.partEnd.at(it.block.data, 0)) - trailerSize - 1 // of a value
		}
		it.Close()
		f.data[at] ^= 1
		r.cached.Evict(number)
		it.Init(r, IterOptions{})
		if err := read(IterOptions{}); inHead && err != nil {
			t.Fatalf("a head that was verified just now: %v", err)
		}
		if err := read(IterOptions{NoCacheFill: true}); !errors.Is(err, ErrCorrupt) {
			t.Errorf("damage in the head %t: a merge reads it: %v", inHead, err)
		}
		it.Close()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
