package ots

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/flagstone-db/flagstone/row"
)

// where compares the newest version of a column. A row without the column does not pass.
func where(column string, c Comparator, v any) *Filter {
	return &Filter{Type: FilterSingleColumn, Column: column, Comparator: c, Value: valueOf(v), FilterIfMissing: true, LatestVersionOnly: true}
}

func (f *Filter) or(change func(*Filter)) *Filter {
	copied := *f
	change(&copied)
	return &copied
}

func passMissing(f *Filter) { f.FilterIfMissing = false }
func anyVersion(f *Filter)  { f.LatestVersionOnly = false }
func cast(regex string, to row.Type) func(*Filter) {
	return func(f *Filter) { f.Transfer = &ValueTransferRule{Regex: regex, Cast: to} }
}

func joined(op LogicalOperator, subs ...*Filter) *Filter {
	return &Filter{Type: FilterComposite, Operator: op, Subs: subs}
}

func paged(offset, limit int32) *Filter {
	return &Filter{Type: FilterPagination, Offset: offset, Limit: limit}
}

func filtered(f *Filter, columns ...string) Selection {
	s := all(columns...)
	s.Filter = f
	return s
}

// filteredTable holds the row "r" with columns of every type; the column named v has two
// versions.
func filteredTable(t *testing.T) *fixture {
	f := openFixture(t, Limits{})
	f.createPlain(3, -1)
	f.mustWrite(putOf(pk("r"), cellAt("b", []byte{0x80}, startMillis), cellAt("d", 1.5, startMillis), cellAt("i", 7, startMillis),
		cellAt("s", "abc", startMillis), cellAt("t", true, startMillis), cellAt("text", "n=42;", startMillis),
		cellAt("v", 1, startMillis-2), cellAt("v", 2, startMillis-1)))
	return f
}

func TestComparisonsJudgeAsDocumented(t *testing.T) {
	f := filteredTable(t)
	const eq, ne, gt, ge, lt, le = CompareEqual, CompareNotEqual, CompareGreater, CompareGreaterEqual, CompareLess, CompareLessEqual
	for _, c := range []struct {
		filter *Filter
		want   bool
	}{
		{where("i", eq, 7), true}, {where("i", eq, 8), false},
		{where("i", ne, 7), false}, {where("i", ne, 8), true},
		{where("i", gt, 6), true}, {where("i", gt, 7), false},
		{where("i", ge, 7), true}, {where("i", ge, 8), false},
		{where("i", lt, 8), true}, {where("i", lt, 7), false},
		{where("i", le, 7), true}, {where("i", le, 6), false},
		{where("i", gt, -1), true},
		{where("d", gt, 1.0), true}, {where("d", lt, -1.0), false},
		{where("s", eq, "abc"), true}, {where("s", gt, "ab"), true}, {where("s", lt, "b"), true}, {where("s", gt, "abcd"), false},
		{where("b", gt, []byte{0x7f}), true}, {where("b", lt, []byte{0x80, 0}), true},
		{where("t", eq, true), true}, {where("t", gt, false), true}, {where("t", lt, true), false},

		// Types are not converted, not even for "not equal".
		{where("i", eq, 7.0), false}, {where("i", ne, 7.0), false}, {where("d", gt, 1), false},
		{where("s", eq, []byte("abc")), false}, {where("t", ne, 1), false},

		{where("absent", eq, 1), false}, {where("absent", ne, 1), false},
		{where("absent", eq, 1).or(passMissing), true},
		{where("i", eq, 8).or(passMissing), false},
		{where("i", CompareExists, nil), true}, {where("absent", CompareExists, nil), false},
		{where("i", CompareNotExists, nil), false}, {where("absent", CompareNotExists, nil), true},

		{where("v", eq, 1), false}, {where("v", eq, 1).or(anyVersion), true}, {where("v", eq, 2).or(anyVersion), true},
		{where("v", eq, 3).or(anyVersion), false}, {where("v", ne, 2).or(anyVersion), true},

		{where("pk", eq, "r"), true}, {where("pk", gt, "r"), false}, {where("pk", CompareExists, nil), true},

		{where("text", eq, 42).or(cast(`n=(\d+)`, row.TypeInteger)), true},
		{where("text", gt, 42).or(cast(`n=(\d+)`, row.TypeInteger)), false},
		{where("text", eq, 42).or(cast(`\d+`, row.TypeInteger)), true},
		{where("text", eq, 42.0).or(cast(`\d+`, row.TypeDouble)), true},
		{where("text", eq, "2").or(cast(`4(\d)`, row.TypeString)), true},
		{where("text", eq, 42).or(cast(`n=`, row.TypeInteger)), false},   // the cast fails
		{where("text", ne, 42).or(cast(`x`, row.TypeInteger)), false},    // no match
		{where("text", ne, 42).or(cast(`n|(x)`, row.TypeString)), false}, // no group
		{where("i", eq, 7).or(cast(`.*`, row.TypeInteger)), false},       // not a string
		{where("absent", eq, 7).or(passMissing).or(cast(`.*`, row.TypeInteger)), true},

		{joined(LogicalAnd, where("i", eq, 7), where("s", eq, "abc")), true},
		{joined(LogicalAnd, where("i", eq, 7), where("s", eq, "x")), false},
		{joined(LogicalOr, where("i", eq, 8), where("s", eq, "abc")), true},
		{joined(LogicalOr, where("i", eq, 8), where("s", eq, "x")), false},
		{joined(LogicalNot, where("i", eq, 8)), true}, {joined(LogicalNot, where("i", eq, 7)), false},
		{joined(LogicalNot, where("absent", eq, 7)), true}, {joined(LogicalNot, where("absent", eq, 7).or(passMissing)), false},
		{joined(LogicalNot, joined(LogicalNot, where("i", eq, 7))), true},
	} {
		got := f.show(pk("r"), filtered(c.filter)) != "none"
		if got != c.want {
			t.Errorf("%+v: passes %v, want %v", c.filter, got, c.want)
		}
		// A condition must give the same result.
		change := updateOf(pk("r"), cellAt("z", 1, startMillis))
		change.ColumnCondition = c.filter
		_, err := f.write(change)
		if c.want {
			wantError(t, err, "", "")
		} else {
			wantError(t, err, CodeConditionCheckFail, "Condition check failed.")
		}
	}
}

func TestAFilterSeesTheSelectedCellsOnly(t *testing.T) {
	f := filteredTable(t)
	one := func(s Selection) Selection { s.MaxVersions = ptr(int32(1)); return s }
	for _, c := range []struct {
		name string
		sel  Selection
		want string
	}{
		{"a column that is not selected is absent", filtered(where("i", CompareEqual, 7), "s"), "none"},
		{"and passes if absent ones do", filtered(where("i", CompareEqual, 8).or(passMissing), "s"), `"r" | s@0="abc"`},
		{"key columns are always seen", filtered(where("pk", CompareEqual, "r"), "s"), `"r" | s@0="abc"`},
		{"versions that are not selected are absent", one(filtered(where("v", CompareEqual, 1).or(anyVersion), "v")), "none"},
		{"a row without selected cells is not judged", filtered(where("x", CompareEqual, 1).or(passMissing), "x"), "none"},
	} {
		if got := f.show(pk("r"), c.sel); got != c.want {
			t.Errorf("%s: got %s, want %s", c.name, got, c.want)
		}
	}
	missing := f.show(pk("nobody"), filtered(where("i", CompareEqual, 7).or(passMissing)))
	if missing != "none" {
		t.Errorf("a missing row passed a filter: %s", missing)
	}
}

func TestPaginationCountsColumnsByName(t *testing.T) {
	f := filteredTable(t)
	from := func(s Selection, column string) Selection { s.StartColumn = &column; return s }
	for _, c := range []struct {
		sel  Selection
		want string
	}{
		{filtered(paged(0, 1)), `"r" | b@0=0x80`},
		{filtered(paged(1, 2)), `"r" | d@0=1.5 i@0=7`},
		{filtered(paged(6, 1)), `"r" | v@-1=2 v@-2=1`},
		{filtered(paged(5, 10)), `"r" | text@0="n=42;" v@-1=2 v@-2=1`},
		{filtered(paged(7, 1)), `"r" |`},
		{filtered(paged(1<<31-1, 1<<31-1)), `"r" |`},
		{filtered(paged(1, 1), "s", "i"), `"r" | s@0="abc"`},
		{filtered(paged(2, 1), "s", "i"), `"r" |`},
		{filtered(paged(0, 1), "x"), "none"},
		{from(filtered(paged(1, 1)), "i"), `"r" | s@0="abc"`},
	} {
		if got := f.show(pk("r"), c.sel); got != c.want {
			t.Errorf("%+v: got %s, want %s", *c.sel.Filter, got, c.want)
		}
	}
	// In a range, rows share the memory of the scan.
	for i := range 200 {
		f.mustWrite(putOf(pk(fmt.Sprintf("s%03d", i)), cellAt("a", i, startMillis), cellAt("b", i+1, startMillis), cellAt("c", i+2, startMillis)))
	}
	req := everything()
	req.Start.Key, req.Filter = pk("s"), paged(1, 1)
	resp, err := f.rangeOf(req)
	if err != nil || len(resp.Rows) != 200 {
		t.Fatalf("%d rows, %v", len(resp.Rows), err)
	}
	for i := range resp.Rows {
		if got, want := showRow(&resp.Rows[i]), fmt.Sprintf(`"s%03d" | b@0=%d`, i, i+1); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestFiltersAreCheckedWithTheServicesMessages(t *testing.T) {
	leaf := where("c", CompareEqual, 1)
	some := func(n int) (subs []*Filter) {
		for range n {
			subs = append(subs, leaf)
		}
		return subs
	}
	negated := func(n int) *Filter { // n composites above a leaf
		f := leaf
		for range n {
			f = joined(LogicalNot, f)
		}
		return f
	}
	const few = "Invalid AND/OR operator: the number of sub-filters must be more than 1."
	const broken = "Deserialize filter failed"
	long := strings.Repeat("x", 2*megabyte)
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		f.mustWrite(putOf(pk("r"), cell("c", 1)))
		tooMany, mostLeaves, oneMore := "The count of filter exceeds the max: 32.", 31, some(32)
		if f.limits.FilterConditions > 0 {
			tooMany, mostLeaves, oneMore = "The count of filter exceeds the max: 10.", 10, some(11)
		}
		for _, c := range []struct {
			filter  *Filter
			message string
		}{
			{joined(LogicalAnd, some(mostLeaves)...), ""},
			{joined(LogicalAnd, oneMore...), tooMany},
			{negated(31), ""},
			{negated(32), "The count of filter exceeds the max: 32."},
			{joined(LogicalAnd, leaf), few}, {joined(LogicalOr, leaf), few}, {joined(LogicalOr), few},
			{joined(LogicalNot), "Invalid NOT operator: the number of sub-filters must be 1."},
			{joined(LogicalNot, leaf, leaf), "Invalid NOT operator: the number of sub-filters must be 1."},
			{joined(4, leaf, leaf), broken}, {joined(LogicalNot, nil), broken},
			{&Filter{}, broken}, {where("c", 0, 1), broken}, {where("c", 9, 1), broken},
			{where("c", CompareEqual, nil), broken}, {where("c", CompareEqual, row.Min()), broken},
			{where("#c", CompareEqual, 1), "Invalid column name: '#c'."},
			{where("", CompareEqual, 1), "Invalid column name: ''."},
			{where("c", CompareEqual, long), ""},
			{where("c", CompareEqual, long+"x"), "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."},
			{joined(LogicalNot, paged(0, 1)), "ColumnPaginationFilter can only be given alone, as the filter of a read."},
			{leaf.or(cast(strings.Repeat("x", 256), row.TypeString)), ""},
			{leaf.or(cast(strings.Repeat("x", 257), row.TypeString)), "The length of regex in ValueTransferRule exceeds the MaxLength:256 with CurrentLength:257."},
			{leaf.or(cast("(", row.TypeString)), "Invalid regex in ValueTransferRule: '('."},
			{leaf.or(cast(`((x{1,99}){1,99}){1,99}`, row.TypeString)), "Invalid regex in ValueTransferRule: '((x{1,99}){1,99}){1,99}'."},
			{leaf.or(cast("x", row.TypeBinary)), "Invalid cast type in ValueTransferRule, only INTEGER,DOUBLE,STRING is allowed."},
		} {
			code := CodeParameterInvalid
			if c.message == "" {
				code = ""
			}
			_, err := f.get(pk("r"), filtered(c.filter))
			wantError(t, err, code, c.message)
			change := putOf(pk("q"), cell("c", 1))
			change.ColumnCondition = c.filter
			_, err = f.write(change)
			if c.message != "" || err != nil && !strings.HasPrefix(err.Error(), CodeConditionCheckFail) {
				wantError(t, err, code, c.message)
			}
		}
		for _, c := range []struct {
			filter  *Filter
			message string
		}{
			{paged(-1, 1), "Offset in ColumnPaginationFilter must be greater than or equal to 0."},
			{paged(0, 0), "Limit in ColumnPaginationFilter must be greater than 0."},
			{paged(0, -1), "Limit in ColumnPaginationFilter must be greater than 0."},
		} {
			_, err := f.get(pk("r"), filtered(c.filter))
			wantError(t, err, CodeParameterInvalid, c.message)
		}
		change := putOf(pk("q"), cell("c", 1))
		change.ColumnCondition = paged(0, 1)
		_, err := f.write(change)
		wantError(t, err, CodeParameterInvalid, "ColumnPaginationFilter can only be given alone, as the filter of a read.")
	})
}

func TestConditionsAreJudgedOnTheStoredRow(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(2, -1)
	conditional := func(c RowChange, filter *Filter) RowChange { c.ColumnCondition = filter; return c }
	is := func(v int) *Filter { return where("c", CompareEqual, v) }
	for _, c := range []struct {
		name   string
		change RowChange
		ok     bool
		after  string
	}{
		{"a missing row lacks every column", conditional(putOf(pk("r"), cellAt("c", 1, startMillis)), is(1)), false, "none"},
		{"also its key columns", conditional(putOf(pk("r")), where("pk", CompareEqual, "r")), false, "none"},
		{"which may be allowed", conditional(putOf(pk("r"), cellAt("c", 1, startMillis)), is(1).or(passMissing)), true, `"r" | c@0=1`},
		{"true", conditional(updateOf(pk("r"), cellAt("c", 2, startMillis+1)), is(1)), true, `"r" | c@1=2 c@0=1`},
		{"the newest version counts", conditional(deleteOf(pk("r")), is(1)), false, `"r" | c@1=2 c@0=1`},
		{"or any", conditional(updateOf(pk("r"), cellAt("c", 3, startMillis+2)), is(1).or(anyVersion)), true, `"r" | c@2=3 c@1=2`},
		{"what is invisible does not", conditional(deleteOf(pk("r")), is(1).or(anyVersion)), false, `"r" | c@2=3 c@1=2`},
		{"existence comes first", conditional(putOf(pk("r")), is(3)).expecting(ExistenceExpectNot), false, `"r" | c@2=3 c@1=2`},
		{"the row's other columns count", conditional(updateOf(pk("r"), cellAt("x", 1, startMillis)), joined(LogicalAnd, is(3), joined(LogicalNot, where("x", CompareEqual, 1)))), true, `"r" | c@2=3 c@1=2 x@0=1`},
		{"true for a delete", conditional(deleteOf(pk("r")), is(3)).expecting(ExistenceExpect), true, "none"},
	} {
		res, err := f.write(c.change)
		if c.ok {
			wantError(t, err, "", "")
			if err == nil && res.Consumed.Read != 1 {
				t.Errorf("%s: cost %+v, want a read unit", c.name, res.Consumed)
			}
		} else {
			wantError(t, err, CodeConditionCheckFail, "Condition check failed.")
		}
		if got := f.show(pk("r"), all()); got != c.after {
			t.Errorf("%s: row is %s, want %s", c.name, got, c.after)
		}
	}
}

// TestFilteredRowsCostAndCountAsScanned checks that rows dropped by a filter do not count for
// the limit, but fill pages and cost their size.
func TestFilteredRowsCostAndCountAsScanned(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const rows = 10_000
	for i := 0; i < rows; i += 100 {
		var changes []RowChange
		for j := range 100 {
			changes = append(changes, putOf(pk(fmt.Sprintf("%06d", i+j)), cell("n", i+j)))
		}
		if _, err := f.BatchWriteRow(t.Context(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: changes}}}); err != nil {
			t.Fatal(err)
		}
	}
	scan := func(filter *Filter, limit int32) (found []int64, pages int, cost int32) {
		req := everything()
		req.Filter = filter
		if limit > 0 {
			req.Limit = &limit
		}
		for {
			resp, err := f.rangeOf(req)
			if err != nil {
				t.Fatal(err)
			}
			pages, cost = pages+1, cost+resp.Consumed.Read
			for i := range resp.Rows {
				found = append(found, resp.Rows[i].Cells[0].Value.Int64())
			}
			if resp.Next == nil {
				return found, pages, cost
			}
			req.Start.Key = resp.Next
		}
	}
	// A row is 2+6 bytes of key and 1+8 of its cell.
	const pageCost = (5000*17 + 4095) / 4096
	found, pages, cost := scan(where("n", CompareLess, 0), 0)
	if len(found) != 0 || pages != 2 || cost != 2*pageCost {
		t.Errorf("everything dropped: %d rows, %d pages, cost %d; want none, 2, %d", len(found), pages, cost, 2*pageCost)
	}
	found, pages, _ = scan(joined(LogicalOr, where("n", CompareEqual, 4999), where("n", CompareGreater, 9996)), 2)
	if !slices.Equal(found, []int64{4999, 9997, 9998, 9999}) || pages != 3 {
		t.Errorf("limit 2: found %v in %d pages", found, pages)
	}
	res, err := f.get(pk("000001"), filtered(where("n", CompareEqual, 2)))
	if err != nil || res.Row != nil || res.Consumed != (CapacityUnit{Read: 1}) {
		t.Errorf("a dropped row of GetRow: %+v, %v", res, err)
	}
}

// judgeNaively implements PROTOCOL 4.2 and 4.3 again, over a map of versions, newest first. It
// shares no code with the code under test.
func judgeNaively(f *Filter, columns map[string][]row.Value) bool {
	if f.Type == FilterComposite {
		n := 0
		for _, sub := range f.Subs {
			if judgeNaively(sub, columns) {
				n++
			}
		}
		switch f.Operator {
		case LogicalAnd:
			return n == len(f.Subs)
		case LogicalOr:
			return n > 0
		}
		return n == 0
	}
	values := columns[f.Column]
	if len(values) == 0 {
		return !f.FilterIfMissing
	}
	if f.LatestVersionOnly {
		values = values[:1]
	}
	for _, v := range values {
		if f.Transfer != nil {
			part := regexp.MustCompile(f.Transfer.Regex).FindString(v.Text())
			n, err := strconv.Atoi(part)
			if v.Type() != row.TypeString || err != nil {
				continue
			}
			v = row.Integer(int64(n))
		}
		if v.Type() != f.Value.Type() {
			continue
		}
		less := v.Type() == row.TypeInteger && v.Int64() < f.Value.Int64() || v.Type() == row.TypeString && v.Text() < f.Value.Text()
		equal := v.Int64() == f.Value.Int64() && v.Text() == f.Value.Text()
		if slices.Contains(map[Comparator][]bool{
			CompareEqual: {equal}, CompareNotEqual: {!equal}, CompareLess: {less}, CompareLessEqual: {less, equal},
			CompareGreater: {!less && !equal}, CompareGreaterEqual: {!less},
		}[f.Comparator], true) {
			return true
		}
	}
	return false
}

func TestAnyFilterTreeJudgesAsTheRulesSay(t *testing.T) {
	f := openFixture(t, Current())
	f.createPlain(3, -1)
	columns := rapid.SampledFrom([]string{"a", "b", "c"})
	value := rapid.Custom(func(t *rapid.T) row.Value {
		n := rapid.IntRange(0, 3).Draw(t, "n")
		if rapid.Bool().Draw(t, "string") {
			return row.String(strconv.Itoa(n))
		}
		return row.Integer(int64(n))
	})
	var tree func(depth int) *rapid.Generator[*Filter]
	tree = func(depth int) *rapid.Generator[*Filter] {
		return rapid.Custom(func(t *rapid.T) *Filter {
			if depth == 0 || rapid.Bool().Draw(t, "leaf") {
				leaf := &Filter{
					Type: FilterSingleColumn, Column: columns.Draw(t, "column"), Value: value.Draw(t, "value"),
					Comparator:      Comparator(rapid.IntRange(1, 6).Draw(t, "comparator")),
					FilterIfMissing: rapid.Bool().Draw(t, "filter if missing"), LatestVersionOnly: rapid.Bool().Draw(t, "latest"),
				}
				if rapid.IntRange(0, 3).Draw(t, "cast") == 0 {
					leaf.Transfer = &ValueTransferRule{Regex: "[0-9]", Cast: row.TypeInteger}
				}
				return leaf
			}
			if rapid.IntRange(0, 2).Draw(t, "not") == 0 {
				return joined(LogicalNot, tree(depth-1).Draw(t, "sub"))
			}
			op := rapid.SampledFrom([]LogicalOperator{LogicalAnd, LogicalOr}).Draw(t, "operator")
			return joined(op, rapid.SliceOfN(tree(depth-1), 2, 3).Draw(t, "subs")...)
		})
	}
	rapid.Check(t, func(t *rapid.T) {
		held := map[string][]row.Value{}
		put := putOf(pk("r"))
		for _, c := range []string{"a", "b", "c"} {
			held[c] = rapid.SliceOfN(value, 0, 3).Draw(t, c)
			for i, v := range held[c] {
				put.Row.Cells = append(put.Row.Cells, cellAt(c, v, startMillis-int64(i)))
			}
		}
		if _, err := f.write(put); err != nil {
			t.Fatal(err)
		}
		filter := tree(3).Draw(t, "filter")
		res, err := f.get(pk("r"), filtered(filter))
		if err != nil {
			if strings.Contains(err.Error(), "The count of filter") {
				return
			}
			t.Fatal(err)
		}
		if want := judgeNaively(filter, held); (res.Row != nil) != want {
			t.Fatalf("passes %v, want %v", res.Row != nil, want)
		}
	})
}

// TestEqualFiltersOfABatchAreCompiledOnce checks that equal filters share expressions, but
// nothing that is bound to one table.
func TestEqualFiltersOfABatchAreCompiledOnce(t *testing.T) {
	limits := Documented()
	filter := &Filter{Type: FilterComposite, Operator: LogicalNot, Subs: []*Filter{{
		Type: FilterSingleColumn, Column: "c", Comparator: CompareEqual, Value: row.String("x"),
		Transfer: &ValueTransferRule{Regex: "(a)", Cast: row.TypeString},
	}}}
	selection := all()
	selection.Filter = filter
	gets := &BatchGetRowRequest{Tables: []TableGets{
		{Table: "t", Selection: selection, Rows: []Row{{Key: pk("a")}}}, {Table: "u", Selection: selection},
	}}
	selections, bad := limits.checkBatchGet(gets)
	if bad != nil {
		t.Fatal(bad)
	}
	a, b := selections[0].filter, selections[1].filter
	if a.subs[0].part == nil || a.subs[0].part != b.subs[0].part {
		t.Error("the expression of a read was compiled twice")
	}
	if a == b || &a.subs[0] == &b.subs[0] {
		t.Error("two tables share what is bound to one")
	}

	change := func(k string) RowChange {
		return RowChange{Type: ChangeUpdate, Row: Row{Key: pk(k), Cells: []Cell{cell("v", row.Integer(1))}}, ColumnCondition: filter}
	}
	writes := &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t", Changes: []RowChange{change("a"), change("b")}}}}
	if bad := limits.checkBatchWrite(writes); bad != nil {
		t.Fatal(bad)
	}
	p, q := writes.Tables[0].Changes[0].condition, writes.Tables[0].Changes[1].condition
	if p.subs[0].part != q.subs[0].part {
		t.Error("the expression of a condition was compiled twice")
	}
	if p == q || &p.subs[0] == &q.subs[0] {
		t.Error("two rows share what is bound to one")
	}

	many := &BatchGetRowRequest{Tables: make([]TableGets, limits.BatchGetRows+1)}
	many.Tables[0] = gets.Tables[0]
	if _, bad := limits.checkBatchGet(many); bad == nil || bad.Message != "Rows count exceeds the upper limit: 100." {
		t.Errorf("%d entries: %v", len(many.Tables), bad)
	}
}
