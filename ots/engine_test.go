package ots

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	flagstone "github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/internal/clock/clocktest"
	"github.com/flagstone-db/flagstone/internal/vfs"
	"github.com/flagstone-db/flagstone/row"
)

// This file holds what all tests of the package share: an engine over a simulated disk, with a
// clock that moves only when told, and short forms of requests.

const (
	testInstance = "demo"
	startMillis  = int64(1_500_000_000_000)
)

type fixture struct {
	*Engine
	tb    testing.TB
	clock *clocktest.Manual
}

func openFixture(tb testing.TB, limits Limits) *fixture {
	tb.Helper()
	return openFixtureOver(tb, limits, flagstone.Options{})
}

// openFixtureOver opens the engine over a store with the given options.
func openFixtureOver(tb testing.TB, limits Limits, opts flagstone.Options) *fixture {
	tb.Helper()
	manual := clocktest.NewManual(startMillis)
	if opts.Seams.FS == nil {
		opts.Seams.FS = vfs.NewSim(vfs.SimOptions{})
	}
	opts.Seams.Clock = manual
	store, err := flagstone.Open("/store", opts)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() {
		if err := store.Close(); err != nil {
			tb.Error(err)
		}
	})
	engine, err := New(store, Options{Instances: []string{testInstance, "other"}, Limits: limits})
	if err != nil {
		tb.Fatal(err)
	}
	return &fixture{Engine: engine, tb: tb, clock: manual}
}

func ptr[T any](v T) *T { return &v }

// tableRequest is a request for a table whose key columns are "name type" pairs. The table
// keeps one version forever.
func tableRequest(name string, key ...any) *CreateTableRequest {
	req := &CreateTableRequest{
		Table:   name,
		Options: &TableOptions{TimeToLive: ptr(int32(-1)), MaxVersions: ptr(int32(1))},
	}
	for i := 0; i < len(key); i += 2 {
		req.PrimaryKey = append(req.PrimaryKey, KeyColumn{Name: key[i].(string), Type: key[i+1].(row.Type)})
	}
	return req
}

func (f *fixture) create(req *CreateTableRequest) {
	f.tb.Helper()
	if err := f.CreateTable(context.Background(), testInstance, req); err != nil {
		f.tb.Fatalf("CreateTable(%s): %v", req.Table, err)
	}
}

// createPlain makes table "t" with one string key column "pk".
func (f *fixture) createPlain(maxVersions, ttl int32) {
	f.tb.Helper()
	req := tableRequest("t", "pk", row.TypeString)
	req.Options.MaxVersions, req.Options.TimeToLive = &maxVersions, &ttl
	f.create(req)
}

// keyOf makes a key from name, value pairs.
func keyOf(pairs ...any) []KeyValue {
	var key []KeyValue
	for i := 0; i < len(pairs); i += 2 {
		key = append(key, KeyValue{Name: pairs[i].(string), Value: valueOf(pairs[i+1])})
	}
	return key
}

func valueOf(v any) row.Value {
	switch v := v.(type) {
	case string:
		return row.String(v)
	case []byte:
		return row.Binary(v)
	case int:
		return row.Integer(int64(v))
	case int64:
		return row.Integer(v)
	case float64:
		return row.Double(v)
	case bool:
		return row.Boolean(v)
	case row.Value:
		return v
	case nil:
		return row.Value{}
	}
	panic(fmt.Sprintf("no value for %T", v))
}

func pk(v string) []KeyValue { return keyOf("pk", v) }

// cell is a put whose version the server sets.
func cell(name string, v any) Cell { return Cell{Name: name, Value: valueOf(v)} }

// cellAt is a put with a version set by the client.
func cellAt(name string, v any, version int64) Cell {
	return Cell{Name: name, Value: valueOf(v), Version: version, HasVersion: true}
}

func deleteColumn(name string) Cell { return Cell{Name: name, Op: OpDeleteAllVersion} }

func deleteVersion(name string, version int64) Cell {
	return Cell{Name: name, Op: OpDeleteOneVersion, Version: version, HasVersion: true}
}

func putOf(key []KeyValue, cells ...Cell) RowChange {
	return RowChange{Type: ChangePut, Row: Row{Key: key, Cells: cells}}
}

func updateOf(key []KeyValue, cells ...Cell) RowChange {
	return RowChange{Type: ChangeUpdate, Row: Row{Key: key, Cells: cells}}
}

func deleteOf(key []KeyValue) RowChange {
	return RowChange{Type: ChangeDelete, Row: Row{Key: key, DeleteMarker: true}}
}

func (c RowChange) expecting(e RowExistence) RowChange {
	c.Existence = e
	return c
}

func (f *fixture) write(change RowChange) (*WriteResult, error) {
	return f.WriteRow(context.Background(), testInstance, &WriteRowRequest{Table: "t", Change: change})
}

func (f *fixture) mustWrite(changes ...RowChange) {
	f.tb.Helper()
	for i := range changes {
		if _, err := f.write(changes[i]); err != nil {
			f.tb.Fatalf("write %d: %v", i, err)
		}
	}
}

// all selects every version of the given columns, or of all columns.
func all(columns ...string) Selection {
	return Selection{ColumnsToGet: columns, MaxVersions: ptr(int32(1 << 30))}
}

func (f *fixture) get(key []KeyValue, sel Selection) (*ReadResult, error) {
	return f.GetRow(context.Background(), testInstance, &GetRowRequest{Table: "t", Row: Row{Key: key}, Selection: sel})
}

// show reads a row of table t and formats it with showRow.
func (f *fixture) show(key []KeyValue, sel Selection) string {
	f.tb.Helper()
	res, err := f.get(key, sel)
	if err != nil {
		f.tb.Fatalf("GetRow: %v", err)
	}
	return showRow(res.Row)
}

// showRow formats a row as "k1,k2 | column@version=value ...", with versions relative to the
// start of the clock; "none" for no row.
func showRow(r *Row) string {
	if r == nil {
		return "none"
	}
	var parts []string
	for _, k := range r.Key {
		parts = append(parts, k.Value.String())
	}
	s := strings.Join(parts, ",") + " |"
	for _, c := range r.Cells {
		s += fmt.Sprintf(" %s@%d=%s", c.Name, c.Version-startMillis, c.Value)
	}
	return s
}

// wantError checks the code and message of an error; with an empty code there must be none.
func wantError(tb testing.TB, err error, code, message string) {
	tb.Helper()
	if code == "" {
		if err != nil {
			tb.Errorf("got error %v, want none", err)
		}
		return
	}
	var e *Error
	if !errors.As(err, &e) {
		tb.Errorf("got error %v, want %s: %s", err, code, message)
		return
	}
	if e.Code != code || e.Message != message {
		tb.Errorf("got error\n\t%s: %s\nwant\n\t%s: %s", e.Code, e.Message, code, message)
	}
}

// asErr turns an *Error into an error, keeping nil nil.
func asErr(e *Error) error {
	if e == nil {
		return nil
	}
	return e
}

func TestInstanceNamesAreCheckedWhenTheServiceOpens(t *testing.T) {
	many := []string{}
	for i := range 11 {
		many = append(many, fmt.Sprintf("instance-%d", i))
	}
	for _, c := range []struct {
		name      string
		instances []string
		ok        bool
	}{
		{"none", nil, false},
		{"ten", many[:10], true},
		{"eleven", many, false},
		{"three letters", []string{"abc"}, true},
		{"two letters", []string{"ab"}, false},
		{"sixteen bytes", []string{"abcdefghijklmnop"}, true},
		{"seventeen bytes", []string{"abcdefghijklmnopq"}, false},
		{"hyphen and digit inside", []string{"a-1b"}, true},
		{"digit first", []string{"1abc"}, false},
		{"hyphen first", []string{"-abc"}, false},
		{"hyphen last", []string{"abc-"}, false},
		{"underscore", []string{"a_bc"}, false},
		{"slash", []string{"ab/c"}, false},
		{"twice", []string{"abc", "abc"}, false},
		{"twice in other case", []string{"abc", "aBc"}, false},
	} {
		for _, limits := range []Limits{Documented(), Current()} {
			e, err := New(nil, Options{Instances: c.instances, Limits: limits})
			if (err == nil) != c.ok {
				t.Errorf("%s: New gave error %v, want ok=%v", c.name, err, c.ok)
			}
			if c.ok && (!e.HasInstance(c.instances[0]) || e.HasInstance("nobody")) {
				t.Errorf("%s: HasInstance does not tell served from unknown", c.name)
			}
		}
	}
}

func TestTheDefaultLimitsAreTheDocumentedOnes(t *testing.T) {
	e, err := New(nil, Options{Instances: []string{"abc"}})
	if err != nil {
		t.Fatal(err)
	}
	if e.limits != Documented() {
		t.Errorf("limits are %+v", e.limits)
	}
}

func TestInstancesDoNotSeeEachOthersTables(t *testing.T) {
	f := openFixture(t, Limits{})
	f.createPlain(1, -1)
	ctx := context.Background()
	names, err := f.ListTable(ctx, "other")
	if err != nil || len(names) != 0 {
		t.Errorf("the other instance lists %v, %v", names, err)
	}
	_, err = f.DescribeTable(ctx, "other", "t")
	wantError(t, err, CodeObjectNotExist, "Requested table does not exist.")
	if err := f.CreateTable(ctx, "other", tableRequest("t", "pk", row.TypeInteger)); err != nil {
		t.Errorf("a table of the same name in another instance: %v", err)
	}
	err = f.CreateTable(ctx, "nobody", tableRequest("t", "pk", row.TypeInteger))
	wantError(t, err, CodeAuthFailed, "The instance is not found.")
}
