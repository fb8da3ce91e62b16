package ots

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

func (f *fixture) rangeOf(req GetRangeRequest) (*GetRangeResponse, error) {
	req.Table = "t"
	return f.GetRange(context.Background(), testInstance, &req)
}

// pages reads a range page by page, as clients do.
func (f *fixture) pages(req GetRangeRequest) [][]Row {
	f.tb.Helper()
	var pages [][]Row
	for {
		resp, err := f.rangeOf(req)
		if err != nil {
			f.tb.Fatalf("page %d: %v", len(pages)+1, err)
		}
		pages = append(pages, resp.Rows)
		if resp.Next == nil {
			return pages
		}
		if len(pages) > 100 {
			f.tb.Fatal("the range does not end")
		}
		req.Start = Row{Key: resp.Next}
	}
}

func everything() GetRangeRequest {
	return GetRangeRequest{
		Start: Row{Key: keyOf("pk", row.Min())}, End: Row{Key: keyOf("pk", row.Max())}, Selection: all(),
	}
}

// fill writes n rows in batches, in ascending order of keys.
func (f *fixture) fill(n int, cells func(i int) []Cell) {
	f.tb.Helper()
	var changes []RowChange
	flush := func() {
		resp, err := f.BatchWriteRow(context.Background(), testInstance,
			&BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: changes}}})
		if err != nil {
			f.tb.Fatal(err)
		}
		for _, r := range resp.Tables[0].Rows {
			if r.Err != nil {
				f.tb.Fatal(r.Err)
			}
		}
		changes = nil
	}
	for i := range n {
		changes = append(changes, putOf(pk(fmt.Sprintf("%06d", i)), cells(i)...))
		if len(changes) == 200 {
			flush()
		}
	}
	if len(changes) > 0 {
		flush()
	}
}

func TestRangeBoundsMustBeOrderedKeysOfTheTable(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "k", row.TypeInteger, "s", row.TypeString))
	low, high := row.Min(), row.Max()
	key := func(k, s any) []KeyValue { return keyOf("k", k, "s", s) }
	p := CodeParameterInvalid
	forward, backward := "Begin key must less than end key in FORWARD", "Begin key must more than end key in BACKWARD"
	for _, c := range []struct {
		start, end []KeyValue
		backward   bool
		code       string
		message    string
	}{
		{key(1, "a"), key(1, "b"), false, "", ""},
		{key(1, "a"), key(1, "a"), false, p, forward},
		{key(1, "b"), key(1, "a"), false, p, forward},
		{key(2, "a"), key(10, "a"), false, "", ""},
		{key(-1, "a"), key(1, "a"), false, "", ""},
		{key(1, low), key(1, high), false, "", ""},
		{key(low, low), key(high, high), false, "", ""},
		{key(low, low), key(low, low), false, p, forward},
		{key(high, high), key(low, low), false, p, forward},
		{key(high, high), key(low, low), true, "", ""},
		{key(1, "b"), key(1, "a"), true, "", ""},
		{key(1, "a"), key(1, "a"), true, p, backward},
		{key(1, "a"), key(1, "b"), true, p, backward},
		{key("x", low), key(high, high), false, CodeInvalidPK, "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER."},
		{key(low, low), keyOf("k", high), false, CodeInvalidPK, "Validate PK size fail. Input: 1, Meta: 2."},
		{keyOf("s", low, "k", low), key(high, high), false, CodeInvalidPK, "Validate PK name fail. Input: s, Meta: k."},
		{key(1.5, low), key(high, high), false, p, "VT_DOUBLE is an invalid type for the primary key."},
		{key(nil, low), key(high, high), false, p, "No value is given for primary key name: 'k'."},
		{[]KeyValue{{Name: "k", AutoIncrement: true}}, key(high, high), false, p, "PKAutoIncr can't be used for read operations."},
	} {
		_, err := f.rangeOf(GetRangeRequest{Start: Row{Key: c.start}, End: Row{Key: c.end}, Backward: c.backward, Selection: all()})
		wantError(t, err, c.code, c.message)
	}
}

func TestMalformedRangeRequestsAreRefused(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	p := CodeParameterInvalid
	for _, c := range []struct {
		change  func(r *GetRangeRequest)
		message string
	}{
		{func(r *GetRangeRequest) { r.Limit = ptr(int32(0)) }, "The limit must be greater than 0."},
		{func(r *GetRangeRequest) { r.Limit = ptr(int32(-5)) }, "The limit must be greater than 0."},
		{func(r *GetRangeRequest) { r.Start.DeleteMarker = true }, "Delete marker cannot be given."},
		{func(r *GetRangeRequest) { r.End.Cells = []Cell{cell("c", 1)} }, "Attribute column cannot be given while reading data."},
		{func(r *GetRangeRequest) { r.MaxVersions = nil }, "No version condition is specified."},
		{func(r *GetRangeRequest) { r.Filter = &Filter{} }, "Deserialize filter failed"},
		{func(r *GetRangeRequest) { r.TransactionID = ptr("") }, "TransactionID is invalid."},
		{func(r *GetRangeRequest) { r.TransactionID = ptr("x") }, "TransactionID is invalid."},
	} {
		req := everything()
		c.change(&req)
		_, err := f.rangeOf(req)
		wantError(t, err, p, c.message)
	}
}

func TestAPageEndsAtTheLimitOfScannedRows(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.fill(5000, func(int) []Cell { return []Cell{cell("c", 1)} })
	shape := func(req GetRangeRequest) (sizes []int) {
		for _, p := range f.pages(req) {
			sizes = append(sizes, len(p))
		}
		return sizes
	}
	want := func(what string, req GetRangeRequest, sizes ...int) {
		t.Helper()
		if got := shape(req); !slices.Equal(got, sizes) {
			t.Errorf("%s: pages of %v rows, want %v", what, got, sizes)
		}
	}
	backward := everything()
	backward.Start, backward.End, backward.Backward = backward.End, backward.Start, true
	nothing := everything()
	nothing.Selection = all("absent")
	want("exactly 5000 rows", everything(), 5000)
	want("exactly 5000 rows, backward", backward, 5000)
	want("5000 rows without a selected column", nothing, 0)
	f.mustWrite(putOf(pk("last")))
	want("5001 rows", everything(), 5000, 1)
	want("5001 rows, backward", backward, 5000, 1)
	want("5001 rows without a selected column", nothing, 0, 0)
	limited := everything()
	limited.Limit = ptr(int32(6000))
	want("a limit above the page", limited, 5000, 1)
	limited.Limit = ptr(int32(5001))
	limited.End = Row{Key: pk("000007")}
	limited.Limit = ptr(int32(3))
	want("limit 3 over 7 rows", limited, 3, 3, 1)
	limited.End = Row{Key: pk("000006")}
	want("limit 3 over 6 rows", limited, 3, 3)
}

func TestTheLimitCountsReturnedRowsOnly(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.fill(30, func(i int) []Cell {
		if i%10 == 0 {
			return []Cell{cellAt("rare", i, startMillis)}
		}
		return []Cell{cell("c", 1)}
	})
	req := everything()
	req.Selection = all("rare")
	req.Limit = ptr(int32(2))
	resp, err := f.rangeOf(req)
	if err != nil {
		t.Fatal(err)
	}
	if len(resp.Rows) != 2 || showRow(&resp.Rows[1]) != `"000010" | rare@0=10` {
		t.Errorf("got %d rows, the last %s", len(resp.Rows), showRow(&resp.Rows[len(resp.Rows)-1]))
	}
	if len(resp.Next) != 1 || resp.Next[0].Value.Text() != "000011" {
		t.Errorf("next key %v, want the row after the last one looked at", resp.Next)
	}
}

func TestAPageEndsBeforeTheRowThatWouldExceedItsBytes(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	// Two rows fill 4 MB to the last byte; each has a key of 2+6 bytes.
	half := 2*megabyte - len("pk") - 6 - 2*len("c")
	f.fill(2, func(int) []Cell { return []Cell{cell("c", text(half/2)), cell("d", text(half-half/2))} })
	count := func() (sizes []int) {
		for _, p := range f.pages(everything()) {
			sizes = append(sizes, len(p))
		}
		return sizes
	}
	if got := count(); !slices.Equal(got, []int{2}) {
		t.Errorf("4 MB exactly: pages of %v rows", got)
	}
	f.mustWrite(updateOf(pk("000001"), cell("c", text(half/2+1))))
	if got := count(); !slices.Equal(got, []int{1, 1}) {
		t.Errorf("4 MB and a byte: pages of %v rows", got)
	}
}

func TestARowLargerThanAPageIsAPageOfItsOwn(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	for _, key := range []string{"a", "b", "c"} {
		f.mustWrite(putOf(pk(key), cell("c", text(megabyte))))
	}
	for _, column := range []string{"d", "e", "f", "g"} {
		f.mustWrite(updateOf(pk("b"), cell(column, text(megabyte))))
	}
	for i, page := range f.pages(everything()) {
		if len(page) != 1 || page[0].Key[0].Value.Text() != string("abc"[i]) {
			t.Errorf("page %d has %d rows", i, len(page))
		}
	}
}

func TestAPageEndsAfterABoundedNumberOfCells(t *testing.T) {
	limits := Documented()
	limits.RangeCells = 20 // a row with no selected cells counts as one
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	f.fill(40, func(i int) []Cell { return []Cell{cell("a", i), cell("b", i), cell("c", i)} })
	req := everything()
	req.Selection = all("absent")
	if pages := f.pages(req); len(pages) < 2 {
		t.Errorf("a range of 40 rows in %d pages, with 20 cells looked at for each", len(pages))
	}
	total := 0
	for _, p := range f.pages(everything()) {
		total += len(p)
	}
	if total != 40 {
		t.Errorf("%d rows over all pages, want 40", total)
	}
}

func TestAPageEndsInTheMiddleOfDeletedRows(t *testing.T) {
	limits := Documented()
	limits.RangeCells = 50
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	const rows = 100
	f.fill(rows, func(i int) []Cell { return []Cell{cell("a", i)} })
	for _, page := range f.pages(everything()) {
		for _, r := range page {
			f.mustWrite(RowChange{Type: ChangeDelete, Row: Row{Key: r.Key, DeleteMarker: true}})
		}
	}
	pages := f.pages(everything())
	if len(pages) < 3 {
		t.Errorf("a range over %d deleted rows in %d pages, with 50 cells for each", rows, len(pages))
	}
	for _, page := range pages {
		if len(page) != 0 {
			t.Errorf("a deleted row was returned: %v", page[0])
		}
	}
}

func TestReturnEntirePrimaryKeysFalseReturnsTheListedKeyColumns(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "k", row.TypeInteger, "s", row.TypeString))
	f.mustWrite(putOf(keyOf("k", 1, "s", "x"), cellAt("c", 1, startMillis)))
	for _, c := range []struct {
		entire  *bool
		columns []string
		want    string
	}{
		{nil, []string{"s", "c"}, `1,"x" | c@0=1`},
		{ptr(true), []string{"s", "c"}, `1,"x" | c@0=1`},
		{ptr(false), []string{"s", "c"}, `"x" | c@0=1`},
		{ptr(false), []string{"k"}, `1 |`},
		{ptr(false), []string{"s", "k"}, `1,"x" |`},
		{ptr(false), []string{"c"}, `1,"x" | c@0=1`},
		{ptr(false), nil, `1,"x" | c@0=1`},
	} {
		resp, err := f.rangeOf(GetRangeRequest{
			Start: Row{Key: keyOf("k", row.Min(), "s", row.Min())}, End: Row{Key: keyOf("k", row.Max(), "s", row.Max())},
			ReturnEntirePrimaryKeys: c.entire, Selection: all(c.columns...),
		})
		if err != nil || len(resp.Rows) != 1 {
			t.Fatalf("%v: %d rows, %v", c.columns, len(resp.Rows), err)
		}
		if got := showRow(&resp.Rows[0]); got != c.want {
			t.Errorf("entire %v, %v: got %s, want %s", c.entire, c.columns, got, c.want)
		}
	}
}

func TestRowsOfAPageKeepTheirValuesWhileTheScanGoesOn(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.fill(50, func(i int) []Cell {
		return []Cell{cellAt("b", []byte(fmt.Sprint("bin", i)), startMillis), cellAt("s", fmt.Sprint("str", i), startMillis)}
	})
	resp, err := f.rangeOf(everything())
	if err != nil {
		t.Fatal(err)
	}
	for i := range resp.Rows {
		want := fmt.Sprintf(`"%06d" | b@0=0x%x s@0="str%d"`, i, fmt.Sprint("bin", i), i)
		if got := showRow(&resp.Rows[i]); got != want {
			t.Errorf("row %d: got %s, want %s", i, got, want)
		}
	}
}

// modelRow is a row of the naive model of paging.
type modelRow struct {
	encoded []byte
	key     []row.Value
	shown   string
}

func TestPagesOfAnyRangeInBothDirectionsAddUpToTheRowsInIt(t *testing.T) {
	f := openFixture(t, Limits{})
	tables := 0
	rapid.Check(t, func(rt *rapid.T) {
		tables++
		name := "t"
		if tables > 1 {
			if err := f.DeleteTable(context.Background(), testInstance, name); err != nil {
				rt.Fatal(err)
			}
		}
		f.create(tableRequest(name, "k", row.TypeString, "n", row.TypeInteger))
		model := drawRows(rt, f)
		checkRanges(rt, f, model)
	})
}

var partValues = []string{"", "\x00", "a", "a\x00", "a\x01", "ab", "b", "é"}

func drawKey(rt *rapid.T, bounds bool) []row.Value {
	draw := func(label string, v row.Value) row.Value {
		if !bounds {
			return v
		}
		switch rapid.IntRange(0, 5).Draw(rt, label+" bound") {
		case 0:
			return row.Min()
		case 1:
			return row.Max()
		}
		return v
	}
	return []row.Value{
		draw("k", row.String(rapid.SampledFrom(partValues).Draw(rt, "k"))),
		draw("n", row.Integer(rapid.Int64Range(-3, 3).Draw(rt, "n"))),
	}
}

func drawRows(rt *rapid.T, f *fixture) []modelRow {
	var model []modelRow
	for range rapid.IntRange(0, 30).Draw(rt, "rows") {
		key := drawKey(rt, false)
		encoded, err := row.AppendKey(nil, 2, key...)
		if err != nil {
			rt.Fatal(err)
		}
		named := keyOf("k", key[0], "n", key[1])
		at := slices.IndexFunc(model, func(m modelRow) bool { return bytes.Equal(m.encoded, encoded) })
		if at >= 0 && rapid.Bool().Draw(rt, "delete") {
			f.mustWrite(deleteOf(named))
			model = slices.Delete(model, at, at+1)
			continue
		}
		r := Row{Key: named}
		for i := range rapid.IntRange(0, 2).Draw(rt, "cells") {
			r.Cells = append(r.Cells, cellAt(fmt.Sprintf("c%d", i), i, startMillis))
		}
		f.mustWrite(RowChange{Type: ChangePut, Row: r})
		if at >= 0 {
			model[at].shown = showRow(&r)
		} else {
			model = append(model, modelRow{encoded: encoded, key: key, shown: showRow(&r)})
		}
	}
	slices.SortFunc(model, func(a, b modelRow) int { return bytes.Compare(a.encoded, b.encoded) })
	return model
}

func checkRanges(rt *rapid.T, f *fixture, model []modelRow) {
	for range 5 {
		start, end := drawKey(rt, true), drawKey(rt, true)
		order, err := compareKeys(2, start, end)
		if err != nil {
			rt.Fatal(err)
		}
		if order == 0 {
			continue
		}
		req := GetRangeRequest{
			Start: Row{Key: keyOf("k", start[0], "n", start[1])}, End: Row{Key: keyOf("k", end[0], "n", end[1])},
			Backward: order > 0, Selection: all(),
		}
		if rapid.Bool().Draw(rt, "limited") {
			req.Limit = ptr(rapid.Int32Range(1, 7).Draw(rt, "limit"))
		}
		var want, got []string
		for _, m := range model {
			fromStart, _ := compareKeys(2, m.key, start)
			toEnd, _ := compareKeys(2, m.key, end)
			if !req.Backward && fromStart >= 0 && toEnd < 0 || req.Backward && fromStart <= 0 && toEnd > 0 {
				want = append(want, m.shown)
			}
		}
		if req.Backward {
			slices.Reverse(want)
		}
		for i, page := range f.pages(req) {
			if req.Limit != nil && len(page) > int(*req.Limit) || len(page) == 0 && i > 0 {
				rt.Fatalf("page %d has %d rows, limit %v", i, len(page), req.Limit)
			}
			for j := range page {
				got = append(got, showRow(&page[j]))
			}
		}
		if !slices.Equal(got, want) {
			rt.Fatalf("from %v to %v: got\n%q\nwant\n%q", start, end, got, want)
		}
	}
}
