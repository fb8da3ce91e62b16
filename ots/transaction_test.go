package ots

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/row"
)

const (
	noSession = "Session not exist or may be timeout."
	conflict  = "Data is being modified by the other request."
)

// openTransactions returns a fixture with a table t of the key (p, k), and one row (a, 0).
func openTransactions(t *testing.T, opts flagstone.Options) *fixture {
	t.Helper()
	f := openFixtureOver(t, Limits{}, opts)
	req := tableRequest("t", "p", row.TypeString, "k", row.TypeInteger)
	req.EnableLocalTxn = ptr(true)
	f.create(req)
	f.mustWrite(putOf(pk2("a", 0), cell("c", 1)))
	return f
}

func pk2(p string, k int) []KeyValue { return keyOf("p", p, "k", k) }

func (f *fixture) start(partition ...any) (string, error) {
	return f.StartLocalTransaction(context.Background(), testInstance, &StartTransactionRequest{
		Table: "t", Row: Row{Key: keyOf(append([]any{"p"}, partition...)...)},
	})
}

func (f *fixture) mustStart(partition string) *string {
	f.tb.Helper()
	id, err := f.start(partition)
	if err != nil {
		f.tb.Fatal(err)
	}
	return &id
}

func (f *fixture) writeIn(id *string, change RowChange) error {
	_, err := f.WriteRow(context.Background(), testInstance, &WriteRowRequest{Table: "t", Change: change, TransactionID: id})
	return err
}

func (f *fixture) showIn(id *string, key []KeyValue) string {
	f.tb.Helper()
	sel := all()
	sel.TransactionID = id
	return f.show(key, sel)
}

// rangeIn returns the keys of a range, or the error, as text.
func (f *fixture) rangeIn(id *string, start, end []KeyValue, backward bool) string {
	f.tb.Helper()
	req := &GetRangeRequest{Table: "t", Start: Row{Key: start}, End: Row{Key: end}, Backward: backward, Selection: all()}
	req.TransactionID = id
	resp, err := f.GetRange(context.Background(), testInstance, req)
	if err != nil {
		return err.Error()
	}
	var keys []string
	for _, r := range resp.Rows {
		keys = append(keys, r.Key[1].Value.String())
	}
	return strings.Join(keys, " ")
}

func (f *fixture) commit(id *string) error {
	return f.CommitTransaction(context.Background(), testInstance, *id)
}

func (f *fixture) abort(id *string) error {
	return f.AbortTransaction(context.Background(), testInstance, *id)
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, got, want)
	}
}

func TestWhatATransactionWritesIsSeenByItselfAndThenByAll(t *testing.T) {
	for _, end := range []string{"commit", "abort"} {
		f := openTransactions(t, flagstone.Options{})
		f.mustWrite(putOf(pk2("b", 0), cell("c", 1)), putOf(pk2("a", 9), cell("c", 1)))
		id := f.mustStart("a")
		write := func(what string, change RowChange, code, message string) {
			t.Helper()
			wantErrorOf(t, what, f.writeIn(id, change), code, message)
		}
		f.clock.Advance(5 * time.Millisecond)
		write("put", putOf(pk2("a", 1), cell("c", 7)), "", "")
		write("insert what it has put", putOf(pk2("a", 1)).expecting(ExistenceExpectNot), CodeConditionCheckFail, "Condition check failed.")
		write("increment", updateOf(pk2("a", 0), increment("c", 2)), "", "")
		write("increment again", updateOf(pk2("a", 0), increment("c", 2)), "", "")
		onOwn := updateOf(pk2("a", 0), cell("d", 1))
		onOwn.ColumnCondition = where("c", CompareEqual, 5)
		write("on its own value", onOwn, "", "")
		write("delete", deleteOf(pk2("a", 9)).expecting(ExistenceExpect), "", "")
		write("what it has deleted", updateOf(pk2("a", 9), cell("c", 1)).expecting(ExistenceExpect), CodeConditionCheckFail, "Condition check failed.")
		write("another partition key", putOf(pk2("b", 0)), CodeDataOutOfRange, "Data out of scope of transaction. Transaction PartKey:a. Data PartKey:b")
		f.clock.Advance(5 * time.Millisecond)

		wantText(t, "own row", f.showIn(id, pk2("a", 0)), `"a",0 | c@5=5 d@5=1`)
		wantText(t, "own new row", f.showIn(id, pk2("a", 1)), `"a",1 | c@5=7`)
		wantText(t, "own deleted row", f.showIn(id, pk2("a", 9)), "none")
		low, high := keyOf("p", "a", "k", row.Min()), keyOf("p", "a", "k", row.Max())
		wantText(t, "own range", f.rangeIn(id, low, high, false), "0 1")
		wantText(t, "own range, backward", f.rangeIn(id, high, low, true), "1 0")
		wantText(t, "range beyond", f.rangeIn(id, low, pk2("b", 0), false),
			"OTSDataOutOfRange: Data out of scope of transaction. Transaction PartKey:a. Data PartKey:b")
		wantText(t, "range beyond all", f.rangeIn(id, keyOf("p", row.Min(), "k", row.Min()), high, false),
			"OTSDataOutOfRange: Data out of scope of transaction. Transaction PartKey:a. Data PartKey:"+partitionText(row.Min()))
		wantText(t, "others' row", f.showIn(nil, pk2("a", 0)), `"a",0 | c@0=1`)
		wantText(t, "others' range", f.rangeIn(nil, low, high, false), "0 9")

		if end == "abort" {
			wantErrorOf(t, "abort", f.abort(id), "", "")
			wantText(t, "aborted range", f.rangeIn(nil, low, high, false), "0 9")
			wantText(t, "aborted row", f.showIn(nil, pk2("a", 0)), `"a",0 | c@0=1`)
		} else {
			wantErrorOf(t, "commit", f.commit(id), "", "")
			wantText(t, "committed range", f.rangeIn(nil, low, high, false), "0 1")
			// Versions are from the time of the writes, not of the commit.
			wantText(t, "committed row", f.showIn(nil, pk2("a", 0)), `"a",0 | c@5=5 d@5=1`)
		}
		wantErrorOf(t, "commit again", f.commit(id), CodeSessionNotExist, noSession)
		wantErrorOf(t, "abort again", f.abort(id), CodeSessionNotExist, noSession)
		wantErrorOf(t, "write afterwards", f.writeIn(id, putOf(pk2("a", 1))), CodeSessionNotExist, noSession)
		f.mustWrite(putOf(pk2("a", 5), cell("c", 1)))
	}
}

func wantErrorOf(t *testing.T, what string, err error, code, message string) {
	t.Helper()
	if code == "" && err != nil || code != "" && (err == nil || err.Error() != code+": "+message) {
		t.Errorf("%s: got %v; want %s %s", what, err, code, message)
	}
}

func TestOthersCannotWriteWhereATransactionIsOpen(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	id := f.mustStart("a")
	_, err := f.start("a")
	wantErrorOf(t, "a second start", err, CodeRowOperationConflict, conflict)
	for what, change := range map[string]RowChange{
		"put": putOf(pk2("a", 1)), "update": updateOf(pk2("a", 0), cell("c", 2)), "delete": deleteOf(pk2("a", 0)),
		"refused anyway": putOf(pk2("a", 0)).expecting(ExistenceExpectNot), "increment": updateOf(pk2("a", 0), increment("c", 1)),
	} {
		wantErrorOf(t, what, f.writeIn(nil, change), CodeRowOperationConflict, conflict)
	}
	batch := func(atomic bool, changes ...RowChange) (codes string) {
		resp, err := f.BatchWriteRow(t.Context(), testInstance, &BatchWriteRowRequest{Atomic: atomic, Tables: []TableChanges{{Table: "t", Changes: changes}}})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range resp.Tables[0].Rows {
			if r.Err == nil {
				codes += "ok "
			} else {
				codes += r.Err.Code + " "
			}
		}
		return codes
	}
	wantText(t, "batch", batch(false, putOf(pk2("a", 1)), putOf(pk2("b", 1)), updateOf(pk2("a", 0), increment("c", 1))),
		"OTSRowOperationConflict ok OTSRowOperationConflict ")
	wantText(t, "atomic batch", batch(true, putOf(pk2("a", 1)), putOf(pk2("a", 2))), "OTSRowOperationConflict OTSRowOperationConflict ")
	other := f.mustStart("b") // another partition key
	wantErrorOf(t, "commit of nothing", f.commit(other), "", "")
	wantErrorOf(t, "abort", f.abort(id), "", "")
	wantText(t, "batch afterwards", batch(true, putOf(pk2("a", 1)), putOf(pk2("a", 2))), "ok ok ")
}

func TestBatchesInATransaction(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	f.create(tableRequest("u", "p", row.TypeString, "k", row.TypeInteger))
	id := f.mustStart("a")
	batch := func(what string, atomic bool, want string, tables ...TableChanges) {
		t.Helper()
		resp, err := f.BatchWriteRow(t.Context(), testInstance, &BatchWriteRowRequest{Atomic: atomic, TransactionID: id, Tables: tables})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, table := range resp.Tables {
			for _, r := range table.Rows {
				if r.Err == nil {
					got = append(got, fmt.Sprintf("ok (%d, %d)", r.Consumed.Read, r.Consumed.Write))
				} else {
					got = append(got, r.Err.Error())
				}
			}
		}
		wantText(t, what, strings.Join(got, "\n"), want)
	}
	in := func(table string, changes ...RowChange) TableChanges {
		return TableChanges{Table: table, Changes: changes}
	}
	const refused = "OTSConditionCheckFail: Condition check failed."
	batch("rows by themselves", false,
		"ok (0, 1)\n"+refused+"\nOTSDataOutOfRange: Data out of scope of transaction. Transaction PartKey:a. Data PartKey:b\n"+
			"OTSDataOutOfRange: Data out of scope of transaction. Transaction Table:t. Data Table:u",
		in("t", putOf(pk2("a", 1), cell("c", 1)), putOf(pk2("a", 0)).expecting(ExistenceExpectNot), putOf(pk2("b", 1))),
		in("u", putOf(pk2("a", 1))))
	batch("the same row twice", false, "ok (0, 1)\nok (0, 1)",
		in("t", updateOf(pk2("a", 1), cell("c", 2)), updateOf(pk2("a", 1), cell("d", 3))))
	batch("together, refused", true, refused+"\n"+refused,
		in("t", putOf(pk2("a", 2)), putOf(pk2("a", 1)).expecting(ExistenceExpectNot)))
	batch("together", true, "ok (0, 1)\nok (1, 1)",
		in("t", putOf(pk2("a", 3)), updateOf(pk2("a", 1), cell("e", 4)).expecting(ExistenceExpect)))
	low, high := keyOf("p", "a", "k", row.Min()), keyOf("p", "a", "k", row.Max())
	wantText(t, "within", f.rangeIn(id, low, high, false), "0 1 3")
	wantText(t, "outside", f.rangeIn(nil, low, high, false), "0")
	wantErrorOf(t, "commit", f.commit(id), "", "")
	wantText(t, "committed", f.rangeIn(nil, low, high, false), "0 1 3")
	wantText(t, "row", f.showIn(nil, pk2("a", 1)), `"a",1 | c@0=2 d@0=3 e@0=4`)
}

func TestTransactionsAreCheckedAtTheirEdges(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	disabled := tableRequest("disabled", "p", row.TypeString)
	disabled.EnableLocalTxn = ptr(false)
	f.create(disabled)
	f.create(tableRequest("unsaid", "p", row.TypeString))
	key := func(pairs ...any) Row { return Row{Key: keyOf(pairs...)} }
	for _, c := range []struct {
		what          string
		table         string
		row           Row
		code, message string
	}{
		{"no table name", "", key("p", "a"), CodeParameterInvalid, "Invalid table name: ''."},
		{"no such table", "none", key("p", "a"), CodeObjectNotExist, "Requested table does not exist."},
		{"a whole key", "t", key("p", "a", "k", 1), CodeParameterInvalid, "StartLocalTransaction support only one primary key."},
		{"no key", "t", Row{}, CodeParameterInvalid, "StartLocalTransaction support only one primary key."},
		{"a bound", "t", key("p", row.Min()), CodeParameterInvalid, "VT_INF_MIN is an invalid type for the primary key."},
		{"another name", "t", key("k", 1), CodeInvalidPK, "Validate PK name fail. Input: k, Meta: p."},
		{"another type", "t", key("p", 1), CodeInvalidPK, "Validate PK type fail. Input: VT_INTEGER, Meta: VT_STRING."},
		{"cells", "t", Row{Key: keyOf("p", "a"), Cells: []Cell{cell("c", 1)}}, CodeParameterInvalid, "Attribute column cannot be given while reading data."},
		{"disabled", "disabled", key("p", "a"), CodeParameterInvalid, "Try to call method using explicit transaction on explicit-transaction-disabled table."},
		{"neither enabled nor disabled", "unsaid", key("p", "a"), "", ""},
	} {
		_, err := f.StartLocalTransaction(t.Context(), testInstance, &StartTransactionRequest{Table: c.table, Row: c.row})
		wantErrorOf(t, c.what, err, c.code, c.message)
	}

	id := f.mustStart("a")
	unknown := strings.Repeat("0", len(*id))
	for _, c := range []struct{ what, id, code, message string }{
		{"empty", "", CodeParameterInvalid, "TransactionID is invalid."},
		{"no hexadecimal", "fake_transaction_id", CodeParameterInvalid, "TransactionID is invalid."},
		{"too short", (*id)[2:], CodeParameterInvalid, "TransactionID is invalid."},
		{"unknown", unknown, CodeSessionNotExist, noSession},
	} {
		sel := all()
		sel.TransactionID = &c.id
		_, err := f.get(pk2("a", 0), sel)
		wantErrorOf(t, c.what+", read", err, c.code, c.message)
		wantText(t, c.what+", range", f.rangeIn(&c.id, pk2("a", 0), pk2("a", 1), false), c.code+": "+c.message)
		wantErrorOf(t, c.what+", write", f.writeIn(&c.id, putOf(pk2("a", 0))), c.code, c.message)
		_, err = f.BatchWriteRow(t.Context(), testInstance, &BatchWriteRowRequest{TransactionID: &c.id, Tables: []TableChanges{{Table: "t", Changes: []RowChange{putOf(pk2("a", 0))}}}})
		wantErrorOf(t, c.what+", batch", err, c.code, c.message)
		wantErrorOf(t, c.what+", commit", f.commit(&c.id), c.code, c.message)
		wantErrorOf(t, c.what+", abort", f.abort(&c.id), c.code, c.message)
	}
	err := f.CommitTransaction(t.Context(), "other", *id)
	wantErrorOf(t, "of another instance", err, CodeSessionNotExist, noSession)

	// One request uses the transaction.
	s, bad := f.take(testInstance, id)
	if bad != nil {
		t.Fatal(bad)
	}
	wantErrorOf(t, "a second request at once", f.writeIn(id, putOf(pk2("a", 0))), CodeSessionBusy, "Session is busy: the last request of the transaction has not ended.")
	s.leave()

	if err := f.DeleteTable(t.Context(), testInstance, "t"); err != nil {
		t.Fatal(err)
	}
	wantErrorOf(t, "commit without the table", f.commit(id), CodeObjectNotExist, "Requested table does not exist.")
	wantErrorOf(t, "commit again", f.commit(id), CodeSessionNotExist, noSession)
}

func TestATransactionLasts60Seconds(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	id := f.mustStart("a")
	f.clock.Advance(60*time.Second - 1)
	wantErrorOf(t, "a write in the last moment", f.writeIn(id, putOf(pk2("a", 1), cell("c", 1))), "", "")
	_, err := f.start("a")
	wantErrorOf(t, "a start before the end", err, CodeRowOperationConflict, conflict)
	f.clock.Advance(1)
	wantErrorOf(t, "a commit after 60 seconds", f.commit(id), CodeSessionNotExist, noSession)
	wantText(t, "the row", f.showIn(nil, pk2("a", 1)), "none")

	id = f.mustStart("a")
	wantErrorOf(t, "a write", f.writeIn(id, putOf(pk2("a", 1), cell("c", 1))), "", "")
	f.clock.Advance(60*time.Second - 1)
	wantErrorOf(t, "a commit in the last moment", f.commit(id), "", "")
	wantText(t, "the row", f.showIn(nil, pk2("a", 1)), `"a",1 | c@60000=1`)
	held := 0
	f.sessions.Range(func(any, any) bool { held++; return true })
	if held != 0 {
		t.Errorf("%d sessions are held in the end", held)
	}
}

func TestATransactionTakesFourMegabytesOfWrites(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	const limit = 4 << 20
	// A row's size is 2 for the names of its key columns, 1 and 8 for their values, 1 for the
	// column's name, plus its value.
	row := func(k, size int) RowChange { return putOf(pk2("a", k), cell("c", strings.Repeat("x", size-12))) }
	id := f.mustStart("a")
	wantErrorOf(t, "half", f.writeIn(id, row(1, limit/2)), "", "")
	refused := putOf(pk2("a", 0), cell("c", strings.Repeat("x", 1000))).expecting(ExistenceExpectNot)
	wantErrorOf(t, "what is refused", f.writeIn(id, refused), CodeConditionCheckFail, "Condition check failed.")
	const tooLarge = "The total data size of the transaction exceeds the limit, limit size: 4194304, data size: 4194305."
	wantErrorOf(t, "a byte too many", f.writeIn(id, row(2, limit/2+1)), CodeOutOfTransactionDataSize, tooLarge)
	resp, err := f.BatchWriteRow(t.Context(), testInstance, &BatchWriteRowRequest{Atomic: true, TransactionID: id, Tables: []TableChanges{
		{Table: "t", Changes: []RowChange{row(2, limit/4), row(3, limit/4+1)}}}})
	if err != nil || resp.Tables[0].Rows[1].Err == nil || resp.Tables[0].Rows[1].Err.Message != tooLarge {
		t.Errorf("a byte too many in a batch: %+v, %v", resp, err)
	}
	wantErrorOf(t, "all of it", f.writeIn(id, row(2, limit/2)), "", "")
	wantErrorOf(t, "one more delete", f.writeIn(id, deleteOf(pk2("a", 1))), CodeOutOfTransactionDataSize,
		"The total data size of the transaction exceeds the limit, limit size: 4194304, data size: 4194315.")
	wantErrorOf(t, "commit", f.commit(id), "", "")
	for k := range 3 {
		if got := f.showIn(nil, pk2("a", k)); got == "none" {
			t.Errorf("row %d is missing", k)
		}
	}
}

func TestTransactionsCostAUnitToStartAndToEnd(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	spent := func() int64 {
		got, err := f.Throughput(testInstance, "t")
		if err != nil {
			t.Fatal(err)
		}
		return got.AdditionalWrite
	}
	before := spent()
	id := f.mustStart("a")
	if got := spent() - before; got != 1 {
		t.Errorf("a start costs %d", got)
	}
	wantErrorOf(t, "write", f.writeIn(id, putOf(pk2("a", 1), cell("c", strings.Repeat("x", 5000)))), "", "")
	wantErrorOf(t, "commit", f.commit(id), "", "")
	if got := spent() - before; got != 1+2+1 {
		t.Errorf("start, a write of two units and commit cost %d", got)
	}
	wantErrorOf(t, "abort", f.abort(f.mustStart("a")), "", "")
	if got := spent() - before; got != 4+2 {
		t.Errorf("with start and abort all costs %d", got)
	}
}

func TestKeysAreGeneratedInTransactions(t *testing.T) {
	f := openFixture(t, Limits{})
	req := tableRequest("t", "p", row.TypeString, "k", row.TypeInteger)
	req.PrimaryKey[1].AutoIncrement = true
	f.create(req)
	id := f.mustStart("a")
	var last int64
	for range 3 {
		change := putOf([]KeyValue{{Name: "p", Value: row.String("a")}, {Name: "k", AutoIncrement: true}}, cell("c", 1))
		change.Return = ReturnPK
		res, err := f.WriteRow(t.Context(), testInstance, &WriteRowRequest{Table: "t", Change: change, TransactionID: id})
		if err != nil {
			t.Fatal(err)
		}
		if k := res.Row.Key[1].Value.Int64(); k <= last {
			t.Errorf("%d after %d", k, last)
		} else {
			last = k
		}
	}
	low, high := keyOf("p", "a", "k", row.Min()), keyOf("p", "a", "k", row.Max())
	if got := f.rangeIn(id, low, high, false); strings.Count(got, " ") != 2 {
		t.Errorf("within: %s", got)
	}
	wantErrorOf(t, "commit", f.commit(id), "", "")
	if got := f.rangeIn(nil, low, high, false); strings.Count(got, " ") != 2 {
		t.Errorf("committed: %s", got)
	}
}

func TestOpenTransactionsAreBounded(t *testing.T) {
	f := openTransactions(t, flagstone.Options{MemoryBudget: 256 << 10})
	var ids []*string
	for {
		id, err := f.start(fmt.Sprint("p", len(ids)))
		if err != nil {
			wantErrorOf(t, "one too many", err, CodeServerBusy, "Server is busy.")
			break
		}
		ids = append(ids, &id)
	}
	if len(ids) < 8 || len(ids) > 1000 {
		t.Errorf("%d transactions were open at once", len(ids))
	}
	wantErrorOf(t, "abort", f.abort(ids[0]), "", "")
	f.mustStart("again")
}

func TestAClosedStoreEndsTransactions(t *testing.T) {
	f := openTransactions(t, flagstone.Options{})
	id := f.mustStart("a")
	if err := f.store.Close(); err != nil {
		t.Fatal(err)
	}
	wantErrorOf(t, "commit", f.commit(id), CodeSessionNotExist, noSession)
}

// TestTransactionsOfOneInstanceLeaveRoomForThoseOfOthers checks that one instance cannot take
// all the memory for open transactions.
func TestTransactionsOfOneInstanceLeaveRoomForThoseOfOthers(t *testing.T) {
	f := openFixture(t, Documented())
	const other = "other"
	f.createPlain(1, -1)
	ctx := context.Background()
	req := tableRequest("t", "pk", row.TypeString)
	if err := f.CreateTable(ctx, other, req); err != nil {
		t.Fatal(err)
	}
	begin := func(instance string, n int) error {
		_, err := f.StartLocalTransaction(ctx, instance, &StartTransactionRequest{Table: "t", Row: Row{Key: pk(fmt.Sprint(n))}})
		return err
	}
	n := 0
	for ; begin(testInstance, n) == nil; n++ {
	}
	if err := begin(testInstance, n); err == nil || err.(*Error).Code != CodeServerBusy {
		t.Errorf("the %d. of one instance: %v", n, err)
	}
	for i := range n / 2 {
		if err := begin(other, i); err != nil {
			t.Fatalf("the %d. of the other instance, of which the first has %d: %v", i, n, err)
		}
	}
}
