package ots

import (
	"context"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// both runs a test under both sets of limits.
func both(t *testing.T, test func(t *testing.T, f *fixture)) {
	for name, limits := range map[string]Limits{"documented": Documented(), "current": Current()} {
		t.Run(name, func(t *testing.T) { test(t, openFixture(t, limits)) })
	}
}

func TestMalformedWritesAreRefusedWithTheServicesMessages(t *testing.T) {
	p := CodeParameterInvalid
	withValue := func(c Cell) Cell { c.Value = row.Integer(1); return c }
	withVersion := func(c Cell) Cell { c.Version, c.HasVersion = 1, true; return c }
	noVersion := func(c Cell) Cell { c.HasVersion = false; return c }
	op := func(o CellOp) Cell { return Cell{Name: "c", Op: o, Value: row.Integer(1)} }
	marked := func(c RowChange) RowChange { c.Row.DeleteMarker = true; return c }
	unmarked := func(c RowChange) RowChange { c.Row.DeleteMarker = false; return c }
	withCells := func(c RowChange) RowChange { c.Row.Cells = []Cell{cell("c", 1)}; return c }
	returning := func(r ReturnType, columns ...string) RowChange {
		c := updateOf(pk("a"), cell("c", 1))
		c.Return, c.ReturnColumns = r, columns
		return c
	}
	conditional := putOf(pk("a"))
	conditional.ColumnCondition = &Filter{Type: FilterPagination, Limit: 1}
	auto := putOf([]KeyValue{{Name: "pk", AutoIncrement: true}})
	cases := []struct {
		change  RowChange
		code    string
		message string
	}{
		{putOf(pk("a"), op(OpDeleteAllVersion)), p, "OpType cannot be given for column name:c in PutRow."},
		{putOf(pk("a"), op(OpIncrement)), p, "OpType cannot be given for column name:c in PutRow."},
		{marked(putOf(pk("a"))), p, "Invalid request of put/update row: unexpected RowDeleteMarker in request."},
		{marked(updateOf(pk("a"), cell("c", 1))), p, "Invalid request of put/update row: unexpected RowDeleteMarker in request."},
		{updateOf(pk("a")), p, "Invalid update row request: missing cells in request."},
		{unmarked(deleteOf(pk("a"))), p, "Invalid request of delete row: missing RowDeleteMarker in request."},
		{withCells(deleteOf(pk("a"))), p, "Invalid delete row request: unexpected cells in request."},
		{RowChange{Row: Row{Key: pk("a")}}, p, "The modify type is invalid."},
		{putOf(pk("a")).expecting(3), p, "Invalid row-existence expectation: 3."},
		{updateOf(pk("a"), withValue(deleteColumn("c"))), p, "Column value cannot be given when type is DELETE_ONE_VERSION,DELETE_ALL_VERSION."},
		{updateOf(pk("a"), withValue(deleteVersion("c", 1))), p, "Column value cannot be given when type is DELETE_ONE_VERSION,DELETE_ALL_VERSION."},
		{updateOf(pk("a"), noVersion(deleteVersion("c", 1))), p, "Timestamp must be given when type is DELETE_ONE_VERSION."},
		{updateOf(pk("a"), withVersion(deleteColumn("c"))), p, "Timestamp cannot be given when type is DELETE_ALL_VERSION."},
		{updateOf(pk("a"), op(2)), p, "Invalid op type of cell: 2."},
		{putOf(pk("a"), cell("c", nil)), p, "No value is given for column name: 'c'."},
		{putOf(pk("a"), cell("c", row.Min())), p, "VT_INF_MIN is an invalid type for the attribute column."},
		{putOf(pk("a"), cell("c", math.NaN())), p, "NaN can't be set to double value."},
		{putOf(pk("a"), cell("c", math.Inf(1))), p, "Infinity can't be set to double value."},
		{putOf(pk("a"), cell("c", math.Inf(-1))), p, "Infinity can't be set to double value."},
		{putOf(pk("a"), cell("c", "\xff")), p, "Value of column c must be UTF8 encoding."},
		{putOf(pk("\xff")), p, "Value of column pk must be UTF8 encoding."},
		{putOf(pk("a"), cell("pk", 1)), p, "Duplicated attribute column name with primary key column: 'pk'."},
		{putOf(pk("a"), cell("", 1)), p, "Invalid column name: ''."},
		{putOf(pk("a"), cell("#c", 1)), p, "Invalid column name: '#c'."},
		{putOf(pk("a"), cell("c\xff", 1)), p, "Invalid column name: 'c\uFFFD'."},
		{putOf(pk("a"), cell("c\n", 1)), p, "Invalid column name: 'c\n'."},
		{putOf(pk("a"), cellAt("c", 1, -1)), p, "Timestamp must be in range [0, INT64_MAX/1000)."},
		{putOf(pk("a"), cellAt("c", 1, math.MaxInt64/1000)), p, "Timestamp must be in range [0, INT64_MAX/1000)."},
		{updateOf(pk("a"), deleteVersion("c", -1)), p, "Timestamp must be in range [0, INT64_MAX/1000)."},
		{conditional, p, "ColumnPaginationFilter can only be given alone, as the filter of a read."},
		{auto, CodeInvalidPK, "Validate PK type fail. Input: VT_AUTO_INCREMENT, Meta: VT_STRING."},
		{returning(ReturnAfterModify, "c"), p, "Return type RT_AFTER_MODIFY can only be given with atomic increments."},
		{returning(ReturnPK, "c"), p, "Return column names cannot be given when return type is RT_PK."},
		{returning(7), p, "Invalid return type: 7."},
		{putOf(keyOf("#k", "a")), p, "Invalid column name: '#k'."},
		{putOf(keyOf("pk", nil)), p, "No value is given for primary key name: 'pk'."},
		{putOf(keyOf("pk", row.Min())), p, "VT_INF_MIN is an invalid type for the primary key."},
		{putOf(keyOf("pk", row.Max())), p, "VT_INF_MAX is an invalid type for the primary key."},
		{putOf(keyOf("pk", 1.5)), p, "VT_DOUBLE is an invalid type for the primary key."},
		{putOf(keyOf("pk", true)), p, "VT_BOOLEAN is an invalid type for the primary key."},
		{putOf(nil), CodeInvalidPK, "Validate PK size fail. Input: 0, Meta: 1."},
		{putOf(keyOf("pk", "a", "x", 1)), CodeInvalidPK, "Validate PK size fail. Input: 2, Meta: 1."},
		{putOf(keyOf("PK", "a")), CodeInvalidPK, "Validate PK name fail. Input: PK, Meta: pk."},
		{putOf(keyOf("pk", 1)), CodeInvalidPK, "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING."},
		{putOf(keyOf("pk", []byte("a"))), CodeInvalidPK, "Validate PK type fail. Input: VT_BLOB, Meta: VT_STRING."},
	}
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		for _, c := range cases {
			_, err := f.write(c.change)
			wantError(t, err, c.code, c.message)
			if c.code == CodeInvalidPK {
				continue // a batch refuses only the row
			}
			_, err = f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{
				Tables: []TableChanges{{Table: "t", Changes: []RowChange{putOf(pk("ok")), c.change}}},
			})
			wantError(t, err, c.code, c.message)
		}
		if got := f.show(pk("ok"), all()); got != "none" {
			t.Errorf("a refused batch left row %s", got)
		}
	})
}

func TestUnsupportedPartsOfAWriteAreRefusedAndNotIgnored(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	ctx := context.Background()
	_, err := f.WriteRow(ctx, testInstance, &WriteRowRequest{
		Table: "t", Change: putOf(pk("a")), TransactionID: ptr("tx"),
	})
	wantError(t, err, CodeParameterInvalid, "TransactionID is invalid.")
	batch := []TableChanges{{Table: "t", Changes: []RowChange{putOf(pk("a"))}}}
	_, err = f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{Tables: batch, TransactionID: ptr("tx")})
	wantError(t, err, CodeParameterInvalid, "TransactionID is invalid.")
	_, err = f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{Tables: batch, TransactionID: ptr("")})
	wantError(t, err, CodeParameterInvalid, "TransactionID is invalid.")
	if got := f.show(pk("a"), all()); got != "none" {
		t.Errorf("a refused write left row %s", got)
	}
}

func TestNamesAreCheckedAtTheirEdges(t *testing.T) {
	longest, longer := strings.Repeat("n", 255), strings.Repeat("n", 256)
	wide := strings.Repeat("\u5b57", 255)
	for _, c := range []struct {
		name                     string
		table, documented, loose bool // allowed as table name, column name, column name under the loose rule
	}{
		{"a", true, true, true},
		{"_", true, true, true},
		{"Z9_", true, true, true},
		{longest, true, true, true},
		{longer, false, false, false},
		{"", false, false, false},
		{"9a", false, false, true},
		{"price-2", false, false, true},
		{"a.b", false, false, true},
		{"a:b", false, false, true},
		{"a b", false, false, true},
		{wide, false, false, true},
		{wide + "x", false, false, false},
		{"#a", false, false, false},
		{"a#", false, false, true},
		{"a\x00b", false, false, false},
		{"\xff", false, false, false},
	} {
		documented, current := Documented(), Current()
		for _, check := range []struct {
			what string
			err  *Error
			ok   bool
		}{
			{"documented table", documented.checkTableName(c.name), c.table},
			{"current table", current.checkTableName(c.name), c.table},
			{"documented column", documented.checkColumnName(c.name), c.documented},
			{"current column", current.checkColumnName(c.name), c.loose},
		} {
			if (check.err == nil) != check.ok {
				t.Errorf("%s name %q: %v, want ok=%v", check.what, c.name, check.err, check.ok)
			}
		}
	}
}

func TestEveryOperationRefusesAMalformedTableName(t *testing.T) {
	f := openFixture(t, Limits{})
	ctx := context.Background()
	bad := "no-name"
	message := "Invalid table name: 'no-name'."
	for name, call := range map[string]func() error{
		"CreateTable":   func() error { return f.CreateTable(ctx, testInstance, tableRequest(bad, "pk", row.TypeString)) },
		"DescribeTable": func() error { _, err := f.DescribeTable(ctx, testInstance, bad); return err },
		"DeleteTable":   func() error { return f.DeleteTable(ctx, testInstance, bad) },
		"UpdateTable": func() error {
			_, err := f.UpdateTable(ctx, testInstance, &UpdateTableRequest{Table: bad})
			return err
		},
		"ComputeSplitPointsBySize": func() error {
			_, err := f.ComputeSplitPointsBySize(ctx, testInstance, &SplitPointsRequest{Table: bad, SplitSize: 1})
			return err
		},
		"GetRow": func() error {
			_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: bad, Row: Row{Key: pk("a")}, Selection: all()})
			return err
		},
		"GetRange": func() error {
			_, err := f.GetRange(ctx, testInstance, &GetRangeRequest{Table: bad, Selection: all()})
			return err
		},
		"WriteRow": func() error {
			_, err := f.WriteRow(ctx, testInstance, &WriteRowRequest{Table: bad, Change: putOf(pk("a"))})
			return err
		},
		"BatchGetRow": func() error {
			_, err := f.BatchGetRow(ctx, testInstance, &BatchGetRowRequest{
				Tables: []TableGets{{Table: bad, Rows: []Row{{Key: pk("a")}}, Selection: all()}}})
			return err
		},
		"BatchWriteRow": func() error {
			_, err := f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{
				Tables: []TableChanges{{Table: bad, Changes: []RowChange{putOf(pk("a"))}}}})
			return err
		},
	} {
		t.Run(name, func(t *testing.T) { wantError(t, call(), CodeParameterInvalid, message) })
	}
}

func TestSizesOfKeysAndAttributesAreLimitedAtTheirEdges(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		f.create(tableRequest("b", "pk", row.TypeBinary))
		for _, c := range []struct {
			change  RowChange
			message string
		}{
			{putOf(pk(text(1024))), ""},
			{putOf(pk(text(1025))), "The length of primary key column: 'pk' exceeds the MaxLength:1024 with CurrentLength:1025."},
			{putOf(keyOf("pk", []byte(text(1025)))), "The length of primary key column: 'pk' exceeds the MaxLength:1024 with CurrentLength:1025."},
			{putOf(pk("s"), cell("c", text(2*megabyte))), ""},
			{putOf(pk("s"), cell("c", text(2*megabyte+1))), "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."},
			{putOf(pk("b"), cell("c", []byte(text(2*megabyte)))), ""},
			{putOf(pk("b"), cell("c", []byte(text(2*megabyte+1)))), "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."},
		} {
			_, err := f.write(c.change)
			if c.message == "" {
				wantError(t, err, "", "")
			} else {
				wantError(t, err, CodeParameterInvalid, c.message)
			}
		}
	})
}

func TestColumnsPerWriteAreLimitedAtTheirEdge(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(5000, -1)
		var cells []Cell
		for i := range 1024 {
			cells = append(cells, cell(fmt.Sprintf("c%d", i), 1))
		}
		_, err := f.write(putOf(pk("a"), cells...))
		wantError(t, err, "", "")
		_, err = f.write(updateOf(pk("a"), append(cells, cellAt("c0", 2, startMillis))...))
		wantError(t, err, "", "") // versions of a column count as one column
		_, err = f.write(putOf(pk("a"), append(cells, cell("more", 1))...))
		wantError(t, err, CodeParameterInvalid,
			"The number of attribute columns exceeds the limit, limit count: 1024, column count: 1025.")
	})
}

func TestOnlyTheCurrentLimitsBoundTheDataOfOneWrite(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		edge := func(extra int, typ ChangeType) RowChange {
			rest := 4*megabyte - len("pk") - len("a") - 3*len("x") - 2*2*megabyte/2
			c := putOf(pk("a"), cell("x", text(megabyte)), cell("y", text(megabyte)), cell("z", text(rest/2)))
			c.Row.Cells = append(c.Row.Cells, cell("w", text(rest-rest/2-1+extra)))
			c.Type = typ
			return c
		}
		for _, typ := range []ChangeType{ChangePut, ChangeUpdate} {
			_, err := f.write(edge(0, typ))
			wantError(t, err, "", "")
			name := map[ChangeType]string{ChangePut: "PutRow", ChangeUpdate: "UpdateRow"}[typ]
			_, err = f.write(edge(1, typ))
			if f.limits.WriteRowBytes == 0 {
				wantError(t, err, "", "")
				continue
			}
			wantError(t, err, CodeParameterInvalid,
				"The total data size of "+name+" request exceeds the limit, limit size: 4194304, data size: 4194305.")
		}
	})
}
