package gosdk_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// cost shows capacity units as "read write".
func cost(c *ots.ConsumedCapacityUnit) string {
	if c == nil {
		return "none"
	}
	return fmt.Sprint(c.Read, " ", c.Write)
}

// TestCapacityUnits holds the figures that the test suites of the official
// SDKs assert of the real service.
func TestCapacityUnits(t *testing.T) {
	name := create(t, table{}, "s")
	letters := func(n int) string { return strings.Repeat("x", n) }
	five := put(name, key("s", "five"))
	for i := range 5 {
		five.AddColumn(fmt.Sprintf("c%d", i), letters(2048))
	}
	write(t, put(name, key("s", "5000"), "c", letters(5000)), five)

	for _, c := range []struct {
		what    string
		key     string
		columns []string
		want    string
	}{
		{"one value of 5000 bytes", "5000", nil, "2 0"},
		{"five columns of 2048 bytes", "five", nil, "3 0"},
		{"two of them", "five", []string{"c1", "c3"}, "2 0"},
		{"columns that do not exist", "five", []string{"x"}, "1 0"},
		{"no such row", "missing", nil, "1 0"},
	} {
		r := get(t, name, key("s", c.key), func(q *ots.SingleRowQueryCriteria) { q.ColumnsToGet = c.columns })
		want(t, "GetRow, "+c.what, cost(r.ConsumedCapacityUnit), c.want)
	}

	batch, err := client.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{
		{TableName: name, MaxVersion: 1, PrimaryKey: []*ots.PrimaryKey{key("s", "five"), key("s", "missing"), key("s", "five")}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var costs []string
	for _, r := range batch.TableToRowsResult[name] {
		costs = append(costs, cost(r.ConsumedCapacityUnit))
	}
	want(t, "BatchGetRow", strings.Join(costs, ", "), "3 0, 1 0, 3 0")

	const ignore, exist, notExist = ots.RowExistenceExpectation_IGNORE, ots.RowExistenceExpectation_EXPECT_EXIST, ots.RowExistenceExpectation_EXPECT_NOT_EXIST
	pair := func() []any { return []any{"a", letters(4096), "b", letters(4096)} }
	both := append(pair(), "c", removal{}, "d", removal{})
	w := key("s", "w")
	type change interface {
		ots.RowChange
		SetCondition(ots.RowExistenceExpectation)
	}
	for _, c := range []struct {
		what   string
		change change
		expect ots.RowExistenceExpectation
		want   string
	}{
		{"put expecting no row", put(name, w, pair()...), notExist, "1 3"},
		{"put", put(name, w, pair()...), ignore, "0 3"},
		{"put expecting a row", put(name, w, pair()...), exist, "1 3"},
		{"update", update(name, w, both...), ignore, "0 3"},
		{"update expecting a row", update(name, w, both...), exist, "1 3"},
		{"delete", remove(name, w), ignore, "0 1"},
		{"small put", put(name, w, "a", 1), ignore, "0 1"},
		{"delete expecting a row", remove(name, w), exist, "1 1"},
	} {
		c.change.SetCondition(c.expect)
		got, err := consumed(c.change)
		if err != nil {
			t.Errorf("%s: %v", c.what, err)
			continue
		}
		want(t, c.what, cost(got), c.want)
	}
	var costsWritten []string
	for _, r := range writeBatch(t, put(name, key("s", "x"), pair()...), remove(name, key("s", "x")), put(name, key("s", "y"), "c", 1)) {
		costsWritten = append(costsWritten, cost(r.ConsumedCapacityUnit))
	}
	want(t, "BatchWriteRow", strings.Join(costsWritten, ", "), "0 3, 0 1, 0 1")
}

func TestCapacityUnitsOfRanges(t *testing.T) {
	name := create(t, table{}, "s")
	for _, s := range []string{"a", "b"} {
		write(t, put(name, key("s", s), "x", strings.Repeat("x", 4096), "y", strings.Repeat("y", 4096), "z", strings.Repeat("z", 4096)))
	}
	for _, c := range []struct {
		what    string
		end     *ots.PrimaryKey
		columns []string
		want    string
	}{
		{"one row", key("s", "b"), nil, "4 0"},
		{"two rows", key("s", highest), nil, "7 0"},
		{"two columns of two rows", key("s", highest), []string{"x", "y"}, "5 0"},
		{"no row", key("s", "A"), nil, "1 0"},
	} {
		start := key("s", "a")
		if c.what == "no row" {
			start = key("s", lowest)
		}
		q := over(name, start, c.end)
		q.ColumnsToGet = c.columns
		want(t, c.what, cost(ranges(t, &q).ConsumedCapacityUnit), c.want)
	}
}

// TestAFailedConditionIsAnErrorAlsoInItsCost: the SDK gives the cost of a row
// only if it succeeded, so there is nothing to see but the error.
func TestAFailedConditionIsAnErrorAlsoInItsCost(t *testing.T) {
	name := create(t, table{}, "s")
	c := put(name, key("s", "a"), "c", 1)
	c.SetCondition(ots.RowExistenceExpectation_EXPECT_EXIST)
	got, err := consumed(c)
	var own *ots.OtsError
	if got != nil || !errors.As(err, &own) || own.HttpStatusCode != 403 {
		t.Errorf("got %s, %v; want status 403", cost(got), err)
	}
}
