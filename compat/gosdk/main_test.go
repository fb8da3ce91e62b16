package gosdk_test

// This file starts the server that most tests share, and holds what makes
// tests of rows short: keys and rows as text.

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

var (
	// command is the flagstone command.
	command *endpoint.Command
	// shared is the server for tests that neither stop nor configure it.
	shared *endpoint.Server
	// client talks to shared.
	client *ots.TableStoreClient
)

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) (status int) {
	if url := os.Getenv(sampleURL); url != "" {
		runStreamSample(url)
		return 0
	}
	fail := func(err error) int {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	dir, err := os.MkdirTemp("", "flagstone-gosdk-")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(dir)
	if command, err = endpoint.Build(); err != nil {
		return fail(err)
	}
	defer command.Remove()
	if shared, err = command.Start(dir, "--log-level", "warn"); err != nil {
		return fail(err)
	}
	defer shared.Kill()
	client = connect(shared)
	status = m.Run()
	if err := shared.Stop(); err != nil {
		return fail(err)
	}
	if status != 0 {
		fmt.Fprintf(os.Stderr, "the shared server printed:\n%s", shared.Log())
	}
	return status
}

// connect returns a client of a server that repeats nothing by itself, so that
// tests see every answer.
func connect(s *endpoint.Server) *ots.TableStoreClient {
	return ots.NewClientWithConfig(s.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret, "", noRetries())
}

func noRetries() *ots.TableStoreConfig {
	config := ots.NewDefaultTableStoreConfig()
	config.RetryTimes = 0
	return config
}

// table describes a table to be made. Zero values are one version, no expiry.
type table struct {
	versions, ttl int
	offset        int64
}

// keyTypes are the types that key columns are named after.
var keyTypes = map[byte]ots.PrimaryKeyType{
	'i': ots.PrimaryKeyType_INTEGER, 's': ots.PrimaryKeyType_STRING, 'b': ots.PrimaryKeyType_BINARY,
}

// create makes a table of the shared server that is deleted at the test's end,
// and returns its name. Its key columns are named by the arguments; the first
// letter says the type (i, s, b).
func create(t *testing.T, spec table, keyColumns ...string) string {
	t.Helper()
	name := strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z' {
			return r
		}
		return '_'
	}, t.Name())
	if _, err := client.CreateTable(spec.request(name, keyColumns...)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if _, err := client.DeleteTable(&ots.DeleteTableRequest{TableName: name}); err != nil {
			t.Error(err)
		}
	})
	return name
}

// request returns the request that makes the table.
func (spec table) request(name string, keyColumns ...string) *ots.CreateTableRequest {
	option := ots.NewTableOption(-1, 1)
	if spec.ttl != 0 {
		option.TimeToAlive = spec.ttl
	}
	if spec.versions != 0 {
		option.MaxVersion = spec.versions
	}
	option.DeviationCellVersionInSec = spec.offset
	meta := &ots.TableMeta{TableName: name}
	for _, column := range keyColumns {
		meta.AddPrimaryKeyColumn(column, keyTypes[column[0]])
	}
	return &ots.CreateTableRequest{TableMeta: meta, TableOption: option, ReservedThroughput: &ots.ReservedThroughput{}}
}

// Bounds of a key column.
type bound ots.PrimaryKeyOption

const (
	lowest  = bound(ots.MIN)
	highest = bound(ots.MAX)
)

// key makes a primary key of names and values in turn. Integers are int64;
// lowest and highest stand for the ends.
func key(namesAndValues ...any) *ots.PrimaryKey {
	k := new(ots.PrimaryKey)
	for i := 0; i < len(namesAndValues); i += 2 {
		name := namesAndValues[i].(string)
		switch v := namesAndValues[i+1].(type) {
		case bound:
			k.PrimaryKeys = append(k.PrimaryKeys, &ots.PrimaryKeyColumn{ColumnName: name, PrimaryKeyOption: ots.PrimaryKeyOption(v)})
		case int:
			k.AddPrimaryKeyColumn(name, int64(v))
		default:
			k.AddPrimaryKeyColumn(name, v)
		}
	}
	return k
}

// base is about now, in whole seconds: tests write versions relative to it.
var base = time.Now().Truncate(time.Second).UnixMilli()

// put returns a PutRow of columns, given as name, value in turn. A name may end
// in @N: the version is base + N milliseconds.
func put(name string, k *ots.PrimaryKey, namesAndValues ...any) *ots.PutRowChange {
	c := &ots.PutRowChange{TableName: name, PrimaryKey: k}
	c.SetCondition(ots.RowExistenceExpectation_IGNORE)
	for i := 0; i < len(namesAndValues); i += 2 {
		column, version, given := cell(namesAndValues[i].(string))
		if given {
			c.AddColumnWithTimestamp(column, value(namesAndValues[i+1]), version)
		} else {
			c.AddColumn(column, value(namesAndValues[i+1]))
		}
	}
	return c
}

// A removal is the value that makes update delete: without a version in the
// name the column, with one that version.
type removal struct{}

// update returns an UpdateRow, with columns as in put.
func update(name string, k *ots.PrimaryKey, namesAndValues ...any) *ots.UpdateRowChange {
	c := &ots.UpdateRowChange{TableName: name, PrimaryKey: k}
	c.SetCondition(ots.RowExistenceExpectation_IGNORE)
	for i := 0; i < len(namesAndValues); i += 2 {
		column, version, given := cell(namesAndValues[i].(string))
		_, remove := namesAndValues[i+1].(removal)
		switch {
		case remove && given:
			c.DeleteColumnWithTimestamp(column, version)
		case remove:
			c.DeleteColumn(column)
		case given:
			c.PutColumnWithTimestamp(column, value(namesAndValues[i+1]), version)
		default:
			c.PutColumn(column, value(namesAndValues[i+1]))
		}
	}
	return c
}

// remove returns a DeleteRow.
func remove(name string, k *ots.PrimaryKey) *ots.DeleteRowChange {
	c := &ots.DeleteRowChange{TableName: name, PrimaryKey: k}
	c.SetCondition(ots.RowExistenceExpectation_IGNORE)
	return c
}

// cell splits a cell's name into column and version.
func cell(name string) (column string, version int64, given bool) {
	column, text, given := strings.Cut(name, "@")
	if given {
		if _, err := fmt.Sscan(text, &version); err != nil {
			panic("bad version in " + name)
		}
	}
	return column, base + version, given
}

// value turns int into the int64 that the SDK wants.
func value(v any) any {
	if n, ok := v.(int); ok {
		return int64(n)
	}
	return v
}

// write applies row changes one by one; the test ends at the first that fails.
func write(t *testing.T, changes ...ots.RowChange) {
	t.Helper()
	for _, c := range changes {
		if err := apply(c); err != nil {
			t.Fatalf("%T: %v", c, err)
		}
	}
}

// apply applies one row change.
func apply(c ots.RowChange) (err error) {
	_, err = consumed(c)
	return err
}

// consumed applies one row change and returns what it cost.
func consumed(c ots.RowChange) (*ots.ConsumedCapacityUnit, error) {
	switch c := c.(type) {
	case *ots.PutRowChange:
		r, err := client.PutRow(&ots.PutRowRequest{PutRowChange: c})
		if err != nil {
			return nil, err
		}
		return r.ConsumedCapacityUnit, nil
	case *ots.UpdateRowChange:
		r, err := client.UpdateRow(&ots.UpdateRowRequest{UpdateRowChange: c})
		if err != nil {
			return nil, err
		}
		return r.ConsumedCapacityUnit, nil
	case *ots.DeleteRowChange:
		r, err := client.DeleteRow(&ots.DeleteRowRequest{DeleteRowChange: c})
		if err != nil {
			return nil, err
		}
		return r.ConsumedCapacityUnit, nil
	}
	panic(fmt.Sprintf("no operation for %T", c))
}

// get reads a row: its newest versions, or what change makes of the request.
func get(t *testing.T, name string, k *ots.PrimaryKey, change ...func(*ots.SingleRowQueryCriteria)) *ots.GetRowResponse {
	t.Helper()
	c := &ots.SingleRowQueryCriteria{TableName: name, PrimaryKey: k, MaxVersion: 1}
	for _, f := range change {
		f(c)
	}
	r, err := client.GetRow(&ots.GetRowRequest{SingleRowQueryCriteria: c})
	if err != nil {
		t.Fatalf("GetRow: %v", err)
	}
	return r
}

// text shows a row as "(key values) column=value ...". A missing row is "".
func text(k *ots.PrimaryKey, columns []*ots.AttributeColumn) string {
	return format(k, columns, func(c *ots.AttributeColumn) string { return c.ColumnName })
}

// versionText is text with versions, relative to base: "(key) column@N=value".
func versionText(k *ots.PrimaryKey, columns []*ots.AttributeColumn) string {
	return format(k, columns, func(c *ots.AttributeColumn) string {
		return fmt.Sprintf("%s@%d", c.ColumnName, c.Timestamp-base)
	})
}

func format(k *ots.PrimaryKey, columns []*ots.AttributeColumn, name func(*ots.AttributeColumn) string) string {
	if k == nil || len(k.PrimaryKeys) == 0 {
		return ""
	}
	var values []string
	for _, c := range k.PrimaryKeys {
		values = append(values, fmt.Sprint(c.Value))
	}
	out := "(" + strings.Join(values, " ") + ")"
	for _, c := range columns {
		out += fmt.Sprintf(" %s=%v", name(c), c.Value)
	}
	return out
}

// want fails the test if got is not want.
func want[T comparable](t *testing.T, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// wantError fails the test unless err is the server's error of that code, whose
// message holds part. No code means no error.
func wantError(t *testing.T, what string, err error, code, part string) {
	t.Helper()
	if code == "" {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
		return
	}
	var own *ots.OtsError
	switch {
	case !errors.As(err, &own):
		t.Errorf("%s: got %v; want %s", what, err, code)
	case own.Code != code || !strings.Contains(own.Message, part):
		t.Errorf("%s: got %s %q; want %s ...%q...", what, own.Code, own.Message, code, part)
	case own.RequestId == "":
		t.Errorf("%s: the error has no request id", what)
	}
}
