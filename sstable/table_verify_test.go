package sstable

// Damage that no checksum shows: files of a wrong writer, which Verify has to find. The tests
// mislead the writer by changing its fields between calls.

import (
	"bytes"
	"errors"
	"reflect"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// misled writes rows of several blocks, and one row of many blocks. It calls spoil before
// each row and cell; n counts the calls.
func misled(t *testing.T, spoil func(w *Writer, n int)) *memFile {
	t.Helper()
	f := &memFile{}
	w := NewWriter(f, WriterOptions{UniqueID: testID, BlockSize: 200, FilterBitsPerKey: 40})
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	for _, key := range []string{"a1", "a2", "b1", "b2", "c1", "c2", "d1", "d2"} {
		spoil(w, n)
		check(w.StartRow([]byte(key)))
		n++
		cells := []row.Cell{
			{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: 90},
			{Kind: row.KindRowMarker, Version: 1000, Seq: 50},
			put("p", 1000, 70, bytes.Repeat([]byte("p"), 20)),
			{Column: []byte("q"), Kind: row.KindTrim, Version: 500, Seq: 71},
			put("r", 1001, 72, bytes.Repeat([]byte("r"), 20)),
		}
		if key == "b2" {
			for i := range 12 {
				cells = append(cells, put("s", int64(900-i/2), uint64(80-i), bytes.Repeat([]byte("s"), 60)))
			}
		}
		for i := range cells {
			spoil(w, n)
			check(w.AddCell(&cells[i]))
			n++
		}
	}
	spoil(w, n)
	spoil(w, -1) // the last call
	_, err := w.Finish()
	check(err)
	return f
}

// atCall returns a spoiler that acts once.
func atCall(at int, what func(w *Writer)) func(*Writer, int) {
	return func(w *Writer, n int) {
		if n == at {
			what(w)
		}
	}
}

func atEnd(what func(w *Writer)) func(*Writer, int) { return atCall(-1, what) }

func TestVerifyFindsWhatNoChecksumShows(t *testing.T) {
	const perRow = 6 // calls for a row of five cells
	for _, c := range []struct {
		damage string
		spoil  func(w *Writer, n int)
		says   string // part of the error
	}{
		{"row keys out of order", atCall(perRow, func(w *Writer) {
			copy(w.block.keys, "a9")
			w.hashes[0] = Hash([]byte("a9"))
		}), "out of order"},
		{"the same key twice", atCall(perRow+2, func(w *Writer) {
			copy(w.block.keys[2:], "a1")
		}), "out of order"},
		{"cells out of order", atCall(perRow, func(w *Writer) {
			w.block.cells[2], w.block.cells[4] = w.block.cells[4], w.block.cells[2]
			w.block.cells[2].valueEnd, w.block.cells[4].valueEnd = 20, 40
		}), "out of order"},
		{"versions out of order", atCall(4*perRow+3, func(w *Writer) {
			w.block.cells[len(w.block.cells)-1].version = 1
		}), "out of order"},
		{"column names out of order", atCall(perRow, func(w *Writer) {
			s := w.block.sorted
			s[1], s[2] = s[2], s[1]
		}), "out of order"},
		{"a sequence number that none can have", atCall(perRow, func(w *Writer) {
			w.block.cells[0].seq = row.MaxSequence + 1
		}), "sequence number"},
		{"a delete-row with a version", atCall(perRow, func(w *Writer) {
			w.block.cells[0].version = 1001
		}), "delete-row"},
		{"an empty key", atCall(2, func(w *Writer) {
			w.block.keys, w.block.rows[0].keyEnd = nil, 0
		}), "separator"},
		{"a fragment of another row", atCall(4*perRow+3, func(w *Writer) {
			copy(w.block.keys, "b3")
		}), "row"},
		{"a row that the filter denies", atEnd(func(w *Writer) {
			w.hashes[3]++
		}), "filter"},
		{"a separator above its rows", atEnd(func(w *Writer) {
			w.index.separators[len("a1bb")]++ // the separator of group b2
		}), "separator"},
		{"a separator not above the rows before", atEnd(func(w *Writer) {
			w.index.separators[len("a1bb")]-- // the separator of group b2, after b1
		}), "separator"},
		{"a fragment that begins at another column", atEnd(func(w *Writer) {
			w.index.columns[0]++
		}), "fragment"},
		{"a fragment that begins at another version", atEnd(func(w *Writer) {
			a := w.index.arrays[idxVersion]
			for i := range a {
				if a[i] != 0 {
					a[i]++
					break
				}
			}
		}), "fragment"},
		{"a tie that is none, and none that is", atEnd(func(w *Writer) {
			for i := range w.index.arrays[idxTie] {
				w.index.arrays[idxTie][i] ^= 1
			}
		}), "fragment"},
		{"a long row of fewer blocks", atEnd(func(w *Writer) {
			a := w.index.arrays[idxFirstBlock]
			a[len(a)-1]--
		}), "long row"},
	} {
		f := misled(t, c.spoil)
		r, err := Open(f, ReaderOptions{FileName: damagedName})
		if err != nil {
			t.Errorf("%s: Open: %v", c.damage, err)
			continue
		}
		err = r.Verify(nil)
		if !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), damagedName) || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%s: %v", c.damage, err)
		}
		// A read of such a file may give wrong answers, but it ends. Even a plain read
		// compares what index and blocks say about long rows.
		it := r.NewIterator(IterOptions{})
		for ok := it.First(); ok; ok = it.NextRow() {
			for ok := it.FirstCell(); ok; ok = it.NextCell() {
				it.Cell()
			}
		}
		if strings.Contains(c.damage, "row of fewer") || strings.Contains(c.damage, "of another row") {
			if !errors.Is(it.Error(), ErrCorrupt) {
				t.Errorf("%s: is read: %v", c.damage, it.Error())
			}
		}
		it.Close()
	}
	if err := openFile(t, misled(t, func(*Writer, int) {}), nil).Verify(nil); err != nil {
		t.Errorf("the file without damage: %v", err)
	}
}

func TestVerifyComparesEveryProperty(t *testing.T) {
	for name, spoil := range map[string]func(p *Properties){
		"Rows":            func(p *Properties) { p.Rows++ },
		"Cells":           func(p *Properties) { p.Cells-- },
		"Puts":            func(p *Properties) { p.Puts++ },
		"Tombstones":      func(p *Properties) { p.Tombstones = 0 },
		"SmallestKey":     func(p *Properties) { p.SmallestKey = []byte("a") },
		"SmallestSeq":     func(p *Properties) { p.SmallestSeq++ },
		"LargestSeq":      func(p *Properties) { p.LargestSeq++ },
		"MinVersion":      func(p *Properties) { p.MinVersion = -5 },
		"MaxVersion":      func(p *Properties) { p.MaxVersion++ },
		"Permanent":       func(p *Properties) { p.Permanent = !p.Permanent },
		"NewestTombstone": func(p *Properties) { p.NewestTombstone-- },
		"DataBlocks":      func(p *Properties) { p.DataBlocks++ },
		"RawBytes":        func(p *Properties) { p.RawBytes-- },
		"KeyBytes":        func(p *Properties) { p.KeyBytes++ },
		"ValueBytes":      func(p *Properties) { p.ValueBytes++ },
	} {
		f := misled(t, atEnd(func(w *Writer) { spoil(&w.props) }))
		if err := openFile(t, f, nil).Verify(nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "properties") {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := misled(t, atEnd(func(w *Writer) { w.key = []byte("d3") }))
	if err := openFile(t, f, nil).Verify(nil); !errors.Is(err, ErrCorrupt) || !strings.Contains(err.Error(), "properties") {
		t.Errorf("LargestKey: %v", err)
	}
}

func TestTheWriterRefusesWhatIsOutOfPlace(t *testing.T) {
	good := put("c", 10, 5, []byte("v"))
	for what, add := range map[string]func(w *Writer) error{
		"a cell before any row": func(w *Writer) error { return NewWriter(&memFile{}, WriterOptions{}).AddCell(&good) },
		"an empty key":          func(w *Writer) error { return w.StartRow(nil) },
		"a key too long":        func(w *Writer) error { return w.StartRow(make([]byte, row.MaxKeyBytes+1)) },
		"the same key":          func(w *Writer) error { return w.StartRow([]byte("k")) },
		"a smaller key":         func(w *Writer) error { return w.StartRow([]byte("j")) },
		"a row after an empty one": func(w *Writer) error {
			return errors.Join(w.StartRow([]byte("l")), w.StartRow([]byte("m")))
		},
		"the same cell":             func(w *Writer) error { return w.AddCell(&good) },
		"a newer version":           func(w *Writer) error { c := good; c.Version++; return w.AddCell(&c) },
		"a newer sequence number":   func(w *Writer) error { c := good; c.Seq++; return w.AddCell(&c) },
		"a smaller kind":            func(w *Writer) error { c := good; c.Kind, c.Type, c.Value = row.KindTrim, 0, nil; return w.AddCell(&c) },
		"a smaller column":          func(w *Writer) error { c := good; c.Column = []byte("b"); return w.AddCell(&c) },
		"an unknown kind":           func(w *Writer) error { c := good; c.Column, c.Kind = []byte("d"), 6; return w.AddCell(&c) },
		"a put without a column":    func(w *Writer) error { c := good; c.Column = nil; return w.AddCell(&c) },
		"a marker with a column":    func(w *Writer) error { return w.AddCell(&row.Cell{Column: []byte("d"), Kind: row.KindRowMarker}) },
		"a delete-row at a version": func(w *Writer) error { return w.AddCell(&row.Cell{Kind: row.KindDeleteRow, Version: 3}) },
		"a put of no type":          func(w *Writer) error { c := good; c.Column, c.Type = []byte("d"), 0; return w.AddCell(&c) },
		"a trim with a value": func(w *Writer) error {
			c := good
			c.Column, c.Kind, c.Type = []byte("d"), row.KindTrim, row.TypeNone
			return w.AddCell(&c)
		},
		"a column too long": func(w *Writer) error {
			c := good
			c.Column = bytes.Repeat([]byte("d"), row.MaxColumnBytes+1)
			return w.AddCell(&c)
		},
		"a sequence number too large": func(w *Writer) error {
			c := good
			c.Column, c.Seq = []byte("d"), row.MaxSequence+1
			return w.AddCell(&c)
		},
	} {
		w := NewWriter(&memFile{}, WriterOptions{UniqueID: testID})
		if err := errors.Join(w.StartRow([]byte("k")), w.AddCell(&good)); err != nil {
			t.Fatal(err)
		}
		err := add(w)
		if !errors.Is(err, errOrder) {
			t.Errorf("%s: %v", what, err)
		}
		if what == "a cell before any row" {
			continue
		}
		if _, again := w.Finish(); !errors.Is(again, errOrder) {
			t.Errorf("%s: Finish after the error: %v", what, again)
		}
	}
	for _, opts := range []WriterOptions{
		{BlockSize: -1}, {BlockSize: MaxBlockSize + 1}, {Compression: 3}, {FilterBitsPerKey: -1}, {FilterBitsPerKey: 65},
	} {
		if err := NewWriter(&memFile{}, opts).StartRow([]byte("k")); err == nil {
			t.Errorf("options %+v are accepted", opts)
		}
	}
}

// If the checksum of a block is right, reading it ends without a panic, whatever it holds. What
// Verify accepts can be written again, and then reads the same.
func TestNoByteUnderARightChecksumMakesReadingPanic(t *testing.T) {
	accepted := 0
	tried, masks := compressions[:1], []byte{0x01, 0x10, 0xFF}
	if long() {
		tried, masks = compressions, []byte{0x01, 0x02, 0x04, 0x08, 0x10, 0x20, 0x40, 0x80, 0xFF}
	}
	for _, compression := range tried {
		_, data := damageFile(t, compression)
		for at := range data {
			for _, mask := range masks {
				damaged := bytes.Clone(data)
				damaged[at] ^= mask
				reseal(damaged)
				r, err := Open(&memFile{data: damaged}, ReaderOptions{FileName: damagedName})
				if err != nil {
					if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errVersion) {
						t.Fatalf("byte %d ^ %#x: %v", at, mask, err)
					}
					continue
				}
				if err := exercise(r); err != nil {
					t.Fatalf("byte %d ^ %#x: %v", at, mask, err)
				}
				if err := r.Verify(nil); err == nil {
					accepted++
					rewrite(t, r)
				} else if !errors.Is(err, ErrCorrupt) {
					t.Fatalf("byte %d ^ %#x: %v", at, mask, err)
				}
			}
		}
	}
	if accepted == 0 {
		t.Fatal("not even a changed value is accepted")
	}
}

// rewrite copies the rows of a file that Verify accepts to another file. It fails if the
// writer refuses them or the copy differs.
func rewrite(t *testing.T, r *Reader) {
	t.Helper()
	it := r.NewIterator(IterOptions{})
	defer it.Close()
	var table modelTable
	for ok := it.First(); ok; ok = it.NextRow() {
		table = append(table, modelRow{key: bytes.Clone(it.RowKey())})
		last := &table[len(table)-1]
		for ok := it.FirstCell(); ok; ok = it.NextCell() {
			last.cells = append(last.cells, it.Cell().Clone())
		}
	}
	if err := it.Error(); err != nil {
		t.Fatal(err)
	}
	f := &memFile{}
	p := table.write(t, f, WriterOptions{BlockSize: 200, FilterBitsPerKey: 10})
	p.FileSize, p.FileChecksum, p.UniqueID = r.props.FileSize, 0, r.props.UniqueID
	p.DataBlocks, p.RawBytes = r.props.DataBlocks, r.props.RawBytes
	if !reflect.DeepEqual(p, r.props) {
		t.Fatalf("properties %+v of a copy, %+v before", p, r.props)
	}
	copied := openFile(t, f, nil).NewIterator(IterOptions{})
	defer copied.Close()
	if err := table.checkAll(copied); err != nil {
		t.Fatal(err)
	}
}
