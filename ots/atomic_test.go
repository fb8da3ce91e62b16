package ots

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

func (f *fixture) atomic(changes ...RowChange) []RowWriteResult {
	f.tb.Helper()
	resp, err := f.BatchWriteRow(context.Background(), testInstance, &BatchWriteRowRequest{
		Atomic: true, Tables: []TableChanges{{Table: "t", Changes: changes}},
	})
	if err != nil {
		f.tb.Fatal(err)
	}
	if len(resp.Tables) != 1 || len(resp.Tables[0].Rows) != len(changes) {
		f.tb.Fatalf("%d rows sent, answered %+v", len(changes), resp)
	}
	return resp.Tables[0].Rows
}

// showRange returns the rows of table t as text.
func (f *fixture) showRange(key ...string) string {
	f.tb.Helper()
	req := GetRangeRequest{Selection: all()}
	for _, k := range key {
		req.Start.Key = append(req.Start.Key, KeyValue{Name: k, Value: row.Min()})
		req.End.Key = append(req.End.Key, KeyValue{Name: k, Value: row.Max()})
	}
	resp, err := f.rangeOf(req)
	if err != nil {
		f.tb.Fatal(err)
	}
	var rows []string
	for i := range resp.Rows {
		rows = append(rows, showRow(&resp.Rows[i]))
	}
	return strings.Join(rows, "; ")
}

func TestAtomicBatchesHappenWhollyOrNot(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "p", row.TypeString, "k", row.TypeInteger))
	key := func(p string, k int) []KeyValue { return keyOf("p", p, "k", k) }
	put := func(p string, k, v int) RowChange { return putOf(key(p, k), cellAt("c", v, startMillis)) }
	conditional := func(c RowChange, v int) RowChange { c.ColumnCondition = where("c", CompareEqual, v); return c }
	const scope = "Data out of scope of atomic. Atomic PartKey:%s. Data PartKey:%s"
	forbidden := tableRequest("t", "p", row.TypeString)
	forbidden.Options.AllowUpdate = ptr(false)
	for _, c := range []struct {
		name          string
		changes       []RowChange
		code, message string
		after         string
	}{
		{"all of it", []RowChange{put("a", 1, 1), put("a", 2, 2).expecting(ExistenceExpectNot)}, "", "", `"a",1 | c@0=1; "a",2 | c@0=2`},
		{"a row that must not exist", []RowChange{put("a", 3, 3), put("a", 1, 9).expecting(ExistenceExpectNot), put("a", 4, 4)},
			CodeConditionCheckFail, "Condition check failed.", `"a",1 | c@0=1; "a",2 | c@0=2`},
		{"a condition", []RowChange{deleteOf(key("a", 1)), conditional(put("a", 2, 9), 3)},
			CodeConditionCheckFail, "Condition check failed.", `"a",1 | c@0=1; "a",2 | c@0=2`},
		{"a condition that holds", []RowChange{deleteOf(key("a", 1)), conditional(put("a", 2, 3), 2), updateOf(key("a", 5), increment("c", 7))},
			"", "", `"a",2 | c@0=3; "a",5 | c@0=7`},
		{"other partition keys", []RowChange{put("a", 1, 1), put("b", 1, 1), put("c", 1, 1)}, CodeDataOutOfRange,
			fmt.Sprintf(scope, "a", "b"), `"a",2 | c@0=3; "a",5 | c@0=7`},
		{"a key of another table", []RowChange{put("a", 1, 1), putOf(pk("a"))}, CodeInvalidPK,
			"Validate PK size fail. Input: 1, Meta: 2.", `"a",2 | c@0=3; "a",5 | c@0=7`},
		{"an increment of what is none", []RowChange{put("a", 1, 1), updateOf(key("a", 2), increment("c", 1<<62)), updateOf(key("a", 5), increment("c", 1<<63-1))},
			CodeParameterInvalid, "Column 'c' cannot be incremented: the sum exceeds the range of VT_INTEGER.", `"a",2 | c@0=3; "a",5 | c@0=7`},
		{"a version out of the window", []RowChange{put("a", 1, 1), updateOf(key("a", 2), cellAt("c", 1, 1))},
			CodeParameterInvalid, "Invalid timestamp. Cell:c.", `"a",2 | c@0=3; "a",5 | c@0=7`},
		{"a row several times", []RowChange{put("a", 2, 8), updateOf(key("a", 2), cellAt("d", 1, startMillis)), deleteOf(key("a", 5))}, "", "", `"a",2 | c@0=8 d@0=1`},
	} {
		for i, r := range f.atomic(c.changes...) {
			wantError(t, asErr(r.Err), c.code, c.message)
			if want := writeCost(&c.changes[i], c.changes[i].Row.Key); c.code == "" && r.Consumed != want {
				t.Errorf("%s: row %d cost %+v, want %+v", c.name, i, r.Consumed, want)
			}
		}
		if got := f.showRange("p", "k"); got != c.after {
			t.Errorf("%s: table is\n\t%s\nwant\n\t%s", c.name, got, c.after)
		}
	}
}

func TestAnAtomicBatchOfMissingTablesSaysSoPerRow(t *testing.T) {
	f := openFixture(t, Limits{})
	for _, r := range f.atomic(putOf(pk("a")), putOf(pk("b"))) {
		wantError(t, asErr(r.Err), CodeObjectNotExist, "Requested table does not exist.")
	}
}

func TestGeneratedKeysOfAnAtomicBatch(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(generatedTable())
	results := f.atomic(putOf(auto("a"), cell("c", 1)).returningKey(), putOf(auto("a"), cell("c", 2)).returningKey(), updateOf(auto("a"), cell("c", 3)).returningKey())
	last := int64(0)
	for i, r := range results {
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if n := id(t, r.Row); n <= last {
			t.Errorf("row %d got key %d after %d", i, n, last)
		} else {
			last = n
		}
	}
	if n := strings.Count(f.showRange("pk", "id"), ";"); n != 2 {
		t.Errorf("%d rows, want 3", n+1)
	}
}

// TestTransfersBetweenRowsKeepTheSum runs concurrent atomic batches that take from one row and
// give to another. No reader may see a different sum, and a condition keeps every row from
// falling below 0.
func TestTransfersBetweenRowsKeepTheSum(t *testing.T) {
	f := openFixture(t, Limits{})
	f.create(tableRequest("t", "p", row.TypeString, "k", row.TypeInteger))
	const rows, start = 4, 10
	key := func(k int) []KeyValue { return keyOf("p", "a", "k", k) }
	for k := range rows {
		f.mustWrite(putOf(key(k), cell("n", start)))
	}
	var all sync.WaitGroup
	for w := range 4 {
		all.Go(func() {
			for i := range 60 {
				from, to := (w+i)%rows, (w*i+1+i%3)%rows
				if from == to {
					continue
				}
				take := updateOf(key(from), increment("n", -1))
				take.ColumnCondition = where("n", CompareGreater, 0)
				for _, r := range f.atomic(take, updateOf(key(to), increment("n", 1))) {
					if r.Err != nil && r.Err.Code != CodeConditionCheckFail {
						t.Error(r.Err)
					}
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { all.Wait(); close(done) }()
	for finished := false; !finished; {
		select {
		case <-done:
			finished = true
		default:
		}
		req := GetRangeRequest{Start: Row{Key: keyOf("p", "a", "k", row.Min())}, End: Row{Key: keyOf("p", "a", "k", row.Max())}, Selection: Selection{MaxVersions: ptr(int32(1))}}
		resp, err := f.rangeOf(req)
		if err != nil {
			t.Fatal(err)
		}
		sum := int64(0)
		for i := range resp.Rows {
			n := resp.Rows[i].Cells[0].Value.Int64()
			if sum += n; n < 0 {
				t.Errorf("row %d is %d", i, n)
			}
		}
		if sum != rows*start {
			t.Fatalf("the sum is %d, want %d", sum, rows*start)
		}
	}
}
