package sstable

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/internal/assist/assisttest"
	"github.com/flagstone-db/flagstone/internal/cache"
)

// readThrough loads all blocks from the front, with all values.
func readThrough(r *Reader, opts IterOptions, p pattern) error {
	var b blockReader
	b.open(r, opts)
	defer b.close()
	b.seek(p)
	for i := range r.index.blocks {
		if err := b.load(i); err != nil {
			return err
		}
		for row := 0; row < b.block.rows; row = b.valueRows {
			if err := b.openValues(row); err != nil {
				return err
			}
		}
	}
	return nil
}

// Whatever way a block comes, a flipped bit of it is found, and the error says where.
func TestAFlippedBitIsFoundInEachWayOfReading(t *testing.T) {
	table, f := wordTable(30, true), &memFile{}
	table.write(t, f, WriterOptions{Compression: CompressS2, BlockSize: 3000})
	pieces := 0
	helpers := assisttest.NewManual(func() bool { pieces++; return true })
	defer helpers.Close()
	hour := func() time.Duration { return time.Hour }
	for _, reader := range []ReaderOptions{
		{}, {Mapped: true}, {Mapped: true, Elapsed: hour, VerifyInterval: time.Hour},
		{Helpers: helpers}, {Mapped: true, Helpers: helpers},
	} {
		for _, cached := range []int64{0, 4 << 10, 1 << 20} { // no cache, a full one, and one with room
			for _, way := range []struct {
				opts    IterOptions
				pattern pattern
			}{
				{IterOptions{}, point}, {IterOptions{}, scan}, {IterOptions{Believe: true}, scan},
				{IterOptions{NoCacheFill: true}, merge},
			} {
				opts := reader
				opts.FileName = damagedName
				if cached > 0 {
					opts.Cache = NewBlockCache(cache.Options{Capacity: cached})
				}
				name := fmt.Sprintf("mapped %t, helped %t, trust %v, cache %d, %+v",
					opts.Mapped, opts.Helpers != nil, opts.VerifyInterval, cached, way)
				checkFlippedBits(t, name, f, opts, func(r *Reader) error { return readThrough(r, way.opts, way.pattern) })
				if opts.Cache != nil {
					opts.Cache.Close()
				}
			}
		}
	}
	if pieces == 0 {
		t.Error("nothing was loaded ahead")
	}
}

// checkFlippedBits flips bits of each block of a file, one at a time. read must find each of
// them, and nothing once it is flipped back.
func checkFlippedBits(t *testing.T, name string, f *memFile, opts ReaderOptions, read func(*Reader) error) {
	blocks := 1
	for i := 0; i < blocks; i++ {
		r, err := Open(f, opts)
		if err != nil {
			t.Fatal(err)
		}
		blocks = min(r.index.blocks, 4)
		from, to := r.index.blockRange(i)
		for at := from + int64(i); at < to; at += 13 {
			if at < to-200 { // the head is less than that
				at += 97
			}
			if opts.Cache != nil {
				for n := range r.index.blocks {
					r.cached.Evict(n)
				}
			}
			for n := range r.verified.blocks {
				r.verified.blocks[n].Store(0)
			}
			f.data[at] ^= 0x20
			err := read(r)
			f.data[at] ^= 0x20
			if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), fmt.Sprintf("%s: offset %d: ", damagedName, from)) {
				t.Fatalf("%s: byte %d of the block at %d: %v", name, at-from, from, err)
			}
			if err := read(r); err != nil {
				t.Fatalf("%s: undamaged again: %v", name, err)
			}
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
