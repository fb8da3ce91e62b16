package row

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"pgregory.net/rapid"
)

// TestAChangeIsItsMutation adds the same cells to a Change and to a Mutation: in any order, both
// normalize to the same.
func TestAChangeIsItsMutation(t *testing.T) {
	var c Change // reused, as writers do
	rapid.Check(t, func(t *rapid.T) {
		m := Mutation{Table: 3, Key: []byte{1, 2}}
		c.Reset()
		c.Table, c.Key = m.Table, append(c.Key, m.Key...)
		for range rapid.IntRange(0, 60).Draw(t, "cells") {
			cell := drawCell(t, "cell")
			switch rapid.IntRange(0, 20).Draw(t, "what") {
			case 0:
				m.Cells = m.Cells[:0]
				c.DropCells()
			case 1:
				kept := m.Cells[:0]
				for _, other := range m.Cells {
					if !bytes.Equal(other.Column, cell.Column) {
						kept = append(kept, other)
					}
				}
				m.Cells = kept
				c.DropColumn(string(cell.Column))
			default:
				m.Cells = append(m.Cells, cell)
				var err error
				switch {
				case cell.Packed:
					err = c.PutPacked(string(cell.Column), cell.Version, cell.Type, cell.Value)
				case cell.Kind == KindPut:
					v, _ := PayloadValue(cell.Type, cell.Value)
					err = c.Put(string(cell.Column), cell.Version, v)
				default:
					err = c.Add(string(cell.Column), cell.Version, cell.Kind)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := m.Normalize(); err != nil {
			t.Fatal(err)
		}
		if err := c.Normalize(); err != nil {
			t.Fatal(err)
		}
		var got Mutation
		if err := c.Mutation(&got); err != nil {
			t.Fatal(err)
		}
		if describeMutation(&got) != describeMutation(&m) {
			t.Fatalf("the change is %s\nwant %s", describeMutation(&got), describeMutation(&m))
		}
		wantVersion, wantMarker := markerOf(&m)
		if version, ok := c.Marker(); version != wantVersion || ok != wantMarker {
			t.Fatalf("marker %d, %v, want %d, %v", version, ok, wantVersion, wantMarker)
		}
		checkStarts(t, c.Cells(), m.Cells)
	})
}

// TestAStampedChangeIsOneWithThatVersion adds the same cells to two changes: to one at the version
// Unstamped, to the other at the version that it gets afterwards.
func TestAStampedChangeIsOneWithThatVersion(t *testing.T) {
	var unstamped, stamped, plain Change // reused, as writers do
	rapid.Check(t, func(t *rapid.T) {
		version := int64(rapid.IntRange(0, 5).Draw(t, "version"))
		for _, c := range []*Change{&unstamped, &plain} {
			c.Reset()
			c.Key = append(c.Key, 1)
		}
		for range rapid.IntRange(0, 60).Draw(t, "cells") {
			cell := drawCell(t, "cell")
			drop := rapid.IntRange(0, 20).Draw(t, "what") == 0
			add := func(c *Change, version int64) (err error) {
				switch {
				case drop:
					c.DropColumn(string(cell.Column))
				case cell.Packed:
					err = c.PutPacked(string(cell.Column), version, cell.Type, cell.Value)
				case cell.Kind == KindPut:
					v, _ := PayloadValue(cell.Type, cell.Value)
					err = c.Put(string(cell.Column), version, v)
				default:
					err = c.Add(string(cell.Column), cell.Version, cell.Kind)
				}
				return err
			}
			before, after := cell.Version, cell.Version
			if rapid.Bool().Draw(t, "unstamped") {
				before, after = Unstamped, version
			}
			if err := errors.Join(add(&unstamped, before), add(&plain, after)); err != nil {
				t.Fatal(err)
			}
		}
		err := unstamped.StampTo(&stamped, version)
		if err := errors.Join(err, stamped.Normalize(), plain.Normalize()); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(stamped.Cells().Bytes(), plain.Cells().Bytes()) || stamped.Newest() != plain.Newest() || stamped.Oldest() != plain.Oldest() {
			t.Fatalf("%x, newest %d, oldest %d\nwant %x, newest %d, oldest %d", stamped.Cells().Bytes(), stamped.Newest(), stamped.Oldest(),
				plain.Cells().Bytes(), plain.Newest(), plain.Oldest())
		}
		before := bytes.Clone(unstamped.Cells().Bytes())
		if err := unstamped.StampTo(&stamped, version+1); err != nil || !bytes.Equal(unstamped.Cells().Bytes(), before) || plain.Unstamped() {
			t.Fatalf("a second version: %v", err)
		}
	})
}

// checkStarts reads a list from the start of each segment.
func checkStarts(t *rapid.T, l *CellList, want []Cell) {
	for i, start := range append([]int{0}, l.Starts()...) {
		r := NewCellReader(l.Bytes()[start:])
		var got []Cell
		for range len(want) - i*SegmentCells {
			var c Cell
			if err := r.Next(&c); err != nil {
				t.Fatal(err)
			}
			got = append(got, c)
		}
		if describeCells(got) != describeCells(want[i*SegmentCells:]) {
			t.Fatalf("from segment %d: %s\nwant %s", i, describeCells(got), describeCells(want[i*SegmentCells:]))
		}
	}
}

// TestAnOldBatchIsRead makes a batch of format 1, whose versions count from 0 only once per
// mutation.
func TestAnOldBatchIsRead(t *testing.T) {
	for _, n := range []int{0, 1, SegmentCells, SegmentCells + 1, 5 * SegmentCells} {
		want := Mutation{Table: 1, Key: []byte{'k'}, PutRow: true}
		b := make([]byte, batchHeaderSize)
		b[0] = oldBatchFormat
		binary.LittleEndian.PutUint32(b[9:], 1)
		b = append(b, 1, flagPutRow, 1, 'k')
		b = binary.AppendUvarint(b, uint64(n))
		before := int64(0)
		for i := range n {
			c := put(fmt.Sprintf("c%03d", i), 1000+int64(i*i), Integer(int64(i)))
			want.Cells = append(want.Cells, c)
			var one CellList
			c.Version -= before
			appendCell(&one, &c)
			before += c.Version
			b = append(b, one.Bytes()...)
		}
		_, got, err := readBatch(b)
		if err != nil || len(got) != 1 || got[0] != describeMutation(&want) {
			t.Errorf("%d cells: %v, %v\nwant %s", n, got, err, describeMutation(&want))
		}
	}
}

// TestTimesOfOldBatchesAreMilliseconds: those of formats 1 and 2.
func TestTimesOfOldBatchesAreMilliseconds(t *testing.T) {
	var b Batch
	if err := add(&b, &Mutation{Table: 1, Key: []byte{1}, PutRow: true}); err != nil {
		t.Fatal(err)
	}
	b.SetTime(1_700_000_000_000)
	data := bytes.Clone(bytesOf(&b))
	for format, want := range map[byte]int64{
		oldBatchFormat: 1_700_000_000_000_000, milliFormat: 1_700_000_000_000_000, batchFormat: 1_700_000_000_000,
	} {
		data[0] = format
		if got, _, err := readBatch(data); err != nil || got != want {
			t.Errorf("format %d: %d, %v, want %d", format, got, err, want)
		}
	}
}

// TestALargeChangeIsNotCopiedIntoTheBatch: its cells are a separate piece.
func TestALargeChangeIsNotCopiedIntoTheBatch(t *testing.T) {
	var b Batch
	var want []string
	for i, size := range []int{10, 10_000, 1, 300, 300} {
		m := Mutation{Table: 1, Key: []byte{byte(i + 1)}, Cells: []Cell{put("c", 1, Binary(make([]byte, size)))}}
		if err := add(&b, &m); err != nil {
			t.Fatal(err)
		}
		want = append(want, describeMutation(&m))
	}
	if n := len(b.Pieces()); n != 6 {
		t.Errorf("%d pieces", n)
	}
	if cap(b.data) > 2000 {
		t.Errorf("the batch takes %d bytes", cap(b.data))
	}
	if _, got, err := readBatch(bytesOf(&b)); err != nil || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%v, %v", got, err)
	}
}

// TestDroppingColumnsInAnyOrderIsLinear drops many columns. If each drop decoded all cells, this
// would take more than a minute.
func TestDroppingColumnsInAnyOrderIsLinear(t *testing.T) {
	const columns = 100_000
	c := Change{Key: []byte{1}}
	name := func(i int) string { return fmt.Sprintf("c%06d", i) }
	for _, times := range []string{"once", "again"} {
		for i := columns; i > 0; i-- { // in the reverse of their order in the list
			if err := c.Put(name(i), 1, Integer(1)); err != nil {
				t.Fatal(err)
			}
			c.DropColumn(name(i))
			if err := c.Add(name(i), MaxVersion, KindTrim); err != nil {
				t.Fatal(err)
			}
		}
		if err := c.Normalize(); err != nil {
			t.Fatal(err)
		}
		if n := c.Cells().Len(); n != columns || c.Newest() != -1 {
			t.Errorf("%s: %d cells are left, the newest put is %d", times, n, c.Newest())
		}
	}
}

// TestAProjectionOfManyColumnsIsLinear asks for every second of many columns.
func TestAProjectionOfManyColumnsIsLinear(t *testing.T) {
	const columns = 300_000
	var p Projection
	for i := range columns {
		p.Columns = append(p.Columns, fmt.Appendf(nil, "c%06d", 2*i))
	}
	for i := range 2 * columns {
		if name := fmt.Appendf(nil, "c%06d", i); p.Wants(name) != (i%2 == 0) {
			t.Fatalf("%s is wanted: %v", name, p.Wants(name))
		}
	}
}

// BenchmarkDropColumns takes time linear in the number of columns.
func BenchmarkDropColumns(b *testing.B) {
	for _, columns := range []int{1_000, 10_000, 100_000} {
		b.Run(fmt.Sprint(columns), func(b *testing.B) {
			var c Change
			names := make([]string, columns)
			for i := range names {
				names[i] = fmt.Sprintf("c%06d", columns-i)
			}
			for b.Loop() {
				c.Reset()
				c.Key = append(c.Key, 1)
				for _, name := range names {
					c.DropColumn(name)
					_ = c.Add(name, MaxVersion, KindTrim)
				}
				if err := c.Normalize(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*columns), "ns/column")
		})
	}
}

// markerOf returns the version of the row marker that a mutation leaves, and whether it leaves one.
func markerOf(m *Mutation) (version int64, ok bool) {
	for _, c := range m.Cells {
		if c.Kind == KindPut {
			version, ok = max(version, c.Version), true
		}
	}
	if !ok && m.PutRow {
		return MaxVersion, true
	}
	return version, ok
}

func appendCell(l *CellList, c *Cell) {
	begin(l, c.Column, c.Version, c.Head())
	if c.Kind == KindPut {
		l.value(c.Value)
	}
}
