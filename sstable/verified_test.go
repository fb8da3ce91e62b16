package sstable

import (
	"errors"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/cache"
)

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
			for ok := it.First(); ok; ok = it.NextRow() {
				for ok := it.FirstCell(); ok; ok = it.NextCell() {
					_ = it.Cell()
				}
			}
			return it.Error()
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
