package nodesdk_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	ots "github.com/aliyun/aliyun-tablestore-go-sdk/tablestore"
	"github.com/flagstone-db/flagstone/compat/gosdk/endpoint"
)

// node runs client.js against one server.
type node struct {
	t       *testing.T
	dir     string // a copy of this directory, with its packages installed
	command *endpoint.Command
	server  *endpoint.Server
	client  *ots.TableStoreClient // of the other SDK
}

// start starts a server and installs the Node.js SDK beside a copy of the
// client, so that this directory stays clean.
func start(t *testing.T) *node {
	t.Helper()
	command, err := endpoint.Build()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { command.Remove() })
	server, err := command.Start(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
		if t.Failed() {
			t.Logf("the server printed:\n%s", server.Log())
		}
	})
	n := &node{t: t, dir: t.TempDir(), command: command, server: server,
		client: ots.NewClient(server.URL, endpoint.Instance, endpoint.KeyID, endpoint.KeySecret)}
	for _, name := range []string{"package.json", "package-lock.json", "client.js", "orders.test.js"} {
		content, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(n.dir, name), content, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	install := exec.Command("npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--prefer-offline")
	install.Dir = n.dir
	if out, err := install.CombinedOutput(); err != nil {
		t.Fatalf("npm ci: %v\n%s", err, out)
	}
	return n
}

// run runs a command of client.js and decodes what it prints.
func run[T any](n *node, args ...string) (result T) {
	n.t.Helper()
	cmd := exec.Command("node", append([]string{"client.js"}, args...)...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "ENDPOINT="+n.server.URL, "INSTANCE="+endpoint.Instance,
		"KEY_ID="+endpoint.KeyID, "KEY_SECRET="+endpoint.KeySecret)
	var stdout, stderr bytes.Buffer
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		n.t.Fatalf("client.js %v: %v\n%s", args, err, stderr.String())
	}
	if err := json.Unmarshal(stdout.Bytes(), &result); err != nil {
		n.t.Fatalf("client.js %v printed %q: %v", args, stdout.String(), err)
	}
	return result
}

// A row as client.js prints it.
type row struct {
	Key     []value
	Columns []struct {
		Name, Version string
		Value         value
	}
}

// A value of one of five types.
type value struct {
	String  *string
	Binary  *string // hexadecimal
	Boolean *bool
	Double  *float64
	Integer *string
}

func (v value) text() string {
	switch {
	case v.String != nil:
		return fmt.Sprintf("%q", *v.String)
	case v.Binary != nil:
		return "x" + *v.Binary
	case v.Boolean != nil:
		return strconv.FormatBool(*v.Boolean)
	case v.Double != nil:
		return fmt.Sprint("double ", *v.Double)
	case v.Integer != nil:
		return *v.Integer
	}
	return "nothing"
}

// goText is the same for a value of the Go SDK.
func goText(v any) string {
	switch v := v.(type) {
	case string:
		return fmt.Sprintf("%q", v)
	case []byte:
		return fmt.Sprintf("x%x", v)
	case float64:
		return fmt.Sprint("double ", v)
	}
	return fmt.Sprint(v)
}

// lines shows rows, one in a line, versions too if asked for.
func lines(rows []row, versions bool) string {
	var out []string
	for _, r := range rows {
		var parts []string
		for _, k := range r.Key {
			parts = append(parts, k.text())
		}
		line := "(" + strings.Join(parts, " ") + ")"
		for _, c := range r.Columns {
			line += " " + c.Name
			if versions {
				line += "@" + c.Version
			}
			line += "=" + c.Value.text()
		}
		out = append(out, line)
	}
	return strings.Join(out, "\n")
}

// goLines reads a table with the Go SDK and shows it like lines.
func (n *node) goLines(name string, versions bool) string {
	n.t.Helper()
	query := &ots.RangeRowQueryCriteria{TableName: name, MaxVersion: 10, Limit: 3,
		StartPrimaryKey: new(ots.PrimaryKey), EndPrimaryKey: new(ots.PrimaryKey)}
	for _, k := range []string{"s", "i", "b"} {
		query.StartPrimaryKey.AddPrimaryKeyColumnWithMinValue(k)
		query.EndPrimaryKey.AddPrimaryKeyColumnWithMaxValue(k)
	}
	var out []string
	for query.StartPrimaryKey != nil {
		page, err := n.client.GetRange(&ots.GetRangeRequest{RangeRowQueryCriteria: query})
		if err != nil {
			n.t.Fatal(err)
		}
		for _, r := range page.Rows {
			var parts []string
			for _, k := range r.PrimaryKey.PrimaryKeys {
				parts = append(parts, goText(k.Value))
			}
			line := "(" + strings.Join(parts, " ") + ")"
			for _, c := range r.Columns {
				line += " " + c.ColumnName
				if versions {
					line += fmt.Sprint("@", c.Timestamp)
				}
				line += "=" + goText(c.Value)
			}
			out = append(out, line)
		}
		query.StartPrimaryKey = page.NextStartPrimaryKey
	}
	return strings.Join(out, "\n")
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got\n%s\nwant\n%s", what, got, want)
	}
}

// writtenByNode is what "client.js write" leaves in an empty table.
const writtenByNode = `("batch" 1 x01) a="put"
("batch" 2 x02) a="update"
("types" -1 x00ff) b_some=x00ff10 d_half=double 0.5 d_whole=double 3 f=false i_max=9223372036854775807 i_min=-9223372036854775808 s_chinese="表格存储" s_empty="" t=true
("update" 7 x6b) a="new" a="old" n=42 stays="x"`

func TestTheSDKForNodeAndTheOneForGoReadWhatTheOtherWrote(t *testing.T) {
	n := start(t)

	description := run[struct {
		Name                    string
		Key                     []string
		MaxVersions, TimeToLive int
	}](n, "create", "ByNode")
	want(t, "described by Node", fmt.Sprintf("%+v", description), "{Name:ByNode Key:[s 2 i 1 b 3] MaxVersions:3 TimeToLive:-1}")
	d, err := n.client.DescribeTable(&ots.DescribeTableRequest{TableName: "ByNode"})
	if err != nil {
		t.Fatal(err)
	}
	want(t, "described by Go", fmt.Sprint(len(d.TableMeta.SchemaEntry), d.TableOption.MaxVersion, d.TableOption.TimeToAlive), "3 3 -1")

	want(t, "outcomes of a batch", fmt.Sprint(run[[]string](n, "write", "ByNode")), "[ok ok ok OTSConditionCheckFail]")
	want(t, "written by Node, read by Go", n.goLines("ByNode", false), writtenByNode)
	rows := run[[]row](n, "read", "ByNode")
	want(t, "written by Node, read by Node", lines(rows, false), writtenByNode)
	want(t, "with versions", lines(rows, true), n.goLines("ByNode", true))

	n.writeWithGo("ByGo")
	rows = run[[]row](n, "read", "ByGo")
	want(t, "written by Go, read by Node", lines(rows, true), n.goLines("ByGo", true))
	want(t, "rows", fmt.Sprint(len(rows)), "7")

	// Each writes to the table that the other made.
	run[[]string](n, "write", "ByGo")
	want(t, "written by Go and Node", lines(run[[]row](n, "read", "ByGo"), true), n.goLines("ByGo", true))
	n.writeWithGo("ByNode")
	want(t, "written by Node and Go", lines(run[[]row](n, "read", "ByNode"), true), n.goLines("ByNode", true))

	want(t, "tables", fmt.Sprint(run[[]string](n, "tables")), "[ByGo ByNode]")
	passed := run[map[string]bool](n, "filters", "ByNode")
	for what, pass := range map[string]bool{
		"equal": true, "unequal": false, "doubles": true, "longs": true, "missingPasses": true, "missingDoesNot": false,
		"and": true, "not": false, "page": true,
	} {
		if passed[what] != pass {
			t.Errorf("the filter %s lets the row pass: %v; want %v", what, passed[what], pass)
		}
	}
	transactions := run[map[string]string](n, "transactions", "ByNode")
	for what, outcome := range map[string]string{
		"first":   "ok ok OTSDataOutOfRange",
		"outside": "OTSRowOperationConflict",
		"second":  "ok ok ok",
		"counts":  "2 0 2 3 2", // within and outside, committed, within and, aborted, outside
	} {
		want(t, "transactions, "+what, transactions[what], outcome)
	}
	refusals := run[map[string]string](n, "refusals", "ByNode")
	for what, code := range map[string]string{
		"existing":        "OTSObjectAlreadyExist",
		"condition":       "OTSConditionCheckFail",
		"columnCondition": "OTSConditionCheckFail",
		"table":           "OTSObjectNotExist",
		"secret":          "OTSAuthFailed",
	} {
		if !strings.Contains(refusals[what], code) {
			t.Errorf("%s: got %q; want %s", what, refusals[what], code)
		}
	}
}

// TestAProgramIsTestedInMemory runs the example of docs/testing.md by Node's test runner.
func TestAProgramIsTestedInMemory(t *testing.T) {
	n := start(t)
	cmd := exec.Command("node", "--test", "orders.test.js")
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), "FLAGSTONE="+n.command.Path())
	if out, err := cmd.CombinedOutput(); err != nil || !strings.Contains(string(out), "# pass 2") {
		t.Errorf("node --test: %v\n%s", err, out)
	}
}

// writeWithGo makes a table like that of client.js, if it is not there, and
// writes seven rows that the client does not write.
func (n *node) writeWithGo(name string) {
	n.t.Helper()
	meta := &ots.TableMeta{TableName: name}
	meta.AddPrimaryKeyColumn("s", ots.PrimaryKeyType_STRING)
	meta.AddPrimaryKeyColumn("i", ots.PrimaryKeyType_INTEGER)
	meta.AddPrimaryKeyColumn("b", ots.PrimaryKeyType_BINARY)
	_, err := n.client.CreateTable(&ots.CreateTableRequest{TableMeta: meta,
		TableOption: ots.NewTableOption(-1, 3), ReservedThroughput: &ots.ReservedThroughput{}})
	if err != nil && !strings.HasPrefix(err.Error(), "OTSObjectAlreadyExist") {
		n.t.Fatal(err)
	}
	now := time.Now().UnixMilli()
	for i, k := range []struct {
		s string
		i int64
		b []byte
	}{
		{"", math.MinInt64, []byte{}},
		{"", math.MaxInt64, []byte{0}},
		{"go", -1, []byte("a")},
		{"go", -1, []byte("aa")},
		{"go", 1 << 53, []byte("a")},
		{"go\x00", 0, []byte{0xff}},
		{"表格存储", 0, []byte{}},
	} {
		c := &ots.PutRowChange{TableName: name, PrimaryKey: new(ots.PrimaryKey)}
		c.PrimaryKey.AddPrimaryKeyColumn("s", k.s)
		c.PrimaryKey.AddPrimaryKeyColumn("i", k.i)
		c.PrimaryKey.AddPrimaryKeyColumn("b", k.b)
		c.SetCondition(ots.RowExistenceExpectation_IGNORE)
		c.AddColumn("integer", int64(math.MaxInt64-i))
		c.AddColumn("double", float64(i)/3)
		c.AddColumn("string", strings.Repeat("表", i*3))
		c.AddColumn("binary", bytes.Repeat([]byte{byte(i), 0xff}, i))
		c.AddColumn("boolean", i%2 == 0)
		c.AddColumnWithTimestamp("versions", "older", now-2000)
		c.AddColumnWithTimestamp("versions", "newer", now-1000)
		if _, err := n.client.PutRow(&ots.PutRowRequest{PutRowChange: c}); err != nil {
			n.t.Fatal(err)
		}
	}
}
