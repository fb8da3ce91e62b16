package ots

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/flagstone-db/flagstone/row"
)

// testRoom is a room of a fixed size. Take never waits.
type testRoom struct {
	mu          sync.Mutex
	left, least int64
}

func newRoom(n int64) *testRoom { return &testRoom{left: n, least: n} }

func (r *testRoom) TryTake(n int64) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n < 0 || r.left < n {
		return false
	}
	r.left -= n
	r.least = min(r.least, r.left)
	return true
}

func (r *testRoom) Take(_ context.Context, n int64) error {
	if !r.TryTake(n) {
		return &Error{Code: CodeServerBusy, Message: "Server is busy."}
	}
	return nil
}

func (r *testRoom) Give(n int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n < 0 {
		panic("less than nothing is given back")
	}
	r.left += n
}

// wideRow writes a row of the given number of columns of 1,000 bytes.
func (f *fixture) wideRow(key string, columns int) {
	for from := 0; from < columns; from += 500 {
		change := putOf(pk(key))
		change.Type = ChangeUpdate
		for c := from; c < min(from+500, columns); c++ {
			change.Row.Cells = append(change.Row.Cells, cell(fmt.Sprintf("c%05d", c), text(1000)))
		}
		f.mustWrite(change)
	}
}

func TestARowAboveTheBoundIsRefusedByEveryReadAndCanBeReadInParts(t *testing.T) {
	limits := Documented()
	limits.ReadRowBytes = 200 << 10
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	f.wideRow("a", 10)
	f.wideRow("b", 1000)
	f.wideRow("c", 10)
	ctx := context.Background()
	read := func(selection Selection) (byGet, byBatch, byRange error) {
		_, byGet = f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("b")}, Selection: selection})
		batch, err := f.BatchGetRow(ctx, testInstance, &BatchGetRowRequest{Tables: []TableGets{{
			Table: "t", Rows: []Row{{Key: pk("a")}, {Key: pk("b")}}, Selection: selection,
		}}})
		if err != nil || batch.Tables[0].Rows[0].Err != nil {
			t.Errorf("the batch: %v, its other row: %v", err, batch.Tables[0].Rows[0].Err)
		} else if bad := batch.Tables[0].Rows[1].Err; bad != nil {
			byBatch = bad
		}
		_, byRange = f.GetRange(ctx, testInstance, &GetRangeRequest{Table: "t", Start: Row{Key: pk("b")}, End: Row{Key: pk("c")}, Selection: selection})
		return
	}
	g, b, r := read(all())
	wantError(t, g, CodeOutOfRowSizeLimit, "The total data size of columns in one row exceeded the limit.")
	wantError(t, b, CodeOutOfRowSizeLimit, "The total data size of columns in one row exceeded the limit.")
	wantError(t, r, CodeOutOfRowSizeLimit, "The total data size of columns in one row exceeded the limit.")
	part := all()
	start, end := "c00100", "c00200"
	part.StartColumn, part.EndColumn = &start, &end
	if g, b, r := read(part); g != nil || b != nil || r != nil {
		t.Errorf("a part of the row: %v, %v, %v", g, b, r)
	}

	// A page ends before the row, and a client can read the rows after it.
	for _, backward := range []bool{false, true} {
		req := &GetRangeRequest{Table: "t", Start: Row{Key: pk("a")}, End: Row{Key: pk("d")}, Selection: all(), Backward: backward}
		if backward {
			req.Start.Key, req.End.Key = pk("c"), pk("A")
		}
		page, err := f.GetRange(ctx, testInstance, req)
		if err != nil || len(page.Rows) != 1 || page.Next == nil || page.Next[0].Value.Text() != "b" {
			t.Errorf("backward %v: a page of %v, %v", backward, page, err)
		}
	}
}

// TestPagesEndWhereThereIsNoRoomForMore checks that all rows arrive, however little room there
// is beyond one row's need, and that no page takes more room than there is.
func TestPagesEndWhereThereIsNoRoomForMore(t *testing.T) {
	limits := Documented()
	limits.ReadRowBytes = 300 << 10
	f := openFixture(t, limits)
	f.createPlain(1, -1)
	var want []string
	for i := range 30 {
		k := fmt.Sprintf("k%02d", i)
		f.wideRow(k, 1+i%7*30)
		want = append(want, k)
	}
	for _, more := range []int64{0, 1 << 20, 100 << 20} {
		var got []string
		pages := 0
		for start := pk("a"); start != nil; pages++ {
			room := newRoom(answerCopies*limits.ReadRowBytes + more)
			before := room.left
			page, err := f.GetRange(WithRoom(context.Background(), room), testInstance, &GetRangeRequest{
				Table: "t", Start: Row{Key: start}, End: Row{Key: pk("z")}, Selection: all(),
			})
			if err != nil {
				t.Fatal(err)
			}
			memory := int64(0)
			for i := range page.Rows {
				got = append(got, page.Rows[i].Key[0].Value.Text())
				memory += (&RowReadResult{ReadResult: ReadResult{Row: &page.Rows[i]}}).size()
			}
			if held := before - room.left; held < memory {
				t.Errorf("%d bytes are taken for %d", held, memory)
			}
			start = page.Next
		}
		if !slices.Equal(got, want) {
			t.Errorf("with %d bytes more: %d rows %v", more, len(got), got)
		}
		if (pages == 1) != (more > 10<<20) {
			t.Errorf("with %d bytes more: %d pages", more, pages)
		}
	}
}

func TestReadsTakeTheRoomThatTheyNeedAndGiveTheRestBack(t *testing.T) {
	f := openFixture(t, Documented())
	f.createPlain(1, -1)
	f.wideRow("small", 1)
	f.wideRow("large", 3000)
	get := func(room Room, key string) error {
		_, err := f.GetRow(WithRoom(context.Background(), room), testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk(key)}, Selection: all()})
		return err
	}
	for _, tt := range []struct {
		key         string
		least, most int64 // taken at the end
		peak        int64
	}{
		{"small", 3_000, 10_000, 3 * 64 << 10},
		{"large", 9_000_000, 11_000_000, 3 * 4 << 20},
		{"missing", 0, 0, 3 * 64 << 10},
	} {
		room := newRoom(100 << 20)
		if err := get(room, tt.key); err != nil {
			t.Fatal(err)
		}
		if taken := 100<<20 - room.left; taken < tt.least || taken > tt.most {
			t.Errorf("%s: %d bytes taken", tt.key, taken)
		}
		if peak := 100<<20 - room.least; peak != tt.peak {
			t.Errorf("%s: at most %d bytes taken, want %d", tt.key, peak, tt.peak)
		}
	}
	wantError(t, get(newRoom(1<<20), "large"), CodeServerBusy, "Server is busy.")

	// Rows that the filter drops need no room.
	none := all()
	none.Filter = &Filter{Type: FilterSingleColumn, Comparator: CompareEqual, Column: "absent", Value: valueOf("x"), FilterIfMissing: true}
	dropped := newRoom(200 << 20)
	many := slices.Repeat([]Row{{Key: pk("large")}}, 30)
	batch, err := f.BatchGetRow(WithRoom(context.Background(), dropped), testInstance, &BatchGetRowRequest{Tables: []TableGets{{
		Table: "t", Rows: many, Selection: none,
	}}})
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range batch.Tables[0].Rows {
		if r.Err != nil || r.Row != nil {
			t.Errorf("dropped row %d: %v, %v", i, r.Row, r.Err)
		}
	}
	if dropped.left != 200<<20 {
		t.Errorf("dropped rows keep %d bytes", 200<<20-dropped.left)
	}

	// A batch answers the rows for which there is room, and SDKs ask for the rest again.
	batch, err = f.BatchGetRow(WithRoom(context.Background(), newRoom(15<<20)), testInstance, &BatchGetRowRequest{Tables: []TableGets{{
		Table: "t", Rows: []Row{{Key: pk("small")}, {Key: pk("large")}, {Key: pk("large")}}, Selection: all(),
	}}})
	if err != nil {
		t.Fatal(err)
	}
	if r := batch.Tables[0].Rows; r[0].Err != nil || r[1].Err != nil || r[2].Err == nil || r[2].Err.Code != CodeServerBusy {
		t.Errorf("%v, %v, %v", r[0].Err, r[1].Err, r[2].Err)
	}
}

// testTurn counts how often the turn was taken and left.
type testTurn struct{ taken, left atomic.Int64 }

func (c *testTurn) Take(context.Context) error { c.taken.Add(1); return nil }
func (c *testTurn) Leave() bool                { c.left.Add(1); return true }

func TestRequestsThatComputeMuchTakeTheirTurnAndSmallOnesDoNot(t *testing.T) {
	f := openFixture(t, Documented())
	f.createPlain(1, -1)
	f.mustWrite(putOf(pk("a"), cell("c", 1)))
	f.wideRow("wide", 500)
	for from := 0; from <= latchedSteps; from += 1000 {
		change := updateOf(pk("many"))
		for i := range 1000 {
			change.Row.Cells = append(change.Row.Cells, cell(fmt.Sprint("c", from+i), 1))
		}
		f.mustWrite(change)
	}
	ancient := all()
	ancient.TimeRange = &TimeRange{Start: ptr(int64(0)), End: ptr(int64(1))}
	costly := &Filter{Type: FilterSingleColumn, Comparator: CompareEqual, Column: "c", Value: valueOf("x"),
		Transfer: &ValueTransferRule{Regex: "a+", Cast: row.TypeString}}
	conditional := updateOf(pk("a"), cell("c", 1))
	conditional.ColumnCondition = costly
	rows := func(n int) (list []Row) {
		for i := range n {
			list = append(list, Row{Key: pk(fmt.Sprint(i))})
		}
		return list
	}
	page := func(limit int32, filter *Filter) *GetRangeRequest {
		selection := all()
		selection.Filter = filter
		return &GetRangeRequest{Table: "t", Limit: &limit, Selection: selection,
			Start: Row{Key: []KeyValue{{Name: "pk", Value: row.Min()}}}, End: Row{Key: []KeyValue{{Name: "pk", Value: row.Max()}}}}
	}
	filtered := all()
	filtered.Filter = costly
	for name, c := range map[string]struct {
		do   func(ctx context.Context) error
		much bool
	}{
		"a row": {func(ctx context.Context) error {
			_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("a")}, Selection: all()})
			return err
		}, false},
		"a wide row": {func(ctx context.Context) error {
			_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("wide")}, Selection: all()})
			return err
		}, true},
		"a row of many cells of which none is wanted": {func(ctx context.Context) error {
			_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("many")}, Selection: ancient})
			return err
		}, true},
		"a row that is filtered": {func(ctx context.Context) error {
			_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("a")}, Selection: filtered})
			return err
		}, true},
		"few rows": {func(ctx context.Context) error {
			_, err := f.BatchGetRow(ctx, testInstance, &BatchGetRowRequest{Tables: []TableGets{{Table: "t", Rows: rows(10), Selection: all()}}})
			return err
		}, false},
		"rows": {func(ctx context.Context) error {
			_, err := f.BatchGetRow(ctx, testInstance, &BatchGetRowRequest{Tables: []TableGets{{Table: "t", Rows: rows(11), Selection: all()}}})
			return err
		}, true},
		"a short page":            {func(ctx context.Context) error { _, err := f.GetRange(ctx, testInstance, page(10, nil)); return err }, false},
		"a page":                  {func(ctx context.Context) error { _, err := f.GetRange(ctx, testInstance, page(11, nil)); return err }, true},
		"a page that is filtered": {func(ctx context.Context) error { _, err := f.GetRange(ctx, testInstance, page(1, costly)); return err }, true},
		"a write":                 {func(ctx context.Context) error { return f.writeOne(ctx, putOf(pk("b"), cell("c", 1))) }, false},
		"a delete of a version": {func(ctx context.Context) error {
			return f.writeOne(ctx, updateOf(pk("b"), deleteVersion("c", startMillis)))
		}, true},
		"split points": {func(ctx context.Context) error {
			_, err := f.ComputeSplitPointsBySize(ctx, testInstance, &SplitPointsRequest{Table: "t", SplitSize: 1})
			return err
		}, true},
		"a write with a condition": {func(ctx context.Context) error { return f.writeOne(ctx, conditional) }, true},
	} {
		turn := new(testTurn)
		err := c.do(WithTurn(context.Background(), turn))
		var refusal *Error
		if errors.As(err, &refusal) && refusal.Code != CodeConditionCheckFail {
			t.Errorf("%s: %v", name, err)
		}
		if took := turn.taken.Load() > 0; took != c.much {
			t.Errorf("%s: took a turn: %v", name, took)
		}
		if name == "a write" && turn.left.Load() == 0 {
			t.Errorf("%s waits for the disk with its turn", name)
		}
	}
}

func (f *fixture) writeOne(ctx context.Context, change RowChange) error {
	_, err := f.WriteRow(ctx, testInstance, &WriteRowRequest{Table: "t", Change: change})
	return err
}
