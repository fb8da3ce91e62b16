package ots

import (
	"context"
	"fmt"
	"testing"
)

func benchmarkFixture(b *testing.B, rows int) *fixture {
	f := openFixture(b, Limits{})
	f.createPlain(1, -1)
	f.fill(rows, func(i int) []Cell {
		var cells []Cell
		for c := range 10 {
			cells = append(cells, cell(fmt.Sprintf("column%d", c), text(100)))
		}
		return cells
	})
	b.ReportAllocs()
	b.ResetTimer()
	return f
}

func BenchmarkPutRowOfTenColumns(b *testing.B) {
	f := benchmarkFixture(b, 1)
	change := putOf(pk("a"), columnsOf(10, 100)...)
	for i := range b.N {
		change.Row.Key = pk(fmt.Sprintf("%09d", i))
		if _, err := f.write(change); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkBatchWriteRowOf100Rows(b *testing.B) {
	f := benchmarkFixture(b, 1)
	changes := make([]RowChange, 100)
	for i := range b.N {
		for j := range changes {
			changes[j] = putOf(pk(fmt.Sprintf("%07d%02d", i, j)), columnsOf(10, 100)...)
		}
		_, err := f.BatchWriteRow(context.Background(), testInstance,
			&BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: changes}}})
		if err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetRowOfTenColumns(b *testing.B) {
	f := benchmarkFixture(b, 1000)
	for i := range b.N {
		if _, err := f.get(pk(fmt.Sprintf("%06d", i%1000)), all()); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkGetRangeOf1000Rows(b *testing.B) {
	f := benchmarkFixture(b, 1000)
	for range b.N {
		resp, err := f.rangeOf(everything())
		if err != nil || len(resp.Rows) != 1000 {
			b.Fatal(len(resp.Rows), err)
		}
	}
}
