package gosdk_test

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

func TestEveryTypeComesBackAsItWasWritten(t *testing.T) {
	name := create(t, table{}, "s", "i", "b")
	allBytes := make([]byte, 256)
	for i := range allBytes {
		allBytes[i] = byte(i)
	}
	for _, k := range [][]any{
		{"s", "", "i", int64(math.MinInt64), "b", []byte{}},
		{"s", "a\x00b", "i", int64(math.MaxInt64), "b", []byte{0, 0xff, 0}},
		{"s", "表格存储 🗄", "i", int64(-1), "b", allBytes},
		{"s", strings.Repeat("s", 1024), "i", int64(0), "b", make([]byte, 1024)},
	} {
		columns := []struct {
			name  string
			value any
		}{
			{"b_all", allBytes}, {"b_empty", []byte{}},
			{"d_large", math.MaxFloat64}, {"d_minus_zero", math.Copysign(0, -1)}, {"d_small", math.SmallestNonzeroFloat64},
			{"f", false},
			{"i_max", int64(math.MaxInt64)}, {"i_min", int64(math.MinInt64)}, {"i_zero", int64(0)},
			{"s_chinese", "表格存储"}, {"s_empty", ""}, {"s_zero", "a\x00b"},
			{"t", true},
		}
		c := put(name, key(k...))
		for _, column := range columns {
			c.AddColumn(column.name, column.value)
		}
		write(t, c)
		r := get(t, name, key(k...))
		if !reflect.DeepEqual(&r.PrimaryKey, key(k...)) {
			t.Errorf("key: got %v; want %v", r.PrimaryKey, key(k...))
		}
		if len(r.Columns) != len(columns) {
			t.Fatalf("got %d columns; want %d", len(r.Columns), len(columns))
		}
		for i, column := range columns {
			got := r.Columns[i]
			if got.ColumnName != column.name || fmt.Sprintf("%T %v", got.Value, got.Value) != fmt.Sprintf("%T %v", column.value, column.value) {
				t.Errorf("got %s = %T %v; want %s = %T %v", got.ColumnName, got.Value, got.Value, column.name, column.value, column.value)
			}
		}
	}
}

// TestWritesOfARow goes through a life of a row; each step is a change and the
// row that must be there afterwards.
func TestWritesOfARow(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	for _, step := range []struct {
		what   string
		change ots.RowChange
		want   string
	}{
		{"update makes a row", update(name, k, "a", 1, "b", "x"), "(r) a=1 b=x"},
		{"update changes a column and leaves the others", update(name, k, "a", 2), "(r) a=2 b=x"},
		{"a value changes its type", update(name, k, "b", true), "(r) a=2 b=true"},
		{"update deletes one column and writes another", update(name, k, "a", removal{}, "c", 0.5), "(r) b=true c=0.5"},
		{"deletion of an absent column", update(name, k, "nowhere", removal{}), "(r) b=true c=0.5"},
		{"put replaces the row", put(name, k, "d", 4), "(r) d=4"},
		{"without columns a row has its key", update(name, k, "d", removal{}), "(r)"},
		{"put of a bare key", put(name, k), "(r)"},
		{"delete", remove(name, k), ""},
		{"delete of an absent row", remove(name, k), ""},
		{"deletions make no row", update(name, k, "a", removal{}), ""},
		{"put after delete", put(name, k, "a", 3, "B", 1, "_", 2), "(r) B=1 _=2 a=3"},
	} {
		write(t, step.change)
		r := get(t, name, k)
		want(t, step.what, text(&r.PrimaryKey, r.Columns), step.want)
	}
}

func TestColumnSelection(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "r")
	write(t, put(name, k, "a", 1, "b", 2, "c", 3, "d", 4))
	for _, c := range []struct {
		what       string
		columns    []string
		start, end string
		want       string
	}{
		{"all", nil, "", "", "(r) a=1 b=2 c=3 d=4"},
		{"by name, whatever the order", []string{"c", "a", "c"}, "", "", "(r) a=1 c=3"},
		{"an absent one", []string{"b", "x"}, "", "", "(r) b=2"},
		{"only absent ones: no row", []string{"x", "y"}, "", "", ""},
		{"only absent ones and the key", []string{"x", "s"}, "", "", "(r)"},
		{"from b", nil, "b", "", "(r) b=2 c=3 d=4"},
		{"before c", nil, "", "c", "(r) a=1 b=2"},
		{"from b, before d", nil, "b", "d", "(r) b=2 c=3"},
		{"by name and bounds", []string{"a", "b", "c"}, "b", "d", "(r) b=2 c=3"},
	} {
		r := get(t, name, k, func(q *ots.SingleRowQueryCriteria) {
			q.ColumnsToGet = c.columns
			if c.start != "" {
				q.SetStartColumn(c.start)
			}
			if c.end != "" {
				q.SetEndtColumn(c.end)
			}
		})
		want(t, c.what, text(&r.PrimaryKey, r.Columns), c.want)
	}
}

func TestReturnedPrimaryKey(t *testing.T) {
	name := create(t, table{}, "s", "i")
	c := put(name, key("s", "a", "i", 7), "c", 1)
	c.SetReturnPk()
	r, err := client.PutRow(&ots.PutRowRequest{PutRowChange: c})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "primary key", text(&r.PrimaryKey, nil), "(a 7)")
}

func TestLargestValuesAndTheNextLargerOnes(t *testing.T) {
	name := create(t, table{}, "s")
	const mebi = 1 << 20
	large := strings.Repeat("x", 2*mebi)
	k := key("s", "large")
	write(t, put(name, k, "c", large))
	if got := get(t, name, k).Columns; len(got) != 1 || got[0].Value != large {
		t.Error("2 MB did not come back")
	}
	columns := func(n int) *ots.PutRowChange {
		c := put(name, k)
		for i := range n {
			c.AddColumn(fmt.Sprintf("c%04d", i), int64(i))
		}
		return c
	}
	write(t, columns(1024))
	want(t, "columns", len(get(t, name, k).Columns), 1024)

	for _, c := range []struct {
		what   string
		change ots.RowChange
		part   string
	}{
		{"string too long", put(name, k, "c", large+"x"), "The length of attribute column: 'c' exceeds the MaxLength:2097152 with CurrentLength:2097153."},
		{"binary too long", update(name, k, "c", []byte(large+"x")), "exceeds the MaxLength:2097152"},
		{"key too long", put(name, key("s", large[:1025])), "The length of primary key column: 's' exceeds the MaxLength:1024 with CurrentLength:1025."},
		{"too many columns", columns(1025), "The number of attribute columns exceeds the limit, limit count: 1024, column count: 1025."},
		{"column named as the key", put(name, k, "s", 1), "Duplicated attribute column name with primary key column: 's'."},
		{"bad column name", put(name, k, "a-b", 1), "Invalid column name: 'a-b'."},
		{"not a number", put(name, k, "c", math.NaN()), "NaN"},
		{"infinity", put(name, k, "c", math.Inf(-1)), "Infinity"},
		{"not UTF-8", put(name, k, "c", "\xff"), "UTF8"},
	} {
		wantError(t, c.what, apply(c.change), "OTSParameterInvalid", c.part)
	}
	want(t, "columns after all that was refused", len(get(t, name, k).Columns), 1024)
}

// TestARowGrowsBeyondWhatOneRequestWrites: no limit on rows, only on requests.
func TestARowGrowsBeyondWhatOneRequestWrites(t *testing.T) {
	name := create(t, table{}, "s")
	k := key("s", "wide")
	values := map[string]string{}
	for i := range 5 {
		column := fmt.Sprintf("c%d", i)
		values[column] = strings.Repeat(string(rune('a'+i)), 2_000_000)
		write(t, update(name, k, column, values[column]))
	}
	for i := range 2500 {
		values[fmt.Sprintf("n%04d", i)] = fmt.Sprint(i)
	}
	for part := range 3 {
		c := update(name, k)
		for i := part * 1000; i < min((part+1)*1000, 2500); i++ {
			c.PutColumn(fmt.Sprintf("n%04d", i), fmt.Sprint(i))
		}
		write(t, c)
	}
	check := func(what string, columns []*ots.AttributeColumn) {
		if len(columns) != len(values) {
			t.Fatalf("%s: got %d columns; want %d", what, len(columns), len(values))
		}
		for i, c := range columns {
			if values[c.ColumnName] != c.Value || i > 0 && columns[i-1].ColumnName >= c.ColumnName {
				t.Fatalf("%s: column %s is wrong or out of order", what, c.ColumnName)
			}
		}
	}
	check("GetRow", get(t, name, k).Columns)
	r := ranges(t, &ots.RangeRowQueryCriteria{TableName: name, MaxVersion: 1, Limit: 10,
		StartPrimaryKey: key("s", lowest), EndPrimaryKey: key("s", highest)})
	if len(r.Rows) != 1 {
		t.Fatalf("GetRange: got %d rows; want the large one", len(r.Rows))
	}
	check("GetRange", r.Rows[0].Columns)
	one := get(t, name, k, func(q *ots.SingleRowQueryCriteria) { q.ColumnsToGet = []string{"n1234"} })
	want(t, "one column of the large row", text(&one.PrimaryKey, one.Columns), "(wide) n1234=1234")
}

func TestKeysThatDoNotFitTheTable(t *testing.T) {
	name := create(t, table{}, "s", "i")
	for _, c := range []struct {
		what       string
		key        *ots.PrimaryKey
		code, part string
	}{
		{"too few columns", key("s", "a"), "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2."},
		{"other name", key("s", "a", "j", 1), "OTSInvalidPK", "Validate PK name fail. Input: j, Meta: i."},
		{"other order", key("i", 1, "s", "a"), "OTSInvalidPK", "Validate PK name fail. Input: i, Meta: s."},
		{"other type", key("s", "a", "i", "1"), "OTSInvalidPK", "Validate PK type fail. Input: VT_STRING, Meta: VT_INTEGER."},
	} {
		wantError(t, c.what+", put", apply(put(name, c.key, "c", 1)), c.code, c.part)
		_, err := client.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{TableName: name, PrimaryKey: c.key, MaxVersion: 1}})
		wantError(t, c.what+", get", err, c.code, c.part)
	}
	// In writes the SDK makes the placeholder of a generated value of it.
	_, err := client.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: &ots.SingleRowQueryCriteria{
		TableName: name, PrimaryKey: key("s", "a", "i", lowest), MaxVersion: 1}})
	wantError(t, "a bound as value", err, "OTSParameterInvalid", "VT_INF_MIN is an invalid type for the primary key.")
	wantError(t, "no table", apply(put("Nowhere", key("s", "a"), "c", 1)), "OTSObjectNotExist", "Requested table does not exist.")
}
