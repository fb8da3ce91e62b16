package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/assist"
	"github.com/flagstone-db/flagstone/internal/assist/assisttest"
	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
)

// sometimes returns helpers that do about one piece in so many.
func sometimes(t *testing.T, rng *rand.Rand, of int) *assist.Helpers {
	h := assisttest.NewManual(func() bool { return rng.IntN(of) == 0 })
	t.Cleanup(h.Close)
	return h
}

func TestBlocksThatAreLoadedAheadAreThoseOfTheFile(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 3))
		table := randomTable(rng, 20+rng.IntN(150), 200)
		var f memFile
		table.write(t, &f, WriterOptions{Compression: Compression(rng.IntN(3)), BlockSize: 300, FilterBitsPerKey: 10})
		opts := ReaderOptions{FileName: "f", Mapped: rng.IntN(2) == 0, Helpers: sometimes(t, rng, 1+rng.IntN(3))}
		if rng.IntN(2) == 0 {
			opts.Elapsed = jumpyClock(seed)
		}
		memory := offheaptest.New(t)
		var c *BlockCache
		if rng.IntN(3) > 0 {
			c = NewBlockCache(cache.Options{Capacity: 1 << (10 + rng.IntN(10)), Memory: memory})
			opts.Cache = c
		}
		r, err := Open(&f, opts)
		if err != nil {
			t.Fatal(err)
		}
		it := r.newReadingAhead(IterOptions{NoCacheFill: rng.IntN(4) == 0}, []int{defaultReadAhead, -1, 500, 5000}[rng.IntN(4)])
		for range 4 {
			if err := table.checkAll(it); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
			if err := table.walkRandomly(rng, it, 200); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		it.Close()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if c != nil {
			c.Close()
			if err := memory.Close(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}

// firstError reads rows until an error, and returns it with the number of rows.
func firstError(r *Reader, opts IterOptions, limit int) (rows int, err error) {
	return firstErrorOf(r.NewIterator(opts), limit)
}

func firstErrorOf(it *Iterator, limit int) (rows int, err error) {
	defer it.Close()
	for ok := it.First(); ok && rows < limit; ok = it.NextRow() {
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
		}
		if it.Error() != nil {
			break
		}
		rows++
	}
	return rows, it.Error()
}

// Damage is reported at its own place, whether or not a helper found it ahead. A scan that
// ends before that place succeeds.
func TestDamageAheadIsMetByWhoGetsThere(t *testing.T) {
	for _, compression := range compressions {
		_, data := damageFile(t, compression)
		for _, mapped := range []bool{false, true} {
			alone, err := Open(&memFile{data: data}, ReaderOptions{FileName: damagedName, Mapped: mapped})
			if err != nil {
				t.Fatal(err)
			}
			h := assisttest.NewManual(func() bool { return true })
			c := NewBlockCache(cache.Options{Capacity: 1 << 20, Memory: offheaptest.New(t)})
			for at := int64(0); at < alone.footer.dataLength; at += 7 {
				helped, err := Open(&memFile{data: data}, ReaderOptions{FileName: damagedName, Mapped: mapped, Cache: c, Helpers: h})
				if err != nil {
					t.Fatal(err)
				}
				data[at] ^= 0x10
				for _, opts := range []IterOptions{{}, {NoCacheFill: true}} {
					rows, want := firstError(alone, opts, 1000)
					got, err := firstError(helped, opts, 1000)
					if want == nil || err == nil || got != rows || err.Error() != want.Error() {
						t.Fatalf("byte %d: row %d: %v; without help row %d: %v", at, got, err, rows, want)
					}
					if got, err = firstError(helped, opts, rows); got != rows || err != nil {
						// The movement to the next row may be what fails.
						if got != rows || err.Error() != want.Error() {
							t.Fatalf("byte %d: %v after %d of %d rows that are sound", at, err, got, rows)
						}
					}
				}
				data[at] ^= 0x10
				if n, err := firstError(helped, IterOptions{}, 1000); n != len(damageTable()) || err != nil {
					t.Fatalf("undamaged again: row %d: %v", n, err)
				}
				if err := helped.Close(); err != nil {
					t.Fatal(err)
				}
			}
			c.Close()
			h.Close()
			alone.Close()
		}
	}
}

// brokenFile cannot be read in some place, and records how far it was read.
type brokenFile struct {
	memFile
	from, to int64
	most     int64
	begun    bool // reads are counted from now on
}

var errBroken = errors.New("broken")

func (f *brokenFile) ReadAt(p []byte, off int64) (int, error) {
	if off < f.to && off+int64(len(p)) > f.from {
		return 0, errBroken
	}
	if f.begun {
		f.most = max(f.most, off+int64(len(p)))
	}
	return f.memFile.ReadAt(p, off)
}

func TestReadErrorsAheadAreMetByWhoGetsThere(t *testing.T) {
	for seed := range uint64(30) {
		rng := rand.New(rand.NewPCG(seed, 4))
		table := sortedBenchTable(300)
		f := &brokenFile{}
		table.write(t, &f.memFile, WriterOptions{Compression: CompressS2, BlockSize: 2000})
		h := sometimes(t, rng, 1+rng.IntN(2))
		r, err := Open(f, ReaderOptions{FileName: "f", Helpers: h})
		if err != nil {
			t.Fatal(err)
		}
		block := 2 + rng.IntN(r.index.blocks-3)
		begin, end := r.index.blockRange(block)
		f.from = begin + rng.Int64N(end-begin)
		f.to = f.from + 1
		got, err := firstError(r, IterOptions{}, len(table))
		if !errors.Is(err, errBroken) {
			t.Fatalf("seed %d: %v", seed, err)
		}
		helpers := r.helpers
		r.helpers = nil
		want, _ := firstError(r, IterOptions{}, len(table))
		if r.helpers = helpers; got != want {
			t.Errorf("seed %d: error after %d rows, without help after %d", seed, got, want)
		}
		r.Close()
	}
}

// Read-ahead stays within the range, and not much further ahead than was read so far.
func TestLittleIsReadAheadInVain(t *testing.T) {
	table := sortedBenchTable(3000)
	f := &brokenFile{}
	table.write(t, &f.memFile, WriterOptions{Compression: CompressS2, BlockSize: 2000})
	h := assisttest.NewManual(func() bool { return true })
	defer h.Close()
	r, err := Open(f, ReaderOptions{FileName: "f", Helpers: h})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	for _, last := range []int{1, 30, 100, 300, 2000, 2999} {
		end := table[last].key
		f.begun, f.most = true, 0
		if rows, err := firstError(r, IterOptions{End: end}, last); rows != last || err != nil {
			t.Fatal(rows, err)
		}
		_, blockEnd := r.index.blockRange(r.index.search(end))
		if f.most > blockEnd {
			t.Errorf("%d bytes of the file were read for rows in the first %d", f.most, blockEnd)
		}
	}
	for _, rows := range []int{1, 10, 30, 100, 300} {
		f.most = 0
		if n, err := firstErrorOf(r.blockByBlock(), rows); n != rows || err != nil {
			t.Fatal(n, err)
		}
		_, at := r.index.blockRange(r.index.search(table[rows-1].key))
		_, block := r.index.blockRange(0)
		if f.most > 2*at+3*block {
			t.Errorf("%d bytes were read for %d rows in the first %d", f.most, rows, at)
		}
	}
}

// Many goroutines scan, stop somewhere and close, while helpers work.
func TestScansWithHelpersInAStorm(t *testing.T) {
	table := sortedBenchTable(2000)
	var f memFile
	table.write(t, &f, WriterOptions{Compression: CompressS2, BlockSize: 2000})
	for _, mapped := range []bool{false, true} {
		memory := offheaptest.New(t)
		c := NewBlockCache(cache.Options{Capacity: 256 << 10, Memory: memory})
		h := assist.New(2)
		r, err := Open(fileOf(f.data), ReaderOptions{FileName: "f", Mapped: mapped, Elapsed: jumpyClock(1), Cache: c, Helpers: h})
		if err != nil {
			t.Fatal(err)
		}
		var scans sync.WaitGroup
		for seed := range uint64(4) {
			scans.Go(func() {
				rng := rand.New(rand.NewPCG(seed, 5))
				var it Iterator
				for range 60 {
					it.Init(r, IterOptions{NoCacheFill: rng.IntN(4) == 0})
					from := rng.IntN(len(table))
					to := min(from+1+rng.IntN(300), len(table))
					if err := table[from:to].checkFrom(&it); err != nil {
						t.Errorf("seed %d: %v", seed, err)
					}
					it.Close()
				}
			})
		}
		scans.Wait()
		h.Close()
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		c.Close()
		if err := memory.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// fileOf is a file that allows concurrent reads.
func fileOf(data []byte) *constFile { return &constFile{memFile{data: data}} }

type constFile struct{ memFile }

func (f *constFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.data).ReadAt(p, off)
}

// checkFrom compares the rows from the model's first one on with the model.
func (t modelTable) checkFrom(it *Iterator) error {
	ok := it.SeekRow(t[0].key)
	for i := range t {
		if !ok || !bytes.Equal(it.RowKey(), t[i].key) {
			return fmt.Errorf("row %q, want %q: %w", it.RowKey(), t[i].key, orEnd(it.Error()))
		}
		if err := checkCells(it, it.FirstCell(), t[i].cells); err != nil {
			return fmt.Errorf("row %q: %w", t[i].key, err)
		}
		ok = it.NextRow()
	}
	return nil
}

func TestScansWithHelpersAllocateNothing(t *testing.T) {
	table := sortedBenchTable(2000)
	var f memFile
	table.write(t, &f, WriterOptions{Compression: CompressS2, BlockSize: 2000})
	lent := 0
	h := assisttest.NewManual(func() bool { lent++; return true })
	defer h.Close()
	r, err := Open(&f, ReaderOptions{FileName: "f", Mapped: true, Cache: NewBlockCache(cache.Options{Capacity: 64 << 10}), Helpers: h})
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	var it Iterator
	scan := func() {
		it.Init(r, IterOptions{})
		for ok := it.First(); ok; ok = it.NextRow() {
			it.FirstCell()
		}
		it.Close()
	}
	scan()
	if lent < r.index.blocks/(2*pieceBlocks) {
		t.Errorf("%d pieces were lent of %d blocks", lent, r.index.blocks)
	}
	if raced {
		return
	}
	// The garbage collector may empty the pools.
	if n := testing.AllocsPerRun(20, scan); n > 30 {
		t.Errorf("%v allocations for a scan of %d blocks", n, r.index.blocks)
	}
}

// panickyFile panics when a certain place is read.
type panickyFile struct {
	brokenFile
	armed bool
}

func (f *panickyFile) ReadAt(p []byte, off int64) (n int, err error) {
	n, err = f.brokenFile.ReadAt(p, off)
	if err != nil && f.armed {
		panic(err)
	}
	return n, err
}

// A panic of a helper reaches the scan that gets there, which can still be closed. Other
// scans go on, and nothing stays pinned.
func TestAPanicAheadIsOneOfWhoGetsThere(t *testing.T) {
	table := sortedBenchTable(600)
	for _, noFill := range []bool{false, true} {
		f := &panickyFile{armed: true}
		table.write(t, &f.memFile, WriterOptions{Compression: CompressS2, BlockSize: 2000})
		h := assisttest.NewManual(func() bool { return true })
		memory := offheaptest.New(t)
		c := NewBlockCache(cache.Options{Capacity: 1 << 20, Memory: memory})
		r, err := Open(f, ReaderOptions{FileName: "f", Cache: c, Helpers: h})
		if err != nil {
			t.Fatal(err)
		}
		f.from, _ = r.index.blockRange(r.index.blocks / 2)
		f.to = f.from + 1
		panicked := func(rows int) (p any) {
			defer func() { p = recover() }()
			firstError(r, IterOptions{NoCacheFill: noFill}, rows)
			return nil
		}
		if p := panicked(len(table)); p == nil {
			t.Error("no panic")
		}
		for rows := 1; rows < len(table)/4; rows += 10 {
			if p := panicked(rows); p != nil {
				t.Errorf("%d rows: %v", rows, p)
			}
		}
		f.from, f.to = 0, 0
		if n, err := firstError(r, IterOptions{NoCacheFill: noFill}, len(table)+1); n != len(table) || err != nil {
			t.Errorf("sound again: row %d, %v", n, err)
		}
		h.Close()
		if err := r.Close(); err != nil {
			t.Error(err)
		}
		c.Close()
		if err := memory.Close(); err != nil {
			t.Error(err)
		}
	}
}
