package ots

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// This file tests the figures of PROTOCOL 13.2 that official test suites assert.

func text(n int) string { return strings.Repeat("x", n) }

func wantCost(tb testing.TB, what string, got CapacityUnit, read, write int32) {
	tb.Helper()
	if got != (CapacityUnit{Read: read, Write: write}) {
		tb.Errorf("%s cost (%d, %d), want (%d, %d)", what, got.Read, got.Write, read, write)
	}
}

func columnsOf(count, size int) []Cell {
	var cells []Cell
	for i := range count {
		cells = append(cells, cell(fmt.Sprintf("col%d", i), text(size)))
	}
	return cells
}

func TestUnitsRoundUpAndNeverFallBelowOne(t *testing.T) {
	for _, c := range []struct {
		bytes int64
		want  int32
	}{{0, 1}, {1, 1}, {4096, 1}, {4097, 2}, {8192, 2}, {8193, 3}, {1 << 50, 1<<31 - 1}} {
		if got := units(c.bytes); got != c.want {
			t.Errorf("units(%d) = %d, want %d", c.bytes, got, c.want)
		}
	}
}

func TestSizesOfValuesCountAsDocumented(t *testing.T) {
	r := Row{
		Key: keyOf("k1", "abc", "k2", 7, "k3", []byte{1, 2}), // 2+3 + 2+8 + 2+2
		Cells: []Cell{
			cell("i", 1), cell("d", 1.5), cell("b", true), cell("s", "four"), cell("x", []byte("123")),
			deleteColumn("gone"), deleteVersion("old", 5),
		}, // 1+8 + 1+8 + 1+1 + 1+4 + 1+3 + 4 + 3
	}
	if got := keySize(r.Key); got != 19 {
		t.Errorf("key size %d, want 19", got)
	}
	if got := changeSize(&r); got != 19+36 {
		t.Errorf("change size %d, want %d", got, 19+36)
	}
}

func TestGetRowCostsItsKeyAndSelectedCells(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.mustWrite(
		putOf(pk("large"), cell("c", text(5000))),
		putOf(pk("five"), columnsOf(5, 2048)...),
		putOf(pk("exact"), cell("c", text(4096-len("pk")-len("exact")-len("c")))),
		putOf(pk("exact1"), cell("c", text(4096-len("pk")-len("exact")-len("c")))),
	)
	for _, c := range []struct {
		key     string
		columns []string
		read    int32
	}{
		{"large", nil, 2},
		{"five", []string{"col0", "col3"}, 2},
		{"five", []string{"absent"}, 1},
		{"five", []string{"pk"}, 1},
		{"five", nil, 3},
		{"exact", nil, 1},
		{"exact1", nil, 2},
		{"missing", nil, 1},
	} {
		res, err := f.get(pk(c.key), all(c.columns...))
		if err != nil {
			t.Fatal(err)
		}
		wantCost(t, fmt.Sprintf("GetRow %s %v", c.key, c.columns), res.Consumed, c.read, 0)
	}
}

func TestBatchGetRowCostsEachRowRoundedByItself(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.mustWrite(putOf(pk("a"), columnsOf(5, 2048)...), putOf(pk("b"), columnsOf(5, 2048)...))
	resp, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{Tables: []TableGets{{
		Table: "t", Rows: []Row{{Key: pk("a")}, {Key: pk("b")}, {Key: pk("missing")}}, Selection: all(),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, want := range []int32{3, 3, 1} {
		wantCost(t, fmt.Sprintf("row %d", i), resp.Tables[0].Rows[i].Consumed, want, 0)
	}
}

func TestGetRangeCostsTheSumOfScannedRowsRoundedOnce(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.mustWrite(putOf(pk("a"), columnsOf(3, 4096)...), putOf(pk("b"), columnsOf(3, 4096)...))
	for _, c := range []struct {
		name       string
		start, end string
		columns    []string
		read       int32
	}{
		{"one row", "a", "b", nil, 4},
		{"two rows", "a", "c", nil, 7},
		{"two columns of each of two rows", "a", "c", []string{"col0", "col1"}, 5},
		{"rows without a selected column", "a", "c", []string{"absent"}, 1},
		{"empty range", "x", "z", nil, 1},
	} {
		resp, err := f.GetRange(context.Background(), testInstance, &GetRangeRequest{
			Table: "t", Start: Row{Key: pk(c.start)}, End: Row{Key: pk(c.end)}, Selection: all(c.columns...),
		})
		if err != nil {
			t.Fatal(err)
		}
		wantCost(t, c.name, resp.Consumed, c.read, 0)
	}
}

func TestGetRangeCountsTheKeyOfRowsItSkips(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	long := text(1000)
	for i := range 5 {
		f.mustWrite(putOf(pk(fmt.Sprint(i, long)), cell("c", 1)))
	}
	resp, err := f.GetRange(context.Background(), testInstance, &GetRangeRequest{
		Table: "t", Start: Row{Key: keyOf("pk", row.Min())}, End: Row{Key: keyOf("pk", row.Max())},
		Selection: all("absent"),
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Rows) != 0 {
		t.Errorf("%d rows returned", len(resp.Rows))
	}
	wantCost(t, "five skipped rows of 1004 bytes of key", resp.Consumed, 2, 0)
}

func TestWritesCostTheirSizeAndConditionsOneReadUnit(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	put := putOf(pk("a"), columnsOf(2, 4096)...)
	update := updateOf(pk("a"), append(columnsOf(2, 4096), deleteColumn("x"), deleteColumn("y"))...)
	for _, c := range []struct {
		name        string
		change      RowChange
		read, write int32
	}{
		{"PutRow, expecting no row", put.expecting(ExistenceExpectNot), 1, 3},
		{"PutRow", put, 0, 3},
		{"PutRow, expecting a row", put.expecting(ExistenceExpect), 1, 3},
		{"UpdateRow", update, 0, 3},
		{"UpdateRow, expecting a row", update.expecting(ExistenceExpect), 1, 3},
		{"DeleteRow, expecting a row", deleteOf(pk("a")).expecting(ExistenceExpect), 1, 1},
		{"DeleteRow", deleteOf(pk("a")), 0, 1},
		{"PutRow without attributes", putOf(pk("a")), 0, 1},
	} {
		res, err := f.write(c.change)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		wantCost(t, c.name, res.Consumed, c.read, c.write)
	}
}

func TestReturningThePrimaryKeyCostsNothing(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	change := putOf(pk("a"), cell("c", 1))
	change.Return = ReturnPK
	res, err := f.write(change)
	if err != nil {
		t.Fatal(err)
	}
	wantCost(t, "PutRow with RT_PK", res.Consumed, 0, 1)
}

func TestAGeneratedKeyValueCounts(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(generatedTable())
	const units, others = 4096, len("pk") + len("a") + len("id") + 8 + len("c")
	for _, more := range []int{0, 1} {
		res, err := f.write(putOf(auto("a"), cell("c", text(units-others+more))))
		if err != nil {
			t.Fatal(err)
		}
		wantCost(t, fmt.Sprint(units+more, " bytes"), res.Consumed, 0, int32(1+more))
	}
}

func TestBatchWriteRowCostsPerRowAndARefusedConditionOneUnitEach(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{
		Table: "t", Changes: []RowChange{
			putOf(pk("a"), columnsOf(2, 4096)...),
			updateOf(pk("b"), cell("c", 1)).expecting(ExistenceExpect),
			deleteOf(pk("c")),
		},
	}}})
	if err != nil {
		t.Fatal(err)
	}
	rows := resp.Tables[0].Rows
	wantCost(t, "put", rows[0].Consumed, 0, 3)
	wantCost(t, "refused update", rows[1].Consumed, 1, 1)
	wantError(t, asErr(rows[1].Err), CodeConditionCheckFail, "Condition check failed.")
	wantCost(t, "delete", rows[2].Consumed, 0, 1)
}

func TestSplitPointsCostOneReadUnitPerSplit(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	compute := func() *SplitPointsResponse {
		resp, err := f.ComputeSplitPointsBySize(context.Background(), testInstance, &SplitPointsRequest{
			Table: "t", SplitSize: 1, UnitBytes: ptr(int64(megabyte)),
		})
		if err != nil {
			t.Fatal(err)
		}
		return resp
	}
	wantCost(t, "empty table", compute().Consumed, 1, 0)
	for i := range 200 {
		f.mustWrite(putOf(pk(fmt.Sprintf("%03d", i)), cell("c", text(15*kilobyte))))
	}
	resp := compute()
	if len(resp.Points) == 0 {
		t.Error("3 MB make one split of 1 MB")
	}
	wantCost(t, "table with data", resp.Consumed, int32(len(resp.Points)+1), 0)
}
