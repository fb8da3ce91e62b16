package cdc

import (
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

// change makes a change with cells of every kind.
func change(t interface{ Fatal(...any) }, cells ...row.Cell) *row.Change {
	key, err := row.AppendKey(nil, 1, row.String("k"))
	if err != nil {
		t.Fatal(err)
	}
	c := new(row.Change)
	if err := c.Set(&row.Mutation{Table: 7, Key: key, Cells: cells}); err != nil {
		t.Fatal(err)
	}
	return c
}

func put(column string, version int64, v row.Value) row.Cell {
	return row.Cell{Column: []byte(column), Version: version, Kind: row.KindPut, Type: v.Type(), Value: v.AppendPayload(nil)}
}

func show(cells []row.Cell) string {
	var b strings.Builder
	for i := range cells {
		fmt.Fprintf(&b, "%s ", cells[i].String())
	}
	return b.String()
}

func TestARecordIsTheChangeThatItWasMadeOf(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var cells []row.Cell
		for i := range rapid.IntRange(0, 40).Draw(t, "cells") {
			column, version := fmt.Sprintf("c%03d", i), rapid.Int64Range(0, row.MaxVersion-1).Draw(t, "version")
			switch rapid.IntRange(0, 3).Draw(t, "kind") {
			case 0:
				cells = append(cells, row.Cell{Column: []byte(column), Version: row.MaxVersion, Kind: row.KindTrim})
			case 1:
				cells = append(cells, row.Cell{Column: []byte(column), Version: version, Kind: row.KindDeleteVersion})
			default:
				cells = append(cells, put(column, version, row.Binary(rapid.SliceOf(rapid.Byte()).Draw(t, "value"))))
			}
		}
		c := change(t, cells...)
		c.DeleteRow, c.PutRow = rapid.Bool().Draw(t, "delete"), rapid.Bool().Draw(t, "put")
		micros := rapid.Int64().Draw(t, "time")
		b := appendRecord(nil, c)
		setTime(b, micros)
		r, err := decode(b)
		if err != nil {
			t.Fatal(err)
		}
		if r.Micros != micros || r.DeleteRow != c.DeleteRow || r.PutRow != c.PutRow || string(r.Key) != string(c.Key) || show(r.Cells) != show(cells) {
			t.Fatalf("got %+v, want the change of %s", r, show(cells))
		}
		before, err := AppendBefore(nil, cells)
		if err != nil {
			t.Fatal(err)
		}
		if got, err := decodeBefore(before); err != nil || show(got) != show(cells) {
			t.Fatalf("before: %s, %v, want %s", show(got), err, show(cells))
		}
	})
}

// TestDamagedRecordsAreRefused cuts records short, makes them longer, and changes their bytes:
// nothing panics, and any bytes that are not refused are a record.
func TestDamagedRecordsAreRefused(t *testing.T) {
	good := appendRecord(nil, change(t, put("a", 1, row.Integer(5)), put("b", 1, row.String("x"))))
	for n := range good {
		if _, err := decode(good[:n]); !errors.Is(err, errBadRecord) {
			t.Errorf("the first %d bytes: %v", n, err)
		}
	}
	if _, err := decode(append(good[:len(good):len(good)], 0)); !errors.Is(err, errBadRecord) {
		t.Errorf("one byte more: %v", err)
	}
	for i := range good {
		for _, bit := range []byte{1, 0x80, 0xFF} {
			bad := []byte(string(good))
			bad[i] ^= bit
			if _, err := decode(bad); err != nil && !errors.Is(err, errBadRecord) {
				t.Errorf("byte %d: %v", i, err)
			}
			decodeBefore(bad)
		}
	}
	for _, b := range [][]byte{nil, {3, 0}, {0, 0}, {1}, {1, 200}, {1, 1}, {2, 1}} {
		if _, err := decodeBefore(b); !errors.Is(err, errBadRecord) {
			t.Errorf("%x: %v", b, err)
		}
	}
}

// TestTheDocumentedRecordIsTrue compares the worked example with the code.
func TestTheDocumentedRecordIsTrue(t *testing.T) {
	doc, err := os.ReadFile("../docs/format-stream.md")
	if err != nil {
		t.Fatal(err)
	}
	c := change(t, put("n", 1000, row.Integer(5)), row.Cell{Column: []byte("o"), Version: row.MaxVersion, Kind: row.KindTrim})
	record := appendRecord(nil, c)
	setTime(record, 1_000_001)
	_, block, found := strings.Cut(string(doc), "```example record\n")
	block, _, closed := strings.Cut(block, "```")
	if !found || !closed {
		t.Fatal("the document has no example")
	}
	var digits strings.Builder
	for line := range strings.Lines(block) {
		bytes, _, _ := strings.Cut(strings.TrimRight(line, "\n"), "  ")
		digits.WriteString(strings.ReplaceAll(bytes, " ", ""))
	}
	if got, want := digits.String(), hex.EncodeToString(record); got != want {
		t.Errorf("the document has\n%s\nthe code writes\n%s", got, want)
	}
}
