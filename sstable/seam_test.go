package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/row"
)

// offsetOf estimates how many bytes of data, as stored, come before the first row whose key
// is at least key. Values in value files count too. It reads only the index. The estimate
// is too small by less than one block, or the length of one long row.
func (r *Reader) offsetOf(key []byte) int64 {
	g := r.index.search(key)
	if g < 0 {
		return 0
	}
	if g == r.index.groups-1 && string(key) > string(r.props.LargestKey) {
		return r.dataSize()
	}
	return r.index.offset(g)
}

// dataSize is how many bytes of data the file has, as stored, including values in value
// files. offsetOf returns it for a key above all rows.
func (r *Reader) dataSize() int64 { return r.index.offset(r.index.groups) }

func TestOffsetsAreOffByLessThanABlockAndReadNoData(t *testing.T) {
	model := sortedBenchTable(2_000)
	f := &memFile{}
	p := model.write(t, f, WriterOptions{})
	r := openFile(t, f, nil)
	f.reads = 0
	perRow := float64(r.dataSize()) / float64(p.Rows)
	for _, i := range []int{0, 1, 500, 1_000, 1_999} {
		got, want := float64(r.offsetOf(model[i].key)), perRow*float64(i)
		if got > want+perRow || got < want-DefaultBlockSize-perRow {
			t.Errorf("row %d: offset %.0f, want about %.0f", i, got, want)
		}
	}
	if r.offsetOf([]byte("\x10")) != 0 || r.offsetOf([]byte("\xff")) != r.dataSize() {
		t.Error("offsets below and above all rows")
	}
	last, lastSeparator := int64(-1), []byte(nil)
	offset := int64(0)
	rest := r.WalkIndex(nil, nil, func(separator []byte, since int64) (apart int64) {
		if offset += since; offset <= last || bytes.Compare(separator, lastSeparator) <= 0 {
			t.Fatalf("separator %q at %d after %q at %d", separator, offset, lastSeparator, last)
		}
		if got := r.offsetOf(separator); got != offset {
			t.Fatalf("separator %q is at %d, offsetOf says %d", separator, offset, got)
		}
		last, lastSeparator = offset, bytes.Clone(separator)
		return 0
	})
	if offset+rest != r.dataSize() {
		t.Errorf("%d bytes behind the last place at %d of %d", rest, offset, r.dataSize())
	}
	if f.reads != 0 {
		t.Errorf("%d reads", f.reads)
	}
}

func TestAWarmIteratorAllocatesNothing(t *testing.T) {
	model := sortedBenchTable(300)
	f := &memFile{}
	model.write(t, f, WriterOptions{Compression: CompressS2})
	r := openFile(t, f, NewBlockCache(cache.Options{Capacity: 8 << 20}))
	var it Iterator
	scan := func() {
		it.Init(r, IterOptions{})
		for ok := it.First(); ok; ok = it.NextRow() {
			for ok := it.FirstCell(); ok; ok = it.NextCell() {
				_ = it.Cell()
			}
			it.SeekCell([]byte("column7"), row.MaxVersion)
		}
		for ok := it.Last(); ok; ok = it.PrevRow() {
			_ = it.RowKey()
		}
		if it.Error() != nil || !it.SeekRowExact(model[7].key) {
			t.Fatal(it.Error())
		}
		it.Close()
	}
	scan()
	if n := testing.AllocsPerRun(5, scan); n > 0 {
		t.Fatalf("%g allocations", n)
	}
}

func TestASequentialScanReadsManyBlocksAtOnce(t *testing.T) {
	model := sortedBenchTable(2_000)
	f := &memFile{}
	p := model.write(t, f, WriterOptions{})
	r := openFile(t, f, nil)
	for _, test := range []struct {
		opts        IterOptions
		ahead, most int
	}{{IterOptions{NoCacheFill: true}, defaultReadAhead, 20}, {IterOptions{}, defaultReadAhead, 20}, {IterOptions{}, -1, int(p.DataBlocks)}} {
		f.reads = 0
		it := r.newReadingAhead(test.opts, test.ahead)
		if err := model.checkAll(it); err != nil {
			t.Fatal(err)
		}
		it.Close()
		if f.reads > test.most {
			t.Errorf("%+v: %d reads for %d blocks, want at most %d", test.opts, f.reads, p.DataBlocks, test.most)
		}
	}
}

// A file learns how far scans go. Then a scan needs one call, while gets and scans of one row
// still read no more than they need.
func TestAScanReadsAtOnceAsFarAsThoseBeforeWent(t *testing.T) {
	model := sortedBenchTable(4_000)
	f := &memFile{}
	p := model.write(t, f, WriterOptions{})
	r := openFile(t, f, NewBlockCache(cache.Options{Capacity: 1 << 10})) // keeps nothing
	scan := func(from, rows int) (reads, size int) {
		f.reads, f.bytes = 0, 0
		it := r.NewIterator(IterOptions{})
		defer it.Close()
		for ok := it.SeekRow(model[from].key); ok && rows > 0; ok = it.NextRow() {
			if _, all := readRow(it); !all || !bytes.Equal(it.RowKey(), model[from].key) {
				t.Fatalf("row %d", from)
			}
			from, rows = from+1, rows-1
		}
		return f.reads, f.bytes
	}
	perRow := int(r.dataSize()) / int(p.Rows)
	if reads, _ := scan(10, 100); reads < 3 {
		t.Fatalf("the first scan took %d reads", reads)
	}
	for i := range 30 {
		scan(i*100, 100)
	}
	for i := range 30 {
		if reads, n := scan(i*100+13, 100); reads != 1 || n > 100*perRow*5/4+2*DefaultBlockSize {
			t.Fatalf("a scan of %d bytes took %d reads of %d", 100*perRow, reads, n)
		}
	}
	f.bytes = 0
	it := r.NewIterator(IterOptions{})
	if !it.SeekRowExact(model[77].key) || f.bytes > 2*DefaultBlockSize {
		t.Fatalf("a get read %d bytes", f.bytes)
	}
	it.Close()
	for i := range 200 {
		scan(i, 1)
	}
	if reads, n := scan(70, 1); reads != 1 || n > 3*DefaultBlockSize {
		t.Fatalf("a scan of one row took %d reads of %d bytes", reads, n)
	}
	// A scan of the whole file reads ahead farther and farther.
	if reads, _ := scan(0, len(model)); reads > int(r.dataSize()/firstReadAhead) {
		t.Fatalf("%d reads of a file of %d bytes", reads, r.dataSize())
	}
}

func TestReadersOfOneSmallCacheDoNotDisturbEachOther(t *testing.T) {
	rng := rand.New(rand.NewPCG(21, 4))
	c := NewBlockCache(cache.Options{Capacity: 4 << 20, Memory: offheaptest.New(t)})
	c.Reserve(4<<20 - 20_000) // what is left is shared by two shards
	var models []modelTable
	var readers []*Reader
	for range 3 {
		model := randomTable(rng, 60, 50)
		f := &memFile{}
		model.write(t, f, WriterOptions{BlockSize: 700, Compression: CompressS2})
		models, readers = append(models, model), append(readers, openFile(t, f, c))
		readers[len(readers)-1].file = quietFile{f}
	}
	var wait sync.WaitGroup
	errs := make(chan error, 8)
	for i := range 6 {
		wait.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(i), 9))
			it := readers[i%3].NewIterator(IterOptions{NoCacheFill: i == 5})
			defer it.Close()
			if err := models[i%3].walkRandomly(rng, it, 400); err != nil {
				errs <- fmt.Errorf("reader %d: %w", i, err)
			}
		})
	}
	wait.Wait()
	close(errs)
	for err := range errs {
		t.Error(err)
	}
}

// quietFile is a memFile that counts no reads, for concurrent use.
type quietFile struct{ *memFile }

func (f quietFile) ReadAt(p []byte, off int64) (int, error) {
	return bytes.NewReader(f.data).ReadAt(p, off)
}
