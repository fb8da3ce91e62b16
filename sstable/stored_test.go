package sstable

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// TestStoredValuesAreTakenOver copies a table row by row, with the values as they are stored.
// The copy must be identical to a file for which they are compressed again.
func TestStoredValuesAreTakenOver(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	noise := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			if i%2 == 0 {
				b[i] = byte(rng.Uint32())
			}
		}
		return b
	}
	random := func(n int) []byte {
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		return b
	}
	digits := func(n int) []byte { // no match for S2, but half of its size for zstd
		return fmt.Appendf(nil, "%x", random(n/2))
	}
	var rows modelTable
	for i := range 2000 {
		value := noise(500 + rng.IntN(1500))
		switch rng.IntN(6) {
		case 0:
			value = bytes.Repeat([]byte("text "), len(value)/5)
		case 1:
			value = digits(len(value))
		}
		if rng.IntN(5) == 0 {
			value = random(len(value)) // is stored raw
		}
		if rng.IntN(20) == 0 {
			value = value[:rng.IntN(50)]
		}
		cells := []row.Cell{
			{Kind: row.KindDeleteRow, Version: row.MaxVersion, Seq: 9}, {Kind: row.KindRowMarker, Version: 5, Seq: 9},
			put("a", 5, 9, value), put("b", 5, 9, noise(rng.IntN(60))),
		}
		if i%10 == 0 {
			cells = cells[1:2] // no values
		}
		rows = append(rows, modelRow{fmt.Appendf(nil, "\x20%06d", i), cells})
	}
	for _, from := range []Compression{CompressNone, CompressS2, CompressZstd} {
		for n, to := range []Compression{CompressNone, CompressS2, CompressZstd, CompressZstd} {
			source := &memFile{}
			rows.write(t, source, WriterOptions{Compression: from, UniqueID: [16]byte{1}})
			it := openFile(t, source, nil).NewIterator(IterOptions{NoCacheFill: true})
			copied, anew := &memFile{}, &memFile{}
			opts := WriterOptions{Compression: to, UniqueID: [16]byte{2}, FilterBitsPerKey: 10}
			if n == 3 {
				opts.BlockSize = 2100 // mostly one row per block
			}
			with, without := NewWriter(copied, opts), NewWriter(anew, opts)
			taken := 0
			for ok := it.First(); ok; ok = it.NextRow() {
				cells, ok := readRow(it)
				if !ok {
					t.Fatal("a row that cannot be read at once", it.Error())
				}
				stored := it.Stored()
				if len(stored.Bytes) > 0 {
					taken++
				}
				for w, s := range map[*Writer]row.Stored{with: stored, without: {}} {
					if err := addRow(w, it.RowKey(), cells, s); err != nil {
						t.Fatal(err)
					}
				}
			}
			if err := it.Error(); err != nil {
				t.Fatal(err)
			}
			it.Close()
			for _, w := range []*Writer{with, without} {
				if _, err := w.Finish(); err != nil {
					t.Fatal(err)
				}
			}
			if from != CompressZstd && taken < 1000 {
				t.Errorf("%v to %v: the values of %d rows came as they are stored", from, to, taken)
			}
			if !bytes.Equal(copied.data, anew.data) {
				t.Errorf("%v to %v: the file differs from the one that was compressed anew", from, to)
			}
			checkModel(t, copied, rows)
		}
	}
}

// TestStoredValuesAreNotCompressedAgain gives the writer stored values that differ from those
// of the cells, to see which of them it writes.
func TestStoredValuesAreNotCompressedAgain(t *testing.T) {
	value := bytes.Repeat([]byte("v"), 1000)
	for compression, want := range map[Compression][]byte{
		CompressNone: bytes.Repeat([]byte("w"), 1000), CompressS2: bytes.Repeat([]byte("w"), 1000),
		CompressZstd: value, // has one segment for all rows
	} {
		other := row.Stored{Form: uint8(CompressNone), Tried: uint8(compression), Bytes: bytes.Repeat([]byte("w"), 1000)}
		f := &memFile{}
		w := NewWriter(f, WriterOptions{Compression: compression, UniqueID: testID})
		w.cutter.blocks = 1 // no trial
		for i := range 3 {
			if err := addRow(w, fmt.Appendf(nil, "\x20%d", i), []row.Cell{put("a", 5, 9, value)}, other); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		it := openFile(t, f, nil).NewIterator(IterOptions{})
		for ok := it.First(); ok; ok = it.NextRow() {
			if !it.FirstCell() || !bytes.Equal(it.Cell().Value, want) {
				t.Errorf("%v: wrote %.10q, want %.10q", compression, it.Cell().Value, want)
			}
		}
		it.Close()
	}
}

func addRow(w *Writer, key []byte, cells []row.Cell, stored row.Stored) error {
	err := w.StartRow(key)
	for i := range cells {
		if err == nil {
			err = w.AddCell(&cells[i])
		}
	}
	w.NoteStored(stored)
	return err
}

// readRow returns all cells of the current row, if it can be read at once.
func readRow(it *Iterator) (cells []row.Cell, ok bool) {
	var e row.Extent
	if _, ok := it.Extent(row.Ask{}, &e); !ok {
		return nil, false
	}
	var dst row.Collector
	e.AddRowLevel(&dst)
	it.Collect(&dst, &row.Projection{})
	return dst.Cells, true
}

func checkModel(t *testing.T, f *memFile, rows modelTable) {
	t.Helper()
	it := openFile(t, f, nil).NewIterator(IterOptions{})
	defer it.Close()
	i := 0
	for ok := it.First(); ok; ok = it.NextRow() {
		cells, _ := readRow(it)
		if i >= len(rows) || !bytes.Equal(it.RowKey(), rows[i].key) || len(cells) != len(rows[i].cells) {
			t.Fatalf("row %d differs", i)
		}
		for j := range cells {
			if !bytes.Equal(cells[j].Value, rows[i].cells[j].Value) {
				t.Fatalf("row %d, cell %d differs", i, j)
			}
		}
		i++
	}
	if i != len(rows) || it.Error() != nil {
		t.Fatalf("%d of %d rows: %v", i, len(rows), it.Error())
	}
}
