package ots

import (
	"context"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/row"
)

func TestRowOperationsDoWhatTheyAreDocumentedToDo(t *testing.T) {
	at := func(ms int64) int64 { return startMillis + ms }
	a := pk("a")
	base := putOf(a, cellAt("c", 1, at(1)), cellAt("c", 2, at(2)), cellAt("d", 3, at(1)))
	for _, c := range []struct {
		name    string
		changes []RowChange
		want    string
	}{
		{"PutRow replaces all columns and versions", []RowChange{base, putOf(a, cellAt("e", 9, at(0)))}, `"a" | e@0=9`},
		{"PutRow without attributes makes a row of its key", []RowChange{base, putOf(a)}, `"a" |`},
		{"UpdateRow adds versions and keeps the rest", []RowChange{base, updateOf(a, cellAt("c", 5, at(5)))}, `"a" | c@5=5 c@2=2 c@1=1 d@1=3`},
		{"UpdateRow overwrites an equal version", []RowChange{base, updateOf(a, cellAt("c", 7, at(2)))}, `"a" | c@2=7 c@1=1 d@1=3`},
		{"the last of equal versions wins", []RowChange{putOf(a, cellAt("c", 1, at(0)), cellAt("c", "x", at(0)))}, `"a" | c@0="x"`},
		{"UpdateRow makes a missing row", []RowChange{updateOf(a, cellAt("c", 5, at(0)))}, `"a" | c@0=5`},
		{"deletes make no row", []RowChange{updateOf(a, deleteColumn("c"), deleteVersion("d", at(1)))}, `none`},
		{"a version is deleted alone", []RowChange{base, updateOf(a, deleteVersion("c", at(2)))}, `"a" | c@1=1 d@1=3`},
		{"deleting an absent version is fine", []RowChange{base, updateOf(a, deleteVersion("c", at(7)))}, `"a" | c@2=2 c@1=1 d@1=3`},
		{"deletes of versions know no window", []RowChange{base, updateOf(a, deleteVersion("c", 5))}, `"a" | c@2=2 c@1=1 d@1=3`},
		{"a column is deleted with all versions", []RowChange{base, updateOf(a, deleteColumn("c"))}, `"a" | d@1=3`},
		{"a row outlives its columns", []RowChange{base, updateOf(a, deleteColumn("c"), deleteColumn("d"))}, `"a" |`},
		{"a put survives the delete of its column in one request", []RowChange{base, updateOf(a, deleteColumn("c"), cellAt("c", 8, at(0)))}, `"a" | c@0=8 d@1=3`},
		{"wherever the delete stands", []RowChange{base, updateOf(a, cellAt("c", 8, at(0)), deleteColumn("c"))}, `"a" | c@0=8 d@1=3`},
		{"an older version can be written after a delete", []RowChange{base, deleteOf(a), updateOf(a, cellAt("c", 8, at(-5)))}, `"a" | c@-5=8`},
		{"DeleteRow removes everything", []RowChange{base, deleteOf(a)}, `none`},
		{"DeleteRow of a missing row is fine", []RowChange{deleteOf(a)}, `none`},
		{"all types come back", []RowChange{putOf(a, cellAt("b", true, at(0)), cellAt("d", -0.5, at(0)), cellAt("i", int64(math.MinInt64), at(0)),
			cellAt("s", "字", at(0)), cellAt("x", []byte{0, 255}, at(0)), cellAt("z", "", at(0)))},
			`"a" | b@0=true d@0=-0.5 i@0=-9223372036854775808 s@0="字" x@0=0x00ff z@0=""`},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openFixture(t, Limits{})
			f.createPlain(10, -1)
			f.mustWrite(c.changes...)
			if got := f.show(a, all()); got != c.want {
				t.Errorf("got %s, want %s", got, c.want)
			}
		})
	}
}

func TestRowExistenceIsExpectedAsDocumented(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	for _, typ := range []ChangeType{ChangePut, ChangeUpdate, ChangeDelete} {
		for _, c := range []struct {
			exists bool
			expect RowExistence
			ok     bool
		}{
			{true, ExistenceIgnore, true}, {false, ExistenceIgnore, true},
			{true, ExistenceExpect, true}, {false, ExistenceExpect, false},
			{true, ExistenceExpectNot, false}, {false, ExistenceExpectNot, true},
		} {
			before := "none"
			f.mustWrite(deleteOf(pk("a")))
			if c.exists {
				f.mustWrite(putOf(pk("a"), cellAt("old", 1, startMillis)))
				before = `"a" | old@0=1`
			}
			change := map[ChangeType]RowChange{
				ChangePut: putOf(pk("a"), cell("c", 1)), ChangeUpdate: updateOf(pk("a"), cell("c", 1)), ChangeDelete: deleteOf(pk("a")),
			}[typ].expecting(c.expect)
			_, err := f.write(change)
			if c.ok {
				wantError(t, err, "", "")
				continue
			}
			wantError(t, err, CodeConditionCheckFail, "Condition check failed.")
			if got := f.show(pk("a"), all()); got != before {
				t.Errorf("a refused change left %s, want %s", got, before)
			}
		}
	}
}

func TestOfManyWritersThatExpectNoRowOneWins(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	var wg sync.WaitGroup
	errs := make([]error, 16)
	for i := range errs {
		wg.Go(func() { _, errs[i] = f.write(putOf(pk("a"), cell("c", i)).expecting(ExistenceExpectNot)) })
	}
	wg.Wait()
	winners := 0
	for _, err := range errs {
		if err == nil {
			winners++
		} else {
			wantError(t, err, CodeConditionCheckFail, "Condition check failed.")
		}
	}
	if winners != 1 {
		t.Errorf("%d writers won", winners)
	}
}

func TestVersionsOfTheServerAreItsClockAndTheSameForAllCells(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(10, -1)
	f.clock.Advance(1234 * time.Millisecond)
	f.mustWrite(updateOf(pk("a"), cell("c", 1), cell("d", 2), cellAt("e", 3, startMillis)))
	f.clock.SetWall(startMillis) // the clock steps back
	f.mustWrite(updateOf(pk("a"), cell("f", 4)))
	if got, want := f.show(pk("a"), all()), `"a" | c@1234=1 d@1234=2 e@0=3 f@1234=4`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func TestVersionsOfTheClientMustLieInTheTablesWindow(t *testing.T) {
	second := int64(1000)
	for _, c := range []struct {
		name     string
		ttl      int32
		offset   int64
		relative int64 // version in ms, relative to the clock's 0.5 s
		ok       bool
	}{
		{"oldest by offset", -1, 100, -100 * second, true},
		{"whole seconds count", -1, 100, -100*second - 500, true},
		{"older than the offset", -1, 100, -100*second - 501, false},
		{"newest", -1, 100, 99*second + 499, true},
		{"at the offset", -1, 100, 99*second + 500, false},
		{"oldest by time to live", 10, 100, -10*second - 500, true},
		{"expired already", 10, 100, -10*second - 501, false},
		{"time to live bounds the past only", 10, 100, 99*second + 499, true},
		{"default offset, oldest", -1, 0, -86400*second - 500, true},
		{"default offset, too old", -1, 0, -86400*second - 501, false},
		{"default offset, newest", -1, 0, 86399*second + 499, true},
		{"default offset, too new", -1, 0, 86399*second + 500, false},
		{"largest offset, zero", -1, math.MaxInt64 / 1000000, -startMillis - 500, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := openFixture(t, Limits{})
			f.clock.Advance(500 * time.Millisecond)
			req := tableRequest("t", "pk", row.TypeString)
			req.Options.TimeToLive = &c.ttl
			if c.offset > 0 {
				req.Options.MaxVersionOffset = &c.offset
			}
			f.create(req)
			for _, change := range []RowChange{
				putOf(pk("a"), cell("b", 0), cellAt("c", 1, startMillis+500+c.relative)),
				updateOf(pk("a"), cell("b", 0), cellAt("c", 1, startMillis+500+c.relative)),
			} {
				_, err := f.write(change)
				if c.ok {
					wantError(t, err, "", "")
				} else {
					wantError(t, err, CodeParameterInvalid, "Invalid timestamp. Cell:c.")
				}
			}
		})
	}
}

func TestAWriteReturnsTheKeyIfAskedTo(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	for _, change := range []RowChange{putOf(pk("a"), cell("c", 1)), updateOf(pk("a"), cell("c", 1)), deleteOf(pk("a"))} {
		res, err := f.write(change)
		if err != nil || res.Row != nil {
			t.Errorf("without RT_PK: row %v, %v", res, err)
		}
		change.Return = ReturnPK
		res, err = f.write(change)
		if err != nil || showRow(res.Row) != `"a" |` {
			t.Errorf("with RT_PK: %v, %v", res, err)
		}
	}
}

func TestATableCanForbidUpdates(t *testing.T) {
	f := openFixture(t, Limits{})
	req := tableRequest("t", "pk", row.TypeString)
	req.Options.AllowUpdate = ptr(false)
	f.create(req)
	message := "UpdateRow is not allowed on table 't': its option allow_update is false."
	_, err := f.write(updateOf(pk("a"), cell("c", 1)))
	wantError(t, err, CodeParameterInvalid, message)
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{
		{Table: "t", Changes: []RowChange{putOf(pk("a")), updateOf(pk("a"), cell("c", 1)), deleteOf(pk("b"))}}}})
	if err != nil {
		t.Fatal(err)
	}
	wantError(t, asErr(resp.Tables[0].Rows[0].Err), "", "")
	wantError(t, asErr(resp.Tables[0].Rows[1].Err), CodeParameterInvalid, message)
	wantError(t, asErr(resp.Tables[0].Rows[2].Err), "", "")
	if _, err := f.UpdateTable(context.Background(), testInstance,
		&UpdateTableRequest{Table: "t", Options: &TableOptions{AllowUpdate: ptr(true)}}); err != nil {
		t.Fatal(err)
	}
	f.mustWrite(updateOf(pk("a"), cellAt("c", 1, startMillis)))
	if got := f.show(pk("a"), all()); got != `"a" | c@0=1` {
		t.Errorf("after allowing updates: %s", got)
	}
}

func TestWritingToAMissingTableSaysSo(t *testing.T) {
	f := openFixture(t, Limits{})
	_, err := f.write(putOf(pk("a")))
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
}

func TestBatchWriteRowAppliesInOrderAndRefusesSingleRows(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(10, -1)
	f.create(tableRequest("u", "id", row.TypeInteger))
	withPK := putOf(keyOf("id", 1))
	withPK.Return = ReturnPK
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: []TableChanges{
		{Table: "t", Changes: []RowChange{
			putOf(pk("a"), cellAt("c", 1, startMillis)),
			updateOf(pk("a"), cellAt("d", 2, startMillis)),
			putOf(keyOf("pk", 5)),
			deleteOf(pk("b")).expecting(ExistenceExpect),
			putOf(pk("c"), cellAt("x", 1, 5)),
			updateOf(pk("a"), deleteColumn("c")),
		}},
		{Table: "missing", Changes: []RowChange{putOf(pk("a"))}},
		{Table: "u", Changes: []RowChange{withPK}},
	}})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, table := range resp.Tables {
		got = append(got, table.Table)
		for _, r := range table.Rows {
			switch {
			case r.Err != nil:
				got = append(got, r.Err.Error())
			default:
				got = append(got, showRow(r.Row))
			}
		}
	}
	want := []string{
		"t", "none", "none", "OTSInvalidPK: Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING.",
		"OTSConditionCheckFail: Condition check failed.", "OTSParameterInvalid: Invalid timestamp. Cell:x.", "none",
		"missing", "OTSObjectNotExist: Requested table does not exist.",
		"u", "1 |",
	}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("got\n%q\nwant\n%q", got, want)
	}
	if got := f.show(pk("a"), all()); got != `"a" | d@0=2` {
		t.Errorf("row a: %s", got)
	}
}

func TestBatchWriteRowIsCheckedAsAWhole(t *testing.T) {
	put := func(key string) RowChange { return putOf(pk(key), cell("c", 1)) }
	many := func(n int) []TableChanges {
		changes := make([]RowChange, n)
		for i := range changes {
			changes[i] = put(fmt.Sprint(i))
		}
		return []TableChanges{{Table: "t", Changes: changes[:n/2]}, {Table: "t", Changes: changes[n/2:]}}
	}
	large := func(extra int) []TableChanges {
		rest := 4*megabyte - 4*(len("pk")+len("1")+len("c"))
		changes := []RowChange{
			putOf(pk("1"), cell("c", text(megabyte))), updateOf(pk("2"), cell("c", text(megabyte))),
			putOf(pk("3"), cell("c", text(megabyte))), putOf(pk("4"), cell("c", text(rest-3*megabyte+extra))),
		}
		return []TableChanges{{Table: "t", Changes: changes}}
	}
	rows := func(changes ...RowChange) []TableChanges { return []TableChanges{{Table: "t", Changes: changes}} }
	expecting := put("a").expecting(ExistenceExpectNot)
	repeated := "Repeated rows do not support row exist expectation check in BatchModify."
	both(t, func(t *testing.T, f *fixture) {
		f.createPlain(1, -1)
		for _, c := range []struct {
			name    string
			tables  []TableChanges
			message string
		}{
			{"no table", nil, "No row is specified in BatchWriteRow."},
			{"no row", []TableChanges{{Table: "t"}}, "No operation is specified for table: 't'."},
			{"200 rows", many(200), ""},
			{"201 rows", many(201), "Rows count exceeds the upper limit: 200."},
			{"4 MB", large(0), ""},
			{"4 MB and a byte", large(1), "The total data size of BatchWriteRow request exceeds the limit, limit size: 4194304, data size: 4194305."},
			{"a row twice", rows(put("a"), put("a"), deleteOf(pk("a"))), ""},
			{"an expectation first", rows(expecting, put("b"), put("a")), repeated},
			{"an expectation last", rows(put("a"), put("a"), expecting), repeated},
			{"an expectation in another entry", append(rows(put("a")), rows(expecting)...), repeated},
			{"expectations of different rows", rows(put("x").expecting(ExistenceExpectNot), put("y").expecting(ExistenceExpectNot)), ""},
		} {
			_, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{Tables: c.tables})
			if c.message == "" {
				wantError(t, err, "", "")
			} else {
				wantError(t, err, CodeParameterInvalid, c.message)
			}
		}
	})
}
