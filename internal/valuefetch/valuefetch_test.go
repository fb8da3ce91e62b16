package valuefetch_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/internal/valuefetch"
	"github.com/flagstone-db/flagstone/row"
)

var errDamage = errors.New("damage")

// files holds values by the offset of their reference. The packed form of a value is its length.
type files struct {
	values map[uint64]string
	reads  int
}

func (f *files) Value(buffer *[]byte, reference []byte) ([]byte, error) {
	f.reads++
	ref, err := row.ParseReference(reference)
	if err != nil {
		return nil, err
	}
	v, ok := f.values[ref.Offset]
	if !ok {
		return nil, errDamage
	}
	*buffer = append((*buffer)[:0], v...)
	return *buffer, nil
}

func (f *files) Unpack(buffer *[]byte, packed []byte) ([]byte, error) {
	var n int
	if _, err := fmt.Sscan(string(packed), &n); err != nil {
		return nil, err
	}
	*buffer = append((*buffer)[:0], strings.Repeat("p", n)...)
	return *buffer, nil
}

func (f *files) cell(at uint64, value string) row.Cell {
	f.values[at] = value
	ref := row.Reference{File: 1, Offset: at, Stored: uint32(len(value)) + 8, Raw: uint32(len(value))}
	return row.Cell{Column: fmt.Appendf(nil, "c%d", at), Separate: true, Value: ref.Append(nil)}
}

func TestEveryValueIsPlain(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		f := &files{values: map[uint64]string{}}
		var v valuefetch.Values
		var kept [][]row.Cell // detached rows
		var wants [][]string
		for range rapid.IntRange(1, 5).Draw(t, "rows") {
			var cells []row.Cell
			var want []string
			for i := range rapid.IntRange(0, 6).Draw(t, "cells") {
				n := rapid.IntRange(0, 50).Draw(t, "length")
				value := strings.Repeat(fmt.Sprint(i), n)
				switch rapid.IntRange(0, 2).Draw(t, "kind") {
				case 0:
					cells = append(cells, row.Cell{Value: []byte(value)})
				case 1:
					cells = append(cells, f.cell(uint64(i), value))
				default:
					value = strings.Repeat("p", n)
					cells = append(cells, row.Cell{Packed: true, Value: fmt.Append(nil, n)})
				}
				want = append(want, value)
			}
			if err := v.Fetch(cells, f, 0); err != nil {
				t.Fatal(err)
			}
			check(t, cells, want)
			if !rapid.Bool().Draw(t, "detach") {
				continue
			}
			values := v.TakeOut(cells)
			copied := append([]row.Cell(nil), cells...)
			v.PutInto(copied, values)
			kept, wants = append(kept, copied), append(wants, want)
		}
		for i := range kept { // later rows do not use the memory of detached ones
			check(t, kept[i], wants[i])
		}
	})
}

func check(t *rapid.T, cells []row.Cell, want []string) {
	for i, c := range cells {
		if c.Separate || c.Packed {
			t.Fatalf("cell %d is not plain", i)
		}
		if string(c.Value) != want[i] {
			t.Fatalf("cell %d is %q, want %q", i, c.Value, want[i])
		}
	}
}

// TestARowIsFetchedOnlyWithinItsBound: a row whose references say that it is too large is refused
// before a value is read.
func TestARowIsFetchedOnlyWithinItsBound(t *testing.T) {
	f := &files{values: map[uint64]string{}}
	newCells := func() []row.Cell {
		return []row.Cell{f.cell(1, strings.Repeat("x", 1000)), {Column: []byte("c"), Packed: true, Value: []byte("500")}}
	}
	cells := newCells()
	known := cells[0].Memory() + cells[1].Memory()
	for most, c := range map[int64]struct {
		err   error
		reads int
	}{0: {nil, 1}, known - 1: {valuefetch.ErrTooLarge, 0}, known + 499: {valuefetch.ErrTooLarge, 1}, known + 500: {nil, 1}} {
		f.reads = 0
		var v valuefetch.Values
		if err := v.Fetch(newCells(), f, most); !errors.Is(err, c.err) || f.reads != c.reads {
			t.Errorf("%d bytes: %v after %d reads, want %v after %d", most, err, f.reads, c.err, c.reads)
		}
	}
}

func TestMemoryIsUsedAgain(t *testing.T) {
	f := &files{values: map[uint64]string{}}
	cells := []row.Cell{f.cell(1, strings.Repeat("x", 1000))}
	reference := cells[0].Value
	var v valuefetch.Values
	allocs := testing.AllocsPerRun(100, func() {
		cells[0].Separate, cells[0].Value = true, reference
		if err := v.Fetch(cells, f, 0); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0 {
		t.Errorf("%v allocations for each row", allocs)
	}
}

func TestADamagedReferenceIsReported(t *testing.T) {
	f := &files{values: map[uint64]string{}}
	cells := []row.Cell{f.cell(1, "x")}
	delete(f.values, 1)
	var v valuefetch.Values
	if err := v.Fetch(cells, f, 0); !errors.Is(err, errDamage) {
		t.Error(err)
	}
}
