package sstable

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"sort"
	"testing"

	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// memFile is a file in memory, with an alignment of 1 or more that it enforces.
type memFile struct {
	data  []byte
	align int
	reads int
	bytes int   // read
	fail  error // of reads
}

func (f *memFile) Map(size int64) (*vfs.Mapping, error) {
	return vfs.NewMapping("memory", f.data[:size]), nil
}
func (f *memFile) Alignment() int { return max(f.align, 1) }

func (f *memFile) aligned(n int, off int64) bool {
	return n%f.Alignment() == 0 && off%int64(f.Alignment()) == 0
}

func (f *memFile) ReadAt(p []byte, off int64) (int, error) {
	f.reads++
	if f.fail != nil {
		return 0, f.fail
	}
	if !f.aligned(len(p), off) {
		return 0, errors.New("memFile: unaligned read")
	}
	if off >= int64(len(f.data)) {
		return 0, io.EOF
	}
	n := copy(p, f.data[off:])
	f.bytes += n
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (f *memFile) Write(p []byte) (int, error) {
	if !f.aligned(len(p), int64(len(f.data))) {
		return 0, errors.New("memFile: unaligned write")
	}
	f.data = append(f.data, p...)
	return len(p), nil
}

func (f *memFile) WriteAt(p []byte, off int64) (int, error) { return 0, errors.ErrUnsupported }
func (f *memFile) Truncate(size int64) error                { f.data = f.data[:size]; return nil }
func (f *memFile) WillNeed(int64, int64)                    {}
func (f *memFile) Preallocate(int64) error                  { return nil }
func (f *memFile) Sync() error                              { return nil }
func (f *memFile) SyncData() error                          { return nil }
func (f *memFile) Size() (int64, error)                     { return int64(len(f.data)), nil }
func (f *memFile) Close() error                             { return nil }

// modelRow is a row as plain data, its cells in cell order.
type modelRow struct {
	key   []byte
	cells []row.Cell
}

// modelTable is a table as plain data, its rows in key order. Files are compared with it.
type modelTable []modelRow

func (t modelTable) seek(key []byte) int {
	return sort.Search(len(t), func(i int) bool { return bytes.Compare(t[i].key, key) >= 0 })
}

func (r *modelRow) seek(column []byte, version int64) int {
	return sort.Search(len(r.cells), func(i int) bool {
		c := bytes.Compare(r.cells[i].Column, column)
		return c > 0 || c == 0 && r.cells[i].Version <= version
	})
}

var testID = [16]byte{'t', 'e', 's', 't', ' ', 'f', 'i', 'l', 'e', ' ', 'i', 'd', 1, 2, 3, 4}

// write makes a file of a model.
func (t modelTable) write(tb testing.TB, f *memFile, opts WriterOptions) Properties {
	tb.Helper()
	if opts.UniqueID == [16]byte{} {
		opts.UniqueID = testID
	}
	w := NewWriter(f, opts)
	for i := range t {
		if err := w.StartRow(t[i].key); err != nil {
			tb.Fatal(err)
		}
		for j := range t[i].cells {
			if err := w.AddCell(&t[i].cells[j]); err != nil {
				tb.Fatal(err)
			}
		}
	}
	p, err := w.Finish()
	if err != nil {
		tb.Fatal(err)
	}
	if p.FileSize != int64(len(f.data)) {
		tb.Fatalf("Finish says %d bytes, the file has %d", p.FileSize, len(f.data))
	}
	return p
}

func openFile(tb testing.TB, f *memFile, c *BlockCache) *Reader {
	tb.Helper()
	return openShifted(tb, f, c, 0)
}

// shift makes the sequence numbers those of a reader with an offset, which it returns.
func (t modelTable) shift(rng *rand.Rand) (offset uint64) {
	offset = rng.Uint64N(2) * rng.Uint64N(1<<40)
	for i := range t {
		t[i].cells = slices.Clone(t[i].cells)
		for j := range t[i].cells {
			t[i].cells[j].Seq += offset
		}
	}
	return offset
}

// openShifted is openFile with an offset of the sequence numbers.
func openShifted(tb testing.TB, f *memFile, c *BlockCache, offset uint64) *Reader {
	tb.Helper()
	r, err := Open(f, ReaderOptions{FileName: "000001.sst", Cache: c, SeqOffset: offset})
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// randomCells makes the cells of one row: mostly what one PutRow leaves, otherwise any legal
// cells.
func randomCells(rng *rand.Rand, columns, maxCells, maxValue int) []row.Cell {
	base, version := rng.Uint64N(1<<40), int64(1_700_000_000_000+rng.Int64N(1_000_000))
	value := func(c *row.Cell) {
		c.Kind = row.KindPut
		if maxValue > 0 && maxValue%2 == 1 && rng.IntN(4) == 0 { // odd sizes ask for references
			ref := row.Reference{
				File: 1 + rng.Uint64N(4), Offset: rng.Uint64N(1 << 40), Stored: 1 + rng.Uint32N(6<<20),
				Raw: rng.Uint32N(8 << 20), Checksum: rng.Uint64(),
			}
			c.Type, c.Separate, c.Value = row.TypeBinary, true, ref.Append(nil)
			return
		}
		switch c.Type = row.Type(1 + rng.IntN(5)); c.Type {
		case row.TypeInteger, row.TypeDouble:
			c.Value = make([]byte, 8)
			c.Value[rng.IntN(8)] = byte(rng.Uint32())
		case row.TypeBoolean:
			c.Value = []byte{byte(rng.IntN(2))}
		default:
			c.Value = bytes.Repeat([]byte{byte('a' + rng.IntN(26))}, rng.IntN(maxValue+1))
			for i := range c.Value {
				if rng.IntN(3) == 0 {
					c.Value[i] = byte(rng.Uint32())
				}
			}
		}
	}
	column := func() []byte { return fmt.Appendf(nil, "c%0*d", 1+rng.IntN(2), rng.IntN(columns)) }
	var cells []row.Cell
	simple := rng.IntN(3) > 0
	if simple {
		if rng.IntN(2) == 0 {
			cells = append(cells, row.Cell{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: base})
		}
		marker := version
		if rng.IntN(4) == 0 {
			marker = row.MaxVersion
		}
		if rng.IntN(5) > 0 || len(cells) == 0 {
			cells = append(cells, row.Cell{Kind: row.KindRowMarker, Version: marker, Seq: base})
		}
	}
	for range rng.IntN(maxCells) + 1 {
		c := row.Cell{Column: column(), Version: version, Seq: base}
		if !simple {
			c.Version -= rng.Int64N(4)
			c.Seq += rng.Uint64N(4)
			switch rng.IntN(8) {
			case 0:
				c = row.Cell{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: c.Seq}
			case 1:
				c.Kind, c.Column = row.KindRowMarker, nil
				if rng.IntN(2) == 0 {
					c.Version = row.MaxVersion
				}
			case 2:
				c.Kind = row.KindTrim
				if rng.IntN(2) == 0 {
					c.Version = row.MaxVersion
				}
			case 3:
				c.Kind = row.KindDeleteVersion
			default:
				value(&c)
			}
		} else {
			value(&c)
		}
		cells = append(cells, c)
	}
	slices.SortStableFunc(cells, func(a, b row.Cell) int { return row.CompareCells(&a, &b) })
	return slices.CompactFunc(cells, func(a, b row.Cell) bool { return row.CompareCells(&a, &b) == 0 })
}

// randomTable makes rows with keys that share prefixes of any length. One row in ten is long.
func randomTable(rng *rand.Rand, rows, maxValue int) modelTable {
	var t modelTable
	seen := map[string]bool{}
	for len(t) < rows {
		key := []byte{0x20}
		for range 1 + rng.IntN(4) {
			key = append(key, bytes.Repeat([]byte{byte('a' + rng.IntN(3))}, 1+rng.IntN(5))...)
		}
		if rng.IntN(2) == 0 {
			key = append(key, byte(rng.Uint32()), byte(rng.Uint32()))
		}
		if seen[string(key)] {
			continue
		}
		seen[string(key)] = true
		columns, cells := 12, 8
		if rng.IntN(10) == 0 {
			columns, cells = 60, 120
		}
		t = append(t, modelRow{key, randomCells(rng, columns, cells, maxValue)})
	}
	slices.SortFunc(t, func(a, b modelRow) int { return bytes.Compare(a.key, b.key) })
	return t
}

func sameCell(a, b *row.Cell) bool {
	return row.CompareCells(a, b) == 0 && a.Type == b.Type && a.Separate == b.Separate && a.Packed == b.Packed &&
		bytes.Equal(a.Value, b.Value)
}

// checkCells compares the cells from the iterator's current one on with want.
func checkCells(it *Iterator, ok bool, want []row.Cell) error {
	for i := range want {
		if !ok {
			return fmt.Errorf("cells end before %s: %w", want[i].String(), orEnd(it.Error()))
		}
		if !sameCell(it.Cell(), &want[i]) {
			return fmt.Errorf("cell %s, want %s", it.Cell(), want[i].String())
		}
		ok = it.NextCell()
	}
	if ok {
		return fmt.Errorf("cell %s after the last", it.Cell())
	}
	return it.Error()
}

var errEnd = errors.New("end")

func orEnd(err error) error {
	if err == nil {
		return errEnd
	}
	return err
}

// checkAll compares a whole forward scan with the model.
func (t modelTable) checkAll(it *Iterator) error {
	ok := it.First()
	for i := range t {
		if !ok {
			return fmt.Errorf("rows end before %q: %w", t[i].key, orEnd(it.Error()))
		}
		if !bytes.Equal(it.RowKey(), t[i].key) {
			return fmt.Errorf("row %q, want %q", it.RowKey(), t[i].key)
		}
		if err := checkCells(it, it.FirstCell(), t[i].cells); err != nil {
			return fmt.Errorf("row %q: %w", t[i].key, err)
		}
		ok = it.NextRow()
	}
	if ok {
		return fmt.Errorf("row %q after the last", it.RowKey())
	}
	return it.Error()
}
