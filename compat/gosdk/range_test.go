package gosdk_test

import (
	"bytes"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
)

// ranges asks for one page.
func ranges(t *testing.T, q *ots.RangeRowQueryCriteria) *ots.GetRangeResponse {
	t.Helper()
	r, err := client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: q})
	if err != nil {
		t.Fatalf("GetRange: %v", err)
	}
	return r
}

// pages asks until the range is exhausted and returns the pages.
func pages(t *testing.T, q ots.RangeRowQueryCriteria) (all [][]*ots.Row) {
	t.Helper()
	for {
		r := ranges(t, &q)
		all = append(all, r.Rows)
		if r.NextStartPrimaryKey == nil {
			return all
		}
		if len(all) > 10_000 {
			t.Fatal("a range without end")
		}
		q.StartPrimaryKey = r.NextStartPrimaryKey
	}
}

// over returns a request for the rows from start to end. Backward is told by
// the test.
func over(name string, start, end *ots.PrimaryKey) ots.RangeRowQueryCriteria {
	return ots.RangeRowQueryCriteria{TableName: name, StartPrimaryKey: start, EndPrimaryKey: end, MaxVersion: 1}
}

func rowTexts(rows []*ots.Row) string {
	var out []string
	for _, r := range rows {
		out = append(out, text(r.PrimaryKey, r.Columns))
	}
	return strings.Join(out, " ")
}

// fill writes rows in batches of as many rows as one may have.
func fill(t *testing.T, changes []ots.RowChange) {
	t.Helper()
	for part := range slices.Chunk(changes, 200) {
		r := writeBatch(t, part...)
		for _, row := range r {
			if !row.IsSucceed {
				t.Fatalf("batch: %+v", row.Error)
			}
		}
	}
}

func TestRangesAreSortedByEveryKeyColumn(t *testing.T) {
	name := create(t, table{}, "s", "i", "b")
	strs := []string{"", "\x00", "A", "Z", "_", "a", "a\x00", "a,", "a-", "aa", "b", "é", "表"}
	ints := []int64{math.MinInt64, -256, -1, 0, 1, 255, math.MaxInt64}
	bins := [][]byte{{}, {0}, {0, 0}, {0, 1}, {1}, {0x7f}, {0xff}, {0xff, 0}, {0xff, 0xff}}
	var sorted []string
	var changes []ots.RowChange
	for _, s := range strs {
		for _, i := range ints {
			for _, b := range bins {
				sorted = append(sorted, fmt.Sprintf("%q %d %x", s, i, b))
				changes = append(changes, put(name, key("s", s, "i", i, "b", b)))
			}
		}
	}
	rand.New(rand.NewPCG(1, 2)).Shuffle(len(changes), func(i, j int) { changes[i], changes[j] = changes[j], changes[i] })
	fill(t, changes)

	low, high := key("s", lowest, "i", lowest, "b", lowest), key("s", highest, "i", highest, "b", highest)
	for _, limit := range []int32{0, 1000, 17} {
		forward, backward := over(name, low, high), over(name, high, low)
		backward.Direction = ots.BACKWARD
		forward.Limit, backward.Limit = limit, limit
		up, down := slices.Concat(pages(t, forward)...), slices.Concat(pages(t, backward)...)
		slices.Reverse(down)
		for _, got := range [][]*ots.Row{up, down} {
			if len(got) != len(sorted) {
				t.Fatalf("limit %d: got %d rows; want %d", limit, len(got), len(sorted))
			}
			for i, r := range got {
				k := r.PrimaryKey.PrimaryKeys
				if s := fmt.Sprintf("%q %d %x", k[0].Value, k[1].Value, k[2].Value); s != sorted[i] {
					t.Fatalf("limit %d, row %d: got %s; want %s", limit, i, s, sorted[i])
				}
			}
		}
	}
}

func TestBoundsOfRanges(t *testing.T) {
	name := create(t, table{}, "s", "i")
	for _, s := range []string{"a", "b", "c"} {
		for i := 1; i <= 3; i++ {
			write(t, put(name, key("s", s, "i", i)))
		}
	}
	for _, c := range []struct {
		what       string
		start, end *ots.PrimaryKey
		backward   bool
		limit      int32
		want       string
		next       string
	}{
		{"start in, end out", key("s", "a", "i", 2), key("s", "b", "i", 2), false, 0, "(a 2) (a 3) (b 1)", ""},
		{"the same backward", key("s", "b", "i", 2), key("s", "a", "i", 2), true, 0, "(b 2) (b 1) (a 3)", ""},
		{"one partition key", key("s", "b", "i", lowest), key("s", "b", "i", highest), false, 0, "(b 1) (b 2) (b 3)", ""},
		{"one partition key backward", key("s", "b", "i", highest), key("s", "b", "i", lowest), true, 0, "(b 3) (b 2) (b 1)", ""},
		{"bounds between rows", key("s", "aa", "i", 0), key("s", "bb", "i", 0), false, 0, "(b 1) (b 2) (b 3)", ""},
		{"nothing there", key("s", "x", "i", lowest), key("s", "z", "i", highest), false, 0, "", ""},
		{"limit", key("s", lowest, "i", lowest), key("s", highest, "i", highest), false, 2, "(a 1) (a 2)", "(a 3)"},
		{"limit backward", key("s", highest, "i", highest), key("s", lowest, "i", lowest), true, 4, "(c 3) (c 2) (c 1) (b 3)", "(b 2)"},
		{"limit that is just enough", key("s", "c", "i", 1), key("s", highest, "i", highest), false, 3, "(c 1) (c 2) (c 3)", ""},
	} {
		q := over(name, c.start, c.end)
		q.Limit = c.limit
		if c.backward {
			q.Direction = ots.BACKWARD
		}
		r := ranges(t, &q)
		want(t, c.what, rowTexts(r.Rows), c.want)
		want(t, c.what+", next", text(r.NextStartPrimaryKey, nil), c.next)
	}
	for _, c := range []struct {
		what       string
		start, end *ots.PrimaryKey
		direction  ots.Direction
		limit      int32
		code, part string
	}{
		{"inverted", key("s", "b", "i", 1), key("s", "a", "i", 1), ots.FORWARD, 0, "OTSParameterInvalid", "Begin key must less than end key in FORWARD"},
		{"inverted backward", key("s", "a", "i", 1), key("s", "b", "i", 1), ots.BACKWARD, 0, "OTSParameterInvalid", "Begin key must more than end key in BACKWARD"},
		{"equal", key("s", "a", "i", 1), key("s", "a", "i", 1), ots.FORWARD, 0, "OTSParameterInvalid", "Begin key must less than end key in FORWARD"},
		{"negative limit", key("s", "a", "i", 1), key("s", "b", "i", 1), ots.FORWARD, -1, "OTSParameterInvalid", "The limit must be greater than 0."},
		{"half a key", key("s", "a"), key("s", "b"), ots.FORWARD, 0, "OTSInvalidPK", "Validate PK size fail. Input: 1, Meta: 2."},
	} {
		q := over(name, c.start, c.end)
		q.Direction, q.Limit = c.direction, c.limit
		_, err := client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		wantError(t, c.what, err, c.code, c.part)
	}
}

func TestColumnSelectionInRanges(t *testing.T) {
	name := create(t, table{versions: 2}, "i")
	write(t, put(name, key("i", 1), "a", 1, "b", 1), put(name, key("i", 2), "b", 2), put(name, key("i", 3)), put(name, key("i", 4), "a", 4, "c", 4))
	for _, c := range []struct {
		what    string
		columns []string
		want    string
	}{
		{"all", nil, "(1) a=1 b=1 (2) b=2 (3) (4) a=4 c=4"},
		{"rows without the column are skipped", []string{"a"}, "(1) a=1 (4) a=4"},
		{"with the key they are not", []string{"a", "i"}, "(1) a=1 (2) (3) (4) a=4"},
	} {
		q := over(name, key("i", lowest), key("i", highest))
		q.ColumnsToGet = c.columns
		want(t, c.what, rowTexts(slices.Concat(pages(t, q)...)), c.want)
	}
	q := over(name, key("i", lowest), key("i", highest))
	q.ColumnsToGet, q.Limit = []string{"c"}, 1
	if all := slices.Concat(pages(t, q)...); rowTexts(all) != "(4) c=4" {
		t.Errorf("a limit counts rows returned: got %s", rowTexts(all))
	}
}

// TestKeyColumnsInRanges: a range returns whole keys unless it is told not to,
// in both formats of rows.
func TestKeyColumnsInRanges(t *testing.T) {
	name := create(t, table{}, "s", "i")
	write(t, put(name, key("s", "a", "i", 1), "c", 1, "d", 2), put(name, key("s", "b", "i", 2), "c", 3))
	for _, format := range []ots.DataBlockType{ots.PlainBuffer, ots.SimpleRowMatrix} {
		for _, c := range []struct {
			listed  bool
			columns []string
			want    string
		}{
			{false, []string{"i", "c"}, "(a 1) c=1 (b 2) c=3"},
			{true, []string{"i", "c"}, "(1) c=1 (2) c=3"},
			{true, []string{"s"}, "(a) (b)"},
			{true, []string{"i", "s", "c"}, "(a 1) c=1 (b 2) c=3"},
			{true, nil, "(a 1) c=1 d=2 (b 2) c=3"},
			{true, []string{"c"}, "(a 1) c=1 (b 2) c=3"},
		} {
			q := over(name, key("s", lowest, "i", lowest), key("s", highest, "i", highest))
			q.ReturnSpecifiedPkOnly, q.ColumnsToGet, q.DataBlockType = c.listed, c.columns, format
			r := ranges(t, &q)
			want(t, fmt.Sprint(format, c.listed, c.columns), rowTexts(r.Rows), c.want)
			want(t, "the format", r.DataBlockType, format)
		}
	}
	// A row has at least one key column (PROTOCOL 3.1): with none listed, all.
	q := over(name, key("s", lowest, "i", lowest), key("s", highest, "i", highest))
	q.ReturnSpecifiedPkOnly, q.ColumnsToGet, q.Limit = true, []string{"c"}, 1
	r := ranges(t, &q)
	want(t, "attributes only", rowTexts(r.Rows), "(a 1) c=1")
	want(t, "the next key is whole", text(r.NextStartPrimaryKey, nil), "(b 2)")
}

func TestPagesEndAt5000Rows(t *testing.T) {
	name := create(t, table{}, "i")
	const rows = 10_050
	var changes []ots.RowChange
	for i := range rows {
		changes = append(changes, put(name, key("i", i), "c", i))
	}
	fill(t, changes)
	sizes := func(q ots.RangeRowQueryCriteria) (out []int) {
		for _, page := range pages(t, q) {
			out = append(out, len(page))
		}
		return out
	}
	up := over(name, key("i", lowest), key("i", highest))
	want(t, "all rows", fmt.Sprint(sizes(up)), "[5000 5000 50]")
	down := over(name, key("i", highest), key("i", lowest))
	down.Direction = ots.BACKWARD
	want(t, "backward", fmt.Sprint(sizes(down)), "[5000 5000 50]")
	want(t, "just 5000 rows", fmt.Sprint(sizes(over(name, key("i", 50), key("i", 5050)))), "[5000]")
	up.Limit = 6000
	want(t, "a limit above", fmt.Sprint(sizes(up)), "[5000 5000 50]")
	up.ColumnsToGet = []string{"absent"}
	want(t, "rows that are skipped count", fmt.Sprint(sizes(up)), "[0 0 0]")
}

func TestPagesEndAtFourMegabytes(t *testing.T) {
	name := create(t, table{}, "i")
	const rows, size = 24, 600_000
	for i := range rows {
		write(t, put(name, key("i", i), "c", bytes.Repeat([]byte{byte(i)}, size)))
	}
	for _, direction := range []ots.Direction{ots.FORWARD, ots.BACKWARD} {
		q := over(name, key("i", lowest), key("i", highest))
		if direction == ots.BACKWARD {
			q = over(name, key("i", highest), key("i", lowest))
		}
		q.Direction = direction
		all := pages(t, q)
		for i, page := range all {
			if len(page) == 0 || len(page)*size > 4<<20+size {
				t.Errorf("page %d of direction %d holds %d rows of %d bytes", i, direction, len(page), size)
			}
		}
		got := slices.Concat(all...)
		if direction == ots.BACKWARD {
			slices.Reverse(got)
		}
		if len(got) != rows {
			t.Fatalf("direction %d: got %d rows; want %d", direction, len(got), rows)
		}
		for i, r := range got {
			if v, ok := r.Columns[0].Value.([]byte); !ok || len(v) != size || v[0] != byte(i) || r.PrimaryKey.PrimaryKeys[0].Value != int64(i) {
				t.Errorf("direction %d: row %d is wrong", direction, i)
			}
		}
	}
}

func TestSplitPointsCutATableIntoItsRows(t *testing.T) {
	s, err := command.Start(t.TempDir(), "--memtable-size", "1MiB", "--table-file-size", "1MiB")
	if err != nil {
		t.Fatal(err)
	}
	defer s.Kill()
	c := connect(s)
	if _, err := c.CreateTable(table{}.request("Split", "s", "i")); err != nil {
		t.Fatal(err)
	}
	unit := int64(1 << 20)
	splits := func() []*ots.Split {
		r, err := c.ComputeSplitPointsBySize(&ots.ComputeSplitPointsBySizeRequest{TableName: "Split", SplitSize: 2, SplitSizeUnitInByte: &unit})
		if err != nil {
			t.Fatal(err)
		}
		if n := len(r.SchemaEntry); n != 0 && n != 2 {
			t.Errorf("%d key columns", n)
		}
		return r.Splits
	}
	want(t, "splits of an empty table", len(splits()), 1)

	const rows = 256
	random := rand.NewChaCha8([32]byte{})
	for i := range rows {
		value := make([]byte, 64<<10)
		random.Read(value)
		if _, err := c.PutRow(&ots.PutRowRequest{PutRowChange: put("Split", key("s", fmt.Sprintf("%03d", i/2), "i", i), "c", value)}); err != nil {
			t.Fatal(err)
		}
	}
	all := splits()
	if len(all) < 4 || len(all) > 16 {
		t.Errorf("16 MiB in pieces of 2 MiB: %d splits", len(all))
	}
	next := 0
	for i, split := range all {
		if i > 0 && split.LowerBound.PrimaryKeys[0].Value != all[i-1].UpperBound.PrimaryKeys[0].Value {
			t.Errorf("split %d does not begin where its predecessor ends", i)
		}
		want(t, "length of a location", len(split.Location), 32)
		want(t, "location in the only partition", split.Location, all[0].Location)
		q := over("Split", split.LowerBound, split.UpperBound)
		q.ColumnsToGet = []string{"i"}
		r, err := c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q})
		for ; err == nil; r, err = c.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: &q}) {
			for _, row := range r.Rows {
				want(t, "row", row.PrimaryKey.PrimaryKeys[1].Value, any(int64(next)))
				next++
			}
			if r.NextStartPrimaryKey == nil {
				break
			}
			q.StartPrimaryKey = r.NextStartPrimaryKey
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	want(t, "rows in all splits", next, rows)

	_, err = c.ComputeSplitPointsBySize(&ots.ComputeSplitPointsBySizeRequest{TableName: "Split", SplitSize: 0})
	wantError(t, "no size", err, "OTSParameterInvalid", "The split_size should be greater than 0.")
	unit = 1
	_, err = c.ComputeSplitPointsBySize(&ots.ComputeSplitPointsBySizeRequest{TableName: "Split", SplitSize: 1, SplitSizeUnitInByte: &unit})
	wantError(t, "small unit", err, "OTSParameterInvalid", "The split_size_unit_in_byte should be greater equal than: 1048576")
}
