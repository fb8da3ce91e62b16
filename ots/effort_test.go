package ots

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/seams"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// costly matches nothing, and takes hundreds of instructions per byte of a text of one letter.
func costly(column string) *Filter {
	return where(column, CompareEqual, "x").or(cast(`(a?){150}b`, row.TypeString))
}

// judging reports whether a judgement of a row is among its callers.
func judging() bool {
	var callers [32]uintptr
	frames := runtime.CallersFrames(callers[:runtime.Callers(2, callers[:])])
	for {
		f, more := frames.Next()
		if strings.Contains(f.Function, "ots.(*effort).spend") {
			return true
		}
		if !more {
			return false
		}
	}
}

// watched is a context that calls looked when a judgement checks it.
type watched struct {
	context.Context
	looked func()
}

func (w *watched) Err() error {
	if judging() {
		w.looked()
	}
	return w.Context.Err()
}

func (f *fixture) writeWith(ctx context.Context, change RowChange) error {
	_, err := f.WriteRow(ctx, testInstance, &WriteRowRequest{Table: "t", Change: change})
	return err
}

// limited returns a context with a timeout, for calls that must not hang.
func limited(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}

// TestALongConditionHoldsUpNoWriterOfItsRow writes the same row and another one, and changes
// the table, while a condition is judged.
func TestALongConditionHoldsUpNoWriterOfItsRow(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		f := openFixture(t, Limits{})
		f.createPlain(1, -1)
		f.mustWrite(putOf(pk("r"), cell("text", strings.Repeat("a", 4_000)), cell("n", 1)), putOf(pk("q"), cell("n", 1)))
		looks, disturbed := 0, 0
		ctx := &watched{limited(t), func() { looks++ }}
		ctx.looked = func() {
			if looks++; disturbed == 2 || looks%10 != 1 {
				return
			}
			disturbed++
			within := limited(t)
			wantError(t, f.writeWith(within, updateOf(pk("r"), cell("n", 10*disturbed))), "", "")
			wantError(t, f.writeWith(within, updateOf(pk("q"), cell("n", 10*disturbed))), "", "")
			_, err := f.UpdateTable(within, testInstance, &UpdateTableRequest{Table: "t", Options: &TableOptions{MaxVersions: ptr(int32(1 + disturbed))}})
			wantError(t, err, "", "")
			id, err := f.StartLocalTransaction(within, testInstance, &StartTransactionRequest{Table: "t", Row: Row{Key: pk("other")}})
			wantError(t, err, "", "")
			wantError(t, f.AbortTransaction(within, testInstance, id), "", "")
		}
		change := updateOf(pk("r"), increment("n", 1))
		change.ColumnCondition = joined(LogicalNot, costly("text"))
		if atomic {
			resp, err := f.BatchWriteRow(ctx, testInstance, &BatchWriteRowRequest{Atomic: true, Tables: []TableChanges{{Table: "t", Changes: []RowChange{change}}}})
			wantError(t, err, "", "")
			wantError(t, asErr(resp.Tables[0].Rows[0].Err), "", "")
		} else {
			wantError(t, f.writeWith(ctx, change), "", "")
		}
		one := filtered(nil, "n")
		one.MaxVersions = ptr(int32(1))
		if got := f.show(pk("r"), one); disturbed != 2 || got != `"r" | n@0=21` {
			t.Errorf("disturbed %d times, the row is %s", disturbed, got)
		}
		ctx.looked = func() { // at each check
			if looks++; looks%10 == 1 {
				wantError(t, f.writeWith(limited(t), updateOf(pk("r"), cell("n", looks))), "", "")
			}
		}
		wantError(t, f.writeWith(ctx, change), CodeRowOperationConflict, "Data is being modified by the other request.")
	}
}

// TestAConditionTakesNoMoreThanItsStepsUnderTheLatch counts the steps under the latch. All rows
// of an atomic batch together may take no more than one row.
func TestAConditionTakesNoMoreThanItsStepsUnderTheLatch(t *testing.T) {
	p, bad := (&Limits{FilterNodes: 32, ColumnNameLength: 255, AttributeBytes: 1 << 21, FilterRegexBytes: 256}).checkFilter(costly("c"), false)
	if bad != nil {
		t.Fatal(bad)
	}
	text := []byte(strings.Repeat("a", 1<<21))
	for n := 1; n <= len(text); n *= 2 {
		w := effort{ctx: context.Background(), left: latchedSteps}
		_, err := p.part.find(text[:n], &w)
		if fits := p.part.perByte*int64(n+1) <= latchedSteps; fits != (err == nil) || !fits && !errors.Is(err, errEffort) {
			t.Errorf("%d bytes of %d instructions: %v", n, p.part.instructions, err)
		}
	}
	cells := rowOfVersions(t, latchedSteps+1)
	all := predicate{filter: where("c", CompareEqual, 1).or(anyVersion), keyColumn: -1}
	if _, err := all.passes(cells, &effort{ctx: context.Background(), left: latchedSteps}); !errors.Is(err, errEffort) {
		t.Errorf("more cells than steps: %v", err)
	}
}

// rowOfVersions is a row with n versions of the column c, all of them 0.
func rowOfVersions(t *testing.T, n int64) *flagstone.Row {
	t.Helper()
	ctx, key := context.Background(), flagstone.Key("a")
	store, err := flagstone.Open("/store", flagstone.Options{Seams: seams.Seams{FS: vfs.NewSim(vfs.SimOptions{})}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	table, err := store.CreateTable(ctx, flagstone.TableSpec{
		Name: "t", Key: []flagstone.KeyColumn{{Name: "id", Type: row.TypeString}}, Options: flagstone.TableOptions{MaxVersions: n},
	})
	if err != nil {
		t.Fatal(err)
	}
	batch := store.NewBatch()
	for version := range n {
		batch.Row(table, key).Put("c", version, row.Integer(0))
	}
	err = store.Apply(ctx, batch)
	r, err2 := table.Get(ctx, key, flagstone.ReadOptions{})
	if err != nil || err2 != nil || int64(len(r.Cells())) != n {
		t.Fatalf("%v, %v, %d versions", err, err2, len(r.Cells()))
	}
	return r
}

func TestAJudgementEndsWithItsContext(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	f.mustWrite(putOf(pk("r"), cell("text", strings.Repeat("a", 40_000))))
	const most = 3
	cancelled, cancel := context.WithCancel(context.Background())
	looks := 0
	ctx := &watched{cancelled, func() {
		if looks++; looks == most {
			cancel()
		}
	}}
	_, err := f.GetRow(ctx, testInstance, &GetRowRequest{Table: "t", Row: Row{Key: pk("r")}, Selection: filtered(costly("text"))})
	wantError(t, err, CodeTimeout, "Operation timeout.")
	if looks != most {
		t.Errorf("the context was looked at %d times, and had ended after %d", looks, most)
	}
}

func TestTheStepsOfARowAndOfARequestAreBounded(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	const tooLong = "The filter takes too long for one row: the limit is 33554432 instructions of regular expressions times bytes of values."
	f.mustWrite(putOf(pk("long"), cell("text", strings.Repeat("a", 2_000_000))))
	_, err := f.get(pk("long"), filtered(costly("text")))
	wantError(t, err, CodeParameterInvalid, tooLong)
	change := updateOf(pk("long"), cell("n", 1))
	change.ColumnCondition = costly("text")
	_, err = f.write(change)
	wantError(t, err, CodeParameterInvalid, tooLong)

	// Each of these takes a third of the steps of a request.
	var keys []string
	size := requestSteps / 3 / int(must(f.limits.checkTransfer(costly("text").Transfer)).perByte)
	for i := range 6 {
		keys = append(keys, fmt.Sprint("r", i))
		f.mustWrite(putOf(pk(keys[i]), cell("text", strings.Repeat("a", size))))
	}
	gets := TableGets{Table: "t", Selection: filtered(joined(LogicalNot, costly("text")), "n")}
	gets.ColumnsToGet = nil
	other := gets
	other.Filter = joined(LogicalNot, costly("text")) // an equal filter
	for _, k := range keys {
		gets.Rows = append(gets.Rows, Row{Key: pk(k)})
	}
	other.Rows = gets.Rows[:1]
	resp, err := f.BatchGetRow(context.Background(), testInstance, &BatchGetRowRequest{Tables: []TableGets{gets, other}})
	wantError(t, err, "", "")
	busy := 0
	for _, r := range slices.Concat(resp.Tables[0].Rows, resp.Tables[1].Rows) {
		if r.Err != nil {
			wantError(t, r.Err, CodeServerBusy, "Server is busy.")
			busy++
		}
	}
	if busy < 2 || resp.Tables[1].Rows[0].Err == nil {
		t.Errorf("%d rows were refused", busy)
	}

	rng := &GetRangeRequest{Table: "t", Start: Row{Key: pk("r0")}, End: Row{Key: pk("s")}, Selection: gets.Selection}
	var got []string
	for pages := 1; ; pages++ {
		page, err := f.GetRange(context.Background(), testInstance, rng)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Rows {
			got = append(got, r.Key[0].Value.Text())
		}
		if page.Next == nil {
			if !slices.Equal(got, keys) || pages < 2 {
				t.Errorf("%d pages with the rows %v", pages, got)
			}
			break
		}
		rng.Start = Row{Key: page.Next}
	}
}

func must[T any](v T, err *Error) T {
	if err != nil {
		panic(err)
	}
	return v
}

func TestExpressionsAreBoundedByWhatTheyCompileTo(t *testing.T) {
	l := Documented()
	for regex, ok := range map[string]bool{
		`(\d{1,3}\.){3}\d{1,3}`: true, `[\p{L}\p{N}_]+@([a-z0-9-]+\.)+[a-z]{2,}`: true, `(?i)error|warning`: true,
		`(a{30}){30}`: true, `(a{33}){33}`: false, `a{1000}`: false, `(((a{10}){10}){10}){10}`: false,
	} {
		_, err := l.checkTransfer(&ValueTransferRule{Regex: regex, Cast: row.TypeString})
		if ok {
			wantError(t, asErr(err), "", "")
		} else if err == nil || err.Code != CodeParameterInvalid {
			t.Errorf("%s: %v", regex, err)
		}
	}
	req := &BatchWriteRowRequest{Tables: []TableChanges{{Table: "t"}}}
	for i := range 150 {
		c := updateOf(pk(fmt.Sprint(i)), cell("n", 1))
		c.ColumnCondition = where("c", CompareEqual, "x").or(cast(fmt.Sprintf(`%d(a{29}){30}`, i), row.TypeString))
		req.Tables[0].Changes = append(req.Tables[0].Changes, c)
	}
	wantError(t, asErr(l.checkBatchWrite(req)), CodeParameterInvalid,
		"The regexes in the ValueTransferRules of the request are too large: more than 100000 instructions.")
	for i := range req.Tables[0].Changes { // a filter used by many changes counts once
		req.Tables[0].Changes[i].ColumnCondition = req.Tables[0].Changes[0].ColumnCondition
	}
	wantError(t, asErr(l.checkBatchWrite(req)), "", "")
}

// TestATextInSlicesMatchesAsAWhole compares the two ways to match a text.
func TestATextInSlicesMatchesAsAWhole(t *testing.T) {
	l := Documented()
	rapid.Check(t, func(t *rapid.T) {
		regex := rapid.StringMatching(`(\^|\\b)?(a|ä|\.|\[a-c\]|\(a\|b\)|\(\?:ab\)|\\s|\(c\)\?|b\*|a\+\?|ö\{1,2\}){1,6}(\$|\\B)?`).Draw(t, "regex")
		x, bad := l.checkTransfer(&ValueTransferRule{Regex: regex, Cast: row.TypeString})
		if bad != nil {
			return // for example, a repetition of a repetition
		}
		text := []byte(rapid.StringMatching(`[abcäö \n]{0,40}`).Draw(t, "text"))
		w := effort{ctx: context.Background(), left: rowSteps}
		r := slicedText{text: text, effort: &w, perByte: x.perByte, slice: rapid.IntRange(1, 5).Draw(t, "slice")}
		if got, want := x.FindReaderSubmatchIndex(&r), x.FindSubmatchIndex(text); !slices.Equal(got, want) || r.err != nil {
			t.Fatalf("%s in %q: %v, %v, as a whole %v", regex, text, got, r.err, want)
		}
	})
}

// BenchmarkStepsOfExpressions measures the time of one step.
func BenchmarkStepsOfExpressions(b *testing.B) {
	l := Documented()
	text := []byte(strings.Repeat("a", 1<<17))
	for _, regex := range []string{`(a?){150}b`, `(a|aa|aaa){1,50}c`, `a{900}b`, strings.Repeat("(a?)", 60) + "b", `[^b]*b`} {
		b.Run(regex, func(b *testing.B) {
			x := must(l.checkTransfer(&ValueTransferRule{Regex: regex, Cast: row.TypeString}))
			n := min(len(text), int(rowSteps/x.perByte))
			for b.Loop() {
				if _, err := x.find(text[:n], &effort{ctx: context.Background(), left: rowSteps}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(x.perByte)/float64(n), "ns/step")
		})
	}
}
