package gosdk_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// where is a comparison with a column's newest version that rows without the
// column do not pass.
func where(column string, c ots.ComparatorType, v any) *ots.SingleColumnCondition {
	f := ots.NewSingleColumnCondition(column, c, value(v))
	f.FilterIfMissing, f.LatestVersionOnly = true, true
	return f
}

// passing lets rows without the column pass.
func passing(f *ots.SingleColumnCondition) *ots.SingleColumnCondition {
	f.FilterIfMissing = false
	return f
}

// inAny compares with all versions.
func inAny(f *ots.SingleColumnCondition) *ots.SingleColumnCondition {
	f.LatestVersionOnly = false
	return f
}

func cast(f *ots.SingleColumnCondition, regex string, to ots.VariantType) *ots.SingleColumnCondition {
	f.TransferRule = &ots.ValueTransferRule{Regex: regex, Cast_type: to}
	return f
}

func join(op ots.LogicalOperator, subs ...ots.ColumnFilter) *ots.CompositeColumnValueFilter {
	c := ots.NewCompositeColumnCondition(op)
	for _, f := range subs {
		c.AddFilter(f)
	}
	return c
}

// filteredBy reads the one row of TestFilters with a filter.
func filteredBy(f ots.ColumnFilter) func(*ots.SingleRowQueryCriteria) {
	return func(q *ots.SingleRowQueryCriteria) { q.Filter = f; q.MaxVersion = 9 }
}

func TestFilters(t *testing.T) {
	name := create(t, table{versions: 3}, "s")
	k := key("s", "r")
	write(t, put(name, k, "b", []byte{0x80}, "d", 1.5, "i", 7, "str", "abc", "t", true, "text", "n=42;", "v@-2", 1, "v@-1", 2))
	for _, c := range []struct {
		what   string
		filter ots.ColumnFilter
		want   bool
	}{
		{"integer =", where("i", ots.CT_EQUAL, 7), true}, {"integer = another", where("i", ots.CT_EQUAL, 8), false},
		{"integer !=", where("i", ots.CT_NOT_EQUAL, 8), true}, {"integer != itself", where("i", ots.CT_NOT_EQUAL, 7), false},
		{"integer >", where("i", ots.CT_GREATER_THAN, 6), true}, {"integer > itself", where("i", ots.CT_GREATER_THAN, 7), false},
		{"integer >=", where("i", ots.CT_GREATER_EQUAL, 7), true}, {"integer >= a larger one", where("i", ots.CT_GREATER_EQUAL, 8), false},
		{"integer <", where("i", ots.CT_LESS_THAN, 8), true}, {"integer < itself", where("i", ots.CT_LESS_THAN, 7), false},
		{"integer <=", where("i", ots.CT_LESS_EQUAL, 7), true}, {"integer <= a smaller one", where("i", ots.CT_LESS_EQUAL, 6), false},
		{"double", where("d", ots.CT_GREATER_THAN, 1.0), true}, {"string", where("str", ots.CT_GREATER_THAN, "ab"), true},
		{"binary", where("b", ots.CT_GREATER_THAN, []byte{0x7f}), true}, {"boolean", where("t", ots.CT_EQUAL, true), true},
		{"another type", where("i", ots.CT_NOT_EQUAL, 7.0), false},
		{"an absent column", where("x", ots.CT_EQUAL, 1), false}, {"an absent column that passes", passing(where("x", ots.CT_EQUAL, 1)), true},
		{"the newest version", where("v", ots.CT_EQUAL, 1), false}, {"any version", inAny(where("v", ots.CT_EQUAL, 1)), true},
		{"a key column", where("s", ots.CT_EQUAL, "r"), true}, {"a key column that differs", where("s", ots.CT_EQUAL, "q"), false},
		{"and", join(ots.LO_AND, where("i", ots.CT_EQUAL, 7), where("t", ots.CT_EQUAL, true)), true},
		{"and with a false one", join(ots.LO_AND, where("i", ots.CT_EQUAL, 7), where("t", ots.CT_EQUAL, false)), false},
		{"or", join(ots.LO_OR, where("i", ots.CT_EQUAL, 8), where("t", ots.CT_EQUAL, true)), true},
		{"or of false ones", join(ots.LO_OR, where("i", ots.CT_EQUAL, 8), where("t", ots.CT_EQUAL, false)), false},
		{"not", join(ots.LO_NOT, where("i", ots.CT_EQUAL, 8)), true}, {"not of a true one", join(ots.LO_NOT, where("i", ots.CT_EQUAL, 7)), false},
		{"not of an absent one", join(ots.LO_NOT, where("x", ots.CT_EQUAL, 8)), true},
		{"a tree", join(ots.LO_OR, join(ots.LO_AND, where("i", ots.CT_EQUAL, 8), where("t", ots.CT_EQUAL, true)), join(ots.LO_NOT, where("str", ots.CT_EQUAL, "x"))), true},
		{"a part cast to integer", cast(where("text", ots.CT_EQUAL, 42), `n=(\d+)`, ots.Variant_INTEGER), true},
		{"a part cast to double", cast(where("text", ots.CT_LESS_THAN, 42.5), `\d+`, ots.Variant_DOUBLE), true},
		{"a part as a string", cast(where("text", ots.CT_EQUAL, "42"), `\d+`, ots.Variant_STRING), true},
		{"a cast that fails", cast(where("text", ots.CT_NOT_EQUAL, 1), `n=`, ots.Variant_INTEGER), false},
		{"no match", cast(where("text", ots.CT_NOT_EQUAL, "x"), `q`, ots.Variant_STRING), false},
	} {
		r := get(t, name, k, filteredBy(c.filter))
		want(t, c.what, len(r.PrimaryKey.PrimaryKeys) > 0, c.want)
		want(t, c.what+": cost", cost(r.ConsumedCapacityUnit), "1 0")
		guarded := update(name, k, "z", 1)
		guarded.SetColumnCondition(c.filter)
		code := ""
		if !c.want {
			code = "OTSConditionCheckFail"
		}
		wantError(t, "as a condition, "+c.what, apply(guarded), code, "")
	}
}

func TestFiltersSeeSelectedColumns(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	write(t, put(name, k, "a", 1, "b", 2))
	selected := func(f ots.ColumnFilter) string {
		r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) { q.Filter, q.ColumnsToGet = f, []string{"a"} })
		return text(&r.PrimaryKey, r.Columns)
	}
	want(t, "a column that is returned", selected(where("a", ots.CT_EQUAL, 1)), "(r) a=1")
	want(t, "a column that is not", selected(where("b", ots.CT_EQUAL, 2)), "")
	want(t, "one that need not be there", selected(passing(where("b", ots.CT_EQUAL, 3))), "(r) a=1")
	want(t, "a key column", selected(where("s", ots.CT_EQUAL, "r")), "(r) a=1")
}

func TestPagination(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	write(t, put(name, k, "col0", 0, "col1", 1, "col2", 2, "col3", 3, "col4", 4, "col5", 5))
	from := func(start string, offset, limit int32) string {
		r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) {
			q.Filter = &ots.PaginationFilter{Offset: offset, Limit: limit}
			if start != "" {
				q.StartColumn = &start
			}
		})
		return text(&r.PrimaryKey, r.Columns)
	}
	want(t, "the first two", from("", 0, 2), "(r) col0=0 col1=1")
	want(t, "the last", from("", 5, 3), "(r) col5=5")
	want(t, "behind the last", from("", 6, 3), "(r)")
	want(t, "from a column on", from("col3", 1, 1), "(r) col4=4")
	for _, c := range []struct {
		filter  ots.ColumnFilter
		message string
	}{
		{&ots.PaginationFilter{Offset: -1, Limit: 1}, "Offset in ColumnPaginationFilter must be greater than or equal to 0."},
		{&ots.PaginationFilter{Offset: 0, Limit: 0}, "Limit in ColumnPaginationFilter must be greater than 0."},
	} {
		wantError(t, c.message, readFiltered(name, k, c.filter), "OTSParameterInvalid", c.message)
	}
	guarded := put(name, k)
	guarded.SetColumnCondition(&ots.PaginationFilter{Offset: 0, Limit: 1})
	wantError(t, "as a condition", apply(guarded), "OTSParameterInvalid", "ColumnPaginationFilter")
}

func readFiltered(name string, k *ots.PrimaryKey, f ots.ColumnFilter) error {
	_, err := client.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{TableName: name, PrimaryKey: k, MaxVersion: 1, Filter: f}})
	return err
}

func TestFiltersAtTheirLimits(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	leaves := func(n int) ots.ColumnFilter {
		c := join(ots.LO_OR)
		for range n {
			c.AddFilter(where("c", ots.CT_EQUAL, 1))
		}
		return c
	}
	deep := func(composites int) ots.ColumnFilter {
		var f ots.ColumnFilter = where("c", ots.CT_EQUAL, 1)
		for range composites {
			f = join(ots.LO_NOT, f)
		}
		return f
	}
	const few = "Invalid AND/OR operator: the number of sub-filters must be more than 1."
	for _, c := range []struct {
		what    string
		filter  ots.ColumnFilter
		message string
	}{
		{"10 conditions", leaves(10), ""},
		{"11 conditions", leaves(11), "The count of filter exceeds the max: 10."},
		{"32 nodes", deep(31), ""},
		{"33 nodes", deep(32), "The count of filter exceeds the max: 32."},
		{"and of one", join(ots.LO_AND, where("c", ots.CT_EQUAL, 1)), few},
		{"or of none", join(ots.LO_OR), few},
		{"not of two", join(ots.LO_NOT, where("c", ots.CT_EQUAL, 1), where("c", ots.CT_EQUAL, 1)), "Invalid NOT operator: the number of sub-filters must be 1."},
		{"a bad name", where("a-b", ots.CT_EQUAL, 1), "Invalid column name: 'a-b'."},
		{"2 MB", where("c", ots.CT_EQUAL, strings.Repeat("x", 2<<20)), ""},
		{"2 MB and a byte", where("c", ots.CT_EQUAL, strings.Repeat("x", 2<<20+1)), "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."},
		{"an expression of 256 bytes", cast(where("c", ots.CT_EQUAL, "x"), strings.Repeat("x", 256), ots.Variant_STRING), ""},
		{"an expression of 257 bytes", cast(where("c", ots.CT_EQUAL, "x"), strings.Repeat("x", 257), ots.Variant_STRING), "The length of regex in ValueTransferRule exceeds the MaxLength:256"},
	} {
		code := "OTSParameterInvalid"
		if c.message == "" {
			code = ""
		}
		wantError(t, c.what, readFiltered(name, k, c.filter), code, c.message)
	}
	// The newer limits count nodes only.
	current, err := command.Start(t.TempDir(), "--limits", "current")
	if err != nil {
		t.Fatal(err)
	}
	defer current.Kill()
	other := connect(current)
	if _, err := other.CreateTable(table{}.request("T", "s")); err != nil {
		t.Fatal(err)
	}
	for n, message := range map[int]string{31: "", 32: "The count of filter exceeds the max: 32."} {
		_, err := other.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{TableName: "T", PrimaryKey: k, MaxVersion: 1, Filter: leaves(n)}})
		code := "OTSParameterInvalid"
		if message == "" {
			code = ""
		}
		wantError(t, fmt.Sprint(n, " conditions"), err, code, message)
	}
}

// TestFilteredRanges: 10,000 rows that a filter drops take two responses; what
// is dropped counts for pages and cost and not for the limit.
func TestFilteredRanges(t *testing.T) {
	name := create(t, table{}, "i")
	var changes []ots.RowChange
	for i := range 10_000 {
		changes = append(changes, put(name, key("i", i), "c", i))
	}
	fill(t, changes)
	up := over(name, key("i", lowest), key("i", highest))
	up.Filter = where("c", ots.CT_LESS_THAN, 0)
	all := pages(t, up)
	want(t, "pages of nothing", len(all), 2)
	want(t, "rows", len(slices.Concat(all...)), 0)
	// 5000 rows of 1 + 8 + 1 + 8 bytes.
	want(t, "cost of one", cost(ranges(t, &up).ConsumedCapacityUnit), "22 0")

	up.Filter, up.Limit = join(ots.LO_OR, where("c", ots.CT_EQUAL, 4999), where("c", ots.CT_GREATER_THAN, 9996)), 2
	all = pages(t, up)
	want(t, "rows that pass", rowTexts(slices.Concat(all...)), "(4999) c=4999 (9997) c=9997 (9998) c=9998 (9999) c=9999")
	want(t, "pages of two", len(all), 3)

	up.Direction, up.StartPrimaryKey, up.EndPrimaryKey, up.Limit = ots.BACKWARD, key("i", highest), key("i", lowest), 0
	want(t, "backward", rowTexts(slices.Concat(pages(t, up)...)), "(9999) c=9999 (9998) c=9998 (9997) c=9997 (4999) c=4999")

	batch, err := client.BatchGetRow(&ots.BatchGetRowRequest{MultiRowQueryCriteria: []*ots.MultiRowQueryCriteria{
		{TableName: name, MaxVersion: 1, PrimaryKey: []*ots.PrimaryKey{key("i", 1), key("i", 2), key("i", -1)}, Filter: where("c", ots.CT_GREATER_THAN, 1)},
	}})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "a batch", outcomes(batch.TableToRowsResult[name]), "[ok (2) c=2 ok]")
}

// TestColumnConditions: check and write are one step.
func TestColumnConditions(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	type guarded interface {
		ots.RowChange
		SetColumnCondition(ots.ColumnFilter)
	}
	is := func(c guarded, f ots.ColumnFilter) guarded { c.SetColumnCondition(f); return c }
	for _, c := range []struct {
		what   string
		change guarded
		code   string
		after  string
	}{
		{"put on a missing row", is(put(name, k, "c", 1), where("c", ots.CT_EQUAL, 1)), "OTSConditionCheckFail", ""},
		{"put where the column may be missing", is(put(name, k, "c", 1), passing(where("c", ots.CT_EQUAL, 1))), "", "(r) c=1"},
		{"update", is(update(name, k, "c", 2), where("c", ots.CT_EQUAL, 1)), "", "(r) c=2"},
		{"update of what has changed", is(update(name, k, "c", 3), where("c", ots.CT_EQUAL, 1)), "OTSConditionCheckFail", "(r) c=2"},
		{"delete", is(remove(name, k), where("c", ots.CT_LESS_THAN, 2)), "OTSConditionCheckFail", "(r) c=2"},
		{"delete that may", is(remove(name, k), where("c", ots.CT_GREATER_EQUAL, 2)), "", ""},
	} {
		got, err := consumed(c.change)
		wantError(t, c.what, err, c.code, "")
		if err == nil {
			want(t, c.what+": cost", cost(got), "1 1")
		}
		r := get(t, name, k)
		want(t, c.what, text(&r.PrimaryKey, r.Columns), c.after)
	}
	guard := update(name, k, "c", 1)
	guard.SetColumnCondition(passing(where("c", ots.CT_EQUAL, 1)))
	_, err := client.BatchWriteRow(&ots.BatchWriteRowRequest{RowChangesGroupByTable: map[string][]ots.RowChange{name: {guard, put(name, k)}}})
	wantError(t, "a repeated row", err, "OTSParameterInvalid", "Repeated rows do not support row condition check in BatchModify.")
	want(t, "in a batch", outcomes(writeBatch(t, guard, is(put(name, key("s", "q")), where("c", ots.CT_EQUAL, 1)))), "[ok OTSConditionCheckFail]")

	// Compare and swap: of writers that saw the same value one wins.
	const writers, each = 8, 20
	write(t, put(name, k, "n", 0))
	results := make(chan int, writers)
	for range writers {
		go func() {
			won := 0
			for n := range each {
				c := update(name, k, "n", n+1)
				c.SetColumnCondition(where("n", ots.CT_EQUAL, n))
				if err := apply(c); err == nil {
					won++
				}
			}
			results <- won
		}()
	}
	sum := 0
	for range writers {
		sum += <-results
	}
	r := get(t, name, k)
	want(t, "swaps that won", text(&r.PrimaryKey, r.Columns), fmt.Sprintf("(r) n=%d", sum))
}
