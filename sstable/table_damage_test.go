package sstable

// Damage of every kind. Whatever happens to the bytes of a file, a reader gives the right
// answer, or an error that says which file is corrupt.

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strings"
	"testing"

	"github.com/cespare/xxhash/v2"

	"github.com/flagstone-db/flagstone/internal/cache"
	"github.com/flagstone-db/flagstone/internal/offheap/offheaptest"
	"github.com/flagstone-db/flagstone/row"
)

// long turns on the runs that take minutes.
func long() bool { return os.Getenv("FLAGSTONE_LONG") != "" }

const damagedName = "000007.sst"

var compressions = []Compression{CompressNone, CompressS2, CompressZstd}

// damageTable has whole rows, several to a block, and a row of several blocks.
func damageTable() modelTable {
	var t modelTable
	for i := range 12 {
		seq, version := uint64(100+i), int64(1_700_000_000_000+i)
		t = append(t, modelRow{fmt.Appendf(nil, "row%02d", i), []row.Cell{
			{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: seq},
			{Kind: row.KindRowMarker, Version: version, Seq: seq},
			put("address", version, seq, bytes.Repeat([]byte("abc"), 7)),
			put("name", version, seq, fmt.Appendf(nil, "the name of %d", i)),
		}})
	}
	long := &t[5]
	for i := range 20 {
		version := int64(1_700_000_000_000 - i)
		long.cells = append(long.cells, put("zip", version, uint64(300+i), bytes.Repeat([]byte{byte('a' + i)}, 30)))
	}
	return t
}

func damageFile(t *testing.T, compression Compression) (modelTable, []byte) {
	t.Helper()
	table, f := damageTable(), &memFile{}
	table.write(t, f, WriterOptions{Compression: compression, BlockSize: 300, FilterBitsPerKey: 10})
	return table, f.data
}

// expected fails the test unless err is nil or names the damaged file as corrupt.
func expected(t *testing.T, what string, err error) {
	t.Helper()
	if err != nil && (!errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName)) {
		t.Fatalf("%s: %v", what, err)
	}
}

// get reads a row by its key and compares it.
func (r *modelRow) get(reader *Reader, it *Iterator) error {
	if !reader.MayContain(Hash(r.key)) {
		return fmt.Errorf("row %q: the filter denies it", r.key)
	}
	if !it.SeekRowExact(r.key) {
		return fmt.Errorf("row %q is absent: %w", r.key, orEnd(it.Error()))
	}
	return checkCells(it, it.FirstCell(), r.cells)
}

// readEveryWay reads a file in every way and returns the errors of corruption. A wrong answer
// fails the test.
func (table modelTable) readEveryWay(t *testing.T, what string, data []byte) (opened bool, failed []error) {
	t.Helper()
	f := &memFile{data: data}
	r, err := Open(f, ReaderOptions{FileName: damagedName})
	if err != nil {
		expected(t, what, err)
		return false, []error{err}
	}
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	err = table.checkAll(it)
	expected(t, what, err)
	failed = append(failed, err)
	for i := range table {
		err := table[i].get(r, it)
		expected(t, what, err)
		failed = append(failed, err)
		c := &table[i].cells[len(table[i].cells)-1]
		if it.SeekRowExact(table[i].key) && it.SeekCell(c.Column, c.Version) && !sameCell(it.Cell(), c) {
			t.Fatalf("%s: row %q: cell %s, want %s", what, table[i].key, it.Cell(), c)
		}
		expected(t, what, it.Error())
	}
	return true, failed
}

func TestAFlippedByteIsNoticedByWhoeverReadsIt(t *testing.T) {
	for _, compression := range compressions {
		table, data := damageFile(t, compression)
		table.flipEveryByte(t, compression, data)
	}
}

// A damaged byte of a segment fails exactly the rows that have their values there.
func TestAFlippedByteOfASegmentIsNoticedByItsRows(t *testing.T) {
	for _, compression := range compressions {
		table, f := segmentTable(), &memFile{}
		table.write(t, f, WriterOptions{Compression: compression, FilterBitsPerKey: 10})
		intact := openFile(t, &memFile{data: f.data}, nil)
		damaged := bytes.Clone(f.data)
		for at := 0; at < int(intact.footer.dataLength); at += 5 {
			damaged[at] ^= 0x04
			what := fmt.Sprintf("%s: byte %d", compression, at)
			_, failed := table.readEveryWay(t, what, damaged)
			table.onlyItsRowsFail(t, what, intact, int64(at), failed)
			damaged[at] ^= 0x04
		}
	}
}

// flipEveryByte damages each byte of a file in turn, and reads the file.
func (table modelTable) flipEveryByte(t *testing.T, compression Compression, data []byte) {
	intact := openFile(t, &memFile{data: data}, nil)
	if intact.index.blocks == intact.index.groups || intact.index.groups < 4 {
		t.Fatalf("%d groups of %d blocks are no example", intact.index.groups, intact.index.blocks)
	}
	masks := []byte{0x01, 0x80, 0xFF}
	if long() {
		masks = masks[:0]
		for m := 1; m < 256; m++ {
			masks = append(masks, byte(m))
		}
	}
	damaged := bytes.Clone(data)
	for at := range data {
		for _, mask := range masks {
			what := fmt.Sprintf("%s: byte %d ^ %#x", compression, at, mask)
			damaged[at] ^= mask
			opened, failed := table.readEveryWay(t, what, damaged)
			if inData := int64(at) < intact.footer.dataLength; opened != inData {
				t.Fatalf("%s: opened is %t", what, opened)
			} else if inData {
				table.onlyItsRowsFail(t, what, intact, int64(at), failed)
			}
			damaged[at] ^= mask
		}
	}
}

// onlyItsRowsFail checks that damage of one data block fails the whole scan, and otherwise
// only the rows in that block, or in the damaged segment of it.
func (table modelTable) onlyItsRowsFail(t *testing.T, what string, r *Reader, at int64, failed []error) {
	t.Helper()
	if failed[0] == nil {
		t.Fatalf("%s: a scan does not notice", what)
	}
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	for i := range table {
		g := r.index.search(table[i].key)
		from, _ := r.index.blockRange(r.index.firstBlock(g))
		_, to := r.index.blockRange(r.index.firstBlock(g+1) - 1)
		inRow := at >= from && at < to
		if inRow && it.SeekRowExact(table[i].key) && !it.long && at < from+int64(it.blocks.block.partEnd.at(it.blocks.block.data, it.blocks.block.segments-1)) {
			k := it.blocks.block.segmentOf(it.row) // at is not in the head
			inRow = at >= from+int64(it.blocks.block.partEnd.before(it.blocks.block.data, k)) && at < from+int64(it.blocks.block.partEnd.at(it.blocks.block.data, k))
		}
		if inRow != (failed[1+i] != nil) {
			t.Fatalf("%s: row %q in [%d, %d): %v", what, table[i].key, from, to, failed[1+i])
		}
	}
}

func TestAFileThatLostOrGainedBytesIsRefused(t *testing.T) {
	for _, compression := range compressions {
		table, data := damageFile(t, compression)
		refuse := func(what string, damaged []byte) {
			t.Helper()
			if opened, _ := table.readEveryWay(t, what, damaged); opened {
				t.Fatalf("%s: %s opens", compression, what)
			}
		}
		for n := range data {
			refuse(fmt.Sprintf("the first %d bytes", n), data[:n])
			refuse(fmt.Sprintf("the last %d bytes", n), data[len(data)-n:])
		}
		for n := 1; n < 200; n++ {
			refuse(fmt.Sprintf("%d zeros behind", n), append(bytes.Clone(data), make([]byte, n)...))
			refuse(fmt.Sprintf("%d zeros before", n), append(make([]byte, n), data...))
		}
		footer := data[len(data)-footerSize:]
		refuse("its footer twice", append(bytes.Clone(data), footer...))
		refuse("all of it twice", append(bytes.Clone(data), data...))
		refuse("its footer alone", footer)
	}
}

// If a file is cut while a reader has it open, the reader finds blocks missing.
func TestAFileCutAnywhereWhileOpenIsCorrupt(t *testing.T) {
	table, data := damageFile(t, CompressS2)
	for n := range data {
		f := &memFile{data: data}
		r, err := Open(f, ReaderOptions{FileName: damagedName})
		if err != nil {
			t.Fatal(err)
		}
		f.data = data[:n]
		it := r.NewIterator(IterOptions{NoCacheFill: n%2 == 0})
		err = table.checkAll(it)
		expected(t, "cut", err)
		if (err != nil) != (int64(n) < r.footer.dataLength) {
			t.Fatalf("cut to %d bytes: %v", n, err)
		}
		if err := r.Verify(nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: Verify: %v", n, err)
		}
		if _, err := r.Checksum(); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("cut to %d bytes: Checksum: %v", n, err)
		}
		it.Close()
	}
}

// equalLengths makes a file in which all data blocks have the same length.
func equalLengths(t *testing.T, id byte) (modelTable, []byte) {
	t.Helper()
	var table modelTable
	for i := range 10 {
		table = append(table, modelRow{fmt.Appendf(nil, "row%02d", i), []row.Cell{put("c", 7, 9, bytes.Repeat([]byte{byte('a' + i)}, 100))}})
	}
	f := &memFile{}
	table.write(t, f, WriterOptions{BlockSize: 100, UniqueID: [16]byte{id}})
	return table, f.data
}

func TestABlockInTheWrongPlaceIsCorrupt(t *testing.T) {
	table, data := equalLengths(t, 1)
	_, other := equalLengths(t, 2)
	r := openFile(t, &memFile{data: data}, nil)
	length := int(r.index.blockEnd.at(r.index.data, 0))
	if r.index.blocks != len(table) || length*len(table) != int(r.footer.dataLength) {
		t.Fatal("blocks differ in length")
	}
	block := func(data []byte, i int) []byte { return data[i*length : (i+1)*length] }
	for i := range table {
		for j := range table {
			damaged := bytes.Clone(data)
			copy(block(damaged, i), block(data, j))
			copy(block(damaged, j), block(data, i))
			what := fmt.Sprintf("blocks %d and %d swapped", i, j)
			_, failed := table.readEveryWay(t, what, damaged)
			for n := range table {
				if moved := i != j && (n == i || n == j); moved != (failed[1+n] != nil) {
					t.Fatalf("%s: row %d: %v", what, n, failed[1+n])
				}
			}
		}
		damaged := bytes.Clone(data)
		copy(block(damaged, i), block(other, i))
		if _, failed := table.readEveryWay(t, "block of another file", damaged); failed[1+i] == nil {
			t.Fatalf("block %d of a file with another id is taken for this one's", i)
		}
	}
	// All sections of another file, with this one's footer.
	damaged := append(bytes.Clone(other[:len(other)-footerSize]), data[len(data)-footerSize:]...)
	if opened, _ := table.readEveryWay(t, "footer of another file", damaged); opened {
		t.Fatal("the footer of another file is taken for this one's")
	}
}

// resealFooter makes the checksum of a changed footer right.
func resealFooter(data []byte) []byte {
	footer := data[len(data)-footerSize:]
	binary.LittleEndian.PutUint64(footer[64:], xxhash.Sum64(footer[:64]))
	return data
}

func TestAFooterIsRefusedUnlessEveryFieldIsRight(t *testing.T) {
	_, data := damageFile(t, CompressNone)
	for _, c := range []struct {
		what   string
		at     int
		value  byte
		refuse error
	}{
		{"the next version", 60, formatVersion + 1, errVersion},
		{"a version far ahead", 63, 1, errVersion},
		{"version 0", 60, 0, ErrCorrupt},
		{"an unknown index", 56, 3, ErrCorrupt},
		{"an index without bytes of values in a version with them", 56, 1, ErrCorrupt},
		{"an unknown filter", 57, 2, ErrCorrupt},
		{"no filter, of some length", 57, 0, ErrCorrupt},
		{"reserved bits", 58, 1, ErrCorrupt},
		{"reserved bits", 59, 0x80, ErrCorrupt},
		{"another file size", 48, data[len(data)-footerSize+48] + 1, ErrCorrupt},
		{"negative lengths", 23, 0xFF, ErrCorrupt},
		{"data too long", 22, 0x01, ErrCorrupt},
		{"a shorter index", 32, data[len(data)-footerSize+32] - 1, ErrCorrupt},
		{"another id", 0, 'T', ErrCorrupt}, // no block's checksum covers this id
		{"no magic", 72, 'F', ErrCorrupt},
	} {
		damaged := bytes.Clone(data)
		damaged[len(data)-footerSize+c.at] = c.value
		_, err := Open(&memFile{data: resealFooter(damaged)}, ReaderOptions{FileName: damagedName})
		if !errors.Is(err, c.refuse) || !strings.Contains(fmt.Sprint(err), damagedName) ||
			errors.Is(err, ErrCorrupt) == errors.Is(err, errVersion) {
			t.Errorf("%s: %v, want %v", c.what, err, c.refuse)
		}
	}
}

func TestAFileThatTheManifestDoesNotMeanIsRefused(t *testing.T) {
	_, data := damageFile(t, CompressNone)
	for _, opts := range []ReaderOptions{
		{FileSize: int64(len(data)) + 1},
		{FileSize: int64(len(data)) - 1},
		{UniqueID: [16]byte{1}},
		{FileSize: int64(len(data)), UniqueID: [16]byte{15: 1}},
	} {
		opts.FileName = damagedName
		if _, err := Open(&memFile{data: data}, opts); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName) {
			t.Errorf("%+v: %v", opts, err)
		}
	}
	if _, err := Open(&memFile{data: data}, ReaderOptions{FileSize: int64(len(data)), UniqueID: testID}); err != nil {
		t.Error(err)
	}
}

var errPlanted = errors.New("planted")

// badSector is a file in which the bytes [from, to) cannot be read.
type badSector struct {
	memFile
	from, to int64
	err      error // nil: errPlanted
}

func (f *badSector) ReadAt(p []byte, off int64) (int, error) {
	if off < f.to && off+int64(len(p)) > f.from {
		n, _ := f.memFile.ReadAt(p[:max(f.from-off, 0)], off)
		return n, cmp.Or(f.err, errPlanted)
	}
	return f.memFile.ReadAt(p, off)
}

// Read-ahead must not carry the fault of a block over to its neighbours, and the iterator
// must be usable after it.
func TestAPlaceThatCannotBeReadFailsItsRowsAndNoOthers(t *testing.T) {
	table, data := damageFile(t, CompressS2)
	for _, open := range []func(*Reader) *Iterator{
		(*Reader).blockByBlock,
		func(r *Reader) *Iterator { return r.NewIterator(IterOptions{}) },
		func(r *Reader) *Iterator { return r.NewIterator(IterOptions{NoCacheFill: true}) },
	} {
		for _, blocks := range []*BlockCache{nil, NewBlockCache(cache.Options{Capacity: 1 << 20, Memory: offheaptest.New(t)})} {
			for at := int64(0); at < openFile(t, &memFile{data: data}, nil).footer.dataLength; at += 17 {
				f := &badSector{memFile: memFile{data: data}, from: at, to: at + 1}
				r, err := Open(f, ReaderOptions{FileName: damagedName, Cache: blocks})
				if err != nil {
					t.Fatal(err)
				}
				table.scanAround(t, r, open(r), at)
				if err := r.Verify(nil); !errors.Is(err, errPlanted) || errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName) {
					t.Fatalf("Verify: %v", err)
				}
				if err := r.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
}

// scanAround scans a file with an unreadable byte, and goes on after the rows of its block.
func (table modelTable) scanAround(t *testing.T, r *Reader, it *Iterator, at int64) {
	t.Helper()
	failed := 0
	ok := it.First()
	for i := range table {
		g := r.index.search(table[i].key)
		from, _ := r.index.blockRange(r.index.firstBlock(g))
		_, to := r.index.blockRange(r.index.firstBlock(g+1) - 1)
		err := error(nil)
		if ok {
			err = checkCells(it, it.FirstCell(), table[i].cells)
		} else {
			err = orEnd(it.Error())
		}
		if bad := at >= from && at < to; bad != (err != nil) || bad && !errors.Is(err, errPlanted) {
			t.Fatalf("%+v: byte %d: row %q in [%d, %d): %v", it.blocks.opts, at, table[i].key, from, to, err)
		}
		if err == nil {
			ok = it.NextRow()
			continue
		}
		failed++
		if it.NextRow() || it.PrevRow() || it.FirstCell() || it.NextCell() || it.SeekCell(nil, 0) || it.Error() == nil {
			t.Fatalf("the iterator moves on after %v", err)
		}
		if i+1 < len(table) {
			ok = it.SeekRow(table[i+1].key)
		}
	}
	if failed == 0 {
		t.Fatalf("byte %d was never read", at)
	}
	if err := it.Close(); err != nil {
		t.Fatalf("Close repeats an error of a movement: %v", err)
	}
}

// shortReads returns half of the bytes that are requested.
type shortReads struct {
	memFile
	err error
}

func (f *shortReads) ReadAt(p []byte, off int64) (int, error) {
	n, _ := f.memFile.ReadAt(p[:len(p)/2], off)
	return n, f.err
}

func TestAShortReadIsNeverTakenForAWholeOne(t *testing.T) {
	_, data := damageFile(t, CompressNone)
	for _, cause := range []error{nil, io.EOF, io.ErrUnexpectedEOF, errPlanted} {
		_, err := Open(&shortReads{memFile{data: data}, cause}, ReaderOptions{FileName: damagedName})
		if want := cause; want != errPlanted && !errors.Is(err, ErrCorrupt) || want == errPlanted && !errors.Is(err, errPlanted) {
			t.Errorf("%v gives %v", cause, err)
		}
	}
}

// Open may have read index, filter and footer long ago.
func TestVerifyReadsAgainWhatOpenHasRead(t *testing.T) {
	_, data := damageFile(t, CompressS2)
	for at := range data {
		f := &memFile{data: bytes.Clone(data)}
		r := openFile(t, f, NewBlockCache(cache.Options{Capacity: 1 << 20}))
		it := r.NewIterator(IterOptions{})
		for ok := it.First(); ok; ok = it.NextRow() { // every block is in the cache
			it.FirstCell()
		}
		it.Close()
		f.data[at] ^= 0x10
		if err := r.Verify(nil); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("byte %d: %v", at, err)
		}
		if sum, err := r.Checksum(); err != nil || sum == xxhash.Sum64(data) {
			t.Fatalf("byte %d: checksum %x, %v", at, sum, err)
		}
		if err := r.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func TestAClosedIteratorPinsNothing(t *testing.T) {
	table, data := damageFile(t, CompressS2)
	r := openFile(t, &memFile{data: data}, NewBlockCache(cache.Options{Capacity: 1 << 20, Memory: offheaptest.New(t)}))
	it := r.NewIterator(IterOptions{})
	if !it.SeekRowExact(table[0].key) || !it.SeekCell([]byte("name"), row.MaxVersion) {
		t.Fatal(it.Error())
	}
	value := it.Cell().Value
	if err := it.Close(); err != nil {
		t.Fatal(err)
	}
	if err := r.Close(); err != nil { // evicts blocks, and reuses the memory of those that are not pinned
		t.Fatal(err)
	}
	if !offheaptest.Freed(value) {
		t.Fatal("the block of a closed iterator of a closed reader was not recycled")
	}
}

func TestRandomBytesAreRefused(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	for n := range 400 {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(rng.Uint32())
		}
		if n >= 8 {
			copy(data[n-8:], magic)
		}
		if _, err := Open(&memFile{data: data}, ReaderOptions{FileName: damagedName}); !errors.Is(err, ErrCorrupt) {
			t.Fatalf("%d random bytes: %v", n, err)
		}
	}
}

// TestAFooterCannotAskForMuchMemory reads a footer by which nearly all of a large file is the filter.
func TestAFooterCannotAskForMuchMemory(t *testing.T) {
	const size, section = int64(3 << 30), 1000
	b := make([]byte, footerSize)
	b[0] = 1
	for at, n := range map[int]int64{24: size - footerSize - 2*section, 32: section, 40: section, 48: size} {
		binary.LittleEndian.PutUint64(b[at:], uint64(n))
	}
	b[56], b[57] = indexOneLevel, filterBlockedBloom
	binary.LittleEndian.PutUint32(b[60:], 1)
	binary.LittleEndian.PutUint64(b[64:], xxhash.Sum64(b[:64]))
	copy(b[72:], magic)
	if _, err := new(fileBytes).parseFooter(b, size); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "larger than any") {
		t.Error(err)
	}
}
