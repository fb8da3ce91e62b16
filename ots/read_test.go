package ots

import (
	"context"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

func TestAReadMustNameVersionsInOneOfTheAllowedWays(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(10, -1)
	at := func(ms int64) int64 { return startMillis + ms }
	f.mustWrite(updateOf(pk("a"), cellAt("c", 1, at(1)), cellAt("c", 2, at(2)), cellAt("c", 3, at(3)), cellAt("d", 9, at(1))))
	n := func(v int32) *int32 { return &v }
	between := func(a, b int64) *TimeRange { return &TimeRange{Start: &a, End: &b} }
	exactly := func(v int64) *TimeRange { return &TimeRange{Specific: &v} }
	p := CodeParameterInvalid
	for _, c := range []struct {
		max     *int32
		times   *TimeRange
		want    string
		message string
	}{
		{nil, nil, "", "No version condition is specified."},
		{nil, &TimeRange{}, "", "No version condition is specified."},
		{n(1), nil, `"a" | c@3=3 d@1=9`, ""},
		{n(2), nil, `"a" | c@3=3 c@2=2 d@1=9`, ""},
		{n(1000), nil, `"a" | c@3=3 c@2=2 c@1=1 d@1=9`, ""},
		{n(1), &TimeRange{}, `"a" | c@3=3 d@1=9`, ""},
		{n(0), nil, "", "Invalid max versions: 0. Reason: Max versions must be positive."},
		{n(-1), nil, "", "Invalid max versions: -1. Reason: Max versions must be positive."},
		{nil, between(at(1), at(3)), `"a" | c@2=2 c@1=1 d@1=9`, ""},
		{nil, between(at(2), math.MaxInt64), `"a" | c@3=3 c@2=2`, ""},
		{nil, between(0, at(1)), `"a" |`, ""},
		{n(1), between(at(1), at(3)), `"a" | c@2=2 d@1=9`, ""},
		{nil, exactly(at(2)), `"a" | c@2=2`, ""},
		{nil, exactly(at(7)), `"a" |`, ""},
		{nil, exactly(0), `"a" |`, ""},
		{nil, exactly(-1), "", "Specific timestamp cannot be less than 0."},
		{nil, exactly(math.MaxInt64 / 1000), "", "Timestamp must be in range [0, INT64_MAX/1000)."},
		{n(1), exactly(at(2)), "", "Specific tiemstamp and max versions cannot be given at the same time."},
		{nil, &TimeRange{Start: ptr(int64(1)), End: ptr(int64(2)), Specific: ptr(int64(1))}, "",
			"Specific tiemstamp and time range cannot be given at the same time."},
		{n(1), &TimeRange{Start: ptr(int64(1)), End: ptr(int64(2)), Specific: ptr(int64(1))}, "",
			"Specific timestamp, time range and max versions cannot be given at the same time."},
		{nil, &TimeRange{Start: ptr(int64(1))}, "", "Start and end time must be given at the same time."},
		{n(1), &TimeRange{End: ptr(int64(1))}, "", "Start and end time must be given at the same time."},
		{nil, between(-1, 5), "", "Timestamp must be in range [0, INT64_MAX/1000)."},
		{nil, between(5, 5), "", "Start time must be less than end time."},
		{nil, between(6, 5), "", "Start time must be less than end time."},
	} {
		sel := Selection{MaxVersions: c.max, TimeRange: c.times}
		res, err := f.get(pk("a"), sel)
		if c.message != "" {
			wantError(t, err, p, c.message)
			continue
		}
		if err != nil {
			t.Errorf("%v", err)
		} else if got := showRow(res.Row); got != c.want {
			t.Errorf("max %v, times %+v: got %s, want %s", c.max, c.times, got, c.want)
		}
	}
}

func TestTheTablesMaxVersionsHideVersionsBeforeTheReadSelects(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(2, -1)
	for i := range int64(4) {
		f.mustWrite(updateOf(pk("a"), cellAt("c", i, startMillis+i)))
	}
	if got := f.show(pk("a"), all()); got != `"a" | c@3=3 c@2=2` {
		t.Errorf("all versions: %s", got)
	}
	old := Selection{TimeRange: &TimeRange{Start: ptr(startMillis), End: ptr(startMillis + 2)}}
	if got := f.show(pk("a"), old); got != `"a" |` {
		t.Errorf("a time range brought back surplus versions: %s", got)
	}
}

// TestARowIsReturnedAsTheSelectionDemands goes through the table of PROTOCOL 5.3: is a row
// returned?
func TestARowIsReturnedAsTheSelectionDemands(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "pk", row.TypeString, "id", row.TypeInteger))
	key := func(s string) []KeyValue { return keyOf("pk", s, "id", 1) }
	f.mustWrite(putOf(key("full"), cellAt("b", "B", startMillis), cellAt("c", "C", startMillis)), putOf(key("bare")))
	never := &TimeRange{Specific: ptr(int64(5))}
	for _, c := range []struct {
		key        string
		columns    []string
		times      *TimeRange
		start, end string
		want       string
	}{
		{"full", nil, nil, "", "", `"full",1 | b@0="B" c@0="C"`},
		{"full", nil, never, "", "", `"full",1 |`},
		{"full", []string{"c", "b", "c"}, nil, "", "", `"full",1 | b@0="B" c@0="C"`},
		{"full", []string{"b"}, nil, "", "", `"full",1 | b@0="B"`},
		{"full", []string{"b"}, never, "", "", "none"},
		{"full", []string{"absent"}, nil, "", "", "none"},
		{"full", []string{"absent", "pk"}, nil, "", "", `"full",1 |`},
		{"full", []string{"id"}, nil, "", "", `"full",1 |`},
		{"full", []string{"id", "c"}, nil, "", "", `"full",1 | c@0="C"`},
		{"full", []string{"id", "c"}, never, "", "", `"full",1 |`},
		{"full", nil, nil, "b", "c", `"full",1 | b@0="B"`},
		{"full", nil, nil, "c", "", `"full",1 | c@0="C"`},
		{"full", nil, nil, "", "c", `"full",1 | b@0="B"`},
		{"full", nil, nil, "x", "", `"full",1 |`},
		{"full", nil, nil, "c", "b", `"full",1 |`},
		{"full", nil, nil, "b", "b", `"full",1 |`},
		{"full", []string{"b"}, nil, "c", "", "none"},
		{"full", []string{"b", "c"}, nil, "c", "", `"full",1 | c@0="C"`},
		{"bare", nil, nil, "", "", `"bare",1 |`},
		{"bare", []string{"b"}, nil, "", "", "none"},
		{"bare", []string{"pk"}, nil, "", "", `"bare",1 |`},
		{"missing", nil, nil, "", "", "none"},
		{"missing", []string{"pk"}, nil, "", "", "none"},
	} {
		sel := Selection{ColumnsToGet: c.columns, TimeRange: c.times, StartColumn: ptr(c.start), EndColumn: ptr(c.end)}
		if c.times == nil {
			sel.MaxVersions = ptr(int32(1))
		}
		what := fmt.Sprintf("%s %v [%s,%s)", c.key, c.columns, c.start, c.end)
		if got := f.show(key(c.key), sel); got != c.want {
			t.Errorf("GetRow %s: got %s, want %s", what, got, c.want)
		}
		batch, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{
			Tables: []TableGets{{Table: "t", Rows: []Row{{Key: key(c.key)}}, Selection: sel}}})
		if err != nil || batch.Tables[0].Rows[0].Err != nil {
			t.Fatalf("BatchGetRow %s: %v, %v", what, err, batch)
		}
		if got := showRow(batch.Tables[0].Rows[0].Row); got != c.want {
			t.Errorf("BatchGetRow %s: got %s, want %s", what, got, c.want)
		}
		page, err := f.GetRange(context.Background(), testInstance, &GetRangeRequest{
			Table: "t", Start: Row{Key: key(c.key)}, End: Row{Key: keyOf("pk", c.key, "id", row.Max())}, Selection: sel})
		if err != nil {
			t.Fatalf("GetRange %s: %v", what, err)
		}
		got := "none"
		if len(page.Rows) == 1 {
			got = showRow(&page.Rows[0])
		}
		if got != c.want {
			t.Errorf("GetRange %s: got %s, want %s", what, got, c.want)
		}
	}
}

func TestCellsComeByColumnThenNewestFirst(t *testing.T) {
	f := openFixture(t, Current())
	f.createPlain(3, -1)
	f.mustWrite(updateOf(pk("a"),
		cellAt("b", 1, startMillis+1), cellAt("B", 2, startMillis), cellAt("ab", 3, startMillis),
		cellAt("b", 4, startMillis+3), cellAt("é", 5, startMillis), cellAt("b", 6, startMillis+2)))
	if got, want := f.show(pk("a"), all()), `"a" | B@0=2 ab@0=3 b@3=4 b@2=6 b@1=1 é@0=5`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestMalformedReadsAreRefusedWithTheServicesMessages(t *testing.T) {
	p := CodeParameterInvalid
	columns := func(n int) []string {
		names := []string{"c0", "c0"} // a repeated name counts once
		for i := 1; i < n; i++ {
			names = append(names, fmt.Sprintf("c%d", i))
		}
		return names
	}
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		limit := f.limits.ColumnsToGet
		if want := map[bool]int{false: 128, true: 1024}[f.limits.LooseColumnNames]; limit != want {
			t.Errorf("limit of columns_to_get is %d, want %d", limit, want)
		}
		with := func(change func(s *Selection)) Selection {
			s := all()
			change(&s)
			return s
		}
		for _, c := range []struct {
			row     Row
			sel     Selection
			code    string
			message string
		}{
			{Row{Key: pk("a"), DeleteMarker: true}, all(), p, "Delete marker cannot be given."},
			{Row{Key: pk("a"), Cells: []Cell{cell("c", 1)}}, all(), p, "Attribute column cannot be given while reading data."},
			{Row{Key: []KeyValue{{Name: "pk", AutoIncrement: true}}}, all(), p, "PKAutoIncr can't be used for read operations."},
			{Row{Key: keyOf("pk", row.Min())}, all(), p, "VT_INF_MIN is an invalid type for the primary key."},
			{Row{Key: keyOf("pk", row.Max())}, all(), p, "VT_INF_MAX is an invalid type for the primary key."},
			{Row{Key: keyOf("pk", 1)}, all(), CodeInvalidPK, "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING."},
			{Row{Key: keyOf("PK2", "a")}, all(), CodeInvalidPK, "Validate PK name fail. Input: PK2, Meta: pk."},
			{Row{Key: keyOf("pk", "a", "b", 1)}, all(), CodeInvalidPK, "Validate PK size fail. Input: 2, Meta: 1."},
			{Row{Key: pk(text(1025))}, all(), p, "The length of primary key column: 'pk' exceeds the MaxLength:1024 with CurrentLength:1025."},
			{Row{Key: pk("a")}, all("#bad"), p, "Invalid column name: '#bad'."},
			{Row{Key: pk("a")}, all(columns(limit)...), "", ""},
			{Row{Key: pk("a")}, all(columns(limit + 1)...), p, fmt.Sprintf(
				"The number of columns from the request exceeds the limit, limit count: %d, column count: %d.", limit, limit+1)},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.StartColumn = ptr("#s") }), p, "Invalid column name: '#s'."},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.EndColumn = ptr("#e") }), p, "Invalid column name: '#e'."},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.Filter = &Filter{} }), p, "Deserialize filter failed"},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.TransactionID = ptr("") }), p, "TransactionID is invalid."},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.Token = []byte{1} }), p, "Tokens for reading a row in parts are not supported yet by this server."},
			{Row{Key: pk("a")}, with(func(s *Selection) { s.TransactionID = ptr("x") }), p, "TransactionID is invalid."},
		} {
			_, err := f.GetRow(context.Background(), testInstance, &GetRowRequest{Table: "t", Row: c.row, Selection: c.sel})
			wantError(t, err, c.code, c.message)
			if c.code == CodeInvalidPK {
				continue // a batch refuses only the row
			}
			_, err = f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{
				Tables: []TableGets{{Table: "t", Rows: []Row{c.row}, Selection: c.sel}}})
			wantError(t, err, c.code, c.message)
		}
	})
}

func TestReadingAMissingTableSaysSo(t *testing.T) {
	f := openFixture(t, Limits{})
	_, err := f.get(pk("a"), all())
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
}

func TestBatchGetRowRefusesSingleRowsAndKeepsTheRequestsOrder(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.create(tableRequest("u", "id", row.TypeInteger))
	f.mustWrite(putOf(pk("a"), cellAt("c", 1, startMillis)), putOf(pk("b"), cellAt("c", 2, startMillis)))
	resp, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{Tables: []TableGets{
		{Table: "t", Rows: []Row{{Key: pk("b")}, {Key: keyOf("pk", 1)}, {Key: pk("zz")}, {Key: pk("a")}, {Key: pk("b")}}, Selection: all()},
		{Table: "missing", Rows: []Row{{Key: pk("b")}}, Selection: all()},
		{Table: "u", Selection: all()},
		{Table: "t", Rows: []Row{{Key: pk("a")}}, Selection: all("absent")},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range resp.Tables {
		got = append(got, "table "+table.Table)
		for _, r := range table.Rows {
			if r.Err != nil {
				got = append(got, r.Err.Error())
			} else {
				got = append(got, showRow(r.Row))
			}
		}
	}
	want := []string{
		"table t", `"b" | c@0=2`, "OTSInvalidPK: Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.", "none",
		`"a" | c@0=1`, `"b" | c@0=2`,
		"table missing", "OTSObjectNotExist: Requested table does not exist.",
		"table u",
		"table t", "none",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
}

func TestBatchGetRowIsLimitedAndNeedsRows(t *testing.T) {
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		get := func(rows int, sel Selection) error {
			gets := TableGets{Table: "t", Selection: sel}
			for i := range rows {
				gets.Rows = append(gets.Rows, Row{Key: pk(fmt.Sprint(i))})
			}
			_, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{Tables: []TableGets{gets}})
			return err
		}
		p := CodeParameterInvalid
		wantError(t, get(100, all()), "", "")
		wantError(t, get(101, all()), p, "Rows count exceeds the upper limit: 100.")
		wantError(t, get(0, all()), p, "No row specified in the request of BatchGetRow.")
		wantError(t, get(1, Selection{}), p, "No version condition is specified while querying row.")
		_, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{})
		wantError(t, err, p, "No row specified in the request of BatchGetRow.")
	})
}

func TestExpiredCellsAndRowsAreGone(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(10, 100)
	f.mustWrite(
		putOf(pk("bare")),
		putOf(pk("a"), cellAt("old", 1, startMillis-50_000), cellAt("new", 2, startMillis)),
	)
	look := func(after time.Duration, want string) {
		t.Helper()
		f.clock.Advance(after)
		if got := f.show(pk("a"), all()); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
	look(50*time.Second, `"a" | new@0=2 old@-50000=1`) // expires once version/1000 + TTL < now
	look(999*time.Millisecond, `"a" | new@0=2 old@-50000=1`)
	look(time.Millisecond, `"a" | new@0=2`)
	look(49*time.Second, `"a" | new@0=2`)
	look(time.Second, "none")
	if got := f.show(pk("bare"), all()); got != `"bare" |` {
		t.Errorf("a row put without attributes: %s", got)
	}
	page, err := f.GetRange(context.Background(), testInstance, &GetRangeRequest{
		Table: "t", Start: Row{Key: keyOf("pk", row.Min())}, End: Row{Key: keyOf("pk", row.Max())}, Selection: all()})
	if err != nil || len(page.Rows) != 1 || page.Next != nil {
		t.Errorf("range over an expired row: %+v, %v", page, err)
	}
}

func TestChangingTimeToLiveAndMaxVersionsActsOnReadersAtOnce(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(3, -1)
	for i := range int64(3) {
		f.mustWrite(updateOf(pk("a"), cellAt("c", i, startMillis-i*10_000)))
	}
	update := func(o TableOptions) {
		t.Helper()
		if _, err := f.UpdateTable(context.Background(), testInstance, &UpdateTableRequest{Table: "t", Options: &o}); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		options TableOptions
		want    string
	}{
		{TableOptions{TimeToLive: ptr(int32(15))}, `"a" | c@0=0 c@-10000=1`},
		{TableOptions{MaxVersions: ptr(int32(1))}, `"a" | c@0=0`},
		{TableOptions{TimeToLive: ptr(int32(-1))}, `"a" | c@0=0`},
		{TableOptions{MaxVersions: ptr(int32(2))}, `"a" | c@0=0 c@-10000=1`},
	} {
		update(c.options)
		if got := f.show(pk("a"), all()); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func TestABatchAnswerIsBoundedAndTheRestCanBeAskedForAgain(t *testing.T) {
	limits := Documented()
	limits.BatchGetBytes = 250
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	keys := []string{"a", "b", "c", "d"}
	gets := TableGets{Table: "t", Selection: all()}
	for _, k := range keys {
		f.mustWrite(putOf(pk(k), cell("v", text(100))))
		gets.Rows = append(gets.Rows, Row{Key: pk(k)})
	}
	resp, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{Tables: []TableGets{gets}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range resp.Tables[0].Rows {
		if busy := r.Err != nil && r.Err.Code == CodeServerBusy; busy != (i > 2) {
			t.Errorf("row %d: %v", i, r.Err)
		}
	}
}
