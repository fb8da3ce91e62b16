package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/row"
)

// fuzzFiles are small valid files of every kind.
func fuzzFiles(f *testing.F) [][]byte {
	var files [][]byte
	for i, model := range []modelTable{
		{}, exampleTable(),
		randomTable(rand.New(rand.NewPCG(3, 14)), 25, 10),
		randomTable(rand.New(rand.NewPCG(5, 5)), 8, 40),
		randomTable(rand.New(rand.NewPCG(7, 7)), 8, 41), // with references
	} {
		for compression := range CompressZstd + 1 {
			file := &memFile{}
			model.write(f, file, WriterOptions{BlockSize: 64 << (i + 1), Compression: compression, FilterBitsPerKey: float64(5 * i)})
			files = append(files, file.data)
		}
	}
	return files
}

// reseal makes the checksums of a damaged file right again, as far as its
// footer leads to blocks, so that fuzzing gets past them.
func reseal(data []byte) {
	if len(data) < footerSize {
		return
	}
	end := data[len(data)-footerSize:]
	binary.LittleEndian.PutUint64(end[48:], uint64(len(data)))
	copy(end[72:], magic)
	binary.LittleEndian.PutUint64(end[64:], xxhash.Sum64(end[:64]))
	foot, err := parseFooter(end, "", int64(len(data)))
	if err != nil {
		return
	}
	seal := func(from, to int64) {
		stored := data[from:to]
		n := len(stored) - trailerSize
		binary.LittleEndian.PutUint64(stored[n+1:], blockChecksum(stored[:n+1], &foot.uniqueID, from))
	}
	at := foot.dataLength
	for _, length := range []int64{foot.filterLength, foot.indexLength, foot.propertiesLength} {
		if length > 0 {
			seal(at, at+length)
		}
		at += length
	}
	r := &Reader{file: &memFile{data: data}, align: 1}
	if r.readTail(int64(len(data))) != nil {
		return
	}
	for i := range r.index.blocks {
		seal(r.index.blockRange(i))
	}
}

// exercise moves an iterator in every way. The file may be anything; it must
// neither panic nor run for ever.
func exercise(r *Reader) error {
	it := r.NewIterator(IterOptions{ReadAhead: -1})
	defer it.Close()
	rows := 0
	for ok := it.First(); ok; ok = it.NextRow() {
		rows++
		key := bytes.Clone(it.RowKey())
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			_ = it.Cell().String()
		}
		if it.Extent(new(row.Extent)) {
			it.Collect(new(row.Collector), &row.Projection{})
			it.Collect(new(row.Collector), &row.Projection{Columns: [][]byte{[]byte("c1"), []byte("c2")}, End: []byte("c3")})
		}
		it.SeekCell([]byte("c1"), 1_700_000_000_000)
		it.SeekCell(nil, 0)
		r.MayContain(Hash(key))
		r.OffsetOf(key)
	}
	err := it.Error()
	for ok := it.Last(); ok; ok = it.PrevRow() {
		rows--
	}
	if err == nil && it.Error() == nil && rows != 0 {
		return errors.New("rows forward and backward differ in number")
	}
	for _, key := range []string{"", "\x20a", "\x20alice", "\x20b\xff"} {
		it.SeekRow([]byte(key))
		it.SeekRowBefore([]byte(key))
		it.SeekRowExact([]byte(key))
	}
	r.WalkIndex(0, func([]byte, int64) bool { return true })
	return nil
}

func FuzzReader(f *testing.F) {
	for _, file := range fuzzFiles(f) {
		f.Add(file, false)
		f.Add(file, true)
		f.Add(file[:len(file)/2], true)
	}
	f.Fuzz(func(t *testing.T, data []byte, resealed bool) {
		data = bytes.Clone(data)
		if resealed {
			reseal(data)
		}
		r, err := Open(&memFile{data: data}, ReaderOptions{FileName: "f"})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, ErrVersion) {
				t.Fatal(err)
			}
			return
		}
		if err := exercise(r); err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(); err != nil && !errors.Is(err, ErrCorrupt) {
			t.Fatal(err)
		}
	})
}

func FuzzBlock(f *testing.F) {
	for _, file := range fuzzFiles(f) {
		r := openFile(f, &memFile{data: file}, nil)
		it := r.NewIterator(IterOptions{})
		for g := range r.index.groups {
			for i := r.index.firstBlock(g); i < r.index.firstBlock(g+1); i++ {
				if !it.load(g, i) {
					f.Fatal(it.Error())
				}
				f.Add(bytes.Clone(it.block.data))
			}
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var b dataBlock
		if b.parse(data) != "" {
			return
		}
		var c row.Cell
		for i := range b.rows {
			b.searchRow(b.appendKey(nil, i))
			low, high, first := b.cellsBefore(i), b.cellsEnd(i), b.stampsBefore(i)
			for at := low; at < high; at++ {
				b.cell(&c, at, first)
				if len(c.Value) > 0 && c.Kind != row.KindPut {
					t.Fatalf("%s with a value", c.Kind)
				}
				if n := b.searchCell(low, high, first, c.Column, c.Version); n < low || n > high {
					t.Fatalf("cell %d is not one of %d to %d", n, low, high)
				}
			}
		}
	})
}
