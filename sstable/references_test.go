package sstable

// Tests of cells that have their values in value files.

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func separate(column string, version int64, seq uint64, ref row.Reference) row.Cell {
	return row.Cell{
		Column: []byte(column), Version: version, Seq: seq, Kind: row.KindPut, Type: row.TypeBinary,
		Separate: true, Value: ref.Append(nil),
	}
}

// referenceTable has cells of both kinds, and a row of several blocks.
func referenceTable() modelTable {
	var t modelTable
	for i := range 6 {
		seq, version := uint64(10+i), int64(5000+i)
		t = append(t, modelRow{fmt.Appendf(nil, "\x20row%d", i), []row.Cell{
			{Kind: row.KindRowMarker, Version: version, Seq: seq},
			separate("picture", version, seq, row.Reference{
				File: uint64(3 + i%2), Offset: uint64(i) << 20, Stored: 1<<20 + uint32(i), Raw: 1 << 21, Checksum: uint64(i) << 40,
			}),
			put("title", version, seq, []byte("a title")),
		}})
	}
	long := &t[5]
	for i := range 10 {
		version := int64(4000 - i)
		long.cells = append(long.cells, separate("video", version, uint64(100+i), row.Reference{
			File: 9, Offset: uint64(i * 70_000), Stored: 70_000, Raw: 70_000,
		}))
	}
	return t
}

func TestReferencesAreCounted(t *testing.T) {
	model, f := referenceTable(), &memFile{}
	p := model.write(t, f, WriterOptions{BlockSize: 256})
	want := []ValueFile{{3, 3, 3<<20 + 0 + 2 + 4}, {4, 3, 3<<20 + 1 + 3 + 5}, {9, 10, 700_000}}
	if !slices.Equal(p.ValueFiles, want) {
		t.Fatalf("%+v, want %+v", p.ValueFiles, want)
	}
	r := openFile(t, f, nil)
	if !slices.Equal(r.Properties().ValueFiles, want) {
		t.Fatalf("read %+v, want %+v", r.Properties().ValueFiles, want)
	}
	count := map[uint64]uint64{}
	if err := r.Verify(func(ref row.Reference) error { count[ref.File]++; return nil }); err != nil {
		t.Fatal(err)
	}
	if count[3] != 3 || count[4] != 3 || count[9] != 10 {
		t.Fatal(count)
	}
	stop := errors.New("stop")
	if err := r.Verify(func(row.Reference) error { return stop }); !errors.Is(err, stop) {
		t.Fatal(err)
	}
}

// TestSizesCountValuesInValueFiles checks that an index entry stands for only a few values,
// even if a block has room for more.
func TestSizesCountValuesInValueFiles(t *testing.T) {
	const rows, value = 300, 3 << 20
	var model modelTable
	for i := range rows {
		model = append(model, modelRow{fmt.Appendf(nil, "\x20%04d", i), []row.Cell{
			separate("v", 5, 7, row.Reference{File: 1, Offset: uint64(i) * value, Stored: value, Raw: value}),
		}})
	}
	f := &memFile{}
	model.write(t, f, WriterOptions{})
	r := openFile(t, f, nil)
	if err := r.Verify(nil); err != nil {
		t.Fatal(err)
	}
	if total := r.dataSize(); total < rows*value || total > rows*value+1<<16 {
		t.Fatalf("size %d, want a little more than %d", total, rows*value)
	}
	for i := range model {
		at, want := r.offsetOf(model[i].key), int64(i)*value
		if at > want+1<<16 || at < want-maxBlockAway-value {
			t.Fatalf("row %d at %d, want about %d", i, at, want)
		}
	}
	places := 0
	r.WalkIndex(nil, nil, func([]byte, int64) int64 { places++; return 0 })
	if places < rows*value/(maxBlockAway+value) {
		t.Fatalf("%d places to cut at", places)
	}
}

func TestTheWriterRefusesMalformedReferences(t *testing.T) {
	good := separate("v", 1, 1, row.Reference{File: 1, Stored: 30, Raw: 10})
	for what, spoil := range map[string]func(c *row.Cell){
		"a short one":           func(c *row.Cell) { c.Value = c.Value[:31] },
		"file 0":                func(c *row.Cell) { clear(c.Value[:8]) },
		"a delete":              func(c *row.Cell) { c.Kind, c.Type = row.KindDeleteVersion, row.TypeNone },
		"an unknown type":       func(c *row.Cell) { c.Type = row.TypeNone },
		"a record of no length": func(c *row.Cell) { clear(c.Value[16:20]) },
	} {
		c := good.Clone()
		spoil(&c)
		w := NewWriter(&memFile{}, WriterOptions{})
		if err := w.StartRow([]byte("\x20a")); err != nil {
			t.Fatal(err)
		}
		if err := w.AddCell(&c); !errors.Is(err, errOrder) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

func TestDamageOfAFileWithReferencesIsFound(t *testing.T) {
	model, f := referenceTable(), &memFile{}
	model.write(t, f, WriterOptions{BlockSize: 256, FilterBitsPerKey: 10})
	for i := range f.data {
		bad := &memFile{data: bytes.Clone(f.data)}
		bad.data[i] ^= 0x10
		r, err := Open(bad, ReaderOptions{FileName: damagedName})
		if err == nil {
			err = r.Verify(nil)
		}
		if !errors.Is(err, ErrCorrupt) && !errors.Is(err, errVersion) {
			t.Fatalf("byte %d: %v", i, err)
		}
	}
}

// TestVerifyComparesReferencesWithPropertiesAndIndex writes wrong counts under right
// checksums.
func TestVerifyComparesReferencesWithPropertiesAndIndex(t *testing.T) {
	for what, spoil := range map[string]func(w *Writer){
		"a reference too few": func(w *Writer) { w.props.ValueFiles[0].Values-- },
		"a byte too many":     func(w *Writer) { w.props.ValueFiles[1].Bytes++ },
		"another file":        func(w *Writer) { w.props.ValueFiles[2].Number++ },
		"a file too few":      func(w *Writer) { w.props.ValueFiles = w.props.ValueFiles[:2] },
		"index":               func(w *Writer) { w.index.arrays[idxAwayEnd][1]-- },
	} {
		model, f := referenceTable(), &memFile{}
		w := NewWriter(f, WriterOptions{BlockSize: 256, UniqueID: testID})
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
		spoil(w)
		if _, err := w.Finish(); err != nil {
			t.Fatal(err)
		}
		if err := openFile(t, f, nil).Verify(nil); !errors.Is(err, ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
