package gosdk_test

import (
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func TestRowExistenceConditions(t *testing.T) {
	const (
		ignore   = ots.RowExistenceExpectation_IGNORE
		exist    = ots.RowExistenceExpectation_EXPECT_EXIST
		notExist = ots.RowExistenceExpectation_EXPECT_NOT_EXIST
	)
	name := create(t, table{}, "s")
	k := key("s", "r")
	type change interface {
		ots.RowChange
		SetCondition(ots.RowExistenceExpectation)
	}
	operations := []struct {
		name   string
		change func() change
		after  string
	}{
		{"put", func() change { return put(name, k, "c", "new") }, "(r) c=new"},
		{"update", func() change { return update(name, k, "c", "new") }, "(r) c=new"},
		{"delete", func() change { return remove(name, k) }, ""},
	}
	before := []struct {
		name  string
		setup []ots.RowChange
		row   string
		fails ots.RowExistenceExpectation
	}{
		{"a row", []ots.RowChange{put(name, k, "c", "old")}, "(r) c=old", notExist},
		{"a bare key", []ots.RowChange{put(name, k)}, "(r)", notExist},
		{"a row that lost its columns", []ots.RowChange{put(name, k, "x", 1), update(name, k, "x", removal{})}, "(r)", notExist},
		{"no row", []ots.RowChange{remove(name, k)}, "", exist},
		{"a row deleted", []ots.RowChange{put(name, k, "c", "old"), remove(name, k)}, "", exist},
	}
	for _, op := range operations {
		for _, b := range before {
			for expectation, word := range map[ots.RowExistenceExpectation]string{ignore: "ignore", exist: "expect", notExist: "expect not"} {
				write(t, b.setup...)
				what := op.name + " of " + b.name + ", " + word
				c := op.change()
				c.SetCondition(expectation)
				err := apply(c)
				row := op.after
				if expectation == b.fails {
					wantError(t, what, err, "OTSConditionCheckFail", "Condition check failed.")
					row = b.row
				} else {
					wantError(t, what, err, "", "")
				}
				r := get(t, name, k)
				want(t, what, text(&r.PrimaryKey, r.Columns), row)
			}
		}
	}
}

func TestOnlyOneOfManyInsertersWins(t *testing.T) {
	name := create(t, table{}, "i")
	const writers, rows = 8, 20
	results := make(chan int, writers)
	for w := range writers {
		go func() {
			won := 0
			for i := range rows {
				c := put(name, key("i", i), "writer", w)
				c.SetCondition(ots.RowExistenceExpectation_EXPECT_NOT_EXIST)
				if err := apply(c); err == nil {
					won++
				} else {
					wantError(t, "a loser", err, "OTSConditionCheckFail", "")
				}
			}
			results <- won
		}()
	}
	sum := 0
	for range writers {
		sum += <-results
	}
	want(t, "insertions that succeeded", sum, rows)
}
