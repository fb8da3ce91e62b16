package gosdk_test

import (
	"errors"
	"fmt"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// writeBatch writes a batch over one table and returns the outcomes of its
// rows.
func writeBatch(t *testing.T, changes ...ots.RowChange) []ots.RowResult {
	t.Helper()
	request := new(ots.BatchWriteRowRequest)
	for _, c := range changes {
		request.AddRowChange(c)
	}
	r, err := client.BatchWriteRow(request)
	if err != nil {
		t.Fatalf("BatchWriteRow: %v", err)
	}
	name := changes[0].GetTableName()
	if len(r.TableToRowsResult[name]) != len(changes) {
		t.Fatalf("BatchWriteRow: %d outcomes for %d rows", len(r.TableToRowsResult[name]), len(changes))
	}
	return r.TableToRowsResult[name]
}

// outcome shows how a row of a batch fared: its code, or its row.
func outcome(r ots.RowResult) string {
	if !r.IsSucceed {
		return r.Error.Code
	}
	if s := text(&r.PrimaryKey, r.Columns); s != "" {
		return s
	}
	return "ok"
}

func outcomes(results []ots.RowResult) string {
	var all []string
	for i, r := range results {
		if int(r.Index) != i {
			all = append(all, fmt.Sprint("index ", r.Index))
		}
		all = append(all, outcome(r))
	}
	return fmt.Sprint(all)
}

func TestRowsOfABatchFareByThemselves(t *testing.T) {
	name := create(t, table{}, "s")
	write(t, put(name, key("s", "there"), "c", 1), put(name, key("s", "doomed"), "c", 1))
	expectNew := put(name, key("s", "there"), "c", 2)
	expectNew.SetCondition(ots.RowExistenceExpectation_EXPECT_NOT_EXIST)
	expectOld := update(name, key("s", "absent"), "c", 2)
	expectOld.SetCondition(ots.RowExistenceExpectation_EXPECT_EXIST)
	returns := put(name, key("s", "new"), "c", 3)
	returns.SetReturnPk()

	got := writeBatch(t,
		expectNew,
		returns,
		put(name, key("t", "a"), "c", 1),
		expectOld,
		remove(name, key("s", "doomed")),
		update(name, key("s", "third"), "d", 4))
	want(t, "outcomes", outcomes(got), "[OTSConditionCheckFail (new) OTSInvalidPK OTSConditionCheckFail ok ok]")
	for i, r := range got {
		if !r.IsSucceed && r.Error.Message == "" {
			t.Errorf("row %d fails without a message", i)
		}
	}
	rows := pages(t, over(name, key("s", lowest), key("s", highest)))
	want(t, "the table", rowTexts(rows[0]), "(new) c=3 (there) c=1 (third) d=4")
}

func TestABatchOverTables(t *testing.T) {
	one, two := create(t, table{}, "s"), "Second"
	if _, err := client.CreateTable(table{}.request(two, "i")); err != nil {
		t.Fatal(err)
	}
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: two})

	request := new(ots.BatchWriteRowRequest)
	for _, c := range []ots.RowChange{
		put(one, key("s", "a"), "c", 1), put(two, key("i", 1), "c", 2), put("Nowhere", key("s", "a"), "c", 3), put(one, key("s", "b"), "c", 4),
	} {
		request.AddRowChange(c)
	}
	r, err := client.BatchWriteRow(request)
	if err != nil {
		t.Fatal(err)
	}
	for name, expected := range map[string]string{one: "[ok ok]", two: "[ok]", "Nowhere": "[OTSObjectNotExist]"} {
		want(t, "written to "+name, outcomes(r.TableToRowsResult[name]), expected)
	}

	read, err := client.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{
		{TableName: one, MaxVersion: 1, PrimaryKey: []*ots.PrimaryKey{key("s", "b"), key("s", "missing"), key("s", "a"), key("i", 1), key("s", "b")}},
		{TableName: "Nowhere", MaxVersion: 1, PrimaryKey: []*ots.PrimaryKey{key("s", "a")}},
		{TableName: two, MaxVersion: 1, PrimaryKey: []*ots.PrimaryKey{key("i", 1)}, ColumnsToGet: []string{"absent"}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	for name, expected := range map[string]string{
		one: "[(b) c=4 ok (a) c=1 OTSInvalidPK (b) c=4]", two: "[ok]", "Nowhere": "[OTSObjectNotExist]",
	} {
		want(t, "read from "+name, outcomes(read.TableToRowsResult[name]), expected)
	}
}

func TestABatchAppliesItsRowsInOrder(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	got := writeBatch(t, put(name, k, "a", 1, "b", 1), update(name, k, "a", 2), remove(name, k), update(name, k, "c", 3))
	want(t, "outcomes", outcomes(got), "[ok ok ok ok]")
	r := get(t, name, k)
	want(t, "the row", text(&r.PrimaryKey, r.Columns), "(r) c=3")

	picky := put(name, k, "a", 1)
	picky.SetCondition(ots.RowExistenceExpectation_EXPECT_EXIST)
	request := &ots.BatchWriteRowRequest{RowChangesGroupByTable: map[string][]ots.RowChange{name: {picky, put(name, k, "a", 2)}}}
	_, err := client.BatchWriteRow(request)
	wantError(t, "a condition on a repeated row", err, "OTSParameterInvalid", "Repeated rows do not support row exist expectation check in BatchModify.")
}

func TestBatchesThatAreRefusedWhole(t *testing.T) {
	name := create(t, table{}, "i")
	writes := func(n, size int) func() error {
		return func() error {
			request := new(ots.BatchWriteRowRequest)
			for i := range n {
				request.AddRowChange(put(name, key("i", i), "c", make([]byte, size)))
			}
			_, err := client.BatchWriteRow(request)
			return err
		}
	}
	reads := func(n int) func() error {
		return func() error {
			q := &ots.MultiRowQueryCriteria{TableName: name, MaxVersion: 1}
			for i := range n {
				q.AddRow(key("i", i))
			}
			_, err := client.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{q}})
			return err
		}
	}
	const invalid = "OTSParameterInvalid"
	for _, c := range []struct {
		what       string
		call       func() error
		code, part string
	}{
		{"201 writes", writes(201, 1), invalid, "Rows count exceeds the upper limit: 200."},
		{"more than 4 MB", writes(5, 900_000), invalid, "The total data size of BatchWriteRow request exceeds the limit, limit size: 4194304, data size: "},
		{"more than the body may hold", writes(6, 1<<20), "OTSRequestBodyTooLarge", ""},
		{"no writes", writes(0, 0), invalid, "No row is specified in BatchWriteRow."},
		{"a bad name", func() error {
			request := new(ots.BatchWriteRowRequest)
			request.AddRowChange(put(name, key("i", 1), "c", 1))
			request.AddRowChange(put(name, key("i", 2), "a-b", 1))
			_, err := client.BatchWriteRow(request)
			return err
		}, invalid, "Invalid column name: 'a-b'."},
		{"101 reads", reads(101), invalid, "Rows count exceeds the upper limit: 100."},
		{"no reads", func() error {
			_, err := client.BatchGetRow(&ots.BatchGetRowRequest{})
			return err
		}, invalid, "No row specified in the request of BatchGetRow."},
	} {
		err := c.call()
		if c.code == "OTSRequestBodyTooLarge" && err != nil && !errors.As(err, new(*ots.OtsError)) {
			continue // the server may close a connection that goes on sending
		}
		wantError(t, c.what, err, c.code, c.part)
	}
	want(t, "rows written by what was refused", rowTexts(pages(t, over(name, key("i", lowest), key("i", highest)))[0]), "")
	if err := writes(200, 1)(); err != nil {
		t.Error(err)
	}
	if err := reads(100)(); err != nil {
		t.Error(err)
	}
}
