package row

import (
	"bytes"
	"cmp"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func put(column string, version int64, value Value) Cell {
	return Cell{Column: []byte(column), Version: version, Kind: KindPut, Type: value.Type(), Value: value.AppendPayload(nil)}
}

// packedPut is a put marked as packed; this package never looks into the value.
func packedPut(column string) Cell {
	c := put(column, 1, String("packed"))
	c.Packed = true
	return c
}

func trim(column string, version int64) Cell {
	return Cell{Column: []byte(column), Version: version, Kind: KindTrim}
}

func deleteVersion(column string, version int64) Cell {
	return Cell{Column: []byte(column), Version: version, Kind: KindDeleteVersion}
}

func drawCell(t *rapid.T, label string) Cell {
	column := rapid.SampledFrom([]string{"a", "a\x00", "ab", "b", "\xff"}).Draw(t, label+" column")
	version := rapid.OneOf(rapid.Int64Range(0, 3), rapid.Int64Range(0, MaxVersion-1)).Draw(t, label+" version")
	switch rapid.IntRange(0, 4).Draw(t, label+" kind") {
	case 0:
		return trim(column, rapid.SampledFrom([]int64{version, MaxVersion}).Draw(t, label+" trim"))
	case 1:
		return deleteVersion(column, version)
	}
	c := put(column, version, drawAttribute(t, label+" value"))
	c.Packed = (c.Type == TypeString || c.Type == TypeBinary) && rapid.Bool().Draw(t, label+" packed")
	return c
}

func drawMutation(t *rapid.T) Mutation {
	m := Mutation{
		Table:     rapid.Uint64().Draw(t, "table"),
		Key:       append([]byte{tagBinary}, drawBytes(t, "key")...),
		DeleteRow: rapid.Bool().Draw(t, "delete row"),
		PutRow:    rapid.Bool().Draw(t, "put row"),
	}
	for range rapid.IntRange(0, 8).Draw(t, "cells") {
		m.Cells = append(m.Cells, drawCell(t, "cell"))
	}
	return m
}

func describeCells(cells []Cell) string {
	var s strings.Builder
	for i := range cells {
		s.WriteString(cells[i].String() + " ")
	}
	return strings.TrimSpace(s.String())
}

func TestNormalizeSortsAndLetsTheLastOfOneVersionWin(t *testing.T) {
	one, two := Integer(1), Integer(2)
	for _, c := range []struct {
		name  string
		cells []Cell
		want  string
	}{
		{"nothing", nil, ""},
		{"columns ascend, versions descend", []Cell{put("b", 1, one), put("a", 1, one), put("a", 2, one)},
			"a@2#0:put=1 a@1#0:put=1 b@1#0:put=1"},
		{"two puts", []Cell{put("a", 1, one), put("a", 1, two)}, "a@1#0:put=2"},
		{"delete, then put, in cell order", []Cell{deleteVersion("a", 1), put("a", 1, one)}, "a@1#0:put=1"},
		{"put, then delete", []Cell{put("a", 1, one), deleteVersion("a", 1)}, "a@1#0:delete-version"},
		{"put, delete, put", []Cell{put("a", 1, one), deleteVersion("a", 1), put("a", 1, two)}, "a@1#0:put=2"},
		{"a trim stands beside a put of its version", []Cell{put("a", 1, one), trim("a", 1)}, "a@1#0:trim a@1#0:put=1"},
		{"two trims of one version are one", []Cell{trim("a", 1), put("a", 1, one), trim("a", 1)}, "a@1#0:trim a@1#0:put=1"},
		{"a deleted column comes first", []Cell{put("a", 7, one), trim("a", MaxVersion)}, "a@max#0:trim a@7#0:put=1"},
	} {
		m := Mutation{Key: []byte{1}, Cells: c.cells}
		if err := m.Normalize(); err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if got := describeCells(m.Cells); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
}

func TestNormalizeKeepsTheLastOfEachEntryAndIsIdempotent(t *testing.T) {
	type entry struct {
		column  string
		version int64
		trim    bool
	}
	rapid.Check(t, func(t *rapid.T) {
		m := drawMutation(t)
		last := map[entry]string{}
		for i := range m.Cells {
			c := &m.Cells[i]
			last[entry{string(c.Column), c.Version, c.Kind == KindTrim}] = c.String()
		}
		if err := m.Normalize(); err != nil {
			t.Fatal(err)
		}
		if len(m.Cells) != len(last) {
			t.Fatalf("%d cells for %d entries: %s", len(m.Cells), len(last), describeCells(m.Cells))
		}
		if !slices.IsSortedFunc(m.Cells, func(a, b Cell) int { return CompareCells(&a, &b) }) {
			t.Fatalf("out of order: %s", describeCells(m.Cells))
		}
		for i := range m.Cells {
			c := &m.Cells[i]
			if want := last[entry{string(c.Column), c.Version, c.Kind == KindTrim}]; c.String() != want {
				t.Fatalf("got %s, want %s", c, want)
			}
		}
		before := describeCells(m.Cells)
		if err := m.Normalize(); err != nil || describeCells(m.Cells) != before {
			t.Fatalf("again: %v, %s, want %s", err, describeCells(m.Cells), before)
		}
	})
}

func TestNormalizeRefusesWhatTheModelForbids(t *testing.T) {
	long := strings.Repeat("c", MaxColumnBytes+1)
	withValue, typed, cut := trim("a", 1), deleteVersion("a", 1), put("a", 1, Integer(1))
	withValue.Value, typed.Type, cut.Value = []byte{1}, TypeString, cut.Value[:7]
	big := put("a", 1, Binary(nil))
	big.Value = make([]byte, MaxValueBytes+1)
	for _, c := range []struct {
		name string
		m    Mutation
	}{
		{"no key", Mutation{}},
		{"long key", Mutation{Key: make([]byte, MaxKeyBytes+1)}},
		{"no column name", Mutation{Key: []byte{1}, Cells: []Cell{put("", 1, Integer(1))}}},
		{"long column name", Mutation{Key: []byte{1}, Cells: []Cell{put(long, 1, Integer(1))}}},
		{"negative version", Mutation{Key: []byte{1}, Cells: []Cell{put("a", -1, Integer(1))}}},
		{"put at the reserved version", Mutation{Key: []byte{1}, Cells: []Cell{put("a", MaxVersion, Integer(1))}}},
		{"delete at the reserved version", Mutation{Key: []byte{1}, Cells: []Cell{deleteVersion("a", MaxVersion)}}},
		{"row-level kind", Mutation{Key: []byte{1}, Cells: []Cell{{Column: []byte("a"), Kind: KindRowMarker}}}},
		{"unknown kind", Mutation{Key: []byte{1}, Cells: []Cell{{Column: []byte("a"), Kind: 6}}}},
		{"tombstone with a value", Mutation{Key: []byte{1}, Cells: []Cell{withValue}}},
		{"tombstone with a type", Mutation{Key: []byte{1}, Cells: []Cell{typed}}},
		{"put without a type", Mutation{Key: []byte{1}, Cells: []Cell{put("a", 1, Value{})}}},
		{"put of a bound", Mutation{Key: []byte{1}, Cells: []Cell{put("a", 1, Max())}}},
		{"short integer", Mutation{Key: []byte{1}, Cells: []Cell{cut}}},
		{"large value", Mutation{Key: []byte{1}, Cells: []Cell{big}}},
	} {
		if err := c.m.Normalize(); !errors.Is(err, ErrBadMutation) {
			t.Errorf("%s: error %v", c.name, err)
		}
	}
}

func TestMarkerIsTheNewestPutOrForEver(t *testing.T) {
	for _, c := range []struct {
		name    string
		m       Mutation
		version int64
		ok      bool
	}{
		{"nothing", Mutation{}, 0, false},
		{"delete row", Mutation{DeleteRow: true}, 0, false},
		{"put row without attributes", Mutation{PutRow: true}, MaxVersion, true},
		{"puts", Mutation{PutRow: true, Cells: []Cell{put("a", 3, Integer(1)), put("b", 7, Integer(1))}}, 7, true},
		{"a put at version 0", Mutation{Cells: []Cell{put("a", 0, Integer(1))}}, 0, true},
		{"deletes only", Mutation{Cells: []Cell{trim("a", MaxVersion), deleteVersion("b", 9)}}, 0, false},
		{"put row with deletes only", Mutation{PutRow: true, Cells: []Cell{trim("a", 5)}}, MaxVersion, true},
	} {
		c.m.Key = []byte("k")
		var change Change
		if err := change.Set(&c.m); err != nil {
			t.Fatal(err)
		}
		if version, ok := change.Marker(); version != c.version || ok != c.ok {
			t.Errorf("%s: marker %d, %v, want %d, %v", c.name, version, ok, c.version, c.ok)
		}
	}
}

func TestCompareCellsIsTheDocumentedOrder(t *testing.T) {
	draw := func(t *rapid.T, label string) Cell {
		c := drawCell(t, label)
		c.Seq = rapid.Uint64Range(0, 2).Draw(t, label+" seq")
		return c
	}
	rapid.Check(t, func(t *rapid.T) {
		a, b := draw(t, "a"), draw(t, "b")
		want := cmp.Or(bytes.Compare(a.Column, b.Column), -cmp.Compare(a.Version, b.Version),
			-cmp.Compare(a.Seq, b.Seq), cmp.Compare(a.Kind, b.Kind))
		if got := CompareCells(&a, &b); got != want || CompareCells(&b, &a) != -want {
			t.Fatalf("%s and %s compare as %d, want %d", &a, &b, got, want)
		}
	})
}
