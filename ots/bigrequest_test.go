package ots

import (
	"fmt"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// These tests send requests of a size at which quadratic work takes minutes.

func TestAKeyOfManyColumnsIsRefusedBeforeItIsLookedAt(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const many = 100_000
	change := updateOf(nil)
	for i := range many {
		change.Row.Key = append(change.Row.Key, KeyValue{Name: fmt.Sprint("k", i), Value: row.Integer(1)})
		change.Row.Cells = append(change.Row.Cells, cell(fmt.Sprint("c", i%1000), 1))
	}
	const message = "Validate PK size fail. Input: 100000, Meta: 4 at most."
	_, err := f.write(change)
	wantError(t, err, CodeInvalidPK, message)
	_, err = f.get(change.Row.Key, all())
	wantError(t, err, CodeInvalidPK, message)
}

func TestManyDeletesOfTheSameColumnsAreLinear(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const columns, times = 1024, 1000
	change := updateOf(pk("r"))
	for i := range columns * times {
		change.Row.Cells = append(change.Row.Cells, deleteColumn(fmt.Sprintf("c%04d", columns-i%columns)))
	}
	f.mustWrite(putOf(pk("r"), cell("c0001", 1), cell("d", 2)), change)
	if got := f.show(pk("r"), all()); got != `"r" | d@0=2` {
		t.Errorf("row is %s", got)
	}
}

func TestIncrementsThatAreReturnedAreFoundAtOnce(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const increments, versions = 1023, 1_000_000
	change := updateOf(pk("r"))
	for i := range versions { // all versions of one column
		change.Row.Cells = append(change.Row.Cells, deleteVersion("v", int64(i)))
	}
	change.Return = ReturnAfterModify
	for i := range increments {
		change.Row.Cells = append(change.Row.Cells, increment(fmt.Sprint("c", i), 1))
		change.ReturnColumns = append(change.ReturnColumns, fmt.Sprint("c", i))
	}
	if err := f.limits.checkChange(&change); err != nil {
		t.Fatal(err)
	}
	change.ReturnColumns[7] = "v"
	wantError(t, f.limits.checkChange(&change), CodeParameterInvalid, "Return column 'v' is not incremented by the request.")
}

// BenchmarkDeleteColumns must grow linearly with the number of deletes.
func BenchmarkDeleteColumns(b *testing.B) {
	for _, deletes := range []int{2_000, 20_000, 200_000} {
		b.Run(fmt.Sprint(deletes), func(b *testing.B) {
			f := openFixture(b, Limits{})
			f.createPlain(1, -1)
			change := updateOf(pk("r"))
			for i := range deletes {
				change.Row.Cells = append(change.Row.Cells, deleteColumn(fmt.Sprintf("c%04d", 1000-i%1000)))
			}
			for b.Loop() {
				f.mustWrite(change)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*deletes), "ns/delete")
		})
	}
}
