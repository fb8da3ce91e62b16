package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/klauspost/compress/s2"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/row"
)

// wordTable has rows of a kilobyte: of words that repeat across rows, or of noise.
func wordTable(rows int, noise bool) modelTable {
	vocabulary := 200
	if noise {
		vocabulary = 0
	}
	return vocabularyTable(rows, vocabulary)
}

// vocabularyTable has rows of a kilobyte of so many words, or of noise if there are none.
func vocabularyTable(rows, vocabulary int) modelTable {
	rng := rand.New(rand.NewPCG(11, 12))
	words := make([][]byte, vocabulary)
	for i := range words {
		words[i] = fmt.Appendf(nil, "%x ", rng.Uint64())
	}
	var t modelTable
	for i := range rows {
		var value []byte
		for len(value) < 1000 {
			if vocabulary == 0 {
				value = append(value, byte(rng.Uint32()), 0)
			} else {
				value = append(value, words[rng.IntN(len(words))]...)
			}
		}
		t = append(t, modelRow{fmt.Appendf(nil, "\x20%06d", i), []row.Cell{
			{Kind: row.KindRowMarker, Version: 5, Seq: 9}, put("text", 5, 9, value),
		}})
	}
	return t
}

func TestSegmentsAreSmallWhereThatCostsLittle(t *testing.T) {
	for _, c := range []struct {
		compression Compression
		vocabulary  int // 0: noise
		segments    int
	}{
		{CompressS2, 0, 7}, {CompressS2, 200, 1}, {CompressS2, 15, 2},
		{CompressNone, 0, 7}, {CompressNone, 200, 7},
		{CompressZstd, 0, 1}, {CompressZstd, 200, 1},
	} {
		f := &memFile{}
		vocabularyTable(100, c.vocabulary).write(t, f, WriterOptions{Compression: c.compression})
		it := openFile(t, f, nil).NewIterator(IterOptions{})
		if !it.First() {
			t.Fatal(it.Error())
		}
		if it.blocks.block.rows != 7 || it.blocks.block.segments != c.segments {
			t.Errorf("%v, %d words: %d rows in %d segments, want 7 in %d", c.compression, c.vocabulary, it.blocks.block.rows, it.blocks.block.segments, c.segments)
		}
		it.Close()
	}
}

// Rows of several segments read the same in any order, with caches of any size, and in
// every way.
func TestSegmentsAreReadFromCacheAndFileAlike(t *testing.T) {
	table := wordTable(300, true)
	for i := range table { // of all lengths, none included
		c := &table[i].cells[1]
		c.Value = c.Value[:(i*i*37)%len(c.Value)]
	}
	for _, compression := range compressions {
		f := &memFile{}
		table.write(t, f, WriterOptions{Compression: compression, FilterBitsPerKey: 10})
		for _, capacity := range []int64{0, 8 << 10, 60 << 10, 4<<20 - 1} {
			for _, mapped := range []bool{false, true} {
				memory := offheaptest.New(t)
				c := NewBlockCache(cache.Options{Capacity: capacity, Memory: memory})
				now := time.Second
				r, err := Open(&memFile{data: f.data}, ReaderOptions{
					FileName: damagedName, Cache: c, Mapped: mapped, Elapsed: func() time.Duration { now += time.Microsecond; return now },
				})
				if err != nil {
					t.Fatal(err)
				}
				rng := rand.New(rand.NewPCG(uint64(capacity), 3))
				its := []*Iterator{r.NewIterator(IterOptions{}), r.NewIterator(IterOptions{}), r.NewIterator(IterOptions{NoCacheFill: true})}
				for range 3000 {
					it := its[rng.IntN(len(its))]
					if err := table[rng.IntN(len(table))].get(r, it); err != nil {
						t.Fatal(err)
					}
					if rng.IntN(20) == 0 {
						it.Close()
						it.Init(r, IterOptions{NoCacheFill: it.blocks.opts.NoCacheFill})
					}
				}
				if err := table.checkAll(its[0]); err != nil {
					t.Fatal(err)
				}
				others := func() error { // they displace the blocks and segments of a chunk
					for range 5 {
						if err := table[rng.IntN(len(table))].get(r, its[0]); err != nil {
							return err
						}
					}
					return nil
				}
				if err := table.checkStretches(its[1], others); err != nil {
					t.Fatal(err)
				}
				for _, it := range its {
					it.Close()
				}
				if s := c.Stats(); s.Bytes > capacity+DefaultBlockSize { // the last blocks were pinned
					t.Fatalf("%d bytes in a cache of %d", s.Bytes, capacity)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
				c.Close()
				if err := memory.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// A compaction that finds heads in the cache, left there by gets, reads the segments without
// filling the cache.
func TestSegmentsReadPastTheCacheDoNotFillIt(t *testing.T) {
	table, f := wordTable(300, true), &memFile{}
	table.write(t, f, WriterOptions{Compression: CompressS2})
	c := NewBlockCache(cache.Options{Capacity: 4<<20 - 1})
	r := openFile(t, f, c)
	it := r.NewIterator(IterOptions{})
	for i := range table {
		if !it.SeekRowExact(table[i].key) { // this needs only the head
			t.Fatal(it.Error())
		}
	}
	it.Close()
	before := c.Stats()
	past := r.NewIterator(IterOptions{NoCacheFill: true})
	if err := table.checkAll(past); err != nil {
		t.Fatal(err)
	}
	past.Close()
	if after := c.Stats(); before.Blocks == 0 || after.Bytes != before.Bytes {
		t.Fatalf("the cache had %+v before, and %+v after", before, after)
	}
}

// A chunk of rows ends before a damaged segment, and the scan ends with an error.
func TestADamagedSegmentEndsAScanOfManyRowsAtOnce(t *testing.T) {
	table, f := wordTable(40, true), &memFile{}
	table.write(t, f, WriterOptions{Compression: CompressS2})
	for _, mapped := range []bool{false, true} {
		r, err := Open(f, ReaderOptions{FileName: damagedName, Mapped: mapped})
		if err != nil {
			t.Fatal(err)
		}
		for at := int64(0); at < r.footer.dataLength; at += 61 {
			f.data[at] ^= 0x40
			it := r.NewIterator(IterOptions{})
			if err := table.checkStretches(it, func() error { return nil }); !errors.Is(err, ErrCorrupt) {
				t.Fatalf("byte %d: %v", at, err)
			}
			it.Close()
			f.data[at] ^= 0x40
		}
	}
}

// Segments after the current row's are read together with it. Damage in one of them is
// reported at its own rows, not before.
func TestDamageIsMetAtItsRows(t *testing.T) {
	table, f := wordTable(21, true), &memFile{}
	table.write(t, f, WriterOptions{Compression: CompressS2})
	r, err := Open(f, ReaderOptions{FileName: damagedName, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	all := 0
	for ok := it.First(); ok; ok = it.NextRow() {
		if !it.FirstCell() || !it.NextCell() {
			t.Fatal(it.Error())
		}
		if it.blocks.valueRows-it.blocks.valueRow > 1 {
			all++
		}
	}
	if all == 0 {
		t.Error("no segments were read together")
	}
	for damaged := 0; damaged < 14; damaged++ { // these are the rows of the first two blocks
		number, k := damaged/7, damaged%7
		if !it.First() || !it.SeekRow(table[damaged].key) {
			t.Fatal(it.Error())
		}
		begin, _ := r.index.blockRange(number)
		at := begin + int64(it.blocks.block.partEnd.at(it.blocks.block.data, k)) - trailerSize
		f.data[at] ^= 1
		i := 0
		for ok := it.First(); ok && it.FirstCell() && it.NextCell(); ok = it.NextRow() {
			i++
		}
		if i != damaged || !errors.Is(it.Error(), ErrCorrupt) {
			t.Errorf("row %d is damaged, and row %d the first that cannot be read: %v", damaged, i, it.Error())
		}
		f.data[at] ^= 1
	}
}

// A run of a merge opens the values of the rows that are described, and the rest of their block only if it
// goes beyond their segment.
func TestEarlyInAScanOnlyDescribedRowsAreOpened(t *testing.T) {
	table, f := wordTable(21, true), &memFile{}
	table.write(t, f, WriterOptions{Compression: CompressS2})
	r, err := Open(f, ReaderOptions{FileName: damagedName, Mapped: true})
	if err != nil {
		t.Fatal(err)
	}
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	ok := it.First()
	for _, step := range []struct{ end, opened int }{{1, 1}, {2, 2}, {4, 7}} {
		var e row.Extent
		from := it.row
		if _, described := it.Extent(row.Ask{Rows: true, Limit: table[step.end].key}, &e); !ok || !described || e.Rows != step.end-from {
			t.Fatalf("row %d: %t %t %+v: %v", from, ok, described, e, it.Error())
		}
		for range e.Rows {
			if it.blocks.valueRows != step.opened {
				t.Errorf("row %d: values are open up to row %d, want %d", it.row, it.blocks.valueRows, step.opened)
			}
			ok = it.NextRow()
		}
		if it.blocks.valueRows != step.opened {
			t.Errorf("row %d: values are open up to row %d before they are asked for", it.row, it.blocks.valueRows)
		}
	}
}

// checkStretches reads all rows, many at once. While it holds a chunk of rows, it lets other
// iterators read.
func (t modelTable) checkStretches(it *Iterator, others func() error) error {
	i := 0
	for ok := it.First(); ok; {
		var s row.Extent
		var e row.Extent
		if _, ok := it.Extent(row.Ask{Rows: true}, &s); !ok || s.Rows == 0 {
			if _, ok := it.Extent(row.Ask{}, &e); !ok {
				return fmt.Errorf("row %d: no extent: %w", i, orEnd(it.Error()))
			}
			s.Rows = 1
		}
		for n := 0; n < s.Rows; n++ {
			if ok && s.Rows > 1 && n%3 == 0 {
				chunk := row.Chunk{Budget: 4000}
				got := it.CollectRows(&chunk, s.Rows-n, &row.Projection{})
				if err := others(); err != nil {
					return err
				}
				for j := range got {
					key, cells := chunk.Row(j)
					want := t[i+j].cells[len(t[i+j].cells)-1]
					if len(cells) != 1 || !bytes.Equal(cells[0].Value, want.Value) || !bytes.Equal(key, t[i+j].key) {
						return fmt.Errorf("row %d of a chunk of %d differs", i+j, got)
					}
				}
				i, n = i+got-1, n+got-1
			}
			if !ok {
				return fmt.Errorf("row %d: the stretch ends: %w", i, orEnd(it.Error()))
			}
			var c row.Collector
			it.Collect(&c, &row.Projection{})
			want := t[i].cells[len(t[i].cells)-1]
			if len(c.Cells) != 1 || !bytes.Equal(c.Cells[0].Value, want.Value) || !bytes.Equal(it.RowKey(), t[i].key) {
				return fmt.Errorf("row %d differs", i)
			}
			i++
			ok = it.NextRow()
		}
	}
	if i != len(t) {
		return fmt.Errorf("%d rows of %d: %w", i, len(t), orEnd(it.Error()))
	}
	return nil
}

// An S2 block decodes with slack after it as without, damaged or not.
func TestSlackBehindAnS2BlockChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 22))
	var s scratch
	for range 3000 {
		var raw []byte
		for n := rng.IntN(2000); len(raw) < n; {
			switch rng.IntN(3) {
			case 0:
				raw = append(raw, bytes.Repeat([]byte{byte(rng.Uint32())}, rng.IntN(600))...)
			case 1:
				for range rng.IntN(300) {
					raw = append(raw, byte(rng.Uint32()))
				}
			default:
				raw = append(raw, raw[:rng.IntN(len(raw)+1)]...)
			}
		}
		body := append(make([]byte, rawLengthSize), s2.Encode(nil, raw)...)
		if rng.IntN(2) == 0 {
			body[rawLengthSize+rng.IntN(len(body)-rawLengthSize)] ^= 1 << rng.IntN(8)
		}
		stored := storedBlock{kind: CompressS2, body: body, raw: len(raw)}
		tight, wide := make([]byte, len(raw)), make([]byte, len(raw), len(raw)+decodeSlack)
		a, b := s.expand(tight, stored), s.expand(wide, stored)
		if a == "" && b == "" && !bytes.Equal(tight, wide) || (a == "") != (b == "") {
			t.Fatalf("%d bytes: %q without, %q with slack", len(raw), a, b)
		}
	}
}

// TestAFullCacheTakesFewValuesThatThePageCacheHas counts the heads that gets at random leave in a full cache:
// segments leave them the less room, the more of these are taken.
func TestAFullCacheTakesFewValuesThatThePageCacheHas(t *testing.T) {
	table := wordTable(2_000, true)
	file := &memFile{}
	table.write(t, file, WriterOptions{Compression: CompressS2, FilterBitsPerKey: 10})
	heads := func(mapped bool, took time.Duration, clock bool) int64 {
		now := time.Duration(1)
		opts := ReaderOptions{FileName: damagedName, Cache: NewBlockCache(cache.Options{Capacity: 200 << 10}), Mapped: mapped}
		if clock {
			opts.Elapsed = func() time.Duration { return now }
		}
		r, err := Open(&slowReads{File: file, now: &now, took: took, willNeed: func(int64, int64) {}}, opts)
		if err != nil {
			t.Fatal(err)
		}
		rng := rand.New(rand.NewPCG(1, 2))
		it := r.NewIterator(IterOptions{})
		for range 4 * len(table) {
			if err := table[rng.IntN(len(table))].get(r, it); err != nil {
				t.Fatal(err)
			}
		}
		it.Close()
		blocks := opts.Cache.Stats().Blocks
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		return blocks
	}
	const fast, slow = time.Microsecond, 100 * time.Microsecond
	all := heads(false, slow, true)
	for _, c := range []struct {
		name   string
		blocks int64
		few    bool // segments
	}{
		{"a mapped file", heads(true, fast, true), true},
		{"a file read by calls from the page cache", heads(false, fast, true), true},
		{"nobody knows whether calls come from the page cache", heads(false, fast, false), false},
	} {
		if few := c.blocks > all*5/4; few != c.few {
			t.Errorf("%s: %d heads in the cache; from the device, %d", c.name, c.blocks, all)
		}
	}
}
