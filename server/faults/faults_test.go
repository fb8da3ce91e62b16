package faults

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/flagstone-db/flagstone/ots"
	"github.com/flagstone-db/flagstone/row"
)

// pattern calls Request n times and shows hits as x.
func pattern(in *Injector, n int, operation, instance string, tables ...string) string {
	var b strings.Builder
	for range n {
		if f := in.Request(operation, instance, tables); f.Err != nil {
			b.WriteByte('x')
		} else {
			b.WriteByte('.')
		}
	}
	return b.String()
}

func TestRulesHitWhatTheyName(t *testing.T) {
	for _, c := range []struct {
		rule Rule
		want string // of PutRow to A, PutRow to B, GetRow of A, a batch of B and A, PutRow to A in another instance
	}{
		{Rule{}, "xxxxx"},
		{Rule{Operation: "PutRow"}, "xx..x"},
		{Rule{Table: "A"}, "x.xxx"},
		{Rule{Instance: "here"}, "xxxx."},
		{Rule{Instance: "HERE"}, "xxxx."},
		{Rule{Operation: "PutRow", Table: "A", Instance: "here"}, "x...."},
		{Rule{Times: 2}, "xx..."},
		{Rule{Rows: true}, "....."},
	} {
		c.rule.Code, c.rule.Rate = ots.CodeServerBusy, 1
		in := new(Injector)
		if err := in.Add(c.rule); err != nil {
			t.Fatal(err)
		}
		got := pattern(in, 1, "PutRow", "here", "A") + pattern(in, 1, "PutRow", "here", "B") + pattern(in, 1, "GetRow", "here", "A") +
			pattern(in, 1, "BatchGetRow", "here", "B", "A") + pattern(in, 1, "PutRow", "there", "A")
		if got != c.want {
			t.Errorf("%+v: got %s, want %s", c.rule, got, c.want)
		}
	}
}

func TestRatesSpreadHitsEvenly(t *testing.T) {
	for rate, want := range map[float64]string{
		1: "xxxxxxxxxxxx", 0.5: "x.x.x.x.x.x.", 0.25: "x...x...x...", 0.1: "x.........x.", 0.75: "x.xxx.xxx.xx",
	} {
		in := new(Injector)
		if err := in.Add(Rule{Code: ots.CodeTimeout, Rate: rate}); err != nil {
			t.Fatal(err)
		}
		if got := pattern(in, 12, "GetRow", "i"); got != want && rate != 0.75 {
			t.Errorf("%v: got %s, want %s", rate, got, want)
		} else if n := strings.Count(got, "x"); rate == 0.75 && n != 9 {
			t.Errorf("%v: got %s", rate, got)
		}
	}
}

func TestTheFirstRuleThatHitsDecides(t *testing.T) {
	in := new(Injector)
	for _, r := range []Rule{{Code: ots.CodeServerBusy, Rate: 0.5}, {Code: ots.CodeTimeout, Rate: 1, Times: 2}} {
		if err := in.Add(r); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	for range 5 {
		if f := in.Request("GetRow", "i", nil); f.Err == nil {
			got = append(got, "none")
		} else {
			got = append(got, f.Err.Code)
		}
	}
	if want := "[OTSServerBusy OTSTimeout OTSServerBusy OTSTimeout OTSServerBusy]"; fmt.Sprint(got) != want {
		t.Errorf("got %v, want %s", got, want)
	}
	list := in.List()
	if list[0].Matched != 5 || list[0].Hit != 3 || list[1].Matched != 2 || list[1].Hit != 2 {
		t.Errorf("counted %+v", list)
	}
	in.Clear()
	if f := in.Request("GetRow", "i", nil); f.Err != nil || len(in.List()) != 0 {
		t.Errorf("cleared: %v", f.Err)
	}
}

func TestRulesThatMakeNoSenseAreRefused(t *testing.T) {
	for what, r := range map[string]Rule{
		"nothing":               {Rate: 1},
		"unknown code":          {Code: "OTSBored", Rate: 1},
		"unknown operation":     {Code: ots.CodeTimeout, Rate: 1, Operation: "putRow"},
		"a code that is no day": {Code: ots.CodeParameterInvalid, Rate: 1},
		"rate 0":                {Code: ots.CodeTimeout},
		"rate too small":        {Code: ots.CodeTimeout, Rate: 1e-7},
		"rate above 1":          {Code: ots.CodeTimeout, Rate: 1.1},
		"negative times":        {Code: ots.CodeTimeout, Rate: 1, Times: -1},
		"long delay":            {Code: ots.CodeTimeout, Rate: 1, Delay: time.Hour},
		"applied and repeated":  {Code: ots.CodeServerBusy, Rate: 1, Applied: true},
		"rows that are late":    {Code: ots.CodeServerBusy, Rate: 1, Rows: true, Delay: time.Second},
		"rows of a put":         {Code: ots.CodeServerBusy, Rate: 1, Rows: true, Operation: "PutRow"},
	} {
		if err := new(Injector).Add(r); err == nil {
			t.Errorf("%s: %+v was accepted", what, r)
		}
	}
	in := new(Injector)
	for range maxRules {
		if err := in.Add(Rule{Code: ots.CodeTimeout, Rate: 1}); err != nil {
			t.Fatal(err)
		}
	}
	if err := in.Add(Rule{Code: ots.CodeTimeout, Rate: 1}); err == nil {
		t.Error("more rules than are allowed were accepted")
	}
}

// echo answers each row of a batch with its key as the cost.
type echo struct {
	ots.Service
	calls int
}

func number(r ots.Row) int32 { return int32(r.Key[0].Value.Int64()) }

func (e *echo) BatchWriteRow(_ context.Context, _ string, req *ots.BatchWriteRowRequest) (*ots.BatchWriteRowResponse, error) {
	e.calls++
	resp := new(ots.BatchWriteRowResponse)
	for _, t := range req.Tables {
		r := ots.TableWriteResults{Table: t.Table}
		for _, c := range t.Changes {
			r.Rows = append(r.Rows, ots.RowWriteResult{WriteResult: ots.WriteResult{Consumed: ots.CapacityUnit{Write: number(c.Row)}}})
		}
		resp.Tables = append(resp.Tables, r)
	}
	return resp, nil
}

func (e *echo) BatchGetRow(_ context.Context, _ string, req *ots.BatchGetRowRequest) (*ots.BatchGetRowResponse, error) {
	e.calls++
	resp := new(ots.BatchGetRowResponse)
	for _, t := range req.Tables {
		r := ots.TableReadResults{Table: t.Table}
		for _, k := range t.Rows {
			r.Rows = append(r.Rows, ots.RowReadResult{ReadResult: ots.ReadResult{Consumed: ots.CapacityUnit{Read: number(k)}}})
		}
		resp.Tables = append(resp.Tables, r)
	}
	return resp, nil
}

// TestRowsOfABatchFailInTheirPlaces checks that every row is answered once, in the order of the
// request, and that only rows without a fault are performed.
func TestRowsOfABatchFailInTheirPlaces(t *testing.T) {
	ctx := context.Background()
	for _, c := range []struct {
		rules []Rule
		want  string
		calls int
	}{
		{nil, "A:1 A:2 B:3 B:4 B:5 C A:6", 1},
		{[]Rule{{Rate: 0.5}}, "A:x A:2 B:x B:4 B:x C A:6", 1},
		{[]Rule{{Rate: 1, Table: "A"}}, "A:x A:x B:3 B:4 B:5 C A:x", 1},
		{[]Rule{{Rate: 1, Table: "B", Times: 2}}, "A:1 A:2 B:x B:x B:5 C A:6", 1},
		{[]Rule{{Rate: 1, Table: "B", Times: 1}, {Rate: 1, Table: "A", Times: 1}}, "A:x A:2 B:x B:4 B:5 C A:6", 1},
		{[]Rule{{Rate: 1}}, "A:x A:x B:x B:x B:x C A:x", 1}, // for the table without rows
	} {
		for _, operation := range []string{"BatchWriteRow", "BatchGetRow"} {
			in, inner := new(Injector), new(echo)
			for _, r := range c.rules {
				r.Code, r.Rows, r.Operation = ots.CodeServerBusy, true, operation
				if err := in.Add(r); err != nil {
					t.Fatal(err)
				}
			}
			service := Rows(inner, in)
			var got []string
			show := func(table string, err *ots.Error, n int32) {
				if err != nil {
					got = append(got, table+":x")
				} else {
					got = append(got, fmt.Sprintf("%s:%d", table, n))
				}
			}
			layout := []struct {
				table string
				rows  []int64
			}{{"A", []int64{1, 2}}, {"B", []int64{3, 4, 5}}, {"C", nil}, {"A", []int64{6}}}
			keyed := func(n int64) ots.Row { return ots.Row{Key: []ots.KeyValue{{Name: "k", Value: row.Integer(n)}}} }
			if operation == "BatchWriteRow" {
				req := new(ots.BatchWriteRowRequest)
				for _, l := range layout {
					w := ots.TableChanges{Table: l.table}
					for _, n := range l.rows {
						w.Changes = append(w.Changes, ots.RowChange{Row: keyed(n)})
					}
					req.Tables = append(req.Tables, w)
				}
				resp, err := service.BatchWriteRow(ctx, "i", req)
				if err != nil {
					t.Fatal(err)
				}
				for _, tr := range resp.Tables {
					if len(tr.Rows) == 0 {
						got = append(got, tr.Table)
					}
					for _, r := range tr.Rows {
						show(tr.Table, r.Err, r.Consumed.Write)
					}
				}
			} else {
				req := new(ots.BatchGetRowRequest)
				for _, l := range layout {
					g := ots.TableGets{Table: l.table}
					for _, n := range l.rows {
						g.Rows = append(g.Rows, keyed(n))
					}
					req.Tables = append(req.Tables, g)
				}
				resp, err := service.BatchGetRow(ctx, "i", req)
				if err != nil {
					t.Fatal(err)
				}
				for _, tr := range resp.Tables {
					if len(tr.Rows) == 0 {
						got = append(got, tr.Table)
					}
					for _, r := range tr.Rows {
						show(tr.Table, r.Err, r.Consumed.Read)
					}
				}
			}
			if strings.Join(got, " ") != c.want || inner.calls != c.calls {
				t.Errorf("%s, %+v: got %v in %d calls, want %s in %d", operation, c.rules, got, inner.calls, c.want, c.calls)
			}
		}
	}
}
