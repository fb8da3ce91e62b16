package sstable

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
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

// reseal makes the checksums of a damaged file right again, as far as its footer leads to
// blocks, so that the fuzzer gets past them.
func reseal(data []byte) {
	if len(data) < footerSize {
		return
	}
	end := data[len(data)-footerSize:]
	binary.LittleEndian.PutUint64(end[48:], uint64(len(data)))
	copy(end[72:], magic)
	binary.LittleEndian.PutUint64(end[64:], xxhash.Sum64(end[:64]))
	foot, err := new(fileBytes).parseFooter(end, int64(len(data)))
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
	r := &Reader{fileBytes: fileBytes{file: &memFile{data: data}, align: 1}}
	if r.readTail(int64(len(data)), false) != nil {
		return
	}
	for i := range r.index.blocks {
		from, to := r.index.blockRange(i)
		if foot.version >= versionSegments {
			sealSegments(data[from:to], from, seal)
		} else {
			seal(from, to)
		}
	}
}

// sealSegments seals the parts of a block, as far as its head leads to them.
func sealSegments(block []byte, from int64, seal func(from, to int64)) {
	head, at, bad := headOf(block)
	if bad != "" || len(head) < trailerSize {
		return
	}
	seal(from+int64(at), from+int64(at+len(head)))
	stored, bad := splitStored(head, maxRawBlock)
	if bad != "" || stored.raw > 1<<20 {
		return
	}
	raw, s, b := make([]byte, stored.raw), takeScratch(), dataBlock{}
	defer s.give()
	if s.expand(raw, stored) != "" || b.parse(raw, at) != "" {
		return
	}
	for k := range b.segments {
		seal(from+int64(b.partEnd.before(raw, k)), from+int64(b.partEnd.at(raw, k)))
	}
}

// exercise moves an iterator in every way. For any file, it must not panic, and it must end.
func exercise(r *Reader) error {
	it := r.blockByBlock()
	defer it.Close()
	rows := 0
	for ok := it.First(); ok; ok = it.NextRow() {
		rows++
		key := bytes.Clone(it.RowKey())
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			_ = it.Cell().String()
		}
		if _, ok := it.Extent(row.Ask{}, new(row.Extent)); ok {
			it.Collect(new(row.Collector), &row.Projection{})
			it.Collect(new(row.Collector), &row.Projection{Columns: [][]byte{[]byte("c1"), []byte("c2")}, End: []byte("c3")})
		}
		it.SeekCell([]byte("c1"), 1_700_000_000_000)
		it.SeekCell(nil, 0)
		r.MayContain(Hash(key))
		r.offsetOf(key)
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
	r.WalkIndex(nil, nil, func([]byte, int64) int64 { return 0 })
	return nil
}

func FuzzReader(f *testing.F) {
	for _, file := range fuzzFiles(f) {
		f.Add(file, false)
		f.Add(file, true)
		f.Add(file[:len(file)/2], true)
	}
	for _, g := range goldenFiles {
		f.Add(readGolden(f, g.name), true)
	}
	f.Fuzz(func(t *testing.T, data []byte, resealed bool) {
		data = bytes.Clone(data)
		if resealed {
			reseal(data)
		}
		r, err := Open(&memFile{data: data}, ReaderOptions{FileName: "f"})
		if err != nil {
			if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errVersion) {
				t.Fatal(err)
			}
			return
		}
		if err := exercise(r); err != nil {
			t.Fatal(err)
		}
		if err := r.Verify(nil); err != nil && !errors.Is(err, ErrCorrupt) {
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
				f.Add(bytes.Clone(it.blocks.block.data), int(it.blocks.block.partEnd.at(it.blocks.block.data, it.blocks.block.segments-1)))
			}
		}
	}
	for _, block := range oldBlocks(f) {
		f.Add(block, -1)
	}
	f.Fuzz(func(t *testing.T, data []byte, at int) {
		var b dataBlock
		bad := ""
		if at < 0 {
			bad = b.parse(data, wholeBlock)
		} else {
			bad = b.parse(data, at)
		}
		if bad != "" {
			return
		}
		var c row.Cell
		values := b.valuesBefore(b.rows)
		if b.segments == 0 && values != len(b.data[b.valuesFrom:]) {
			t.Fatalf("%d bytes of values, ends say %d", len(b.data[b.valuesFrom:]), values)
		}
		for i := range b.rows {
			b.searchRow(b.appendKey(nil, i))
			low, high, first := b.cellsBefore(i), b.cellsEnd(i), b.stampsBefore(i)
			rowFrom, rowTo := b.valuesBefore(i), b.valuesBefore(i+1)
			if b.segments > 0 {
				if k := b.segmentOf(i); k >= b.segments || b.rowEnd.before(b.data, k) > i {
					t.Fatalf("row %d in segment %d", i, k)
				}
			}
			for at := low; at < high; at++ {
				from, to := b.cell(&c, at, first)
				if from < rowFrom || from > to || to > rowTo || rowTo > values {
					t.Fatalf("value [%d, %d) of a row at [%d, %d) of %d", from, to, rowFrom, rowTo, values)
				}
				if to > from && c.Kind != row.KindPut {
					t.Fatalf("%s with a value", c.Kind)
				}
				if n := b.searchCell(low, high, first, c.Column, c.Version); n < low || n > high {
					t.Fatalf("cell %d is not one of %d to %d", n, low, high)
				}
			}
		}
	})
}

// oldBlocks are the raw blocks of the golden files of versions without segments.
func oldBlocks(tb testing.TB) (blocks [][]byte) {
	for _, g := range goldenFiles {
		if strings.HasPrefix(g.name, presentVersion) {
			continue
		}
		r := openFile(tb, &memFile{data: readGolden(tb, g.name)}, nil)
		it := r.NewIterator(IterOptions{})
		for i := range r.index.groups {
			if !it.load(i, r.index.firstBlock(i)) {
				tb.Fatal(it.Error())
			}
			blocks = append(blocks, bytes.Clone(it.blocks.block.data))
		}
	}
	return blocks
}
