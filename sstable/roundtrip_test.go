package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// walkRandomly moves an iterator and a position in the model alike, and reports the first
// difference.
func (t modelTable) walkRandomly(rng *rand.Rand, it *Iterator, steps int) error {
	at, on := 0, false
	for range steps {
		key := t[rng.IntN(len(t))].key
		switch rng.IntN(3) {
		case 0: // a neighbour of a key
			key = append(bytes.Clone(key), byte(rng.IntN(256)))
		case 1:
			key = key[:rng.IntN(len(key)+1)]
		}
		var move string
		var got, want bool
		n := 8
		if on {
			n = 14
		}
		switch k := rng.IntN(n); {
		case k == 0:
			move, got, at = "First", it.First(), 0
		case k == 1:
			move, got, at = "Last", it.Last(), len(t)-1
		case k < 4:
			move, got, at = fmt.Sprintf("SeekRow(%q)", key), it.SeekRow(key), t.seek(key)
		case k < 6:
			move, got, at = fmt.Sprintf("SeekRowBefore(%q)", key), it.SeekRowBefore(key), t.seek(key)-1
		case k < 8:
			move, got, at = fmt.Sprintf("SeekRowExact(%q)", key), it.SeekRowExact(key), t.seek(key)
			if at < len(t) && !bytes.Equal(t[at].key, key) {
				at = len(t)
			}
		case k < 11:
			move, got, at = "NextRow", it.NextRow(), at+1
		default:
			move, got, at = "PrevRow", it.PrevRow(), at-1
		}
		want = at >= 0 && at < len(t)
		if got != want {
			return fmt.Errorf("%s = %t, want %t: %v", move, got, want, it.Error())
		}
		if on = got; !on {
			continue
		}
		if !bytes.Equal(it.RowKey(), t[at].key) {
			return fmt.Errorf("%s: row %q, want %q", move, it.RowKey(), t[at].key)
		}
		if err := walkCells(rng, it, &t[at]); err != nil {
			return fmt.Errorf("%s: row %q: %w", move, it.RowKey(), err)
		}
	}
	return it.Error()
}

// walkCells moves the cell cursor a few times at random.
func walkCells(rng *rand.Rand, it *Iterator, r *modelRow) error {
	for range rng.IntN(4) {
		at := 0
		move, got := "FirstCell", false
		if rng.IntN(4) == 0 {
			got = it.FirstCell()
		} else {
			c := r.cells[rng.IntN(len(r.cells))]
			column, version := c.Column, c.Version
			switch rng.IntN(6) {
			case 0:
				column = append(bytes.Clone(column), '0')
			case 1:
				version = row.MaxVersion
			case 2:
				version += rng.Int64N(3) - 1
			case 3:
				column = nil
			}
			move = fmt.Sprintf("SeekCell(%q, %d)", column, version)
			got, at = it.SeekCell(column, version), r.seek(column, version)
		}
		want := r.cells[at:]
		if n := rng.IntN(5); n < len(want) && rng.IntN(3) > 0 {
			for i := range n {
				if !got || !sameCell(it.Cell(), &want[i]) {
					return fmt.Errorf("%s: cell %d is %s, want %s (%v)", move, i, it.Cell(), want[i].String(), it.Error())
				}
				got = it.NextCell()
			}
			continue
		}
		if err := checkCells(it, got, want); err != nil {
			return fmt.Errorf("%s: %w", move, err)
		}
	}
	return nil
}

func TestAFileAnswersAsThePlainModelDoes(t *testing.T) {
	for seed := range uint64(40) {
		rng := rand.New(rand.NewPCG(seed, 1))
		model := randomTable(rng, 1+rng.IntN(120), []int{0, 20, 300, 21, 301}[rng.IntN(5)])
		opts := WriterOptions{
			BlockSize:        []int{64, 200, 1000, 8192}[rng.IntN(4)],
			Compression:      Compression(rng.IntN(3)),
			FilterBitsPerKey: float64(rng.IntN(3) * 5),
		}
		f := &memFile{align: []int{1, 512}[rng.IntN(2)]}
		want := model.write(t, f, opts)
		offset := model.shift(rng)
		want.SmallestSeq, want.LargestSeq = want.SmallestSeq+offset, want.LargestSeq+offset
		if want.NewestTombstone > 0 {
			want.NewestTombstone += offset
		}
		var c *BlockCache
		if rng.IntN(3) > 0 {
			c = NewBlockCache(cache.Options{Capacity: int64(rng.IntN(200_000)), Memory: offheaptest.New(t)})
		}
		r, err := Open(f, ReaderOptions{
			FileName: "000001.sst", Cache: c, Mapped: rng.IntN(2) == 0, Elapsed: jumpyClock(rng.Uint64()),
			SeqOffset: offset,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(nil); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		it := r.NewIterator(IterOptions{NoCacheFill: rng.IntN(2) == 0})
		if err := model.checkAll(it); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := model.walkRandomly(rng, it, 300); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
		for i := range model {
			if !r.MayContain(Hash(model[i].key)) {
				t.Fatalf("seed %d: filter denies %q", seed, model[i].key)
			}
		}
		checksum, err := r.Checksum()
		if err != nil || checksum != want.FileChecksum {
			t.Fatalf("seed %d: checksum %x, want %x (%v)", seed, checksum, want.FileChecksum, err)
		}
		got := *r.Properties()
		got.FileChecksum = want.FileChecksum
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("seed %d: properties\n%+v, want\n%+v", seed, got, want)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
		if c != nil {
			if s := c.Stats(); s.Blocks != 0 {
				t.Fatalf("seed %d: %d blocks in the cache after Close", seed, s.Blocks)
			}
		}
	}
}

func TestAnEmptyFileHasNoRows(t *testing.T) {
	f := &memFile{}
	modelTable{}.write(t, f, WriterOptions{FilterBitsPerKey: 10})
	r := openFile(t, f, nil)
	it := r.NewIterator(IterOptions{})
	if it.First() || it.Last() || it.SeekRow([]byte("a")) || it.SeekRowBefore([]byte("a")) || it.SeekRowExact([]byte("a")) {
		t.Fatal("a row in an empty file")
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(nil); err != nil {
		t.Fatal(err)
	}
	if r.offsetOf([]byte("a")) != 0 || r.dataSize() != 0 {
		t.Fatal("an empty file has data")
	}
}

func put(column string, version int64, seq uint64, value []byte) row.Cell {
	return row.Cell{Column: []byte(column), Version: version, Seq: seq, Kind: row.KindPut, Type: row.TypeBinary, Value: value}
}

func TestALargeValueHasABlockForItself(t *testing.T) {
	large := make([]byte, 5<<20)
	for i := range large {
		large[i] = byte(i * i >> 7)
	}
	model := modelTable{
		{[]byte("a"), []row.Cell{put("x", 1, 1, []byte("small"))}},
		{[]byte("b"), []row.Cell{
			{Kind: row.KindRowMarker, Version: 5, Seq: 2},
			put("l", 5, 2, large), put("m", 5, 2, []byte("after")), put("n", 5, 2, large[:3<<20]),
		}},
		{[]byte("c"), []row.Cell{put("x", 1, 3, []byte("small"))}},
	}
	for _, compression := range []Compression{CompressNone, CompressS2, CompressZstd} {
		f := &memFile{}
		model.write(t, f, WriterOptions{Compression: compression})
		r := openFile(t, f, NewBlockCache(cache.Options{Capacity: 1 << 20}))
		it := r.NewIterator(IterOptions{})
		if err := model.checkAll(it); err != nil {
			t.Fatalf("%s: %v", compression, err)
		}
		if err := r.Verify(nil); err != nil {
			t.Fatalf("%s: %v", compression, err)
		}
		if err := it.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOneColumnOfALongRowTouchesFewBlocks(t *testing.T) {
	const columns = 50_000
	cells := []row.Cell{{Kind: row.KindRowMarker, Version: 9, Seq: 1}}
	for i := range columns {
		cells = append(cells, put(fmt.Sprintf("column%06d", i), 9, 1, []byte("0123456789")))
	}
	model := modelTable{
		{[]byte("a"), cells[:2]},
		{[]byte("b"), cells},
		{[]byte("c"), cells[:2]},
	}
	f := &memFile{}
	model.write(t, f, WriterOptions{})
	r := openFile(t, f, nil)
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	if !it.SeekRowExact([]byte("b")) {
		t.Fatal(it.Error())
	}
	f.reads = 0
	for _, i := range []int{0, 777, 25_000, columns - 1} {
		if !it.SeekCell(cells[1+i].Column, row.MaxVersion) || !sameCell(it.Cell(), &cells[1+i]) {
			t.Fatalf("column %d: %s, %v", i, it.Cell(), it.Error())
		}
	}
	if !it.NextRow() || string(it.RowKey()) != "c" {
		t.Fatalf("row %q after the long row, %v", it.RowKey(), it.Error())
	}
	for range 2 {
		if !it.PrevRow() {
			t.Fatal(it.Error())
		}
	}
	if string(it.RowKey()) != "a" {
		t.Fatalf("row %q before the long row, %v", it.RowKey(), it.Error())
	}
	if f.reads > 10 {
		t.Fatalf("%d reads", f.reads)
	}
}

func TestADirectFileIsWrittenAndReadInWholeBlocks(t *testing.T) {
	fs := vfs.NewSim(vfs.SimOptions{BlockSize: 4096})
	rng := rand.New(rand.NewPCG(7, 7))
	model := randomTable(rng, 500, 300)
	f, err := fs.Create("1.sst", vfs.OpenOptions{Direct: true})
	if err != nil {
		t.Fatal(err)
	}
	w := NewWriter(f, WriterOptions{UniqueID: testID, FilterBitsPerKey: 10})
	for i := range model {
		if err := w.StartRow(model[i].key); err != nil {
			t.Fatal(err)
		}
		for j := range model[i].cells {
			if err := w.AddCell(&model[i].cells[j]); err != nil {
				t.Fatal(err)
			}
		}
	}
	if _, err := w.Finish(); err != nil {
		t.Fatal(err)
	}
	r, err := Open(f, ReaderOptions{FileName: "1.sst"})
	if err != nil {
		t.Fatal(err)
	}
	if r.align != 4096 {
		t.Fatalf("alignment %d", r.align)
	}
	it := r.NewIterator(IterOptions{})
	if err := model.checkAll(it); err != nil {
		t.Fatal(err)
	}
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(nil); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil {
		t.Fatal(err)
	}
}
