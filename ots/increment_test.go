package ots

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"
)

func increment(name string, by int64) Cell {
	return Cell{Name: name, Op: OpIncrement, Value: valueOf(by)}
}

func (c RowChange) returning(columns ...string) RowChange {
	c.Return, c.ReturnColumns = ReturnAfterModify, columns
	return c
}

func TestIncrementsAddToTheNewestVersion(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(3, 3600)
	r := pk("r")
	second := int64(1000)
	for _, c := range []struct {
		name     string
		advance  time.Duration
		change   RowChange
		returned string
		after    string
	}{
		{"a missing row", 0, updateOf(r, increment("n", 5)), `"r" | n@0=5`, `"r" | n@0=5`},
		{"again within the millisecond", 0, updateOf(r, increment("n", -7)), `"r" | n@0=-2`, `"r" | n@0=-2`},
		{"later", time.Second, updateOf(r, increment("n", 3)), `"r" | n@1000=1`, `"r" | n@1000=1 n@0=-2`},
		{"a missing column beside others", 0, updateOf(r, increment("m", 1), cellAt("x", 1, startMillis)), "", ""},
		{"a version ahead of the clock is replaced", 0, updateOf(r, increment("a", 1)), `"r" | a@2000=11`, ""},
		{"and again", 0, updateOf(r, increment("a", 1)), `"r" | a@2000=12`, `"r" | a@2000=12 a@500=5`},
		{"what has expired counts no more", 2 * time.Hour, updateOf(r, increment("n", 4)), `"r" | n@7201000=4`, `"r" | n@7201000=4`},
	} {
		f.clock.Advance(c.advance)
		switch c.name {
		case "a missing column beside others":
			res, err := f.write(c.change.returning("m"))
			if err != nil || showRow(res.Row) != `"r" | m@1000=1` {
				t.Errorf("%s: %v, %v", c.name, res, err)
			}
			if got := f.show(r, all()); got != `"r" | m@1000=1 n@1000=1 n@0=-2 x@0=1` {
				t.Errorf("%s: row is %s", c.name, got)
			}
			continue
		case "a version ahead of the clock is replaced":
			f.mustWrite(updateOf(r, cellAt("a", 5, startMillis+500), cellAt("a", 10, startMillis+2*second)))
		}
		column := c.change.Row.Cells[0].Name
		res, err := f.write(c.change.returning(column))
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if got := showRow(res.Row); got != c.returned {
			t.Errorf("%s: returned %s, want %s", c.name, got, c.returned)
		}
		if got := f.show(r, all(column)); c.after != "" && got != c.after {
			t.Errorf("%s: row is %s, want %s", c.name, got, c.after)
		}
	}
}

func TestAnIncrementReturnsWhatWasAskedFor(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	three := []Cell{increment("b", 2), increment("c", 3), increment("a", 1)}
	for _, c := range []struct {
		columns []string
		want    string
	}{
		{nil, `"r" |`},
		{[]string{"b"}, `"r" | b@0=2`},
		{[]string{"c", "a", "c"}, `"r" | a@0=1 c@0=3`},
	} {
		f.mustWrite(deleteOf(pk("r")))
		res, err := f.write(updateOf(pk("r"), three...).returning(c.columns...))
		if err != nil || showRow(res.Row) != c.want {
			t.Errorf("%v: %v, %v; want %s", c.columns, res, err, c.want)
		}
	}
	change := updateOf(pk("r"), three...)
	change.Return = ReturnPK
	if res, err := f.write(change); err != nil || showRow(res.Row) != `"r" |` {
		t.Errorf("RT_PK: %v, %v", res, err)
	}
	if res, err := f.write(updateOf(pk("r"), three...)); err != nil || res.Row != nil {
		t.Errorf("RT_NONE: %v, %v", res, err)
	}
	if got := f.show(pk("r"), all()); got != `"r" | a@0=3 b@0=6 c@0=9` {
		t.Errorf("row is %s", got)
	}
}

func TestRefusedIncrementsChangeNothing(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.mustWrite(putOf(pk("r"), cellAt("d", 1.5, startMillis), cellAt("max", math.MaxInt64-1, startMillis), cellAt("min", math.MinInt64+1, startMillis), cellAt("s", "1", startMillis)))
	conditional := updateOf(pk("r"), increment("n", 1))
	conditional.ColumnCondition = where("s", CompareEqual, "2")
	withVersion := increment("n", 1)
	withVersion.Version, withVersion.HasVersion = startMillis, true
	const twice = "Column 'n' has an atomic increment and another operation in one request."
	for _, c := range []struct {
		change        RowChange
		code, message string
	}{
		{updateOf(pk("r"), increment("n", 1), increment("d", 1)), CodeParameterInvalid, "Column 'd' cannot be incremented: its type is VT_DOUBLE, not VT_INTEGER."},
		{updateOf(pk("r"), increment("s", 1)), CodeParameterInvalid, "Column 's' cannot be incremented: its type is VT_STRING, not VT_INTEGER."},
		{updateOf(pk("r"), increment("n", 1), increment("max", 2)), CodeParameterInvalid, "Column 'max' cannot be incremented: the sum exceeds the range of VT_INTEGER."},
		{updateOf(pk("r"), increment("min", -2)), CodeParameterInvalid, "Column 'min' cannot be incremented: the sum exceeds the range of VT_INTEGER."},
		{updateOf(pk("r"), increment("min", math.MinInt64)), CodeParameterInvalid, "Column 'min' cannot be incremented: the sum exceeds the range of VT_INTEGER."},
		{conditional, CodeConditionCheckFail, "Condition check failed."},
		{updateOf(pk("q"), increment("n", 1)).expecting(ExistenceExpect), CodeConditionCheckFail, "Condition check failed."},
		{updateOf(pk("r"), withVersion), CodeParameterInvalid, "Timestamp cannot be given when type is INCREMENT."},
		{updateOf(pk("r"), Cell{Name: "n", Op: OpIncrement}), CodeParameterInvalid, "VT_NULL is an invalid type for the atomic increment of column: 'n'."},
		{updateOf(pk("r"), Cell{Name: "n", Op: OpIncrement, Value: valueOf(1.5)}), CodeParameterInvalid, "VT_DOUBLE is an invalid type for the atomic increment of column: 'n'."},
		{updateOf(pk("r"), increment("n", 1), increment("n", 1)), CodeParameterInvalid, twice},
		{updateOf(pk("r"), cell("n", 1), increment("n", 1)), CodeParameterInvalid, twice},
		{updateOf(pk("r"), increment("n", 1), deleteColumn("n")), CodeParameterInvalid, twice},
		{putOf(pk("r"), increment("n", 1)), CodeParameterInvalid, "OpType cannot be given for column name:n in PutRow."},
		{updateOf(pk("r"), increment("n", 1), cell("x", 1)).returning("x"), CodeParameterInvalid, "Return column 'x' is not incremented by the request."},
		{putOf(pk("r"), cell("x", 1)).returning("x"), CodeParameterInvalid, "Return type RT_AFTER_MODIFY can only be given with atomic increments."},
		{deleteOf(pk("r")).returning(), CodeParameterInvalid, "Return type RT_AFTER_MODIFY can only be given with atomic increments."},
	} {
		_, err := f.write(c.change)
		wantError(t, err, c.code, c.message)
	}
	want := fmt.Sprintf(`"r" | d@0=1.5 max@0=%d min@0=%d s@0="1"`, math.MaxInt64-1, math.MinInt64+1)
	if got := f.show(pk("r"), all()); got != want {
		t.Errorf("row is %s, want %s", got, want)
	}
	f.mustWrite(updateOf(pk("r"), increment("max", 1), increment("min", -1)))
	if got, want := f.show(pk("r"), all("max", "min")), fmt.Sprintf(`"r" | max@0=%d min@0=%d`, math.MaxInt64, math.MinInt64); got != want {
		t.Errorf("at the edges: %s, want %s", got, want)
	}
}

func TestDoublesAreIncrementedByTheCurrentLimits(t *testing.T) {
	f := openFixture(t, Current())
	f.createPlain(1, -1)
	by := func(v any) Cell { return Cell{Name: "d", Op: OpIncrement, Value: valueOf(v)} }
	f.mustWrite(updateOf(pk("r"), by(10.5)), updateOf(pk("r"), by(2.25)))
	if got := f.show(pk("r"), all()); got != `"r" | d@0=12.75` {
		t.Errorf("row is %s", got)
	}
	for _, c := range []struct {
		by      any
		message string
	}{
		{1, "Column 'd' cannot be incremented: its type is VT_DOUBLE, not VT_INTEGER."},
		{math.NaN(), "NaN can't be set to double value."},
		{math.Inf(1), "Infinity can't be set to double value."},
		{"1", "VT_STRING is an invalid type for the atomic increment of column: 'd'."},
	} {
		_, err := f.write(updateOf(pk("r"), by(c.by)))
		wantError(t, err, CodeParameterInvalid, c.message)
	}
	f.mustWrite(updateOf(pk("q"), by(math.MaxFloat64)))
	_, err := f.write(updateOf(pk("q"), by(math.MaxFloat64)))
	wantError(t, err, CodeParameterInvalid, "Column 'd' cannot be incremented: the sum exceeds the range of VT_DOUBLE.")
}

func TestConcurrentIncrementsAreNeverLost(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const writers, each = 8, 50
	var all sync.WaitGroup
	seen := make([]map[int64]bool, writers)
	for w := range writers {
		seen[w] = map[int64]bool{}
		all.Go(func() {
			for range each {
				res, err := f.write(updateOf(pk("r"), increment("n", 1)).returning("n"))
				if err != nil {
					t.Error(err)
					return
				}
				seen[w][res.Row.Cells[0].Value.Int64()] = true
			}
		})
	}
	all.Wait()
	values := map[int64]bool{}
	for _, s := range seen {
		for v := range s {
			values[v] = true
		}
	}
	if len(values) != writers*each || !values[1] || !values[writers*each] {
		t.Errorf("%d different results of %d increments", len(values), writers*each)
	}
}

func TestIncrementsOfABatch(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	batch := func(changes ...RowChange) (*BatchWriteRowResponse, error) {
		return f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: changes}}})
	}
	var changes []RowChange
	for i := range 100 {
		changes = append(changes, updateOf(pk(fmt.Sprint(i)), increment("n", int64(i))).returning("n"))
	}
	for round := range 2 {
		resp, err := batch(changes...)
		if err != nil {
			t.Fatal(err)
		}
		for i, r := range resp.Tables[0].Rows {
			want := fmt.Sprintf(`"%d" | n@0=%d`, i, (round+1)*i)
			if r.Err != nil || showRow(r.Row) != want {
				t.Errorf("row %d: %s, %v; want %s", i, showRow(r.Row), r.Err, want)
			}
		}
	}
	conditional := updateOf(pk("x"), cell("c", 1))
	conditional.ColumnCondition = where("c", CompareEqual, 1).or(passMissing)
	_, err := batch(changes[1], changes[1])
	wantError(t, err, CodeParameterInvalid, "Repeated rows do not support atomic increment in BatchModify.")
	_, err = batch(putOf(pk("1")), changes[1])
	wantError(t, err, CodeParameterInvalid, "Repeated rows do not support atomic increment in BatchModify.")
	_, err = batch(putOf(pk("x")), conditional)
	wantError(t, err, CodeParameterInvalid, "Repeated rows do not support row condition check in BatchModify.")
	_, err = batch(conditional, conditional)
	wantError(t, err, CodeParameterInvalid, "Repeated rows do not support row condition check in BatchModify.")
}
