package gosdk_test

// The sample programs that come with the SDK do what they say. Those of streams and
// transactions are in stream_test.go and transactions_test.go.

import (
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/aliyun/aliyun-tablestore-go-sdk/sample"
	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// printed returns what fn prints.
func printed(t *testing.T, fn func()) string {
	t.Helper()
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	out := os.Stdout
	os.Stdout = w
	defer func() { os.Stdout = out }()
	all := make(chan string)
	go func() {
		b, _ := io.ReadAll(r)
		all <- string(b)
	}()
	fn()
	w.Close()
	return <-all
}

// says fails unless the lines of a sample are among what it printed, in order, and
// no failure is.
func says(t *testing.T, what, got string, lines ...string) {
	t.Helper()
	rest := got
	for _, line := range lines {
		_, after, found := strings.Cut(rest, line)
		if !found {
			t.Fatalf("%s did not print %q; it printed\n%.3000s", what, line, got)
		}
		rest = after
	}
	if lower := strings.ToLower(got); strings.Contains(lower, "fail") || strings.Contains(lower, "error") {
		t.Errorf("%s printed\n%.3000s", what, got)
	}
}

func TestTheSamplesOfTablesAndRows(t *testing.T) {
	const name = "RowSample"
	says(t, "CreateTable", printed(t, func() { sample.CreateTableSample(client, name) }), "Create table finished")
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name})
	says(t, "ListTable", printed(t, func() { sample.ListTableSample(client) }), "List table result is", "TableName:  "+name)
	says(t, "DeleteTable", printed(t, func() { sample.DeleteTableSample(client) }), "Delete table finished")
	says(t, "UpdateTable", printed(t, func() { sample.UpdateTableSample(client, name) }), "update finished")
	says(t, "DescribeTable", printed(t, func() { sample.DescribeTableSample(client, name) }), "Table meta: 5 -1")

	// Rows one by one: the row has three columns; then col1 is gone, col2 another
	// and col4 new. The sample's condition for the deletion, col2 = 3, asks all
	// versions, so that it is met by the one before.
	says(t, "PutRow", printed(t, func() { sample.PutRowSample(client, name) }), "putrow finished")
	says(t, "GetRow", printed(t, func() { sample.GetRowSample(client, name) }), "length is  3", "get row col0 result is  col1 col1data1")
	for put := time.Now().UnixMilli(); time.Now().UnixMilli() == put; {
		// Two versions of col2 need two milliseconds.
	}
	says(t, "UpdateRow", printed(t, func() { sample.UpdateRowSample(client, name) }), "update row finished")
	says(t, "GetRow", printed(t, func() { sample.GetRowSample(client, name) }), "length is  3", "get row col0 result is  col2 77")
	says(t, "DeleteRow", printed(t, func() { sample.DeleteRowSample(client, name) }), "delete row finished")
	all := func() string {
		return rangeText(t, nil, name, key("pk1", lowest, "pk2", lowest, "pk3", lowest), key("pk1", highest, "pk2", highest, "pk3", highest))
	}
	want(t, "after the deletion", all(), "")

	// 50, and 10, and 30.
	got := printed(t, func() { sample.UpdateRowWithIncrement(client, name) })
	says(t, "UpdateRowWithIncrement", got, "update row finished", "update row finished", "update row finished", "\n1\ncol2\n90\n")
	if got := all(); !strings.Contains(got, "col2=90") {
		t.Errorf("after the increments: %s", got)
	}
}

func TestTheSamplesOfBatchesAndRanges(t *testing.T) {
	const name = "BatchSample"
	printed(t, func() { sample.CreateTableSample(client, name) })
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name})
	says(t, "BatchWriteRow", printed(t, func() { sample.BatchWriteRowSample(client, name) }), "batch write row finished")
	got := printed(t, func() { sample.BatchGetRowSample(client, name) })
	says(t, "BatchGetRow", got, "get row with key pk1value1 0 ", "get row with key pk1value1 19 ", "this row is not exist", "batchget finished")
	if n := strings.Count(got, "get row with key"); n != 20 {
		t.Errorf("BatchGetRow printed %d rows", n)
	}
	got = printed(t, func() { sample.GetRangeSample(client, name) })
	says(t, "GetRange", got, "range get row with key pk1value1 0 ", "next pk is : pk1value1 10 ", "range get row with key pk1value1 99 ", "putrow finished")
	if n := strings.Count(got, "range get row with key"); n != 100 {
		t.Errorf("GetRange printed %d rows", n)
	}
	says(t, "ComputeSplitPointsBySize", printed(t, func() { sample.ComputeSplitPointsBySize(client, name) }), "-inf", "+inf")

	const filtered = "RegexSample"
	got = printed(t, func() { sample.GetRangeWithRegxFilterSample(client, filtered) })
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: filtered})
	says(t, "GetRange with a filter", got, "Create table finished", "batch write row finished", "<nil>", "col1 t1:", "putrow finished")
}

func TestTheSampleOfGeneratedKeys(t *testing.T) {
	const name = "incrementsampletable" // the sample's own
	printed(t, func() { sample.CreateTableKeyAutoIncrementSample(client) })
	defer client.DeleteTable(&ots.DeleteTableRequest{TableName: name})
	for range 3 {
		says(t, "PutRow", printed(t, func() { sample.PutRowWithKeyAutoIncrementSample(client) }), "put row finished")
	}
	q := over(name, key("pk1", "pk1value1", "pk2", lowest, "pk3", lowest), key("pk1", "pk1value1", "pk2", highest, "pk3", highest))
	r, err := client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
	if err != nil {
		t.Fatal(err)
	}
	var last int64
	for _, row := range r.Rows {
		generated := row.PrimaryKey.PrimaryKeys[1].Value.(int64)
		if generated <= last {
			t.Errorf("key %d after %d", generated, last)
		}
		last = generated
	}
	want(t, "rows", fmt.Sprint(len(r.Rows)), "3")
}
