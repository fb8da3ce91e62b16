package main

import (
	"encoding/json"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/flagstone-db/flagstone"
	"github.com/flagstone-db/flagstone/instances"
	"github.com/flagstone-db/flagstone/row"
)

// step is a command line and what it prints. A line of want that begins with "!" is a part of the error.
type step struct{ line, want string }

// follow runs command lines on the store in dir. Arguments are separated by spaces, and ~ stands for a space in one.
func follow(t *testing.T, dir string, steps []step) {
	t.Helper()
	for _, s := range steps {
		args := strings.Fields(s.line)
		for i := range args {
			args[i] = strings.ReplaceAll(args[i], "~", " ")
		}
		at := 1
		if args[0] == "table" {
			at = 2
		}
		args = append(append(append([]string{}, args[:at]...), "--dir", dir), args[at:]...)
		status, out, errOut := command(t, args...)
		var lines []string
		for line := range strings.Lines(out) {
			lines = append(lines, strings.Join(strings.Fields(line), " "))
		}
		got := strings.Join(lines, "\n")
		if refusal, fails := strings.CutPrefix(s.want, "!"); fails {
			if status == 0 || out != "" || !strings.Contains(errOut, refusal) || strings.Count(errOut, "\n") != 1 {
				t.Errorf("%s: status %d, %q, %q; want a refusal with %q", s.line, status, out, errOut, refusal)
			}
		} else if status != 0 || got != s.want {
			t.Errorf("%s: status %d, %s\n%s\nwant\n%s", s.line, status, errOut, got, s.want)
		}
	}
}

var rowSteps = []step{
	{"table create orders --key customer:string --key n:integer --versions 3", ""},
	{"table create orders --key k:string", "!exists already"},
	{"table create t2 --key k:text", `!"text" is no type of a key`},
	{"table create t2 --key k:double", "!NAME:string, NAME:integer or NAME:binary"},
	{"put orders -s state=new -s total:double=2 -- anna -5", ""},
	{"put orders anna 7 -s state=new -s paid:boolean=true -s note=two~words -s picture:binary=00ff", ""},
	{"put orders bert 1 -s b=1", ""},
	{"put orders bert 1 -s b=1 --expect absent", "!OTSConditionCheckFail"},
	{"put orders bert", "!1 values for a key of 2 columns"},
	{"put orders bert x", `!key column n: invalid: "x" is no value of type integer`},
	{"put orders bert 2 -s n", `!"n" sets nothing`},
	{"put orders bert 2 -s n=1 -s n:integer=2", "!column n is set twice"},
	{"count orders --where=", "!--where is empty"},
	{"put orders bert 2 -s n:int=1", `!no type is named "int"`},
	{"put orders bert 2 -s n:integer=1.5", `!"1.5" is no value of type integer`},
	{"put orders bert 2 -s n@x=1", `!"x" is no version`},
	{"put orders bert 2 -s n@0=1", `!"0" is no version`},
	{"put orders bert 2 -s n@5:integer=1", `!"5:integer" is no version`},
	{"put orders bert\xff 2", "!is not UTF-8"},
	{"get orders anna 7", "customer n note paid picture state\nanna 7 two words true 00ff new"},
	{"get orders anna 7 --columns state", "customer n state\nanna 7 new"},
	{"get orders anna 7 --columns state,paid --csv", "customer,n,state,paid\nanna,7,new,true"},
	{"get orders anna 7 --columns state,note", "customer n state note\nanna 7 new two words"},
	{"get orders anna 7 --columns n", "!a column of the key"},
	{"get orders anna 7 --columns state --csv --versions 2", "!one version"},
	{"get orders anna 7 --csv", "!--columns"},
	{"get orders anna", "!the key of table orders is customer:string,n:integer; 1 values were given"},
	{"get orders zoe 1", "!no such row"},
	{"get nothing 1", `!has no table "nothing"`},
	{"update orders anna 7 -s state=paid -u note -u picture --expect exists", ""},
	{"update orders zoe 7 -s state=paid --expect exists", "!OTSConditionCheckFail"},
	{"get orders anna 7", "customer n paid state\nanna 7 true paid"},
	{"scan orders", "customer n state total\nanna -5 new 2\n"},
	{"scan orders anna --from 0", "customer n paid state\nanna 7 true paid"},
	{"scan orders anna --to 7 --columns state", "customer n state\nanna -5 new"},
	{"scan orders anna --backward --columns state --from 7 --to=-5", "customer n state\nanna 7 paid"},
	{"scan orders --from anna --to bert --columns state --csv", "customer,n,state\nanna,-5,new\nanna,7,paid"},
	{"scan orders --limit 1 --columns state --csv", "customer,n,state\nanna,-5,new"},
	{"scan orders --limit -1", "!--limit"},
	{"scan orders bert 1", "customer n b\nbert 1 1"},
	{"scan orders bert 1 --from 2", "!the key is whole"},
	{`scan orders --where state~==~"paid"~or~total>1.5 --csv --columns state`, "customer,n,state\nanna,-5,new\nanna,7,paid"},
	{`scan orders --where paid~exists --csv --columns state`, "customer,n,state\nanna,7,paid"},
	{`count orders --where not~paid~exists`, "2"},
	{`count orders anna --where b=="1"`, "0"},
	{`count orders --where b`, "!the filter: "},
	{`scan orders bert 1 --where b=="2"`, ""},
	{"count orders", "3"},
	{"count orders anna", "2"},
	{"count orders carl", "0"},
	{"delete orders bert 1", ""},
	{"count orders", "2"},
	{"table compact orders", ""},
	{"count orders", "2"},
	{"table alter orders", "!nothing to change"},
	{"table alter orders --ttl 90000 --stream 24", ""}, // no cell is as old
	{"table alter orders --ttl 90001 --versions 4 --stream 24", ""},
	{"table create old --key k:string --versions 3 --version-offset 4000000000 --stream 24", ""},
	{"table alter old --ttl 90000 --versions 2", ""}, // it has no row
	{"table alter old --ttl=-1 --versions 3", ""},
	{"put old a -s c@1000=x", ""},
	{"put old b -s c@4000=y -s d@5000=y", ""},
	{"update old b -s c@3000=y", ""},
	{"put old c -s c=z", ""},
	{"table alter old --ttl 90000", "!cells that are older than 90000s, which 2 of the first 3 rows have now"},
	{"table alter old --versions 1", "!versions of a cell but for the newest 1, which 1 of the first 3 rows have now"},
	{"table alter old --stream 0", "!this deletes all records of the stream; repeat it with --yes"},
	{"table alter old --ttl 90000 --versions 1 --stream 0", "!90000s and versions of a cell but for the newest 1, which 2 of the first 3 rows have now, and all records"},
	{"count old", "3"},
	{"table alter old --ttl 90000 --versions 1 --stream 0 --yes", ""},
	{"count old", "1"},
	{"table create numbered --key k:string --key n:integer:auto", ""},
	{"table drop numbered", "!--yes"},
	{"table drop numbered --yes", ""},
	{"table drop numbered --yes", "!not found"},
}

// TestRowsAreReadAndChangedFromTheCommandLine does the same on a store that no process has open, and beside a server.
func TestRowsAreReadAndChangedFromTheCommandLine(t *testing.T) {
	steps := append([]step{}, rowSteps...)
	for i := range steps {
		if steps[i].line == "scan orders" { // its three rows have different columns
			steps[i].want = "customer n state total paid b\nanna -5 new 2\nanna 7 paid true\nbert 1 1"
		}
	}
	t.Run("offline", func(t *testing.T) { follow(t, newHome(t), steps) })
	t.Run("beside a server", func(t *testing.T) {
		dir := filepath.Join(t.TempDir(), "store")
		_, stop := serving(t, "--dir", dir)
		follow(t, dir, steps)
		if status := stop(); status != 0 {
			t.Errorf("the server stopped with %d", status)
		}
	})
}

// TestVersionsAreSetAndShown sets versions above that of a put.
func TestVersionsAreSetAndShown(t *testing.T) {
	dir := newHome(t)
	follow(t, dir, []step{{"table create v --key k:string --versions 2", ""}, {"put v now -s c=1", ""}})
	_, out, errOut := command(t, "get", "--dir", dir, "v", "now", "--json")
	var now instances.Row
	if err := json.Unmarshal([]byte(out), &now); err != nil {
		t.Fatal(err, errOut)
	}
	version := func(n int64) string { return fmt.Sprint(now.Columns[0].Version + n) }
	for _, n := range []int64{1, 3, 2} {
		follow(t, dir, []step{{fmt.Sprintf("update v a -s c@%s=x%d -s d:integer@%s=%d", version(n), n, version(n), n), ""}})
	}
	follow(t, dir, []step{
		{"get v a --versions 9", fmt.Sprintf("k c d\na x3@%s; x2@%s 3@%s; 2@%s", version(3), version(2), version(3), version(2))},
		{"get v a --json", `{"key":[{"name":"k","value":"a"}],"columns":[` +
			`{"name":"c","version":` + version(3) + `,"value":"x3"},{"name":"d","version":` + version(3) + `,"value":3}]}`},
	})
}

func TestANumberedRowIsPrinted(t *testing.T) {
	dir := newHome(t)
	follow(t, dir, []step{{"table create numbered --key k:string --key n:integer:auto", ""}})
	status, out, errOut := command(t, "put", "--dir", dir, "numbered", "a", "auto", "-s", "c=1")
	if status != 0 || strings.TrimSpace(out) == "" {
		t.Fatalf("status %d, %q, %q", status, out, errOut)
	}
	follow(t, dir, []step{{"get numbered a " + strings.TrimSpace(out) + " --columns c --csv", "k,n,c\na," + strings.TrimSpace(out) + ",1"}})
}

// TestAScanOfManyPagesPrintsEachRowOnce reads more rows than a page has, in both directions.
func TestAScanOfManyPagesPrintsEachRowOnce(t *testing.T) {
	dir := newHome(t)
	home, err := instances.Open(dir, instances.Options{Store: flagstone.Options{Sync: flagstone.SyncNone}})
	if err != nil {
		t.Fatal(err)
	}
	const rows = 1205
	for n := range rows {
		if _, err := home.Change(t.Context(), "demo", &instances.Change{Table: "t", Kind: "put", Key: []string{strconv.Itoa(n)}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := home.Close(); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{}, {"--backward"}} {
		_, out, errOut := command(t, append([]string{"scan", "--dir", dir, "t", "--limit", "0"}, args...)...)
		if lines := strings.Split(strings.TrimSpace(out), "\n"); len(lines) != rows+1 || errOut != "" {
			t.Errorf("%v: %d lines, %s", args, len(lines), errOut)
		}
	}
	if _, out, _ := command(t, "count", "--dir", dir, "t"); strings.TrimSpace(out) != "1205" {
		t.Errorf("counted %q", out)
	}
	follow(t, dir, []step{{"table alter t --ttl 90000", "!which 0 of the first 100 rows have now; repeat it with --yes"}})
	_, out, errOut := command(t, "scan", "--dir", dir, "t")
	if strings.Count(out, "\n") != 101 || !strings.Contains(errOut, "may be more rows") {
		t.Errorf("%d lines, %q", strings.Count(out, "\n"), errOut)
	}
}

// TestPrintedTextCannotSteerATerminal prints names and values that another program has written.
func TestPrintedTextCannotSteerATerminal(t *testing.T) {
	dir := newHome(t)
	evil := "\x1b[2J\u202e\nx"
	if status, _, errOut := command(t, "table", "create", "--dir", dir, "s", "--key", "k:string"); status != 0 {
		t.Fatal(errOut)
	}
	if status, _, errOut := command(t, "put", "--dir", dir, "s", evil, "-s", "c="+evil); status != 0 {
		t.Fatal(errOut)
	}
	for _, args := range [][]string{{"scan"}, {"get"}} {
		args = append(args, "--dir", dir, "s")
		if args[0] == "get" {
			args = append(args, evil)
		}
		status, out, _ := command(t, args...)
		if status != 0 || strings.ContainsAny(out, "\x1b\u202e") || strings.Count(out, "\n") != 2 {
			t.Errorf("%v: status %d, %q", args, status, out)
		}
	}
}

// TestValuesKeepTheirTypeInJSON writes and reads every type, and what JSON has not.
func TestValuesKeepTheirTypeInJSON(t *testing.T) {
	for _, v := range []row.Value{
		row.Integer(0), row.Integer(math.MinInt64), row.Integer(math.MaxInt64), row.Double(0), row.Double(1e300), row.Double(-2),
		row.Double(math.Inf(1)), row.Double(math.Inf(-1)), row.Double(math.NaN()), row.Boolean(true), row.Boolean(false),
		row.String(""), row.String("ä\"\n\u2028"), row.String("\xff"), row.Binary(nil), row.Binary([]byte{0, 255}),
	} {
		text, err := json.Marshal(instances.Value{Value: v})
		var back instances.Value
		if err == nil {
			err = json.Unmarshal(text, &back)
		}
		if err != nil || back.Type() != v.Type() || back.Value.String() != v.String() {
			t.Errorf("%s %v: %s is %s %v, %v", v.Type(), v, text, back.Type(), back.Value, err)
		}
	}
	for _, text := range []string{"null", "[]", "{}", `{"binary":"0"}`, `{"double":"x"}`, `{"binary":"","string":""}`, `{"other":"a"}`, "9223372036854775808", "1e999"} {
		var v instances.Value
		if err := json.Unmarshal([]byte(text), &v); err == nil {
			t.Errorf("%s was taken for %s %v", text, v.Type(), v.Value)
		}
	}
}

func TestAdviceNamesTheInstanceOfTheTable(t *testing.T) {
	t.Setenv("FLAGSTONE_DIR", newHome(t))
	done(t, "instance", "create", "other")
	done(t, "table", "create", "other/queue", "--key", "k:string")
	for _, line := range []string{"advise other/queue", "advise queue --instance other"} {
		if out := done(t, strings.Fields(line)...); !strings.HasPrefix(out, "other/queue, keyed by ") {
			t.Errorf("%s: %s", line, out)
		}
	}
}

func TestAColumnThatNoRowHasIsTold(t *testing.T) {
	t.Setenv("FLAGSTONE_DIR", newHome(t))
	done(t, "put", "t", "1", "-s", "a=1")
	done(t, "put", "t", "2", "-s", "b=1")
	for line, unseen := range map[string][]string{
		"get t 1": {"b", "nope"}, "scan t": {"nope"}, "scan t --json": {"nope"}, "scan t 3": nil, "export t": {"nope"}, "export t --format csv": {"nope"},
	} {
		status, _, errOut := command(t, append(strings.Fields(line), "--columns", "a,b,nope")...)
		var told []string
		for line := range strings.Lines(errOut) {
			if name, ok := strings.CutPrefix(line, "flagstone: no row that was read has a column "); ok {
				told = append(told, strings.TrimSpace(name))
			}
		}
		if status != 0 || !slices.Equal(told, unseen) {
			t.Errorf("%s: status %d, %q", line, status, errOut)
		}
	}
}
